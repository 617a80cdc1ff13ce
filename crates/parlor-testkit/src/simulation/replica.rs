//! What a client knows of a session, folded from what it was sent.

use parlor_dialect::{Dialect, Fold};
use parlor_session::{SessionId, Transcript};
use serde_json::Value;

use super::client::{Following, Tag};

/// A session as one client program knows it, over all its connections.
#[derive(Debug)]
pub(super) struct Replica {
    id: SessionId,
    dialect: Dialect,
    wants_seq: bool,
    fold: Fold,
    /// Entries that were created up to this change may be known in part.
    pub(super) floor: u64,
    /// The change up to which all is known, if that is known.
    pub(super) seq: Option<u64>,
    /// The number of the last change that it received since it was attached.
    last_seq: u64,
    phase: Phase,
    /// Whether it is attached without having asked, because it prompted or is attached to the owner of a subagent.
    is_implicit: bool,
    /// The value of `Following::changes` when it was attached.
    following: u64,
    /// The task of the session whose updates it received.
    pub(super) incarnation: u64,
    /// The prompt queue that it received last.
    pub(super) queue: Option<Value>,
    /// The prompt queue that it received in a replay that is not over.
    queue_anew: Option<Value>,
    /// The text marks of each message since it was last sent as a whole, to find text that is sent twice.
    chunks: Vec<(String, u64)>,
    /// The same of a replay that is not over.
    chunks_anew: Vec<(String, u64)>,
    /// The messages that were sent as a whole since the replay began.
    wholes: Vec<String>,
}

/// Whether a client is attached, as it knows.
#[derive(Debug)]
enum Phase {
    Detached,
    /// It asked to be attached and has no answer yet.
    Attaching {
        request: u64,
        from: From,
        was_attached: bool,
        anew: Option<Box<Fold>>,
    },
    Attached,
}

/// The point from which a client wants a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum From {
    Start,
    Now,
    After(u64),
    Message(String),
}

impl Replica {
    pub(super) fn new(id: SessionId, dialect: Dialect, wants_seq: bool) -> Self {
        let fold = Fold::of_session(dialect, id.clone());
        Self {
            id,
            dialect,
            wants_seq,
            fold,
            floor: u64::MAX,
            seq: None,
            last_seq: 0,
            phase: Phase::Detached,
            is_implicit: false,
            following: 0,
            incarnation: 0,
            queue: None,
            queue_anew: None,
            chunks: Vec::new(),
            chunks_anew: Vec::new(),
            wholes: Vec::new(),
        }
    }

    pub(super) fn transcript(&self) -> &Transcript {
        self.fold.transcript()
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.phase, Phase::Attached)
    }

    pub(super) fn is_attaching(&self) -> bool {
        matches!(self.phase, Phase::Attaching { .. })
    }

    pub(super) fn is_detached(&self) -> bool {
        matches!(self.phase, Phase::Detached)
    }

    /// The session was closed. A request to be attached that was made since then is still to be answered.
    pub(super) fn closed(&mut self) {
        match &mut self.phase {
            Phase::Attaching { was_attached, .. } => *was_attached = false,
            Phase::Attached | Phase::Detached => self.phase = Phase::Detached,
        }
    }

    /// The connection is gone.
    pub(super) fn detach(&mut self) {
        self.phase = Phase::Detached;
    }

    fn blank(&self) -> Fold {
        Fold::of_session(self.dialect, self.id.clone())
    }

    fn reset(&mut self, fold: Fold, floor: u64) {
        self.fold = fold;
        self.floor = floor;
        self.seq = None;
    }

    /// The client asks to be attached with a request.
    pub(super) fn attach(&mut self, request: u64, from: From) {
        let was_attached = self.is_attached();
        let anew = matches!(from, From::Start | From::Message(_)).then(|| Box::new(self.blank()));
        self.wholes.clear();
        self.queue_anew = None;
        self.chunks_anew.clear();
        self.phase = Phase::Attaching { request, from, was_attached, anew };
    }

    /// Whether this is the request to be attached that the client waits for. The response to an earlier one may still come: a
    /// client that begins a session and attaches to it as well is attached by the first response.
    fn awaits(&self, response_to: u64) -> bool {
        matches!(self.phase, Phase::Attaching { request, .. } if request == response_to)
    }

    /// A request to be attached was refused.
    pub(super) fn refused(&mut self, request: u64) {
        if !self.awaits(request) {
            return;
        }
        let was_attached = matches!(self.phase, Phase::Attaching { was_attached: true, .. });
        self.phase = if was_attached { Phase::Attached } else { Phase::Detached };
    }

    /// A request to be attached was answered. `floor` is the change before the message that was asked for.
    pub(super) fn attached(&mut self, request: u64, result: &Value, tag: Tag, floor: Option<u64>) {
        if !self.awaits(request) {
            return;
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Attached);
        let Phase::Attaching { from, was_attached, anew, .. } = phase else { return };
        let seq = result["_meta"]["parlor/seq"].as_u64();
        match (from, anew) {
            (From::Start, Some(fold)) => {
                self.reset(*fold, 0);
                self.queue = self.queue_anew.take();
                self.chunks = std::mem::take(&mut self.chunks_anew);
            }
            (From::Message(_), Some(fold)) => {
                self.reset(*fold, floor.unwrap_or(u64::MAX));
                self.queue = self.queue_anew.take();
                self.chunks = std::mem::take(&mut self.chunks_anew);
            }
            (From::Now, _) if !was_attached || !self.is_continued(tag) => {
                let blank = self.blank();
                self.reset(blank, seq.unwrap_or(u64::MAX));
                self.queue = None;
            }
            (From::Now | From::After(_), _) | (From::Start | From::Message(_), None) => {}
        }
        self.incarnation = tag.incarnation;
        self.is_implicit = false;
        self.seq = seq.filter(|_| self.wants_seq);
        self.last_seq = seq.unwrap_or_default();
        self.wholes.clear();
        if self.dialect != Dialect::V1 {
            for (member, kind) in [
                ("configOptions", "config_option_update"),
                ("availableCommands", "available_commands_update"),
            ] {
                if let Some(list) = result.get(member) {
                    let line = format!(r#"{{"sessionUpdate":"{kind}","{member}":{list}}}"#);
                    let _ = self.fold.line(&line);
                }
            }
        }
    }

    /// Whether a frame continues what it was sent last. If the session was opened again, or the client stopped following the
    /// session of a subagent and follows it again, it missed what happened meanwhile.
    pub(super) fn is_continued(&self, tag: Tag) -> bool {
        self.incarnation == tag.incarnation && (!self.is_implicit || self.following == tag.following.changes)
    }

    /// Takes an update. Returns what is wrong with it, if anything is.
    pub(super) fn update(&mut self, line: &str, value: &Value, tag: Tag) -> Option<String> {
        let seq = value["params"]["_meta"]["parlor/seq"].as_u64();
        let update = &value["params"]["update"];
        let queue = update["_meta"].get("parlor/queue");
        let is_unasked = match &self.phase {
            Phase::Detached => true,
            Phase::Attached => !self.is_continued(tag),
            Phase::Attaching { .. } => false,
        };
        if is_unasked && tag.following.is_over {
            // Sent before it left the owner.
            self.phase = Phase::Detached;
            return None;
        }
        if is_unasked {
            // It knows nothing of what was, but for the session of a subagent that it was sent from the start.
            let blank = self.blank();
            self.chunks.clear();
            self.queue = None;
            let Following { changes, floor, .. } = tag.following;
            self.reset(blank, if changes > 0 { floor } else { seq.unwrap_or(u64::MAX) });
            self.phase = Phase::Attached;
            self.is_implicit = true;
            self.following = changes;
            self.last_seq = 0;
            self.incarnation = tag.incarnation;
        }
        let is_replay =
            matches!(self.phase, Phase::Attaching { anew: Some(_), request, .. } if request == tag.attach);
        let is_continued = self.is_continued(tag);
        let fold = match &mut self.phase {
            Phase::Attaching { anew: Some(fold), .. } if is_replay => fold,
            // What happened before it was attached is sent again.
            Phase::Attaching { from: From::After(_), request, .. } if *request != tag.attach => return None,
            // It was attached because it said something, and knows nothing of what was.
            Phase::Attaching { was_attached: false, request, .. } if *request != tag.attach => return None,
            // The response makes it start from nothing.
            Phase::Attaching { from: From::Now, was_attached, .. } if !*was_attached || !is_continued => {
                return None;
            }
            Phase::Attaching { .. } | Phase::Attached | Phase::Detached => &mut self.fold,
        };
        if let Some(queue) = queue {
            let known = if is_replay { &mut self.queue_anew } else { &mut self.queue };
            *known = Some(queue.clone());
            return self.number(seq, is_replay);
        }
        let taken = fold.line(line);
        let problem = self.sent_twice(update, is_replay);
        if let Err(error) = taken {
            return Some(format!("the update cannot be read: {error}"));
        }
        self.number(seq, is_replay).or(problem)
    }

    /// Takes the number of a change. Returns what is wrong with it, if anything is.
    fn number(&mut self, seq: Option<u64>, is_replay: bool) -> Option<String> {
        if !self.is_attached() {
            // In the middle of a replay it could not go on from here, but it could from what came before.
            if !is_replay {
                self.seq = seq;
            }
            return None;
        }
        let last = self.last_seq;
        self.seq = seq;
        self.last_seq = seq.unwrap_or(last).max(last);
        let now = seq.filter(|now| *now < last)?;
        Some(format!("the number of the change went from {last} back to {now}"))
    }

    /// Looks whether an update repeats text of a message that the client has.
    fn sent_twice(&mut self, update: &Value, is_replay: bool) -> Option<String> {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        let id = format!("{} {}", kind.trim_end_matches("_chunk"), update["messageId"]);
        let chunks = if is_replay { &mut self.chunks_anew } else { &mut self.chunks };
        match kind {
            "user_message" | "agent_message" | "agent_thought" if update.get("content").is_some() => {
                chunks.retain(|(message, _)| *message != id);
                if is_replay {
                    if self.wholes.contains(&id) {
                        return Some(format!("the replay has {id} twice"));
                    }
                    self.wholes.push(id);
                }
                None
            }
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                if self.is_implicit && self.following > 0 && self.floor == u64::MAX && !is_replay {
                    // The end of what it followed before may come first, and all of it again.
                    return None;
                }
                let text = update["content"].to_string();
                for token in super::tokens::tokens_in(&text) {
                    if chunks.contains(&(id.clone(), token)) {
                        return Some(format!("the text «{token}» of {id} was sent twice"));
                    }
                    chunks.push((id.clone(), token));
                }
                None
            }
            _ => None,
        }
    }
}
