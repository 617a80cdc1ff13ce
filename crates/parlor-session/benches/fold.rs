//! Folding a long stream of chunks, beside just parsing the same lines into the schema crate's types.
//!
//! Run with `cargo bench -p parlor-session`.

#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark prints what it measured")]

use std::time::{Duration, Instant};

use agent_client_protocol_schema::v2::UpdateSessionNotification;
use parlor_dialect::{Dialect, Fold};
use serde::Deserialize;

/// What of an envelope has to be read to get at its update: less work than the schema crate's own envelope.
#[derive(Deserialize)]
struct Notification {
    params: UpdateSessionNotification,
}

const RUNS: usize = 5;

fn main() {
    // Cargo hands a benchmark that is run as a test no reason to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    println!(
        "fold of agent_message_chunk lines, 40 bytes of text each; medians of {RUNS} interleaved runs\n"
    );
    println!("  chunks   fold/chunk  parse/chunk  parse/fold   chunks/s   memory/chunk");
    for count in [10_000_usize, 100_000, 1_000_000] {
        let lines: Vec<String> = (0..count).map(line).collect();
        let (mut folds, mut parses) = (Vec::new(), Vec::new());
        let mut memory = 0;
        for _ in 0..RUNS {
            let before = resident();
            let (on_applied, fold) = timed(|| {
                let mut fold = Fold::new(Dialect::V2);
                for line in &lines {
                    fold.line(line).expect("the line is good");
                }
                fold
            });
            memory = memory.max(resident().saturating_sub(before));
            assert_eq!(fold.transcript().entries()[0].body().content.len(), count, "no chunk may be lost");
            drop(fold);
            folds.push(on_applied);
            let (on_applied, texts) = timed(|| {
                let parse =
                    |line: &String| serde_json::from_str::<Notification>(line).expect("the line is good");
                lines.iter().map(parse).filter(|line| line.params.meta.is_none()).count()
            });
            assert_eq!(texts, count);
            parses.push(on_applied);
        }
        let per_chunk = |times: &mut Vec<Duration>| {
            times.sort();
            times[RUNS / 2].as_secs_f64() * 1e9 / as_f64(count)
        };
        let (fold, parse) = (per_chunk(&mut folds), per_chunk(&mut parses));
        println!(
            "{count:>8}   {fold:>7.0} ns   {parse:>8.0} ns   {:>8.2}x   {:>8.0}   {:>6.0} bytes",
            parse / fold,
            1e9 / fold,
            as_f64(memory) / as_f64(count),
        );
    }
    println!(
        "\none chunk is {} bytes of JSON on the wire, {} of them its content block",
        line(0).len(),
        block(0).len()
    );
}

fn block(number: usize) -> String {
    format!(r#"{{"type":"text","text":"{number:>39} "}}"#)
}

fn line(number: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"sess_789xyz","update":{{"sessionUpdate":"agent_message_chunk","messageId":"msg_agent_c42b9","content":{}}}}}}}"#,
        block(number)
    )
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    let start = Instant::now();
    let done = work();
    (start.elapsed(), done)
}

/// The process's resident memory in bytes, or 0 where `/proc` does not tell.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
