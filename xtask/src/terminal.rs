//! `cargo xtask bench-terminal`: measures the terminal client on a pseudo-terminal.

use std::fs;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use parlor_testkit::programs::{self, Profile};
use parlor_testkit::scenario::Scenario;
use parlor_testkit::screen::{ENTER, Screen};

use crate::bench::{median, quantile};
use crate::failure::Failure;
use crate::long_session::{self, CHUNKS_PER_MESSAGE, MESSAGES_PER_PROMPT};
use crate::release;

/// Measure the terminal client: the first screen of a long session, frames while chunks arrive, memory
///
/// With `--peer`, other clients of the same agent are measured while they show the same stream, such as
/// `--peer 'toad acp AGENT .'`.
#[derive(Args)]
pub(crate) struct BenchTerminal {
    /// How many times the session is opened; medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// A tenth of the messages, and one run
    #[arg(long, conflicts_with = "runs")]
    quick: bool,
    /// The command line of another client, with AGENT for the test agent; repeatable
    #[arg(long, value_name = "COMMAND")]
    peer: Vec<String>,
    /// Measure what is built for development, to see whether the benchmark works
    #[arg(long)]
    dev: bool,
}

const COLUMNS: u16 = 120;
const ROWS: u16 = 40;
/// The chunks per second of the stream, how many there are, and their size.
const RATE: usize = 500;
const STREAMED: usize = 5000;
const CHUNK_BYTES: usize = 40;
/// A client has started when there was no output for so long, or at the latest after this time: some have a cursor that blinks.
const QUIET: Duration = Duration::from_secs(2);
const START: Duration = Duration::from_secs(15);
/// How long a client may take to show the whole stream.
const SHOWN: Duration = Duration::from_secs(120);

impl BenchTerminal {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if cfg!(debug_assertions) && !self.dev {
            return release::run_again();
        }
        let (prompts, runs) = if self.quick { (1, 1) } else { (10, self.runs) };
        let program = programs::build("parlor", "parlor", Profile::current()).map_err(Failure::failed)?;
        let program = program.to_str().ok_or_else(|| Failure::failed("the path of parlor is not text"))?;
        let scenario = Scenario::new(program).with_test_agent();
        let id = long_session::create(&scenario, prompts);
        let messages = prompts * MESSAGES_PER_PROMPT;
        print(format!("a session of {messages} messages, {} chunks", messages * CHUNKS_PER_MESSAGE))?;

        let mut first_screens = Vec::new();
        for _ in 0..runs {
            let begun = Instant::now();
            let screen = Screen::with_size(&scenario, &["attach", &id], COLUMNS, ROWS);
            screen.wait_for("Idle");
            first_screens.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(screen);
        }
        print(format!("{:<40}{:>9.1} ms (aim 200)", "first screen", median(&first_screens)))?;

        let stream = format!("stream {STREAMED} {CHUNK_BYTES} {RATE}");
        let screen = Screen::with_size(&scenario, &["attach", &id], COLUMNS, ROWS);
        screen.wait_for("Idle");
        print(format!("{RATE} chunks per second for {} s:", STREAMED / RATE))?;
        report("parlor", &measure(screen, &stream)?)?;
        for peer in &self.peer {
            let line = peer.replace("AGENT", programs::test_agent());
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exec {line}")]).current_dir(scenario.work());
            let screen = Screen::run(&command, COLUMNS, ROWS);
            wait_until_quiet(&screen);
            report(peer, &measure(screen, &stream)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What a client needed to show a stream.
struct Shown {
    /// The time between frames, if the client marks them.
    intervals: Vec<f64>,
    cpu: f64,
    memory: u64,
    bytes: usize,
    seconds: f64,
}

/// Enters a prompt, and measures until the last chunk is on the screen.
fn measure(mut screen: Screen, prompt: &str) -> Result<Shown, Failure> {
    let (cpu, frames, bytes) = (cpu_seconds(screen.pid()), screen.frames().len(), screen.written().len());
    screen.press(prompt);
    screen.press(ENTER);
    let begun = Instant::now();
    // Each chunk begins with its number.
    let last = format!("{:08}", STREAMED - 1);
    while !screen.text().contains(&last) {
        if begun.elapsed() > SHOWN {
            return Err(Failure::failed(format!("the stream was not shown within {} s", SHOWN.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = Instant::now();
    let frames = &screen.frames()[frames..];
    let intervals = frames.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect();
    Ok(Shown {
        intervals,
        cpu: cpu_seconds(screen.pid()) - cpu,
        memory: peak_memory(screen.pid()),
        bytes: screen.written().len() - bytes,
        seconds: (ended - begun).as_secs_f64(),
    })
}

/// Waits until there was no output for a while.
fn wait_until_quiet(screen: &Screen) {
    let begun = Instant::now();
    let (mut length, mut since) = (0, begun);
    while (since.elapsed() < QUIET || length == 0) && begun.elapsed() < START {
        let now = screen.written().len();
        if now != length {
            (length, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn report(name: &str, shown: &Shown) -> Result<(), Failure> {
    let Shown { intervals, cpu, memory, bytes, seconds } = shown;
    print(format!("  {name}"))?;
    if !intervals.is_empty() {
        let count = intervals.len() + 1;
        print(format!(
            "{:<40}{:>9.1} per second",
            "    frames",
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds
        ))?;
        let (middle, high) = (median(intervals), quantile(intervals, 0.99));
        print(format!("{:<40}{middle:>9.1} ms, p99 {high:.1} ms", "    time between frames"))?;
    }
    print(format!("{:<40}{:>9.1} % of a core", "    processor", cpu / seconds * 100.0))?;
    print(format!("{:<40}{:>9} MB", "    peak memory", memory >> 20))?;
    print(format!("{:<40}{:>9} KB", "    written to the terminal", bytes >> 10))
}

fn print(line: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(anstream::stdout().lock(), "{line}").map_err(|error| Failure::writing(&error))
}

/// The processor time of a process and of its children that have ended.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program may have spaces; it ends with the last parenthesis.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks: u32 = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    f64::from(ticks) / 100.0
}

/// The most memory that a process had so far.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or_default()
        << 10
}
