//! Updates for a v1 peer, depending on what it has received.
//!
//! v1 can only append to messages, and create and update tool calls. A change that v1 cannot express is a loss; a
//! replaced message is restated under another id.

mod message;
mod slot;
mod tool;

use std::collections::{HashMap, HashSet};

use parlor_json::{Json, JsonStr, Members, Object};
use parlor_session::{
    Content, Entry, EntryId, MessageId, MetaPatch, Patch, Role, Target, TerminalId, ToolCallId, Update,
    Upsert,
};

use self::message::ReceivedMessage;
pub(crate) use self::slot::split_modes;
pub(crate) use self::tool::tool_call;
use super::{Context, v2};
use crate::decode::ONLY_PLAN;
use crate::encode::update_writer;
use crate::values::blocks::{self, ForV1};
use crate::values::plan;
use crate::{Dialect, LossKind};

/// The parts of one session that a v1 peer has received.
#[derive(Debug, Clone, Default)]
pub(crate) struct V1PeerState {
    messages: HashMap<(Role, MessageId), ReceivedMessage>,
    tool_calls: HashSet<ToolCallId>,
    /// The tool calls that show each terminal.
    terminals: HashMap<TerminalId, Vec<ToolCallId>>,
    mode: Option<JsonStr>,
    /// The plan that is shown.
    plan: Option<String>,
    /// The message whose chunks were last forwarded as the agent wrote them.
    passed: Option<(Role, MessageId)>,
}

/// The optional features that a v1 client advertised.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a client asks for each of them by itself")]
pub(crate) struct Features {
    plans: bool,
    notices: bool,
    compactions: bool,
    subagents: bool,
    booleans: bool,
    events: bool,
}

impl Features {
    /// Reads them from the params of a v1 client's `initialize`.
    pub(crate) fn of(params: &Object) -> Self {
        let client = params.get_object("clientCapabilities").unwrap_or_default();
        let has = |holder: &Object, name: &str| holder.get_object(name).is_some();
        let session = client.get_object("session").unwrap_or_default();
        let options = session.get_object("configOptions").unwrap_or_default();
        Self {
            plans: has(&client, "plan"),
            notices: has(&session, "notices"),
            compactions: has(&session, "compaction"),
            subagents: has(&client, "subagents"),
            booleans: has(&options, "boolean"),
            events: crate::event::wants_events(params),
        }
    }
}

impl V1PeerState {
    /// Encodes an update, as far as v1 can express it.
    pub(crate) fn updates(
        &mut self,
        update: &Update,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        match update {
            Update::Append { entry, item, extra } => {
                self.append(entry, item, extra.as_ref(), update, features, cx)
            }
            Update::Upsert { target: Target::Entry(entry), upsert } => {
                self.upsert_entry(entry, upsert, update, features, cx)
            }
            Update::Upsert { target: Target::Slot(slot), upsert } => {
                self.upsert_slot(*slot, upsert, features, cx)
            }
            Update::Output { terminal, extra, .. } => {
                if extra.is_some() {
                    cx.losses.add(LossKind::ChunkFields);
                }
                self.terminal(terminal, cx)
            }
            Update::Remove { .. } if features.plans => v2::updates(update, Dialect::V1, cx),
            Update::Remove { .. } => lost(LossKind::PlanRemoved, cx),
            Update::Note { fields } => note(fields, features, cx),
            // v1 has no states: a turn is a prompt without a response.
            Update::State(_) => Vec::new(),
        }
    }

    /// Resets the state when the peer loads the session again.
    pub(crate) fn reset(&mut self) {
        *self = Self { mode: self.mode.take(), ..Self::default() };
    }

    /// Marks an entry that the peer received over an earlier connection.
    pub(crate) fn received(&mut self, entry: &Entry) {
        match entry.id() {
            EntryId::Message(role, id) => {
                self.messages.insert((*role, id.clone()), ReceivedMessage::unread());
            }
            EntryId::ToolCall(id) => {
                self.tool_calls.insert(id.clone());
                let items = entry.body().content.iter().filter_map(|item| Members::parse(item.json));
                for terminal in items.filter_map(|item| item.get_string("terminalId")) {
                    self.terminals.entry(terminal.as_str().into()).or_default().push(id.clone());
                }
            }
            EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => {}
        }
    }

    /// Sets the mode that the peer received in a response.
    pub(crate) fn set_mode(&mut self, mode: Option<JsonStr>) {
        self.mode = mode;
    }

    fn append(
        &mut self,
        entry: &EntryId,
        item: &Json,
        extra: Option<&Json>,
        update: &Update,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        match entry {
            EntryId::Message(role, id) => self.message_chunk(*role, id, item, extra, cx),
            EntryId::ToolCall(id) => {
                if extra.is_some() {
                    cx.losses.add(LossKind::ChunkFields);
                }
                self.tool_content(id, cx).into_iter().collect()
            }
            EntryId::Compaction(_) if features.compactions => with_known_blocks(update, cx),
            EntryId::Compaction(_) => lost(LossKind::Compaction, cx),
            EntryId::SessionMessage(_) if features.subagents => with_known_blocks(update, cx),
            EntryId::SessionMessage(_) => lost(LossKind::Subagent, cx),
            EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Subagent(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => Vec::new(),
        }
    }

    fn upsert_entry(
        &mut self,
        entry: &EntryId,
        upsert: &Upsert,
        update: &Update,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        match entry {
            EntryId::Message(role, id) => self.message(*role, id, upsert, cx),
            EntryId::ToolCall(id) => vec![self.tool_call(id, upsert, cx)],
            EntryId::Plan(_) => self.plan_update(upsert, features, cx),
            EntryId::Terminal(id) if !upsert.output.is_omitted() => self.terminal(id, cx),
            // Only the output of a terminal is shown.
            EntryId::Terminal(id) if self.terminals.contains_key(id) => lost(LossKind::TerminalAsText, cx),
            EntryId::Terminal(_) => lost(LossKind::TerminalAlone, cx),
            EntryId::Compaction(_) if features.compactions => with_known_blocks(update, cx),
            EntryId::Compaction(_) => lost(LossKind::Compaction, cx),
            EntryId::Subagent(_) | EntryId::SessionMessage(_) if features.subagents => {
                with_known_blocks(update, cx)
            }
            EntryId::Subagent(_) | EntryId::SessionMessage(_) => lost(LossKind::Subagent, cx),
            EntryId::Event(_) if features.events => v2::updates(update, Dialect::V1, cx),
            EntryId::Event(_) => lost(LossKind::UnknownUpdate, cx),
            EntryId::Note(_) => note(&upsert.fields, features, cx),
        }
    }

    fn plan_update(&mut self, upsert: &Upsert, features: Features, cx: &mut Context<'_>) -> Vec<String> {
        let mut fields = upsert.fields.clone();
        let plan = fields.remove("plan").and_then(|plan| plan.to_object()).unwrap_or_default();
        let type_ = plan.get_string("type");
        let is_list = type_.as_deref() == Some("items");
        let is_known = matches!(type_.as_deref(), Some("items" | "file" | "markdown"));
        let meta = match &upsert.meta {
            MetaPatch::Replace(meta) => Some(meta.to_json()),
            MetaPatch::Keep | MetaPatch::Clear | MetaPatch::MergeKeys(_) | MetaPatch::MergeDeep(_) => None,
        };
        let text = match (features.plans && is_known, is_list) {
            (true, _) => {
                let plan = plan::entries_to_v1(&plan, cx.losses).to_json();
                update_writer("plan_update").raw("plan", plan.as_str())
            }
            (false, true) => {
                let id = plan.get_string("planId");
                if self.plan.is_some() && self.plan != id {
                    cx.losses.add(LossKind::PlanReplaced);
                }
                self.plan = id;
                // The id is kept as a field that v1 does not know, so that it can be converted back.
                let mut plan = plan::entries_to_v1(&plan, cx.losses);
                plan.remove("type");
                if plan.get_str("planId").as_deref() == Some(ONLY_PLAN) {
                    plan.remove("planId");
                }
                update_writer("plan").members(&plan)
            }
            (false, false) => return lost(LossKind::PlanType, cx),
        };
        vec![text.members(&fields).optional_json("_meta", meta.as_ref()).finish()]
    }
}

/// An update that both versions have, with the blocks that v1 can parse.
fn with_known_blocks(update: &Update, cx: &mut Context<'_>) -> Vec<String> {
    let mut update = update.clone();
    match &mut update {
        Update::Append { item, .. } => {
            let block = Members::of(item.raw()).unwrap_or_default();
            match blocks::for_v1(&block, cx.losses) {
                ForV1::Same => {}
                ForV1::Changed(known) => *item = known,
                ForV1::Unknown => return lost(LossKind::ContentBlockType, cx),
            }
        }
        Update::Upsert { upsert: Upsert { content: Patch::Value(content), .. }, .. } => {
            let known = blocks::list_to_v1(&content.to_json(), cx.losses);
            *content = Content::parse(known.raw()).unwrap_or_default();
        }
        Update::Upsert { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => {}
    }
    v2::updates(&update, Dialect::V1, cx)
}

fn note(fields: &Object, features: Features, cx: &mut Context<'_>) -> Vec<String> {
    let is_notice = fields.get_str("sessionUpdate").as_deref() == Some("notice");
    match (is_notice, features.notices) {
        (true, true) => vec![fields.text()],
        (true, false) => lost(LossKind::Notice, cx),
        (false, _) => lost(LossKind::UnknownUpdate, cx),
    }
}

fn lost(kind: LossKind, cx: &mut Context<'_>) -> Vec<String> {
    cx.losses.add(kind);
    Vec::new()
}
