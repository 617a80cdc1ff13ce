//! Updates for a peer that speaks v2, as published or as the drafts spell it. All of the core can be said.

use parlor_json::{Json, JsonStr, Object};
use parlor_session::{EntryId, Patch, Slot, State, Target, Update, Upsert};

use super::{CLIENT_TERMINAL, Context, array, base64, chunk, each_item, message_kinds, output, patch_text};
use crate::text::ObjectText;
use crate::values::{commands, options, tool_content};
use crate::view::activity_name;
use crate::{Dialect, LossKind, Losses, shape};

/// The updates that say `update`.
pub(crate) fn updates(update: &Update, dialect: Dialect, cx: &mut Context<'_>) -> Vec<String> {
    match update {
        Update::Upsert { target, upsert } => upsert_text(target, upsert, dialect, cx),
        Update::Append { entry, item, extra } => {
            append(entry, item, extra.as_ref(), cx.from).into_iter().collect()
        }
        Update::Output { terminal, bytes, extra } => {
            let text = ObjectText::update("terminal_output_chunk").string("terminalId", terminal.as_json());
            vec![text.string("data", &base64(bytes)).extra(extra.as_ref()).finish()]
        }
        Update::Remove { entry: EntryId::Plan(id), extra } => {
            let text = ObjectText::update("plan_removed").string("planId", id.as_json());
            vec![text.extra(extra.as_ref()).finish()]
        }
        Update::Remove { .. } => Vec::new(),
        Update::Note { fields } => vec![fields.to_json().as_str().to_owned()],
        Update::State(state) => vec![state_text(state, dialect)],
    }
}

/// The update that takes all content from a message.
pub(crate) fn cleared(entry: &EntryId) -> Option<String> {
    let EntryId::Message(role, id) = entry else { return None };
    let text = ObjectText::update(message_kinds(*role).0).string("messageId", id.as_json());
    Some(text.raw("content", "[]").finish())
}

/// The report of a state.
pub(crate) fn state_text(state: &State, dialect: Dialect) -> String {
    let (kind, reason) = match dialect {
        Dialect::Draft => ("state_change", "stop_reason"),
        Dialect::V1 | Dialect::V2 => ("state_update", "stopReason"),
    };
    let text = ObjectText::update(kind).string("state", &activity_name(&state.activity));
    let text = text.maybe(reason, state.stop_reason.as_ref().map(JsonStr::as_literal));
    let meta = state.meta.as_ref().map(Object::to_json);
    text.members(&state.fields).maybe("_meta", meta.as_ref().map(Json::as_str)).finish()
}

/// All options of a session, with its modes and models among them where the agent has these and no options for them.
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
    let made = [modes.and_then(options::modes_to_option), made_model(&listed, models)];
    with_options(listed, made.into_iter().flatten())
}

/// The option for the models of an agent that has none among these options.
fn made_model(options: &Json, models: Option<&Object>) -> Option<Object> {
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

/// The options of a list, and the models of an agent that has no option for them.
pub(crate) fn with_models(options: &Json, models: Option<&Object>) -> Json {
    with_options(options.clone(), made_model(options, models).into_iter())
}

/// An item of tool content from an agent of this dialect.
fn tool_item(item: &Object, from: Dialect) -> Object {
    let mut said = tool_content::item_to_v2(item);
    if from == Dialect::V1 && item.get_string("type").as_deref() == Some("terminal") {
        shape::note(&mut said, CLIENT_TERMINAL, shape::json("true"));
    }
    said
}

/// A v1 agent's tool call as it stands in a request, in the words of v2.
pub(crate) fn tool_call(call: &Object) -> Object {
    let mut call = tool_fields(call.clone());
    shape::each_in(&mut call, "content", |item| Some(tool_item(&item, Dialect::V1)));
    call
}

fn tool_fields(mut fields: Object) -> Object {
    if let Some(locations) = fields.get("locations").cloned() {
        fields.set("locations", tool_content::locations_to_v2(&locations));
    }
    fields
}

fn append(entry: &EntryId, item: &Json, extra: Option<&Json>, from: Dialect) -> Option<String> {
    Some(match entry {
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
    })
}

fn upsert_text(target: &Target, upsert: &Upsert, dialect: Dialect, cx: &mut Context<'_>) -> Vec<String> {
    let meta = cx.meta(target, upsert, dialect);
    let meta = patch_text(&meta, |meta| meta.to_json().as_str().to_owned());
    let fields = &upsert.fields;
    let content = || patch_text(&upsert.content, |content| content.to_json().as_str().to_owned());
    let text = match target {
        Target::Entry(EntryId::Message(role, id)) => ObjectText::update(message_kinds(*role).0)
            .string("messageId", id.as_json())
            .members(fields)
            .maybe("content", content().as_deref()),
        Target::Entry(EntryId::ToolCall(id)) => {
            let fields = tool_fields(fields.clone());
            let items = patch_text(&upsert.content, |content| {
                array(&each_item(content, |item| vec![tool_item(item, cx.from)]))
            });
            let text = ObjectText::update("tool_call_update").string("toolCallId", id.as_json());
            text.members(&fields).maybe("content", items.as_deref())
        }
        Target::Entry(EntryId::Plan(_)) => ObjectText::update("plan_update").members(fields),
        Target::Entry(EntryId::Terminal(id)) => {
            let mut fields = fields.clone();
            let said = fields.remove("output");
            let output = match &upsert.output {
                Patch::Omitted => None,
                Patch::Clear => Some(Json::null()),
                Patch::Value(bytes) => Some(output(bytes, said.as_ref())),
            };
            let text = ObjectText::update("terminal_update").string("terminalId", id.as_json());
            text.members(&fields).maybe("output", output.as_ref().map(Json::as_str))
        }
        Target::Entry(EntryId::Compaction(id)) => ObjectText::update("compaction_update")
            .string("compactionId", id.as_json())
            .members(fields)
            .maybe("summary", content().as_deref()),
        Target::Entry(EntryId::Subagent(id)) => {
            ObjectText::update("subagent_update").string("sessionId", id.as_json()).members(fields)
        }
        Target::Entry(EntryId::SessionMessage(id)) => ObjectText::update("session_message")
            .string("messageId", id.as_json())
            .members(fields)
            .maybe("content", content().as_deref()),
        Target::Entry(EntryId::Event(id)) => {
            ObjectText::update(crate::event::UPDATE).string("eventId", id.as_json()).members(fields)
        }
        Target::Entry(EntryId::Note(_)) => return vec![fields.to_json().as_str().to_owned()],
        Target::Slot(Slot::Info) => ObjectText::update("session_info_update").members(fields),
        Target::Slot(Slot::Usage) => ObjectText::update("usage_update").members(fields),
        Target::Slot(Slot::Commands) => {
            let mut fields = fields.clone();
            if let Some(list) = fields.get("availableCommands").cloned() {
                fields.set("availableCommands", commands::to_v2(&list));
            }
            ObjectText::update("available_commands_update").members(&fields)
        }
        // A mode is one of the options, so either report tells of all of them.
        Target::Slot(slot @ (Slot::Options | Slot::Mode | Slot::Model)) => {
            let options = cx.slot_field(Slot::Options, "configOptions").cloned();
            let modes = cx.transcript.slot(Slot::Mode).map(|body| body.fields.clone());
            let models = cx.transcript.slot(Slot::Model).map(|body| body.fields.clone());
            let mut list = option_list(options.as_ref(), modes.as_ref(), models.as_ref(), cx.losses);
            if let (Slot::Mode, Some(current)) = (slot, fields.get("currentModeId")) {
                // Where the agent has an option for its modes, that is the one that changed.
                let Some(changed) = options::with_mode(&list, current) else {
                    cx.losses.add(LossKind::Mode);
                    return Vec::new();
                };
                list = changed;
            }
            let text = ObjectText::update("config_option_update").raw("configOptions", list.as_str());
            let known =
                ["configOptions", "currentModeId", "availableModes", "currentModelId", "availableModels"];
            let mut rest = fields.clone();
            known.iter().for_each(|name| drop(rest.remove(name)));
            text.members(&rest)
        }
    };
    // A report has metadata or none; only what is patched can have it cleared.
    let is_report = matches!(
        target,
        Target::Slot(Slot::Usage | Slot::Commands | Slot::Options | Slot::Mode | Slot::Model)
            | Target::Entry(EntryId::Plan(_))
    );
    vec![text.maybe("_meta", meta.as_deref().filter(|meta| !is_report || *meta != "null")).finish()]
}
