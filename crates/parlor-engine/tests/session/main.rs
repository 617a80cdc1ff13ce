//! Scripts of one session: events in, frames and agent commands out, without processes, sockets and clocks.

mod agents;
mod attaching;
mod forks;
mod harness;
mod prompts;
mod requests;
mod steering;
mod storing;
mod subagents;
mod summary;
