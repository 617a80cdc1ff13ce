//! Live sessions: any number of clients, agents as processes, and a history that outlives both.

pub mod config;
pub mod data_dir;
pub mod doors;
pub mod hub;
pub mod outbox;
pub mod process;
pub mod services;
