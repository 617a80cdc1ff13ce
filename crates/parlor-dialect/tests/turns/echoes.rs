//! User messages of the agent that may be prompts.

use parlor_dialect::Dialect::{Draft, V1, V2};
use parlor_dialect::{Side, Translator};
use serde_json::{Value, json};

use crate::{
    Relay, idle, line, maybe_named_chunk, permission, prompt, short, state, update, user_chunk, user_message,
};

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
            // From here on it does not repeat a prompt.
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
