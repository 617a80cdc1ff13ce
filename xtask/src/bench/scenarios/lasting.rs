//! Clients that stop reading, and servers that are stopped.

use std::time::Instant;

use super::super::client::Client;
use super::super::environment::Bench;
use super::super::library_client::LibraryClient;
use super::super::measure::{memory, peak_memory};
use super::{Sample, Unit};
use crate::failure::Failure;

const SIZE: usize = 40;

pub(super) fn stalled(bench: &Bench) -> Result<Sample, Failure> {
    let chunks = bench.load(200_000);
    let server = bench.server()?;
    let mut first = Client::socket(bench, &server)?;
    first.begin()?;
    first.received.expect_chunks_of(SIZE);
    let mut stalled = Client::socket(bench, &server)?;
    stalled.received.expect_chunks_of(SIZE);
    stalled.join(first.session())?;
    let (before, idles) = (memory(server.pid()), stalled.received.idles);
    let took = first.turn(&format!("stream {chunks} {SIZE}"))?.as_secs_f64();
    let grown = peak_memory(server.pid()) - before;
    stalled.until(|received| received.idles > idles)?;
    let mut sample = Sample::default();
    sample.faults.add(first.received.faults(1, chunks));
    sample.faults.add(stalled.received.faults(1, chunks));
    sample.figure("growth", Unit::Megabytes, grown);
    sample.figure("turn of the other client", Unit::Seconds, took);
    Ok(sample)
}

pub(super) fn restart(bench: &Bench) -> Result<Sample, Failure> {
    let chunks = bench.load(200_000);
    let server = bench.server()?;
    let mut first = LibraryClient::socket(bench, &server)?;
    let session = first.begin()?;
    first.received.expect_chunks_of(SIZE);
    first.turn(&format!("stream {chunks} {SIZE}"))?;
    let begun = Instant::now();
    let data = server.stop();
    let stopped = begun.elapsed().as_secs_f64();
    let mut sample = Sample::default();
    sample.faults.add(first.received.faults(1, chunks));
    let server = bench.server_at(data)?;
    let mut again = LibraryClient::socket(bench, &server)?;
    again.received.expect_chunks_of(SIZE);
    let joined = again.join(&session)?.as_secs_f64();
    sample.figure("stop", Unit::Seconds, stopped);
    sample.figure("join after the restart", Unit::Seconds, joined);
    sample.faults.add(again.received.faults(1, chunks));
    Ok(sample)
}
