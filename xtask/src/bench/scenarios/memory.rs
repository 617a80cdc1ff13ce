//! How much memory the server takes, for what it holds and after what it let go.

use std::time::Duration;

use super::super::client::Client;
use super::super::heard::Faults;
use super::super::measure::{memory as resident, peak_memory, settled_memory};
use super::super::place::{Bench, Server, Store};
use super::{Sample, Unit};
use crate::failure::Failure;

const SIZE: usize = 40;

/// How long a server may take to give back what it does not need any more.
const SETTLING: Duration = Duration::from_secs(15);

pub(super) fn memory(bench: &Bench) -> Result<Sample, Failure> {
    let mut sample = Sample::default();
    live_sessions(bench, &mut sample)?;
    idle_clients(bench, &mut sample)?;
    mixed(bench, &mut sample)?;
    Ok(sample)
}

/// Sessions with a turn behind them that one client follows.
fn live_sessions(bench: &Bench, sample: &mut Sample) -> Result<(), Failure> {
    const CHUNKS: u32 = 20;
    let sessions = bench.load(1000);
    let server = bench.server()?;
    let mut client = Client::websocket(bench, &server)?;
    client.heard.expect_chunks_of(SIZE);
    let before = resident(server.pid());
    for _ in 0..sessions {
        client.begin()?;
        client.turn(&format!("stream {CHUNKS} {SIZE}"))?;
    }
    let after = settled(bench, &server);
    sample.faults.add(client.heard.faults(sessions as usize, CHUNKS));
    sample.figure("server alone", Unit::Megabytes, before);
    sample.figure(format!("{sessions} live sessions"), Unit::Megabytes, after);
    Ok(())
}

/// WebSocket clients of one session in which nothing happens.
fn idle_clients(bench: &Bench, sample: &mut Sample) -> Result<(), Failure> {
    const CHUNKS: u32 = 20;
    let clients = bench.load(1000);
    let server = bench.server()?;
    let mut first = Client::socket(bench, &server)?;
    first.heard.expect_chunks_of(SIZE);
    first.begin()?;
    first.turn(&format!("stream {CHUNKS} {SIZE}"))?;
    let mut idle = Vec::new();
    for _ in 0..clients {
        let mut client = Client::websocket(bench, &server)?;
        client.heard.expect_chunks_of(SIZE);
        client.join(first.session())?;
        sample.faults.add(client.heard.faults(1, CHUNKS));
        idle.push(client);
    }
    let after = settled(bench, &server);
    sample.figure(format!("{clients} idle clients"), Unit::Megabytes, after);
    drop(idle);
    Ok(())
}

/// Ten minutes of a busy server without the pauses: a session each second that is prompted, joined, forked and left.
fn mixed(bench: &Bench, sample: &mut Sample) -> Result<(), Failure> {
    const AT_ONCE: u32 = 8;
    let rounds = bench.load(600).div_ceil(AT_ONCE);
    // Sessions leave memory soon after their clients did, as they would within ten minutes.
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
    // The last sessions are idle for a second before they go.
    std::thread::sleep(Duration::from_secs(2));
    let after = settled(bench, &server);
    sample.faults.add(faults);
    sample.figure("before mixed load", Unit::Megabytes, before);
    sample.figure("peak of mixed load", Unit::Megabytes, peak);
    sample.figure("after mixed load", Unit::Megabytes, after);
    Ok(())
}

/// The life of one session: a client begins it and prompts, another one joins, forks it, prompts in the fork, deletes that
/// and leaves, and the first one goes on and leaves as well.
fn round(bench: &Bench, server: &Server) -> Result<Faults, Failure> {
    const CHUNKS: u32 = 50;
    const TURNS: usize = 3;
    let turn = format!("stream {CHUNKS} {SIZE}");
    let mut first = Client::websocket(bench, server)?;
    first.heard.expect_chunks_of(SIZE);
    first.begin()?;
    for _ in 0..TURNS {
        first.turn(&turn)?;
    }
    let mut second = Client::socket(bench, server)?;
    second.heard.expect_chunks_of(SIZE);
    second.join(first.session())?;
    second.fork()?;
    second.turn(&turn)?;
    let mut faults = second.heard.faults(TURNS + 1, CHUNKS);
    second.delete()?;
    drop(second);
    first.turn(&turn)?;
    faults.add(first.heard.faults(TURNS + 1, CHUNKS));
    Ok(faults)
}

fn settled(bench: &Bench, server: &Server) -> f64 {
    let still = Duration::from_millis(if bench.quick { 100 } else { 1000 });
    settled_memory(server.pid(), still, SETTLING)
}
