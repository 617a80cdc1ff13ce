//! A transcript that is restored from its rows is equal to the original, with the same seqs.

use std::collections::BTreeMap;

use parlor_session::session::{DialectHooks, Point, Session, TurnEnd};
use parlor_session::{
    Change, DirtyParts, EntryId, InvalidRow, ReplayCursor, Role, Row, Slot, Transcript, UnixMillis, Update,
    Upsert,
};
use proptest::prelude::*;

use crate::updates::{message, object, text, text_of, update, whole};

/// The rows of a session in a store.
#[derive(Debug, Default, Clone)]
struct StoredRows {
    /// By the seq that created the entry: seq, head and content.
    entries: BTreeMap<u64, (u64, String, String)>,
    slots: BTreeMap<&'static str, (u64, String)>,
}

impl StoredRows {
    fn write(&mut self, rows: Vec<Row>) {
        for row in rows {
            match row {
                Row::Entry { created, seq, head, content } => {
                    let rows = self.entries.entry(created).or_default();
                    (rows.0, rows.1) = (seq, head);
                    if let Some(content) = content {
                        rows.2 = content;
                    }
                }
                Row::Append { created, seq, content } => {
                    let rows = self.entries.get_mut(&created).expect("it has a head");
                    rows.0 = seq;
                    rows.2.push_str(&content);
                }
                Row::Slot { name, seq, body } => {
                    self.slots.insert(name, (seq, body));
                }
            }
        }
    }

    fn read(&self) -> Transcript {
        let mut transcript = Transcript::default();
        for (created, (seq, head, content)) in &self.entries {
            transcript.restore_entry(*created, *seq, head, content, 0).unwrap();
        }
        for (name, (seq, body)) in &self.slots {
            transcript.restore_slot(name, *seq, body).unwrap();
        }
        transcript
    }
}

fn push(transcript: &mut Transcript, dirty: &mut DirtyParts, update: Update) -> Change {
    let change = transcript.push(update).unwrap();
    dirty.on_applied(&change);
    change
}

/// The rows of a session.
fn stored_rows(updates: impl IntoIterator<Item = Update>) -> (Transcript, StoredRows) {
    let (mut transcript, mut dirty, mut rows) = <(Transcript, DirtyParts, StoredRows)>::default();
    updates.into_iter().for_each(|update| {
        push(&mut transcript, &mut dirty, update);
    });
    assert!(!dirty.is_empty());
    rows.write(dirty.take_rows(&transcript));
    assert!(dirty.is_empty());
    (transcript, rows)
}

#[test]
fn rows_are_short() {
    let (_, rows) = stored_rows([
        text(message("m"), "a"),
        text(message("m"), "b"),
        text(EntryId::ToolCall("t".into()), "c"),
        text(message("m"), "d"),
        Update::Output { terminal: "x".into(), bytes: b"out".to_vec(), extra: None },
    ]);
    let contents: Vec<_> = rows.entries.values().map(|(_, _, content)| content.as_str()).collect();
    assert_eq!(contents, ["@1\n\"a\"\n\"b\"\n@4\n\"d\"\n", "@3\n\"c\"\n", "=5\n~b3V0\n"]);
    assert_eq!(rows.entries[&1].1, r#"{"kind":"agent","id":"m","fields":{}}"#);
}

#[test]
fn line_breaks_between_tokens_are_removed_from_rows() {
    let (transcript, rows) = stored_rows([
        whole(message("m"), "[{\"type\":\r\n\"text\",\n \"text\":\"a\\nb\"\n}, [\n1\r\n], \n\"s\"]"),
        Update::Append {
            entry: message("m"),
            item: parlor_json::Json::parse("{\"type\":\n\"image\"}").unwrap(),
            extra: Some(parlor_json::Json::parse("{\"k\":\n\"\\u001e\"}").unwrap()),
        },
    ]);
    let read = rows.read();
    let joined = |transcript: &Transcript| {
        let body = transcript.get(&message("m")).unwrap().body().clone();
        let extras: Vec<_> = body.content.iter().map(|item| item.extra.cloned()).collect();
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let extras: Vec<_> =
            extras.into_iter().map(|extra| extra.map(|extra| value(extra.as_str()))).collect();
        (value(body.content.to_json().as_str()), extras)
    };
    assert_eq!(joined(&read), joined(&transcript));
    assert_eq!(read.get(&message("m")).unwrap().body().content.len(), 4);
}

#[test]
fn an_invalid_row_is_an_error() {
    let head = r#"{"kind":"agent","id":"m","fields":{},"seqs":[0,0,0,0]}"#;
    for (head, content) in [
        ("", ""),
        ("[]", ""),
        ("{}", ""),
        (r#"{"kind":"agent","fields":{},"seqs":[0,0,0,0]}"#, ""),
        (r#"{"kind":"agent","id":7,"fields":{},"seqs":[0,0,0,0]}"#, ""),
        (r#"{"kind":"note","id":"x","fields":{},"seqs":[0,0,0,0]}"#, ""),
        (r#"{"kind":"new","id":"m","fields":{},"seqs":[0,0,0,0]}"#, ""),
        (r#"{"kind":"agent","id":"m","fields":[],"seqs":[0,0,0,0]}"#, ""),
        (r#"{"kind":"agent","id":"m","fields":{},"meta":1,"seqs":[0,0,0,0]}"#, ""),
        (r#"{"kind":"agent","id":"m","fields":{},"seqs":[0,0,0]}"#, ""),
        (r#"{"kind":"agent","id":"m","fields":{},"seqs":[0,0,0,-1]}"#, ""),
        (r#"{"kind":"agent","id":"m","fields":{},"seqs":[0,0,0,0],"cleared":[1]}"#, ""),
        (head, "\n"),
        (head, "\"a\"\n\n"),
        (head, "=x\n"),
        (head, "@\n"),
        (head, "~!\n"),
        (head, "\"a\n"),
        (head, "{\n"),
        (head, "+\n"),
        (head, "+1\u{1e}{\n"),
        (head, "?1\n"),
        (head, "é\n"),
    ] {
        let mut transcript = Transcript::default();
        let bad = transcript.restore_entry(3, 4, head, content, 0).unwrap_err();
        assert_eq!(bad.to_string(), "the stored session is damaged: entry 3", "{head} {content}");
        assert_eq!(transcript, Transcript::default());
    }
    for (name, body) in [
        ("info", "x"),
        ("info", "{}"),
        ("info", r#"{"fields":{},"seqs":1}"#),
        ("state", "{}"),
        ("state", r#"{"activity":"sleeping","fields":{}}"#),
        ("state", r#"{"activity":[],"fields":{}}"#),
        ("state", r#"{"activity":"idle","reason":1,"fields":{}}"#),
        ("state", r#"{"activity":"idle","meta":1,"fields":{}}"#),
        ("state", r#"{"activity":"idle"}"#),
    ] {
        let bad = Transcript::default().restore_slot(name, 1, body);
        assert_eq!(bad, Err(InvalidRow(format!("slot {name}"))), "{body}");
    }
    // A later version may store more.
    for body in ["{}", "[]", "no JSON"] {
        assert_eq!(Transcript::default().restore_slot("weather", 1, body), Ok(()));
    }
}

#[test]
fn inherited_content_has_the_seq_of_the_entry() {
    let (_, rows) = stored_rows([text(message("z"), "-"), text(message("m"), "a"), text(message("m"), "b")]);
    let (_, head, inherited) = &rows.entries[&2];
    // In the fork the entry is the first, and continues with seq 7.
    let content = format!("{inherited}@7\n\"c\"\n\"d\"\n");
    let mut fork = Transcript::default();
    fork.restore_entry(1, 8, head, &content, inherited.len()).unwrap();
    let replay = |since| {
        let mut cursor = ReplayCursor::new(since, 8);
        let updates: Vec<_> = std::iter::from_fn(|| cursor.next(&fork, 1 << 20)).collect();
        updates
    };
    assert_eq!(replay(1), [text(message("m"), "cd")]);
    assert_eq!(replay(7), [text(message("m"), "d")]);
    assert_eq!(replay(8), []);
    assert_eq!(fork.get(&message("m")).unwrap().body().content.to_text(), "abcd");
}

#[test]
fn inherited_output_has_the_seq_of_the_entry() {
    let output = |bytes: &[u8]| Update::Output { terminal: "x".into(), bytes: bytes.to_vec(), extra: None };
    let (_, rows) = stored_rows([output(b"a"), output(b"b")]);
    let (_, head, inherited) = &rows.entries[&1];
    let mut fork = Transcript::default();
    fork.restore_entry(1, 9, head, &format!("{inherited}=9\n~Yw==\n"), inherited.len()).unwrap();
    let mut cursor = ReplayCursor::new(1, 9);
    assert_eq!(cursor.next(&fork, 100), Some(output(b"c")));
    assert_eq!(cursor.next(&fork, 100), None);
}

/// Hooks for which tool calls never end.
const HOOKS: DialectHooks = DialectHooks {
    is_final: |_| false,
    mark_failed: |_| Some(Upsert { fields: object(r#"{"status":"failed"}"#), ..Upsert::default() }),
    turn_end: |_| TurnEnd::Completed,
    event_entry: |_| Upsert::default(),
    mark_cancelled: |_| Some(Upsert { fields: object(r#"{"status":"cancelled"}"#), ..Upsert::default() }),
    linked_settings: |_, _| Vec::new(),
};

/// The transcript of a fork as the store has it.
fn fork_of(parent: &StoredRows, session: &Session, point: &Point) -> Transcript {
    let fork = session.fork(point).unwrap();
    let mut transcript = Transcript::default();
    for moved in fork.entries {
        let (_, head, content) = &parent.entries[&moved.from];
        let head = moved.head.as_ref().unwrap_or(head);
        transcript.restore_entry(moved.to, moved.to, head, content, content.len()).unwrap();
    }
    for row in fork.slots {
        let Row::Slot { name, seq, body } = row else { panic!("{row:?}") };
        transcript.restore_slot(name, seq, &body).unwrap();
    }
    transcript
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Holds for rows that are written at any time, in any number of parts; replays are equal too.
    #[test]
    fn a_restored_transcript_equals_the_original(
        steps in prop::collection::vec((update(), any::<bool>()), 1..60),
        since in 0..60_u64,
    ) {
        let (mut transcript, mut dirty, mut rows) = <(Transcript, DirtyParts, StoredRows)>::default();
        for (update, is_saved) in steps {
            push(&mut transcript, &mut dirty, update);
            if is_saved {
                rows.write(dirty.take_rows(&transcript));
                prop_assert_eq!(text_of(&rows.read()), text_of(&transcript));
            }
        }
        rows.write(dirty.take_rows(&transcript));
        let read = rows.read();
        prop_assert_eq!(&read, &transcript);
        let replay = |transcript: &Transcript| {
            let mut cursor = ReplayCursor::new(since, transcript.seq());
            let updates: Vec<_> = std::iter::from_fn(|| cursor.next(transcript, 20)).collect();
            updates
        };
        prop_assert_eq!(replay(&read), replay(&transcript));
        // A restored transcript writes the same rows as the original.
        let mut again = read;
        let mut more = DirtyParts::default();
        for update in [text(message("a"), "more"), text(message("b"), "more"), text(message("a"), "more")] {
            push(&mut again, &mut more, update);
        }
        rows.write(more.take_rows(&again));
        prop_assert_eq!(&rows.read(), &again);
    }

    /// A fork at any message equals the session up to there, with seqs from 1, and a replay from its end is empty.
    #[test]
    fn a_fork_equals_the_start_of_its_session(
        steps in prop::collection::vec(update(), 1..60),
        place in any::<prop::sample::Index>(),
    ) {
        let (parent, rows) = stored_rows(steps);
        let mut messages = Vec::new();
        for (place, entry) in parent.entries().iter().enumerate() {
            if let EntryId::Message(_, id) = entry.id()
                && !entry.body().removed
            {
                messages.push((place, id.clone()));
            }
        }
        let session = Session::new(parent.clone(), HOOKS, None);
        let (end, point) = match messages.get(place.index(messages.len() + 1)) {
            // A user message and an agent message have the same id here; the user message is found first.
            Some((_, id)) => {
                let (place, _) = messages.iter().find(|(place, other)| other == id
                    && matches!(parent.entries()[*place].id(), EntryId::Message(Role::User, _))
                ).or_else(|| messages.iter().find(|(_, other)| other == id)).unwrap();
                (place + 1, Point::After(id.clone()))
            }
            None => (parent.entries().len(), Point::End),
        };
        let busy = parent.state().is_some_and(|state| state.activity.is_busy());
        prop_assume!(!busy);
        let fork = fork_of(&rows, &session, &point);
        prop_assert_eq!(fork.entries().len(), end);
        for ((number, entry), original) in (1..).zip(fork.entries()).zip(parent.entries()) {
            prop_assert_eq!((entry.created(), entry.seq()), (number, number));
            if !matches!(entry.id(), EntryId::Note(_)) {
                prop_assert_eq!(entry.id(), original.id());
            }
            let mut fields = original.body().fields.clone();
            if matches!(entry.id(), EntryId::ToolCall(_)) {
                fields.merge_keys(&object(r#"{"status":"failed"}"#));
            }
            prop_assert_eq!(&entry.body().fields, &fields);
            prop_assert_eq!(&entry.body().meta, &original.body().meta);
            prop_assert_eq!(&entry.body().content, &original.body().content);
            prop_assert_eq!(&entry.body().output, &original.body().output);
            prop_assert_eq!(entry.body().removed, original.body().removed);
        }
        for slot in [Slot::Info, Slot::Commands, Slot::Options, Slot::Mode] {
            prop_assert_eq!(fork.slot(slot), parent.slot(slot));
        }
        prop_assert!(fork.slot(Slot::Usage).is_none());
        prop_assert!(fork.state().is_none());
        let mut cursor = ReplayCursor::new(fork.seq(), fork.seq());
        prop_assert_eq!(cursor.next(&fork, 1000), None);
    }
}

#[test]
fn an_entry_keeps_the_time_of_its_creation() {
    let (mut transcript, mut dirty, mut rows) = <(Transcript, DirtyParts, StoredRows)>::default();
    let id = EntryId::Message(Role::Agent, "m".into());
    let append = || text(id.clone(), "x");
    for at in [1000, 2000] {
        let change = transcript.push_at(append(), UnixMillis(at)).unwrap();
        dirty.on_applied(&change);
        rows.write(dirty.take_rows(&transcript));
    }
    let restored = rows.read();
    assert_eq!(restored.get(&id).unwrap().created_at(), Some(UnixMillis(1000)));
    // Without a time, and with something else in its place, it is unknown.
    let mut without = Transcript::default();
    for (created, at) in [(1, ""), (2, r#""at":"x","#)] {
        let head = format!(r#"{{"kind":"agent","id":"{created}",{at}"fields":{{}}}}"#);
        without.restore_entry(created, created, &head, "", 0).unwrap();
    }
    assert!(without.entries().iter().all(|entry| entry.created_at().is_none()));
}
