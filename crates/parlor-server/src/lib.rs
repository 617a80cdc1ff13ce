//! Live sessions: any number of clients, agents as processes, and a history that outlives both.

mod agent;
mod client;
pub mod config;
mod connection;
mod context;
pub mod data_dir;
pub mod doors;
pub mod hub;
mod json;
pub mod known;
pub mod outbox;
pub mod probe;
pub mod process;
pub mod search;
pub mod services;
mod session;
pub mod stored;
