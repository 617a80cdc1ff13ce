//! Encodes one change for many subscribers: as the agent's own line if that is exactly what a subscriber would be
//! sent, else in the subscriber's dialect.
//!
//! A line is forwarded only if it is canonical for the receiver and equals the applied change. To find out, the
//! change is encoded: if the result has the same members as the line, the line is forwarded with its bytes. Chunks of
//! messages, nearly all updates of agents, are compared without being encoded.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::sync::Arc;

use parlor_json::{Json, JsonRef, JsonStr, Members, Object};
use parlor_session::{
    Change, EntryId, MessageId, MetaPatch, Role, SessionId, Target, Transcript, Update, plain_text,
};

use crate::live::{AgentUpdate, ChunkTemplate, EncodeContext, Spans, UpdateEncoder, update_line_with};
use crate::{Decoded, Dialect, Losses};

/// The prefix of metadata keys that only parlor writes.
const RESERVED: &str = "parlor/";

/// The members of an update's params beside the session and the update. They are forwarded and not stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamsExtra {
    members: Option<Arc<Object>>,
    /// Whether reserved metadata keys were dropped.
    pub(crate) was_reserved: bool,
}

impl ParamsExtra {
    /// Reads the members of params that are neither the session nor the update.
    pub(crate) fn of<'a>(rest: impl Iterator<Item = (&'a str, JsonRef<'a>)>) -> Self {
        Self::new(rest.map(|(name, value)| (name.into(), value.into())).collect())
    }

    fn new(mut members: Object) -> Self {
        if members.is_empty() {
            return Self::default();
        }
        let was_reserved = drop_reserved_in(&mut members);
        Self { members: (!members.is_empty()).then(|| Arc::new(members)), was_reserved }
    }

    /// Reads it from parsed params.
    pub fn of_params(params: &Object) -> Self {
        let mut rest = params.clone();
        for name in ["sessionId", "update"] {
            rest.remove(name);
        }
        Self::new(rest)
    }

    /// Whether reserved metadata keys were dropped.
    pub fn was_reserved(&self) -> bool {
        self.was_reserved
    }

    /// Appends the members to non-empty params, with the seq of the change in the metadata.
    pub(crate) fn write(&self, seq: Option<u64>, line: &mut String) {
        let Some(members) = self.members.as_deref() else {
            return seq.into_iter().for_each(|seq| push_seq(seq, line));
        };
        let mut meta = seq.map(|seq| {
            let mut meta = members.get_object("_meta").unwrap_or_default();
            meta.set("parlor/seq", seq);
            meta
        });
        for (name, value) in members.iter() {
            let value = match meta.take_if(|_| *name == *"_meta") {
                Some(meta) => meta.to_json(),
                None => value.clone(),
            };
            for part in [",", name.as_literal(), ":", value.as_str()] {
                line.push_str(part);
            }
        }
        if let Some(meta) = meta {
            line.push_str(r#","_meta":"#);
            line.push_str(meta.to_json().as_str());
        }
    }
}

/// A line of the agent that was decoded as an update.
#[derive(Debug)]
pub struct AgentLine<'a> {
    line: &'a str,
    /// The positions of its parts. Without them it cannot be forwarded.
    spans: Option<&'a Spans>,
    /// The content of the update in the line.
    content: Option<&'a str>,
    params_extra: ParamsExtra,
    /// The role of the message that the line appends to, and the other members of the chunk, if it is a chunk.
    chunk: Option<(Role, Option<Json>)>,
    /// The members of the update, parsed when they are needed.
    members: OnceCell<Option<Members<'a>>>,
}

impl<'a> AgentLine<'a> {
    /// A line with its decoded update, before the update was changed in any way.
    pub fn new(
        line: &'a str,
        spans: Option<&'a Spans>,
        params_extra: ParamsExtra,
        decoded: &Decoded,
    ) -> Self {
        let chunk = match &decoded.update {
            Update::Append { entry: EntryId::Message(role, _), extra, .. } => Some((*role, extra.clone())),
            Update::Append { .. }
            | Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => None,
        };
        let content = spans.and_then(|spans| spans.content(line));
        Self { line, spans, content, params_extra, chunk, members: OnceCell::new() }
    }

    /// A line that its template was compared with.
    pub fn of_template(line: &'a str, template: &'a ChunkTemplate, decoded: &Decoded) -> Self {
        let params_extra = template.params_extra().clone();
        Self {
            content: template.content(line),
            ..Self::new(line, Some(template.spans()), params_extra, decoded)
        }
    }

    /// A line that cannot be forwarded, with the other members of its params.
    pub fn without_line(params_extra: ParamsExtra) -> Self {
        Self { line: "", spans: None, content: None, params_extra, chunk: None, members: OnceCell::new() }
    }

    /// The members of the params beside the update.
    pub fn params_extra(&self) -> &ParamsExtra {
        &self.params_extra
    }

    /// Whether the line is a chunk that equals the update.
    fn is_chunk(&self, update: &Update) -> bool {
        let Update::Append { entry: EntryId::Message(role, _), item, extra } = update else { return false };
        self.chunk.as_ref().is_some_and(|(of, other)| of == role && other == extra)
            && self.content == Some(item.as_str())
    }

    /// Whether a seq can be added at the end of the line: its params have no metadata, and end with it. Members of the
    /// envelope that could follow are strings.
    fn takes_seq(&self) -> bool {
        self.params_extra.members.is_none() && self.line.ends_with("}}")
    }

    /// Whether an encoded update has the members of the line's. The id of the message is replaced in any case.
    fn equals(&self, update: &str, message: Option<&MessageId>) -> bool {
        let line = self.members.get_or_init(|| AgentUpdate::read(self.line).map(|read| read.0.update));
        let (Some(line), Some(encoded)) = (line, Members::parse(update)) else { return false };
        let is_id = |name: JsonRef<'_>| message.is_some() && name.as_str() == r#""messageId""#;
        line.len() == encoded.len()
            && encoded.raw().iter().all(|(name, value)| {
                let same = line.raw().iter().find(|(other, _)| other == name);
                let id = message.filter(|_| is_id(*name)).map(|id| id.as_json().as_literal());
                same.is_some_and(|(_, original)| original == value || id == Some(value.as_str()))
            })
    }
}

/// A change that is being encoded for all subscribers of a session.
pub struct Broadcast<'a, 'l> {
    session: &'a SessionId,
    change: &'a Change,
    encode_context: EncodeContext<'a>,
    line: Option<&'a AgentLine<'l>>,
    params_extra: &'a ParamsExtra,
    /// The agent's line with the session's ids, once a subscriber needs it.
    forwarded_line: String,
}

impl<'a, 'l> Broadcast<'a, 'l> {
    /// A change of a session whose agent speaks `from`, with the line that caused it, if any. `buffer` is a string that
    /// is reused.
    pub fn new(
        session: &'a SessionId,
        from: Dialect,
        transcript: &'a Transcript,
        change: &'a Change,
        line: Option<&'a AgentLine<'l>>,
        mut buffer: String,
    ) -> Self {
        const NOTHING: &ParamsExtra = &ParamsExtra { members: None, was_reserved: false };
        buffer.clear();
        let encode_context = EncodeContext { from, transcript, meta_before: change.meta_before.as_ref() };
        let params_extra = line.map_or(NOTHING, |line| &line.params_extra);
        // Reserved keys are still in the line.
        let line = line.filter(|line| !line.params_extra.was_reserved && line.spans.is_some());
        Self { session, change, encode_context, line, params_extra, forwarded_line: buffer }
    }

    /// Returns the buffer.
    pub fn into_buffer(self) -> String {
        self.forwarded_line
    }

    /// The message that changed, by its id in the session.
    fn message(&self) -> Option<&'a MessageId> {
        match &self.change.update {
            Update::Append { entry: EntryId::Message(_, id), .. }
            | Update::Upsert { target: Target::Entry(EntryId::Message(_, id)), .. } => Some(id),
            Update::Append { .. }
            | Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => None,
        }
    }

    /// The agent's line with the session's ids.
    fn forwarded_line(&mut self, line: &AgentLine<'_>) -> &str {
        if let Some(spans) = line.spans.filter(|_| self.forwarded_line.is_empty()) {
            spans.pass(line.line, self.session, self.message(), &mut self.forwarded_line);
        }
        &self.forwarded_line
    }
}

impl UpdateEncoder {
    /// Appends the lines for a change. With `wants_seq` each has the seq of the change.
    pub fn broadcast(
        &mut self,
        broadcast: &mut Broadcast<'_, '_>,
        wants_seq: bool,
        new_id: &mut dyn FnMut() -> MessageId,
        losses: &mut Losses,
        lines: &mut String,
    ) {
        let change = broadcast.change;
        let seq = wants_seq.then_some(change.seq);
        let line = broadcast.line.filter(|line| !wants_seq || line.takes_seq());
        if let Some(line) = line.filter(|line| line.is_chunk(&change.update))
            && self.takes_chunk(&change.update, broadcast.encode_context.from)
        {
            push_with_seq(broadcast.forwarded_line(line), seq, lines);
            return;
        }
        for update in self.encode(&change.update, broadcast.encode_context, new_id, losses) {
            match line.filter(|line| line.equals(&update, broadcast.message())) {
                Some(line) => push_with_seq(broadcast.forwarded_line(line), seq, lines),
                None => {
                    lines.push_str(&update_line_with(
                        broadcast.session,
                        &update,
                        broadcast.params_extra,
                        seq,
                    ));
                }
            }
        }
    }

    /// Whether a chunk of a message can be forwarded as the agent wrote it.
    fn takes_chunk(&mut self, update: &Update, from: Dialect) -> bool {
        let Update::Append { entry: EntryId::Message(role, id), item, .. } = update else { return false };
        match self.dialect {
            Dialect::V2 | Dialect::Draft => true,
            // A user message may be the client's own, which it is not sent again; agents of other dialects may send
            // the message again as a whole.
            Dialect::V1 => {
                *role != Role::User
                    && from == Dialect::V1
                    && plain_text(item.as_str()).is_some()
                    && self.peer.passed(*role, id)
            }
        }
    }
}

/// Appends a line with its end, with a seq in the metadata of its params, which have none.
fn push_with_seq(line: &str, seq: Option<u64>, lines: &mut String) {
    match (seq, line.strip_suffix("}}\n")) {
        (Some(seq), Some(start)) => {
            lines.push_str(start);
            push_seq(seq, lines);
            lines.push_str("}}\n");
        }
        (Some(_) | None, _) => lines.push_str(line),
    }
}

/// Appends the metadata with a seq to non-empty params.
fn push_seq(seq: u64, line: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(line, r#","_meta":{{"parlor/seq":{seq}}}"#);
}

/// Drops reserved metadata keys from an update; returns whether there were any.
pub fn drop_reserved(update: &mut Update) -> bool {
    match update {
        Update::Upsert { upsert, .. } => match &mut upsert.meta {
            MetaPatch::Keep | MetaPatch::Clear => false,
            MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta) => {
                drop_keys(meta)
            }
        },
        Update::Append { extra, .. } | Update::Output { extra, .. } | Update::Remove { extra, .. } => {
            let Some(mut members) = extra.as_ref().and_then(Json::to_object) else { return false };
            let dropped = drop_reserved_in(&mut members);
            if dropped {
                *extra = (!members.is_empty()).then(|| members.to_json());
            }
            dropped
        }
        Update::Note { fields } => drop_reserved_in(fields),
        Update::State(state) => state.meta.as_mut().is_some_and(drop_keys),
    }
}

/// Replaces the session ids in an update; `ours` returns the server's id for the agent's.
pub fn map_sessions(update: &mut Update, ours: impl Fn(&SessionId) -> Option<SessionId>) {
    let Update::Upsert { target: Target::Entry(entry), upsert } = update else { return };
    match entry {
        EntryId::Subagent(child) => {
            if let Some(known) = ours(child) {
                *child = known;
            }
        }
        EntryId::SessionMessage(_) => {
            for name in ["senderSessionId", "recipientSessionId"] {
                let named = upsert.fields.get_json_str(name);
                if let Some(known) = named.and_then(|id| ours(&id.into())) {
                    upsert.fields.set(name, known.as_json());
                }
            }
        }
        EntryId::Message(..)
        | EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => {}
    }
}

/// Whether an update is a notice, which is broadcast and not part of the transcript.
pub fn is_notice(update: &Update) -> bool {
    let Update::Note { fields } = update else { return false };
    fields.get_str("sessionUpdate").as_deref() == Some("notice")
}

/// Drops the reserved keys from the metadata of an object, and the metadata if it is empty then.
fn drop_reserved_in(holder: &mut Object) -> bool {
    let Some(mut meta) = holder.get_object("_meta") else { return false };
    let dropped = drop_keys(&mut meta);
    if dropped && meta.is_empty() {
        holder.remove("_meta");
    } else if dropped {
        holder.set("_meta", meta.to_json());
    }
    dropped
}

fn drop_keys(meta: &mut Object) -> bool {
    let is_reserved = |(name, _): &(&JsonStr, &Json)| name.to_text().starts_with(RESERVED);
    if !meta.iter().any(|member| is_reserved(&member)) {
        return false;
    }
    let kept = meta.iter().filter(|member| !is_reserved(member));
    *meta = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seq_is_added_only_to_a_line_that_ends_with_params_without_metadata() {
        let update = r#""update":{"sessionUpdate":"x","y":{"z":1}}"#;
        let start = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","#;
        for (line, with_seq) in [
            (
                format!("{start}{update}}}}}"),
                Some(format!(r#"{start}{update},"_meta":{{"parlor/seq":7}}}}}}"#)),
            ),
            (format!(r#"{start}{update},"_meta":{{"a":1}}}}}}"#), None),
            (format!("{start}{update}}} }}"), None),
            (
                format!(
                    r#"{{"method":"session/update","params":{{"sessionId":"s",{update}}},"jsonrpc":"2.0"}}"#
                ),
                None,
            ),
        ] {
            let read = AgentUpdate::read(&line).unwrap();
            let decoded = Decoded {
                update: Update::Note { fields: Object::default() },
                id_source: parlor_session::IdSource::Given,
                ignored: Vec::new(),
            };
            let agent_line = AgentLine::new(&line, None, read.params_extra(), &decoded);
            assert_eq!(agent_line.takes_seq(), with_seq.is_some(), "{line}");
            if let Some(with_seq) = with_seq {
                let mut lines = String::new();
                push_with_seq(&format!("{line}\n"), Some(7), &mut lines);
                assert_eq!(lines, format!("{with_seq}\n"));
            }
        }
    }
}
