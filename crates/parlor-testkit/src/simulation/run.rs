//! Runs seeds, and makes a failing one small.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parlor_session::session::ClientId;

use super::random::Random;
use super::shell::Shell;
use super::world::World;
use super::{Counts, Failure, Invariant};

/// What is simulated.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    /// The first seed; those that follow it are run after it.
    pub seed: u64,
    /// How many steps each seed takes.
    pub steps: usize,
    /// How many seeds are run, if no time is given.
    pub seeds: u64,
    /// For how long new seeds are run.
    pub duration: Option<Duration>,
    /// Steps that are left out.
    pub skip: BTreeSet<usize>,
    /// Whether steps are left out that a failure does not need.
    pub shrinks: bool,
    /// Whether all that happens is written down, also if nothing fails.
    pub is_traced: bool,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            steps: 2000,
            seeds: 1,
            duration: None,
            skip: BTreeSet::new(),
            shrinks: true,
            is_traced: false,
        }
    }
}

/// What came of a simulation.
#[derive(Debug)]
pub struct Report {
    /// How many seeds were run.
    pub seeds: u64,
    /// How many steps they took.
    pub steps: u64,
    /// What happened in them, and how often.
    pub counts: Counts,
    /// All that happened, if that was wanted.
    pub trace: Vec<String>,
    /// The first failure.
    pub failure: Option<Outcome>,
}

/// A seed that failed.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The step at which it failed.
    pub step: usize,
    /// The failure.
    pub failure: Failure,
    /// The steps that it fails without.
    pub skip: BTreeSet<usize>,
    /// What happened last.
    pub trace: Vec<String>,
}

/// How many lines of the trace are shown.
const TRACE: usize = 120;

/// Runs seeds until one fails, or all are done.
pub fn run(options: &SimulationOptions) -> Report {
    let started = Instant::now();
    let mut report =
        Report { seeds: 0, steps: 0, counts: Counts::default(), trace: Vec::new(), failure: None };
    let is_over = |report: &Report| match options.duration {
        Some(duration) => started.elapsed() >= duration,
        None => report.seeds >= options.seeds,
    };
    while !is_over(&report) {
        let seed = options.seed.wrapping_add(report.seeds);
        let mut trace = Vec::new();
        let wanted = options.is_traced.then_some(&mut trace);
        let (steps, failure, counts) = simulate(seed, options.steps, &options.skip, wanted);
        report.trace.append(&mut trace);
        report.seeds += 1;
        report.steps += steps as u64;
        for (what, count) in counts {
            *report.counts.entry(what).or_default() += count;
        }
        if let Some(failure) = failure {
            report.failure = Some(explain(options, seed, steps, failure));
            break;
        }
    }
    report
}

/// Makes a failing seed small and replays it with a trace.
fn explain(options: &SimulationOptions, seed: u64, step: usize, failure: Failure) -> Outcome {
    let mut skip = options.skip.clone();
    let (mut step, mut failure) = (step, failure);
    if options.shrinks {
        (step, skip) = shrink(seed, step, skip, failure.invariant);
    }
    let mut trace = Vec::new();
    let (steps, found, _) = simulate(seed, step, &skip, Some(&mut trace));
    if let Some(found) = found {
        (step, failure) = (steps, found);
    }
    let first = trace.len().saturating_sub(TRACE);
    Outcome { seed, step, failure, skip, trace: trace.split_off(first) }
}

/// Leaves out steps, many at once and then fewer, for as long as the same invariant fails.
fn shrink(seed: u64, last: usize, skip: BTreeSet<usize>, invariant: Invariant) -> (usize, BTreeSet<usize>) {
    let mut skip = skip;
    let mut last = last;
    let mut size = last / 2;
    while size > 0 {
        let mut from = 0;
        while from < last {
            let more: BTreeSet<_> = skip.iter().copied().chain(from..(from + size).min(last)).collect();
            if more.len() > skip.len() {
                let (step, failure, _) = simulate(seed, last, &more, None);
                if failure.is_some_and(|failure| failure.invariant == invariant) {
                    skip = more;
                    last = step;
                }
            }
            from += size;
        }
        size /= 2;
    }
    (last, skip)
}

/// Runs a world; returns how many steps it took and what failed.
fn simulate(
    seed: u64,
    steps: usize,
    skip: &BTreeSet<usize>,
    trace: Option<&mut Vec<String>>,
) -> (usize, Option<Failure>, Counts) {
    let mut world = World::new(seed, trace.is_some());
    let mut taken = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        for step in 0..steps {
            taken = step + 1;
            if skip.contains(&step) {
                continue;
            }
            world.random = Random::new(seed, step as u64);
            world.note(|| format!("step {step}"));
            world.step(step);
            if world.failure().is_some() {
                return;
            }
        }
        world.settle();
    }));
    let failure = match result {
        Ok(()) => world.failure().cloned(),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().cloned();
            let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Failure { invariant: Invariant::Panics, message: message.unwrap_or_default() })
        }
    };
    if let Some(trace) = trace {
        *trace = world.take_trace();
    }
    (taken, failure, world.counts)
}

impl World {
    /// Takes one step.
    fn step(&mut self, step: usize) {
        if step % self.plan.settle_every == self.plan.settle_every - 1 {
            return self.settle();
        }
        let faults = self.plan.faults;
        let on = |is_on: bool, weight: usize| if is_on { weight } else { 0 };
        let has_frames = self
            .connections
            .values()
            .any(|connection| !self.people[connection.person].is_stalled && !connection.is_drained());
        let has_agents = self.processes.iter().any(|process| process.is_alive && !process.is_hung);
        let weights = [
            on(self.shells.values().any(Shell::is_ready), 1000),
            on(self.disk.is_busy(), 900),
            on(has_frames, 700),
            450,
            on(has_agents, 1100),
            on(!self.jobs.is_empty(), 400),
            120,
            on(faults.crashes || faults.hangs, 30),
            on(faults.store, 12),
            on(faults.kills, 4),
            on(faults.power_cuts, 3),
            on(faults.kills, 3),
            on(faults.evictions, 30),
            on(faults.stale_events, 40),
        ];
        match self.random.weighted(&weights) {
            0 => self.run_any_session(),
            1 => self.run_disk(),
            2 => self.any_client_reads(),
            3 => self.client_acts(),
            4 => self.agent_acts(),
            5 => {
                let place = self.random.below(self.jobs.len());
                self.run_job(place);
            }
            6 => self.pass_time(),
            7 => self.hurt_agent(),
            8 => self.fail_write(),
            9 => self.kill(false),
            10 => self.kill(true),
            11 => self.stop(),
            12 => self.tick(),
            _ => self.inject_stale(),
        }
    }

    fn run_any_session(&mut self) {
        let ready: Vec<_> =
            self.shells.iter().filter(|(_, shell)| shell.is_ready()).map(|(key, _)| key.clone()).collect();
        if let Some(key) = self.random.pick(&ready) {
            let is_owned = self.shells.get(&key).is_some_and(|shell| shell.machine.is_owned());
            if is_owned && self.plan.faults.slow_subagents && self.random.percent(96) {
                return;
            }
            let most = match self.random.below(3) {
                0 => 1,
                1 => self.random.between(1, 4),
                _ => 32,
            };
            self.run_session(&key, most);
        }
    }

    fn run_disk(&mut self) {
        if self.disk.is_unsynced() && self.random.percent(50) {
            self.sync();
        } else {
            self.commit();
        }
    }

    fn any_client_reads(&mut self) {
        let people = self.people.iter().filter(|person| !person.is_stalled);
        let clients: Vec<_> = people.filter_map(|person| person.connection).collect();
        let has_frames = |client: &ClientId| self.connections.get(client).is_some_and(|to| !to.is_drained());
        let clients: Vec<_> = clients.into_iter().filter(has_frames).collect();
        if let Some(client) = self.random.pick(&clients) {
            let count = self.random.between(1, 12);
            self.read(client, count);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        if let Some(outcome) = &self.failure {
            writeln!(f, "{outcome}")?;
        }
        for (what, count) in &self.counts {
            writeln!(f, "{count:>12} {what}")?;
        }
        write!(f, "{} seeds, {} steps", self.seeds, self.steps)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\nseed {} fails at step {}: {}", self.seed, self.step, self.failure.invariant)?;
        writeln!(f, "{}", self.failure.message)?;
        write!(f, "replay it with: cargo xtask simulate --seed {} --steps {}", self.seed, self.step)?;
        if !self.skip.is_empty() {
            write!(f, " --skip {}", ranges(&self.skip))?;
        }
        Ok(())
    }
}

/// Numbers as a list of ranges.
fn ranges(numbers: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            Some(_) | None => ranges.push((*number, *number)),
        }
    }
    let text = ranges
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    text.collect::<Vec<_>>().join(",")
}
