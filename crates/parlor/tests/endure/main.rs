//! What a server endures: being killed, clients that do not read, a disk without room, peers that die.

mod client;
mod killed;
mod server;
mod stalled;
