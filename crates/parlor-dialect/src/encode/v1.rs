//! Updates for a peer that speaks v1, by what it has heard so far.
//!
//! v1 can only add: chunks to messages, tool calls that are made and then updated. What changes something
//! that was said before in a way v1 has no words for is a loss, and where a person would miss it, it is
//! restated under another id.

use std::collections::{HashMap, HashSet};

use parlor_json::{Json, JsonStr, Members, Object};
use parlor_session::{
    Content, EntryId, MessageId, MetaPatch, Patch, Role, Slot, Target, TerminalId, ToolCallId, Transcript,
    Update, Upsert, plain_text_in,
};

use super::{CLIENT_TERMINAL, Context, array, chunk, message_kinds, patch_text, v2};
use crate::decode::ONLY_PLAN;
use crate::text::ObjectText;
use crate::values::blocks::{self, ForV1};
use crate::values::{commands, options, plan, tool_content};
use crate::{Dialect, LossKind, Losses, shape};

/// The metadata key that says which message a restated one stands for.
const REPLACES: &str = "parlor/replaces";

/// What a v1 peer has heard of one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    messages: HashMap<(Role, MessageId), HeardMessage>,
    tool_calls: HashSet<ToolCallId>,
    /// Which tool calls show a terminal.
    terminals: HashMap<TerminalId, Vec<ToolCallId>>,
    mode: Option<JsonStr>,
    /// The plan that is shown.
    plan: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct HeardMessage {
    /// Whether any content of it was said.
    content: bool,
    /// All of its content, however it was cut into blocks. Many agents stream a message and then send it as a
    /// whole, which tells a v1 peer nothing new.
    said: Fingerprint,
    /// Under which id its content is said since it was replaced.
    alias: Option<MessageId>,
    /// What the agent has said so far of a message that the peer itself sent, until it has said all of it.
    echo: Option<Fingerprint>,
}

impl HeardMessage {
    /// Whether a chunk only says again what the peer itself sent.
    fn is_echo(&mut self, block: &str, members: &Members<'_>) -> bool {
        let Some(echo) = &mut self.echo else { return false };
        echo.add(block, members);
        // All of it was said, or it is no echo after all.
        if *echo == self.said || echo.bytes > self.said.bytes {
            self.echo = None;
        }
        true
    }
}

/// A short stand-in for the content of a message: neighbouring plain texts count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    hash: u64,
    bytes: usize,
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, bytes: 0 }
    }
}

impl Fingerprint {
    fn of(content: &Content) -> Self {
        let mut all = Self::default();
        content.iter().for_each(|item| all.add(item.json, &Members::parse(item.json).unwrap_or_default()));
        all
    }

    fn add(&mut self, block: &str, members: &Members<'_>) {
        match plain_text_in(members) {
            Some(text) => self.bytes(text.as_bytes()),
            None => {
                // No text has this byte, so a block cannot be taken for one.
                self.bytes(&[0xff]);
                self.bytes(block.as_bytes());
                self.bytes(&[0xff]);
            }
        }
    }

    /// FNV-1a: byte by byte, so that it does not matter how a text is cut.
    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// What a v1 client asked for beyond what every client takes.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a client asks for each of them by itself")]
pub(crate) struct Features {
    plans: bool,
    notices: bool,
    compactions: bool,
    subagents: bool,
    booleans: bool,
}

impl Features {
    /// Reads them from the params of a v1 client's `initialize`.
    pub(crate) fn of(params: &Object) -> Self {
        let client = shape::member(params, "clientCapabilities").unwrap_or_default();
        let has = |holder: &Object, name: &str| shape::member(holder, name).is_some();
        let session = shape::member(&client, "session").unwrap_or_default();
        let options = shape::member(&session, "configOptions").unwrap_or_default();
        Self {
            plans: has(&client, "plan"),
            notices: has(&session, "notices"),
            compactions: has(&session, "compaction"),
            subagents: has(&client, "subagents"),
            booleans: has(&options, "boolean"),
        }
    }
}

impl Heard {
    /// The updates that say `update`, as far as v1 can.
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
            // v1 has no states: a turn is a prompt that has no answer yet.
            Update::State(_) => Vec::new(),
        }
    }

    /// The peer loads the session: it forgets what it has heard and is told all of it again.
    pub(crate) fn forget(&mut self) {
        *self = Self { mode: self.mode.take(), ..Self::default() };
    }

    /// Which mode a v1 peer was told of with the session itself.
    pub(crate) fn set_mode(&mut self, mode: Option<JsonStr>) {
        self.mode = mode;
    }

    /// A message is what the peer itself sent: it has the content already, and the agent will say it again.
    pub(crate) fn sent(&mut self, id: &MessageId, content: &Json) {
        let content = Content::parse(content.raw()).unwrap_or_default();
        let heard = self.messages.entry((Role::User, id.clone())).or_default();
        if !heard.content {
            *heard = HeardMessage {
                content: true,
                said: Fingerprint::of(&content),
                echo: Some(Fingerprint::default()),
                alias: None,
            };
        }
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
            EntryId::Message(role, id) => {
                let block = Members::of(item.raw()).unwrap_or_default();
                let said = match blocks::for_v1(&block, cx.losses) {
                    ForV1::Same => item.clone(),
                    ForV1::Changed(block) => block,
                    ForV1::Unknown => {
                        cx.losses.add_for(LossKind::ContentBlockType, id);
                        return Vec::new();
                    }
                };
                let heard = self.messages.entry((*role, id.clone())).or_default();
                if heard.is_echo(item.as_str(), &block) {
                    if extra.is_some() {
                        cx.losses.add_for(LossKind::MessageMeta, id);
                    }
                    return Vec::new();
                }
                heard.content = true;
                heard.said.add(item.as_str(), &block);
                let id = heard.alias.as_ref().unwrap_or(id).as_json();
                vec![chunk(message_kinds(*role).1, "messageId", id, said.as_str(), extra)]
            }
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
            EntryId::Plan(_) | EntryId::Terminal(_) | EntryId::Subagent(_) | EntryId::Note(_) => Vec::new(),
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
            // Nothing but its output is shown of a terminal.
            EntryId::Terminal(id) if self.terminals.contains_key(id) => lost(LossKind::TerminalAsText, cx),
            EntryId::Terminal(_) => lost(LossKind::TerminalAlone, cx),
            EntryId::Compaction(_) if features.compactions => with_known_blocks(update, cx),
            EntryId::Compaction(_) => lost(LossKind::Compaction, cx),
            EntryId::Subagent(_) | EntryId::SessionMessage(_) if features.subagents => {
                with_known_blocks(update, cx)
            }
            EntryId::Subagent(_) | EntryId::SessionMessage(_) => lost(LossKind::Subagent, cx),
            EntryId::Note(_) => note(&upsert.fields, features, cx),
        }
    }

    fn message(&mut self, role: Role, id: &MessageId, upsert: &Upsert, cx: &mut Context<'_>) -> Vec<String> {
        let heard = self.messages.entry((role, id.clone())).or_default();
        // Whatever a message says besides its content can at most go with the first chunk.
        let mut extra = upsert.fields.clone();
        if !extra.is_empty() {
            cx.losses.add_for(LossKind::MessageFields, id);
        }
        match &upsert.meta {
            MetaPatch::Clear if heard.content => cx.losses.add_for(LossKind::MessageMetaCleared, id),
            MetaPatch::Keep | MetaPatch::Clear => {}
            MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta) => {
                cx.losses.add_for(LossKind::MessageMeta, id);
                extra.set("_meta", meta.to_json());
            }
        }
        let echo = heard.echo;
        if matches!(upsert.content, Patch::Value(_)) {
            heard.echo = None;
        }
        let blocks = match &upsert.content {
            Patch::Omitted => return Vec::new(),
            Patch::Clear if !heard.content || heard.said == Fingerprint::default() => return Vec::new(),
            // Some agents clear a message before they say it.
            Patch::Clear if echo == Some(Fingerprint::default()) => return Vec::new(),
            Patch::Value(content) if heard.content && heard.said == Fingerprint::of(content) => {
                return Vec::new();
            }
            Patch::Clear => {
                cx.losses.add_for(LossKind::MessageCleared, id);
                vec![r#"{"type":"text","text":""}"#.to_owned()]
            }
            Patch::Value(content) => {
                if heard.content {
                    cx.losses.add_for(LossKind::MessageReplaced, id);
                }
                content.iter().map(|item| item.json.to_owned()).collect()
            }
        };
        if heard.content {
            heard.alias = Some((cx.fresh)());
            heard.said = Fingerprint::default();
            heard.echo = None;
            shape::note(&mut extra, REPLACES, Json::from(id.as_json()));
        }
        let mut chunks = Vec::with_capacity(blocks.len());
        for block in blocks {
            let members = Members::parse(&block).unwrap_or_default();
            let known = match blocks::for_v1(&members, cx.losses) {
                ForV1::Same => shape::json(block.clone()),
                ForV1::Changed(known) => known,
                ForV1::Unknown => {
                    cx.losses.add_for(LossKind::ContentBlockType, id);
                    continue;
                }
            };
            heard.content = true;
            heard.said.add(&block, &members);
            let said = std::mem::take(&mut extra);
            let said = (!said.is_empty()).then(|| said.to_json());
            let id = heard.alias.as_ref().unwrap_or(id).as_json();
            chunks.push(chunk(message_kinds(role).1, "messageId", id, known.as_str(), said.as_ref()));
        }
        chunks
    }

    /// A tool call that is made or updated.
    fn tool_call(&mut self, id: &ToolCallId, upsert: &Upsert, cx: &mut Context<'_>) -> String {
        let target = Target::Entry(EntryId::ToolCall(id.clone()));
        let is_new = self.tool_calls.insert(id.clone());
        let mut fields = tool_fields(&upsert.fields, is_new, cx.losses);
        if is_new {
            let title = shape::text(&fields, "title");
            if title.is_none() {
                let made = shape::text(&fields, "name").or_else(|| shape::text(&fields, "kind"));
                fields.set("title", shape::string(made.as_deref().unwrap_or("Tool call")));
                cx.losses.add(LossKind::ToolCallTitleMade);
            }
        }
        let content = match &upsert.content {
            Patch::Omitted => None,
            Patch::Clear => Some("[]".to_owned()),
            Patch::Value(content) => {
                Some(array(&self.tool_items(id, content.iter().map(|item| item.json), cx)))
            }
        };
        let meta = match cx.meta(&target, upsert, Dialect::V1) {
            Patch::Clear if !is_new && cx.meta_before.is_some() => {
                cx.losses.add(LossKind::ToolCallMetaCleared);
                None
            }
            Patch::Omitted | Patch::Clear => None,
            Patch::Value(meta) => Some(meta.to_json()),
        };
        tool_call_text(id, is_new)
            .members(&fields)
            .maybe("content", content.as_deref())
            .maybe("_meta", meta.as_ref().map(Json::as_str))
            .finish()
    }

    /// All content of a tool call so far: v1 cannot add to it.
    fn tool_content(&mut self, id: &ToolCallId, cx: &mut Context<'_>) -> Option<String> {
        let transcript = cx.transcript;
        let content = &transcript.get(&EntryId::ToolCall(id.clone()))?.body().content;
        // Only the two ends are looked at: a stream of chunks must not cost the square of its length.
        let (head, tail) = edges(content, tool_content::CAP / 2);
        let items = |places: std::ops::Range<usize>| places.filter_map(|place| content.get(place));
        let shown: usize = items(0..head).chain(items(tail..content.len())).map(str::len).sum();
        let gap = format!(
            r#"{{"type":"content","content":{{"type":"text","text":"\n[... {} bytes left out ...]\n"}}}}"#,
            content.size().saturating_sub(shown)
        );
        let gap = (head < tail).then_some(gap.as_str());
        let items = self.tool_items(id, items(0..head).chain(gap).chain(items(tail..content.len())), cx);
        let mut cut = Losses::default();
        let items = tool_content::cap(items, tool_content::CAP, &mut cut);
        if gap.is_some() || cut != Losses::default() {
            cx.losses.add(LossKind::ToolContentCut);
        }
        let is_new = self.tool_calls.insert(id.clone());
        let mut text = tool_call_text(id, is_new);
        if is_new {
            cx.losses.add(LossKind::ToolCallTitleMade);
            text = text.raw("title", r#""Tool call""#);
        }
        Some(text.raw("content", &array(&items)).finish())
    }

    fn tool_items<'a>(
        &mut self,
        id: &ToolCallId,
        items: impl Iterator<Item = &'a str>,
        cx: &mut Context<'_>,
    ) -> Vec<Object> {
        let transcript = cx.transcript;
        let terminal_text = |terminal: &str| Some(terminal_text(transcript, terminal));
        let mut said = Vec::new();
        for mut item in items.filter_map(|item| serde_json::from_str::<Object>(item).ok()) {
            if shape::take_note(&mut item, CLIENT_TERMINAL).is_some() {
                said.push(item);
                continue;
            }
            if let Some(terminal) = shape::text(&item, "terminalId") {
                let shown_by = self.terminals.entry(terminal.as_str().into()).or_default();
                if !shown_by.contains(id) {
                    shown_by.push(id.clone());
                }
            }
            said.extend(tool_content::item_to_v1(&item, cx.losses, &terminal_text));
        }
        said
    }

    /// A terminal wrote something: the tool calls that show it are said again.
    fn terminal(&mut self, id: &TerminalId, cx: &mut Context<'_>) -> Vec<String> {
        let tool_calls = self.terminals.get(id).cloned().unwrap_or_default();
        if tool_calls.is_empty() {
            cx.losses.add(LossKind::TerminalAlone);
        }
        tool_calls.iter().filter_map(|tool_call| self.tool_content(tool_call, cx)).collect()
    }

    fn upsert_slot(
        &mut self,
        slot: Slot,
        upsert: &Upsert,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        let meta = cx.meta(&Target::Slot(slot), upsert, Dialect::V1);
        let is_patch = slot == Slot::Info;
        let meta = patch_text(&meta, |meta| meta.to_json().as_str().to_owned());
        let meta = meta.filter(|meta| is_patch || meta != "null");
        let mut fields = upsert.fields.clone();
        let kind = match slot {
            Slot::Info => "session_info_update",
            Slot::Usage => "usage_update",
            Slot::Mode => "current_mode_update",
            Slot::Commands => {
                if let Some(list) = fields.get("availableCommands").cloned() {
                    fields.set("availableCommands", commands::to_v1(&list, cx.losses));
                }
                "available_commands_update"
            }
            Slot::Options => {
                if let Some(list) = fields.get("configOptions").cloned() {
                    return self.options(&list, &mut fields, meta.as_deref(), features, cx);
                }
                "config_option_update"
            }
        };
        vec![ObjectText::update(kind).members(&fields).maybe("_meta", meta.as_deref()).finish()]
    }

    fn plan_update(&mut self, upsert: &Upsert, features: Features, cx: &mut Context<'_>) -> Vec<String> {
        let mut fields = upsert.fields.clone();
        let plan = fields.remove("plan").and_then(|plan| shape::object(&plan)).unwrap_or_default();
        let type_ = shape::text(&plan, "type");
        let is_list = type_.as_deref() == Some("items");
        let is_known = matches!(type_.as_deref(), Some("items" | "file" | "markdown"));
        let meta = match &upsert.meta {
            MetaPatch::Replace(meta) => Some(meta.to_json()),
            MetaPatch::Keep | MetaPatch::Clear | MetaPatch::MergeKeys(_) | MetaPatch::MergeDeep(_) => None,
        };
        let text = match (features.plans && is_known, is_list) {
            (true, _) => {
                let plan = plan::entries_to_v1(&plan, cx.losses).to_json();
                ObjectText::update("plan_update").raw("plan", plan.as_str())
            }
            (false, true) => {
                let id = shape::text(&plan, "planId");
                if self.plan.is_some() && self.plan != id {
                    cx.losses.add(LossKind::PlanReplaced);
                }
                self.plan = id;
                // The id is kept as a field that v1 does not know, so that it is not lost on the way back.
                let mut plan = plan::entries_to_v1(&plan, cx.losses);
                plan.remove("type");
                if shape::text(&plan, "planId").as_deref() == Some(ONLY_PLAN) {
                    plan.remove("planId");
                }
                ObjectText::update("plan").members(&plan)
            }
            (false, false) => return lost(LossKind::PlanType, cx),
        };
        vec![text.members(&fields).maybe("_meta", meta.as_ref().map(Json::as_str)).finish()]
    }

    /// Options, and the mode among them, which v1 hears of by itself.
    fn options(
        &mut self,
        list: &Json,
        fields: &mut Object,
        meta: Option<&str>,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        let (own, modes) = split_modes(list, features, cx.losses);
        // A session that has modes and no options hears of its mode alone.
        let only_modes = own.as_str() == "[]" && list.as_str() != "[]" && modes.is_some();
        let mut said = Vec::new();
        if !only_modes {
            fields.set("configOptions", own);
            said.push(
                ObjectText::update("config_option_update").members(fields).maybe("_meta", meta).finish(),
            );
        }
        let current = modes.and_then(|modes| JsonStr::from_raw(modes.get("currentModeId")?.raw()));
        if let Some(current) = current.filter(|current| self.mode.as_ref() != Some(current)) {
            said.push(ObjectText::update("current_mode_update").string("currentModeId", &current).finish());
            self.mode = Some(current);
        }
        said
    }
}

/// A list of v2 options as v1 has it, and the modes that one of them stands for. An option that was made of
/// v1 modes is left out of the list: a v1 peer has the modes.
pub(crate) fn split_modes(list: &Json, features: Features, losses: &mut Losses) -> (Json, Option<Object>) {
    let modes = options::mode_option(list).and_then(|option| options::option_to_modes(&option));
    let own = shape::each(list, |option| {
        let meta = shape::member(&option, "_meta").unwrap_or_default();
        (meta.get("parlor/modes").is_none()).then_some(option)
    });
    (options::to_v1(&own, features.booleans, losses), modes)
}

/// A tool call as it stands in a request, in the words of v1. The session it belongs to may be unknown.
pub(crate) fn tool_call(call: &Object, transcript: Option<&Transcript>, losses: &mut Losses) -> Object {
    let mut call = tool_fields(call, false, losses);
    let empty = Transcript::default();
    let terminal_text = |terminal: &str| Some(terminal_text(transcript.unwrap_or(&empty), terminal));
    if let Some(items) = call.get("content").and_then(|content| parlor_json::elements(content.raw())) {
        let items = items.into_iter().filter_map(|item| Object::parse(item).ok());
        let convert = |mut item: Object| match shape::take_note(&mut item, CLIENT_TERMINAL) {
            Some(_) => vec![item],
            None => tool_content::item_to_v1(&item, losses, &terminal_text),
        };
        let items: Vec<_> = items.flat_map(convert).collect();
        call.set("content", shape::json(array(&items)));
    }
    call
}

/// The fields of a tool call, with nulls said as v1 can say them.
fn tool_fields(fields: &Object, is_new: bool, losses: &mut Losses) -> Object {
    let mut said = Object::default();
    for (name, value) in fields.iter() {
        if !value.is_null() {
            said.set(name.clone(), value.clone());
            continue;
        }
        match name.inner() {
            "status" => said.set("status", shape::string("pending")),
            "kind" => said.set("kind", shape::string("other")),
            "locations" => said.set("locations", shape::json("[]")),
            _ if is_new => {}
            _ => losses.add(LossKind::ToolCallFieldCleared),
        }
    }
    known_words(said, losses)
}

/// Status and kind by words that v1 knows.
fn known_words(mut fields: Object, losses: &mut Losses) -> Object {
    if let Some(status) = shape::text(&fields, "status") {
        let (known, lossy) = tool_content::status_to_v1(&status);
        if lossy {
            fields.set("status", shape::string(known));
            losses.add(LossKind::ToolCallStatus);
        }
    }
    if let Some(kind) = shape::text(&fields, "kind") {
        let (known, lossy) = tool_content::kind_to_v1(&kind);
        if lossy {
            fields.set("kind", shape::string(known));
            losses.add(LossKind::ToolCallKind);
        }
    }
    fields
}

fn tool_call_text(id: &ToolCallId, is_new: bool) -> ObjectText {
    let kind = if is_new { "tool_call" } else { "tool_call_update" };
    ObjectText::update(kind).string("toolCallId", id.as_json())
}

/// Where the first and the last items end and begin that together fill about `bytes` at each end.
fn edges(content: &Content, bytes: usize) -> (usize, usize) {
    let count = content.len();
    if content.size() <= 2 * bytes {
        return (count, count);
    }
    let size = |place: usize| content.get(place).map_or(0, str::len);
    let fill = |places: &mut dyn Iterator<Item = usize>| {
        let mut filled = 0;
        let fits = |place: &usize| {
            let room = filled < bytes;
            filled += size(*place);
            room
        };
        places.take_while(fits).count()
    };
    let head = fill(&mut (0..count));
    let tail = fill(&mut (head..count).rev());
    (head, count - tail)
}

/// An update that both versions spell alike, with the blocks that v1 can parse.
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

/// What a terminal shows: all of it, or both ends of what is too long to be repeated with every chunk.
fn terminal_text(transcript: &Transcript, id: &str) -> String {
    let entry = transcript.get(&EntryId::Terminal(id.into()));
    let output = entry.map_or(&[][..], |entry| &entry.body().output);
    let side = tool_content::CAP / 2;
    if output.len() <= 2 * side {
        return String::from_utf8_lossy(output).into_owned();
    }
    let (head, tail) = (&output[..side], &output[output.len() - side..]);
    let left_out = output.len() - 2 * side;
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    format!("{head}\n[... {left_out} bytes left out ...]\n{tail}")
}

fn note(fields: &Object, features: Features, cx: &mut Context<'_>) -> Vec<String> {
    let is_notice = shape::text(fields, "sessionUpdate").as_deref() == Some("notice");
    match (is_notice, features.notices) {
        (true, true) => vec![fields.to_json().as_str().to_owned()],
        (true, false) => lost(LossKind::Notice, cx),
        (false, _) => lost(LossKind::UnknownUpdate, cx),
    }
}

fn lost(kind: LossKind, cx: &mut Context<'_>) -> Vec<String> {
    cx.losses.add(kind);
    Vec::new()
}
