//! Interprets the state, settings and tool calls of a session for the server.

use parlor_json::{Json, JsonStr, Object, Type};
use parlor_session::session::{DialectHooks, TITLE_MARK};
use parlor_session::{Activity, Body, MetaPatch, Slot, State, TITLE, Target, Transcript, Update, Upsert};
use parlor_wire::{Outcome, RpcError};

use crate::encode::v2;
use crate::values::tool_content::item_to_v2;
use crate::values::turn_end;
use crate::view::activity_name;
use crate::{Dialect, Losses, event};

/// The hooks of sessions, for all dialects.
pub const HOOKS: DialectHooks = DialectHooks {
    is_final: |body| !is_open(body),
    mark_failed: |body| closed(body, "failed"),
    mark_cancelled: |body| closed(body, "cancelled"),
    turn_end: event::turn_end,
    event_entry: event::upsert,
    linked_settings: crate::settings::linked_settings,
};

fn is_open(body: &Body) -> bool {
    !matches!(body.fields.get_string("status").as_deref(), Some("completed" | "failed" | "cancelled"))
}

fn closed(body: &Body, status: &str) -> Option<Upsert> {
    is_open(body).then(|| {
        let mut fields = Object::default();
        fields.set("status", status);
        Upsert { fields, ..Upsert::default() }
    })
}

/// The name of a session's activity.
pub fn state_name(transcript: &Transcript) -> JsonStr {
    transcript.state().map_or_else(|| JsonStr::new("idle"), |state| activity_name(&state.activity))
}

/// Whether a session is idle.
pub fn is_idle(transcript: &Transcript) -> bool {
    transcript.state().is_none_or(|state| state.activity == Activity::Idle)
}

/// The state of a session for a response to a client. A session without a turn is idle.
pub fn state_snapshot(transcript: &Transcript, dialect: Dialect) -> Object {
    let state = transcript.state().map(|state| v2::state_writer(state, dialect).into_json());
    let mut snapshot = state.and_then(|state| state.to_object()).unwrap_or_else(|| {
        let mut idle = Object::default();
        idle.set("state", "idle");
        idle
    });
    snapshot.remove("sessionUpdate");
    snapshot
}

/// The updates of slots for the settings and commands in a response of the agent.
pub fn updates_from_response(result: &Object) -> Vec<Update> {
    let slot = |slot: Slot, fields: Object, whole: bool| {
        let upsert = Upsert { whole, fields, meta: MetaPatch::Keep, ..Upsert::default() };
        Update::Upsert { target: Target::Slot(slot), upsert }
    };
    let mut updates = Vec::new();
    if let Some(modes) = result.get_object("modes") {
        updates.push(slot(Slot::Mode, modes, true));
    }
    if let Some(models) = result.get_object("models") {
        updates.push(slot(Slot::Model, models, true));
    }
    for (name, kind) in [("configOptions", Slot::Options), ("availableCommands", Slot::Commands)] {
        if let Some(list) = result.get(name).filter(|list| list.type_of() == Type::Array) {
            let mut fields = Object::default();
            fields.set(name, list.clone());
            updates.push(slot(kind, fields, true));
        }
    }
    updates
}

/// The state of the session after the response to a v1 prompt.
pub fn state_after(outcome: Outcome<'_>) -> State {
    turn_end::idle(outcome)
}

/// The state of a session whose turn ended with an error.
pub fn failed_state(error: &RpcError) -> State {
    turn_end::idle(Outcome::Error(error.to_json().raw()))
}

/// The metadata key for the message id in the response to a v1 prompt.
pub const MESSAGE: &str = turn_end::MESSAGE;

/// The result of a v1 client's prompt whose turn ended with this state. The members of a v1 agent's response are
/// unchanged; those of other agents, such as usage, go into the metadata.
pub fn turn_result(
    state: &State,
    accepted: &Object,
    agent: Dialect,
    losses: &mut Losses,
) -> Result<Object, RpcError> {
    let result = turn_end::v1_result(state, Some(accepted), losses)?;
    if agent == Dialect::V1 {
        return Ok(result);
    }
    let (mut known, mut rest) = (Object::default(), Object::default());
    for (name, value) in result.iter() {
        let is_known = matches!(name.inner(), "stopReason" | "_meta");
        if is_known { &mut known } else { &mut rest }.set(name.clone(), value.clone());
    }
    known.remove_nested("_meta", turn_end::USAGE);
    if !rest.is_empty() {
        known.set_nested("_meta", TURN, rest.to_json());
    }
    Ok(known)
}

/// Whether the token counts of the turn that ended in this state are those of the whole session.
pub fn counts_session(state: &State) -> bool {
    let mark = state.meta.as_ref().and_then(|meta| meta.get_json_str(turn_end::USAGE));
    mark.is_some_and(|mark| mark.inner() == "session")
}

/// The metadata key for members of a turn's end that v1 does not have.
const TURN: &str = "parlor/turn";

/// Removes a generated title and its mark from an update of an agent that is itself a parlor server: this server
/// generates its own. If the agent's own title is shown, the update clears it. Returns whether there was one.
pub fn drop_generated_title(update: &mut Update, transcript: &Transcript) -> bool {
    let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = update else { return false };
    let (MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta)) =
        &mut upsert.meta
    else {
        return false;
    };
    // The mark is null if a title replaces a generated one.
    if meta.get(TITLE_MARK).is_some_and(Json::is_null) {
        meta.remove(TITLE_MARK);
        return false;
    }
    if meta.get_str(TITLE_MARK).as_deref() != Some("made") {
        return false;
    }
    meta.remove(TITLE_MARK);
    let had_title = upsert.fields.remove(TITLE).is_some();
    let is_marked = |info: &Body| info.meta.as_ref().is_some_and(|meta| meta.get(TITLE_MARK).is_some());
    let shown = transcript.slot(Slot::Info).filter(|info| info.fields.get(TITLE).is_some());
    if had_title && shown.is_some_and(|info| !is_marked(info)) {
        upsert.fields.set(TITLE, Json::null());
    }
    had_title
}

/// The v2 tool content for a changed file. Without `old` the file is new.
pub fn diff(path: &str, old: Option<&str>, new: &str) -> Json {
    let mut item = Object::default();
    item.set("type", "diff");
    item.set("path", path);
    item.set("oldText", old.map_or_else(Json::null, Json::from));
    item.set("newText", new);
    item_to_v2(&item).to_json()
}
