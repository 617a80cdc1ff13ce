//! The developer tasks of parlor; `cargo xtask` lists them.

mod bench;
mod failure;
mod long_session;
mod mutations;
mod release;
mod simulate;
mod terminal;
mod web;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::failure::Failure;

/// The tasks of parlor's developers.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    max_term_width = 100,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::BenchCommand),
    BenchTerminal(terminal::BenchTerminal),
    BenchWeb(web::BenchWeb),
    Mutations(mutations::Mutations),
    Screenshots(web::Screenshots),
    Simulate(simulate::Simulate),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Some(Command::Bench(bench)) => bench.run(),
        Some(Command::BenchTerminal(bench)) => bench.run(),
        Some(Command::BenchWeb(bench)) => bench.run(),
        Some(Command::Mutations(mutations)) => mutations.run(),
        Some(Command::Screenshots(screenshots)) => screenshots.run(),
        Some(Command::Simulate(simulate)) => simulate.run(),
        None => list(),
    };
    done.unwrap_or_else(|failure| failure.report())
}

/// Lists the commands.
fn list() -> Result<ExitCode, Failure> {
    let help = Cli::command().render_help();
    let written = write!(anstream::stdout().lock(), "{}", help.ansi());
    written.map_err(|error| Failure::writing(&error)).map(|()| ExitCode::SUCCESS)
}
