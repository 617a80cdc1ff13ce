//! Clients that attach to existing sessions, and forks.

use std::time::{Duration, Instant};

use super::super::client::Client;
use super::super::environment::{Bench, Server};
use super::super::library_client::LibraryClient;
use super::super::measure::median;
use super::super::received::Faults;
use super::{Sample, Unit};
use crate::failure::Failure;

const SIZE: usize = 40;

pub(super) fn join(bench: &Bench) -> Result<Sample, Failure> {
    /// The number of messages per turn.
    const AT_ONCE: u32 = 1000;
    const CHUNKS: u32 = 20;
    let messages = bench.load(10_000);
    let server = bench.server()?;
    let mut first = Client::socket(bench, &server)?;
    first.begin()?;
    first.received.expect_chunks_of(SIZE);
    let turn = vec![format!("stream {CHUNKS} {SIZE}"); AT_ONCE as usize].join("\n");
    for _ in 0..messages / AT_ONCE {
        first.turn(&turn)?;
    }
    let mut sample = Sample::default();
    let messages = messages as usize;
    sample.faults.add(first.received.faults(messages, CHUNKS));
    let session = first.session().to_owned();
    let mut once = |server: &Server| {
        let mut client = Client::socket(bench, server)?;
        client.received.expect_chunks_of(SIZE);
        let begun = Instant::now();
        client.join(&session)?;
        let took = begun.elapsed().as_secs_f64();
        sample.faults.add(client.received.faults(messages, CHUNKS));
        Ok::<_, Failure>(took)
    };
    let joined = once(&server)?;
    drop(first);
    let server = bench.server_at(server.stop())?;
    let restarted = once(&server)?;
    sample.figure("join", Unit::Seconds, joined);
    sample.figure("join after a restart", Unit::Seconds, restarted);
    Ok(sample)
}

pub(super) fn join_live(bench: &Bench) -> Result<Sample, Failure> {
    const CLIENTS: u64 = 4;
    const RATE: u32 = 2000;
    let chunks = bench.load(10_000);
    let between = Duration::from_secs_f64(f64::from(chunks / RATE.min(chunks)) / 10.0);
    let server = bench.server()?;
    let mut first = LibraryClient::socket(bench, &server)?;
    let session = first.begin()?;
    first.received.expect_chunks_of(SIZE);
    let mut others = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = LibraryClient::socket(bench, &server)?;
        client.received.expect_chunks_of(SIZE);
        others.push(client);
    }
    let mut faults = Faults::default();
    let mut joins = Vec::new();
    std::thread::scope(|scope| {
        let session = &session;
        let threads: Vec<_> = (1..)
            .zip(others)
            .map(|(index, mut client)| {
                scope.spawn(move || {
                    std::thread::sleep(between * index);
                    let took = client.join(session)?.as_secs_f64() * 1e3;
                    client.until_idle()?;
                    Ok::<_, Failure>((took, client.received.faults(1, chunks)))
                })
            })
            .collect();
        first.turn(&format!("stream {chunks} {SIZE} {RATE}"))?;
        for thread in threads {
            let (took, received) = thread.join().map_err(|_| Failure::failed("a client failed"))??;
            joins.push(took);
            faults.add(received);
        }
        Ok::<_, Failure>(())
    })?;
    faults.add(first.received.faults(1, chunks));
    let mut sample = Sample { faults, ..Sample::default() };
    let slowest = joins.iter().copied().fold(0.0, f64::max);
    sample.figure("slowest join", Unit::Milliseconds, slowest);
    Ok(sample)
}

pub(super) fn fork(bench: &Bench) -> Result<Sample, Failure> {
    const TIMES: usize = 5;
    /// The number of messages per turn.
    const AT_ONCE: u32 = 100;
    let server = bench.server()?;
    let mut client = LibraryClient::socket(bench, &server)?;
    let session = client.begin()?;
    client.received.expect_chunks_of(SIZE);
    let turn = vec![format!("stream 1 {SIZE}"); AT_ONCE as usize].join("\n");
    let mut sample = Sample::default();
    let mut said = 0;
    for (messages, name) in [
        (100, "fork of 100 messages"),
        (1000, "fork of 1,000 messages"),
        (10_000, "fork of 10,000 messages"),
        (100_000, "fork of 100,000 messages"),
    ] {
        if bench.quick && messages > 1000 {
            break;
        }
        while said < messages {
            client.turn(&turn)?;
            said += AT_ONCE;
        }
        let mut took = Vec::new();
        for _ in 0..TIMES {
            took.push(client.fork(&session)?.as_secs_f64() * 1e3);
        }
        sample.figure(name, Unit::Milliseconds, median(&took));
    }
    sample.faults.add(client.received.faults(said as usize, 1));
    Ok(sample)
}
