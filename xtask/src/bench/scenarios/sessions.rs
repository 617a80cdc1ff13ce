//! Many concurrent sessions: one agent process and a WebSocket client for each session.

use std::time::{Duration, Instant};

use parlor_testkit::test_agent::monotonic;

use super::super::client::Client;
use super::super::client_group::ClientGroup;
use super::super::environment::{Bench, Server, Store};
use super::super::measure::cpu_seconds;
use super::{Sample, Unit};
use crate::failure::Failure;

const SIZE: usize = 40;

/// The duration of a load in seconds.
const SECONDS: u32 = 5;

/// The time after which a missing chunk counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// A number of sessions with a number of chunks per second each.
#[derive(Debug, Clone, Copy)]
struct Load {
    sessions: u32,
    rate: u32,
}

const LOADS: [Load; 5] = [
    Load { sessions: 1, rate: 500 },
    Load { sessions: 16, rate: 100 },
    Load { sessions: 64, rate: 50 },
    Load { sessions: 200, rate: 20 },
    Load { sessions: 1000, rate: 5 },
];

/// The result of a load: latency in microseconds, and the CPU time of each process per chunk.
struct Paced {
    p50: f64,
    p99: f64,
    server: Option<f64>,
    agent: f64,
    client: f64,
}

/// The CPU time of all processes so far.
#[derive(Debug, Clone, Copy)]
struct Used {
    server: f64,
    agent: f64,
    client: f64,
}

pub(super) fn paced(bench: &Bench) -> Result<Sample, Failure> {
    let mut sample = Sample::default();
    let step = if bench.quick { 2 } else { 1 };
    for Load { sessions, rate } in LOADS.into_iter().step_by(step) {
        let load = Load { sessions: bench.load(sessions).max(1), rate };
        let direct = direct(bench, load, &mut sample)?;
        let sqlite = served(bench, load, Store::Sqlite, &mut sample)?;
        let memory = served(bench, load, Store::Memory, &mut sample)?;
        let name = format!("{} x {rate}", load.sessions);
        sample.reference(format!("{name} p50, direct"), Unit::Microseconds, direct.p50);
        sample.figure(format!("{name} p50, SQLite"), Unit::Microseconds, sqlite.p50);
        sample.figure(format!("{name} p50, memory"), Unit::Microseconds, memory.p50);
        sample.computed(format!("{name} p50, SQLite to memory"), Unit::Times, sqlite.p50 / memory.p50);
        sample.reference(format!("{name} p99, direct"), Unit::Microseconds, direct.p99);
        sample.figure(format!("{name} p99, SQLite"), Unit::Microseconds, sqlite.p99);
        sample.figure(format!("{name} p99, memory"), Unit::Microseconds, memory.p99);
        for (store, paced) in [("SQLite", &sqlite), ("memory", &memory)] {
            let server = paced.server.unwrap_or(f64::NAN);
            sample.figure(format!("{name} server CPU per chunk, {store}"), Unit::Microseconds, server);
        }
        sample.reference(format!("{name} agent CPU per chunk"), Unit::Microseconds, sqlite.agent);
        sample.reference(format!("{name} client CPU per chunk"), Unit::Microseconds, sqlite.client);
        sample.reference(format!("{name} client CPU per chunk, direct"), Unit::Microseconds, direct.client);
    }
    Ok(sample)
}

/// Runs all sessions through a server, each with a client of its own.
fn served(bench: &Bench, load: Load, store: Store, sample: &mut Sample) -> Result<Paced, Failure> {
    let server = bench.server_with(store, &[])?;
    let begun = Instant::now();
    let mut clients = connect(bench, &server, load.sessions)?;
    let pace = Pace::after(bench, load, begun.elapsed());
    for (index, client) in clients.iter_mut().enumerate() {
        client.received.expect_stamped_chunks_of(SIZE);
        client.prompt(&pace.prompt(index))?;
    }
    let mut group = ClientGroup::new(clients)?;
    let agent = server.agent_pid();
    let cpu = || Used {
        server: cpu_seconds(server.pid()),
        agent: agent.map_or(f64::NAN, cpu_seconds),
        client: cpu_seconds(std::process::id()),
    };
    let used = pace.read(&mut group, u64::from(pace.chunks), cpu)?;
    // Duplicates are received before the turn ends.
    group.until(LOST, |received| received.idles > 0)?;
    sample.faults.add(group.faults(1, pace.chunks));
    Ok(pace.paced(&group, used, true))
}

/// Runs all sessions directly with the agent, on its only connection, to measure the cost of the load generator.
fn direct(bench: &Bench, load: Load, sample: &mut Sample) -> Result<Paced, Failure> {
    let begun = Instant::now();
    let mut client = Client::start(bench.direct())?;
    let agent = client.pid().unwrap_or_default();
    let mut sessions = Vec::new();
    for _ in 0..load.sessions {
        client.begin()?;
        sessions.push(client.session().to_owned());
    }
    let pace = Pace::after(bench, load, begun.elapsed());
    client.received.expect_stamped_chunks_of(SIZE);
    for (index, session) in sessions.iter().enumerate() {
        client.prompt_accepted(session, &pace.prompt(index))?;
    }
    let mut group = ClientGroup::new(vec![client])?;
    let cpu = || Used { server: 0.0, agent: cpu_seconds(agent), client: cpu_seconds(std::process::id()) };
    let used = pace.read(&mut group, u64::from(pace.chunks * load.sessions), cpu)?;
    sample.faults.add(group.faults(load.sessions as usize, pace.chunks));
    Ok(pace.paced(&group, used, false))
}

/// Connects clients with a session each.
fn connect(bench: &Bench, server: &Server, sessions: u32) -> Result<Vec<Client>, Failure> {
    let one = |_| {
        let mut client = Client::websocket(bench, server)?;
        client.begin()?;
        Ok(client)
    };
    (0..sessions).map(one).collect()
}

/// The schedule of the chunks of all sessions.
struct Pace {
    load: Load,
    /// The number of chunks of each session.
    chunks: u32,
    /// The time of the first chunk, in nanoseconds of the monotonic clock.
    start: u64,
}

/// The time before the first chunk at which the CPU time is read and all clients are read.
const AHEAD: Duration = Duration::from_millis(200);

/// The time to prompt all sessions, in addition to the time that creating them took.
const PROMPTING: Duration = Duration::from_millis(100);

impl Pace {
    /// Creates a schedule: all sessions are prompted first and stream later, so that only streaming is measured.
    /// Prompting them takes no longer than creating them.
    fn after(bench: &Bench, load: Load, setup: Duration) -> Self {
        let chunks = bench.load(load.rate * SECONDS).max(2);
        let ahead = AHEAD + PROMPTING + setup;
        Self { load, chunks, start: monotonic() + nanoseconds(ahead) }
    }

    /// Returns the prompt of the session at an index. The offsets between sessions are pseudo-random, the same in
    /// each run, and all sessions end together.
    fn prompt(&self, index: usize) -> String {
        let Load { rate, .. } = self.load;
        let period = 1_000_000_000 / u64::from(rate);
        let at = self.start + spread(index as u64) % period;
        let rest = period / 1_000_000 + 100;
        format!("stamp {} {rate} {SIZE} {at}\nsleep {rest}", self.chunks)
    }

    /// Reads all chunks and returns the CPU time that was used.
    fn read(&self, group: &mut ClientGroup, chunks: u64, cpu: impl Fn() -> Used) -> Result<Used, Failure> {
        let left = Duration::from_nanos(self.start.saturating_sub(monotonic()));
        group.until(left.saturating_sub(AHEAD), |_| false)?;
        let before = cpu();
        let most = LOST + AHEAD + Duration::from_secs(u64::from(self.chunks / self.load.rate));
        group.until(most, |received| received.chunks >= chunks)?;
        let after = cpu();
        Ok(Used {
            server: after.server - before.server,
            agent: after.agent - before.agent,
            client: after.client - before.client,
        })
    }

    fn paced(&self, group: &ClientGroup, used: Used, is_served: bool) -> Paced {
        let each = |seconds: f64| seconds * 1e6 / f64::from(self.chunks * self.load.sessions);
        let (p50, p99) = group.latency();
        Paced {
            p50,
            p99,
            server: is_served.then(|| each(used.server)),
            agent: each(used.agent),
            client: each(used.client),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a pseudo-random number (the mixing step of `SplitMix64`).
fn spread(index: u64) -> u64 {
    let mut mixed = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub(super) fn full(bench: &Bench) -> Result<Sample, Failure> {
    const SESSIONS: u32 = 16;
    let chunks = bench.load(400_000);
    let mut sample = Sample::default();
    for (sessions, name) in [(1, "one session"), (SESSIONS, "16 sessions")] {
        let each = chunks / sessions;
        let server = bench.server()?;
        let clients = connect(bench, &server, sessions)?;
        let mut group = ClientGroup::new(clients)?;
        let agent = server.agent_pid();
        let cpu = || Used {
            server: cpu_seconds(server.pid()),
            agent: agent.map_or(f64::NAN, cpu_seconds),
            client: cpu_seconds(std::process::id()),
        };
        let (before, begun) = (cpu(), Instant::now());
        for client in &mut group.clients {
            client.received.expect_chunks_of(SIZE);
            client.prompt(&format!("stream {each} {SIZE}"))?;
        }
        group.until(2 * LOST, |received| received.chunks >= u64::from(each))?;
        let (took, after) = (begun.elapsed().as_secs_f64(), cpu());
        group.until(LOST, |received| received.idles > 0)?;
        sample.faults.add(group.faults(1, each));
        let per_chunk = |seconds: f64| seconds * 1e6 / f64::from(each * sessions);
        let cpu = |who: &str| format!("{name} {who} CPU per chunk");
        let (server, agent) = (after.server - before.server, after.agent - before.agent);
        sample.figure(cpu("server"), Unit::Microseconds, per_chunk(server));
        sample.reference(cpu("agent"), Unit::Microseconds, per_chunk(agent));
        sample.reference(cpu("client"), Unit::Microseconds, per_chunk(after.client - before.client));
        sample.figure(name, Unit::PerSecond, f64::from(each * sessions) / took);
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_spread_over_their_period() {
        let period = 10_000_000;
        let mut places: Vec<u64> = (0..1000).map(|index| spread(index) % period).collect();
        places.sort_unstable();
        assert!(places[100] > period / 20 && places[100] < period / 5, "{}", places[100]);
        assert!(places[900] > period * 4 / 5 && places[900] < period * 19 / 20, "{}", places[900]);
    }
}
