//! What a server endures: being killed, clients that do not read, a disk without room, peers that die.

mod client;
#[cfg(target_os = "linux")]
mod disk;
mod files;
mod killed;
mod peers;
mod resident;
mod server;
mod stalled;
