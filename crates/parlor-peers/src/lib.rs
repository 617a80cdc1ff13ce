//! Runs parlor with agents and clients of other projects. Nothing here is shipped to users.
//!
//! - [`model`] is a stand-in for the models of the agents: a server for the HTTP APIs that they call.
//! - [`install`] installs the peers, in pinned versions.
//! - [`agents`] and [`clients`] say how they are started and what they cannot do; [`client_process`] runs a client.
//! - [`story`] plays one story with one agent, [`step`] by step, and [`client_story`] with one client;
//!   [`pairs`] tries every client with every agent.
//! - [`suite`] plays them all, and [`report`] is the page with the outcomes.

pub mod agents;
pub mod client_process;
pub mod client_story;
pub mod clients;
pub mod install;
pub mod model;
pub mod pairs;
pub mod report;
pub mod step;
pub mod story;
pub mod suite;
