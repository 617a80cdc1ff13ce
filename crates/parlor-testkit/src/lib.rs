//! What parlor is tested with. Nothing here is shipped to users.
//!
//! - [`test_agent`] is a scripted agent that speaks every dialect and misbehaves on request; `parlor-test-agent` runs it.
//! - [`programs`] builds and locates the programs of this workspace that tests start.
//! - [`simulation`] runs whole servers from a seed and checks what must always hold.
//! - [`schema`] checks lines against the published types of the protocol.

pub mod programs;
#[cfg(feature = "harness")]
pub mod schema;
#[path = "../../parlor/src/script.rs"]
mod script;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod test_agent;
