//! Chunks from one agent to one client: throughput and latency.

use parlor_testkit::test_agent::STAMPED;

use super::super::client::Client;
use super::super::environment::Bench;
use super::super::measure::{cpu_seconds, peak_memory, quantile};
use super::super::received::Received;
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
        client.received.expect_chunks_of(size);
        let took = client.turn(&prompt)?.as_secs_f64();
        sample.faults.add(client.received.faults(1, chunks));
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
    sample.reference("direct", Unit::Seconds, direct);
    sample.figure("parlor", Unit::Seconds, parlor);
    sample.computed("ratio", Unit::Times, parlor / direct);
    sample.figure("server CPU per chunk", Unit::Microseconds, per_chunk(used.0));
    sample.figure("parlor acp CPU per chunk", Unit::Microseconds, per_chunk(used.1));
    sample.figure("server peak memory", Unit::Megabytes, memory);
    if let Some(conductor) = conductor {
        sample.reference("conductor", Unit::Seconds, conductor);
        sample.reference("conductor ratio", Unit::Times, conductor / direct);
    }
    Ok(sample)
}

pub(super) fn latency(bench: &Bench) -> Result<Sample, Failure> {
    let chunks = bench.load(1500);
    let mut sample = Sample::default();
    let mut once = |client: &mut Client| {
        client.begin()?;
        client.received.expect_stamped_chunks_of(STAMPED);
        client.turn(&format!("stamp {chunks} 500"))?;
        sample.faults.add(client.received.faults(1, chunks));
        Ok::<_, Failure>(microseconds(&client.received))
    };
    let direct = once(&mut Client::start(bench.direct())?)?;
    let relayed = once(&mut Client::start(bench.relayed())?)?;
    let server = bench.server()?;
    let acp = once(&mut Client::start(bench.acp(&server))?)?;
    let socket = once(&mut Client::socket(bench, &server)?)?;
    let websocket = once(&mut Client::websocket(bench, &server)?)?;
    let conductor = bench.conducted().map(|peer| once(&mut Client::start(peer)?)).transpose()?;
    let direct = quantile(&direct, 0.5);
    sample.reference("direct p50", Unit::Microseconds, direct);
    sample.reference("two relays p50", Unit::Microseconds, quantile(&relayed, 0.5));
    for (name, latency) in [("parlor acp", acp), ("Unix socket", socket), ("WebSocket", websocket)] {
        let p50 = quantile(&latency, 0.5);
        sample.figure(format!("{name} p50"), Unit::Microseconds, p50);
        sample.figure(format!("{name} p99"), Unit::Microseconds, quantile(&latency, 0.99));
        sample.computed(format!("{name} to direct"), Unit::Times, p50 / direct);
    }
    if let Some(conductor) = conductor {
        sample.reference("conductor p50", Unit::Microseconds, quantile(&conductor, 0.5));
    }
    Ok(sample)
}

#[expect(clippy::cast_precision_loss, reason = "no chunk is on its way for months")]
fn microseconds(received: &Received) -> Vec<f64> {
    received.latencies.iter().map(|nanoseconds| *nanoseconds as f64 / 1e3).collect()
}
