//! One session, many clients.

use std::time::{Duration, Instant};

use super::super::client::Client;
use super::super::client_group::ClientGroup;
use super::super::environment::{Bench, Server, Sockets};
use super::super::measure::{cpu_seconds, peak_memory};
use super::{Sample, Unit};
use crate::failure::Failure;

const CLIENTS: u32 = 50;
const SIZE: usize = 40;

pub(super) fn full(bench: &Bench) -> Result<Sample, Failure> {
    let chunks = bench.load(20_000);
    let server = bench.server()?;
    let mut first = Client::socket(bench, &server)?;
    first.begin()?;
    let mut others = Vec::new();
    for _ in 1..CLIENTS {
        let mut client = Client::socket(bench, &server)?;
        client.received.expect_chunks_of(SIZE);
        client.join(first.session())?;
        others.push(client);
    }
    first.received.expect_chunks_of(SIZE);
    let before = cpu_seconds(server.pid());
    let begun = Instant::now();
    let mut sample = Sample::default();
    std::thread::scope(|scope| {
        let reading: Vec<_> = others
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    let idles = client.received.idles;
                    client.until(|received| received.idles > idles)?;
                    Ok::<_, Failure>(client.received.faults(1, chunks))
                })
            })
            .collect();
        first.turn(&format!("stream {chunks} {SIZE}"))?;
        sample.faults.add(first.received.faults(1, chunks));
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

/// The result of a paced stream to many clients.
struct Paced {
    p50: f64,
    p99: f64,
    /// The CPU time of the relaying process per delivery, in microseconds.
    cpu: f64,
    /// The CPU time of all clients per delivery, in microseconds.
    client_cpu: f64,
}

pub(super) fn paced(bench: &Bench) -> Result<Sample, Failure> {
    let mut sample = Sample::default();
    let mut relayed = |sockets| {
        let mut relay = bench.relay(sockets, CLIENTS)?;
        let mut clients = std::mem::take(&mut relay.clients);
        let first = clients.first_mut().ok_or_else(|| Failure::failed("a relay has no clients"))?;
        first.initialize()?;
        first.begin()?;
        let paced = stream(bench, relay.pid(), clients, &mut sample)?;
        Ok::<_, Failure>(paced)
    };
    let bare = [relayed(Sockets::Unix)?, relayed(Sockets::Tcp)?];
    let mut served = |connect: fn(&Bench, &Server) -> Result<Client, Failure>| {
        let server = bench.server()?;
        let mut first = connect(bench, &server)?;
        first.begin()?;
        let session = first.session().to_owned();
        let mut clients = vec![first];
        for _ in 1..CLIENTS {
            let mut client = connect(bench, &server)?;
            client.join(&session)?;
            clients.push(client);
        }
        stream(bench, server.pid(), clients, &mut sample)
    };
    let parlor = [served(Client::socket)?, served(Client::websocket)?];
    for (bare, name) in bare.iter().zip(["bare relay, Unix sockets", "bare relay, TCP"]) {
        sample.reference(format!("{name} p50"), Unit::Microseconds, bare.p50);
        sample.reference(format!("{name} p99"), Unit::Microseconds, bare.p99);
        sample.reference(format!("{name}, CPU per delivery"), Unit::Microseconds, bare.cpu);
    }
    for ((parlor, bare), name) in parlor.iter().zip(&bare).zip(["Unix socket", "WebSocket"]) {
        sample.figure(format!("{name} p50"), Unit::Microseconds, parlor.p50);
        sample.figure(format!("{name} p99"), Unit::Microseconds, parlor.p99);
        sample.computed(format!("{name} to bare relay"), Unit::Times, parlor.p50 / bare.p50);
        sample.figure(format!("{name} server CPU per delivery"), Unit::Microseconds, parlor.cpu);
        sample.reference(format!("{name} client CPU per delivery"), Unit::Microseconds, parlor.client_cpu);
    }
    Ok(sample)
}

/// Streams from the first client's agent to all clients through the process `between`.
fn stream(
    bench: &Bench,
    between: u32,
    mut clients: Vec<Client>,
    sample: &mut Sample,
) -> Result<Paced, Failure> {
    const RATE: u32 = 200;
    let chunks = bench.load(1000);
    clients.iter_mut().for_each(|client| client.received.expect_stamped_chunks_of(SIZE));
    let mut group = ClientGroup::new(clients)?;
    let cpu = || (cpu_seconds(between), cpu_seconds(std::process::id()));
    let before = cpu();
    if let Some(first) = group.clients.first_mut() {
        first.prompt(&format!("stamp {chunks} {RATE} {SIZE}"))?;
    }
    let most = Duration::from_secs(30 + u64::from(chunks / RATE));
    group.until(most, |received| received.chunks >= u64::from(chunks))?;
    let after = cpu();
    sample.faults.add(group.faults(1, chunks));
    let (p50, p99) = group.latency();
    let each = |seconds: f64| seconds * 1e6 / f64::from(chunks * CLIENTS);
    Ok(Paced { p50, p99, cpu: each(after.0 - before.0), client_cpu: each(after.1 - before.1) })
}
