//! Simulates servers: `simulate [--seconds N] [--seed S] [--seeds N] [--steps N] [--skip 1,4-9] [--no-shrink] [--trace]`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use parlor_testkit::simulation::{Options, run};

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "{problem}");
            return ExitCode::from(2);
        }
    };
    // A panic of the engine is a failure like any other, and is reported as one.
    std::panic::set_hook(Box::new(|_| {}));
    let report = run(&options);
    let _ = writeln!(std::io::stdout(), "{report}");
    if report.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(name) = args.next() {
        let mut number = || -> Result<u64, String> {
            let value = args.next().ok_or_else(|| format!("{name} needs a number"))?;
            value.parse().map_err(|_| format!("{name} needs a number, not {value}"))
        };
        match name.as_str() {
            "--seconds" => options.duration = Some(Duration::from_secs(number()?)),
            "--seed" => options.seed = number()?,
            "--seeds" => options.seeds = number()?,
            "--steps" => options.steps = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--skip" => {
                let list = args.next().ok_or("--skip needs a list of steps")?;
                options.skip = skipped(&list).ok_or_else(|| format!("no list of steps: {list}"))?;
            }
            "--no-shrink" => options.shrinks = false,
            "--trace" => options.is_traced = true,
            _ => return Err(format!("no such option: {name}")),
        }
    }
    Ok(options)
}

/// Reads a list like `1,4-9`.
fn skipped(list: &str) -> Option<BTreeSet<usize>> {
    let mut steps = BTreeSet::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        steps.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(steps)
}
