//! Resilience of the server: kills, clients that do not read, a full disk, peers that die.

mod client;
#[cfg(target_os = "linux")]
mod disk;
mod files;
mod killed;
mod memory;
mod peers;
mod server;
mod slow_client;
