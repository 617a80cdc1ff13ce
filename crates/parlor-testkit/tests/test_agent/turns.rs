//! What it sends in a turn.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_dialect::Dialect::{self, Draft, V1, V2};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::{answer, each, ids, open, said};

#[test]
fn words_are_streamed_under_one_id_and_a_thought_has_its_own() {
    each("say one two  three\nthink hm so\ntwo again", |dialect, turn| {
        assert_eq!(said(turn, "agent_thought_chunk"), "hm so");
        assert_eq!(answer(turn), "one two  threeagainagain");
        let (thought, messages) = (ids(turn, "agent_thought_chunk"), ids(turn, "agent_message_chunk"));
        assert_eq!((thought.len(), messages.len()), (1, 3), "{dialect:?}");
        assert!(thought.is_disjoint(&messages));
        assert!(turn.of("agent_message_chunk").len() > 5);
        assert_eq!(turn.stop, "end_turn");
        assert!(turn.usage["outputTokens"].as_u64().unwrap() > 0);
    });
}

#[test]
fn other_text_gets_a_canned_answer() {
    each("What is this?", |_, turn| {
        let answer = answer(turn);
        assert!(answer.contains("What is this?") && answer.contains("`help`"), "{answer}");
    });
    each("help", |_, turn| assert!(answer(turn).contains("stream N SIZE"), "{}", answer(turn)));
    each("/sleep soon", |_, turn| assert!(answer(turn).contains("sleep MS"), "{}", answer(turn)));
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        let blocks = json!([
            { "type": "resource", "resource": { "uri": "file:///a", "text": "a" } },
            { "type": "text", "text": "whoami" },
        ]);
        let turn = agent.turn_of(&session, &blocks);
        let answer = answer(&turn);
        assert!(answer.contains(&session) && answer.contains("prompt with resource"), "{answer}");
        assert!(
            answer.contains(&format!("protocol {}", dialect.name())) && answer.contains("1 messages"),
            "{answer}"
        );
        if dialect != V1 {
            assert_eq!(turn.of("user_message")[0]["content"], blocks);
        }
    }
}

#[test]
fn v2_answers_at_once_and_tells_states() {
    for dialect in [V2, Draft] {
        let (mut agent, session) = open(dialect, &[]);
        let id = agent.prompt(&session, "say hi");
        let lines: Vec<Value> = (0..5).map(|_| agent.receive()).collect();
        assert_eq!(lines[0]["id"], id);
        let message = &lines[1]["params"]["update"];
        if dialect == Draft {
            assert_eq!(lines[0]["result"], json!({}));
        } else {
            assert_eq!(lines[0]["result"]["messageId"], message["messageId"]);
        }
        assert_eq!(message["content"], json!([{ "type": "text", "text": "say hi" }]));
        let (kind, reason) =
            if dialect == Draft { ("state_change", "stop_reason") } else { ("state_update", "stopReason") };
        let running = &lines[2]["params"]["update"];
        assert_eq!(*running, json!({ "sessionUpdate": kind, "state": "running" }));
        let idle = &lines[4]["params"]["update"];
        assert_eq!(
            (&idle["sessionUpdate"], &idle["state"], &idle[reason]),
            (&json!(kind), &json!("idle"), &json!("end_turn"))
        );
    }
}

#[test]
fn a_tool_call_goes_from_pending_to_completed_with_a_diff() {
    each("tool Polish it", |dialect, turn| {
        let first = &turn.of(if dialect == V1 { "tool_call" } else { "tool_call_update" })[0];
        assert_eq!((&first["title"], &first["status"]), (&json!("Polish it"), &json!("pending")));
        let updates = turn.of("tool_call_update");
        let states: Vec<&str> = updates.iter().filter_map(|update| update["status"].as_str()).collect();
        assert!(states.ends_with(&["in_progress", "completed"]), "{states:?}");
        let diff = if dialect == V1 {
            updates.iter().find_map(|update| update["content"].get(1)).unwrap().clone()
        } else {
            turn.of("tool_call_content_chunk")[1]["content"].clone()
        };
        assert_eq!(diff["type"], "diff");
        assert!(diff.to_string().contains("/w/notes.txt"), "{diff}");
    });
}

#[test]
fn permission_is_asked_for_and_the_outcome_reported() {
    for (dialect, choice, status, words) in [
        (V1, "allow-once", "completed", "You chose allow-once."),
        (V2, "allow-always", "completed", "You chose allow-always."),
        (Draft, "reject-once", "failed", "You chose reject-once."),
    ] {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "ask Wipe it");
        let asked = agent.peer_request("session/request_permission");
        assert_eq!(asked["params"]["options"].as_array().unwrap().len(), 3);
        let title = if dialect == V1 { "/params/toolCall/title" } else { "/params/subject/toolCall/title" };
        assert_eq!(asked.pointer(title), Some(&json!("Wipe it")));
        agent.respond(&asked, &json!({ "outcome": { "outcome": "selected", "optionId": choice } }));
        let turn = agent.end_of_turn();
        assert_eq!(answer(&turn), words);
        assert_eq!(turn.of("tool_call_update").last().unwrap()["status"], status);
        if dialect != V1 {
            assert_eq!(turn.states, ["running", "requires_action", "running", "idle"]);
        }
    }
    let (mut agent, session) = open(V1, &[]);
    agent.prompt(&session, "ask");
    let asked = agent.peer_request("session/request_permission");
    agent.respond(&asked, &json!({ "outcome": { "outcome": "cancelled" } }));
    assert_eq!(agent.end_of_turn().stop, "cancelled");
}

#[test]
fn a_form_is_shown_if_the_client_can() {
    for dialect in Dialect::ALL {
        let mut agent = Agent::start(dialect, &[]);
        agent.initialize(json!({ "elicitation": { "form": {} } }));
        let session = agent.new_session();
        agent.prompt(&session, "elicit");
        let asked = agent.peer_request("elicitation/create");
        agent.respond(&asked, &json!({ "action": "accept", "content": { "name": "Ada" } }));
        let turn = agent.end_of_turn();
        assert!(answer(&turn).contains("Ada"), "{}", answer(&turn));
    }
    each("elicit", |_, turn| assert_eq!(answer(turn), "This client shows no forms."));
}

#[test]
fn information_about_the_session_is_updated() {
    each("title A day\nmeta {\"a\":{\"b\":1}}\nusage\ncommands\ntitle", |_, turn| {
        let info = turn.of("session_info_update");
        assert_eq!(info[0]["title"], "A day");
        assert_eq!(info[1]["_meta"], json!({ "a": { "b": 1 } }));
        assert_eq!(info[2]["title"], Value::Null);
        assert!(turn.of("usage_update")[0]["used"].as_u64().unwrap() > 0);
        assert_eq!(turn.of("available_commands_update").len(), 1);
    });
    each("meta {", |_, turn| assert!(answer(turn).contains("not JSON"), "{}", answer(turn)));
}

#[test]
fn a_plan_is_worked_off_and_v2_can_remove_it() {
    each("plan read; write ;check\nunplan", |dialect, turn| {
        let plans: Vec<Value> = if dialect == V1 {
            turn.of("plan").iter().map(|plan| plan["entries"].clone()).collect()
        } else {
            turn.of("plan_update").iter().map(|plan| plan["plan"]["entries"].clone()).collect()
        };
        let first: Vec<&str> =
            plans[0].as_array().unwrap().iter().map(|e| e["content"].as_str().unwrap()).collect();
        assert_eq!(first, ["read", "write", "check"]);
        assert!(plans.last().unwrap().as_array().unwrap().iter().all(|entry| entry["status"] == "completed"));
        if dialect == V1 {
            assert!(answer(turn).contains("cannot"));
        } else {
            assert_eq!(turn.of("plan_removed")[0]["planId"], turn.of("plan_update")[0]["plan"]["planId"]);
        }
    });
}

#[test]
fn v2_runs_commands_in_a_terminal_of_its_own() {
    for dialect in [V2, Draft] {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, "terminal echo out; echo err >&2; exit 3");
        let output: Vec<u8> = turn
            .of("terminal_output_chunk")
            .iter()
            .flat_map(|chunk| BASE64_STANDARD.decode(chunk["data"].as_str().unwrap()).unwrap())
            .collect();
        assert_eq!(String::from_utf8(output).unwrap(), "out\nerr\n");
        let updates = turn.of("terminal_update");
        assert_eq!(updates.last().unwrap()["exitStatus"]["exitCode"], 3);
        let calls = turn.of("tool_call_update");
        assert_eq!(calls[0]["content"][0]["terminalId"], updates[0]["terminalId"]);
        assert_eq!(calls.last().unwrap()["status"], "failed");
    }
}

#[test]
fn v1_runs_commands_in_a_terminal_of_the_client() {
    let mut agent = Agent::start(V1, &[]);
    agent.initialize(json!({ "terminal": true }));
    let session = agent.new_session();
    agent.prompt(&session, "terminal make all");
    let asked = agent.peer_request("terminal/create");
    assert_eq!(asked["params"]["args"], json!(["-c", "make all"]));
    agent.respond(&asked, &json!({ "terminalId": "t1" }));
    for (method, result) in [
        ("terminal/wait_for_exit", json!({ "exitCode": 0, "signal": null })),
        ("terminal/output", json!({ "output": "built\n", "truncated": false })),
        ("terminal/release", json!({})),
    ] {
        let asked = agent.peer_request(method);
        assert_eq!(asked["params"]["terminalId"], "t1");
        agent.respond(&asked, &result);
    }
    let turn = agent.end_of_turn();
    assert_eq!(answer(&turn), "It ended with 0 and wrote: built");
    assert_eq!(turn.of("tool_call_update").last().unwrap()["status"], "completed");
    let (mut agent, session) = open(V1, &[]);
    assert_eq!(answer(&agent.turn(&session, "terminal ls")), "This client has no terminals.");
}

#[test]
fn v1_reads_and_writes_files_through_the_client() {
    let mut agent = Agent::start(V1, &[]);
    agent.initialize(json!({ "fs": { "readTextFile": true, "writeTextFile": true } }));
    let session = agent.new_session();
    agent.prompt(&session, "read /a b\nwrite /c Hi you");
    let asked = agent.peer_request("fs/read_text_file");
    assert_eq!(asked["params"]["path"], "/a b");
    agent.respond(&asked, &json!({ "content": "inside" }));
    let asked = agent.peer_request("fs/write_text_file");
    assert_eq!((&asked["params"]["path"], &asked["params"]["content"]), (&json!("/c"), &json!("Hi you")));
    agent.refuse(&asked, 13, "read only");
    let turn = agent.end_of_turn();
    assert_eq!(answer(&turn), "/a b contains: insideWriting failed: read only (13)");
    each("read /a\nwrite /a b", |_, turn| {
        assert_eq!(answer(turn), "This client reads no files for me.This client writes no files for me.");
    });
}

#[test]
fn v2_takes_back_what_it_said() {
    each("redact\nredact clear", |dialect, turn| {
        if dialect == V1 {
            return assert!(answer(turn).contains("cannot"));
        }
        let replaced = turn.of("agent_message");
        assert_eq!(replaced[0]["content"][0]["text"], "The password is [redacted].");
        assert_eq!(replaced[1]["content"], Value::Null);
        let replaced: BTreeSet<_> =
            replaced.iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ids(turn, "agent_message_chunk"), replaced);
    });
}

#[test]
fn it_speaks_up_after_the_turn() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, "later 1 by the way\nbackground 2\nsay now");
        assert_eq!(answer(&turn), "now");
        let expected = "Background update 1 of 2.Background update 2 of 2.by the way";
        let mut received = String::new();
        let mut states = Vec::new();
        while received.len() < expected.len() || dialect != V1 && states.len() < 4 {
            let update = agent.update();
            received.push_str(update["content"]["text"].as_str().unwrap_or(""));
            states.extend(update["state"].as_str().map(str::to_owned));
        }
        assert_eq!(received, expected);
        assert_eq!(states.len(), if dialect == V1 { 0 } else { 4 }, "{states:?}");
    }
}

#[test]
fn odd_habits_of_real_agents() {
    each("same-id both", |_, turn| {
        assert_eq!(ids(turn, "agent_thought_chunk"), ids(turn, "agent_message_chunk"));
    });
    each("echo-user\nimage\nlink", |dialect, turn| {
        let echoed = said(turn, "user_message_chunk");
        assert_eq!(echoed, if dialect == V1 { "echo-user\nimage\nlink" } else { "" });
        let types: Vec<&str> = turn
            .of("agent_message_chunk")
            .iter()
            .filter_map(|c| c["content"]["type"].as_str())
            .filter(|t| *t != "text")
            .collect();
        assert_eq!(types, ["image", "resource_link"]);
    });
    let (mut agent, session) = open(V1, &["--no-message-ids"]);
    let turn = agent.turn(&session, "think a\nsay b");
    assert!(turn.updates.iter().all(|update| update.get("messageId").is_none()));
    let (mut agent, session) = open(V2, &["--no-message-ids"]);
    assert_eq!(ids(&agent.turn(&session, "say b"), "agent_message_chunk").len(), 1, "v2 cannot do without");
}

#[test]
fn streams_count_themselves() {
    for (dialect, pace) in [(V1, ""), (V2, "each"), (Draft, "2000"), (V2, "0")] {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, &format!("stream 300 40 {pace}"));
        let chunks = turn.of("agent_message_chunk");
        assert_eq!(chunks.len(), 300);
        for (number, chunk) in chunks.iter().enumerate() {
            let text = chunk["content"]["text"].as_str().unwrap();
            assert!(text.starts_with(&format!("{number:08} ")) && text.len() == 40, "{text}");
        }
        assert_eq!(ids(&turn, "agent_message_chunk").len(), 1);
    }
    each("big 300000", |_, turn| assert_eq!(answer(turn).len(), 300_000));
}

#[test]
fn turns_end_for_other_reasons() {
    each("refuse", |_, turn| assert_eq!(turn.stop, "refusal"));
    each("fail 77 no luck", |_, turn| {
        assert_eq!(turn.stop, "error");
        assert_eq!(turn.error, json!({ "code": 77, "message": "no luck" }));
    });
}
