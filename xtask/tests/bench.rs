//! Runs the benchmark and checks that nothing is lost; speed is not tested.

use std::process::{Command, Output, Stdio};

use parlor_testkit::programs;
use serde_json::Value;

fn xtask(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs scenarios with a tenth of the load and checks the common part of the report.
fn quick(scenarios: &[&str], args: &[&str]) -> Value {
    let mut all = vec!["bench", "--dev", "--quick", "--json"];
    for scenario in scenarios {
        all.extend(["--only", scenario]);
    }
    all.extend(args);
    let output = xtask(&all);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let outcomes = report["scenarios"].as_array().unwrap();
    let names: Vec<_> = outcomes.iter().map(|scenario| scenario["name"].as_str().unwrap()).collect();
    assert_eq!(names, scenarios);
    for scenario in outcomes {
        for fault in ["lost", "duplicated", "outOfOrder"] {
            assert_eq!(scenario[fault], 0, "{args:?}: {scenario}");
        }
        let figures = scenario["figures"].as_array().unwrap();
        assert!(!figures.is_empty());
        for figure in figures {
            let servers = figure["servers"].as_array().unwrap();
            assert!(servers.iter().all(|server| server["median"].is_number()), "{args:?}: {figure}");
        }
    }
    report
}

/// Returns the names of the figures of a scenario.
fn figures(report: &Value, scenario: usize) -> Vec<&str> {
    let figures = report["scenarios"][scenario]["figures"].as_array().unwrap();
    figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect()
}

#[test]
fn a_quick_run_loses_nothing() {
    quick(&["latency"], &[]);
    for [client, agent] in [["v2", "2"], ["v1", "1"], ["v1", "2"]] {
        quick(&["turns", "client", "join-live"], &["--client", client, "--agent-version", agent]);
    }
}

#[test]
fn many_sessions_lose_nothing_with_either_store() {
    let report = quick(&["sessions", "sessions-full"], &[]);
    let paced = figures(&report, 0);
    for name in [
        "1 x 500 p50, SQLite",
        "6 x 50 p99, memory",
        "6 x 50 server CPU per chunk, SQLite",
        "100 x 5 server CPU per chunk, memory",
        "100 x 5 agent CPU per chunk",
        "100 x 5 client CPU per chunk",
    ] {
        assert!(paced.contains(&name), "{name} is not among {paced:?}");
    }
    let full = figures(&report, 1);
    assert!(full.contains(&"one session") && full.contains(&"16 sessions"), "{full:?}");
}

#[test]
fn a_paced_fan_out_has_a_bare_relay_beside_it() {
    let report = quick(&["fanout-paced"], &[]);
    let names = figures(&report, 0);
    for name in
        ["bare relay, Unix sockets p50", "Unix socket p50", "Unix socket to bare relay", "WebSocket p50"]
    {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}

#[test]
fn memory_is_told_for_sessions_clients_and_mixed_load() {
    let report = quick(&["memory"], &[]);
    let names = figures(&report, 0);
    assert_eq!(
        names,
        [
            "server alone",
            "100 live sessions",
            "100 idle clients",
            "before mixed load",
            "peak of mixed load",
            "after mixed load"
        ]
    );
}

#[test]
fn several_servers_are_compared_with_the_first() {
    let parlor = programs::find("parlor", "parlor").unwrap();
    let report = quick(&["turns"], &["--server", &parlor, "--server", &parlor]);
    let servers = report["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 2);
    assert!(servers[0]["version"].as_str().unwrap().starts_with("parlor "));
    let row = |name: &str| {
        let figures = report["scenarios"][0]["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).unwrap().clone()
    };
    let figure = row("Unix socket p50");
    let [first, second] = &figure["servers"].as_array().unwrap()[..] else { panic!("{figure}") };
    assert!(first.get("ratio").is_none());
    let median = |server: &Value| server["median"].as_f64().unwrap();
    let ratio = second["ratio"].as_f64().unwrap();
    assert!((ratio - median(second) / median(first)).abs() < 0.001, "{figure}");
    assert!(second["verdict"].is_string());
    assert_eq!(first["runs"].as_array().unwrap().len(), 1);
    // A reference is not compared between servers.
    let reference = row("direct p50");
    assert_eq!(reference["kind"], "reference");
    assert!(reference["servers"][1].get("verdict").is_none(), "{reference}");
}

#[test]
fn a_server_that_cannot_be_run_is_named() {
    for (path, why) in [("/no/such/parlor", "No such file"), ("/bin/false", "--version ends with")] {
        let output = xtask(&["bench", "--dev", "--quick", "--only", "turns", "--server", path]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(said.contains(&format!("cannot measure {path}")) && said.contains(why), "{said}");
    }
}

#[test]
fn an_unknown_scenario_is_answered_with_those_that_there_are() {
    let output = xtask(&["bench", "--only", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("each, bulk, latency"));
}

#[test]
fn without_arguments_the_commands_are_listed() {
    let output = xtask(&[]);
    assert!(output.status.success());
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains("Commands:\n  bench "), "{listed}");
}
