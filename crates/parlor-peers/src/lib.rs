//! Runs parlor with agents and clients of other projects. Nothing here is shipped to users.
//!
//! - [`model`] is a stand-in for the models of the agents: a server for the HTTP APIs that they call.

pub mod model;
