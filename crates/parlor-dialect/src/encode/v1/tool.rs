//! Tool calls for a v1 peer, which are made once and then updated, and the terminals that they show.

use parlor_json::{Json, Object};
use parlor_session::{Content, EntryId, Patch, Target, TerminalId, ToolCallId, Transcript, Upsert};

use super::Heard;
use crate::encode::{CLIENT_TERMINAL, Context, array};
use crate::text::ObjectText;
use crate::values::tool_content;
use crate::{Dialect, LossKind, Losses, shape};

/// A tool call as it stands in a request, in the words of v1. The session it belongs to may be unknown.
pub(crate) fn tool_call(call: &Object, transcript: Option<&Transcript>, losses: &mut Losses) -> Object {
    let mut call = tool_fields(call, false, losses);
    let empty = Transcript::default();
    let terminal_text = |terminal: &str| Some(terminal_text(transcript.unwrap_or(&empty), terminal));
    if let Some(items) = call.get_array("content") {
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

impl Heard {
    /// A tool call that is made or updated.
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
    pub(super) fn tool_content(&mut self, id: &ToolCallId, cx: &mut Context<'_>) -> Option<String> {
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
            if let Some(terminal) = item.get_string("terminalId") {
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
    pub(super) fn terminal(&mut self, id: &TerminalId, cx: &mut Context<'_>) -> Vec<String> {
        let tool_calls = self.terminals.get(id).cloned().unwrap_or_default();
        if tool_calls.is_empty() {
            cx.losses.add(LossKind::TerminalAlone);
        }
        tool_calls.iter().filter_map(|tool_call| self.tool_content(tool_call, cx)).collect()
    }
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
            "status" => said.set("status", Json::from("pending")),
            "kind" => said.set("kind", Json::from("other")),
            "locations" => said.set("locations", shape::json("[]")),
            _ if is_new => {}
            _ => losses.add(LossKind::ToolCallFieldCleared),
        }
    }
    known_words(said, losses)
}

/// Status and kind by words that v1 knows.
fn known_words(mut fields: Object, losses: &mut Losses) -> Object {
    if let Some(status) = fields.get_string("status") {
        let (known, lossy) = tool_content::status_to_v1(&status);
        if lossy {
            fields.set("status", Json::from(known));
            losses.add(LossKind::ToolCallStatus);
        }
    }
    if let Some(kind) = fields.get_string("kind") {
        let (known, lossy) = tool_content::kind_to_v1(&kind);
        if lossy {
            fields.set("kind", Json::from(known));
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
