//! A session: its stored state, and its queue of prompts.

use std::collections::VecDeque;
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_json::Json;
use parlor_wire::{RequestId, RpcError, code};

use super::commands::Step;
use super::encode::{Block, Role};

/// The most queued prompts of a session.
pub(super) const MAX_QUEUED_PROMPTS: usize = 64;
/// The most stored messages of a session; the oldest are dropped.
const MAX_MESSAGES: usize = 10_000;
/// The most bytes of text stored of a message.
const MAX_TEXT: usize = 1 << 20;

/// A session as it is stored, with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredSession {
    pub(super) id: String,
    pub(super) cwd: String,
    pub(super) title: Option<String>,
    pub(super) mode: String,
    pub(super) model: String,
    pub(super) updated_at: String,
    pub(super) messages: Vec<StoredMessage>,
}

/// A message in the history of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredMessage {
    pub(super) role: Role,
    pub(super) id: String,
    pub(super) content: Vec<Block>,
}

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    /// Never changes, so it is read without the lock.
    pub(super) id: String,
    state: Mutex<State>,
}

/// The mutable state of an open session.
#[derive(Debug)]
pub(super) struct State {
    pub(super) saved: StoredSession,
    /// Sends events to the running turn; `None` between turns.
    turn: Option<Sender<Event>>,
    /// The request that the running turn answers.
    answers: Option<RequestId>,
    queue: VecDeque<Work>,
    /// Close requests that are answered when the session is idle.
    closing: Vec<RequestId>,
    /// Whether the session was deleted: the end of a running turn must not store it again.
    pub(super) is_deleted: bool,
    /// Whether the session was closed.
    pub(super) is_closed: bool,
    /// Whether the session was loaded, resumed or forked instead of created.
    pub(super) is_restored: bool,
}

/// An event for the running turn.
#[derive(Debug)]
pub(super) enum Event {
    /// The client cancelled the turn.
    Cancel,
    /// The client responded to a request.
    Response(RequestId, Result<Json, RpcError>),
    /// Output of a program that the agent runs; empty at the end of the output.
    Output(Vec<u8>),
    /// The client steered the turn with a prompt.
    Steered(Vec<Json>),
}

/// Work for a turn.
#[derive(Debug)]
pub(super) enum Work {
    /// A prompt from the client.
    Prompt { request: RequestId, content: Vec<Json> },
    /// Steps that the agent runs without a prompt.
    Unprompted(Vec<Step>),
}

/// Work with the event channel of its turn.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) sender: Sender<Event>,
    pub(super) events: Receiver<Event>,
}

/// The state of a session after a turn.
#[derive(Debug)]
pub(super) enum Next {
    /// The next work of the queue starts.
    Job(Job),
    /// The session is idle, and these close requests are to be answered.
    Idle(Vec<RequestId>),
}

impl Session {
    /// Opens a session.
    pub(super) fn new(saved: StoredSession) -> Self {
        let id = saved.id.clone();
        let state = State {
            saved,
            turn: None,
            answers: None,
            queue: VecDeque::new(),
            closing: Vec::new(),
            is_deleted: false,
            is_closed: false,
            is_restored: false,
        };
        Self { id, state: Mutex::new(state) }
    }

    /// Locks the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Accepts work, and queues it during a turn if `may_wait`. A returned job must start now: the session is busy from
    /// now on.
    pub(super) fn submit(&mut self, work: Work, may_wait: bool) -> Result<Option<Job>, RpcError> {
        if self.is_closed {
            return Err(RpcError::new(code::RESOURCE_NOT_FOUND, "the session is closed"));
        }
        if self.turn.is_none() {
            return Ok(Some(self.begin(work)));
        }
        if !may_wait {
            return Err(RpcError::new(code::INVALID_REQUEST, "a turn is running in this session"));
        }
        if self.queue.len() >= MAX_QUEUED_PROMPTS {
            let message = format!("{MAX_QUEUED_PROMPTS} prompts are queued already");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        self.queue.push_back(work);
        Ok(None)
    }

    /// Ends a turn, and starts the next one if work is queued.
    pub(super) fn next(&mut self) -> Next {
        if let Some(work) = self.queue.pop_front() {
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
            Work::Unprompted(_) => None,
        };
        Job { work, sender, events }
    }

    /// Whether a turn is running.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Adds a prompt to the running turn.
    pub(super) fn steer(&mut self, message: &str, content: &[Json]) {
        for block in content {
            self.saved.append(Role::User, message, super::store::block(block));
        }
        if let Some(turn) = &self.turn {
            let _ = turn.send(Event::Steered(content.to_vec()));
        }
    }

    /// Closes the session. Returns the request if it can be answered now, else it is answered when the turn ends.
    pub(super) fn close(&mut self, request: RequestId) -> Option<RequestId> {
        self.is_closed = true;
        if self.turn.is_none() {
            return Some(request);
        }
        self.closing.push(request);
        None
    }

    /// Whether the running turn answers this request.
    pub(super) fn answers(&self, request: &RequestId) -> bool {
        self.answers.as_ref() == Some(request)
    }

    /// Cancels the running turn.
    pub(super) fn stop(&self) {
        if let Some(turn) = &self.turn {
            // A turn that has just ended receives nothing, and need not.
            let _ = turn.send(Event::Cancel);
        }
    }

    /// Clears the queue, and returns the requests of its prompts.
    pub(super) fn clear_queue(&mut self) -> Vec<RequestId> {
        let prompts = self.queue.drain(..).filter_map(|work| match work {
            Work::Prompt { request, .. } => Some(request),
            Work::Unprompted(_) => None,
        });
        prompts.collect()
    }

    /// Removes a prompt from the queue; false if it is not queued.
    pub(super) fn withdraw(&mut self, wanted: &RequestId) -> bool {
        let before = self.queue.len();
        self.queue.retain(|work| !matches!(work, Work::Prompt { request, .. } if request == wanted));
        self.queue.len() < before
    }
}

impl StoredSession {
    /// Appends a block to a message, or adds the message.
    pub(super) fn append(&mut self, role: Role, id: &str, block: Block) {
        let index = self.messages.iter().rposition(|message| message.role == role && message.id == id);
        let Some(index) = index else {
            if self.messages.len() == MAX_MESSAGES {
                self.messages.remove(0);
            }
            self.messages.push(StoredMessage { role, id: id.to_owned(), content: vec![block] });
            return;
        };
        let content = &mut self.messages[index].content;
        match (content.last_mut(), block) {
            (Some(Block::Text(text)), Block::Text(more)) => {
                if text.len() + more.len() <= MAX_TEXT {
                    text.push_str(&more);
                }
            }
            (_, block) => content.push(block),
        }
    }

    /// Replaces the content of a message.
    pub(super) fn replace(&mut self, role: Role, id: &str, content: Vec<Block>) {
        if let Some(message) =
            self.messages.iter_mut().rev().find(|message| message.role == role && message.id == id)
        {
            message.content = content;
        }
    }

    /// Removes all messages after a message; false if there is no such message.
    pub(super) fn cut_after(&mut self, id: &str) -> bool {
        let index = self.messages.iter().rposition(|message| message.id == id);
        if let Some(index) = index {
            self.messages.truncate(index + 1);
        }
        index.is_some()
    }

    /// Removes all messages after the turn of a message; false if there is no such message.
    pub(super) fn cut_after_turn(&mut self, id: &str) -> bool {
        let Some(index) = self.messages.iter().rposition(|message| message.id == id) else { return false };
        let rest = self.messages[index + 1..].iter().position(|message| message.role == Role::User);
        self.messages.truncate(rest.map_or(self.messages.len(), |rest| index + 1 + rest));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let saved = StoredSession {
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
    fn work_starts_once_and_is_queued_up_to_the_limit() {
        let session = session();
        let mut state = session.lock();
        let job = state.submit(prompt(100), false).unwrap().unwrap();
        assert!(state.submit(prompt(0), false).is_err(), "it is not queued");
        for n in 0..64 {
            assert!(state.submit(prompt(n), true).unwrap().is_none());
        }
        assert!(state.submit(prompt(64), true).is_err());
        assert!(state.answers(&RequestId::from(100)) && !state.answers(&RequestId::from(0)));
        assert!(state.withdraw(&RequestId::from(3)) && !state.withdraw(&RequestId::from(3)));
        assert_eq!(state.clear_queue().len(), 63);
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
    fn text_blocks_are_joined_up_to_a_limit() {
        let session = session();
        let saved = &mut session.lock().saved;
        let text = |text: &str| Block::Text(text.to_owned());
        saved.append(Role::Agent, "a", text("one "));
        saved.append(Role::Thought, "a", text("hm"));
        saved.append(Role::Agent, "a", text("two"));
        saved.append(Role::Agent, "a", text(&"x".repeat(MAX_TEXT)));
        saved.append(Role::Agent, "a", Block::Json("{}".into()));
        assert_eq!(saved.messages[0].content, [text("one two"), Block::Json("{}".into())]);
        assert_eq!(saved.messages[1].content, [text("hm")]);
        assert!(saved.cut_after("a") && !saved.cut_after("b"));
        assert_eq!(saved.messages.len(), 2);
    }
}
