//! A running server with real agents, as clients of all dialects meet it at all doors.

mod access;
mod asking;
mod client;
mod doors;
mod editors;
mod forks;
mod joining;
mod known;
mod lasting;
mod prompts;
mod server;
mod telling;
