//! What parlor is tested with. Nothing here is shipped to users.
//!
//! - [`test_agent`] is a scripted agent that speaks every dialect and misbehaves on request; `parlor-test-agent` runs it.
//! - [`programs`] builds and locates the programs of this workspace that tests start.
//! - [`schema`] checks lines against the published types of the protocol.

pub mod programs;
#[cfg(feature = "harness")]
pub mod schema;
#[path = "../../parlor/src/script.rs"]
mod script;
pub mod test_agent;
