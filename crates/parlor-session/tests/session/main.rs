//! The live session as a state machine.
//!
//! Each test is a script of inputs, with the results after each line; see [`scenario`].

mod agents;
mod cancellation;
mod echoes;
mod echoes_with_id;
mod envelopes;
mod events;
mod forks;
mod id_map;
mod keys;
mod limits;
mod matching;
mod ownership;
mod peer_requests;
mod properties;
mod queued;
mod scenario;
mod serial;
mod steering;
mod steering_echoes;
mod titles;
mod turn_ends;
