//! A replay returns everything that a subscriber lacks, and nothing that it has.

use parlor_session::{EntryId, MetaPatch, Patch, ReplayCursor, Slot, Target, Transcript, Update, Upsert};
use proptest::prelude::*;

use crate::updates::{chunk, message, object, text, text_of, update, whole};

const MANY: usize = 1 << 20;

/// All updates of a replay of a transcript that does not change.
fn replay(transcript: &Transcript, since: u64, bytes: usize) -> Vec<Update> {
    let mut cursor = ReplayCursor::new(since, transcript.seq());
    std::iter::from_fn(|| cursor.next(transcript, bytes)).collect()
}

fn push(transcript: &mut Transcript, updates: impl IntoIterator<Item = Update>) -> u64 {
    updates.into_iter().for_each(|update| {
        transcript.push(update).unwrap();
    });
    transcript.seq()
}

/// The text that an update carries.
fn text_in(update: &Update) -> String {
    match update {
        Update::Append { item, .. } => {
            parlor_session::text_of(item.as_str()).unwrap_or_default().into_owned()
        }
        Update::Upsert { upsert: Upsert { content: Patch::Value(content), .. }, .. } => content.to_text(),
        Update::Upsert { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => String::new(),
    }
}

#[test]
fn new_messages_are_replayed_as_a_whole_and_known_ones_as_chunks() {
    let mut transcript = Transcript::default();
    let seen = push(&mut transcript, [text(message("m"), "a"), text(message("m"), "b")]);
    push(&mut transcript, [text(message("m"), "c"), text(message("n"), "x"), text(message("m"), "d")]);
    assert_eq!(
        replay(&transcript, seen, MANY),
        [
            text(message("m"), "cd"),
            Update::Upsert {
                target: Target::Entry(message("n")),
                upsert: Upsert {
                    whole: true,
                    content: Patch::Value(crate::updates::content(r#"[{"type":"text","text":"x"}]"#)),
                    ..Upsert::default()
                },
            },
        ]
    );
    assert_eq!(replay(&transcript, transcript.seq(), MANY), []);
}

#[test]
fn replaced_content_is_replayed_as_a_whole() {
    let mut transcript = Transcript::default();
    let seen = push(&mut transcript, [text(message("m"), "a")]);
    push(&mut transcript, [whole(message("m"), r#"[{"type":"text","text":"b"}]"#), text(message("m"), "c")]);
    assert_eq!(replay(&transcript, seen, MANY), [whole(message("m"), r#"[{"type":"text","text":"bc"}]"#)]);
}

#[test]
fn cleared_fields_are_replayed_as_null() {
    let mut transcript = Transcript::default();
    let fields = |text: &str| Update::Upsert {
        target: Target::Entry(EntryId::ToolCall("t".into())),
        upsert: Upsert { fields: object(text), ..Upsert::default() },
    };
    let seen = push(&mut transcript, [fields(r#"{"title":"a"}"#)]);
    push(&mut transcript, [fields(r#"{"title":null,"status":"open"}"#)]);
    assert_eq!(replay(&transcript, seen, MANY), [fields(r#"{"status":"open","title":null}"#)]);
}

#[test]
fn an_entry_created_again_after_its_removal_has_no_old_parts() {
    let mut transcript = Transcript::default();
    let named = Update::Upsert {
        target: Target::Entry(message("m")),
        upsert: Upsert { fields: object(r#"{"title":"a"}"#), ..Upsert::default() },
    };
    let seen = push(&mut transcript, [text(message("m"), "old"), named]);
    let mut reader = transcript.clone();
    push(&mut transcript, [Update::Remove { entry: message("m"), extra: None }, text(message("m"), "new")]);
    push(&mut reader, replay(&transcript, seen, MANY));
    assert_eq!(text_of(&reader), text_of(&transcript));
}

#[test]
fn an_entry_created_again_by_an_empty_upsert_is_replayed() {
    let mut transcript = Transcript::default();
    let remove = Update::Remove { entry: message("m"), extra: None };
    let seen = push(&mut transcript, [text(message("m"), "old"), remove]);
    let mut reader = transcript.clone();
    let target = Target::Entry(message("m"));
    push(&mut transcript, [Update::Upsert { target, upsert: Upsert::default() }]);
    push(&mut reader, replay(&transcript, seen, MANY));
    assert_eq!(text_of(&reader), text_of(&transcript));
}

#[test]
fn replayed_pieces_respect_the_size_limit() {
    let mut transcript = Transcript::default();
    let line = "x".repeat(1000);
    push(&mut transcript, (0..3000).map(|_| text(message("m"), &line)));
    let pieces = replay(&transcript, 0, MANY);
    assert!(matches!(pieces[0], Update::Upsert { .. }));
    assert!(pieces[1..].iter().all(|piece| matches!(piece, Update::Append { .. })));
    assert_eq!(pieces.len(), 3);
    assert!(pieces.iter().all(|piece| text_in(piece).len() <= MANY));
    assert_eq!(pieces.iter().map(text_in).collect::<String>(), line.repeat(3000));
    // An item is not cut.
    assert_eq!(replay(&transcript, 0, 10).len(), 3000);
}

#[test]
fn output_is_replayed_in_pieces() {
    let mut transcript = Transcript::default();
    let output =
        |bytes: usize| Update::Output { terminal: "t".into(), bytes: vec![b'x'; bytes], extra: None };
    let seen = push(&mut transcript, [output(10)]);
    push(&mut transcript, [output(25)]);
    assert_eq!(replay(&transcript, seen, 10), [output(10), output(10), output(5)]);
    assert_eq!(replay(&transcript, 0, 20).len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each letter of a transcript without replacements is replayed once, however replays and changes interleave.
    #[test]
    fn no_text_is_replayed_twice(
        steps in prop::collection::vec((0..3_usize, 0..4_usize, 1..200_usize), 1..60)
    ) {
        let (mut transcript, mut number, mut heard) = (Transcript::default(), 0, String::new());
        let mut cursor = ReplayCursor::new(0, 0);
        let mut read = |transcript: &Transcript, bytes: usize, heard: &mut String| {
            match cursor.next(transcript, bytes) {
                Some(update) => heard.push_str(&text_in(&update)),
                None => cursor = ReplayCursor::new(cursor.through(), transcript.seq()),
            }
            cursor == ReplayCursor::new(transcript.seq(), transcript.seq())
        };
        for (entry, reads, bytes) in steps {
            number += 1;
            push(&mut transcript, [chunk(message(["a", "b", "c"][entry]), number)]);
            for _ in 0..reads {
                read(&transcript, bytes, &mut heard);
            }
        }
        while !read(&transcript, 100, &mut heard) {}
        let mut letters: Vec<_> = heard.split_inclusive(']').collect();
        letters.sort_unstable();
        let mut all: Vec<_> = (1..=number).map(|number| format!("[{number}]")).collect();
        all.sort_unstable();
        prop_assert_eq!(letters, all);
    }

    /// A replay in pieces of any size ends with an equal transcript.
    #[test]
    fn a_replay_ends_with_an_equal_transcript(
        steps in prop::collection::vec((update(), 0..4_usize, 1..60_usize), 1..60)
    ) {
        let (mut transcript, mut reader) = (Transcript::default(), Transcript::default());
        let mut cursor = ReplayCursor::new(0, 0);
        let mut read = |transcript: &Transcript, bytes: usize, reader: &mut Transcript| {
            match cursor.next(transcript, bytes) {
                Some(update) => {
                    push(reader, [update]);
                }
                None => cursor = ReplayCursor::new(cursor.through(), transcript.seq()),
            }
            cursor == ReplayCursor::new(transcript.seq(), transcript.seq())
        };
        for (update, reads, bytes) in steps {
            push(&mut transcript, [update]);
            for _ in 0..reads {
                read(&transcript, bytes, &mut reader);
            }
        }
        while !read(&transcript, 100, &mut reader) {}
        prop_assert_eq!(text_of(&reader), text_of(&transcript));
    }
}

#[test]
fn a_changed_plan_is_replayed_as_a_whole() {
    let plan = || Target::Entry(EntryId::Plan("p".into()));
    let whole = |fields: &str, meta: MetaPatch| Update::Upsert {
        target: plan(),
        upsert: Upsert { whole: true, fields: object(fields), meta, ..Upsert::default() },
    };
    let mut transcript = Transcript::default();
    let seen = push(&mut transcript, [whole(r#"{"plan":1}"#, MetaPatch::Clear)]);
    push(&mut transcript, [whole(r#"{"plan":2}"#, MetaPatch::Replace(object(r#"{"a":1}"#)))]);
    assert_eq!(
        replay(&transcript, seen, MANY),
        [whole(r#"{"plan":2}"#, MetaPatch::Replace(object(r#"{"a":1}"#)))]
    );
}

#[test]
fn a_changed_report_is_replayed_in_one_update_with_its_metadata() {
    let commands = |fields: &str, meta: MetaPatch| Update::Upsert {
        target: Target::Slot(Slot::Commands),
        upsert: Upsert { whole: true, fields: object(fields), meta, ..Upsert::default() },
    };
    let mut transcript = Transcript::default();
    let seen = push(&mut transcript, [commands(r#"{"availableCommands":[]}"#, MetaPatch::Clear)]);
    let meta = || MetaPatch::Replace(object(r#"{"a":1}"#));
    push(&mut transcript, [commands(r#"{"availableCommands":[1]}"#, meta())]);
    let updates = replay(&transcript, seen, MANY);
    let [Update::Upsert { upsert, .. }] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!((&upsert.fields, &upsert.meta), (&object(r#"{"availableCommands":[1]}"#), &meta()));
}
