//! A scripted agent for tests of clients and servers. It executes the commands in the prompt.
//!
//! It speaks every dialect, its optional methods are chosen on the command line, and it can misbehave on purpose. It uses
//! threads and blocking I/O and none of the code that serves sessions: a fault there must not be hidden by the same fault here.
//!
//! - `commands` parses prompts; a new command is a line of its table and an arm in `turn`.
//! - `quirks` imitates faults of real agents, chosen on the command line.
//! - `encode` encodes updates for a dialect, `capabilities` the capabilities and settings of agent and sessions.
//! - `session` is one session with its prompt queue, `store` persists sessions.
//! - `turn` runs steps: `messages` has those that send messages, `stream` those that send many chunks, `client_requests`
//!   those that send a request to the client, `tool_calls` those that report tool calls.
//! - `auth` implements the login methods.
//! - `server` is the loop that reads lines, `methods` handles requests.

mod auth;
mod capabilities;
mod client_requests;
mod commands;
mod encode;
mod json;
mod messages;
mod methods;
mod names;
mod output;
mod quirks;
mod server;
mod session;
mod store;
mod stream;
mod tool_calls;
mod turn;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use parlor_dialect::Dialect;

use crate::script;
use auth::AuthMethods;
use capabilities::OptionalMethods;
use commands::COMMANDS;
pub use commands::{STAMPED, STREAM_NUMBER};
use quirks::Quirks;
pub use stream::monotonic;

/// An agent for testing clients: any version, any optional methods, and faults on request
///
/// It speaks the Agent Client Protocol on standard input and output, in v1, v2 and the draft of v2, and executes the
/// commands in the prompt, one per line, listed below. Any other text gets a canned answer.
#[derive(Debug, Parser)]
#[command(name = "parlor-test-agent", max_term_width = 100)]
#[command(after_help = AFTER_HELP, after_long_help = after_long_help())]
struct Options {
    /// The protocol version to speak; with 1 or 2, the agent ignores the version that the client requests
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Versions::Both)]
    version: Versions,

    /// Send v1 chunks without message ids, as many agents do
    #[arg(long = "no-message-ids", action = clap::ArgAction::SetFalse)]
    message_ids: bool,

    /// The optional methods to support: load, resume, list, close, delete, fork, fork-at-message,
    /// air-fork, air-turn-fork, steering, title, or none
    #[arg(long = "offers", value_name = "LIST", default_value = "load,resume,list,close,delete")]
    methods: OptionalMethods,

    /// Imitate faults of real agents, see docs/test-agent.md: forgets-settings, silent-settings, refuses-settings,
    /// lacks-modes, lacks-settings, mode-option, models, fork-replays, fork-replays-late, same-id, slow-close, restore-fails, or none
    #[arg(long, value_name = "LIST", default_value = "none")]
    quirks: Quirks,

    /// Store sessions in files in this folder, so that another process can load them
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// The name that the agent reports
    #[arg(long, value_name = "NAME", default_value = "parlor-test")]
    name: String,

    /// The version that the agent reports
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    agent_version: String,

    /// Reject new sessions and prompts until a person has logged in, by one of these methods: test, url, terminal, meta, env
    #[arg(
        long,
        value_name = "METHODS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "test",
        default_value = "none",
        hide_default_value = true
    )]
    auth: AuthMethods,

    /// Be logged in while this file exists; the methods `terminal` and `meta` create it
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,

    /// Log in on the terminal, instead of speaking the protocol
    #[arg(long)]
    log_in: bool,
}

/// The supported protocol versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Versions {
    // Version 1, even if the client requests another.
    #[value(name = "1")]
    One,
    // Version 2, even if the client requests another.
    #[value(name = "2")]
    Two,
    // The version that the client requests.
    Both,
}

impl Versions {
    /// Returns the dialect of a connection whose client requested `requested`.
    fn choose(self, requested: Dialect) -> Dialect {
        match (self, requested) {
            (Self::One, _) => Dialect::V1,
            (Self::Two, Dialect::V1) => Dialect::V2,
            (Self::Two | Self::Both, requested) => requested,
        }
    }
}

const AFTER_HELP: &str = "Commands of a prompt: see --help, or send the prompt `help`.";

fn after_long_help() -> String {
    format!("Commands of a prompt, one per line:\n{}\n\ndocs/test-agent.md has more.", script::list(COMMANDS))
}

/// Runs the test agent with the arguments of this process, until the client closes its end.
pub fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.log_in { auth::log_in_on_terminal(&options) } else { server::serve(options) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "parlor-test-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Adds what failed to an I/O error.
fn failed(what: impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
