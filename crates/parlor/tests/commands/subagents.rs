//! Sessions of subagents in `ls`, `show`, `cancel` and `rm`.

use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;

use crate::PARLOR;

/// Commands of the test agent that announce a subagent and speak in its session.
const SCRIPT: &str = concat!(
    r#"raw {"update":{"sessionUpdate":"subagent_update","sessionId":"child","title":"Look around"}}"#,
    "\n",
    r#"raw {"sessionId":"child","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"a quokka"}}}"#,
    "\n",
    r#"raw {"sessionId":"child","update":{"sessionUpdate":"state_update","state":"running"}}"#,
    "\n",
    r#"raw {"update":{"sessionUpdate":"subagent_update","sessionId":"child","state":{"state":"running"}}}"#,
    "\nsay done",
);

/// The id of the subagent's session in the output of `show`.
fn subagent_in(shown: &str) -> String {
    let line = shown.lines().find_map(|line| line.trim().strip_prefix("parlor show "));
    line.expect("how to open it").to_owned()
}

#[test]
fn a_search_finds_what_a_subagent_said() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    let lines: Vec<_> = SCRIPT.lines().filter(|line| !line.contains("running")).collect();
    let owner = scenario.new_session(&lines.join("\n"));
    let child = subagent_in(&scenario.run(&["show", &owner]).success().plain().stdout);
    wait_until("the search finds it", || {
        let found = scenario.run(&["search", "quokka", "--json"]).success().json();
        found.as_array().unwrap().iter().any(|hit| hit["sessionId"] == child.as_str())
    });
}

#[test]
fn a_subagent_is_shown_under_its_owner_and_opened_by_its_id() {
    let mut scenario = Scenario::new(PARLOR).with_test_agent();
    let owner = scenario.new_session(SCRIPT);
    let shown = scenario.run(&["show", &owner]).success().plain().stdout;
    assert!(shown.contains("subagent Look around (running)"), "{shown}");
    assert!(!shown.contains("quokka\n"), "what the subagent says is not in its owner: {shown}");
    let line =
        shown.lines().find_map(|line| line.trim().strip_prefix("parlor show ")).expect("how to open it");
    let child = line.to_owned();
    let listed = scenario.run(&["ls", "--json"]).success().json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["sessionId"], owner.as_str());
    // It is not listed, so its name, which the agent chose, does not select it.
    scenario.run(&["show", "Look around"]).exit_code(2);
    // Its turn cannot be cancelled, and it takes no prompts.
    wait_until("the subagent runs", || {
        let output = scenario.run(&["cancel", &child]);
        output.stderr.contains("does not permit to cancel this subagent")
    });
    scenario.run(&["cancel", &child]).exit_code(1);
    // It has no queue of its own.
    let output = scenario.run(&["cancel", &child, "--queued"]).exit_code(2);
    assert!(output.stderr.contains("--queued has no effect"), "{output:#?}");
    let refused = scenario.run(&["prompt", "-s", &child, "hello"]);
    assert!(refused.stderr.contains("takes no prompts"), "{refused:#?}");
    for is_killed in [false, true] {
        if is_killed {
            scenario.kill();
        }
        let shown = scenario.run(&["show", &child]).success().plain().stdout;
        assert!(shown.contains("a quokka") && shown.contains("Look around"), "{shown}");
        let prefix: String = child.chars().take(8).collect();
        scenario.run(&["show", &prefix]).success();
    }
    scenario.run(&["rm", "--yes", &owner]).success();
    scenario.run(&["show", &child]).exit_code(2);
}
