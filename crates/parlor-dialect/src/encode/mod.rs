//! Encodes the model in a dialect: the reverse of `decode`.

pub(crate) mod v1;
pub(crate) mod v2;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_json::{Json, JsonStr, Object, ObjectWriter};
use parlor_session::{Body, Content, MessageId, Patch, Role, Slot, Target, Transcript, Upsert};

use crate::meta::{self, Rule};
use crate::{Dialect, Losses};

/// The inputs and outputs of encoding one update.
pub(crate) struct Context<'a> {
    /// The dialect of the agent.
    pub(crate) from: Dialect,
    /// The session after the update. Messages may be without their content.
    pub(crate) transcript: &'a Transcript,
    /// The metadata of the target before the update.
    pub(crate) meta_before: Option<&'a Object>,
    /// Returns ids that the other dialect needs.
    pub(crate) new_id: &'a mut dyn FnMut() -> MessageId,
    /// Collects what could not be expressed.
    pub(crate) losses: &'a mut Losses,
}

impl Context<'_> {
    /// The current value of a target.
    fn body(&self, target: &Target) -> Option<&Body> {
        match target {
            Target::Entry(id) => self.transcript.get(id).map(parlor_session::Entry::body),
            Target::Slot(slot) => self.transcript.slot(*slot),
        }
    }

    /// The metadata of an upsert, by the merge rule of the receiver's dialect.
    fn meta(&mut self, target: &Target, upsert: &Upsert, dialect: Dialect) -> Patch<Object> {
        let after = self.body(target).and_then(|body| body.meta.clone());
        meta::convert(&upsert.meta, Rule::of(dialect, target), self.meta_before, after.as_ref(), self.losses)
    }

    /// One field of a slot.
    fn slot_field(&self, slot: Slot, name: &str) -> Option<&Json> {
        self.transcript.slot(slot).and_then(|body| body.fields.get(name))
    }
}

/// The metadata key that marks a terminal of a v1 client: v2 has no such difference, and converting back must not
/// show it as text.
const CLIENT_TERMINAL: &str = "parlor/client-terminal";

/// The names of the updates for a whole message of this role, and for a chunk of one.
pub(crate) const fn message_kinds(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::User => ("user_message", "user_message_chunk"),
        Role::Agent => ("agent_message", "agent_message_chunk"),
        Role::Thought => ("agent_thought", "agent_thought_chunk"),
    }
}

/// Writes one chunk.
pub(crate) fn chunk(
    kind: &str,
    id_name: &str,
    id: &JsonStr,
    item: &str,
    extra: Option<&Json>,
) -> ObjectWriter {
    update_writer(kind).json_str(id_name, id).raw("content", item).optional_members(extra)
}

/// Terminal output in its wire form, with its other members.
pub(crate) fn output(bytes: &[u8], extra: Option<&Json>) -> Json {
    let mut output = Object::default();
    output.set("data", base64(bytes));
    output.add_missing(&extra.and_then(Json::to_object).unwrap_or_default());
    output.to_json()
}

fn base64(bytes: &[u8]) -> JsonStr {
    JsonStr::new(&BASE64_STANDARD.encode(bytes))
}

fn patch_json<T>(patch: &Patch<T>, json: impl FnOnce(&T) -> Json) -> Option<Json> {
    match patch {
        Patch::Omitted => None,
        Patch::Clear => Some(Json::null()),
        Patch::Value(value) => Some(json(value)),
    }
}

/// The items of a content list, each converted.
fn each_item(content: &Content, mut convert: impl FnMut(&Object) -> Vec<Object>) -> Vec<Object> {
    let objects = content.iter().filter_map(|item| serde_json::from_str::<Object>(item.json).ok());
    objects.flat_map(|object| convert(&object)).collect()
}

fn array(items: &[Object]) -> Json {
    Json::array(items.iter().map(Object::to_json))
}

/// Starts the text of an update of this kind.
pub(crate) fn update_writer(kind: &str) -> ObjectWriter {
    ObjectWriter::with_capacity(256).str("sessionUpdate", kind)
}
