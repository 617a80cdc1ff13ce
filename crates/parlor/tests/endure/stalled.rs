//! A client that does not read costs the server little and the others nothing.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::server::{Place, Server, figures};

/// How much memory a server may need beside the text of its sessions.
const BESIDE: u64 = 64 << 20;

const CHUNK: usize = 40;

/// Streams so many chunks to a client that reads, and says how long that took.
fn stream(client: &mut Client, session: &str, chunks: usize) -> Duration {
    let begun = Instant::now();
    let prompt = client.prompt(session, &format!("stream {chunks} {CHUNK}"));
    client.answer(prompt).unwrap();
    client.until(|shown| shown.state["state"] == "running");
    assert_eq!(client.until_idle(), "end_turn");
    begun.elapsed()
}

fn one_who_reads(server: &Server) -> (Client, String) {
    let mut client = server.client();
    let session = client.new_session().unwrap();
    (client, session)
}

fn stalled(chunks: usize) {
    let place = Place::new().test_agent("");
    let alone = {
        let server = place.serve();
        let (mut client, session) = one_who_reads(&server);
        stream(&mut client, &session, chunks)
    };
    let server = place.serve();
    let (mut reader, session) = one_who_reads(&server);
    let mut sleeper = server.client();
    sleeper.resume(&session).unwrap();
    let with_sleeper = stream(&mut reader, &session, chunks);

    let text = chunks * CHUNK;
    let said = reader.shown.said();
    assert_eq!(said.len(), text);
    let numbers = (0..chunks).map(|number| format!("{number:08} "));
    assert!(
        said.as_bytes().chunks(CHUNK).map(|chunk| &chunk[..9]).eq(numbers.map(String::into_bytes)),
        "in order"
    );

    // What the sleeper was not told yet is not kept for it.
    let before = server.peak_memory();
    let woken = Instant::now();
    let reading = thread::spawn(move || {
        sleeper.until(|shown| shown.state["state"] == "running");
        assert_eq!(sleeper.until_idle(), "end_turn");
        sleeper
    });
    let sleeper = reading.join().unwrap();
    let caught_up = woken.elapsed();
    assert_eq!(sleeper.shown.messages, reader.shown.messages, "both end with the same transcript");
    assert_eq!(sleeper.shown.text_bytes, reader.shown.text_bytes, "no text came twice");
    let after = server.peak_memory();
    figures(&format!(
        "{chunks} chunks: {alone:.1?} alone, {with_sleeper:.1?} beside a client that does not read (x{:.2}), which \
         caught up in {caught_up:.1?} with {} updates; peak memory {:?} MiB, then {:?} MiB, of {} MiB of text",
        with_sleeper.as_secs_f64() / alone.as_secs_f64(),
        sleeper.shown.updates,
        before.map(|bytes| bytes >> 20),
        after.map(|bytes| bytes >> 20),
        text >> 20,
    ));
    // Only Linux says how much it was.
    for peak in [before, after].into_iter().flatten() {
        assert!(peak < text as u64 + BESIDE, "{} MiB is too much memory", peak >> 20);
    }
}

/// Few enough that a build for tests gets through them in a moment.
#[test]
fn a_client_that_does_not_read_costs_little() {
    stalled(200_000);
}

/// `cargo test --release -p parlor --test endure -- --ignored` runs it in full size.
#[test]
#[ignore = "too much for a build that is not optimized"]
fn a_client_that_does_not_read_a_million_chunks() {
    stalled(1_000_000);
}
