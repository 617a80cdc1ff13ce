//! Translating a long stream of chunks, beside passing it through and beside a typed round trip.
//!
//! Run with `cargo bench -p parlor-dialect`.

#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark prints what it measured")]

use std::time::{Duration, Instant};

use agent_client_protocol_schema::{v1, v2};
use parlor_dialect::Dialect::{V1, V2};
use parlor_dialect::{Side, Translator, with_ids};
use serde::{Deserialize, Serialize};

/// An envelope with nothing to spare: less work than the schema crate's own.
#[derive(Serialize, Deserialize)]
struct Line<P> {
    jsonrpc: String,
    method: String,
    params: P,
}

/// Handles all lines and says how many bytes it wrote.
type Work<'a> = &'a dyn Fn(&[String]) -> usize;

const RUNS: usize = 5;
const CHUNKS: usize = 1_000_000;

fn main() {
    // Cargo hands a benchmark that is run as a test no reason to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let lines: Vec<String> = (0..CHUNKS).map(line).collect();
    let bytes: usize = lines.iter().map(String::len).sum();
    println!(
        "{CHUNKS} agent_message_chunk lines of {} bytes; medians of {RUNS} interleaved runs\n",
        bytes / CHUNKS
    );

    let session = "sess_parlor".into();
    let ways: [(&str, Work<'_>); 6] = [
        ("typed round trip, v1", &|lines| round_trip::<v1::SessionNotification>(lines)),
        ("typed round trip, v2", &|lines| round_trip::<v2::UpdateSessionNotification>(lines)),
        ("pass-through", &|lines| translated(Translator::relay(V1, V1), lines)),
        ("pass-through, other session id", &|lines| {
            lines
                .iter()
                .map(|line| with_ids(line, Some(&session), None).expect("the line is good").len())
                .sum()
        }),
        ("v1 to v2", &|lines| translated(Translator::relay(V1, V2), lines)),
        ("v2 to v1", &|lines| translated(Translator::relay(V2, V1), lines)),
    ];
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..RUNS {
        for ((_, work), times) in ways.iter().zip(&mut times) {
            #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
            let start = Instant::now();
            let written = work(&lines);
            times.push(start.elapsed());
            assert!(written >= bytes - 12 * CHUNKS, "something was left out: {written} of {bytes} bytes");
        }
    }
    let medians: Vec<Duration> = times
        .into_iter()
        .map(|mut times| {
            times.sort();
            times[RUNS / 2]
        })
        .collect();
    println!("{:<32} {:>10} {:>22}", "", "per chunk", "times the round trip");
    for ((name, _), median) in ways.iter().zip(&medians) {
        let nanos = median.as_secs_f64() * 1e9 / 1e6;
        let ratio = medians[0].as_secs_f64() / median.as_secs_f64();
        println!("{name:<32} {nanos:>7.0} ns {ratio:>21.2}x");
    }
}

fn round_trip<P: Serialize + for<'a> Deserialize<'a>>(lines: &[String]) -> usize {
    let round = |line: &String| {
        let typed: Line<P> = serde_json::from_str(line).expect("the line is good");
        serde_json::to_string(&typed).expect("the type can be written").len()
    };
    lines.iter().map(round).sum()
}

fn translated(mut translator: Translator, lines: &[String]) -> usize {
    let mut written = 0;
    for line in lines {
        let translation = translator.line(Side::Agent, line).expect("the line is good");
        assert!(translation.losses.is_empty());
        written += translation.lines.iter().map(|line| line.text.len()).sum::<usize>();
    }
    written
}

fn line(number: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"sess_789xyz","update":{{"sessionUpdate":"agent_message_chunk","messageId":"msg_agent_c42b9","content":{{"type":"text","text":"{number:>39} "}}}}}}}}"#
    )
}
