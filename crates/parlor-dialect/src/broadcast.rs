//! One change, told to many listeners: the agent's own line where that is exactly what a listener would be told, else the
//! change as the listener's dialect says it.
//!
//! A line is passed on only if it is canonical for the receiver and the applied change is what it says. That is found out
//! by saying the change: if the result has the same members as the line, the line is as good, and keeps its bytes. Chunks
//! of messages, nearly all that agents say, are compared without being said.

use std::cell::OnceCell;
use std::sync::Arc;

use parlor_json::{Json, JsonRef, JsonStr, Members, Object};
use parlor_session::{
    Change, EntryId, MessageId, MetaPatch, Role, SessionId, Target, Transcript, Update, plain_text,
};

use crate::live::{AgentUpdate, Listener, Spans, Stream, Telling, update_line_with};
use crate::{Decoded, Dialect, Losses, shape};

/// The prefix of the metadata keys that only parlor writes.
const RESERVED: &str = "parlor/";

/// What the params of an update say beside the session and the update itself. It is passed on and not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    members: Option<Arc<Object>>,
    /// Whether metadata keys were dropped that are parlor's own.
    pub(crate) was_reserved: bool,
}

impl Beside {
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

    /// Reads the params of an update the long way.
    pub fn of_params(params: &Object) -> Self {
        let mut rest = params.clone();
        for name in ["sessionId", "update"] {
            rest.remove(name);
        }
        Self::new(rest)
    }

    /// Whether keys were dropped that an agent cannot write.
    pub fn was_reserved(&self) -> bool {
        self.was_reserved
    }

    /// Writes the members into params that are not empty, with the number of the change among the metadata.
    pub(crate) fn write(&self, seq: Option<u64>, line: &mut String) {
        let empty = Object::default();
        let members = self.members.as_deref().unwrap_or(&empty);
        let mut meta = seq.map(|seq| {
            let mut meta = members.get_object("_meta").unwrap_or_default();
            meta.set("parlor/seq", shape::json(seq.to_string()));
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

/// A line of the agent that was read as an update.
#[derive(Debug)]
pub struct AgentLine<'a> {
    line: &'a str,
    /// Where its parts stand. Without this it cannot be passed on.
    spans: Option<&'a Spans>,
    /// The content of the update, as it stands in the line.
    content: Option<&'a str>,
    beside: Beside,
    /// Whose message the line adds to, and what it says besides the content, if it is a chunk of one.
    chunk: Option<(Role, Option<Json>)>,
    /// The members of the update, read again when they are needed.
    members: OnceCell<Option<Members<'a>>>,
}

impl<'a> AgentLine<'a> {
    /// A line, as it was decoded: before the update was changed in any way.
    pub fn new(line: &'a str, spans: Option<&'a Spans>, beside: Beside, decoded: &Decoded) -> Self {
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
        Self { line, spans, content, beside, chunk, members: OnceCell::new() }
    }

    /// The next line of a stream.
    pub fn of_stream(line: &'a str, stream: &'a Stream, decoded: &Decoded) -> Self {
        let beside = stream.beside().clone();
        Self { content: stream.content(line), ..Self::new(line, Some(stream.spans()), beside, decoded) }
    }

    /// A line of which only that is known which it said beside its update.
    pub fn unread(beside: Beside) -> Self {
        Self { line: "", spans: None, content: None, beside, chunk: None, members: OnceCell::new() }
    }

    /// What the line says beside the update.
    pub fn beside(&self) -> &Beside {
        &self.beside
    }

    /// Whether the line is a chunk that says just what changed.
    fn is_chunk(&self, update: &Update) -> bool {
        let Update::Append { entry: EntryId::Message(role, _), item, extra } = update else { return false };
        self.chunk.as_ref().is_some_and(|(said, more)| said == role && more == extra)
            && self.content == Some(item.as_str())
    }

    /// Whether an update for a listener has the members of the line's. The id of the message is replaced in any case.
    fn says(&self, update: &str, message: Option<&MessageId>) -> bool {
        let line = self.members.get_or_init(|| AgentUpdate::read(self.line).map(|read| read.0.update));
        let (Some(line), Some(told)) = (line, Members::parse(update)) else { return false };
        let is_id = |name: JsonRef<'_>| message.is_some() && name.as_str() == r#""messageId""#;
        line.len() == told.len()
            && told.raw().iter().all(|(name, value)| {
                let same = line.raw().iter().find(|(other, _)| other.as_str() == name.as_str());
                let id = message.filter(|_| is_id(*name)).map(|id| id.as_json().as_literal());
                same.is_some_and(|(_, said)| said.as_str() == value.as_str() || id == Some(value.as_str()))
            })
    }
}

/// A change on its way to all listeners of a session.
pub struct Broadcast<'a, 'l> {
    session: &'a SessionId,
    change: &'a Change,
    telling: Telling<'a>,
    line: Option<&'a AgentLine<'l>>,
    beside: &'a Beside,
    /// The agent's line with the session's ids, once somebody needs it.
    passed: String,
}

impl<'a, 'l> Broadcast<'a, 'l> {
    /// A change of a session whose agent speaks `from`, with the line that brought it if there is one. `room` is a string
    /// that is used again.
    pub fn new(
        session: &'a SessionId,
        from: Dialect,
        transcript: &'a Transcript,
        change: &'a Change,
        line: Option<&'a AgentLine<'l>>,
        mut room: String,
    ) -> Self {
        const NOTHING: &Beside = &Beside { members: None, was_reserved: false };
        room.clear();
        let telling = Telling { from, transcript, meta_before: change.meta_before.as_ref() };
        let beside = line.map_or(NOTHING, |line| &line.beside);
        // Keys that are not passed on stand in the line.
        let line = line.filter(|line| !line.beside.was_reserved && line.spans.is_some());
        Self { session, change, telling, line, beside, passed: room }
    }

    /// Gives the string back.
    pub fn into_room(self) -> String {
        self.passed
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
    fn passed(&mut self, line: &AgentLine<'_>) -> &str {
        if let Some(spans) = line.spans.filter(|_| self.passed.is_empty()) {
            spans.pass(line.line, self.session, self.message(), &mut self.passed);
        }
        &self.passed
    }
}

impl Listener {
    /// Writes the lines that tell of a change. With `wants_seq` each has the number of the change.
    pub fn broadcast(
        &mut self,
        broadcast: &mut Broadcast<'_, '_>,
        wants_seq: bool,
        fresh: &mut dyn FnMut() -> MessageId,
        losses: &mut Losses,
        lines: &mut String,
    ) {
        let change = broadcast.change;
        // A number that the line does not have must be put into it.
        let line = broadcast.line.filter(|_| !wants_seq);
        if let Some(line) = line.filter(|line| line.is_chunk(&change.update))
            && self.takes_chunk(&change.update, broadcast.telling.from)
        {
            lines.push_str(broadcast.passed(line));
            return;
        }
        for update in self.tell(&change.update, broadcast.telling, fresh, losses) {
            match line.filter(|line| line.says(&update, broadcast.message())) {
                Some(line) => lines.push_str(broadcast.passed(line)),
                None => {
                    let seq = wants_seq.then_some(change.seq);
                    lines.push_str(&update_line_with(broadcast.session, &update, broadcast.beside, seq));
                }
            }
        }
    }

    /// Whether a chunk of a message can be passed on as the agent wrote it.
    fn takes_chunk(&mut self, update: &Update, from: Dialect) -> bool {
        let Update::Append { entry: EntryId::Message(role, id), item, .. } = update else { return false };
        match self.dialect {
            Dialect::V2 | Dialect::Draft => true,
            // A person's words may be the client's own, which it is not told again; and what other agents stream they may
            // say again as a whole.
            Dialect::V1 => {
                *role != Role::User
                    && from == Dialect::V1
                    && plain_text(item.as_str()).is_some()
                    && self.heard.passed(*role, id)
            }
        }
    }
}

/// Drops the metadata keys from an update that only parlor writes; whether there were any.
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

/// Says the ids of sessions in an update as the server knows them; `ours` gives the server's id for the agent's.
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
                let named = upsert.fields.get(name).and_then(|id| JsonStr::from_raw(id.raw()));
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

/// Whether an update is a notice: something that is told now and is no part of the conversation.
pub fn is_notice(update: &Update) -> bool {
    let Update::Note { fields } = update else { return false };
    fields.get_string("sessionUpdate").as_deref() == Some("notice")
}

/// Drops the reserved keys from the metadata of an object, and the metadata if nothing else is in it.
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
