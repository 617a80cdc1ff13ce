//! Replay and stored rows of transcripts.

mod replay;
mod stored;
mod updates;
