//! The words of the core, said in a dialect: the way back from `decode`.

pub(crate) mod v1;
pub(crate) mod v2;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Body, Content, MessageId, Patch, Role, Slot, Target, Transcript, Upsert};

use crate::meta::{self, Rule};
use crate::text::ObjectText;
use crate::{Dialect, Losses};

/// What an encoder may look at and has to fill while it says one update.
pub(crate) struct Context<'a> {
    /// The dialect of the agent.
    pub(crate) from: Dialect,
    /// The session as it is after the update. Messages may be in it without their content.
    pub(crate) transcript: &'a Transcript,
    /// The metadata of what is updated, as it was before.
    pub(crate) meta_before: Option<&'a Object>,
    /// Where ids come from that the other dialect needs.
    pub(crate) fresh: &'a mut dyn FnMut() -> MessageId,
    /// What could not be said.
    pub(crate) losses: &'a mut Losses,
}

impl Context<'_> {
    /// What is known of a target now.
    fn body(&self, target: &Target) -> Option<&Body> {
        match target {
            Target::Entry(id) => self.transcript.get(id).map(parlor_session::Entry::body),
            Target::Slot(slot) => self.transcript.slot(*slot),
        }
    }

    /// The metadata of an upsert, by the rule of the dialect that hears of it.
    fn meta(&mut self, target: &Target, upsert: &Upsert, dialect: Dialect) -> Patch<Object> {
        let after = self.body(target).and_then(|body| body.meta.clone());
        meta::say(&upsert.meta, Rule::of(dialect, target), self.meta_before, after.as_ref(), self.losses)
    }

    /// One field of a slot.
    fn slot_field(&self, slot: Slot, name: &str) -> Option<&Json> {
        self.transcript.slot(slot).and_then(|body| body.fields.get(name))
    }
}

/// The note on a terminal that belongs to a v1 client: for v2 it is one like any other, and on the way back it must
/// not be shown as text.
const CLIENT_TERMINAL: &str = "parlor/client-terminal";

/// The word for a message of this role in whole, and for a chunk of one.
pub(crate) const fn message_kinds(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::User => ("user_message", "user_message_chunk"),
        Role::Agent => ("agent_message", "agent_message_chunk"),
        Role::Thought => ("agent_thought", "agent_thought_chunk"),
    }
}

/// The text of one chunk.
pub(crate) fn chunk(kind: &str, id_name: &str, id: &JsonStr, item: &str, extra: Option<&Json>) -> String {
    ObjectText::update(kind).string(id_name, id).raw("content", item).extra(extra).finish()
}

/// Terminal output as the wire carries it, with what else was said about it.
pub(crate) fn output(bytes: &[u8], said: Option<&Json>) -> Json {
    let mut output = Object::default();
    output.set("data", base64(bytes));
    output.add_missing(&said.and_then(Json::to_object).unwrap_or_default());
    output.to_json()
}

fn base64(bytes: &[u8]) -> JsonStr {
    JsonStr::new(&BASE64_STANDARD.encode(bytes))
}

fn patch_text<T>(patch: &Patch<T>, text: impl FnOnce(&T) -> String) -> Option<String> {
    match patch {
        Patch::Omitted => None,
        Patch::Clear => Some("null".to_owned()),
        Patch::Value(value) => Some(text(value)),
    }
}

/// The items of a content list, each converted.
fn each_item(content: &Content, mut convert: impl FnMut(&Object) -> Vec<Object>) -> Vec<Object> {
    let objects = content.iter().filter_map(|item| serde_json::from_str::<Object>(item.json).ok());
    objects.flat_map(|object| convert(&object)).collect()
}

fn array(items: &[Object]) -> String {
    let texts: Vec<_> = items.iter().map(|item| item.to_json().as_str().to_owned()).collect();
    format!("[{}]", texts.join(","))
}
