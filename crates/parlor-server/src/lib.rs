//! Live sessions: any number of clients, agents as processes, and a history that outlives both.

mod agent;
mod client;
pub mod config;
mod connection;
pub mod data_dir;
pub mod hub;
pub mod known;
mod losses;
pub mod probe;
pub mod process;
mod resident;
pub mod search;
pub mod send_queue;
pub mod services;
mod session;
mod session_thread;
mod store;
pub mod stored;
pub mod transport;

pub(crate) use parlor_engine::json;
