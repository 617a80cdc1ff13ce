//! Runs the stories of parlor with agents and clients of other projects; see `CONTRIBUTING.md`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use parlor_peers::suite::{self, Selection, SuiteOptions};

/// Runs parlor with the agents and clients of other projects, which it installs first
#[derive(Debug, Parser)]
struct Args {
    /// The directory into which the peers are installed
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers"))]
    dir: PathBuf,
    /// The program to test; the one of this workspace if it is missing
    #[arg(long)]
    parlor: Option<String>,
    /// How many stories run at the same time
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Only install the peers
    #[arg(long)]
    install_only: bool,
    /// Only stories whose name contains this; the table is not compared
    #[arg(long)]
    only: Vec<String>,
    /// Only these steps, besides those that every story needs; the table is not compared
    #[arg(long)]
    step: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.install_only {
        return exit_code(suite::install(&args.dir).map(|_| true));
    }
    let selection = Selection { names: args.only, steps: args.step };
    let page = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compatibility.md"));
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let options = SuiteOptions { dir: args.dir, parlor: args.parlor, jobs: args.jobs, update };
    exit_code(suite::run(&options, &selection, page))
}

fn exit_code(done: Result<bool, String>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "parlor-peers: {error}");
            ExitCode::FAILURE
        }
    }
}
