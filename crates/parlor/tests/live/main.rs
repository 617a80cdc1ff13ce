//! A running server with real agents, as clients of all dialects meet it at all doors.

mod access;
mod asking;
mod canonical;
mod client;
mod context;
mod doors;
mod editors;
mod ending;
mod events;
mod forks;
mod hanging;
mod joining;
mod known;
mod lasting;
mod matching;
mod prompts;
mod puppet;
mod restoring;
mod server;
mod telling;
