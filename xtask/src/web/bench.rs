//! `cargo xtask bench-web`: measures the page.

use std::fs;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use parlor_testkit::browser::Tab;
use parlor_testkit::programs;
use serde_json::Value;

use super::Page;
use crate::bench::median;
use crate::failure::Failure;
use crate::long_session::{self, CHUNKS_PER_MESSAGE, MESSAGES_PER_PROMPT};
use crate::release;

/// Measure the page in Chromium, against the HTML export of the same session
///
/// Prints when the first screen of a long session is shown, the time of long tasks while 500 chunks arrive per second, the bytes of
/// the page, and its memory while a person scrolls back.
#[derive(Args)]
pub(crate) struct BenchWeb {
    /// How many times the session is opened; medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// A tenth of the messages, and one run
    #[arg(long, conflicts_with = "runs")]
    quick: bool,
    /// Measure what is built for development, to see whether the benchmark works
    #[arg(long)]
    dev: bool,
}

const CHUNK_BYTES: usize = 40;
/// The chunks per second of the stream, and how many there are.
const RATE: usize = 500;
const STREAMED: usize = 5000;
/// How often a person scrolls to the top of what is loaded.
const SCROLLS: usize = 40;

/// Collects the tasks that block the page, and the time between frames, from now on.
const OBSERVE: &str = "
    window.longTasks = [];
    new PerformanceObserver(list => longTasks.push(...list.getEntries().map(entry => entry.duration)))
        .observe({ type: 'longtask' });
    window.longestFrame = 0;
    let previous = performance.now();
    requestAnimationFrame(function frame(now) {
        longestFrame = Math.max(longestFrame, now - previous);
        previous = now;
        requestAnimationFrame(frame);
    });";

/// When the newest message was on the screen: the first frame after the document was complete, or the first paint if that is later.
const FIRST_SCREEN: &str = "new Promise(done => requestAnimationFrame(() => setTimeout(() => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    done(paint ? paint.startTime : performance.now());
})))";

impl BenchWeb {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if cfg!(debug_assertions) && !self.dev {
            return release::run_again();
        }
        let (prompts, runs) = if self.quick { (1, 1) } else { (10, self.runs) };
        let page = Page::start(&["--agent", &format!("test={}", programs::test_agent())])?;
        let id = long_session::create(&page.scenario, prompts);
        let mut out = anstream::stdout().lock();
        let mut print = |line: String| writeln!(out, "{line}").map_err(|error| Failure::writing(&error));
        let messages = prompts * MESSAGES_PER_PROMPT;
        print(format!("a session of {messages} messages, {} chunks", messages * CHUNKS_PER_MESSAGE))?;

        let export = page.scenario.path().join("export.html");
        let export_text =
            export.to_str().ok_or_else(|| Failure::failed("the path of the export is not text"))?;
        page.scenario.run(&["export", "--format", "html", "-o", export_text, &id]).success();
        let opened: Vec<Opened> =
            (0..runs).map(|_| open(&page, &format!("{}/s/{id}", page.origin))).collect();
        let exported: Vec<Opened> =
            (0..runs).map(|_| open(&page, &format!("file://{export_text}"))).collect();
        let both = |figure: Figure| {
            let of = |list: &[Opened]| median(&list.iter().map(figure).collect::<Vec<_>>());
            (of(&opened), of(&exported))
        };
        let rows: [(&str, &str, Figure); 3] = [
            ("first screen, newest message visible", "ms", |opened| opened.first_screen),
            ("memory of scripts", "MB", |opened| opened.heap / 1e6),
            ("nodes of the document", "", |opened| opened.nodes),
        ];
        print(format!("{:<40}{:>12}{:>12}{:>8}", "", "page", "export", "ratio"))?;
        for (name, unit, figure) in rows {
            let (page, export) = both(figure);
            print(format!("{name:<40}{page:>9.1} {unit:<2}{export:>9.1} {unit:<2}{:>8.2}", page / export))?;
        }

        let tab = page.open("/");
        let weight = tab.eval(WEIGHT).as_f64().unwrap_or(f64::NAN);
        tab.close();
        let tab = page.open(&format!("/s/{id}"));
        print(format!(
            "{:<40}{:>9.1} KB (aim 60)",
            "page, style and script, as they are sent",
            weight / 1e3
        ))?;

        let (long_tasks, total, longest_frame) = stream(&page, &tab, &id);
        print(format!("{RATE} chunks per second for {} s:", STREAMED / RATE))?;
        print(format!("{:<40}{:>9.1} ms in {long_tasks} tasks over 50 ms", "  long tasks", total))?;
        print(format!("{:<40}{longest_frame:>9.1} ms", "  longest time between frames"))?;

        print("scrolling back:".to_owned())?;
        for (step, (nodes, heap)) in scroll_back(&tab).into_iter().enumerate() {
            if step % (SCROLLS / 4) == 0 {
                print(format!(
                    "{:<40}{nodes:>9} nodes {:>8.1} MB",
                    format!("  after {step} pages"),
                    heap / 1e6
                ))?;
            }
        }
        let _ = fs::remove_file(&export);
        Ok(ExitCode::SUCCESS)
    }
}

/// The bytes that the browser was sent for the empty page, its style sheet and its script.
const WEIGHT: &str =
    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter(({ name, entryType }) => entryType === 'navigation' || name.includes('/assets/page'))
    .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)";

/// Reads a figure.
type Figure = fn(&Opened) -> f64;

/// A document that was just opened.
struct Opened {
    first_screen: f64,
    heap: f64,
    nodes: f64,
}

fn open(page: &Page, address: &str) -> Opened {
    let tab = page.browser.open(address);
    let first_screen = tab.eval(FIRST_SCREEN).as_f64().unwrap_or(f64::NAN);
    let opened = Opened { first_screen, heap: metric(&tab, "JSHeapUsedSize"), nodes: metric(&tab, "Nodes") };
    tab.close();
    opened
}

fn metric(tab: &Tab, name: &str) -> f64 {
    tab.metrics().into_iter().find_map(|(known, value)| (known == name).then_some(value)).unwrap_or(f64::NAN)
}

/// Streams chunks to an open page: how many long tasks there were, their time, and the longest time between frames.
fn stream(page: &Page, tab: &Tab, id: &str) -> (usize, f64, f64) {
    tab.inject(OBSERVE);
    page.scenario
        .run(&["prompt", "-s", id, "--yes", &format!("stream {STREAMED} {CHUNK_BYTES} {RATE}\nsay The end.")])
        .success();
    tab.wait_for_text("The end.");
    let tasks = tab.eval("longTasks");
    let tasks: Vec<f64> = tasks.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    (
        tasks.len(),
        tasks.iter().fold(0.0, |sum, task| sum + task),
        tab.eval("longestFrame").as_f64().unwrap_or(f64::NAN),
    )
}

/// Scrolls to the top again and again: nodes and memory after each step.
fn scroll_back(tab: &Tab) -> Vec<(f64, f64)> {
    let mut steps = Vec::new();
    for _ in 0..=SCROLLS {
        tab.eval("globalThis.gc?.()");
        steps.push((metric(tab, "Nodes"), metric(tab, "JSHeapUsedSize")));
        if tab.eval("document.getElementById('log').dataset.before ?? null").is_null() {
            break; // The first message is loaded.
        }
        let first = tab.eval("document.querySelector('#log > [id]').id");
        tab.eval("document.getElementById('conversation').scrollTop = 0");
        let is_new = format!("document.querySelector('#log > [id]').id !== {first}");
        tab.wait_for(&format!("{is_new} || !document.getElementById('log').dataset.before"));
    }
    steps
}
