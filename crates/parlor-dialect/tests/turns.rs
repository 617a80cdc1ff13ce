//! Turns through a relay: the lines that each side receives, and that every request is answered.

use parlor_dialect::Dialect::{self, Draft, V1, V2};
use parlor_dialect::{Side, Translator};
use serde_json::{Value, json};

/// A relay, whose lines are compared in a short form.
struct Relay(Translator);

impl Relay {
    fn between(agent: Dialect, client: Dialect) -> Self {
        Self(Translator::relay(agent, client))
    }

    #[track_caller]
    fn agent(&mut self, message: Value, expected: &[&str]) -> Vec<&'static str> {
        self.says(Side::Agent, message, expected)
    }

    #[track_caller]
    fn client(&mut self, message: Value, expected: &[&str]) -> Vec<&'static str> {
        self.says(Side::Client, message, expected)
    }

    #[track_caller]
    fn says(&mut self, by: Side, mut message: Value, expected: &[&str]) -> Vec<&'static str> {
        message["jsonrpc"] = json!("2.0");
        let line = message.to_string();
        let translation = self.0.line(by, &line).unwrap();
        let said: Vec<_> = translation.lines.iter().map(|line| short(line.by, &line.text)).collect();
        assert_eq!(said, expected);
        translation.losses.iter().map(|loss| loss.kind.name()).collect()
    }
}

/// The short form of a line: its receiver and its kind.
fn short(by: Side, line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap();
    let to = if by == Side::Agent { "client" } else { "agent" };
    let said = match message["method"].as_str() {
        Some("session/update") => {
            let update = &message["params"]["update"];
            let mut words = vec![update["sessionUpdate"].as_str().unwrap().to_owned()];
            for name in ["messageId", "state", "stopReason", "stop_reason"] {
                words.extend(update[name].as_str().map(str::to_owned));
            }
            let content =
                if update["content"].is_array() { &update["content"][0] } else { &update["content"] };
            words.extend(content["text"].as_str().map(|text| format!("{text:?}")));
            words.join(" ")
        }
        Some(method) => format!("{method} {}", message["id"]),
        None if message.get("result").is_some() => format!("{} = {}", message["id"], message["result"]),
        None => format!("{} failed {}", message["id"], message["error"]),
    };
    format!("{to}: {said}")
}

fn prompt(id: u8, text: &str) -> Value {
    json!({ "id": id, "method": "session/prompt", "params": { "sessionId": "s", "prompt": [{ "type": "text", "text": text }] } })
}

#[expect(clippy::needless_pass_by_value, reason = "it is always handed a value that was just made")]
fn update(update: Value) -> Value {
    json!({ "method": "session/update", "params": { "sessionId": "s", "update": update } })
}

fn state(state: &str) -> Value {
    update(json!({ "sessionUpdate": "state_update", "state": state }))
}

fn user_message(id: &str, text: &str) -> Value {
    update(
        json!({ "sessionUpdate": "user_message", "messageId": id, "content": [{ "type": "text", "text": text }] }),
    )
}

fn user_chunk(id: &str, text: &str) -> Value {
    update(
        json!({ "sessionUpdate": "user_message_chunk", "messageId": id, "content": { "type": "text", "text": text } }),
    )
}

fn idle() -> Value {
    update(json!({ "sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn" }))
}

fn permission(id: u8) -> Value {
    json!({ "id": id, "method": "session/request_permission", "params": {
        "sessionId": "s", "toolCall": { "toolCallId": "t", "title": "Run" },
        "options": [{ "optionId": "y", "name": "Yes", "kind": "allow_once" }]
    } })
}

/// The lines for a v2 client whose prompt to a v1 agent starts a turn.
fn begun(id: u8, text: &str) -> Vec<String> {
    vec![
        format!(r#"client: {id} = {{"messageId":"parlor-{id}"}}"#),
        format!("client: user_message parlor-{id} {text:?}"),
        "client: state_update running".to_owned(),
    ]
}

/// Two prompts at once to a v1 agent: the second waits, as v2 has it, until the first one's turn has ended.
fn overlapping() -> Relay {
    let mut relay = Relay::between(V1, V2);
    let first = [vec!["agent: session/prompt 1".to_owned()], begun(1, "A")].concat();
    relay.client(prompt(1, "A"), &first.iter().map(String::as_str).collect::<Vec<_>>());
    relay.client(prompt(2, "B"), &["agent: session/prompt 2"]);
    relay
}

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
fn a_v1_client_is_not_sent_its_own_prompt_but_changes_of_it() {
    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(json!({ "id": 1, "result": { "messageId": "m" } }), &[]);
    // As some agents do it: cleared, then in chunks.
    relay.agent(update(json!({ "sessionUpdate": "user_message", "messageId": "m", "content": [] })), &[]);
    relay.agent(user_chunk("m", "H"), &[]);
    relay.agent(user_chunk("m", "i"), &[]);
    assert_eq!(relay.agent(user_message("m", "Hi"), &[]), [""; 0]);
    // New text is sent.
    relay.agent(user_chunk("m", "!"), &[r#"client: user_message_chunk m "!""#]);
    assert_eq!(
        relay.agent(
            user_message("m", "[redacted]"),
            &[r#"client: user_message_chunk parlor-alias-2 "[redacted]""#]
        ),
        ["message_replaced"]
    );
    relay.agent(user_chunk("m", "?"), &[r#"client: user_message_chunk parlor-alias-2 "?""#]);
    let meta = update(json!({ "sessionUpdate": "user_message", "messageId": "m", "_meta": { "k": 1 } }));
    assert_eq!(relay.agent(meta, &[]), ["message_meta"]);
    // After a load all of it is sent again.
    let load = json!({ "id": 2, "method": "session/load", "params": { "sessionId": "s", "cwd": "/w", "mcpServers": [] } });
    relay.client(load, &["agent: session/resume 2"]);
    relay.agent(user_message("m", "Hi"), &[r#"client: user_message_chunk m "Hi""#]);
}

#[test]
fn a_prompt_that_the_agent_changes_at_acceptance_is_reported_and_sent() {
    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(json!({ "id": 1, "result": { "messageId": "m" } }), &[]);
    assert_eq!(relay.agent(user_chunk("m", "H"), &[]), [""; 0]);
    let losses =
        relay.agent(user_chunk("m", "o, and more"), &[r#"client: user_message_chunk m "o, and more""#]);
    assert_eq!(losses, ["message_replaced"]);
    relay.agent(user_chunk("m", "!"), &[r#"client: user_message_chunk m "!""#]);
}

#[test]
fn an_echo_may_be_written_otherwise_than_the_prompt_was() {
    let mut translator = Translator::relay(V2, V1);
    let said = [
        (
            Side::Client,
            r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"text": "\u00e9", "type": "text"}, {"type": "resource_link", "name": "a", "uri": "file:///a"}]}}"#,
        ),
        (Side::Agent, r#"{"jsonrpc":"2.0","id":1,"result":{"messageId":"m"}}"#),
        (
            Side::Agent,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message","messageId":"m","content":[{"type":"text","text":"é"},{"uri":"file:///a","name":"a","type":"resource_link"}]}}}"#,
        ),
    ];
    let lines: Vec<_> = said.iter().map(|(by, line)| translator.line(*by, line).unwrap()).collect();
    assert_eq!(lines.iter().map(|translation| translation.lines.len()).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(lines[2].losses, []);
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
    assert_eq!(relay.agent(message(), &[]), [""; 0], "it was heard");
    let delete = json!({ "id": 1, "method": "session/delete", "params": { "sessionId": "s" } });
    relay.client(delete, &["agent: session/delete 1"]);
    relay.agent(json!({ "id": 1, "result": {} }), &["client: 1 = {}"]);
    relay.agent(message(), &said);
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
fn a_prompt_that_a_v1_agent_repeats_is_one_message() {
    // However it is cut, and whether the agent has an id for it or not.
    for (chunks, id) in
        [(vec!["hi there"], None), (vec!["hi ", "the", "re"], None), (vec!["hi ", "there"], Some("m"))]
    {
        for to in [V2, Draft] {
            let mut relay = Relay::between(V1, to);
            relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
            for chunk in &chunks {
                relay.agent(maybe_named_chunk("user_message_chunk", id, chunk), &[]);
            }
            relay.agent(
                maybe_named_chunk("agent_message_chunk", Some("a"), "yo"),
                &[r#"client: agent_message_chunk a "yo""#],
            );
            // From here on it is no echo.
            let again = maybe_named_chunk("user_message_chunk", Some("b"), "hi there");
            relay.agent(again, &[r#"client: user_message_chunk b "hi there""#]);
        }
    }
}

#[test]
fn the_id_in_an_echo_is_the_agents_id_of_the_prompt() {
    let mut relay = Relay::between(V1, V2);
    relay.0.line(Side::Client, &line(prompt(1, "hi"))).unwrap();
    relay.agent(maybe_named_chunk("user_message_chunk", Some("theirs"), "hi"), &[]);
    let params = json!({ "sessionId": "s", "messageId": "parlor-1", "cwd": "/", "mcpServers": [] });
    let fork = line(json!({ "id": 2, "method": "session/fork", "params": params }));
    let said = relay.0.line(Side::Client, &fork).unwrap();
    let said: Value = serde_json::from_str(&said.lines[0].text).unwrap();
    assert_eq!(said["params"]["messageId"], "theirs");
}

#[test]
fn a_user_message_that_only_begins_like_the_prompt_is_a_message_of_its_own() {
    let mut relay = Relay::between(V1, V2);
    relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
    relay.agent(maybe_named_chunk("user_message_chunk", None, "hi "), &[]);
    relay.agent(
        maybe_named_chunk("user_message_chunk", None, "you"),
        &[r#"client: user_message_chunk parlor-2 "hi ""#, r#"client: user_message_chunk parlor-2 "you""#],
    );
    // Also if nothing but the end of the turn follows it, or a request.
    for end in [json!({ "id": 1, "result": { "stopReason": "end_turn" } }), permission(9)] {
        let mut relay = Relay::between(V1, V2);
        relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
        relay.agent(maybe_named_chunk("user_message_chunk", Some("x"), "hi "), &[]);
        let end = line(end);
        let said = relay.0.line(Side::Agent, &end).unwrap();
        assert_eq!(short(said.lines[0].by, &said.lines[0].text), r#"client: user_message_chunk x "hi ""#);
    }
}

#[test]
fn empty_chunks_are_held_back_for_an_echo_up_to_a_limit() {
    let mut relay = Relay::between(V1, V2);
    relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
    relay.agent(maybe_named_chunk("user_message_chunk", Some("m"), "hi"), &[]);
    let empty = line(maybe_named_chunk("user_message_chunk", Some("m"), ""));
    let most = (64 << 10) / empty.len() + 100;
    let place = (0..most).find(|_| !relay.0.line(Side::Agent, &empty).unwrap().lines.is_empty());
    assert!(place.is_some(), "nothing is said after {most} empty chunks");
    // The updates held back are a message of their own, as are those that follow.
    relay.agent(
        maybe_named_chunk("user_message_chunk", Some("m"), " there"),
        &[r#"client: user_message_chunk m " there""#],
    );
}

#[test]
fn updates_held_back_beyond_the_limit_are_sent_in_order() {
    let mut relay = Relay::between(V1, V2);
    relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
    relay.agent(maybe_named_chunk("user_message_chunk", Some("m"), "hi"), &[]);
    let mut long = maybe_named_chunk("user_message_chunk", Some("m"), " the");
    long["params"]["update"]["_meta"] = json!({ "x": "y".repeat(70 << 10) });
    relay.agent(long, &[r#"client: user_message_chunk m "hi""#, r#"client: user_message_chunk m " the""#]);
}

#[test]
fn updates_of_slots_do_not_end_an_echo() {
    let mut relay = Relay::between(V1, V2);
    relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
    relay.agent(maybe_named_chunk("user_message_chunk", None, "hi "), &[]);
    relay.agent(
        update(json!({ "sessionUpdate": "session_info_update", "title": "T" })),
        &["client: session_info_update"],
    );
    relay.agent(maybe_named_chunk("user_message_chunk", None, "there"), &[]);
}

#[test]
fn a_user_message_that_is_not_the_prompt_is_a_message_of_its_own() {
    for agent in [V2, Draft] {
        let mut relay = Relay::between(agent, V1);
        relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
        let lost =
            relay.agent(user_message("x", "Reminder"), &[r#"client: user_message_chunk x "Reminder""#]);
        assert_eq!(lost, [""; 0]);
        relay.agent(user_chunk("y", "Be brief"), &[r#"client: user_message_chunk y "Be brief""#]);
        assert_eq!(relay.agent(user_message("m", "Hi"), &[]), [""; 0]);
        relay.agent(json!({ "id": 1, "result": { "messageId": "m" } }), &[]);
        relay.agent(idle(), &[r#"client: 1 = {"stopReason":"end_turn"}"#]);
    }
    // The response of a draft agent has no message id.
    let mut relay = Relay::between(Draft, V2);
    relay.client(prompt(1, "One"), &["agent: session/prompt 1"]);
    relay.client(prompt(2, "Two"), &["agent: session/prompt 2"]);
    relay.agent(user_message("x", "Reminder"), &[r#"client: user_message x "Reminder""#]);
    relay.agent(json!({ "id": 1, "result": {} }), &[]);
    relay.agent(user_message("b", "Two"), &[r#"client: user_message b "Two""#]);
    relay.agent(json!({ "id": 2, "result": {} }), &[r#"client: 2 = {"messageId":"b"}"#]);
    // A message that equals no prompt is the accepted one.
    relay.agent(
        user_message("a", "One, expanded"),
        &[r#"client: 1 = {"messageId":"a"}"#, r#"client: user_message a "One, expanded""#],
    );
}

#[test]
fn each_of_two_equal_prompts_has_a_message_of_its_own() {
    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Go"), &["agent: session/prompt 1"]);
    relay.client(prompt(2, "Go"), &["agent: session/prompt 2"]);
    relay.agent(json!({ "id": 1, "result": { "messageId": "a" } }), &[]);
    relay.agent(user_message("a", "Go"), &[]);
    relay.agent(state("running"), &[]);
    relay.agent(idle(), &[r#"client: 1 = {"stopReason":"end_turn"}"#]);
    relay.agent(json!({ "id": 2, "result": { "messageId": "b" } }), &[]);
    assert_eq!(relay.agent(user_message("b", "Go"), &[]), [""; 0]);
    relay.agent(state("running"), &[]);
    relay.agent(idle(), &[r#"client: 2 = {"stopReason":"end_turn"}"#]);
}

#[test]
fn chunks_of_a_user_message_are_held_back_until_they_are_decided() {
    let mut relay = Relay::between(Draft, V2);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(user_chunk("x", "H"), &[]);
    relay.agent(
        user_chunk("x", "o"),
        &[r#"client: user_message_chunk x "H""#, r#"client: user_message_chunk x "o""#],
    );
    relay.agent(user_chunk("y", "H"), &[]);
    relay.agent(
        maybe_named_chunk("agent_message_chunk", Some("a"), "yo"),
        &[r#"client: user_message_chunk y "H""#, r#"client: agent_message_chunk a "yo""#],
    );
    relay.agent(json!({ "id": 1, "result": {} }), &[]);
    relay.agent(user_chunk("m", "H"), &[]);
    relay.agent(
        user_chunk("m", "i"),
        &[
            r#"client: 1 = {"messageId":"m"}"#,
            r#"client: user_message_chunk m "H""#,
            r#"client: user_message_chunk m "i""#,
        ],
    );
    // The response may say which prompt it is, and an error that it is none.
    let mut relay = Relay::between(V2, V1);
    relay.client(prompt(1, "Hi"), &["agent: session/prompt 1"]);
    relay.agent(user_chunk("m", "H"), &[]);
    assert_eq!(relay.agent(json!({ "id": 1, "result": { "messageId": "m" } }), &[]), [""; 0]);
    assert_eq!(relay.agent(user_chunk("m", "i"), &[]), [""; 0]);
    relay.client(prompt(2, "Hi"), &["agent: session/prompt 2"]);
    relay.agent(user_chunk("n", "H"), &[]);
    relay.agent(
        json!({ "id": 2, "error": { "code": -1, "message": "no" } }),
        &[r#"client: 2 failed {"code":-1,"message":"no"}"#, r#"client: user_message_chunk n "H""#],
    );
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
fn text_that_continues_after_the_prompt_is_a_message_of_its_own() {
    for id in [None, Some("m")] {
        let mut relay = Relay::between(V1, V2);
        relay.0.line(Side::Client, &line(prompt(1, "hi"))).unwrap();
        relay.agent(maybe_named_chunk("user_message_chunk", id, "hi"), &[]);
        let name = id.unwrap_or("parlor-2");
        relay.agent(
            maybe_named_chunk("user_message_chunk", id, " again"),
            &[
                &format!(r#"client: user_message_chunk {name} "hi""#),
                &format!(r#"client: user_message_chunk {name} " again""#),
            ],
        );
    }
}

#[test]
fn a_v1_agent_repeats_its_prompt_once_and_may_call_every_prompt_the_same() {
    let mut relay = Relay::between(V1, V2);
    relay.0.line(Side::Client, &line(prompt(1, "one"))).unwrap();
    relay.agent(maybe_named_chunk("user_message_chunk", Some("u"), "one"), &[]);
    let again = maybe_named_chunk("user_message_chunk", Some("v"), "one");
    relay.agent(again, &[r#"client: user_message_chunk v "one""#]);
    let end = json!({ "id": 1, "result": { "stopReason": "end_turn" } });
    relay.agent(end, &["client: state_update idle end_turn"]);
    let late = maybe_named_chunk("user_message_chunk", Some("w"), "one");
    relay.agent(late, &[r#"client: user_message_chunk w "one""#]);
    relay.0.line(Side::Client, &line(prompt(2, "two"))).unwrap();
    relay.agent(maybe_named_chunk("user_message_chunk", Some("v"), "two"), &[]);
}

#[test]
fn after_a_request_or_the_turn_a_v1_agent_does_not_repeat_its_prompt() {
    for end in [json!({ "id": 1, "result": { "stopReason": "end_turn" } }), permission(9)] {
        let mut relay = Relay::between(V1, V2);
        relay.0.line(Side::Client, &line(prompt(1, "hi"))).unwrap();
        relay.0.line(Side::Agent, &line(end)).unwrap();
        let equal = maybe_named_chunk("user_message_chunk", Some("m"), "hi");
        relay.agent(equal, &[r#"client: user_message_chunk m "hi""#]);
    }
}

#[test]
fn extras_of_a_line_are_kept_while_it_is_held_back() {
    let mut relay = Relay::between(V1, V2);
    relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
    let mut chunk = maybe_named_chunk("user_message_chunk", Some("m"), "hi");
    chunk["params"]["_meta"] = json!({ "n": 1 });
    chunk["more"] = json!(2);
    relay.agent(chunk, &[]);
    let other = line(maybe_named_chunk("agent_message_chunk", Some("a"), "yo"));
    let sent = relay.0.line(Side::Agent, &other).unwrap();
    let sent: Value = serde_json::from_str(&sent.lines[0].text).unwrap();
    assert_eq!((&sent["params"]["_meta"], &sent["more"]), (&json!({ "n": 1 }), &json!(2)));
}

#[test]
fn finish_returns_the_lines_that_are_held_back() {
    for (agent, client) in [(V1, V2), (V2, V1)] {
        let mut relay = Relay::between(agent, client);
        relay.0.line(Side::Client, &line(prompt(1, "hi there"))).unwrap();
        relay.agent(user_chunk("m", "hi"), &[]);
        let sent = relay.0.finish();
        let sent: Vec<_> = sent.lines.iter().map(|line| short(line.by, &line.text)).collect();
        assert_eq!(sent, [r#"client: user_message_chunk m "hi""#]);
        assert!(relay.0.finish().lines.is_empty());
    }
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

fn line(mut message: Value) -> String {
    message["jsonrpc"] = json!("2.0");
    message.to_string()
}

fn maybe_named_chunk(kind: &str, id: Option<&str>, text: &str) -> Value {
    let mut chunk = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
    if let Some(id) = id {
        chunk["messageId"] = json!(id);
    }
    update(chunk)
}
