//! The memory of the server under load and after it.

use std::time::Duration;

use super::super::client::Client;
use super::super::environment::{Bench, Server, Store};
use super::super::measure::{memory as resident, peak_memory, settled_memory};
use super::super::received::Faults;
use super::{Sample, Unit};
use crate::failure::Failure;

const SIZE: usize = 40;

/// The time that a server may take to free memory.
const SETTLING: Duration = Duration::from_secs(15);

pub(super) fn memory(bench: &Bench) -> Result<Sample, Failure> {
    let mut sample = Sample::default();
    live_sessions(bench, &mut sample)?;
    idle_clients(bench, &mut sample)?;
    mixed(bench, &mut sample)?;
    Ok(sample)
}

/// Measures sessions that have had a turn, with one attached client.
fn live_sessions(bench: &Bench, sample: &mut Sample) -> Result<(), Failure> {
    const CHUNKS: u32 = 20;
    let sessions = bench.load(1000);
    let server = bench.server()?;
    let mut client = Client::websocket(bench, &server)?;
    client.received.expect_chunks_of(SIZE);
    let before = resident(server.pid());
    for _ in 0..sessions {
        client.begin()?;
        client.turn(&format!("stream {CHUNKS} {SIZE}"))?;
    }
    let after = settled(bench, &server);
    sample.faults.add(client.received.faults(sessions as usize, CHUNKS));
    sample.figure("server alone", Unit::Megabytes, before);
    sample.figure(format!("{sessions} live sessions"), Unit::Megabytes, after);
    Ok(())
}

/// Measures WebSocket clients of one idle session.
fn idle_clients(bench: &Bench, sample: &mut Sample) -> Result<(), Failure> {
    const CHUNKS: u32 = 20;
    let clients = bench.load(1000);
    let server = bench.server()?;
    let mut first = Client::socket(bench, &server)?;
    first.received.expect_chunks_of(SIZE);
    first.begin()?;
    first.turn(&format!("stream {CHUNKS} {SIZE}"))?;
    let mut idle = Vec::new();
    for _ in 0..clients {
        let mut client = Client::websocket(bench, &server)?;
        client.received.expect_chunks_of(SIZE);
        client.join(first.session())?;
        sample.faults.add(client.received.faults(1, CHUNKS));
        idle.push(client);
    }
    let after = settled(bench, &server);
    sample.figure(format!("{clients} idle clients"), Unit::Megabytes, after);
    drop(idle);
    Ok(())
}

/// Measures ten minutes of a busy server without pauses: one session per second that is prompted, attached to, forked
/// and left.
fn mixed(bench: &Bench, sample: &mut Sample) -> Result<(), Failure> {
    const AT_ONCE: u32 = 8;
    let rounds = bench.load(600).div_ceil(AT_ONCE);
    // Sessions are evicted soon after their clients detach, as they would be within ten minutes.
    let server = bench.server_with(Store::Sqlite, &["--idle", "1"])?;
    let mut faults = round(bench, &server)?;
    let before = settled(bench, &server);
    std::thread::scope(|scope| {
        let round = || {
            let mut faults = Faults::default();
            for _ in 0..rounds {
                faults.add(round(bench, &server)?);
            }
            Ok::<_, Failure>(faults)
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(round)).collect();
        for thread in threads {
            faults.add(thread.join().map_err(|_| Failure::failed("a client failed"))??);
        }
        Ok::<_, Failure>(())
    })?;
    let peak = peak_memory(server.pid());
    // The last sessions are idle for a second before they are evicted.
    std::thread::sleep(Duration::from_secs(2));
    let after = settled(bench, &server);
    sample.faults.add(faults);
    sample.figure("before mixed load", Unit::Megabytes, before);
    sample.figure("peak of mixed load", Unit::Megabytes, peak);
    sample.figure("after mixed load", Unit::Megabytes, after);
    Ok(())
}

/// Runs one session: a client creates it and prompts; a second client attaches, forks it, prompts in the fork,
/// deletes the fork and disconnects; the first client prompts again and disconnects.
fn round(bench: &Bench, server: &Server) -> Result<Faults, Failure> {
    const CHUNKS: u32 = 50;
    const TURNS: usize = 3;
    let turn = format!("stream {CHUNKS} {SIZE}");
    let mut first = Client::websocket(bench, server)?;
    first.received.expect_chunks_of(SIZE);
    first.begin()?;
    for _ in 0..TURNS {
        first.turn(&turn)?;
    }
    let mut second = Client::socket(bench, server)?;
    second.received.expect_chunks_of(SIZE);
    second.join(first.session())?;
    second.fork()?;
    second.turn(&turn)?;
    let mut faults = second.received.faults(TURNS + 1, CHUNKS);
    second.delete()?;
    drop(second);
    first.turn(&turn)?;
    faults.add(first.received.faults(TURNS + 1, CHUNKS));
    Ok(faults)
}

fn settled(bench: &Bench, server: &Server) -> f64 {
    let still = Duration::from_millis(if bench.quick { 100 } else { 1000 });
    settled_memory(server.pid(), still, SETTLING)
}
