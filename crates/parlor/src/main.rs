//! The `parlor` command.

mod bench;
mod commands;
mod demo;
mod failure;
mod input;
mod render;
mod setup;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// A session server for coding agents that speak the Agent Client Protocol.
#[derive(Parser)]
#[command(name = "parlor", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(commands::serve::Serve),
    Acp(commands::acp::Acp),
    DemoAgent(commands::demo_agent::DemoAgent),
    Bench(commands::bench::BenchCommand),
    Fold(commands::fold::Fold),
    Translate(commands::translate::Translate),
    #[command(name = "watch-agents", hide = true)]
    Watch(commands::watch::Watch),
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 3 translated with losses.";

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Acp(acp) => acp.run(),
        Command::DemoAgent(agent) => agent.run(),
        Command::Bench(bench) => bench.run(),
        Command::Fold(fold) => fold.run(),
        Command::Translate(translate) => translate.run(),
        Command::Watch(watch) => watch.run(),
    };
    done.unwrap_or_else(|failure: Failure| failure.report())
}
