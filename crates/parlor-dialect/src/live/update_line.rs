//! Reads and writes `session/update` lines without parsing more than is needed.

use std::ops::Range;

use parlor_json::{Json, JsonRef, JsonStr, Members};
use parlor_session::{EntryId, IdSource, MessageId, SessionId, Update, plain_text};
use parlor_wire::span_of;

use crate::broadcast::ParamsExtra;
use crate::fast_path::UpdateLine;
use crate::{BadUpdate, Decoded, Decoder, LineProblem};

/// The line of an update, with its line break. `seq` is for clients that requested it.
pub fn update_line(session: &SessionId, update: &str, seq: Option<u64>) -> String {
    update_line_with(session, update, &ParamsExtra::default(), seq)
}

/// Appends the line of [`update_line`], without a seq, to others.
pub fn push_update_line(lines: &mut String, session: &SessionId, update: &str) {
    push_update_line_with(lines, session, update, &ParamsExtra::default(), None);
}

/// As [`update_line`], with the other members of the agent's params.
pub(crate) fn update_line_with(
    session: &SessionId,
    update: &str,
    params_extra: &ParamsExtra,
    seq: Option<u64>,
) -> String {
    let mut line = String::with_capacity(update.len() + 128);
    push_update_line_with(&mut line, session, update, params_extra, seq);
    line
}

fn push_update_line_with(
    lines: &mut String,
    session: &SessionId,
    update: &str,
    params_extra: &ParamsExtra,
    seq: Option<u64>,
) {
    lines.push_str(r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"#);
    lines.push_str(session.as_json().as_literal());
    lines.push_str(r#","update":"#);
    lines.push_str(update);
    params_extra.write(seq, lines);
    lines.push_str("}}\n");
}

/// A `session/update` line of an agent, read in one pass.
pub struct AgentUpdate<'a>(pub(crate) UpdateLine<'a>);

impl<'a> AgentUpdate<'a> {
    /// Reads a line; `None` if it is another message or needs the general parser.
    pub fn read(line: &'a str) -> Option<Self> {
        UpdateLine::read(line).map(Self)
    }

    /// The agent's id of the session.
    pub fn session(&self) -> Option<SessionId> {
        JsonStr::from_raw(self.0.session).map(SessionId::from)
    }

    /// The metadata of the params.
    pub fn meta(&self) -> Option<JsonRef<'a>> {
        self.0.rest.iter().find(|(name, _)| *name == "_meta").map(|(_, meta)| *meta)
    }

    /// The other members of the params.
    pub fn params_extra(&self) -> ParamsExtra {
        ParamsExtra::of(self.0.rest.iter().copied())
    }

    /// The start of the line, up to and including the session id.
    pub fn prefix<'l>(&self, line: &'l str) -> &'l str {
        span_of(line, self.0.session).map_or(line, |span| &line[..span.end])
    }

    /// The positions of the parts that a server may replace.
    pub fn spans(&self, line: &str) -> Option<Spans> {
        let message = self.0.update.get("messageId").and_then(|id| span_of(line, id));
        let content = self.0.update.get("content").and_then(|content| span_of(line, content));
        let members = span_of(line, self.0.update.raw().first()?.0)?.start;
        Some(Spans { session: span_of(line, self.0.session)?, message, content, members })
    }

    /// Decodes the update.
    pub fn decode(
        self,
        decoder: &Decoder,
        new_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<Decoded, BadUpdate> {
        decoder.decode_members(self.0.update, new_id)
    }
}

/// The positions of the ids and the content in an update line.
#[derive(Debug, Clone)]
pub struct Spans {
    session: Range<usize>,
    message: Option<Range<usize>>,
    content: Option<Range<usize>>,
    /// The start of the members of the update.
    members: usize,
}

impl Spans {
    /// The content of the update.
    pub(crate) fn content<'l>(&self, line: &'l str) -> Option<&'l str> {
        line.get(self.content.clone()?)
    }

    /// Appends the line for a peer of the agent's dialect: the same bytes with the session's ids, and a line break.
    pub fn pass(&self, line: &str, session: &SessionId, message: Option<&MessageId>, passed: &mut String) {
        let session = (self.session.clone(), session.as_json().as_literal());
        let at_front = self.members..self.members;
        let message = message.map(|message| {
            let literal = message.as_json().as_literal();
            self.message.as_ref().map_or((at_front, literal), |span| (span.clone(), literal))
        });
        let mut parts = [Some(session), message];
        if let [Some(session), Some(message)] = &parts
            && message.0.start < session.0.start
        {
            parts.reverse();
        }
        let mut at = 0;
        for (span, literal) in parts.into_iter().flatten() {
            passed.push_str(&line[at..span.start]);
            if span.is_empty() {
                passed.push_str(r#""messageId":"#);
                passed.push_str(literal);
                passed.push(',');
            } else {
                passed.push_str(literal);
            }
            at = span.end;
        }
        passed.push_str(&line[at..]);
        passed.push('\n');
    }
}

/// The last chunk of a message. The chunks of a stream differ only in their content, so that the next line can be
/// read by comparing the rest.
#[derive(Debug)]
pub struct ChunkTemplate {
    before: String,
    after: String,
    spans: Spans,
    entry: EntryId,
    extra: Option<Json>,
    params_extra: ParamsExtra,
}

impl ChunkTemplate {
    /// The stream that a line starts or continues; `None` for a chunk without an id, whose message depends on other
    /// updates.
    pub fn after(line: &str, spans: &Spans, params_extra: &ParamsExtra, decoded: &Decoded) -> Option<Self> {
        let Update::Append { entry: entry @ EntryId::Message(..), extra, .. } = &decoded.update else {
            return None;
        };
        let content = spans.content.clone()?;
        let is_plain = decoded.id_source == IdSource::Given && decoded.ignored.is_empty();
        let ids_first = spans.session.end <= content.start
            && spans.message.as_ref().is_some_and(|message| message.end <= content.start);
        (is_plain && ids_first).then(|| Self {
            before: line[..content.start].to_owned(),
            after: line[content.end..].to_owned(),
            spans: spans.clone(),
            entry: entry.clone(),
            extra: extra.clone(),
            params_extra: params_extra.clone(),
        })
    }

    /// Reads a line that differs from the last one only in its plain text; `None` for any other line.
    pub fn read(&self, line: &str) -> Option<Decoded> {
        let content = self.content(line)?;
        let item: JsonRef<'_> = serde_json::from_str(content).ok()?;
        // White space around the item is not part of it.
        if item.as_str().len() != content.len() || plain_text(content).is_none() {
            return None;
        }
        let update =
            Update::Append { entry: self.entry.clone(), item: Json::from(item), extra: self.extra.clone() };
        Some(Decoded { update, id_source: IdSource::Given, ignored: Vec::new() })
    }

    /// The content of a line that is otherwise equal to the last one.
    pub(crate) fn content<'l>(&self, line: &'l str) -> Option<&'l str> {
        line.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())
    }

    /// The positions of the ids in such lines.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// The other members of the params of such lines.
    pub fn params_extra(&self) -> &ParamsExtra {
        &self.params_extra
    }
}

/// Reads the session id and the update from the params of a `session/update`.
pub fn update_of(params: Option<JsonRef<'_>>) -> Result<(SessionId, JsonRef<'_>), LineProblem> {
    let params = params.ok_or(LineProblem::NoUpdate("`params` is missing"))?;
    let params = Members::of(params).map_err(|_| LineProblem::NoUpdate("`params` is not an object"))?;
    let session = params.get("sessionId").and_then(JsonStr::from_raw);
    let session = session.ok_or(LineProblem::NoUpdate("`sessionId` is missing"))?;
    let update = params.get("update").ok_or(LineProblem::NoUpdate("`update` is missing"))?;
    Ok((session.into(), update))
}

/// The kind of the update in a line.
pub fn update_kind(line: &str) -> Option<String> {
    let message: JsonRef<'_> = serde_json::from_str(line).ok()?;
    let message = Members::of(message).ok()?;
    let (_, update) = update_of(message.get("params")).ok()?;
    let update = Members::of(update).ok()?;
    Some(update.get("sessionUpdate")?.to_text()?.into_owned())
}
