//! "Session info update"

use parlor_dialect::Dialect::{Draft, V1, V2};
use serde_json::{Value, json};

use crate::fold;

const NEW: &str = r#"{
    "jsonrpc": "2.0",
    "method": "session/update",
    "params": {
        "sessionId": "sess_abc123def456",
        "update": {
            "sessionUpdate": "session_info_update",
            "title": "Implement user authentication",
            "_meta": { "tags": ["feature", "auth"], "priority": "high" }
        }
    }
}"#;

fn meta(value: &Value) -> String {
    json!({ "sessionUpdate": "session_info_update", "_meta": value }).to_string()
}

#[test]
fn the_notification_sets_title_and_metadata() {
    for dialect in [V1, V2, Draft] {
        assert_eq!(
            fold(dialect, &[NEW]).at("/info"),
            &json!({
                "title": "Implement user authentication",
                "_meta": { "tags": ["feature", "auth"], "priority": "high" }
            })
        );
    }
}

#[test]
fn example_update_title_and_working_directory_metadata() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[
                NEW,
                r#"{
                    "jsonrpc": "2.0",
                    "method": "session/update",
                    "params": {
                        "sessionId": "sess_abc123def456",
                        "update": {
                            "sessionUpdate": "session_info_update",
                            "title": "Debug authentication timeout",
                            "_meta": { "projectName": "api-server", "branch": "main" }
                        }
                    }
                }"#,
            ],
        );
        assert_eq!(
            folded.at("/info"),
            &json!({
                "title": "Debug authentication timeout",
                "_meta": { "tags": ["feature", "auth"], "priority": "high", "projectName": "api-server", "branch": "main" }
            })
        );
    }
}

#[test]
fn example_update_title_as_conversation_evolves() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[
                NEW,
                r#"{
                    "jsonrpc": "2.0",
                    "method": "session/update",
                    "params": {
                        "sessionId": "sess_abc123def456",
                        "update": {
                            "sessionUpdate": "session_info_update",
                            "title": "Debug authentication timeout → Add retry logic"
                        }
                    }
                }"#,
            ],
        );
        assert_eq!(folded.at("/info/title"), "Debug authentication timeout → Add retry logic");
        assert_eq!(folded.at("/info/_meta"), &json!({ "tags": ["feature", "auth"], "priority": "high" }));
    }
}

#[test]
fn all_fields_are_optional_and_a_null_title_or_time_is_cleared() {
    for dialect in [V1, V2, Draft] {
        let set = r#"{"sessionUpdate":"session_info_update","title":"T","updatedAt":"2025-10-29T14:22:15Z"}"#;
        let nothing = r#"{"sessionUpdate":"session_info_update"}"#;
        assert_eq!(
            fold(dialect, &[set, nothing]).at("/info"),
            &json!({ "title": "T", "updatedAt": "2025-10-29T14:22:15Z" })
        );
        let title = r#"{"sessionUpdate":"session_info_update","title":null}"#;
        assert_eq!(fold(dialect, &[set, title]).at("/info"), &json!({ "updatedAt": "2025-10-29T14:22:15Z" }));
        let time = r#"{"sessionUpdate":"session_info_update","updatedAt":null}"#;
        assert_eq!(fold(dialect, &[set, time]).at("/info"), &json!({ "title": "T" }));
    }
}

#[test]
fn new_meta_fields_are_merged_with_existing_ones() {
    for dialect in [V1, V2, Draft] {
        let folded =
            fold(dialect, &[&meta(&json!({ "a": 1 })), &meta(&json!({ "b": 2 })), &meta(&json!({ "a": 3 }))]);
        assert_eq!(folded.at("/info/_meta"), &json!({ "a": 3, "b": 2 }));
    }
}

#[test]
fn to_clear_a_specific_field() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(
            dialect,
            &[&meta(&json!({ "fieldName": 1, "other": 2 })), &meta(&json!({ "fieldName": null }))],
        );
        assert_eq!(folded.at("/info/_meta"), &json!({ "other": 2 }));
    }
}

#[test]
fn to_clear_all_custom_metadata() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(dialect, &[NEW, &meta(&Value::Null)]);
        assert_eq!(folded.at("/info"), &json!({ "title": "Implement user authentication" }));
    }
}

#[test]
fn merge_semantics_apply_recursively_nested_objects_are_merged_not_replaced() {
    let lines = [
        meta(&json!({ "a": { "x": 1, "y": { "z": 1 } } })),
        meta(&json!({ "a": { "y": { "w": 2 }, "x": null } })),
    ];
    for dialect in [V1, Draft] {
        assert_eq!(
            fold(dialect, &[&lines[0], &lines[1]]).at("/info/_meta"),
            &json!({ "a": { "y": { "z": 1, "w": 2 } } })
        );
    }
    // As published, v2 merges top-level keys only.
    assert_eq!(
        fold(V2, &[&lines[0], &lines[1]]).at("/info/_meta"),
        &json!({ "a": { "y": { "w": 2 }, "x": null } })
    );
}

#[test]
fn clients_apply_updates_incrementally_in_order() {
    for dialect in [V1, V2, Draft] {
        let title = |n: u8| {
            format!(r#"{{"sessionUpdate":"session_info_update","title":"{n}","_meta":{{"n{n}":{n}}}}}"#)
        };
        let folded = fold(dialect, &[&title(1), &title(2), &title(3)]);
        assert_eq!(folded.at("/info"), &json!({ "title": "3", "_meta": { "n1": 1, "n2": 2, "n3": 3 } }));
    }
}

#[test]
fn titles_are_limited_to_500_characters_and_cut_between_characters() {
    for dialect in [V1, V2, Draft] {
        let fits = "ü".repeat(500);
        let line =
            |title: &str| json!({ "sessionUpdate": "session_info_update", "title": title }).to_string();
        assert_eq!(fold(dialect, &[&line(&fits)]).at("/info/title"), &json!(fits));
        let long = format!("{}😀 and more", "ü".repeat(499));
        assert_eq!(
            fold(dialect, &[&line(&long)]).at("/info/title"),
            &json!(format!("{}😀", "ü".repeat(499)))
        );
    }
}

#[test]
fn metadata_size_is_limited_and_a_rejected_patch_changes_nothing() {
    for dialect in [V1, V2, Draft] {
        let big = meta(&json!({ "blob": "x".repeat(65_500) }));
        let folded = fold(dialect, &[NEW, &big]);
        assert_eq!(folded.problems, ["the session's metadata would be 65556 bytes, the limit is 65536"]);
        assert_eq!(folded.view, fold(dialect, &[NEW]).view);
    }
}

#[test]
fn metadata_that_is_no_object_and_a_title_that_is_no_string_are_treated_as_absent() {
    for dialect in [V1, V2, Draft] {
        for (line, problem) in [
            (
                r#"{"sessionUpdate":"session_info_update","_meta":[]}"#,
                "`_meta` must be an object, this is an array",
            ),
            (
                r#"{"sessionUpdate":"session_info_update","title":7}"#,
                "`title` must be a string, this is a number",
            ),
            (
                r#"{"sessionUpdate":"session_info_update","updatedAt":7}"#,
                "`updatedAt` must be a string, this is a number",
            ),
        ] {
            let folded = fold(dialect, &[line]);
            assert_eq!(folded.problems, [format!("session_info_update: {problem}; the rest was taken")]);
        }
    }
}

#[test]
fn fields_that_session_info_gains_later_are_kept() {
    for dialect in [V1, V2, Draft] {
        let folded = fold(dialect, &[r#"{"sessionUpdate":"session_info_update","icon":{"x":1}}"#]);
        assert_eq!(folded.at("/info"), &json!({ "icon": { "x": 1 } }));
    }
}
