//! Prompts, the ends of their turns, and requests meanwhile.

use parlor_dialect::Dialect::{self, Draft, V1, V2};
use parlor_dialect::{Side, Translator};
use serde_json::{Value, json};

use crate::{Relay, begun, idle, line, overlapping, permission, prompt, state, update, user_message};

#[test]
fn overlapping_prompts_of_a_v1_agent_are_one_turn_after_the_other() {
    let mut relay = overlapping();
    let expected = [vec!["client: state_update idle end_turn".to_owned()], begun(2, "B")].concat();
    relay.agent(
        json!({ "id": 1, "result": { "stopReason": "end_turn" } }),
        &expected.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    relay.agent(
        json!({ "id": 2, "result": { "stopReason": "refusal" } }),
        &["client: state_update idle refusal"],
    );
}

#[test]
fn a_prompt_that_a_v1_agent_rejects_is_not_inserted() {
    let mut relay = overlapping();
    relay.agent(
        json!({ "id": 2, "error": { "code": -32600, "message": "busy" } }),
        &[r#"client: 2 failed {"code":-32600,"message":"busy"}"#],
    );
    relay.agent(
        json!({ "id": 1, "result": { "stopReason": "end_turn" } }),
        &["client: state_update idle end_turn"],
    );
}

#[test]
fn a_prompt_that_a_v1_agent_rejects_during_a_turn_is_removed() {
    let mut relay = overlapping();
    relay.agent(
        json!({ "id": 2, "result": { "stopReason": "cancelled" } }),
        &[r#"client: 2 failed {"code":-32800,"message":"the prompt was withdrawn"}"#],
    );
    relay.agent(
        json!({ "id": 1, "result": { "stopReason": "cancelled" } }),
        &["client: state_update idle cancelled"],
    );
}

#[test]
fn a_v1_agent_with_two_prompts_at_once_is_reported_as_such() {
    let mut relay = overlapping();
    let second = [begun(2, "B"), vec!["client: state_update idle refusal".to_owned()]].concat();
    let second = [second, vec!["client: state_update running".to_owned()]].concat();
    relay.agent(
        json!({ "id": 2, "result": { "stopReason": "refusal" } }),
        &second.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    relay.agent(
        json!({ "id": 1, "result": { "stopReason": "end_turn" } }),
        &["client: state_update idle end_turn"],
    );
}

#[test]
fn a_prompt_that_a_v2_agent_holds_does_not_end_with_the_turn_before_it() {
    for (agent, first, second) in
        [(V2, json!({ "messageId": "a" }), json!({ "messageId": "b" })), (Draft, json!({}), json!({}))]
    {
        let mut relay = Relay::between(agent, V1);
        relay.client(prompt(1, "A"), &["agent: session/prompt 1"]);
        relay.client(prompt(2, "B"), &["agent: session/prompt 2"]);
        relay.agent(json!({ "id": 1, "result": first }), &[]);
        relay.agent(user_message("a", "A"), &[]);
        relay.agent(state("running"), &[]);
        relay.agent(idle(), &[r#"client: 1 = {"stopReason":"end_turn"}"#]);
        relay.agent(json!({ "id": 2, "result": second }), &[]);
        relay.agent(user_message("b", "B"), &[]);
        relay.agent(state("running"), &[]);
        relay.agent(idle(), &[r#"client: 2 = {"stopReason":"end_turn"}"#]);
    }
}

#[test]
fn a_permission_outside_a_turn_ends_in_idle_and_one_of_two_answers_does_not_unblock() {
    let mut relay = Relay::between(V1, V2);
    let asked = |id: u8| {
        [
            "client: state_update requires_action".to_owned(),
            format!("client: session/request_permission {id}"),
        ]
    };
    let answer = |id: u8| json!({ "id": id, "result": { "outcome": { "outcome": "cancelled" } } });
    for id in [1, 2] {
        let asked = asked(id);
        relay.agent(permission(id), &asked.each_ref().map(String::as_str));
    }
    relay.client(answer(1), &[r#"agent: 1 = {"outcome":{"outcome":"cancelled"}}"#]);
    relay.client(
        answer(2),
        &[r#"agent: 2 = {"outcome":{"outcome":"cancelled"}}"#, "client: state_update idle"],
    );
}

#[test]
fn a_prompt_that_cannot_be_read_gets_the_agents_answer() {
    let mut relay = Relay::between(V1, V2);
    relay.client(
        json!({ "id": 1, "method": "session/prompt", "params": { "sessionId": "s" } }),
        &["agent: session/prompt 1"],
    );
    relay.agent(
        json!({ "id": 1, "error": { "code": -32602, "message": "no" } }),
        &[r#"client: 1 failed {"code":-32602,"message":"no"}"#],
    );
}

#[test]
fn a_v1_client_receives_the_end_of_the_turn_wherever_the_acceptance_comes() {
    // Before the turn, with the message before or after it, and after the end.
    let accept = || json!({ "id": 1, "result": { "messageId": "m", "_meta": { "k": 1 } } });
    let end = r#"client: 1 = {"stopReason":"end_turn","_meta":{"k":1}}"#;
    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(accept(), &[]);
    relay.agent(user_message("m", "Hi"), &[]);
    relay.agent(state("running"), &[]);
    relay.agent(idle(), &[end]);

    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(state("running"), &[]);
    relay.agent(user_message("m", "Hi"), &[]);
    relay.agent(accept(), &[]);
    relay.agent(idle(), &[end]);

    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(state("running"), &[]);
    assert_eq!(relay.agent(idle(), &[]), [""; 0]);
    relay.agent(accept(), &[end]);
}

#[test]
fn an_idle_that_belongs_to_an_earlier_turn_does_not_end_a_later_one() {
    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(idle(), &[]);
    relay.agent(state("running"), &[]);
    relay.agent(json!({ "id": 1, "result": { "messageId": "m" } }), &[]);
    relay.agent(idle(), &[r#"client: 1 = {"stopReason":"end_turn"}"#]);
}

#[test]
fn a_session_that_was_deleted_is_forgotten() {
    let mut relay = Relay::between(V2, V1);
    let message = || {
        update(
            json!({ "sessionUpdate": "agent_message", "messageId": "m", "content": [{ "type": "text", "text": "A" }] }),
        )
    };
    let said = [r#"client: agent_message_chunk m "A""#];
    relay.agent(message(), &said);
    assert_eq!(relay.agent(message(), &[]), [""; 0], "it was an echo");
    let delete = json!({ "id": 1, "method": "session/delete", "params": { "sessionId": "s" } });
    relay.client(delete, &["agent: session/delete 1"]);
    relay.agent(json!({ "id": 1, "result": {} }), &["client: 1 = {}"]);
    relay.agent(message(), &said);
}

#[test]
fn a_prompt_of_a_session_that_was_deleted_gets_one_response() {
    let mut relay = Relay::between(V1, V2);
    let begun = [
        "agent: session/prompt 1",
        r#"client: 1 = {"messageId":"parlor-1"}"#,
        r#"client: user_message parlor-1 "Hi""#,
        "client: state_update running",
    ];
    relay.client(prompt(1, "Hi"), &begun);
    relay.client(prompt(2, "Ho"), &["agent: session/prompt 2"]);
    let delete = json!({ "id": 3, "method": "session/delete", "params": { "sessionId": "s" } });
    relay.client(delete, &["agent: session/delete 3"]);
    relay.agent(json!({ "id": 3, "result": {} }), &["client: 3 = {}"]);
    let end = |id| json!({ "id": id, "result": { "stopReason": "end_turn" } });
    let next = [
        "client: state_update idle end_turn",
        r#"client: 2 = {"messageId":"parlor-2"}"#,
        r#"client: user_message parlor-2 "Ho""#,
        "client: state_update running",
    ];
    relay.agent(end(1), &next);
    relay.agent(end(2), &["client: state_update idle end_turn"]);
}

#[test]
fn a_queued_prompt_that_is_withdrawn_is_cancelled_for_v1() {
    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(
        json!({ "id": 1, "error": { "code": -32800, "message": "cancelled" } }),
        &[r#"client: 1 = {"stopReason":"cancelled"}"#],
    );
}

#[test]
fn a_failed_turn_is_an_error_with_all_members_of_the_state() {
    let mut relay = Relay::between(V2, V1);
    for (fields, expected) in [
        (json!({ "error": { "code": -1, "message": "m" } }), r#"client: 1 failed {"code":-1,"message":"m"}"#),
        (
            json!({ "error": { "message": "no code" } }),
            r#"client: 1 failed {"code":-32603,"message":"no code"}"#,
        ),
        (
            json!({ "error": { "code": -1, "message": "m" }, "usage": { "totalTokens": 1 } }),
            r#"client: 1 failed {"code":-1,"message":"m","data":{"usage":{"totalTokens":1}}}"#,
        ),
    ] {
        relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
        relay.agent(json!({ "id": 1, "result": { "messageId": "m" } }), &[]);
        let mut idle = json!({ "sessionUpdate": "state_update", "state": "idle", "stopReason": "error" });
        idle.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        relay.agent(update(idle), &[expected]);
    }
}

#[test]
fn a_draft_agents_acceptance_waits_for_the_new_message_and_no_longer_than_the_turn() {
    let mut relay = Relay::between(Draft, V2);
    relay.agent(user_message("old", "Before"), &[r#"client: user_message old "Before""#]);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(json!({ "id": 1, "result": { "_meta": { "k": 1 } } }), &[]);
    // An older message is not the prompt.
    relay.agent(
        update(json!({ "sessionUpdate": "user_message", "messageId": "old", "_meta": { "k": 1 } })),
        &["client: user_message old"],
    );
    relay.agent(
        user_message("m", "Hi"),
        &[r#"client: 1 = {"messageId":"m","_meta":{"k":1}}"#, r#"client: user_message m "Hi""#],
    );
    relay.client(prompt(2, "Again"), &["agent: session/prompt 2"]);
    relay.agent(json!({ "id": 2, "result": {} }), &[]);
    relay.agent(
        update(json!({ "sessionUpdate": "state_change", "state": "idle", "stop_reason": "end_turn" })),
        &[
            r#"client: 2 = {"messageId":"parlor-2"}"#,
            r#"client: user_message parlor-2 "Again""#,
            "client: state_update idle end_turn",
        ],
    );
}

#[test]
fn a_replay_clears_only_replayed_messages() {
    let load = |id: u8| json!({ "id": id, "method": "session/resume", "params": { "sessionId": "s", "cwd": "/w", "replayFrom": { "type": "start" } } });
    let chunk = |text: &str| {
        update(
            json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": { "type": "text", "text": text } }),
        )
    };
    let mut relay = Relay::between(V1, V2);
    relay.agent(chunk("A"), &[r#"client: agent_message_chunk m "A""#]);
    relay.client(load(1), &["agent: session/load 1"]);
    relay.agent(chunk("A"), &["client: agent_message m", r#"client: agent_message_chunk m "A""#]);
    relay.agent(chunk("B"), &[r#"client: agent_message_chunk m "B""#]);
    // A load that failed replays nothing.
    relay.client(load(2), &["agent: session/load 2"]);
    relay.agent(
        json!({ "id": 2, "error": { "code": -1, "message": "no" } }),
        &[r#"client: 2 failed {"code":-1,"message":"no"}"#],
    );
    relay.agent(chunk("C"), &[r#"client: agent_message_chunk m "C""#]);
    // A load after which the next turn begins has replayed what it had.
    relay.client(load(4), &["agent: session/load 4"]);
    relay.agent(json!({ "id": 4, "result": {} }), &[r#"client: 4 = {"configOptions":[]}"#]);
    let expected = [
        "agent: session/prompt 5",
        r#"client: 5 = {"messageId":"parlor-1"}"#,
        r#"client: user_message parlor-1 "Hi""#,
        "client: state_update running",
    ];
    relay.client(prompt(5, "Hi"), &expected);
    relay.agent(chunk("C"), &[r#"client: agent_message_chunk m "C""#]);
    // Resuming without a replay neither.
    let resume = json!({ "id": 3, "method": "session/resume", "params": { "sessionId": "s", "cwd": "/w", "replayFrom": null } });
    relay.client(resume, &["agent: session/resume 3"]);
    relay.agent(chunk("D"), &[r#"client: agent_message_chunk m "D""#]);
}

#[test]
fn a_relay_rejects_requests_that_it_cannot_forward_and_does_not_track_them() {
    let mut relay = Relay::between(V1, V2);
    for id in 0..=255 {
        let read =
            json!({ "id": id, "method": "fs/read_text_file", "params": { "sessionId": "s", "path": "/a" } });
        let refused = format!(
            r#"agent: {id} failed {{"code":-32601,"message":"the other side's protocol version has no method fs/read_text_file"}}"#
        );
        assert_eq!(relay.agent(read, &[&refused]), ["method"]);
    }
    relay.client(
        prompt(1, "A"),
        &[
            "agent: session/prompt 1",
            r#"client: 1 = {"messageId":"parlor-1"}"#,
            r#"client: user_message parlor-1 "A""#,
            "client: state_update running",
        ],
    );
    relay.client(
        prompt(1, "B"),
        &[r#"client: 1 failed {"code":-32600,"message":"another request with this id has no answer yet"}"#],
    );
}

#[test]
fn the_mark_of_the_draft_is_set_and_removed() {
    for (from, to) in [(V2, Draft), (Draft, V2), (V1, Draft), (Draft, V1)] {
        let mut translator = Translator::record(from, to);
        let mut params = json!({ "protocolVersion": from.version(), "info": { "name": "c", "version": "1" }, "clientInfo": { "name": "c", "version": "1" } });
        if from == Draft {
            params["_meta"] = json!({ "parlor/dialect": "draft" });
        }
        let line = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string();
        let translation = translator.line(Side::Client, &line).unwrap();
        let said: Value = serde_json::from_str(&translation.lines[0].text).unwrap();
        let params = serde_json::value::to_raw_value(&said["params"]).unwrap();
        assert_eq!(Dialect::negotiate((&*params).into()), Ok(to), "{from} to {to}: {said}");
    }
}

#[test]
fn a_long_stream_of_terminal_output_costs_v1_a_bounded_amount_each() {
    let mut translator = Translator::one_sided(V2, V1);
    let mut said = |line: Value| {
        let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": line } }).to_string();
        translator.line(Side::Agent, &line).unwrap().lines.iter().map(|line| line.text.len()).sum::<usize>()
    };
    said(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "x", "content": [{ "type": "terminal", "terminalId": "x" }] }),
    );
    let chunk = json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": "YWFhYWFhYWFhYWFhYWFhYWFhYWFh".repeat(400) });
    let longest = (0..100).map(|_| said(chunk.clone())).max().unwrap();
    assert!(longest < 80 << 10, "{longest} bytes for one chunk");
}

#[test]
fn ids_are_converted_to_those_of_a_v1_agent() {
    let mut relay = Relay::between(V1, V2);
    let first = [vec!["agent: session/prompt 1".to_owned()], begun(1, "A")].concat();
    relay.client(prompt(1, "A"), &first.iter().map(String::as_str).collect::<Vec<_>>());
    relay.agent(
        json!({ "id": 1, "result": { "stopReason": "end_turn", "_meta": { "parlor/messageId": "theirs" } } }),
        &["client: state_update idle end_turn"],
    );
    for (method, message, expected) in [
        ("session/fork", "parlor-1", "theirs"),
        ("_example/about", "parlor-1", "theirs"),
        ("session/fork", "other", "other"),
    ] {
        let params = json!({ "sessionId": "s", "messageId": message, "cwd": "/", "mcpServers": [] });
        let line = json!({ "jsonrpc": "2.0", "id": message, "method": method, "params": params }).to_string();
        let said = relay.0.line(Side::Client, &line).unwrap();
        let said: Value = serde_json::from_str(&said.lines[0].text).unwrap();
        assert_eq!(said["params"]["messageId"], expected);
        let answer = json!({ "jsonrpc": "2.0", "id": message, "result": { "sessionId": "t" } }).to_string();
        relay.0.line(Side::Agent, &answer).unwrap();
    }
}

#[test]
fn the_end_of_what_ran_when_a_prompt_was_sent_does_not_end_it() {
    let mut relay = Relay::between(V2, V1);
    relay.agent(state("running"), &[]);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(idle(), &[]);
    relay.agent(json!({ "id": 1, "result": { "messageId": "m" } }), &[]);
    relay.agent(state("running"), &[]);
    relay.agent(idle(), &[r#"client: 1 = {"stopReason":"end_turn"}"#]);
}

#[test]
fn all_prompts_that_a_draft_agent_accepted_are_answered_when_it_is_idle() {
    let mut relay = Relay::between(Draft, V2);
    for id in [1, 2] {
        relay.client(prompt(id, "Hi"), &[&format!("agent: session/prompt {id}")]);
    }
    for id in [1, 2] {
        relay.agent(json!({ "id": id, "result": {} }), &[]);
    }
    relay.agent(
        idle(),
        &[
            r#"client: 1 = {"messageId":"parlor-1"}"#,
            r#"client: user_message parlor-1 "Hi""#,
            r#"client: 2 = {"messageId":"parlor-2"}"#,
            r#"client: user_message parlor-2 "Hi""#,
            "client: state_update idle end_turn",
        ],
    );
}

#[test]
fn requires_action_without_a_request_is_a_loss_towards_v1() {
    let prompted = |agent: Dialect| {
        let mut relay = Relay::between(agent, V1);
        relay.0.line(Side::Client, &line(prompt(1, "A"))).unwrap();
        relay.0.line(Side::Agent, &line(json!({ "id": 1, "result": { "messageId": "u" } }))).unwrap();
        relay
    };
    for agent in [V2, Draft] {
        // The request may come before the state or after it.
        for request_first in [true, false] {
            let mut relay = prompted(agent);
            if request_first {
                relay.0.line(Side::Agent, &line(permission(9))).unwrap();
                assert_eq!(relay.agent(state("requires_action"), &[]), Vec::<&str>::new());
            } else {
                assert_eq!(relay.agent(state("requires_action"), &[]), Vec::<&str>::new());
                relay.0.line(Side::Agent, &line(permission(9))).unwrap();
            }
            assert_eq!(relay.agent(state("running"), &[]), Vec::<&str>::new());
        }
        let mut relay = prompted(agent);
        relay.agent(state("requires_action"), &[]);
        assert_eq!(relay.agent(state("running"), &[]), ["state"]);
        assert_eq!(relay.agent(state("running"), &[]), Vec::<&str>::new(), "it is reported once");
    }
}

#[test]
fn an_end_without_a_reason_is_a_loss_towards_v1() {
    for agent in [V2, Draft] {
        let mut relay = Relay::between(agent, V1);
        relay.0.line(Side::Client, &line(prompt(1, "A"))).unwrap();
        relay.0.line(Side::Agent, &line(json!({ "id": 1, "result": { "messageId": "u" } }))).unwrap();
        let lost = relay.agent(state("idle"), &[r#"client: 1 = {"stopReason":"end_turn"}"#]);
        assert_eq!(lost, ["stop_reason"]);
    }
}
