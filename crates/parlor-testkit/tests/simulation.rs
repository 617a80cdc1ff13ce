//! Simulated servers: a fixed set of seeds, and new ones for as long as the environment says.

use std::time::{Duration, SystemTime};

use parlor_testkit::simulation::{SimulationOptions, run};

/// The variable that says for how many seconds new seeds are run.
const SECONDS: &str = "PARLOR_SIMULATE_SECONDS";

#[track_caller]
fn holds(options: &SimulationOptions) {
    let report = run(options);
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn the_invariants_hold_for_a_fixed_set_of_seeds_in_which_everything_happens() {
    let report = run(&SimulationOptions { seed: 1, seeds: 80, steps: 1000, ..SimulationOptions::default() });
    assert!(report.failure.is_none(), "{report}");
    for what in [
        "agents bound without history",
        "agents retired",
        "batches that failed",
        "clients cut off",
        "clients that fell behind",
        "forks answered with a prompt",
        "forks answered without a session",
        "forks at aliases",
        "forks by the agent",
        "forks that others opened first",
        "handoffs",
        "kills",
        "peer requests answered",
        "power cuts",
        "prompts accepted",
        "prompts dropped with the turn of another",
        "prompts for running turns",
        "prompts given back",
        "prompts refused",
        "prompts taken into running turns",
        "replicas compared in part, v1",
        "replicas compared in part, v2",
        "replicas compared, draft",
        "replicas compared, v1",
        "replicas compared, v2",
        "sessions deleted",
        "sessions evicted",
        "stale events alone",
        "subagents announced",
        "subagents bound",
        "subagents bound again",
    ] {
        assert!(report.counts.contains_key(what), "{what} does not happen:\n{report}");
    }
}

#[test]
fn the_invariants_hold_in_long_sessions() {
    holds(&SimulationOptions { seed: 500, seeds: 2, steps: 6000, ..SimulationOptions::default() });
}

#[test]
fn the_invariants_hold_for_new_seeds() {
    let Some(seconds) = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok()) else { return };
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = since_1970.as_secs() << 20;
    holds(&SimulationOptions {
        seed,
        duration: Some(Duration::from_secs(seconds)),
        ..SimulationOptions::default()
    });
}

#[test]
fn a_seed_gives_the_same_world_each_time() {
    let options =
        SimulationOptions { seed: 7, seeds: 1, steps: 1500, is_traced: true, ..SimulationOptions::default() };
    let (one, other) = (run(&options), run(&options));
    assert!(one.trace.len() > 1500, "every step is in the trace");
    assert_eq!(one.trace, other.trace);
    assert_eq!(one.counts, other.counts);
}
