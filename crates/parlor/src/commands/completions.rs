use std::process::ExitCode;

use clap::Args;
use clap_complete::{Shell, generate};

use crate::command_error::CommandError;
use crate::{command_line, output};

/// Print the completion script of a shell
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
        // Into memory first, because it panics if it cannot write.
        let mut script = Vec::new();
        generate(self.shell, &mut command_line(), "parlor", &mut script);
        output::print(|out| out.write_all(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
