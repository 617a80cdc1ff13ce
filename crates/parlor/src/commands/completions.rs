use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::command_error::CommandError;
use crate::{completion, output};

/// Print the completion script of a shell
///
/// It completes commands and options, and also sessions, open requests and agents.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Select the shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const EXAMPLES: &str = "Examples:
  parlor completions bash > ~/.local/share/bash-completion/completions/parlor
  parlor completions zsh > ~/.zfunc/_parlor
  parlor completions fish > ~/.config/fish/completions/parlor.fish";

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let name = self.shell.to_string();
        let shells = Shells::builtins();
        let shell = shells.completer(&name).expect("both lists have the same shells");
        let mut script = Vec::new();
        shell
            .write_registration(completion::VARIABLE, "parlor", "parlor", "parlor", &mut script)
            .map_err(CommandError::failed)?;
        output::print(|out| out.write_all(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
