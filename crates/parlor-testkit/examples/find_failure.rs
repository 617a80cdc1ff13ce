//! Runs seeds until an invariant fails, and prints which one, after how many seeds and steps, and what was found.
//!
//! `cargo xtask mutations` runs it in copies of the sources that have a fault.

use std::error::Error;
use std::io::{Write as _, stdout};

use parlor_testkit::simulation::{SimulationOptions, run};

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let [seed, seeds, steps] = numbers[..] else {
        return Err("usage: find_failure SEED SEEDS STEPS".into());
    };
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    // A panic is a failure like any other, and is reported as one.
    std::panic::set_hook(Box::new(|_| {}));
    let report =
        run(&SimulationOptions { seed, seeds, steps, shrinks: false, ..SimulationOptions::default() });
    let (invariant, message) = match report.failure {
        Some(outcome) => (outcome.failure.invariant.to_string(), outcome.failure.message),
        None => ("-".to_owned(), String::new()),
    };
    let message = message.lines().next().unwrap_or_default();
    writeln!(stdout(), "{invariant}\t{}\t{}\t{message}", report.seeds, report.steps)?;
    Ok(())
}
