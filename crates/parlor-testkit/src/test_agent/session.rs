//! One session: what is kept of it, and the work that waits for its turn.

use std::collections::VecDeque;
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_json::Json;
use parlor_wire::{RequestId, RpcError, code};

use super::commands::Step;
use super::say::{Block, Role};

/// How many prompts wait in one session.
pub(super) const MAX_HELD: usize = 64;
/// How many messages of a session are remembered; the oldest are forgotten.
const MAX_MESSAGES: usize = 10_000;
/// How much of a message's text is remembered.
const MAX_TEXT: usize = 1 << 20;

/// What is kept of a session when it is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) id: String,
    pub(super) cwd: String,
    pub(super) title: Option<String>,
    pub(super) mode: String,
    pub(super) model: String,
    pub(super) updated_at: String,
    pub(super) messages: Vec<Kept>,
}

/// A message of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) role: Role,
    pub(super) id: String,
    pub(super) content: Vec<Block>,
}

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    /// Its id, which never changes.
    pub(super) id: String,
    state: Mutex<State>,
}

/// What changes about an open session.
#[derive(Debug)]
pub(super) struct State {
    pub(super) saved: Saved,
    /// Where the turn that is going on hears of things; `None` between turns.
    turn: Option<Sender<Event>>,
    /// The request that a v1 turn will answer.
    answers: Option<RequestId>,
    held: VecDeque<Work>,
    /// Requests to close that are answered when the work has ended.
    closing: Vec<RequestId>,
    /// Whether the session was deleted, so that a turn that still ends does not bring it back.
    pub(super) is_deleted: bool,
    /// Whether the session is not open any more.
    pub(super) is_closed: bool,
    /// Whether it was loaded, resumed or forked, and not begun.
    pub(super) is_restored: bool,
}

/// What a turn waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// The client wants the turn to end.
    Cancel,
    /// The client answered a request.
    Answer(RequestId, Result<Json, RpcError>),
    /// A program that the agent runs wrote something; nothing if it will write no more.
    Output(Vec<u8>),
    /// The client sent a prompt for the turn.
    Steered(Vec<Json>),
}

/// Work for a turn.
#[derive(Debug)]
pub(super) enum Work {
    /// A prompt of the client.
    Prompt { request: RequestId, content: Vec<Json> },
    /// Something that the agent does by itself.
    Own(Vec<Step>),
}

/// Work with the channel on which its turn hears of things.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) sender: Sender<Event>,
    pub(super) events: Receiver<Event>,
}

/// What comes after a turn.
#[derive(Debug)]
pub(super) enum Next {
    /// More work.
    Job(Job),
    /// Nothing: the session is idle, and these requests to close it are to be answered.
    Idle(Vec<RequestId>),
}

impl Session {
    /// Opens a session.
    pub(super) fn new(saved: Saved) -> Self {
        let id = saved.id.clone();
        let state = State {
            saved,
            turn: None,
            answers: None,
            held: VecDeque::new(),
            closing: Vec::new(),
            is_deleted: false,
            is_closed: false,
            is_restored: false,
        };
        Self { id, state: Mutex::new(state) }
    }

    /// The state, for as long as it is looked at.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes work; `may_wait` says whether it is held while a turn goes on. A job that is given back is to be
    /// done at once: the session is busy from now on.
    pub(super) fn submit(&mut self, work: Work, may_wait: bool) -> Result<Option<Job>, RpcError> {
        if self.is_closed {
            return Err(RpcError::new(code::RESOURCE_NOT_FOUND, "the session is closed"));
        }
        if self.turn.is_none() {
            return Ok(Some(self.begin(work)));
        }
        if !may_wait {
            return Err(RpcError::new(code::INVALID_REQUEST, "a turn is going on in this session"));
        }
        if self.held.len() >= MAX_HELD {
            let message = format!("{MAX_HELD} prompts are waiting already");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        self.held.push_back(work);
        Ok(None)
    }

    /// Ends a turn, and begins the next one if work is waiting.
    pub(super) fn next(&mut self) -> Next {
        if let Some(work) = self.held.pop_front() {
            return Next::Job(self.begin(work));
        }
        self.turn = None;
        self.answers = None;
        Next::Idle(mem::take(&mut self.closing))
    }

    fn begin(&mut self, work: Work) -> Job {
        let (sender, events) = mpsc::channel();
        self.turn = Some(sender.clone());
        self.answers = match &work {
            Work::Prompt { request, .. } => Some(request.clone()),
            Work::Own(_) => None,
        };
        Job { work, sender, events }
    }

    /// Whether a turn goes on.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Takes a prompt into the turn that goes on.
    pub(super) fn steer(&mut self, message: &str, content: &[Json]) {
        for block in content {
            self.saved.keep(Role::User, message, super::store::block(block));
        }
        if let Some(turn) = &self.turn {
            let _ = turn.send(Event::Steered(content.to_vec()));
        }
    }

    /// Closes the session. A request that is given back can be answered now, another one is when the turn ends.
    pub(super) fn close(&mut self, request: RequestId) -> Option<RequestId> {
        self.is_closed = true;
        if self.turn.is_none() {
            return Some(request);
        }
        self.closing.push(request);
        None
    }

    /// Whether the turn that goes on answers this request.
    pub(super) fn answers(&self, request: &RequestId) -> bool {
        self.answers.as_ref() == Some(request)
    }

    /// Ends the turn that goes on.
    pub(super) fn stop(&self) {
        if let Some(turn) = &self.turn {
            // A turn that has just ended hears nothing more, and need not.
            let _ = turn.send(Event::Cancel);
        }
    }

    /// Takes away all work that waits, and gives the prompts that will have no turn.
    pub(super) fn take_held(&mut self) -> Vec<RequestId> {
        let prompts = self.held.drain(..).filter_map(|work| match work {
            Work::Prompt { request, .. } => Some(request),
            Work::Own(_) => None,
        });
        prompts.collect()
    }

    /// Takes back one prompt that waits; false if it does not.
    pub(super) fn take_back(&mut self, wanted: &RequestId) -> bool {
        let before = self.held.len();
        self.held.retain(|work| !matches!(work, Work::Prompt { request, .. } if request == wanted));
        self.held.len() < before
    }
}

impl Saved {
    /// Remembers a piece of a message, up to a limit.
    pub(super) fn keep(&mut self, role: Role, id: &str, block: Block) {
        let place = self.messages.iter().rposition(|kept| kept.role == role && kept.id == id);
        let Some(place) = place else {
            if self.messages.len() == MAX_MESSAGES {
                self.messages.remove(0);
            }
            self.messages.push(Kept { role, id: id.to_owned(), content: vec![block] });
            return;
        };
        let content = &mut self.messages[place].content;
        match (content.last_mut(), block) {
            (Some(Block::Text(said)), Block::Text(more)) => {
                if said.len() + more.len() <= MAX_TEXT {
                    said.push_str(&more);
                }
            }
            (_, block) => content.push(block),
        }
    }

    /// Remembers other content for a message.
    pub(super) fn replace(&mut self, role: Role, id: &str, content: Vec<Block>) {
        if let Some(kept) = self.messages.iter_mut().rev().find(|kept| kept.role == role && kept.id == id) {
            kept.content = content;
        }
    }

    /// Forgets what came after a message; false if there is no such message.
    pub(super) fn cut_after(&mut self, id: &str) -> bool {
        let place = self.messages.iter().rposition(|kept| kept.id == id);
        if let Some(place) = place {
            self.messages.truncate(place + 1);
        }
        place.is_some()
    }

    /// Forgets what came after the turn of a message; false if there is no such message.
    pub(super) fn cut_after_turn(&mut self, id: &str) -> bool {
        let Some(place) = self.messages.iter().rposition(|kept| kept.id == id) else { return false };
        let rest = self.messages[place + 1..].iter().position(|kept| kept.role == Role::User);
        self.messages.truncate(rest.map_or(self.messages.len(), |rest| place + 1 + rest));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let saved = Saved {
            id: "s".into(),
            cwd: "/".into(),
            title: None,
            mode: "ask".into(),
            model: "small".into(),
            updated_at: String::new(),
            messages: Vec::new(),
        };
        Session::new(saved)
    }

    fn prompt(id: u64) -> Work {
        Work::Prompt { request: RequestId::from(id), content: Vec::new() }
    }

    #[test]
    fn work_is_started_once_and_held_up_to_the_limit() {
        let session = session();
        let mut state = session.lock();
        let job = state.submit(prompt(100), false).unwrap().unwrap();
        assert!(state.submit(prompt(0), false).is_err(), "it may not wait");
        for n in 0..64 {
            assert!(state.submit(prompt(n), true).unwrap().is_none());
        }
        assert!(state.submit(prompt(64), true).is_err());
        assert!(state.answers(&RequestId::from(100)) && !state.answers(&RequestId::from(0)));
        assert!(state.take_back(&RequestId::from(3)) && !state.take_back(&RequestId::from(3)));
        assert_eq!(state.take_held().len(), 63);
        state.stop();
        assert!(matches!(job.events.try_recv(), Ok(Event::Cancel)));
    }

    #[test]
    fn closing_is_answered_when_the_work_has_ended() {
        let session = session();
        let mut state = session.lock();
        let _job = state.submit(prompt(0), false).unwrap().unwrap();
        assert_eq!(state.close(RequestId::from(1)), None);
        assert!(matches!(state.next(), Next::Idle(closing) if closing == [RequestId::from(1)]));
        assert_eq!(state.close(RequestId::from(2)), Some(RequestId::from(2)));
        assert!(state.submit(prompt(3), true).is_err());
    }

    #[test]
    fn text_is_put_together_up_to_a_limit() {
        let session = session();
        let saved = &mut session.lock().saved;
        let text = |text: &str| Block::Text(text.to_owned());
        saved.keep(Role::Agent, "a", text("one "));
        saved.keep(Role::Thought, "a", text("hm"));
        saved.keep(Role::Agent, "a", text("two"));
        saved.keep(Role::Agent, "a", text(&"x".repeat(MAX_TEXT)));
        saved.keep(Role::Agent, "a", Block::Json("{}".into()));
        assert_eq!(saved.messages[0].content, [text("one two"), Block::Json("{}".into())]);
        assert_eq!(saved.messages[1].content, [text("hm")]);
        assert!(saved.cut_after("a") && !saved.cut_after("b"));
        assert_eq!(saved.messages.len(), 2);
    }
}
