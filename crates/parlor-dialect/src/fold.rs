use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use parlor_json::{JsonRef, JsonStr, Members};
use parlor_session::{
    EntryId, IdSource, MessageId, Role, SessionId, Target, Transcript, Update, UpdateError,
};
use parlor_wire::{Body, Incoming, Malformed, Message, RequestId, parse};

use crate::fast_path::UpdateLine;
use crate::live::AgentUpdate;
use crate::{BadUpdate, Decoder, Dialect, Recorded, Side};

/// Maximum number of unanswered requests that are remembered; the oldest is dropped for a new one.
const MAX_OPEN: usize = 1000;

/// Maximum number of session ids that are remembered.
const MAX_SESSIONS: usize = 1000;

/// Folds the lines of one session to the transcript they mean.
///
/// A line is a JSON-RPC message, a bare update object, or either of them as a recording writes it
/// ([`Recorded`]). Updates change the transcript, prompts and their answers are turn boundaries, and every
/// other message is skipped. An update that cannot be taken changes nothing.
///
/// ```
/// use parlor_dialect::{Dialect, Fold};
///
/// let mut fold = Fold::new(Dialect::V1);
/// fold.line(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}"#).unwrap();
/// assert_eq!(fold.transcript().entries().len(), 1);
/// ```
#[derive(Debug, Clone)]
pub struct Fold {
    decoder: Decoder,
    transcript: Transcript,
    /// The session that is folded: the requested one, or the first that was updated.
    session: Option<SessionId>,
    /// Every session that was updated, in order, as far as there is room to remember.
    sessions: Vec<SessionId>,
    /// Requests that have no answer yet, with the session where they are prompts.
    open: VecDeque<(RequestId, Option<SessionId>)>,
    /// Number of message ids that were assigned.
    named: u64,
    generated: GeneratedIds,
}

/// Why a line, or a part of it, was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineProblem {
    /// It is not a message.
    Malformed(Malformed),
    /// Its params are not those of an update.
    NoUpdate(&'static str),
    /// Its update cannot be read.
    BadUpdate(BadUpdate),
    /// The update was rejected by the transcript.
    Rejected(UpdateError),
    /// The update was applied without these optional fields, which cannot be decoded.
    Ignored(Vec<BadUpdate>),
    /// These messages of a batch had problems; the others were applied.
    Batch(Vec<LineProblem>),
}

impl Fold {
    /// Folds the one session that the lines are about.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            decoder: Decoder::new(dialect),
            transcript: Transcript::default(),
            session: None,
            sessions: Vec::new(),
            open: VecDeque::new(),
            named: 0,
            generated: GeneratedIds::default(),
        }
    }

    /// Folds one session of several.
    pub fn of_session(dialect: Dialect, session: SessionId) -> Self {
        Self { session: Some(session), ..Self::new(dialect) }
    }

    /// The transcript so far.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The sessions that the lines updated, in the order of their first updates.
    pub fn sessions(&self) -> &[SessionId] {
        &self.sessions
    }

    /// Applies one line.
    pub fn line(&mut self, line: &str) -> Result<(), LineProblem> {
        let Some(recorded) = Recorded::read(line) else { return Ok(()) };
        if let Some(line) = UpdateLine::read(recorded.message) {
            return if self.is_ours(Some(line.session))? { self.update(line.update) } else { Ok(()) };
        }
        if let Some(members) = Members::parse(recorded.message)
            && members.get("sessionUpdate").is_some()
            && members.get("jsonrpc").is_none()
        {
            return self.update(members);
        }
        match parse(recorded.message, self.decoder.dialect().batches()).map_err(LineProblem::Malformed)? {
            Incoming::One(message) => self.message(&message, recorded.from),
            Incoming::Batch(messages) => {
                let taken = messages.into_iter().map(|message| match message {
                    Ok(message) => self.message(&message, recorded.from),
                    Err(malformed) => Err(LineProblem::Malformed(malformed)),
                });
                let problems: Vec<_> = taken.filter_map(Result::err).collect();
                if problems.is_empty() { Ok(()) } else { Err(LineProblem::Batch(problems)) }
            }
        }
    }

    /// Applies an update that is read already, whatever its session id.
    pub fn take(&mut self, update: AgentUpdate<'_>) -> Result<(), LineProblem> {
        self.update(update.0.update)
    }

    fn message(&mut self, message: &Message<'_>, from: Option<Side>) -> Result<(), LineProblem> {
        match &message.body {
            Body::Notification { method, params } if method == "session/update" => {
                let params = params.ok_or(LineProblem::NoUpdate("`params` is missing"))?;
                let params =
                    Members::of(params).map_err(|_| LineProblem::NoUpdate("`params` is not an object"))?;
                if !self.is_ours(params.get("sessionId"))? {
                    return Ok(());
                }
                let update = params.get("update").ok_or(LineProblem::NoUpdate("`update` is missing"))?;
                self.update(
                    Members::of(update).map_err(|_| LineProblem::NoUpdate("`update` is not an object"))?,
                )
            }
            Body::Notification { .. } => Ok(()),
            Body::Request { id, method, params } => {
                let is_prompt = method == "session/prompt" && from != Some(Side::Agent);
                self.on_request(id, params.filter(|_| is_prompt), from);
                Ok(())
            }
            Body::Response { id, .. } => {
                if from != Some(Side::Client) {
                    self.on_response(id);
                }
                Ok(())
            }
        }
    }

    /// Tracks a request; `prompt` has the params of one that starts a turn.
    fn on_request(&mut self, id: &RequestId, prompt: Option<JsonRef<'_>>, from: Option<Side>) {
        let session = prompt.and_then(|params| Members::of(params).ok()?.get("sessionId"));
        let session = session.and_then(JsonStr::from_raw).map(SessionId::from);
        if let Some(session) = &session {
            self.on_turn_boundary(session);
        }
        // Without directions, the requests of both sides are open, and both sides may count their ids from 0: a
        // response is matched with the latest request of its id.
        if session.is_some() || from.is_none() {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            self.open.push_back((id.clone(), session));
        }
    }

    fn on_response(&mut self, id: &RequestId) {
        let index = self.open.iter().rposition(|(request, _)| request == id);
        if let Some((_, Some(session))) = index.and_then(|index| self.open.remove(index)) {
            self.on_turn_boundary(&session);
        }
    }

    fn on_turn_boundary(&mut self, session: &SessionId) {
        if self.session.as_ref().is_none_or(|ours| ours == session) {
            self.decoder.on_turn_boundary();
        }
    }

    /// Whether an update belongs to the folded session.
    fn is_ours(&mut self, id: Option<JsonRef<'_>>) -> Result<bool, LineProblem> {
        let id = id.and_then(JsonStr::from_raw).map(SessionId::from);
        let id = id.ok_or(LineProblem::NoUpdate("`sessionId` must be a string"))?;
        let known = self.sessions.last() == Some(&id) || self.sessions.contains(&id);
        if !known && self.sessions.len() < MAX_SESSIONS {
            self.sessions.push(id.clone());
        }
        Ok(*self.session.get_or_insert_with(|| id.clone()) == id)
    }

    fn update(&mut self, update: Members<'_>) -> Result<(), LineProblem> {
        let Self { decoder, named, transcript, generated, .. } = self;
        let decoded = decoder.decode_members(update, &mut || generated.new_id(transcript, "parlor", named));
        let mut decoded = decoded.map_err(LineProblem::BadUpdate)?;
        generated.replace_id(&mut decoded.update, decoded.id_source, transcript, named);
        let change = transcript.push(decoded.update).map_err(LineProblem::Rejected)?;
        decoder.on_applied(&change, decoded.id_source);
        if decoded.ignored.is_empty() { Ok(()) } else { Err(LineProblem::Ignored(decoded.ignored)) }
    }
}

/// The message ids that were assigned in one session. An agent's id that equals one of them is replaced.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeneratedIds {
    given: HashSet<MessageId>,
    /// The agent's ids that were replaced, with their replacements.
    renamed: HashMap<MessageId, MessageId>,
}

impl GeneratedIds {
    /// An id that no message of the session has; `count` is the number of ids assigned so far.
    ///
    /// Replacements of agent ids have another prefix than ids of messages without one, so that a translation can be
    /// translated back without collisions.
    pub(crate) fn new_id(&mut self, transcript: &Transcript, prefix: &str, count: &mut u64) -> MessageId {
        let id = Self::unused_id(transcript, prefix, count);
        self.given.insert(id.clone());
        id
    }

    /// As [`new_id`](Self::new_id), for a message that the agent may still send under its own id.
    pub(crate) fn unused_id(transcript: &Transcript, prefix: &str, count: &mut u64) -> MessageId {
        loop {
            *count += 1;
            let id = MessageId::from(format!("{prefix}-{count}").as_str());
            let has = |role| transcript.get(&EntryId::Message(role, id.clone())).is_some();
            if !has(Role::User) && !has(Role::Agent) && !has(Role::Thought) {
                return id;
            }
        }
    }

    /// Replaces the id of a message if it was assigned to another message before. Returns the new id and the agent's,
    /// the first time.
    pub(crate) fn replace_id(
        &mut self,
        update: &mut Update,
        id_source: IdSource,
        transcript: &Transcript,
        count: &mut u64,
    ) -> Option<(MessageId, MessageId)> {
        let id = match update {
            Update::Append { entry: EntryId::Message(_, id), .. }
            | Update::Upsert { target: Target::Entry(EntryId::Message(_, id)), .. }
                if id_source != IdSource::Assigned && self.given.contains(id) =>
            {
                id
            }
            Update::Append { .. }
            | Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => return None,
        };
        if let Some(renamed) = self.renamed.get(id) {
            *id = renamed.clone();
            return None;
        }
        let ours = self.new_id(transcript, "parlor", count);
        let theirs = std::mem::replace(id, ours.clone());
        self.renamed.insert(theirs.clone(), ours.clone());
        Some((ours, theirs))
    }
}

impl fmt::Display for LineProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::NoUpdate(problem) => write!(f, "no session update: {problem}"),
            Self::BadUpdate(bad) => bad.fmt(f),
            Self::Rejected(error) => error.fmt(f),
            Self::Ignored(fields) => {
                let fields: Vec<_> = fields.iter().map(ToString::to_string).collect();
                write!(f, "{}; the rest was taken", fields.join("; "))
            }
            Self::Batch(problems) => {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                write!(f, "in a batch: {}", problems.join("; "))
            }
        }
    }
}

impl std::error::Error for LineProblem {}
