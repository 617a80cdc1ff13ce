//! An agent with clients of both versions, over streams in memory.

mod auth;
mod client_services;
mod errors;
mod line_client;
#[cfg(feature = "listen")]
mod listen;
#[cfg(feature = "persist")]
mod persist;
mod server;
mod turns;
mod updates;
