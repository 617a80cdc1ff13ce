//! What parlor does for agents that use their client's services: files and terminals.
//!
//! Version 1 of the protocol lets an agent ask its client for them. Parlor runs where the agent runs, so it can do it
//! itself, whoever is connected.

pub mod access;
pub(crate) mod budget;
pub mod files;
mod output;
mod params;
pub mod terminals;
