use std::fmt;

use parlor_json::{JsonStr, Members};
use parlor_session::{MessageId, Refused, SessionId, Transcript};
use parlor_wire::{Batches, Body, Incoming, Malformed, Message, RequestId, parse};
use serde_json::value::RawValue;

use crate::hot::UpdateLine;
use crate::{BadUpdate, Decoder, Dialect, Recorded, Side};

/// Folds the lines of one session to the transcript they mean.
///
/// A line is a JSON-RPC message, a bare update object, or either of them as a recording writes it
/// ([`Recorded`]). Updates change the transcript, prompts and their answers are turn boundaries, and every
/// other message is skipped. A line that cannot be taken changes nothing.
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
    /// Every session that was updated, in order.
    sessions: Vec<SessionId>,
    /// Prompts that have no answer yet. A peer answers what it was asked, so this is as long as its own
    /// list of open requests.
    prompts: Vec<(RequestId, SessionId)>,
    /// How many ids were given to messages that had none.
    named: u64,
}

/// Why a line was not taken.
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
}

impl Fold {
    /// Folds the one session that the lines are about.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            decoder: Decoder::new(dialect),
            transcript: Transcript::default(),
            session: None,
            sessions: Vec::new(),
            prompts: Vec::new(),
            named: 0,
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
        match parse(recorded.message, Batches::Accept).map_err(LineProblem::Malformed)? {
            Incoming::One(message) => self.message(&message, recorded.from),
            Incoming::Batch(messages) => messages.into_iter().try_for_each(|message| {
                self.message(&message.map_err(LineProblem::Malformed)?, recorded.from)
            }),
        }
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
            Body::Request { id, method, params }
                if method == "session/prompt" && from != Some(Side::Agent) =>
            {
                let params = params.and_then(|params| Members::of(params).ok()).unwrap_or_default();
                if let Some(session) = params.get("sessionId").and_then(JsonStr::from_raw) {
                    self.turn_boundary(&session.clone().into());
                    self.prompts.push((id.clone(), session.into()));
                }
                Ok(())
            }
            Body::Response { id, .. } if from != Some(Side::Client) => {
                if let Some(place) = self.prompts.iter().position(|(prompt, _)| prompt == id) {
                    let (_, session) = self.prompts.remove(place);
                    self.turn_boundary(&session);
                }
                Ok(())
            }
            Body::Notification { .. } | Body::Request { .. } | Body::Response { .. } => Ok(()),
        }
    }

    fn turn_boundary(&mut self, session: &SessionId) {
        if self.session.as_ref().is_none_or(|ours| ours == session) {
            self.decoder.turn_boundary();
        }
    }

    /// Whether an update is about the session that is folded.
    fn is_ours(&mut self, id: Option<&RawValue>) -> Result<bool, LineProblem> {
        let id = id.and_then(JsonStr::from_raw).map(SessionId::from);
        let id = id.ok_or(LineProblem::NoUpdate("`sessionId` must be a string"))?;
        if !self.sessions.contains(&id) {
            self.sessions.push(id.clone());
        }
        Ok(*self.session.get_or_insert_with(|| id.clone()) == id)
    }

    fn update(&mut self, update: Members<'_>) -> Result<(), LineProblem> {
        let Self { decoder, named, .. } = self;
        let mut fresh = || {
            *named += 1;
            MessageId::from(format!("parlor-{named}").as_str())
        };
        let update = decoder.decode_members(update, &mut fresh).map_err(LineProblem::BadUpdate)?;
        self.transcript.push(update).map(drop).map_err(LineProblem::Refused)
    }
}

impl fmt::Display for LineProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::NoUpdate(problem) => write!(f, "no session update: {problem}"),
            Self::BadUpdate(bad) => bad.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for LineProblem {}
