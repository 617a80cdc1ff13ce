//! The server: runs sessions with any number of clients, starts agents, and persists everything.

mod agent;
pub mod agent_sessions;
mod auth_method;
#[cfg(feature = "http")]
pub mod browsers;
mod client;
pub mod config;
mod connection;
#[cfg(feature = "http")]
pub mod data_dir;
mod feed;
#[cfg(feature = "notify")]
pub mod http_client;
pub mod hub;
mod logins;
mod losses;
mod memory;
#[cfg(feature = "notify")]
mod notify;
pub mod probe;
pub mod search;
pub mod send_queue;
pub mod services;
mod session;
mod session_thread;
mod store;
pub mod stored;
pub mod transport;

pub use agent::{AGENT_NOT_CONFIGURED, AGENT_UNAVAILABLE};
pub(crate) use parlor_engine::fields;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Its data is valid also after a panic: no update of it can panic halfway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
