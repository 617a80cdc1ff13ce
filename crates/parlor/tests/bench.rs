//! The benchmark runs and finds nothing wrong. How fast anything is, is not for a test to say.

mod common;

use serde_json::Value;

use common::parlor;

#[test]
fn a_quick_run_loses_nothing() {
    for versions in [["v2", "2"], ["v1", "1"], ["v1", "2"]] {
        let [client, agent] = versions;
        let args =
            ["bench", "--quick", "--json", "--only", "turns", "--only", "client", "--only", "join-live"];
        let args = [&args[..], &["--client", client, "--agent-version", agent]].concat();
        let output = parlor(&args, b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{versions:?}: {said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let scenarios = report["scenarios"].as_array().unwrap();
        let names: Vec<_> = scenarios.iter().map(|scenario| scenario["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["turns", "client", "join-live"]);
        for scenario in scenarios {
            for fault in ["lost", "doubled", "outOfOrder"] {
                assert_eq!(scenario[fault], 0, "{versions:?}: {scenario}");
            }
            assert!(!scenario["figures"].as_array().unwrap().is_empty());
        }
    }
}

#[test]
fn an_unknown_scenario_is_answered_with_those_that_there_are() {
    let output = parlor(&["bench", "--only", "everything"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("each, bulk, latency"));
}
