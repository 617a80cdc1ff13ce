use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anstream::eprintln;
use clap::Args;

use crate::bench::report::{self, Outcome};
use crate::bench::{Bench, SCENARIOS, Version};
use crate::failure::Failure;

/// Measure parlor on this machine, against the same agent connected directly
///
/// Each scenario runs an agent, a server with its own data directory and one or more clients, and counts what was
/// lost, doubled or out of order on the way: that must be nothing, and is the only thing that this command fails for.
#[derive(Args)]
#[command(after_long_help = scenarios())]
pub(crate) struct BenchCommand {
    /// How many times each scenario runs; the medians are told
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// One run with a tenth of the load
    #[arg(long, conflicts_with = "runs")]
    quick: bool,
    /// Only this scenario; repeatable
    #[arg(long, value_name = "NAME", value_parser = name)]
    only: Vec<String>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// The protocol version of the clients
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Version::V2)]
    client: Version,
    /// The protocol version of the agent
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Version::V2)]
    agent_version: Version,
    /// Where to put the data of the servers: what a disk costs is only seen on a disk [default: the system's folder
    /// for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn name(name: &str) -> Result<String, String> {
    match SCENARIOS.iter().find(|scenario| scenario.name == name) {
        Some(_) => Ok(name.to_owned()),
        None => {
            let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            Err(format!("there are {}", names.join(", ")))
        }
    }
}

fn scenarios() -> String {
    let list = SCENARIOS.iter().map(|scenario| format!("\n  {:<10} {}", scenario.name, scenario.about));
    format!("Scenarios:{}\n\ndocs/bench.md has more.", list.collect::<String>())
}

impl BenchCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if cfg!(debug_assertions) {
            eprintln!("parlor: this is a build for development, whose figures mean nothing");
        }
        let runs = if self.quick { 1 } else { self.runs };
        let within = self.dir.unwrap_or_else(std::env::temp_dir);
        let bench = Bench::new(&within, self.client, self.agent_version, self.quick)?;
        if !bench.conductor {
            eprintln!("parlor: agent-client-protocol-conductor is not on PATH and is not compared with");
        }
        let chosen: Vec<_> = SCENARIOS
            .iter()
            .filter(|scenario| self.only.is_empty() || self.only.iter().any(|name| name == scenario.name))
            .collect();
        let mut outcomes = Vec::new();
        for scenario in chosen {
            let mut samples = Vec::new();
            for run in 1..=runs {
                eprintln!("{}: run {run} of {runs}", scenario.name);
                samples.push((scenario.run)(&bench)?);
            }
            outcomes.push(Outcome::new(scenario, &samples));
        }
        let mut out = anstream::stdout().lock();
        let written = if self.json {
            out.write_all(report::json(&bench, runs, &outcomes).as_bytes())
        } else {
            report::table(&bench, runs, &outcomes, &mut out)
        };
        written.map_err(|error| Failure::writing(&error))?;
        if outcomes.iter().all(Outcome::is_clean) { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::FAILURE) }
    }
}
