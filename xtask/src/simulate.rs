//! `cargo xtask simulate`: simulates whole servers from seeds.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use parlor_testkit::simulation::{SimulationOptions, run};

use crate::failure::Failure;

/// Simulate servers with clients, agents and a disk that fail in every way, and check what must always hold
///
/// All that happens follows from a seed. A seed that fails is printed with a trace and with the command that replays it.
/// Build it with `cargo run --release -p xtask -- simulate` for long runs.
#[derive(Args)]
pub(crate) struct Simulate {
    /// Run new seeds for this many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds to run, if no time is given
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u64,
    /// How many steps each seed takes
    #[arg(long, value_name = "N", default_value_t = 2000)]
    steps: usize,
    /// Steps to leave out, like 1,4-9
    #[arg(long, value_name = "STEPS", value_parser = steps)]
    skip: Option<Steps>,
    /// Do not look for steps that a failing seed does not need
    #[arg(long)]
    no_shrink: bool,
    /// Print every step
    #[arg(long)]
    trace: bool,
}

/// A range of steps of a simulation.
#[derive(Clone)]
struct Steps(BTreeSet<usize>);

impl Simulate {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Self { seconds, seed, seeds, steps, skip, no_shrink, trace } = self;
        let duration = seconds.map(Duration::from_secs);
        let skip = skip.map(|Steps(steps)| steps).unwrap_or_default();
        let options =
            SimulationOptions { seed, steps, seeds, duration, skip, shrinks: !no_shrink, is_traced: trace };
        // A panic of the engine is reported like any other failure.
        std::panic::set_hook(Box::new(|_| {}));
        let report = run(&options);
        let written = writeln!(anstream::stdout().lock(), "{report}");
        written.map_err(|error| Failure::writing(&error))?;
        Ok(if report.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn steps(list: &str) -> Result<Steps, String> {
    let mut steps = BTreeSet::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<usize>().map_err(|_| format!("no list of steps: {list}"));
        steps.extend(number(first)?..=number(last)?);
    }
    Ok(Steps(steps))
}
