//! What a server endures: being killed, clients that do not read, a disk without room, peers that die.

mod client;
#[cfg(target_os = "linux")]
mod disk;
mod files;
mod killed;
mod memory;
mod peers;
mod server;
mod slow_client;
