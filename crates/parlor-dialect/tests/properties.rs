//! What holds for any sequence of updates in any dialect.

use parlor_dialect::{Dialect, Fold, LineProblem, view};
use parlor_session::Transcript;
use proptest::prelude::*;
use serde_json::{Value, json};

fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(&Dialect::ALL[..])
}

/// Few ids, so that updates meet.
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

fn update() -> impl Strategy<Value = Value> {
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

fn updates() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(update(), 0..40)
}

fn fold(dialect: Dialect, updates: &[Value]) -> Fold {
    let mut fold = Fold::new(dialect);
    updates.iter().for_each(|update| drop(fold.line(&update.to_string())));
    fold
}

proptest! {
    #[test]
    fn changes_since_n_applied_to_the_state_at_n_give_the_state_now(
        dialect in dialect(), updates in updates(), cut in any::<prop::sample::Index>()
    ) {
        let cut = cut.index(updates.len() + 1);
        let then = fold(dialect, &updates[..cut]).transcript().clone();
        let now = fold(dialect, &updates);
        let mut caught_up = then.clone();
        for change in now.transcript().changes_since(then.seq()) {
            caught_up.apply(&change).unwrap();
        }
        prop_assert_eq!(&caught_up, now.transcript());
    }

    #[test]
    fn one_by_one_and_in_any_batches_are_the_same(
        dialect in dialect(), updates in updates(), batches in prop::collection::vec(1..8_usize, 1..20)
    ) {
        // A second transcript that hears of changes only in batches, as one that reads slowly does.
        let mut fold = Fold::new(dialect);
        let mut follower = Transcript::default();
        let mut sizes = batches.iter().cycle();
        let mut rest = &updates[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            batch.iter().for_each(|update| drop(fold.line(&update.to_string())));
            let news: Vec<_> = fold.transcript().changes_since(follower.seq()).collect();
            news.iter().for_each(|change| follower.apply(change).unwrap());
            rest = later;
        }
        prop_assert_eq!(&follower, fold.transcript());
    }

    #[test]
    fn replaying_the_snapshot_gives_the_same_state(dialect in dialect(), updates in updates()) {
        let fold = fold(dialect, &updates);
        let mut again = Transcript::default();
        fold.transcript().changes_since(0).for_each(|change| again.apply(&change).unwrap());
        prop_assert_eq!(&again, fold.transcript());
        prop_assert_eq!(view::transcript(&again), view::transcript(fold.transcript()));
    }

    #[test]
    fn the_counter_moves_by_one_for_each_update_taken_and_not_for_one_refused(
        dialect in dialect(), updates in updates()
    ) {
        let mut fold = Fold::new(dialect);
        for update in &updates {
            let before = fold.transcript().clone();
            match fold.line(&update.to_string()) {
                Ok(()) | Err(LineProblem::Ignored(_)) => prop_assert_eq!(fold.transcript().seq(), before.seq() + 1),
                Err(_) => prop_assert_eq!(fold.transcript(), &before),
            }
        }
    }

    #[test]
    fn a_line_means_the_same_however_it_is_written(dialect in dialect(), updates in updates()) {
        // Compact lines are read in one pass; these are not: members in another order, white space, a batch
        // where the dialect takes one.
        let (open, close) = if dialect == Dialect::V1 { ("", "") } else { ("[ ", " ]") };
        let bare = fold(dialect, &updates);
        let (mut compact, mut odd) = (Fold::new(dialect), Fold::new(dialect));
        for update in &updates {
            let params = json!({ "sessionId": "s", "update": update });
            drop(compact.line(&format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#)));
            let odd_line = format!(
                r#"{open}{{ "params" : {params}, "x": 1, "method" : "session/update","jsonrpc":"2.0" }}{close}"#
            );
            drop(odd.line(&odd_line));
        }
        prop_assert_eq!(bare.transcript(), compact.transcript());
        prop_assert_eq!(bare.transcript(), odd.transcript());
    }

    #[test]
    fn no_line_panics(dialect in dialect(), updates in updates(), damage in prop::collection::vec((any::<prop::sample::Index>(), ".?"), 1..5)) {
        let mut fold = Fold::new(dialect);
        for update in &updates {
            let mut line: Vec<char> = update.to_string().chars().collect();
            for (place, text) in &damage {
                let place = place.index(line.len());
                line.splice(place..=place, text.chars());
            }
            drop(fold.line(&line.into_iter().collect::<String>()));
        }
        view::transcript(fold.transcript());
    }
}
