//! The dialects of the Agent Client Protocol.
//!
//! Peers speak `v1`, `v2` as published, or the `draft` of v2 with its proposals. Only this crate
//! decodes and encodes updates; it converts between the wire and the model of `parlor-session`.
//!
//! - [`Decoder`] decodes the updates of one session.
//! - [`Fold`] reads whole lines, recorded or live, and builds the transcript of one session.
//! - [`Translator`] translates lines between two dialects.
//! - [`PathMap`] maps the paths of an agent that sees the files elsewhere.
//! - [`live`] encodes updates and requests for a server with many clients.
//! - [`view`] shows a transcript as JSON.
//!
//! **Invariant:** no I/O, no clock, no randomness, no async.

mod broadcast;
mod decode;
mod dialect;
mod encode;
pub mod event;
mod fast_path;
mod fold;
mod json_ext;
pub mod live;
mod loss;
mod message_to_chunks;
mod meta;
mod passthrough;
mod path_map;
mod recording;
pub mod settings;
mod translate;
mod values;
pub mod view;

pub use decode::{BadUpdate, Decoded, Decoder, Problem};
pub use dialect::{Dialect, UnknownDialect, UnsupportedVersion};
pub use fold::{Fold, LineProblem};
pub use loss::{Loss, LossKind, Losses};
pub use message_to_chunks::{NotAsChunks, message_as_chunks};
pub use passthrough::with_ids;
pub use path_map::{BadPathMap, PathMap};
pub use recording::{Recorded, Side};
pub use translate::{TranslatedLine, Translation, Translator};
pub use values::permission::with_request_id;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
