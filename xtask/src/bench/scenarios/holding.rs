//! The cost of keeping a transcript with the client library, compared with reading lines only.

use std::time::Duration;

use super::super::client::Client;
use super::super::environment::Bench;
use super::super::library_client::LibraryClient;
use super::super::measure::cpu_seconds;
use super::{Sample, Unit};
use crate::failure::Failure;

const SIZE: usize = 40;

/// The cost of a turn.
struct Cost {
    seconds: f64,
    /// The CPU time of this process, which is the client.
    cpu: f64,
}

pub(super) fn client(bench: &Bench) -> Result<Sample, Failure> {
    let chunks = bench.load(200_000);
    let server = bench.server()?;
    let mut sample = Sample::default();
    let direct_read = read(Client::start(bench.direct())?, chunks, &mut sample)?;
    let direct_held = hold(LibraryClient::start(bench.direct())?, chunks, &mut sample)?;
    let socket_read = read(Client::socket(bench, &server)?, chunks, &mut sample)?;
    let socket_held = hold(LibraryClient::socket(bench, &server)?, chunks, &mut sample)?;
    let per_chunk = |cost: &Cost| cost.cpu * 1e6 / f64::from(chunks);
    sample.reference("direct read", Unit::Seconds, direct_read.seconds);
    sample.reference("direct held", Unit::Seconds, direct_held.seconds);
    sample.reference("direct ratio", Unit::Times, direct_held.seconds / direct_read.seconds);
    sample.reference("direct read CPU per chunk", Unit::Microseconds, per_chunk(&direct_read));
    sample.reference("direct held CPU per chunk", Unit::Microseconds, per_chunk(&direct_held));
    sample.figure("socket read", Unit::Seconds, socket_read.seconds);
    sample.figure("socket held", Unit::Seconds, socket_held.seconds);
    sample.computed("socket ratio", Unit::Times, socket_held.seconds / socket_read.seconds);
    sample.figure("socket read CPU per chunk", Unit::Microseconds, per_chunk(&socket_read));
    sample.figure("socket held CPU per chunk", Unit::Microseconds, per_chunk(&socket_held));
    Ok(sample)
}

fn read(mut client: Client, chunks: u32, sample: &mut Sample) -> Result<Cost, Failure> {
    client.begin()?;
    client.received.expect_chunks_of(SIZE);
    let cost = cost(|| client.turn(&prompt(chunks)))?;
    sample.faults.add(client.received.faults(1, chunks));
    Ok(cost)
}

fn hold(mut library_client: LibraryClient, chunks: u32, sample: &mut Sample) -> Result<Cost, Failure> {
    library_client.begin()?;
    library_client.received.expect_chunks_of(SIZE);
    let cost = cost(|| library_client.turn(&prompt(chunks)))?;
    sample.faults.add(library_client.received.faults(1, chunks));
    Ok(cost)
}

fn prompt(chunks: u32) -> String {
    format!("stream {chunks} {SIZE}")
}

fn cost(turn: impl FnOnce() -> Result<Duration, Failure>) -> Result<Cost, Failure> {
    let client = std::process::id();
    let before = cpu_seconds(client);
    let seconds = turn()?.as_secs_f64();
    Ok(Cost { seconds, cpu: cpu_seconds(client) - before })
}
