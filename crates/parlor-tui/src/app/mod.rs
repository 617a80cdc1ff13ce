//! The state of the client. [`App::update`] turns an event into changes of the state and effects, without I/O.

mod actions;
mod draw;
mod forking;
mod open_session;
mod options;
mod requests;
mod server_events;
mod state;
mod timers;
mod turn;

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parlor_client::{DuringTurn, MessageId, SessionId};

pub use self::options::{Start, TerminalOptions};
use self::state::{
    Answer, AnsweredRequest, Completion, CompletionItem, Forking, FormState, Note, OpenAt, Opening,
    PendingRemoval, QueuedPrompt, Reopening,
};
pub use self::state::{Detached, Focus, Link};
use crate::clean::Clean;
use crate::conversation::{Conversation, Look};
use crate::event::{AgentInfo, Call, Effect, Event, Failure, SessionCall};
use crate::input::{Completed, InputBox};
use crate::keys::KeyMap;
use crate::overlay::Overlay;
use crate::request::{Request, Subject};
use crate::sessions::Sessions;
use crate::theme::Role;

/// An Esc this soon after one that closed something is ignored, and so is a key that would answer a request that has just appeared.
const GUARD_TIME: SignedDuration = SignedDuration::from_millis(500);

/// How long Tab does not leave a request that took the focus by itself.
const TAB_GUARD_TIME: SignedDuration = SignedDuration::from_secs(1);

/// The pauses before a session whose connection was lost is opened again.
const REOPEN_TIMES: [SignedDuration; 5] = [
    SignedDuration::from_millis(500),
    SignedDuration::from_secs(1),
    SignedDuration::from_secs(2),
    SignedDuration::from_secs(5),
    SignedDuration::from_secs(10),
];

/// A second Ctrl-C within this time detaches, and a second Esc cancels the turn.
const INTERRUPT_TIME: SignedDuration = SignedDuration::from_secs(2);

/// The note while a turn is being cancelled.
const CANCELLING: &str = "Cancelling the turn";

/// How long a note replaces the hints.
const NOTE_TIME: SignedDuration = SignedDuration::from_secs(4);

/// How long an archiving or a deletion can be taken back.
pub const UNDO_TIME: SignedDuration = SignedDuration::from_secs(10);

/// How long after a key a request does not take the focus.
const TYPING_TIME: SignedDuration = SignedDuration::from_secs(1);

/// How long after the last change of the text a search is sent.
const SEARCH_DELAY: SignedDuration = SignedDuration::from_millis(60);

/// How many prompts the history keeps.
const MAX_HISTORY: usize = 1000;

/// The state of the client.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct App {
    look: Look,
    keys: KeyMap,
    size: (u16, u16),
    focus: Focus,
    overlays: Vec<Overlay>,
    /// For each row of the overlay that was drawn last, the index of the item at it.
    overlay_items: Vec<Option<usize>>,
    sessions: Sessions,
    list_cursor: Option<SessionId>,
    list_filter: String,
    list_scroll: usize,
    requests: Vec<Request>,
    answered: Vec<AnsweredRequest>,
    /// The requests that this client answered and that are not closed yet, and how.
    answered_here: HashMap<String, Answer>,
    /// The request that the person put off with Esc.
    put_off: Option<String>,
    /// When a request took the focus from the input by itself.
    took_focus: Option<Timestamp>,
    request_scroll: usize,
    drawn_request: Option<draw::DrawnRequest>,
    form: FormState,
    conversation: Option<Conversation>,
    /// The request that opened the session.
    opened_with: u64,
    opening: Option<Opening>,
    /// The fork that the person waits for.
    forking: Option<Forking>,
    reopening: Option<Reopening>,
    /// Whether an agent without a server has ended.
    has_ended: bool,
    /// Whether a session was open before: until then what is typed is for the first one.
    has_opened: bool,
    /// The entry to select as soon as the session has it.
    open_at: Option<OpenAt>,
    next_ticket: u64,
    input: InputBox,
    drafts: HashMap<Option<SessionId>, String>,
    /// Prompts that were sent or replaced, the latest first, each with the session that was open.
    history: Vec<(Option<SessionId>, String)>,
    history_index: Option<usize>,
    queued_cursor: Option<usize>,
    completion: Option<Completion>,
    closed_completion: Option<Completed>,
    /// The files of a directory.
    files: Option<(String, Vec<String>)>,
    /// The directory whose files are being listed.
    wanted_files: Option<String>,
    /// How often files were listed.
    listings: u64,
    /// Whether the files were listed for the name that is being completed: others may have been created before.
    has_listed: bool,
    agents: Vec<AgentInfo>,
    agent: Option<String>,
    can_log_in: bool,
    /// The command that starts the server, if it runs on this machine.
    serve: Option<String>,
    /// When the connection was made again: an Enter right after that was meant to connect, and not to send.
    reconnected: Option<Timestamp>,
    /// The agent that requires a login before it accepts what is in the input.
    needs_login: Option<String>,
    new_cwd: String,
    link: Link,
    note: Option<Note>,
    removals: Vec<PendingRemoval>,
    /// The prompt that is being edited: it is sent as a fork.
    editing: Option<MessageId>,
    turn_started: Option<Timestamp>,
    /// When the session was opened.
    opened_at: Option<Timestamp>,
    /// Prompts that were sent and not accepted yet, and since when.
    sending: (usize, Option<Timestamp>),
    was_busy: bool,
    prompts_sent: u64,
    /// The texts of queued prompts that the person withdrew here.
    withdrawn: Vec<String>,
    /// The input as it was when texts of withdrawn prompts were put into it.
    returned: Option<String>,
    last_escape: Option<Timestamp>,
    /// When the client said that another Esc cancels the turn.
    cancel_announced: Option<Timestamp>,
    last_interrupt: Option<Timestamp>,
    last_key: Option<Timestamp>,
    ignore_keys_until: Option<Timestamp>,
    has_focus: bool,
    /// Whether the terminal may not report the focus, and has not done so yet.
    is_focus_unknown: bool,
    is_started: bool,
    start: Start,
    version: String,
    window_title: String,
    is_dirty: bool,
    /// The sessions to which a fork returns with Esc.
    parents: Vec<(SessionId, String)>,
    /// The search to which Esc returns from a hit.
    results: Option<Box<Overlay>>,
    searches: u64,
    /// Whether the input is to be sent as soon as the session is open.
    is_send_pending: bool,
}

impl App {
    /// The client before its first event.
    pub fn new(options: TerminalOptions, now: Timestamp) -> Self {
        let TerminalOptions { theme, keys, zone, home, cwd, agent, start, version, serve, login } = options;
        let link = if start == Start::Direct { Link::Direct } else { Link::Connecting };
        Self {
            look: Look { theme, zone, now, home },
            keys,
            size: (80, 24),
            focus: Focus::Input,
            overlays: Vec::new(),
            overlay_items: Vec::new(),
            sessions: Sessions::default(),
            list_cursor: None,
            list_filter: String::new(),
            list_scroll: 0,
            requests: Vec::new(),
            answered: Vec::new(),
            answered_here: HashMap::new(),
            put_off: None,
            took_focus: None,
            request_scroll: 0,
            drawn_request: None,
            form: FormState::default(),
            conversation: None,
            opened_with: 0,
            opening: None,
            forking: None,
            reopening: None,
            has_ended: false,
            has_opened: false,
            open_at: None,
            next_ticket: 0,
            input: InputBox::default(),
            drafts: HashMap::new(),
            history: Vec::new(),
            history_index: None,
            queued_cursor: None,
            completion: None,
            closed_completion: None,
            files: None,
            wanted_files: None,
            listings: 0,
            has_listed: false,
            agents: Vec::new(),
            agent,
            can_log_in: !login.is_empty(),
            serve,
            reconnected: None,
            needs_login: None,
            new_cwd: cwd,
            link,
            note: None,
            removals: Vec::new(),
            editing: None,
            turn_started: None,
            opened_at: None,
            sending: (0, None),
            was_busy: false,
            prompts_sent: 0,
            withdrawn: Vec::new(),
            returned: None,
            last_escape: None,
            cancel_announced: None,
            last_interrupt: None,
            last_key: None,
            ignore_keys_until: None,
            has_focus: true,
            is_focus_unknown: false,
            is_started: false,
            start,
            version,
            window_title: String::new(),
            is_dirty: true,
            parents: Vec::new(),
            results: None,
            searches: 0,
            is_send_pending: false,
        }
    }

    /// Whether the screen has to be drawn again. Resets it.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.is_dirty)
    }

    /// The session from which the client is detached when it ends now; `None` if it has none, or without a server.
    pub fn detached(&self) -> Option<Detached> {
        let session = self.open_id().filter(|_| self.link != Link::Direct)?;
        Some(Detached { session, is_busy: self.is_busy() })
    }

    /// Applies an event and returns what is to be done.
    pub fn update(&mut self, event: Event, now: Timestamp) -> Vec<Effect> {
        self.look.now = now;
        self.is_dirty = true;
        let mut effects = Vec::new();
        self.on_event(event, &mut effects);
        self.on_time(&mut effects);
        self.after_event(&mut effects);
        effects
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events come from the server")]
    fn on_event(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Key(key) => self.on_key(key, effects),
            Event::Paste(text) => self.on_paste(&text, effects),
            Event::Wheel { rows, column, row } => self.on_wheel(rows, (column, row)),
            Event::Click(column, row) => self.on_click(column, row, effects),
            Event::Resize(width, height) => self.size = (width, height),
            Event::Focus(has_focus) => {
                self.has_focus = has_focus;
                self.is_focus_unknown = false;
                if has_focus {
                    self.mark_seen(effects);
                }
            }
            Event::FocusUnknown => self.is_focus_unknown = true,
            Event::Tick => {}
            Event::Edited(text) => self.input.set(text.trim_end_matches('\n')),
            Event::LoginEnded(outcome) => self.on_login_ended(outcome, effects),
            Event::NotCopied(text) => effects.push(Effect::CopyBySequence(text)),
            Event::Note(text) => self.note(&text),
            Event::Failed(text) => self.fail(&text),
            Event::Files(files) => self.on_files(files),
            server => self.on_server_event(server, effects),
        }
    }

    /// Updates everything that is derived from the state, after any event.
    fn after_event(&mut self, effects: &mut Vec<Effect>) {
        let waiting = self.own_requests().into_iter().filter_map(|request| match &request.subject {
            Subject::Permission(permission) => permission.tool_call.clone(),
            Subject::Form(_) | Subject::Unknown(_) => None,
        });
        let waiting = waiting.collect();
        if let Some(conversation) = &mut self.conversation {
            conversation.waiting = waiting;
            conversation.sync(self.look.now);
        }
        if self.is_send_pending && self.can_send() {
            self.is_send_pending = false;
            self.send(DuringTurn::Queue, effects);
        }
        self.follow_turn(effects);
        self.load_older(effects);
        self.refresh_forks();
        self.complete(effects);
        let title = self.title_of_window();
        if title != self.window_title {
            self.window_title.clone_from(&title);
            effects.push(Effect::WindowTitle(title));
        }
    }

    /// Requests earlier entries when the view comes near the first one that is loaded.
    fn load_older(&mut self, effects: &mut Vec<Effect>) {
        if self.link != Link::Live {
            return;
        }
        let Some(conversation) = &mut self.conversation else { return };
        if conversation.needs_older(&self.look)
            && let Some(before) = conversation.older.clone()
        {
            conversation.is_loading_older = true;
            let call = SessionCall::Older(before);
            effects.push(Effect::Send(Call::InSession(conversation.id.clone(), call)));
        }
    }

    /// Sends a request about the open session.
    fn send_to_session(&self, call: SessionCall, effects: &mut Vec<Effect>) {
        let id = self.open_id();
        effects.extend(id.map(|id| Effect::Send(Call::InSession(id, call))));
    }

    /// Returns the effects that are due when the client ends without a key.
    pub fn end(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.quit(&mut effects);
        effects
    }

    /// Shows a note for a few seconds.
    fn note(&mut self, text: &str) {
        self.note =
            Some(Note { text: Clean::line(text), role: Role::Text, until: self.look.now + NOTE_TIME });
    }

    /// Shows a warning for a time.
    fn warn(&mut self, text: &str, time: SignedDuration) {
        self.note = Some(Note { text: Clean::line(text), role: Role::Warning, until: self.look.now + time });
    }

    /// Shows a failure for a few seconds.
    fn fail(&mut self, text: &str) {
        let until = self.look.now + NOTE_TIME + NOTE_TIME;
        self.note = Some(Note { text: Clean::line(text), role: Role::Error, until });
    }

    /// Replaces the text of the input; what was written is the latest of the history.
    fn replace_input(&mut self, text: &str) {
        if !self.input.is_blank() {
            let written = self.input.full_text();
            self.add_to_history(written);
        }
        self.input.set(text);
    }

    fn add_to_history(&mut self, text: String) {
        self.history.retain(|(_, known)| *known != text);
        self.history.insert(0, (self.open_id(), text));
        self.history.truncate(MAX_HISTORY);
        self.history_index = None;
    }

    /// Whether the person may not see the screen, so that a notification is useful.
    fn is_away(&self) -> bool {
        !self.has_focus || self.is_focus_unknown
    }

    fn is_offline(&self) -> bool {
        matches!(self.link, Link::Retrying { .. })
    }

    fn on_files(&mut self, files: Vec<String>) {
        if let Some(cwd) = self.wanted_files.take() {
            self.files = Some((cwd, files));
            self.listings += 1;
        }
    }

    /// Sends what is delayed, and ends the program.
    fn quit(&mut self, effects: &mut Vec<Effect>) {
        self.carry_out_all(effects);
        effects.push(Effect::Quit);
    }

    /// Carries out all removals that can be taken back until now.
    fn carry_out_all(&mut self, effects: &mut Vec<Effect>) {
        for removal in std::mem::take(&mut self.removals) {
            self.carry_out(&removal, effects);
        }
    }

    /// Sends an archiving or a deletion. An archived session is listed among the archived ones at once.
    fn carry_out(&mut self, removal: &PendingRemoval, effects: &mut Vec<Effect>) {
        if !removal.is_deletion {
            self.sessions.hidden.remove(&removal.id);
            self.sessions.set_archived(&removal.id, true);
        }
        effects.push(removal.effect());
    }
}

#[cfg(test)]
mod tests;
