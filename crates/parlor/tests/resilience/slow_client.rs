//! A client that does not read uses little memory of the server and does not delay others.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use parlor_client::{Activity, TextDelta, Update};

use crate::client::{Client, reason};
use crate::server::{connect, figures, peak_memory, with_test_agent};

/// How much memory a server may use in addition to the text of its sessions and to what it uses when it is idle.
const BESIDE: u64 = 48 << 20;

const CHUNK: usize = 40;

/// Streams this many chunks to a client that reads, and returns the duration.
fn stream(client: &Client, chunks: usize) -> Duration {
    let started = Instant::now();
    assert_eq!(reason(&client.turn(&format!("stream {chunks} {CHUNK}"))), "end_turn");
    started.elapsed()
}

/// Reads until a turn has ended, and returns the number of updates. No message may be sent twice.
fn catch_up(client: &Client) -> usize {
    let mut updates = client.session().updates();
    let mut seen = HashSet::new();
    client.wait(async {
        for count in 1.. {
            let update = updates.next().await.expect("the server is there");
            if let Some(delta) = TextDelta::of(&update) {
                let is_new = seen.insert((delta.role, delta.message));
                assert_eq!(delta.replaces, is_new, "some text was sent twice");
            }
            if matches!(update, Update::State(state) if state.activity == Activity::Idle) {
                return count;
            }
        }
        unreachable!("there is always one more")
    })
}

fn stalled(chunks: usize) {
    let dir = with_test_agent("");
    let alone = {
        let server = dir.serve();
        let mut client = connect(&server);
        client.new_session().unwrap();
        stream(&client, chunks)
    };
    let server = dir.serve();
    let mut reader = connect(&server);
    let session = reader.new_session().unwrap();
    let mut sleeper = connect(&server);
    sleeper.join(&session);
    let idle = peak_memory(&server);
    let with_sleeper = stream(&reader, chunks);

    let text = chunks * CHUNK;
    let agent_text = reader.agent_text();
    assert_eq!(agent_text.len(), text);
    let numbers = (0..chunks).map(|number| format!("{number:08} "));
    assert!(
        agent_text.as_bytes().chunks(CHUNK).map(|chunk| &chunk[..9]).eq(numbers.map(String::into_bytes)),
        "in order"
    );

    // Updates are not buffered for the client that does not read.
    let before = peak_memory(&server);
    let woken = Instant::now();
    let pieces = catch_up(&sleeper);
    let caught_up = woken.elapsed();
    assert_eq!(sleeper.snapshot(), reader.snapshot(), "both end with the same transcript");
    let after = peak_memory(&server);
    figures(&format!(
        "{chunks} chunks: {alone:.1?} alone, {with_sleeper:.1?} beside a client that does not read (x{:.2}), which \
         caught up in {caught_up:.1?} with {pieces} updates; peak memory {:?} MiB, then {:?} MiB, of {} MiB of text",
        with_sleeper.as_secs_f64() / alone.as_secs_f64(),
        before.map(|bytes| bytes >> 20),
        after.map(|bytes| bytes >> 20),
        text >> 20,
    ));
    // The peak memory is available only on Linux.
    for (peak, idle) in [before, after].into_iter().flatten().zip(idle.into_iter().cycle()) {
        let grown = peak.saturating_sub(idle);
        assert!(
            grown < text as u64 + BESIDE,
            "{} MiB beside {} MiB is too much memory",
            grown >> 20,
            idle >> 20
        );
    }
}

/// Few enough for a debug build.
#[test]
fn a_client_that_does_not_read_uses_little_memory() {
    stalled(200_000);
}

/// `cargo test --release -p parlor --test resilience -- --ignored` runs it in full size.
#[test]
#[ignore = "too much for a build that is not optimized"]
fn a_client_that_does_not_read_a_million_chunks() {
    stalled(1_000_000);
}
