//! All stories.

use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parlor_dialect::Dialect;
use parlor_testkit::programs;

use crate::agents::AGENTS;
use crate::install::Peers;
use crate::step::{Outcome, Step};
use crate::story::{self, Cast, Report};

/// What is run.
#[derive(Debug, Default)]
pub struct Selection {
    /// Parts of the names of stories.
    pub names: Vec<String>,
    /// The titles of steps.
    pub steps: Vec<String>,
}

/// Installs the peers and runs the stories: whether everything is as expected.
pub fn run(dir: &Path, jobs: usize, selection: &Selection) -> Result<bool, String> {
    let start = Instant::now();
    // A failed step is reported with its message.
    std::panic::set_hook(Box::new(|_| {}));
    let peers = Peers::install(dir)?;
    let parlor = programs::find("parlor", "parlor")?;
    log(&format!("the peers are installed ({:.0} s)", start.elapsed().as_secs_f32()));
    let versions = AGENTS.iter().flat_map(|agent| agent.versions.iter().map(move |&version| (agent, version)));
    let casts = versions.flat_map(|(agent, version)| {
        [Dialect::V1, Dialect::V2].map(|client| Cast { agent, version, client })
    });
    let is_selected = |cast: &Cast| {
        let name = cast.to_string();
        selection.names.is_empty() || selection.names.iter().any(|part| name.contains(part.as_str()))
    };
    let casts: Vec<_> = casts.filter(is_selected).collect();
    let steps: Vec<_> =
        Step::ALL.iter().copied().filter(|step| selection.steps.iter().any(|title| title == step.title())).collect();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(Cast, Vec<Report>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(&cast) = casts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let reports = story::play(cast, &peers, &parlor, &steps);
                    log(&summary(cast, &reports, start));
                    results.lock().expect("no thread panics with it").push((cast, reports));
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panics with it");
    let failures: usize = results.iter().map(|(cast, reports)| failures(*cast, reports).len()).sum();
    log(&format!("{} stories, {failures} unexpected outcomes, {:.0} s", results.len(), start.elapsed().as_secs_f32()));
    Ok(failures == 0)
}

/// The steps that ended in another way than expected.
fn failures(cast: Cast, reports: &[Report]) -> Vec<(Step, String)> {
    let check = |report: &Report| {
        let expected = cast.agent.expectation(report.step, cast.version);
        expected.check(&report.outcome).err().map(|wrong| (report.step, wrong))
    };
    reports.iter().filter_map(check).collect()
}

fn summary(cast: Cast, reports: &[Report], start: Instant) -> String {
    let mut text = format!("{cast} ({:.0} s)", start.elapsed().as_secs_f32());
    for report in reports {
        let outcome = match &report.outcome {
            Outcome::Works(None) => "works".to_owned(),
            Outcome::Works(Some(remark)) => format!("works ({remark})"),
            Outcome::Fails(_) => "fails".to_owned(),
            Outcome::NotTried(_) => "not tried".to_owned(),
        };
        text += &format!("\n  {:15} {:5.1} s  {outcome}", report.step.title(), report.took.as_secs_f32());
    }
    for (step, wrong) in failures(cast, reports) {
        let wrong: String = wrong.chars().take(3000).collect();
        text += &format!("\n  UNEXPECTED {step}: {wrong}");
    }
    text
}

fn log(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
