use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use parlor_json::{JsonRef, JsonStr, Members};
use parlor_session::{EntryId, MessageId, Naming, Refused, Role, SessionId, Target, Transcript, Update};
use parlor_wire::{Body, Incoming, Malformed, Message, RequestId, parse};

use crate::hot::UpdateLine;
use crate::live::AgentUpdate;
use crate::{BadUpdate, Decoded, Decoder, Dialect, Recorded, Side};

/// How many unanswered requests are remembered; the oldest is forgotten for one more.
const MAX_OPEN: usize = 1000;

/// How many sessions are remembered by name.
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
    /// The session that is folded: the one that was asked for, or the first that was updated.
    session: Option<SessionId>,
    /// Every session that was updated, in order, as far as there is room to remember.
    sessions: Vec<SessionId>,
    /// Requests that have no answer yet, with the session where they are prompts.
    open: VecDeque<(RequestId, Option<SessionId>)>,
    /// How many ids were given to messages that had none.
    named: u64,
    generated: GeneratedIds,
}

/// Why a line was not taken, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineProblem {
    /// It is no message.
    Malformed(Malformed),
    /// Its params are not those of an update.
    NoUpdate(&'static str),
    /// Its update cannot be read.
    BadUpdate(BadUpdate),
    /// Its update was not taken.
    Refused(Refused),
    /// Its update was taken without these optional fields, which cannot be read.
    Ignored(Vec<BadUpdate>),
    /// These messages of a batch had problems; the others were taken.
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

    /// Takes one line.
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

    /// Takes an update that was read already, whatever session it names.
    pub fn take(&mut self, update: AgentUpdate<'_>) -> Result<(), LineProblem> {
        self.update(update.0.update)
    }

    fn message(&mut self, message: &Message<'_>, from: Option<Side>) -> Result<(), LineProblem> {
        match &message.body {
            Body::Notification { method, params } if method == "session/update" => {
                let params = params.ok_or(LineProblem::NoUpdate("`params` is missing"))?;
                let params =
                    Members::of(params).map_err(|_| LineProblem::NoUpdate("`params` is no object"))?;
                if !self.is_ours(params.get("sessionId"))? {
                    return Ok(());
                }
                let update = params.get("update").ok_or(LineProblem::NoUpdate("`update` is missing"))?;
                self.update(Members::of(update).map_err(|_| LineProblem::NoUpdate("`update` is no object"))?)
            }
            Body::Notification { .. } => Ok(()),
            Body::Request { id, method, params } => {
                let is_prompt = method == "session/prompt" && from != Some(Side::Agent);
                self.asked(id, params.filter(|_| is_prompt), from);
                Ok(())
            }
            Body::Response { id, .. } => {
                if from != Some(Side::Client) {
                    self.answered(id);
                }
                Ok(())
            }
        }
    }

    /// A request was made; `prompt` has the params of one that starts a turn.
    fn asked(&mut self, id: &RequestId, prompt: Option<JsonRef<'_>>, from: Option<Side>) {
        let session = prompt.and_then(|params| Members::of(params).ok()?.get("sessionId"));
        let session = session.and_then(JsonStr::from_raw).map(SessionId::from);
        if let Some(session) = &session {
            self.turn_boundary(session);
        }
        // Where lines do not say who speaks, the requests of both sides are open, and both count their ids
        // from 0. The last one asked is taken to be the one that is answered.
        if session.is_some() || from.is_none() {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            self.open.push_back((id.clone(), session));
        }
    }

    fn answered(&mut self, id: &RequestId) {
        let place = self.open.iter().rposition(|(asked, _)| asked == id);
        if let Some((_, Some(session))) = place.and_then(|place| self.open.remove(place)) {
            self.turn_boundary(&session);
        }
    }

    fn turn_boundary(&mut self, session: &SessionId) {
        if self.session.as_ref().is_none_or(|ours| ours == session) {
            self.decoder.turn_boundary();
        }
    }

    /// Whether an update is about the session that is folded.
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
        generated.set_apart(&mut decoded, transcript, named);
        let change = transcript.push(decoded.update).map_err(LineProblem::Refused)?;
        decoder.took(&change, decoded.naming);
        if decoded.ignored.is_empty() { Ok(()) } else { Err(LineProblem::Ignored(decoded.ignored)) }
    }
}

/// The message ids that were generated in one session. An id of the agent's own that is spelled like one of them is set
/// apart from it.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeneratedIds {
    given: HashSet<MessageId>,
    /// The agent's own ids that were given before, with the ids that stand for them.
    renamed: HashMap<MessageId, MessageId>,
}

impl GeneratedIds {
    /// An id that no message of the session has; `count` says how many were given so far.
    ///
    /// Ids that stand for another one have another prefix than those of messages that had none, so that what was
    /// translated once can be translated back without the two meeting.
    pub(crate) fn new_id(&mut self, transcript: &Transcript, prefix: &str, count: &mut u64) -> MessageId {
        let id = Self::unused_id(transcript, prefix, count);
        self.given.insert(id.clone());
        id
    }

    /// The same, for a message that the agent may still name.
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

    /// Gives a message another id if the agent's own was generated for another message before. Returns the new id and
    /// the agent's, the first time.
    pub(crate) fn set_apart(
        &mut self,
        decoded: &mut Decoded,
        transcript: &Transcript,
        count: &mut u64,
    ) -> Option<(MessageId, MessageId)> {
        let id = match &mut decoded.update {
            Update::Append { entry: EntryId::Message(_, id), .. }
            | Update::Upsert { target: Target::Entry(EntryId::Message(_, id)), .. }
                if decoded.naming != Naming::Named && self.given.contains(id) =>
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
            Self::Refused(refused) => refused.fmt(f),
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
