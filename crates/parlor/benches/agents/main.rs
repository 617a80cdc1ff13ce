//! How fast agents stream to a client on their standard streams: one of `parlor-agent`, one of the official SDK, and the
//! test agent, which writes lines and does nothing else.
//!
//! Run with `cargo bench -p parlor --bench agents`. The client reads lines and counts; it is the same for all.

#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark prints what it measured")]

mod sdk;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parlor_agent::{Agent, Info, Server, StopReason, Turn, TurnError};
use parlor_testkit::programs;

/// How many chunks a turn has.
const CHUNKS: usize = 200_000;

/// How many bytes of text a chunk has.
const SIZE: usize = 40;

const RUNS: usize = 5;

fn main() {
    let mode = env::args().nth(1).unwrap_or_default();
    let runtime = || tokio::runtime::Runtime::new().expect("there are threads");
    match mode.as_str() {
        "parlor-agent" => runtime().block_on(async {
            let server = Server::builder(Streamer).start().await.expect("it starts");
            server.stdio().await.expect("the client reads everything");
        }),
        "sdk-1" => runtime().block_on(sdk::v1::serve()).expect("the connection is good"),
        "sdk-2" => runtime().block_on(sdk::v2::serve()).expect("the connection is good"),
        // Cargo hands a benchmark that is run as a test no reason to measure.
        _ if env::args().any(|arg| arg == "--test") => {}
        _ => measure(),
    }
}

/// The text of one chunk.
fn text(number: usize) -> String {
    format!("{:.<SIZE$}", format!("{number:08} "))
}

struct Streamer;

impl Agent for Streamer {
    fn info(&self) -> Info {
        Info::new("streamer", "1")
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        for number in 0..CHUNKS {
            turn.send_text(&text(number)).await;
        }
        Ok(StopReason::EndTurn)
    }
}

fn measure() {
    let me = env::current_exe().expect("this program is somewhere");
    let me = me.to_str().expect("its name is text");
    println!("{CHUNKS} chunks of {SIZE} bytes to a client on stdio; medians of {RUNS} interleaved runs\n");
    println!("  agent          protocol      time    chunks/s   time, test agent = 1");
    for version in [2, 1] {
        let sdk = format!("sdk-{version}");
        let agents: [(&str, &[&str]); 3] = [
            ("test agent", &[programs::test_agent()]),
            ("parlor-agent", &[me, "parlor-agent"]),
            ("official SDK", &[me, &sdk]),
        ];
        let mut times = vec![Vec::new(); agents.len()];
        for _ in 0..RUNS {
            for ((_, command), times) in agents.iter().zip(&mut times) {
                times.push(stream(command, version));
            }
        }
        let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
        for ((name, _), time) in agents.iter().zip(&medians) {
            let seconds = time.as_secs_f64();
            let rate = as_f64(CHUNKS) / seconds;
            let ratio = seconds / medians[0].as_secs_f64();
            println!("  {name:<14} v{version} {:>11.0} ms {rate:>11.0}   {ratio:.1}", seconds * 1e3);
        }
    }
}

/// From the prompt to the end of the turn.
fn stream(command: &[&str], version: u8) -> Duration {
    let mut agent = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the agent starts");
    let mut to = agent.stdin.take().expect("it is a pipe");
    let mut from = BufReader::with_capacity(1 << 16, agent.stdout.take().expect("it is a pipe"));
    let mut say = |line: String| writeln!(to, "{line}").expect("the agent listens");
    let mut line = String::new();
    let info = r#"{"name":"bench","version":"1"}"#;
    say(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":{version},"info":{info},"capabilities":{{}}}}}}"#
    ));
    while !hear(&mut from, &mut line).contains(r#""id":1"#) {}
    say(r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#.to_owned());
    let session = loop {
        let line = hear(&mut from, &mut line);
        if line.contains(r#""id":2"#) {
            let (_, rest) = line.split_once(r#""sessionId":""#).expect("a session has an id");
            break rest.split('"').next().unwrap_or_default().to_owned();
        }
    };
    let began = Instant::now();
    say(format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[{{"type":"text","text":"stream {CHUNKS} {SIZE}"}}]}}}}"#
    ));
    // A client that falls behind is told in fewer, longer chunks: it is the text that must be complete.
    let mut bytes = 0;
    loop {
        let line = hear(&mut from, &mut line);
        if line.contains("agent_message_chunk") {
            let (_, text) = line.split_once(r#""text":""#).expect("a chunk has text");
            bytes += text.find('"').expect("it has an end");
        } else if line.contains(r#""stopReason""#) {
            break;
        }
    }
    let took = began.elapsed();
    assert_eq!(bytes, CHUNKS * SIZE, "nothing is lost: {command:?}");
    drop(to);
    assert!(agent.wait().expect("it ends").success(), "{command:?}");
    took
}

/// The next line of the agent.
fn hear<'a>(from: &mut impl BufRead, line: &'a mut String) -> &'a str {
    line.clear();
    assert!(from.read_line(line).expect("it is text") > 0, "the agent goes on");
    line
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "the counts are small")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
