use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::script;
use crate::test_agent::commands::COMMANDS;
use crate::test_agent::{self, Offers, Options, Quirks};

/// An agent for testing clients: any version, any offer, and faults on request
///
/// It speaks the Agent Client Protocol on standard input and output, in v1, v2 and the draft of v2, and does what the
/// prompt says: one command a line, listed below. Any other text gets a friendly answer.
#[derive(Args)]
#[command(after_help = after_help(), after_long_help = after_long_help())]
pub(crate) struct TestAgent {
    /// The protocol version to speak; one that speaks a single version answers with it whatever is asked
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Version::Both)]
    version: Version,

    /// Send v1 chunks without message ids, as many agents do
    #[arg(long)]
    no_message_ids: bool,

    /// Which optional methods to offer: load, resume, list, close, delete, fork, fork-at-message, title, or none
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

    /// Open no session before the client has logged in
    #[arg(long)]
    auth: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Version {
    #[value(name = "1")]
    One,
    #[value(name = "2")]
    Two,
    Both,
}

fn after_help() -> String {
    "Commands of a prompt: see --help, or say `help` to the agent.".to_owned()
}

fn after_long_help() -> String {
    format!("Commands of a prompt, one a line:\n{}\n\ndocs/test-agent.md has more.", script::list(COMMANDS))
}

impl TestAgent {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        test_agent::serve(Options {
            versions: match self.version {
                Version::One => test_agent::Versions::One,
                Version::Two => test_agent::Versions::Two,
                Version::Both => test_agent::Versions::Both,
            },
            message_ids: !self.no_message_ids,
            offers: self.offers,
            quirks: self.quirks,
            state: self.state,
            name: self.name,
            auth: self.auth,
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
