//! A live session: what comes of what people and agents do.
//!
//! Each test is a script of what happens, and after each line what came of it. [`stage`] says how to read them.

mod agents;
mod echoes;
mod envelopes;
mod events;
mod forks;
mod keys;
mod limits;
mod matching;
mod named_echoes;
mod names;
mod one_by_one;
mod ownership;
mod peer_requests;
mod properties;
mod queueing;
mod stage;
mod taking_back;
mod titles;
mod turn_ends;
