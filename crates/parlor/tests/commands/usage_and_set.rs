//! `usage` and `set`.

use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use serde_json::{Value, json};

use crate::PARLOR;

#[test]
fn the_usage_of_turns_is_counted_by_agent_day_and_session() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    assert!(scenario.run(&["usage"]).success().stdout.contains("no turns have ended"));
    let first = scenario.new_session("say one two three");
    let second = scenario.new_session("say four");
    scenario.run(&["prompt", "-s", &second, "say five"]).success();
    for _ in 0..2 {
        let by_agent = scenario.run(&["usage", "--json"]).success().json();
        assert_eq!(by_agent.as_array().unwrap().len(), 1, "{by_agent}");
        let demo = &by_agent[0];
        assert_eq!(
            (&demo["agent"], &demo["sessions"], &demo["turns"]),
            (&json!("demo"), &json!(2), &json!(3))
        );
        assert!(
            demo["inputTokens"].as_u64().unwrap() > 0 && demo["outputTokens"].as_u64().unwrap() > 0,
            "{demo}"
        );
        // The demo agent reports no cost: it is unknown, not 0.
        assert_eq!((&demo["cost"], &demo["cachedReadTokens"]), (&Value::Null, &Value::Null));
        let by_session = scenario.run(&["usage", "--by", "session", "--json"]).success().json();
        let turns =
            |row: &Value| (row["sessionId"].as_str().unwrap().to_owned(), row["turns"].as_u64().unwrap());
        let rows: Vec<_> = by_session.as_array().unwrap().iter().map(turns).collect();
        assert_eq!(rows, [(second.clone(), 2), (first.clone(), 1)]);
        let by_day = scenario.run(&["usage", "--by", "day", "--json"]).success().json();
        assert_eq!(by_day[0]["turns"], 3, "{by_day}");
        let one = scenario.run(&["usage", &first, "--json"]).success().json();
        assert_eq!((&one[0]["turns"], one[0]["day"].as_str().unwrap().len()), (&json!(1), 10));
        let table = scenario.run(&["usage"]).success().plain().stdout;
        assert!(table.contains("AGENT") && table.contains("not reported by the agent"), "{table}");
        assert_eq!(scenario.run(&["usage", "--since", "2999-01-01", "--json"]).success().json(), json!([]));
        // Usage is stored.
        scenario.stop();
    }
    let output = scenario.run(&["usage", "--since", "yesterday"]).exit_code(2);
    assert!(output.stderr.contains("invalid time") && output.stderr.contains("hint:"), "{output:#?}");
    scenario.run(&["usage", "--by", "moon"]).exit_code(2);
    scenario.run(&["usage", "nonsense"]).exit_code(2);
    // A fork has not used anything yet.
    let fork = scenario.run(&["fork", &second]).success().stdout.trim_end().to_owned();
    assert_eq!(scenario.run(&["usage", &fork, "--json"]).success().json(), json!([]));
}

#[test]
fn options_and_the_title_are_listed_and_set() {
    let scenario = Scenario::new(PARLOR).with_server();
    let id = scenario.new_session("say hello");
    let value = |key: &str| {
        let options = scenario.run(&["set", &id, "--json"]).success().json();
        let options = options.as_array().unwrap();
        options.iter().find(|option| option["key"] == key).unwrap_or_else(|| panic!("{options:?}"))["value"]
            .clone()
    };
    assert_eq!(
        (value("mode"), value("model"), value("title")),
        (json!("ask"), json!("small"), json!("say hello"))
    );
    assert_eq!(scenario.run(&["set", &id, "mode", "code"]).success().stdout, "mode = code\n");
    assert_eq!(
        scenario.run(&["set", &id, "model", "large", "--json"]).success().json(),
        json!({ "sessionId": id, "key": "model", "value": "large" })
    );
    assert_eq!(scenario.run(&["set", &id, "title", "Mine"]).success().stdout, "title = Mine\n");
    assert_eq!(
        (value("mode"), value("model"), value("title")),
        (json!("code"), json!("large"), json!("Mine"))
    );
    let answer = scenario.run(&["prompt", "-s", &id, "whoami"]).success().stdout;
    assert!(answer.contains("code") && answer.contains("large"), "{answer}");
    for (key, wrong, hint) in [("mode", "fast", "ask, code"), ("colour", "red", "it has: mode, model")] {
        let output = scenario.run(&["set", &id, key, wrong]).exit_code(2);
        assert!(output.stderr.contains(hint), "{output:#?}");
    }
    scenario.run(&["set", &id, "mode"]).exit_code(2);
    let table = scenario.run(&["set", &id]).success().plain().stdout;
    assert!(table.starts_with("KEY") && table.contains("ask, code"), "{table}");
}

#[test]
fn options_of_a_v1_agent_are_set() {
    let mut scenario = Scenario::new(PARLOR);
    scenario.serve(&["--agent", &format!("old={} --version 1", programs::test_agent())]);
    let id = scenario.new_session("say hello");
    scenario.run(&["set", &id, "mode", "code"]).success();
    let output = scenario.run(&["set", &id, "mode", "fast"]).exit_code(2);
    assert!(output.stderr.contains("choose one of these"), "{output:#?}");
}
