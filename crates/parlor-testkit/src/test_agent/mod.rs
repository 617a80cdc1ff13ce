//! A scripted agent for tests of clients and servers: what it does is said by the prompt.
//!
//! It speaks every dialect, offers what it is told to, and can misbehave on purpose. It uses threads and blocking I/O
//! and none of the code that serves sessions: a fault there must not be hidden by the same fault here.
//!
//! - `commands` has what a prompt may hold; a new command is a line of its table and an arm in `turn`.
//! - `quirk` has what real agents do beyond the documents, chosen on the command line.
//! - `say` knows how each dialect spells an update, `offer` what is said about agent and sessions as a whole.
//! - `session` is one session with its queue, `store` keeps sessions that are not open.
//! - `turn` runs steps: `words` has those that only talk, `stream` those that talk much, `ask` those that need the
//!   client's answer, `tool` those that show a tool at work.
//! - `auth` has the ways to log in.
//! - `server` is the loop that reads lines, `methods` what the client can ask for.

mod ask;
mod auth;
mod commands;
mod json;
mod methods;
mod offer;
mod output;
mod quirk;
mod say;
mod server;
mod session;
mod store;
mod stream;
mod tool;
mod turn;
mod words;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use parlor_dialect::Dialect;

use crate::script;
use auth::AuthMethods;
use commands::COMMANDS;
pub use commands::{STAMPED, STREAM_NUMBER};
use offer::Offers;
use quirk::Quirks;
pub use stream::monotonic;

/// An agent for testing clients: any version, any offer, and faults on request
///
/// It speaks the Agent Client Protocol on standard input and output, in v1, v2 and the draft of v2, and does what the
/// prompt says: one command a line, listed below. Any other text gets a friendly answer.
#[derive(Debug, Parser)]
#[command(name = "parlor-test-agent", max_term_width = 100)]
#[command(after_help = AFTER_HELP, after_long_help = after_long_help())]
struct Options {
    /// The protocol version to speak; one that speaks a single version answers with it whatever is asked
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Versions::Both)]
    version: Versions,

    /// Send v1 chunks without message ids, as many agents do
    #[arg(long = "no-message-ids", action = clap::ArgAction::SetFalse)]
    message_ids: bool,

    /// Which optional methods to offer: load, resume, list, close, delete, fork, fork-at-message,
    /// air-fork, air-turn-fork, steering, title, or none
    #[arg(long, value_name = "LIST", default_value = "load,resume,list,close,delete")]
    offers: Offers,

    /// Do what some real agents do, see docs/test-agent.md: forgets-settings, silent-settings, refuses-settings,
    /// mode-option, models, fork-replays, fork-replays-late, same-id, slow-close, restore-fails, or none
    #[arg(long, value_name = "LIST", default_value = "none")]
    quirks: Quirks,

    /// Keep sessions in files in this folder, so that another process can load them
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// What the agent calls itself
    #[arg(long, value_name = "NAME", default_value = "parlor-test")]
    name: String,

    /// The version that the agent reports
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    agent_version: String,

    /// Open no session and take no prompt before a person has logged in, by one of these methods: test, url, terminal, meta, env
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

    /// Count as logged in while this file exists; the methods `terminal` and `meta` create it
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,

    /// Log in on the terminal, instead of speaking the protocol
    #[arg(long)]
    log_in: bool,
}

/// Which versions of the protocol are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Versions {
    // Version 1, whatever is asked for.
    #[value(name = "1")]
    One,
    // Version 2, whatever is asked for.
    #[value(name = "2")]
    Two,
    // What is asked for.
    Both,
}

impl Versions {
    /// The dialect of a connection whose client asked for `asked`.
    fn choose(self, asked: Dialect) -> Dialect {
        match (self, asked) {
            (Self::One, _) => Dialect::V1,
            (Self::Two, Dialect::V1) => Dialect::V2,
            (Self::Two | Self::Both, asked) => asked,
        }
    }
}

const AFTER_HELP: &str = "Commands of a prompt: see --help, or say `help` to the agent.";

fn after_long_help() -> String {
    format!("Commands of a prompt, one a line:\n{}\n\ndocs/test-agent.md has more.", script::list(COMMANDS))
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

/// Says what failed.
fn failed(what: impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
