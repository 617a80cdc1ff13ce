//! Prompts during a turn, and turns that are cancelled.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_dialect::Dialect::{self, Draft, V1, V2};
use serde_json::json;

use crate::agent::Agent;
use crate::{answer, open};

#[test]
fn v1_rejects_a_prompt_during_a_turn() {
    let (mut agent, session) = open(V1, &[]);
    let first = agent.prompt(&session, "sleep 100000");
    let second = agent.prompt(&session, "say hi");
    let refused = agent.receive();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(second), &json!(-32600)));
    agent.cancel(&session);
    let ended = agent.receive();
    assert_eq!((&ended["id"], &ended["result"]["stopReason"]), (&json!(first), &json!("cancelled")));
    assert_eq!(answer(&agent.turn(&session, "say hi")), "hi");
}

#[test]
fn v2_holds_prompts_and_inserts_them_in_order() {
    for dialect in [V2, Draft] {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "ask");
        let asked = agent.peer_request("session/request_permission");
        let held: Vec<u64> = (0..64).map(|n| agent.prompt(&session, &format!("say {n}"))).collect();
        let refused = agent.prompt(&session, "say too many");
        let refusal = agent.receive();
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!(refused), &json!(-32600)));
        agent.respond(&asked, &json!({ "outcome": { "outcome": "selected", "optionId": "allow-once" } }));
        agent.end_of_turn();
        for (n, id) in held.iter().enumerate() {
            // Nothing was answered before the message was inserted.
            assert_eq!(agent.receive()["id"], *id);
            let turn = agent.end_of_turn();
            assert_eq!(turn.of("user_message")[0]["content"][0]["text"], format!("say {n}"));
            assert_eq!(answer(&turn), n.to_string());
            assert_eq!(turn.states, ["running", "idle"]);
        }
    }
}

#[test]
fn cancelling_ends_a_turn_wherever_it_waits() {
    let scripts = [
        "sleep 100000",
        "ask",
        "elicit",
        "ext _never",
        "stream 100000000 10 5",
        "stream 100000000 10",
        "stream 100000000 10 each",
        "terminal sleep 1000",
    ];
    for dialect in Dialect::ALL {
        let mut agent = Agent::start(dialect, &[]);
        agent.initialize(json!({ "elicitation": { "form": {} }, "terminal": true }));
        let session = agent.new_session();
        for script in scripts {
            agent.prompt(&session, &format!("say go\n{script}"));
            agent.until(|line| line.to_string().contains("\"go\""));
            // The turn is surely in its wait when the question was asked, or the tool call shown.
            match script {
                "ask" => drop(agent.peer_request("session/request_permission")),
                "elicit" => drop(agent.peer_request("elicitation/create")),
                "ext _never" => drop(agent.peer_request("_never")),
                "terminal sleep 1000" if dialect == V1 => {
                    let asked = agent.peer_request("terminal/create");
                    agent.respond(&asked, &json!({ "terminalId": "t" }));
                    agent.peer_request("terminal/wait_for_exit");
                }
                "terminal sleep 1000" => {
                    agent.until(|line| line["params"]["update"]["sessionUpdate"] == "tool_call_update");
                }
                _ => {}
            }
            agent.cancel(&session);
            let turn = agent.end_of_turn();
            assert_eq!(turn.stop, "cancelled", "{script} in {dialect:?}");
            let calls = turn.of("tool_call_update");
            if script == "ask" || script.starts_with("terminal") {
                let status = if dialect == V1 { "failed" } else { "cancelled" };
                assert_eq!(calls.last().unwrap()["status"], status);
            }
        }
        assert_eq!(agent.turn(&session, "say fine").stop, "end_turn");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn cancelling_ends_what_a_command_has_started() {
    let (mut agent, session) = open(V2, &[]);
    agent.prompt(&session, "terminal sleep 1000 & echo $!; wait");
    let lines = agent.until(|line| line["params"]["update"]["sessionUpdate"] == "terminal_output_chunk");
    let data = lines.last().unwrap()["params"]["update"]["data"].as_str().unwrap();
    let child = String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap();
    agent.cancel(&session);
    assert_eq!(agent.end_of_turn().stop, "cancelled");
    let start = Instant::now();
    // One that has ended may wait until its exit is read.
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while lives() {
        assert!(start.elapsed() < Duration::from_secs(30), "{child} lives");
        std::thread::yield_now();
    }
}

#[test]
fn cancelling_takes_held_prompts_along() {
    let (mut agent, session) = open(V2, &[]);
    agent.prompt(&session, "sleep 100000");
    agent.until(|line| line["params"]["update"]["state"] == "running");
    let held = [agent.prompt(&session, "say a"), agent.prompt(&session, "say b")];
    agent.notify("$/cancel_request", json!({ "requestId": held[1] }));
    let taken_back = agent.receive();
    assert_eq!((&taken_back["id"], &taken_back["error"]["code"]), (&json!(held[1]), &json!(-32800)));
    agent.cancel(&session);
    let lines = agent.until(|line| line["params"]["update"]["state"] == "idle");
    let refused = lines.iter().find(|line| line["id"] == held[0]).unwrap();
    assert_eq!(refused["error"]["code"], -32800);
    assert_eq!(answer(&agent.turn(&session, "say c")), "c");
}

#[test]
fn taking_back_the_prompt_ends_a_v1_turn() {
    let (mut agent, session) = open(V1, &[]);
    let id = agent.prompt(&session, "say go\nsleep 100000");
    agent.until(|line| line.to_string().contains("\"go\""));
    agent.notify("$/cancel_request", json!({ "requestId": id + 1 }));
    agent.notify("$/cancel_request", json!({ "requestId": id }));
    assert_eq!(agent.end_of_turn().stop, "cancelled");
}

#[test]
fn a_hanging_turn_ignores_everything_but_the_end() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "hang");
        agent.until(|line| line.to_string().contains("Hanging."));
        agent.cancel(&session);
        // The other session answers, and so the cancellation has been read.
        let other = agent.new_session();
        let start = Instant::now();
        let turn = agent.turn(&other, "say free");
        assert_eq!(answer(&turn), "free");
        assert_eq!(agent.close().0, Some(0));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
