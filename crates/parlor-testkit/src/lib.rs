//! What parlor is tested with. Nothing here is shipped to users.
//!
//! - [`test_agent`] is a scripted agent that speaks every dialect and misbehaves on request; `parlor-test-agent` runs it.
//! - [`programs`] locates and builds the programs of this workspace that tests start.
//! - [`server`] starts servers, each with a directory of its own; [`scenario`] is a test of commands.
//! - [`client`] is a client that checks all that it receives, over each [`transport`]; [`async_client`] is one for servers
//!   in the process of the test.
//! - [`browser`] is a real browser that shows the page; [`screen`] is a terminal that shows a program.
//! - [`wait`] waits for conditions, with a deadline; [`process`], [`shell`] and [`output`] are about processes.
//! - [`simulation`] runs whole servers from a seed and checks what must always hold.
//! - [`fuzz`] has what the fuzz targets check.
//! - [`schema`] checks lines against the published types of the protocol.

#[cfg(feature = "harness")]
pub mod async_client;
#[cfg(feature = "harness")]
pub mod browser;
#[cfg(feature = "harness")]
pub mod client;
#[cfg(feature = "fuzz")]
pub mod fuzz;
#[cfg(feature = "harness")]
pub mod output;
#[cfg(feature = "harness")]
pub mod process;
pub mod programs;
#[cfg(feature = "harness")]
pub mod scenario;
#[cfg(feature = "harness")]
pub mod schema;
#[cfg(feature = "harness")]
pub mod screen;
#[path = "../../parlor/src/script.rs"]
mod script;
#[cfg(feature = "harness")]
pub mod server;
#[cfg(feature = "harness")]
pub mod shell;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod test_agent;
#[cfg(feature = "harness")]
pub mod transport;
#[cfg(feature = "harness")]
pub mod wait;
