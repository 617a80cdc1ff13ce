//! Limits of a transcript: an update within a limit is applied, one beyond it is rejected and changes nothing.

use parlor_json::{Json, Object};
use parlor_session::{
    Content, EntryId, Limits, MetaPatch, Patch, Role, Slot, Target, Transcript, Update, UpdateError, Upsert,
};

fn limits() -> Limits {
    Limits { title_chars: 3, meta_bytes: 10, entry_bytes: 20, entries: 2, total_bytes: 30 }
}

fn append(id: &str, item: &str) -> Update {
    let entry = EntryId::Message(Role::Agent, id.into());
    Update::Append { entry, item: Json::parse(item).unwrap(), extra: None }
}

fn upsert(target: Target, upsert: Upsert) -> Update {
    Update::Upsert { target, upsert }
}

fn content(id: &str, array: &str) -> Update {
    let content = Content::parse(serde_json::from_str(array).unwrap()).unwrap();
    let target = Target::Entry(EntryId::Message(Role::Agent, id.into()));
    upsert(target, Upsert { content: Patch::Value(content), ..Upsert::default() })
}

fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap()
}

#[test]
fn an_update_beyond_a_limit_is_rejected_and_changes_nothing() {
    let info = |meta: &str| {
        upsert(
            Target::Slot(Slot::Info),
            Upsert { meta: MetaPatch::MergeDeep(object(meta)), ..Upsert::default() },
        )
    };
    let fields = |id: &str, fields: &str| {
        let target = Target::Entry(EntryId::ToolCall(id.into()));
        upsert(target, Upsert { fields: object(fields), ..Upsert::default() })
    };
    let ten = r#""12345678""#;
    for (before, over, refused) in [
        (
            vec![append("a", ten), append("a", ten)],
            append("a", "1"),
            UpdateError::EntryTooLarge { bytes: 21, limit: 20 },
        ),
        (
            vec![append("a", ten)],
            content("a", r#"["12345678","12345678",1]"#),
            UpdateError::EntryTooLarge { bytes: 21, limit: 20 },
        ),
        (
            vec![append("a", ten), append("b", ten)],
            fields("b", r#"{"f":"0123456789"}"#),
            UpdateError::TranscriptTooLarge { bytes: 38, limit: 30 },
        ),
        (
            vec![append("a", ten), append("a", ten), append("b", ten)],
            append("b", "1"),
            UpdateError::TranscriptTooLarge { bytes: 31, limit: 30 },
        ),
        (
            vec![append("a", ten), append("a", ten), append("b", ten)],
            content("b", r#"["12345678",1]"#),
            UpdateError::TranscriptTooLarge { bytes: 31, limit: 30 },
        ),
        (
            vec![append("a", "1"), append("b", "2")],
            append("c", "3"),
            UpdateError::TooManyEntries { limit: 2 },
        ),
        (vec![info(r#"{"a":123}"#)], info(r#"{"b":1}"#), UpdateError::MetaTooLarge { bytes: 15, limit: 10 }),
        (vec![], info(r#"{"abc":1234}"#), UpdateError::MetaTooLarge { bytes: 12, limit: 10 }),
    ] {
        let mut transcript = Transcript::with_limits(limits());
        before.iter().for_each(|update| drop(transcript.push(update.clone()).unwrap()));
        let then = transcript.clone();
        assert_eq!(transcript.push(over.clone()), Err(refused), "{over:?}");
        assert_eq!(transcript, then);
    }
}

#[test]
fn space_of_removed_content_can_be_used_again() {
    let mut transcript = Transcript::with_limits(limits());
    let twenty = r#"["12345678","12345678"]"#;
    for update in
        [content("a", twenty), content("a", "[1]"), content("b", twenty), content("a", r#"["12345678"]"#)]
    {
        transcript.push(update).unwrap();
    }
    let removed = Update::Remove { entry: EntryId::Message(Role::Agent, "b".into()), extra: None };
    transcript.push(removed).unwrap();
    transcript.push(content("b", twenty)).unwrap();
}

#[test]
fn a_long_title_is_truncated_in_the_change() {
    let mut transcript = Transcript::with_limits(limits());
    let title = Upsert { fields: object(r#"{"title":"abcdef"}"#), ..Upsert::default() };
    let change = transcript.push(upsert(Target::Slot(Slot::Info), title)).unwrap();
    let Update::Upsert { upsert, .. } = change.update else { panic!() };
    assert_eq!(upsert.fields, object(r#"{"title":"abc"}"#));
    assert_eq!(transcript.slot(Slot::Info).unwrap().fields, object(r#"{"title":"abc"}"#));
}
