//! Shared by several tests: generated updates, and the recordings.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::{Path, PathBuf};

use parlor_dialect::Dialect;
use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// Every recording: its name, its dialect and its text.
pub(crate) fn recordings() -> Vec<(String, Dialect, String)> {
    let files = std::fs::read_dir(testdata("recordings")).unwrap();
    let mut recordings: Vec<_> = files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let dialect = name.rsplit('.').next().unwrap().parse().unwrap();
            (name, dialect, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    recordings.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(recordings.len(), 24);
    recordings
}

pub(crate) fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(&Dialect::ALL[..])
}

/// Few ids, so that updates have the same targets.
fn id() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => prop::sample::select(vec![json!("a"), json!("b"), json!(""), json!("ü\u{0}")]),
        1 => prop::sample::select(vec![json!(null), json!(7)]),
    ]
}

fn block() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => ".{0,6}".prop_map(|text| json!({ "type": "text", "text": text })),
        1 => Just(json!({ "type": "image", "data": "", "mimeType": "x" })),
        1 => Just(json!({ "type": "text", "text": "t", "_meta": { "k": 1 } })),
    ]
}

/// Metadata three levels deep, with nulls in it.
fn meta() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("x"))];
    let object = leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map))
    });
    prop_oneof![4 => object, 1 => Just(json!(null))]
}

/// A field that may be left out, be null, or have a value.
fn with(update: Value, fields: Vec<(&'static str, Option<Value>)>) -> Value {
    let mut update = update;
    for (name, value) in fields {
        if let Some(value) = value {
            update[name] = value;
        }
    }
    update
}

fn maybe(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Option<Value>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(json!(null))), 4 => value.prop_map(Some)].boxed()
}

pub(crate) fn update() -> impl Strategy<Value = Value> {
    let blocks = || prop::collection::vec(block(), 0..3).prop_map(Value::from);
    let chunk_kinds = vec![
        ("user_message_chunk", "messageId"),
        ("agent_message_chunk", "messageId"),
        ("agent_thought_chunk", "messageId"),
        ("tool_call_content_chunk", "toolCallId"),
        ("compaction_summary_chunk", "compactionId"),
        ("session_message_chunk", "messageId"),
    ];
    let upsert_kinds = vec![
        ("user_message", "messageId", "content"),
        ("agent_message", "messageId", "content"),
        ("agent_thought", "messageId", "content"),
        ("tool_call", "toolCallId", "content"),
        ("tool_call_update", "toolCallId", "content"),
        ("compaction_update", "compactionId", "summary"),
        ("subagent_update", "sessionId", "capabilities"),
        ("session_message", "messageId", "content"),
        ("terminal_update", "terminalId", "size"),
    ];
    prop_oneof![
        6 => (prop::sample::select(chunk_kinds), prop::option::of(id()), block(), maybe(meta())).prop_map(
            |((kind, name), id, block, meta)| with(
                json!({ "sessionUpdate": kind, "content": block }),
                vec![(name, id), ("_meta", meta)],
            )
        ),
        6 => (prop::sample::select(upsert_kinds), id(), maybe(blocks()), maybe(meta()), maybe(Just(json!("t")))).prop_map(
            |((kind, name, content), id, blocks, meta, title)| with(
                json!({ "sessionUpdate": kind, name: id }),
                vec![(content, blocks), ("_meta", meta), ("title", title)],
            )
        ),
        1 => (id(), "[A-Za-z0-9+/]{0,8}").prop_map(
            |(id, data)| json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": id, "data": data })
        ),
        1 => (id(), prop::bool::ANY).prop_map(|(id, removed)| if removed {
            json!({ "sessionUpdate": "plan_removed", "planId": id })
        } else {
            json!({ "sessionUpdate": "plan_update", "plan": { "type": "items", "planId": id, "entries": [] } })
        }),
        1 => Just(json!({ "sessionUpdate": "plan", "entries": [] })),
        2 => (maybe(".{0,3}".prop_map(Value::from)), maybe(meta())).prop_map(|(title, meta)| with(
            json!({ "sessionUpdate": "session_info_update" }),
            vec![("title", title), ("_meta", meta)],
        )),
        1 => prop::sample::select(vec!["running", "idle", "requires_action", "_odd"])
            .prop_map(|state| json!({ "sessionUpdate": "state_update", "state": state })),
        1 => (0..9_u64).prop_map(|used| json!({ "sessionUpdate": "usage_update", "used": used, "size": 9 })),
        1 => Just(json!({ "sessionUpdate": "available_commands_update", "availableCommands": [] })),
        1 => Just(json!({ "sessionUpdate": "notice", "severity": "info", "title": "n" })),
        1 => meta().prop_map(|meta| json!({ "sessionUpdate": "_unknown", "x": meta })),
    ]
}

pub(crate) fn updates() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(update(), 0..40)
}
