//! "Message ID"

use parlor_dialect::Dialect::{Draft, V1, V2};
use serde_json::json;

use crate::fold;

#[test]
fn status_quo_a_v1_chunk_has_no_id_and_is_still_a_message() {
    let folded = fold(
        V1,
        &[r#"{
            "jsonrpc": "2.0",
            "method": "session/update",
            "params": {
                "sessionId": "sess_abc123def456",
                "update": {
                    "sessionUpdate": "agent_message_chunk",
                    "content": { "type": "text", "text": "Let me analyze your code..." }
                }
            }
        }"#],
    );
    assert_eq!(folded.messages(), ["agent parlor-1: Let me analyze your code..."]);
}

#[test]
fn another_agent_message_after_a_tool_call_is_definitely_a_new_message() {
    let folded = fold(
        V1,
        &[
            r#"{ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "Analyzing..." } }"#,
            r#"{ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "Found issues." } }"#,
            r#"{ "sessionUpdate": "tool_call", "toolCallId": "call_1", "title": "Fix" }"#,
            r#"{ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "Fixed the issues." } }"#,
        ],
    );
    assert_eq!(
        folded.messages(),
        ["agent parlor-1: Analyzing...|Found issues.", "agent parlor-2: Fixed the issues."]
    );
}

#[test]
fn each_identifier_remains_constant_across_all_chunks_of_that_message() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":"B"}}"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"C"}}"#,
            ],
        );
        assert_eq!(folded.messages(), ["agent m1: A|C", "agent m2: B"], "{dialect}");
    }
}

#[test]
fn a_change_in_message_id_starts_a_new_message_of_the_same_type() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":"B"}}"#,
            ],
        );
        assert_eq!(folded.messages(), ["agent m1: A", "agent m2: B"], "{dialect}");
    }
}

#[test]
fn user_message_chunks_use_the_user_message_id() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[r#"{
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": {
                    "sessionId": "sess_abc123def456",
                    "update": {
                        "sessionUpdate": "user_message_chunk",
                        "messageId": "msg_user_8f7a1",
                        "content": { "type": "text", "text": "Can you analyze this code?" }
                    }
                }
            }"#],
        );
        assert_eq!(folded.messages(), ["user msg_user_8f7a1: Can you analyze this code?"], "{dialect}");
    }
}

#[test]
fn agent_message_chunks_carry_the_agents_message_id() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[r#"{
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": {
                    "sessionId": "sess_abc123def456",
                    "update": {
                        "sessionUpdate": "agent_message_chunk",
                        "messageId": "msg_agent_c42b9",
                        "content": { "type": "text", "text": "Let me analyze your code..." }
                    }
                }
            }"#],
        );
        assert_eq!(folded.messages(), ["agent msg_agent_c42b9: Let me analyze your code..."], "{dialect}");
    }
}

#[test]
fn in_v1_an_omitted_message_id_and_an_explicit_null_are_equivalent() {
    let omitted = r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"A"}}"#;
    let null =
        r#"{"sessionUpdate":"agent_thought_chunk","messageId":null,"content":{"type":"text","text":"A"}}"#;
    for lines in [[omitted, omitted], [omitted, null], [null, omitted], [null, null]] {
        assert_eq!(fold(V1, &lines).messages(), ["thought parlor-1: A|A"]);
    }
}

#[test]
fn in_v2_the_field_must_be_present_and_must_be_a_non_null_string() {
    for kind in ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"] {
        for (field, problem) in [
            ("", "`messageId` is missing"),
            (r#""messageId":null,"#, "`messageId` must be a string, this is null"),
            (r#""messageId":42,"#, "`messageId` must be a string, this is a number"),
        ] {
            for dialect in [V2, Draft] {
                let before = r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#;
                let bad =
                    format!(r#"{{"sessionUpdate":"{kind}",{field}"content":{{"type":"text","text":"B"}}}}"#);
                let folded = fold(dialect, &[before, &bad]);
                assert_eq!(folded.problems, [format!("{kind}: {problem}")]);
                assert_eq!(folded.view, fold(dialect, &[before]).view, "the state is unchanged");
            }
        }
    }
}

#[test]
fn v2_clients_can_reject_chunks_where_the_field_is_omitted_or_null_and_lose_nothing_else() {
    let folded = fold(
        V2,
        &[
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"lost"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"kept"}}"#,
        ],
    );
    assert_eq!(folded.problems.len(), 1);
    assert_eq!(folded.view["messages"][0]["content"][0]["text"], "kept");
}

#[test]
fn ids_are_compared_as_opaque_strings_and_never_parsed() {
    // Each of these is an id of its own; the last two are the same string, written in two ways.
    let ids = [
        "", " ", "1", "01", "1.0", "A", "a", "null", "m1", "m1 ", "é", "e\\u0301", "\\u0000", "a/b", "a\\/b",
    ];
    let lines: Vec<_> = ids
        .iter()
        .map(|id| format!(r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{{"type":"text","text":"x"}}}}"#))
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    for dialect in [V1, V2, Draft] {
        let folded = fold(dialect, &lines);
        assert_eq!(folded.messages().len(), ids.len() - 1, "{dialect}");
        assert_eq!(folded.messages().last().unwrap(), "agent a/b: x|x");
    }
}

#[test]
fn agents_can_use_identifiers_that_fit_their_own_storage_model() {
    let long = "x".repeat(10_000);
    let line = format!(
        r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{long}","content":{{"type":"text","text":"t"}}}}"#
    );
    assert_eq!(fold(V2, &[&line]).at("/messages/0/messageId"), &json!(long));
}

#[test]
fn an_adapter_may_omit_ids_for_some_chunks_and_one_with_an_id_ends_the_message() {
    let folded = fold(
        V1,
        &[
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"A"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"B"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"C"}}"#,
        ],
    );
    assert_eq!(folded.messages(), ["agent parlor-1: A", "agent m1: B", "agent parlor-2: C"]);
}

#[test]
fn client_can_only_infer_boundaries_by_a_change_of_type_where_ids_are_missing() {
    let folded = fold(
        V1,
        &[
            r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"A"}}"#,
            r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"B"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"C"}}"#,
            r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"D"}}"#,
        ],
    );
    assert_eq!(
        folded.messages(),
        ["user parlor-1: A", "thought parlor-2: B", "agent parlor-3: C", "thought parlor-4: D"]
    );
}

#[test]
fn the_session_prompt_response_has_no_message_id_and_ends_a_message_that_has_none() {
    let folded = fold(
        V1,
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"A"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"B"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"C"}}"#,
        ],
    );
    assert_eq!(folded.messages(), ["agent parlor-1: A", "agent parlor-2: B", "agent parlor-3: C"]);
}

#[test]
fn other_updates_have_their_own_identification() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"m1","title":"Read"}"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#,
                r#"{"sessionUpdate":"agent_thought_chunk","messageId":"m1","content":{"type":"text","text":"B"}}"#,
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"m1","status":"completed"}"#,
            ],
        );
        assert_eq!(folded.messages(), ["agent m1: A", "thought m1: B"], "{dialect}");
        assert_eq!(
            folded.at("/toolCalls"),
            &json!([{ "toolCallId": "m1", "title": "Read", "status": "completed", "content": [] }])
        );
    }
}

#[test]
fn plan_entries_are_tracked_by_their_position() {
    let entries = json!([
        { "content": "a", "priority": "high", "status": "pending" },
        { "content": "b", "priority": "low", "status": "pending" }
    ]);
    let folded = fold(
        V1,
        &[
            r#"{"sessionUpdate":"plan","entries":[{"content":"old","priority":"high","status":"pending"}]}"#,
            &json!({ "sessionUpdate": "plan", "entries": entries }).to_string(),
        ],
    );
    assert_eq!(folded.at("/plans"), &json!([{ "type": "items", "planId": "default", "entries": entries }]));
}

#[test]
fn example_future_editing_capability_is_kept_in_place() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"A"}}"#,
                r#"{
                    "jsonrpc": "2.0",
                    "method": "session/update",
                    "params": {
                        "sessionId": "sess_abc123def456",
                        "update": {
                            "sessionUpdate": "message_update",
                            "messageId": "ea87d0e7-beb8-484a-a404-94a30b78a5a8",
                            "updateType": "replace",
                            "content": { "type": "text", "text": "Actually, let me correct that analysis..." }
                        }
                    }
                }"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"b","content":{"type":"text","text":"B"}}"#,
            ],
        );
        assert_eq!(
            folded.at("/other"),
            &json!([{
                "sessionUpdate": "message_update",
                "messageId": "ea87d0e7-beb8-484a-a404-94a30b78a5a8",
                "updateType": "replace",
                "content": { "type": "text", "text": "Actually, let me correct that analysis..." }
            }])
        );
        assert_eq!(
            folded.at("/order"),
            &json!([
                { "kind": "agent_message", "id": "a" },
                { "kind": "message_update", "id": "2" },
                { "kind": "agent_message", "id": "b" }
            ])
        );
    }
}

#[test]
fn a_load_may_preserve_original_ids_or_generate_new_ones() {
    let replayed = |id: &str| {
        format!(
            r#"{{"sessionUpdate":"user_message_chunk","messageId":"{id}","content":{{"type":"text","text":"A"}}}}"#
        )
    };
    assert_eq!(fold(V2, &[&replayed("old"), &replayed("new")]).messages(), ["user old: A", "user new: A"]);
}
