//! "Message updates": whole messages and chunks

use parlor_dialect::Dialect::{Draft, V1, V2};
use serde_json::json;

use crate::fold;

const WHOLE: [(&str, &str); 3] =
    [("user_message", "user"), ("agent_message", "agent"), ("agent_thought", "thought")];

#[test]
fn acp_v1_primarily_reports_messages_as_chunks() {
    let chunk = r#"{
        "sessionUpdate": "agent_message_chunk",
        "messageId": "msg_agent_c42b9",
        "content": { "type": "text", "text": "Analyzing..." }
    }"#;
    assert_eq!(fold(V1, &[chunk]).messages(), ["agent msg_agent_c42b9: Analyzing..."]);
}

#[test]
fn each_whole_message_update_is_an_upsert_keyed_by_message_id() {
    for dialect in [V2, Draft] {
        for (kind, role) in WHOLE {
            let update = |id: &str, text: &str| {
                format!(
                    r#"{{"sessionUpdate":"{kind}","messageId":"{id}","content":[{{"type":"text","text":"{text}"}}]}}"#
                )
            };
            let folded = fold(dialect, &[&update("m1", "A"), &update("m2", "B"), &update("m1", "C")]);
            assert_eq!(
                folded.messages(),
                [format!("{role} m1: C"), format!("{role} m2: B")],
                "{dialect} {kind}"
            );
        }
    }
}

#[test]
fn message_id_is_required() {
    for dialect in [V1, V2, Draft] {
        for (kind, _) in WHOLE {
            for (field, problem) in [
                ("", "`messageId` is missing"),
                (r#""messageId":null,"#, "`messageId` must be a string, this is null"),
                (r#""messageId":{},"#, "`messageId` must be a string, this is an object"),
            ] {
                let folded =
                    fold(dialect, &[&format!(r#"{{"sessionUpdate":"{kind}",{field}"content":[]}}"#)]);
                assert_eq!(folded.problems, [format!("{kind}: {problem}")]);
                assert_eq!(folded.view, fold(dialect, &[]).view);
            }
        }
    }
}

#[test]
fn an_omitted_patch_field_leaves_the_previous_value_unchanged() {
    for dialect in [V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"A"}],"_meta":{"k":1}}"#,
                r#"{"sessionUpdate":"agent_message","messageId":"m1"}"#,
            ],
        );
        assert_eq!(
            folded.at("/messages"),
            &json!([{ "messageId": "m1", "role": "agent", "content": [{ "type": "text", "text": "A" }], "_meta": { "k": 1 } }])
        );
    }
}

#[test]
fn null_explicitly_clears_or_unsets_the_field() {
    for dialect in [V2, Draft] {
        let first = r#"{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"A"}],"_meta":{"k":1}}"#;
        let content =
            fold(dialect, &[first, r#"{"sessionUpdate":"agent_message","messageId":"m1","content":null}"#]);
        assert_eq!(
            content.at("/messages/0"),
            &json!({ "messageId": "m1", "role": "agent", "content": [], "_meta": { "k": 1 } })
        );
        let meta =
            fold(dialect, &[first, r#"{"sessionUpdate":"agent_message","messageId":"m1","_meta":null}"#]);
        assert_eq!(
            meta.at("/messages/0"),
            &json!({ "messageId": "m1", "role": "agent", "content": [{ "type": "text", "text": "A" }] })
        );
    }
}

#[test]
fn any_concrete_value_replaces_the_previous_value() {
    let first = r#"{"sessionUpdate":"agent_message","messageId":"m1","_meta":{"a":1,"b":{"x":1}}}"#;
    let second = r#"{"sessionUpdate":"agent_message","messageId":"m1","_meta":{"b":{"y":2}}}"#;
    assert_eq!(fold(Draft, &[first, second]).at("/messages/0/_meta"), &json!({ "b": { "y": 2 } }));
    // As published, metadata is patched by its top-level keys instead.
    assert_eq!(fold(V2, &[first, second]).at("/messages/0/_meta"), &json!({ "a": 1, "b": { "y": 2 } }));
    let remove = r#"{"sessionUpdate":"agent_message","messageId":"m1","_meta":{"a":null}}"#;
    assert_eq!(fold(V2, &[first, remove]).at("/messages/0/_meta"), &json!({ "b": { "x": 1 } }));
}

#[test]
fn content_is_replaced_as_a_whole_array_not_appended() {
    for dialect in [V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"user_message","messageId":"m1","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}"#,
                r#"{"sessionUpdate":"user_message","messageId":"m1","content":[{"type":"text","text":"C"}]}"#,
            ],
        );
        assert_eq!(folded.messages(), ["user m1: C"]);
    }
}

#[test]
fn empty_array_and_null_both_clear_content() {
    for dialect in [V2, Draft] {
        for clear in ["[]", "null"] {
            let folded = fold(
                dialect,
                &[
                    r#"{"sessionUpdate":"agent_thought_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#,
                    &format!(r#"{{"sessionUpdate":"agent_thought","messageId":"m1","content":{clear}}}"#),
                ],
            );
            assert_eq!(folded.messages(), ["thought m1: "]);
        }
    }
}

#[test]
fn for_a_new_message_id_omitted_fields_use_client_defaults() {
    for dialect in [V2, Draft] {
        let folded = fold(dialect, &[r#"{"sessionUpdate":"agent_message","messageId":"m1"}"#]);
        assert_eq!(folded.at("/messages"), &json!([{ "messageId": "m1", "role": "agent", "content": [] }]));
    }
}

#[test]
fn chunks_append_their_single_content_item_to_the_matching_message() {
    for dialect in [V2, Draft] {
        for (kind, role) in WHOLE {
            let chunk = |text: &str| {
                format!(
                    r#"{{"sessionUpdate":"{kind}_chunk","messageId":"m1","content":{{"type":"text","text":"{text}"}}}}"#
                )
            };
            assert_eq!(fold(dialect, &[&chunk("A"), &chunk("B")]).messages(), [format!("{role} m1: A|B")]);
        }
    }
}

#[test]
fn example_a_then_b_then_update_c_is_c() {
    for dialect in [V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{ "sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": { "type": "text", "text": "A" } }"#,
                r#"{ "sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": { "type": "text", "text": "B" } }"#,
                r#"{ "sessionUpdate": "agent_message", "messageId": "m1", "content": [{ "type": "text", "text": "C" }] }"#,
            ],
        );
        assert_eq!(folded.messages(), ["agent m1: C"]);
    }
}

#[test]
fn example_update_a_then_chunk_b_is_a_b() {
    for dialect in [V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{ "sessionUpdate": "agent_message", "messageId": "m1", "content": [{ "type": "text", "text": "A" }] }"#,
                r#"{ "sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": { "type": "text", "text": "B" } }"#,
            ],
        );
        assert_eq!(folded.messages(), ["agent m1: A|B"]);
    }
}

#[test]
fn example_an_update_that_omits_content_does_not_change_it() {
    for dialect in [V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{ "sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": { "type": "text", "text": "A" } }"#,
                r#"{ "sessionUpdate": "agent_message", "messageId": "m1", "_meta": { "source": "replay" } }"#,
                r#"{ "sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": { "type": "text", "text": "B" } }"#,
            ],
        );
        assert_eq!(folded.messages(), ["agent m1: A|B"]);
        assert_eq!(folded.at("/messages/0/_meta"), &json!({ "source": "replay" }));
    }
}

#[test]
fn updates_and_chunks_apply_in_the_order_received_for_each_id() {
    for dialect in [V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":"B"}}"#,
                r#"{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"C"}]}"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":"D"}}"#,
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"E"}}"#,
            ],
        );
        assert_eq!(folded.messages(), ["agent m1: C|E", "agent m2: B|D"]);
    }
}

#[test]
fn an_agent_can_redact_content_from_a_message() {
    let folded = fold(
        V2,
        &[
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"the secret"}}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"[redacted]"}]}"#,
        ],
    );
    assert_eq!(folded.messages(), ["agent m1: [redacted]"]);
    assert!(!folded.view.to_string().contains("secret"));
}

#[test]
fn room_for_future_message_level_fields_without_resending_content() {
    let folded = fold(
        V2,
        &[
            r#"{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"A"}],"provenance":{"n":12345678901234567890123}}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"m1","annotations":[1]}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"m1","provenance":null}"#,
        ],
    );
    assert_eq!(
        folded.at("/messages/0"),
        &json!({ "messageId": "m1", "role": "agent", "content": [{ "type": "text", "text": "A" }], "annotations": [1] })
    );
}

#[test]
fn a_chunks_meta_belongs_to_the_chunk_not_to_the_message() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"A"},"_meta":{"k":1}}"#,
            ],
        );
        assert_eq!(folded.at("/messages/0/_meta"), &json!(null));
    }
}

#[test]
fn a_message_update_before_any_chunks_creates_the_message_and_later_chunks_append() {
    let folded = fold(
        V2,
        &[
            r#"{"sessionUpdate":"user_message","messageId":"m1","content":[],"_meta":null}"#,
            r#"{"sessionUpdate":"user_message_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#,
        ],
    );
    assert_eq!(folded.messages(), ["user m1: A"]);
}

#[test]
fn content_that_is_no_array_is_reported_and_treated_as_absent() {
    let folded =
        fold(V2, &[r#"{"sessionUpdate":"agent_message","messageId":"m1","content":{"type":"text"}}"#]);
    assert_eq!(
        folded.problems,
        ["agent_message: `content` must be an array, this is an object; the rest was taken"]
    );
    assert_eq!(folded.view["messages"], json!([{ "messageId": "m1", "role": "agent", "content": [] }]));
}
