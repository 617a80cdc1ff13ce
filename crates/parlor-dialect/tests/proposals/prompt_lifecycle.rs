//! "Prompt lifecycle"

use parlor_dialect::Dialect::{Draft, V1, V2};
use serde_json::json;

use crate::fold;

const PROMPT: &str = r#"{
    "jsonrpc": "2.0",
    "id": "req_12345",
    "method": "session/prompt",
    "params": {
        "sessionId": "sess_789xyz",
        "prompt": [{ "type": "text", "text": "What's the capital of France?" }]
    }
}"#;
const ACCEPTED: &str = r#"{ "jsonrpc": "2.0", "id": "req_12345", "result": {} }"#;
const USER_MESSAGE: &str = r#"{
    "jsonrpc": "2.0",
    "method": "session/update",
    "params": {
        "sessionId": "sess_789xyz",
        "update": {
            "sessionUpdate": "user_message",
            "messageId": "mess_456def",
            "content": [{ "type": "text", "text": "What's the capital of France?" }]
        }
    }
}"#;
const RUNNING: &str = r#"{
    "jsonrpc": "2.0",
    "method": "session/update",
    "params": {
        "sessionId": "sess_789xyz",
        "update": { "sessionUpdate": "state_change", "state": "running" }
    }
}"#;
const IDLE: &str = r#"{
    "jsonrpc": "2.0",
    "method": "session/update",
    "params": {
        "sessionId": "sess_789xyz",
        "update": {
            "sessionUpdate": "state_change",
            "state": "idle",
            "stop_reason": "end_turn",
            "usage": { "totalTokens": 18 }
        }
    }
}"#;
const REQUIRES_ACTION: &str = r#"{
    "jsonrpc": "2.0",
    "method": "session/update",
    "params": {
        "sessionId": "sess_789xyz",
        "update": { "sessionUpdate": "state_change", "state": "requires_action" }
    }
}"#;

#[test]
fn the_prompt_is_accepted_and_the_agent_sends_the_user_message_with_its_id() {
    for dialect in [V2, Draft] {
        let folded = fold(dialect, &[PROMPT, ACCEPTED, USER_MESSAGE]);
        assert_eq!(folded.messages(), ["user mess_456def: What's the capital of France?"]);
        assert_eq!(
            fold(dialect, &[PROMPT, ACCEPTED]).messages(),
            [""; 0],
            "the prompt itself is not a message yet"
        );
    }
}

#[test]
fn running_indicates_that_a_turn_has_begun() {
    for dialect in [V1, V2, Draft] {
        assert_eq!(fold(dialect, &[RUNNING]).at("/state"), &json!({ "state": "running" }));
    }
}

#[test]
fn idle_has_the_stop_reason() {
    for dialect in [V1, V2, Draft] {
        let idle = json!({ "state": "idle", "stopReason": "end_turn", "usage": { "totalTokens": 18 } });
        assert_eq!(fold(dialect, &[RUNNING, IDLE]).at("/state"), &idle);
        let published = r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn","usage":{"totalTokens":18}}"#;
        assert_eq!(fold(dialect, &[RUNNING, published]).at("/state"), &idle);
        let bare = r#"{"sessionUpdate":"state_change","state":"idle"}"#;
        assert_eq!(
            fold(dialect, &[IDLE, bare]).at("/state"),
            &json!({ "state": "idle" }),
            "the reason is optional"
        );
    }
}

#[test]
fn requires_action_is_not_idle() {
    for dialect in [V1, V2, Draft] {
        assert_eq!(
            fold(dialect, &[RUNNING, REQUIRES_ACTION]).at("/state"),
            &json!({ "state": "requires_action" })
        );
    }
}

#[test]
fn an_unknown_state_is_kept() {
    let odd = r#"{"sessionUpdate":"state_update","state":"_dreaming","depth":3,"_meta":{"k":1}}"#;
    assert_eq!(
        fold(V2, &[odd]).at("/state"),
        &json!({ "state": "_dreaming", "depth": 3, "_meta": { "k": 1 } })
    );
}

#[test]
fn the_agent_can_send_updates_at_any_point_in_time() {
    let chunk = |id: &str, text: &str| {
        format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{{"type":"text","text":"{text}"}}}}"#
        )
    };
    let (before, during, after) =
        (chunk("m1", "Hello"), chunk("m2", "Paris"), chunk("m3", "Background work is done"));
    for dialect in [V1, V2, Draft] {
        let lines = [&before, PROMPT, ACCEPTED, USER_MESSAGE, RUNNING, &during, IDLE, &after];
        assert_eq!(
            fold(dialect, &lines).messages(),
            [
                "agent m1: Hello",
                "user mess_456def: What's the capital of France?",
                "agent m2: Paris",
                "agent m3: Background work is done"
            ]
        );
    }
}
