//! Chunks as fast as they come, to one client and to many.

use std::time::Instant;

use super::super::client::Client;
use super::super::heard::{Heard, STAMPED};
use super::super::measure::{cpu_seconds, peak_memory, quantile};
use super::super::place::Bench;
use super::{Sample, Unit};
use crate::failure::Failure;

pub(super) fn each(bench: &Bench) -> Result<Sample, Failure> {
    stream(bench, 40, " each")
}

pub(super) fn bulk(bench: &Bench) -> Result<Sample, Failure> {
    stream(bench, 200, "")
}

fn stream(bench: &Bench, size: usize, pace: &str) -> Result<Sample, Failure> {
    let chunks = bench.load(200_000);
    let prompt = format!("stream {chunks} {size}{pace}");
    let mut sample = Sample::default();
    let mut once = |client: &mut Client| {
        client.begin()?;
        client.heard.expect_chunks_of(size);
        let took = client.turn(&prompt)?.as_secs_f64();
        sample.faults.add(client.heard.faults(1, chunks));
        Ok::<_, Failure>(took)
    };
    let direct = once(&mut Client::start(bench.direct())?)?;

    let server = bench.server()?;
    let mut client = Client::start(bench.acp(&server))?;
    let shim = client.pid().unwrap_or_default();
    let before = (cpu_seconds(server.pid()), cpu_seconds(shim));
    let parlor = once(&mut client)?;
    let used = (cpu_seconds(server.pid()) - before.0, cpu_seconds(shim) - before.1);
    let memory = peak_memory(server.pid());
    drop(client);
    drop(server);

    let conductor = bench.conducted().map(|peer| once(&mut Client::start(peer)?)).transpose()?;

    let per_chunk = |seconds: f64| seconds * 1e6 / f64::from(chunks);
    sample.figure("direct", Unit::Seconds, direct);
    sample.figure("parlor", Unit::Seconds, parlor);
    sample.figure("ratio", Unit::Times, parlor / direct);
    sample.figure("server CPU per chunk", Unit::Microseconds, per_chunk(used.0));
    sample.figure("parlor acp CPU per chunk", Unit::Microseconds, per_chunk(used.1));
    sample.figure("server peak memory", Unit::Megabytes, memory);
    if let Some(conductor) = conductor {
        sample.figure("conductor", Unit::Seconds, conductor);
        sample.figure("conductor ratio", Unit::Times, conductor / direct);
    }
    Ok(sample)
}

pub(super) fn latency(bench: &Bench) -> Result<Sample, Failure> {
    let chunks = bench.load(1500);
    let mut sample = Sample::default();
    let mut once = |client: &mut Client| {
        client.begin()?;
        client.heard.expect_chunks_of(STAMPED);
        client.turn(&format!("stamp {chunks} 500"))?;
        sample.faults.add(client.heard.faults(1, chunks));
        Ok::<_, Failure>(microseconds(&client.heard))
    };
    let direct = once(&mut Client::start(bench.direct())?)?;
    let relayed = once(&mut Client::start(bench.relayed())?)?;
    let server = bench.server()?;
    let parlor = once(&mut Client::start(bench.acp(&server))?)?;
    let socket = once(&mut Client::socket(bench, &server)?)?;
    let conductor = bench.conducted().map(|peer| once(&mut Client::start(peer)?)).transpose()?;
    sample.figure("direct p50", Unit::Microseconds, quantile(&direct, 0.5));
    sample.figure("two relays p50", Unit::Microseconds, quantile(&relayed, 0.5));
    sample.figure("parlor p50", Unit::Microseconds, quantile(&parlor, 0.5));
    sample.figure("parlor p99", Unit::Microseconds, quantile(&parlor, 0.99));
    sample.figure("parlor p50 on the socket", Unit::Microseconds, quantile(&socket, 0.5));
    if let Some(conductor) = conductor {
        sample.figure("conductor p50", Unit::Microseconds, quantile(&conductor, 0.5));
    }
    Ok(sample)
}

#[expect(clippy::cast_precision_loss, reason = "no chunk is on its way for months")]
fn microseconds(heard: &Heard) -> Vec<f64> {
    heard.on_the_way.iter().map(|nanoseconds| *nanoseconds as f64 / 1e3).collect()
}

pub(super) fn fanout(bench: &Bench) -> Result<Sample, Failure> {
    const CLIENTS: u32 = 50;
    const SIZE: usize = 40;
    let chunks = bench.load(20_000);
    let server = bench.server()?;
    let mut first = Client::socket(bench, &server)?;
    first.begin()?;
    let mut others = Vec::new();
    for _ in 1..CLIENTS {
        let mut client = Client::socket(bench, &server)?;
        client.heard.expect_chunks_of(SIZE);
        client.join(first.session())?;
        others.push(client);
    }
    first.heard.expect_chunks_of(SIZE);
    let before = cpu_seconds(server.pid());
    let begun = Instant::now();
    let mut sample = Sample::default();
    std::thread::scope(|scope| {
        let reading: Vec<_> = others
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    let idles = client.heard.idles;
                    client.until(|heard| heard.idles > idles)?;
                    Ok::<_, Failure>(client.heard.faults(1, chunks))
                })
            })
            .collect();
        first.turn(&format!("stream {chunks} {SIZE}"))?;
        sample.faults.add(first.heard.faults(1, chunks));
        for thread in reading {
            let faults = thread.join().map_err(|_| Failure::failed("a client failed"))??;
            sample.faults.add(faults);
        }
        Ok::<_, Failure>(())
    })?;
    let took = begun.elapsed().as_secs_f64();
    let deliveries = f64::from(chunks * CLIENTS);
    let used = cpu_seconds(server.pid()) - before;
    sample.figure("deliveries", Unit::PerSecond, deliveries / took);
    sample.figure("server CPU per delivery", Unit::Microseconds, used * 1e6 / deliveries);
    sample.figure("server peak memory", Unit::Megabytes, peak_memory(server.pid()));
    Ok(sample)
}
