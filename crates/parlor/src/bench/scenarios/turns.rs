//! Short things: turns of a few words, and connecting.

use std::time::Instant;

use super::super::client::Client;
use super::super::measure::quantile;
use super::super::place::Bench;
use super::{Sample, Unit};
use crate::failure::Failure;

pub(super) fn turns(bench: &Bench) -> Result<Sample, Failure> {
    const SIZE: usize = 40;
    /// After this many turns a session is long, and an agent slower for it.
    const SHORT: u32 = 50;
    let turns = bench.load(500);
    let mut sample = Sample::default();
    let mut once = |client: &mut Client| {
        client.heard.expect_chunks_of(SIZE);
        let mut took = Vec::new();
        for turn in 0..turns {
            if turn % SHORT == 0 {
                client.begin()?;
            }
            took.push(client.turn(&format!("stream 1 {SIZE}"))?.as_secs_f64() * 1e6);
        }
        sample.faults.add(client.heard.faults(turns as usize, 1));
        Ok::<_, Failure>(took)
    };
    let direct = once(&mut Client::direct(bench)?)?;
    let server = bench.server()?;
    let parlor = once(&mut Client::acp(bench, &server)?)?;
    let conductor = if bench.conductor { Some(once(&mut Client::conductor(bench)?)?) } else { None };
    sample.figure("direct p50", Unit::Microseconds, quantile(&direct, 0.5));
    sample.figure("parlor p50", Unit::Microseconds, quantile(&parlor, 0.5));
    sample.figure("parlor p99", Unit::Microseconds, quantile(&parlor, 0.99));
    if let Some(conductor) = conductor {
        sample.figure("conductor p50", Unit::Microseconds, quantile(&conductor, 0.5));
    }
    Ok(sample)
}

pub(super) fn connect(bench: &Bench) -> Result<Sample, Failure> {
    let times = bench.load(30);
    let server = bench.server()?;
    // The first client of a server waits for the agent to say who it is.
    drop(Client::acp(bench, &server)?);
    let (mut direct, mut parlor, mut conductor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        let once = |took: &mut Vec<f64>, start: &dyn Fn() -> Result<Client, Failure>| {
            let begun = Instant::now();
            let client = start()?;
            took.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(client);
            Ok::<_, Failure>(())
        };
        once(&mut direct, &|| Client::direct(bench))?;
        once(&mut parlor, &|| Client::acp(bench, &server))?;
        if bench.conductor {
            once(&mut conductor, &|| Client::conductor(bench))?;
        }
    }
    let mut sample = Sample::default();
    sample.figure("direct p50", Unit::Milliseconds, quantile(&direct, 0.5));
    sample.figure("parlor p50", Unit::Milliseconds, quantile(&parlor, 0.5));
    sample.figure("parlor p99", Unit::Milliseconds, quantile(&parlor, 0.99));
    if bench.conductor {
        sample.figure("conductor p50", Unit::Milliseconds, quantile(&conductor, 0.5));
    }
    Ok(sample)
}
