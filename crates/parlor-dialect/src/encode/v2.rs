//! Updates for a v2 peer, as published or with the drafts. Everything in the model can be expressed.

use parlor_json::{Json, JsonStr, Object, ObjectWriter};
use parlor_session::{Content, EntryId, Patch, Slot, State, Target, Update, Upsert};

use super::{CLIENT_TERMINAL, Context, array, base64, chunk, each_item, message_kinds, output, patch_json};
use crate::encode::update_writer;
use crate::values::{commands, options, tool_content};
use crate::view::activity_name;
use crate::{Dialect, LossKind, Losses, json_ext};

/// Encodes an update.
pub(crate) fn updates(update: &Update, dialect: Dialect, cx: &mut Context<'_>) -> Vec<String> {
    match update {
        Update::Upsert { target, upsert } => upsert_text(target, upsert, dialect, cx),
        Update::Append { entry, item, extra } => {
            append(entry, item, extra.as_ref(), cx.from).into_iter().collect()
        }
        Update::Output { terminal, bytes, extra } => {
            let text = update_writer("terminal_output_chunk").json_str("terminalId", terminal.as_json());
            vec![text.json_str("data", &base64(bytes)).optional_members(extra.as_ref()).finish()]
        }
        Update::Remove { entry: EntryId::Plan(id), extra } => {
            let text = update_writer("plan_removed").json_str("planId", id.as_json());
            vec![text.optional_members(extra.as_ref()).finish()]
        }
        Update::Remove { .. } => Vec::new(),
        Update::Note { fields } => vec![fields.text()],
        Update::State(state) => vec![state_writer(state, dialect).finish()],
    }
}

/// The update that clears the content of a message.
pub(crate) fn cleared(entry: &EntryId) -> Option<String> {
    let EntryId::Message(role, id) = entry else { return None };
    let text = update_writer(message_kinds(*role).0).json_str("messageId", id.as_json());
    Some(text.raw("content", "[]").finish())
}

/// The report of a state.
pub(crate) fn state_writer(state: &State, dialect: Dialect) -> ObjectWriter {
    let (kind, reason) = match dialect {
        Dialect::Draft => ("state_change", "stop_reason"),
        Dialect::V1 | Dialect::V2 => ("state_update", "stopReason"),
    };
    let text = update_writer(kind).json_str("state", &activity_name(&state.activity));
    let text = text.optional_raw(reason, state.stop_reason.as_ref().map(JsonStr::as_literal));
    let meta = state.meta.as_ref().map(Object::to_json);
    text.members(&state.fields).optional_json("_meta", meta.as_ref())
}

/// All options of a session, including its modes and models if the agent has no options for them.
pub(crate) fn option_list(
    options: Option<&Json>,
    modes: Option<&Object>,
    models: Option<&Object>,
    losses: &mut Losses,
) -> Json {
    let list = match options.and_then(Json::elements) {
        Some(options) => options.into_iter().map(Json::from).collect(),
        None => Vec::new(),
    };
    let listed = options::to_v2(&Json::array(&list), losses);
    let modes = modes.filter(|_| options::mode_option(&listed).is_none());
    let made = [modes.and_then(options::modes_to_option), generated_model(&listed, models)];
    with_options(listed, made.into_iter().flatten())
}

/// The option for the models of an agent that has none among these options.
fn generated_model(options: &Json, models: Option<&Object>) -> Option<Object> {
    let models = models.filter(|_| !options::has_choice_of(options, options::MODEL));
    models.and_then(options::models_to_option)
}

fn with_options(list: Json, more: impl Iterator<Item = Object>) -> Json {
    let mut more = more.peekable();
    if more.peek().is_none() {
        return list;
    }
    let mut list: Vec<_> = list.elements().unwrap_or_default().into_iter().map(Json::from).collect();
    list.extend(more.map(|option| option.to_json()));
    Json::array(&list)
}

/// Adds the models of an agent that has no option for them to a list of options.
pub(crate) fn with_models(options: &Json, models: Option<&Object>) -> Json {
    with_options(options.clone(), generated_model(options, models).into_iter())
}

/// Converts an item of tool content from an agent of this dialect.
fn tool_item(item: &Object, from: Dialect) -> Object {
    let mut converted = tool_content::item_to_v2(item);
    if from == Dialect::V1 && item.get_str("type").as_deref() == Some("terminal") {
        converted.set_nested("_meta", CLIENT_TERMINAL, true);
    }
    converted
}

/// Converts a v1 agent's tool call in a request to v2.
pub(crate) fn tool_call(call: &Object) -> Object {
    let mut call = tool_fields(call.clone());
    json_ext::each_in(&mut call, "content", |item| Some(tool_item(&item, Dialect::V1)));
    call
}

fn tool_fields(mut fields: Object) -> Object {
    if let Some(locations) = fields.get("locations").cloned() {
        fields.set("locations", tool_content::locations_to_v2(&locations));
    }
    fields
}

fn append(entry: &EntryId, item: &Json, extra: Option<&Json>, from: Dialect) -> Option<String> {
    let writer = match entry {
        EntryId::Message(role, id) => {
            chunk(message_kinds(*role).1, "messageId", id.as_json(), item.as_str(), extra)
        }
        EntryId::ToolCall(id) => {
            let item = match Object::parse(item.raw()) {
                Ok(object) => tool_item(&object, from).to_json(),
                Err(_) => item.clone(),
            };
            chunk("tool_call_content_chunk", "toolCallId", id.as_json(), item.as_str(), extra)
        }
        EntryId::Compaction(id) => {
            chunk("compaction_summary_chunk", "compactionId", id.as_json(), item.as_str(), extra)
        }
        EntryId::SessionMessage(id) => {
            chunk("session_message_chunk", "messageId", id.as_json(), item.as_str(), extra)
        }
        EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Subagent(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => return None,
    };
    Some(writer.finish())
}

fn upsert_text(target: &Target, upsert: &Upsert, dialect: Dialect, cx: &mut Context<'_>) -> Vec<String> {
    let meta = cx.meta(target, upsert, dialect);
    let meta = patch_json(&meta, Object::to_json);
    let fields = &upsert.fields;
    let content = || patch_json(&upsert.content, Content::to_json);
    let text = match target {
        Target::Entry(EntryId::Message(role, id)) => update_writer(message_kinds(*role).0)
            .json_str("messageId", id.as_json())
            .members(fields)
            .optional_json("content", content().as_ref()),
        Target::Entry(EntryId::ToolCall(id)) => {
            let fields = tool_fields(fields.clone());
            let items = patch_json(&upsert.content, |content| {
                array(&each_item(content, |item| vec![tool_item(item, cx.from)]))
            });
            let text = update_writer("tool_call_update").json_str("toolCallId", id.as_json());
            text.members(&fields).optional_json("content", items.as_ref())
        }
        Target::Entry(EntryId::Plan(_)) => update_writer("plan_update").members(fields),
        Target::Entry(EntryId::Terminal(id)) => {
            let mut fields = fields.clone();
            let extra = fields.remove("output");
            let output = match &upsert.output {
                Patch::Omitted => None,
                Patch::Clear => Some(Json::null()),
                Patch::Value(bytes) => Some(output(bytes, extra.as_ref())),
            };
            let text = update_writer("terminal_update").json_str("terminalId", id.as_json());
            text.members(&fields).optional_json("output", output.as_ref())
        }
        Target::Entry(EntryId::Compaction(id)) => update_writer("compaction_update")
            .json_str("compactionId", id.as_json())
            .members(fields)
            .optional_json("summary", content().as_ref()),
        Target::Entry(EntryId::Subagent(id)) => {
            update_writer("subagent_update").json_str("sessionId", id.as_json()).members(fields)
        }
        Target::Entry(EntryId::SessionMessage(id)) => update_writer("session_message")
            .json_str("messageId", id.as_json())
            .members(fields)
            .optional_json("content", content().as_ref()),
        Target::Entry(EntryId::Event(id)) => {
            update_writer(crate::event::UPDATE).json_str("eventId", id.as_json()).members(fields)
        }
        Target::Entry(EntryId::Note(_)) => return vec![fields.text()],
        Target::Slot(Slot::Info) => update_writer("session_info_update").members(fields),
        Target::Slot(Slot::Usage) => update_writer("usage_update").members(fields),
        Target::Slot(Slot::Commands) => {
            let mut fields = fields.clone();
            if let Some(list) = fields.get("availableCommands").cloned() {
                fields.set("availableCommands", commands::to_v2(&list));
            }
            update_writer("available_commands_update").members(&fields)
        }
        // A mode is one of the options, so that either report carries all of them.
        Target::Slot(slot @ (Slot::Options | Slot::Mode | Slot::Model)) => {
            let options = cx.slot_field(Slot::Options, "configOptions").cloned();
            let modes = cx.transcript.slot(Slot::Mode).map(|body| body.fields.clone());
            let models = cx.transcript.slot(Slot::Model).map(|body| body.fields.clone());
            let mut list = option_list(options.as_ref(), modes.as_ref(), models.as_ref(), cx.losses);
            if let (Slot::Mode, Some(current)) = (slot, fields.get("currentModeId")) {
                // If the agent has an option for its modes, that option changed.
                let Some(changed) = options::with_mode(&list, current) else {
                    cx.losses.add(LossKind::Mode);
                    return Vec::new();
                };
                list = changed;
            }
            let text = update_writer("config_option_update").raw("configOptions", list.as_str());
            let known =
                ["configOptions", "currentModeId", "availableModes", "currentModelId", "availableModels"];
            let mut rest = fields.clone();
            known.iter().for_each(|name| drop(rest.remove(name)));
            text.members(&rest)
        }
    };
    // The metadata of a report is replaced with it; only patches can clear metadata.
    let is_report = matches!(
        target,
        Target::Slot(Slot::Usage | Slot::Commands | Slot::Options | Slot::Mode | Slot::Model)
            | Target::Entry(EntryId::Plan(_))
    );
    vec![text.optional_json("_meta", meta.as_ref().filter(|meta| !is_report || !meta.is_null())).finish()]
}
