//! Tool calls for a v1 peer, which are created once and then updated, and the terminals that they show.

use parlor_json::{Json, JsonRef, Object, ObjectWriter};
use parlor_session::{Content, EntryId, Patch, Target, TerminalId, ToolCallId, Transcript, Upsert};

use super::V1PeerState;
use crate::encode::update_writer;
use crate::encode::{CLIENT_TERMINAL, Context, array};
use crate::values::tool_content;
use crate::{Dialect, LossKind, Losses};

/// Converts a tool call in a request to v1. Its session may be unknown.
pub(crate) fn tool_call(call: &Object, transcript: Option<&Transcript>, losses: &mut Losses) -> Object {
    let mut call = tool_fields(call, false, losses);
    let empty = Transcript::default();
    let terminal_text = |terminal: &str| Some(terminal_text(transcript.unwrap_or(&empty), terminal));
    if let Some(items) = call.get_array("content") {
        let items = items.into_iter().filter_map(JsonRef::to_object);
        let convert = |mut item: Object| match item.remove_nested("_meta", CLIENT_TERMINAL) {
            Some(_) => vec![item],
            None => tool_content::item_to_v1(&item, losses, &terminal_text),
        };
        let items: Vec<_> = items.flat_map(convert).collect();
        call.set("content", array(&items));
    }
    call
}

impl V1PeerState {
    /// Encodes the creation or update of a tool call.
    pub(super) fn tool_call(&mut self, id: &ToolCallId, upsert: &Upsert, cx: &mut Context<'_>) -> String {
        let target = Target::Entry(EntryId::ToolCall(id.clone()));
        let is_new = self.tool_calls.insert(id.clone());
        let mut fields = tool_fields(&upsert.fields, is_new, cx.losses);
        if is_new {
            let title = fields.get_string("title");
            if title.is_none() {
                let made = fields.get_string("name").or_else(|| fields.get_string("kind"));
                fields.set("title", Json::from(made.as_deref().unwrap_or("Tool call")));
                cx.losses.add(LossKind::ToolCallTitleMade);
            }
        }
        let content = match &upsert.content {
            Patch::Omitted => None,
            Patch::Clear => Some(Json::array::<Json>([])),
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
            .optional_json("content", content.as_ref())
            .optional_json("_meta", meta.as_ref())
            .finish()
    }

    /// Encodes all content of a tool call so far: v1 cannot append to it.
    pub(super) fn tool_content(&mut self, id: &ToolCallId, cx: &mut Context<'_>) -> Option<String> {
        let transcript = cx.transcript;
        let content = &transcript.get(&EntryId::ToolCall(id.clone()))?.body().content;
        // Only the two ends are read: a stream of chunks must not take quadratic time.
        let (head, tail) = edges(content, tool_content::CAP / 2);
        let items = |indexes: std::ops::Range<usize>| indexes.filter_map(|index| content.get(index));
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
            text = text.str("title", "Tool call");
        }
        Some(text.raw("content", array(&items).as_str()).finish())
    }

    fn tool_items<'a>(
        &mut self,
        id: &ToolCallId,
        items: impl Iterator<Item = &'a str>,
        cx: &mut Context<'_>,
    ) -> Vec<Object> {
        let transcript = cx.transcript;
        let terminal_text = |terminal: &str| Some(terminal_text(transcript, terminal));
        let mut encoded = Vec::new();
        for mut item in items.filter_map(|item| serde_json::from_str::<Object>(item).ok()) {
            if item.remove_nested("_meta", CLIENT_TERMINAL).is_some() {
                encoded.push(item);
                continue;
            }
            if let Some(terminal) = item.get_string("terminalId") {
                let shown_by = self.terminals.entry(terminal.as_str().into()).or_default();
                if !shown_by.contains(id) {
                    shown_by.push(id.clone());
                }
            }
            encoded.extend(tool_content::item_to_v1(&item, cx.losses, &terminal_text));
        }
        encoded
    }

    /// Encodes terminal output: the tool calls that show the terminal are updated.
    pub(super) fn terminal(&mut self, id: &TerminalId, cx: &mut Context<'_>) -> Vec<String> {
        let tool_calls = self.terminals.get(id).cloned().unwrap_or_default();
        if tool_calls.is_empty() {
            cx.losses.add(LossKind::TerminalAlone);
        }
        tool_calls.iter().filter_map(|tool_call| self.tool_content(tool_call, cx)).collect()
    }
}

/// The fields of a tool call, with nulls as v1 can express them.
fn tool_fields(fields: &Object, is_new: bool, losses: &mut Losses) -> Object {
    let mut converted = Object::default();
    for (name, value) in fields.iter() {
        if !value.is_null() {
            converted.set(name.clone(), value.clone());
            continue;
        }
        match name.inner() {
            "status" => converted.set("status", "pending"),
            "kind" => converted.set("kind", "other"),
            "locations" => converted.set("locations", Json::array::<Json>([])),
            _ if is_new => {}
            _ => losses.add(LossKind::ToolCallFieldCleared),
        }
    }
    with_v1_names(converted, losses)
}

/// Replaces a status and a kind that v1 does not know.
fn with_v1_names(mut fields: Object, losses: &mut Losses) -> Object {
    if let Some(status) = fields.get_string("status") {
        let (known, lossy) = tool_content::status_to_v1(&status);
        if lossy {
            fields.set("status", known);
            losses.add(LossKind::ToolCallStatus);
        }
    }
    if let Some(kind) = fields.get_string("kind") {
        let (known, lossy) = tool_content::kind_to_v1(&kind);
        if lossy {
            fields.set("kind", known);
            losses.add(LossKind::ToolCallKind);
        }
    }
    fields
}

fn tool_call_text(id: &ToolCallId, is_new: bool) -> ObjectWriter {
    let kind = if is_new { "tool_call" } else { "tool_call_update" };
    update_writer(kind).json_str("toolCallId", id.as_json())
}

/// The indexes where the first items end and the last items begin that fill about `bytes` at each end.
fn edges(content: &Content, bytes: usize) -> (usize, usize) {
    let count = content.len();
    if content.size() <= 2 * bytes {
        return (count, count);
    }
    let size = |index: usize| content.get(index).map_or(0, str::len);
    let fill = |indexes: &mut dyn Iterator<Item = usize>| {
        let mut filled = 0;
        let fits = |index: &usize| {
            let room = filled < bytes;
            filled += size(*index);
            room
        };
        indexes.take_while(fits).count()
    };
    let head = fill(&mut (0..count));
    let tail = fill(&mut (head..count).rev());
    (head, count - tail)
}

/// The text of a terminal: all of it, or both ends of what is too long to be repeated with every chunk.
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
