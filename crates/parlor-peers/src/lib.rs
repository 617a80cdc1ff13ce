//! Runs parlor with agents and clients of other projects. Nothing here is shipped to users.
//!
//! - [`model`] is a stand-in for the models of the agents: a server for the HTTP APIs that they call.
//! - [`install`] installs the peers, in pinned versions; [`agents`] says how they are started and what they cannot do.
//! - [`story`] plays one story with one agent, [`step`] by step; [`suite`] plays them all.

pub mod agents;
pub mod install;
pub mod model;
pub mod step;
pub mod story;
pub mod suite;
