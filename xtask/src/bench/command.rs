use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anstream::eprintln;
use clap::Args;

use super::environment::{Bench, Binary, Version};
use super::relay;
use super::report::{self, Outcome};
use super::scenarios::SCENARIOS;
use crate::failure::Failure;
use crate::release;

/// Measure parlor on this machine, against the same agent connected directly
///
/// Each scenario runs an agent, a server with its own data directory and one or more clients, and counts what was
/// lost, duplicated or out of order: the command fails only if there was any.
///
/// With several `--server` each scenario runs with each of them in turn, and the ratios to the first one are printed.
#[derive(Args)]
#[command(after_long_help = scenarios())]
pub(crate) struct BenchCommand {
    /// How many times each scenario runs; medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// One run with a tenth of the load
    #[arg(long, conflicts_with = "runs")]
    quick: bool,
    /// Only this scenario; repeatable
    #[arg(long, value_name = "NAME", value_parser = name)]
    only: Vec<String>,
    /// The parlor binary whose server is measured; repeatable, to compare several [default: a release build of this workspace]
    #[arg(long, value_name = "PATH")]
    server: Vec<PathBuf>,
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
    /// Build and measure nothing but what is built for development, to see whether the benchmark works
    #[arg(long)]
    dev: bool,
    /// Do not measure, but copy what the agent says to so many clients
    #[arg(long, value_name = "CLIENTS", hide = true, requires = "agent_command")]
    relay: Option<u32>,
    #[arg(last = true, hide = true, requires = "relay")]
    agent_command: Vec<String>,
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
    let list = SCENARIOS.iter().map(|scenario| format!("\n  {:<13} {}", scenario.name, scenario.about));
    format!("Scenarios:{}\n\ndocs/bench.md has more.", list.collect::<String>())
}

impl BenchCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if let Some(clients) = self.relay {
            let done = relay::run(clients, &self.agent_command);
            return done.map(|()| ExitCode::SUCCESS).map_err(Failure::failed);
        }
        if cfg!(debug_assertions) && !self.dev {
            return release::run_again();
        }
        if cfg!(debug_assertions) {
            eprintln!("xtask: this is a build for development, whose figures mean nothing");
        }
        let runs = if self.quick { 1 } else { self.runs };
        let within = self.dir.unwrap_or_else(std::env::temp_dir);
        let servers = if self.server.is_empty() {
            vec![Binary::built()?]
        } else {
            self.server.iter().map(|path| Binary::open(path)).collect::<Result<_, _>>()?
        };
        let mut bench = Bench::new(&within, &servers[0], self.client, self.agent_version, self.quick)?;
        if !bench.conductor {
            eprintln!("xtask: agent-client-protocol-conductor is not on PATH and is not compared with");
        }
        let mut outcomes = Vec::new();
        for scenario in SCENARIOS {
            if !self.only.is_empty() && !self.only.iter().any(|name| name == scenario.name) {
                continue;
            }
            let mut samples: Vec<_> = servers.iter().map(|_| Vec::new()).collect();
            for run in 1..=runs {
                // The servers take turns to run first, so that no server benefits from the order.
                let mut order: Vec<_> = (0..servers.len()).collect();
                if run % 2 == 0 {
                    order.reverse();
                }
                for index in order {
                    let which =
                        if servers.len() > 1 { format!(", server {}", index + 1) } else { String::new() };
                    eprintln!("{}: run {run} of {runs}{which}", scenario.name);
                    bench.measure(&servers[index]);
                    samples[index].push((scenario.run)(&bench)?);
                }
            }
            outcomes.push(Outcome::new(scenario, &samples));
        }
        let mut out = anstream::stdout().lock();
        let written = if self.json {
            out.write_all(report::json(&bench, runs, &servers, &outcomes).as_bytes())
        } else {
            report::table(&bench, runs, &servers, &outcomes, &mut out)
        };
        written.map_err(|error| Failure::writing(&error))?;
        if outcomes.iter().all(Outcome::is_clean) { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::FAILURE) }
    }
}
