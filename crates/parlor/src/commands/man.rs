use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap_mangen::{Man as Page, generate_to};

use crate::command_error::CommandError;
use crate::{command_line, output};

/// Print the manual page of parlor or of a command
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Man {
    /// Print the page of this command [default: the page of parlor]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Option<String>,
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  parlor man prompt | man -l -
  parlor man --dir ~/.local/share/man/man1";

impl Man {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let mut parlor = command_line().disable_help_subcommand(true);
        // Gives the commands their full names and the options that all commands have.
        parlor.build();
        if let Some(dir) = &self.dir {
            let pages = output::count(page_count(&parlor), "page");
            std::fs::create_dir_all(dir).and_then(|()| generate_to(parlor, dir)).map_err(|error| {
                CommandError::failed(format_args!(
                    "cannot write the manual pages to {}: {error}",
                    dir.display()
                ))
            })?;
            output::print(|out| writeln!(out, "wrote {pages} to {}", dir.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let command = match &self.command {
            None => parlor,
            Some(name) => {
                let unknown = || {
                    CommandError::bad_input(format_args!("unknown command '{name}'"))
                        .hint("`parlor --help` lists the commands")
                };
                let found = parlor.find_subcommand(name).ok_or_else(unknown)?;
                found.clone()
            }
        };
        let mut page = Vec::new();
        Page::new(command).render(&mut page).map_err(|error| CommandError::write(&error))?;
        output::print(|out| out.write_all(&page))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How many pages a command has: its own and those of its commands that are not hidden.
fn page_count(command: &clap::Command) -> usize {
    1 + command.get_subcommands().filter(|command| !command.is_hide_set()).map(page_count).sum::<usize>()
}
