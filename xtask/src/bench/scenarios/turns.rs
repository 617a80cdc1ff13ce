//! Short turns, and connecting.

use std::fs::File;
use std::io::{self, Write};
use std::time::Instant;

use super::super::client::Client;
use super::super::environment::{Bench, Peer, Server};
use super::super::library_client::LibraryClient;
use super::super::measure::quantile;
use super::{Sample, Unit};
use crate::failure::Failure;

pub(super) fn turns(bench: &Bench) -> Result<Sample, Failure> {
    const SIZE: usize = 40;
    /// The number of turns after which a session is long and its agent slower.
    const SHORT: u32 = 50;
    let turns = bench.load(500);
    let mut sample = Sample::default();
    let mut once = |client: &mut Client| {
        client.received.expect_chunks_of(SIZE);
        let mut took = Vec::new();
        for turn in 0..turns {
            if turn % SHORT == 0 {
                client.begin()?;
            }
            took.push(client.turn(&format!("stream 1 {SIZE}"))?.as_secs_f64() * 1e6);
        }
        sample.faults.add(client.received.faults(turns as usize, 1));
        Ok::<_, Failure>(took)
    };
    let direct = once(&mut Client::start(bench.direct())?)?;
    let relayed = once(&mut Client::start(bench.relayed())?)?;
    let server = bench.server()?;
    let acp = once(&mut Client::start(bench.acp(&server))?)?;
    let socket = once(&mut Client::socket(bench, &server)?)?;
    let websocket = once(&mut Client::websocket(bench, &server)?)?;
    let conductor = bench.conducted().map(|peer| once(&mut Client::start(peer)?)).transpose()?;
    let sync = quantile(&syncs(bench, &server)?, 0.5);
    let direct = quantile(&direct, 0.5);
    sample.reference("direct p50", Unit::Microseconds, direct);
    sample.reference("two relays p50", Unit::Microseconds, quantile(&relayed, 0.5));
    sample.reference("one sync of the disk p50", Unit::Microseconds, sync);
    for (name, took) in [("parlor acp", acp), ("Unix socket", socket), ("WebSocket", websocket)] {
        let p50 = quantile(&took, 0.5);
        sample.figure(format!("{name} p50"), Unit::Microseconds, p50);
        sample.figure(format!("{name} p99"), Unit::Microseconds, quantile(&took, 0.99));
        let beyond = format!("{name} beyond direct and a sync");
        sample.computed(beyond, Unit::Microseconds, p50 - direct - sync);
    }
    if let Some(conductor) = conductor {
        sample.reference("conductor p50", Unit::Microseconds, quantile(&conductor, 0.5));
    }
    Ok(sample)
}

/// Measures the sync of two pages, which each prompt waits for.
fn syncs(bench: &Bench, server: &Server) -> Result<Vec<f64>, Failure> {
    const PAGES: [u8; 8192] = [1; 8192];
    let trouble = |error: io::Error| Failure::failed(format_args!("cannot write beside the server: {error}"));
    let mut file = File::create(server.data.join("sync")).map_err(trouble)?;
    let mut took = Vec::new();
    for _ in 0..bench.load(500) {
        file.write_all(&PAGES).map_err(trouble)?;
        let begun = Instant::now();
        file.sync_data().map_err(trouble)?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(took)
}

pub(super) fn connect(bench: &Bench) -> Result<Sample, Failure> {
    let times = bench.load(30);
    let server = bench.server()?;
    // The first client of a server waits for the agent's `initialize` response.
    drop(LibraryClient::start(bench.acp(&server))?);
    let (mut direct, mut parlor, mut conductor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        let once = |took: &mut Vec<f64>, peer: Peer| {
            let begun = Instant::now();
            let client = LibraryClient::start(peer)?;
            took.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(client);
            Ok::<_, Failure>(())
        };
        once(&mut direct, bench.direct())?;
        once(&mut parlor, bench.acp(&server))?;
        if let Some(peer) = bench.conducted() {
            once(&mut conductor, peer)?;
        }
    }
    let mut sample = Sample::default();
    sample.reference("direct p50", Unit::Milliseconds, quantile(&direct, 0.5));
    sample.figure("parlor p50", Unit::Milliseconds, quantile(&parlor, 0.5));
    sample.figure("parlor p99", Unit::Milliseconds, quantile(&parlor, 0.99));
    if bench.conductor {
        sample.reference("conductor p50", Unit::Milliseconds, quantile(&conductor, 0.5));
    }
    Ok(sample)
}
