//! Random updates of a transcript.

use std::collections::BTreeMap;

use parlor_json::{Json, Object};
use parlor_session::{
    Activity, Body, Content, EntryId, MetaPatch, Patch, Role, Slot, State, Target, Transcript, Update, Upsert,
};
use proptest::prelude::*;

pub(crate) fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn content(array: &str) -> Content {
    Content::parse(serde_json::from_str(array).unwrap()).unwrap()
}

pub(crate) fn message(id: &str) -> EntryId {
    EntryId::Message(Role::Agent, id.into())
}

pub(crate) fn text(entry: EntryId, text: &str) -> Update {
    let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
    Update::Append { entry, item, extra: None }
}

pub(crate) fn whole(entry: EntryId, blocks: &str) -> Update {
    let upsert = Upsert { content: Patch::Value(content(blocks)), ..Upsert::default() };
    Update::Upsert { target: Target::Entry(entry), upsert }
}

/// A letter that occurs once in a transcript, so that repeated text is detected.
pub(crate) fn chunk(entry: EntryId, number: usize) -> Update {
    text(entry, &format!("[{number}]"))
}

/// Updates of all kinds for few entries.
pub(crate) fn update() -> impl Strategy<Value = Update> {
    let entry = || {
        prop::sample::select(vec![
            message("a"),
            message("b"),
            EntryId::Message(Role::User, "a".into()),
            EntryId::ToolCall("t".into()),
        ])
    };
    let terminal = || EntryId::Terminal("t".into());
    let item = prop::sample::select(vec![
        r#"{"type":"text","text":"x"}"#,
        r#"{"type":"text","text":"\"y\n"}"#,
        r#"{"type":"text","text":"z","more":1}"#,
        r#"{"type":"image"}"#,
        "7",
    ]);
    let item = item.prop_map(|item| Json::parse(item).unwrap());
    let extra = prop::option::weighted(0.2, Just(Json::parse(r#"{"k":1}"#).unwrap()));
    let fields = prop::sample::select(vec![
        "{}",
        r#"{"title":"one"}"#,
        r#"{"title":null,"status":"open"}"#,
        r#"{"status":null}"#,
    ]);
    let fields = fields.prop_map(object).boxed();
    let meta = prop::sample::select(vec![
        MetaPatch::Keep,
        MetaPatch::Clear,
        MetaPatch::Replace(object(r#"{"a":{"b":1}}"#)),
        MetaPatch::MergeKeys(object(r#"{"c":1,"a":null}"#)),
        MetaPatch::MergeDeep(object(r#"{"a":{"b":null,"d":1}}"#)),
    ])
    .boxed();
    let blocks = prop::sample::select(vec![
        Patch::Omitted,
        Patch::Omitted,
        Patch::Clear,
        Patch::Value(content("[]")),
        Patch::Value(content(r#"[{"type":"text","text":"w"},{"type":"text","text":"v"},8]"#)),
    ]);
    let bytes = prop::sample::select(vec![Patch::Omitted, Patch::Clear, Patch::Value(b"out".to_vec())]);
    let upsert =
        (any::<bool>(), fields.clone(), blocks, meta.clone()).prop_map(|(whole, fields, content, meta)| {
            Upsert { whole, fields, content, output: Patch::Omitted, meta }
        });
    let shown = (fields.clone(), bytes, meta.clone()).prop_map(|(fields, output, meta)| Upsert {
        whole: false,
        fields,
        content: Patch::Omitted,
        output,
        meta,
    });
    let slot = (prop::sample::select(Slot::ALL.to_vec()), fields, meta)
        .prop_map(|(slot, fields, meta)| (slot, Upsert { fields, meta, ..Upsert::default() }));
    let activity = prop::sample::select(vec![
        Activity::Running,
        Activity::Idle,
        Activity::RequiresAction,
        Activity::Other("odd".into()),
    ]);
    prop_oneof![
        6 => (entry(), item, extra).prop_map(|(entry, item, extra)| Update::Append { entry, item, extra }),
        2 => (entry(), upsert).prop_map(|(entry, upsert)| Update::Upsert { target: Target::Entry(entry), upsert }),
        1 => shown.prop_map(move |upsert| Update::Upsert { target: Target::Entry(terminal()), upsert }),
        2 => prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| Update::Output {
            terminal: "t".into(),
            bytes,
            extra: None,
        }),
        1 => entry().prop_map(|entry| Update::Remove { entry, extra: None }),
        1 => Just(Update::Note { fields: object(r#"{"n":1}"#) }),
        1 => slot.prop_map(|(slot, upsert)| Update::Upsert { target: Target::Slot(slot), upsert }),
        1 => (activity, prop::option::of(Just("end"))).prop_map(|(activity, reason)| Update::State(State {
            activity,
            stop_reason: reason.map(Into::into),
            fields: object(r#"{"usage":1}"#),
            meta: reason.map(|_| object("{}")),
        })),
    ]
}

/// A transcript as text, without its seqs and block boundaries. Empty metadata counts as none.
pub(crate) fn text_of(transcript: &Transcript) -> Vec<String> {
    let body = |body: &Body| {
        let meta = body.meta.as_ref().filter(|meta| !meta.is_empty()).map(sorted);
        format!(
            "{} {} {:?} {meta:?} {}",
            sorted(&body.fields),
            body.content.joined().to_json().as_str(),
            body.output,
            body.removed
        )
    };
    let id = |entry: &EntryId| match entry {
        EntryId::Note(_) => "note".to_owned(),
        EntryId::Message(..)
        | EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_) => format!("{entry:?}"),
    };
    let entries =
        transcript.entries().iter().map(|entry| format!("{}: {}", id(entry.id()), body(entry.body())));
    let slots = Slot::ALL.into_iter().filter_map(|slot| Some((slot, transcript.slot(slot)?)));
    let slots = slots.map(|(slot, found)| format!("{slot:?}: {}", body(found)));
    entries.chain(slots).chain(transcript.state().map(|state| format!("{state:?}"))).collect()
}

/// The members sorted by name, without nulls, which a whole upsert keeps.
fn sorted(object: &Object) -> String {
    let members: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(object.to_json().as_str()).unwrap();
    let members: BTreeMap<_, _> = members.into_iter().filter(|(_, value)| !value.is_null()).collect();
    format!("{members:?}")
}
