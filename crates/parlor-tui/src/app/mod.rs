//! The state of the client. [`App::update`] turns an event into changes of the state and effects, without I/O.

mod actions;
mod draw;
mod requests;
mod server_events;

use std::collections::{HashMap, HashSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use parlor_client::{DuringTurn, Json, MessageId, SessionId, Slot};

use crate::clean::Clean;
use crate::conversation::{Conversation, Look};
use crate::event::{AgentInfo, Call, Effect, Event, SessionCall};
use crate::field::TextField;
use crate::form::FieldValue;
use crate::input::{Completed, InputBox};
use crate::keys::KeyMap;
use crate::overlay::Overlay;
use crate::request::{Request, Subject};
use crate::sessions::Sessions;
use crate::theme::{Role, Theme};

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

/// A second Ctrl-C within this time detaches.
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

/// The pane that gets the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    /// The input box.
    Input,
    /// The conversation.
    Messages,
    /// The list of sessions.
    Sessions,
    /// The request in place of the input.
    Request,
}

/// Whether requests reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// The first connection is being made.
    Connecting,
    /// They do.
    Live,
    /// The connection is lost.
    Retrying {
        /// Since when.
        since: Timestamp,
        /// When the next attempt is made.
        next: Timestamp,
        /// Where the server is.
        server: Clean,
        /// Why.
        reason: Clean,
    },
    /// An agent without a server: there are no other sessions.
    Direct,
}

/// A short text in place of the hints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    text: Clean,
    role: Role,
    until: Timestamp,
}

/// The session that was open when the client ended. It continues on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// The session.
    pub session: SessionId,
    /// Whether a turn was running.
    pub is_busy: bool,
}

/// An archiving or a deletion that is not sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PendingRemoval {
    id: SessionId,
    title: Clean,
    is_deletion: bool,
    forks: usize,
    at: Timestamp,
    /// Whether the session was open.
    was_open: bool,
}

/// A request that opens a session and has no response yet.
#[derive(Debug)]
struct Opening {
    ticket: u64,
    /// The session, if it is not a new one.
    session: Option<SessionId>,
    /// What the client says when the session is open.
    note: Option<String>,
}

/// When a session whose connection was lost is opened again, while the server itself is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reopening {
    attempts: usize,
    at: Timestamp,
}

/// A file or a command that completes a word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CompletionItem {
    /// What is inserted.
    insert: String,
    /// What follows a command.
    hint: Clean,
    /// What it does.
    about: Clean,
    /// How well it fits.
    score: i32,
}

/// Files and commands that complete a word.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Completion {
    items: Vec<CompletionItem>,
    cursor: usize,
    total: usize,
    /// The word that was completed: closing the list keeps it closed for this word.
    word: Completed,
    /// The listing of files that it was made from.
    listing: u64,
}

/// A queued prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QueuedPrompt {
    id: Json,
    text: String,
}

/// A request that was answered while the client ran.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AnsweredRequest {
    title: Clean,
    details: Clean,
    outcome: Clean,
    role: Role,
    at: Timestamp,
}

/// The form that is being filled in.
#[derive(Debug, Default)]
struct FormState {
    /// The request of the form.
    request: String,
    /// The field under the cursor; the buttons follow the fields.
    cursor: usize,
    /// The text of the field under the cursor.
    text: TextField,
    /// Why the form was not accepted.
    problem: Option<Clean>,
}

/// What the client is started with.
#[derive(Debug, Clone)]
pub struct TerminalOptions {
    /// Styles and marks.
    pub theme: Theme,
    /// The keys.
    pub keys: KeyMap,
    /// The time zone of shown times.
    pub zone: TimeZone,
    /// The home directory.
    pub home: Option<String>,
    /// The directory of new sessions.
    pub cwd: String,
    /// The agent of new sessions; the default one if missing.
    pub agent: Option<String>,
    /// What to show first.
    pub start: Start,
    /// The version of the program.
    pub version: String,
    /// The command that logs in to an agent, whose name follows; empty if the agents run on another machine.
    pub login: Vec<String>,
}

/// What the client shows first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The latest session of the directory, or a new one.
    Latest,
    /// A session and its working directory.
    Session(SessionId, String),
    /// A session of a remote server by a prefix of its id or title.
    Named(String),
    /// A new session.
    New,
    /// An agent without a server.
    Direct,
}

/// The state of the client.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct App {
    look: Look,
    keys: KeyMap,
    size: (u16, u16),
    focus: Focus,
    overlays: Vec<Overlay>,
    sessions: Sessions,
    list_cursor: Option<SessionId>,
    list_filter: String,
    list_scroll: usize,
    requests: Vec<Request>,
    answered: Vec<AnsweredRequest>,
    /// The requests that this client answered and that are not closed yet.
    answered_here: HashSet<String>,
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
    reopening: Option<Reopening>,
    /// Whether an agent without a server has ended.
    has_ended: bool,
    /// Whether a session was open before: until then what is typed is for the first one.
    has_opened: bool,
    /// What to select when it is open.
    open_at: Option<OpenAt>,
    next_ticket: u64,
    input: InputBox,
    drafts: HashMap<Option<SessionId>, String>,
    history: Vec<String>,
    history_place: Option<usize>,
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
    last_escape: Option<Timestamp>,
    last_interrupt: Option<Timestamp>,
    last_key: Option<Timestamp>,
    ignore_keys_until: Option<Timestamp>,
    has_focus: bool,
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

/// What to select in a session when it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OpenAt {
    Message(MessageId, Vec<String>),
    ToolCall(String, Vec<String>),
    Request,
    /// Nothing: the list keeps the focus.
    List,
}

impl App {
    /// The client before its first event.
    pub fn new(options: TerminalOptions, now: Timestamp) -> Self {
        let TerminalOptions { theme, keys, zone, home, cwd, agent, start, version, login } = options;
        let link = if start == Start::Direct { Link::Direct } else { Link::Connecting };
        Self {
            look: Look { theme, zone, now, home },
            keys,
            size: (80, 24),
            focus: Focus::Input,
            overlays: Vec::new(),
            sessions: Sessions::default(),
            list_cursor: None,
            list_filter: String::new(),
            list_scroll: 0,
            requests: Vec::new(),
            answered: Vec::new(),
            answered_here: HashSet::new(),
            put_off: None,
            took_focus: None,
            request_scroll: 0,
            drawn_request: None,
            form: FormState::default(),
            conversation: None,
            opened_with: 0,
            opening: None,
            reopening: None,
            has_ended: false,
            has_opened: false,
            open_at: None,
            next_ticket: 0,
            input: InputBox::default(),
            drafts: HashMap::new(),
            history: Vec::new(),
            history_place: None,
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
            last_escape: None,
            last_interrupt: None,
            last_key: None,
            ignore_keys_until: None,
            has_focus: true,
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

    /// When [`Event::Tick`] is needed next, if nothing else happens.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let now = self.look.now;
        let mut due: Vec<Timestamp> = Vec::new();
        due.extend(self.note.as_ref().map(|note| note.until));
        if self.link == Link::Live {
            due.extend(self.removals.iter().map(|removal| removal.at + UNDO_TIME));
            due.extend(self.reopening.filter(|_| self.opening.is_none()).map(|reopening| reopening.at));
        }
        if let Some(Overlay::Search(search)) = self.overlays.last() {
            due.extend(search.changed.map(|changed| changed + SEARCH_DELAY));
        }
        let counts = self.is_busy()
            || self.sending.0 > 0
            || !self.removals.is_empty()
            || matches!(self.link, Link::Retrying { .. })
            || self.reopening.is_some()
            || self.shown_request().is_some();
        if counts {
            // The next full second.
            let millis = now.as_millisecond().rem_euclid(1000);
            due.push(now + SignedDuration::from_millis(1000 - millis));
        }
        // Ages in lists change by the minute.
        due.push(now + SignedDuration::from_secs(30));
        due.into_iter().min()
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
            Event::Wheel(rows) => self.on_wheel(rows),
            Event::Click(column, row) => self.on_click(column, row, effects),
            Event::Resize(width, height) => self.size = (width, height),
            Event::Focus(has_focus) => {
                self.has_focus = has_focus;
                if has_focus {
                    self.mark_seen(effects);
                }
            }
            Event::Tick => {}
            Event::Edited(text) => self.input.set(text.trim_end_matches('\n')),
            Event::LoginEnded(outcome) => self.on_login_ended(outcome, effects),
            Event::Note(text) => self.note(&text),
            Event::Failed(text) => self.fail(&text),
            Event::Files(files) => self.on_files(files),
            server => self.on_server_event(server, effects),
        }
    }

    /// Does what is due.
    fn on_time(&mut self, effects: &mut Vec<Effect>) {
        let now = self.look.now;
        if self.note.as_ref().is_some_and(|note| note.until <= now) {
            self.note = None;
        }
        // A request that was opened while the person typed gets the focus when the person has stopped.
        if self.focus == Focus::Input && self.shown_request().is_some() {
            self.show_request(true);
        }
        if self.reopening.is_some_and(|reopening| reopening.at <= now) {
            self.reopen(effects);
        }
        let is_due = |removal: &PendingRemoval| self.link == Link::Live && removal.at + UNDO_TIME <= now;
        let due: Vec<_> = self.removals.iter().filter(|removal| is_due(removal)).cloned().collect();
        self.removals.retain(|removal| !is_due(removal));
        due.into_iter().for_each(|removal| effects.push(removal.effect()));
        if let Some(Overlay::Search(search)) = self.overlays.last_mut()
            && search.changed.is_some_and(|changed| changed + SEARCH_DELAY <= now)
        {
            search.changed = None;
            if search.query.text().trim().is_empty() {
                search.hits.clear();
                search.is_answered = false;
            } else {
                self.searches += 1;
                search.generation = self.searches;
                let (generation, query, scope) =
                    (search.generation, search.query.text().to_owned(), search.scope);
                let cwd = (scope == crate::overlay::Scope::Directory).then(|| self.cwd().to_owned());
                let session = (scope == crate::overlay::Scope::Session).then(|| self.open_id()).flatten();
                effects.push(Effect::Send(Call::Search { generation, query, cwd, session }));
            }
        }
    }

    /// What follows from the new state, whatever the event was.
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

    /// What is left to do when the client ends without a key.
    pub fn end(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.quit(&mut effects);
        effects
    }

    /// Notices the beginning and the end of turns.
    fn follow_turn(&mut self, effects: &mut Vec<Effect>) {
        let is_busy = self.is_busy();
        if is_busy == self.was_busy {
            return;
        }
        self.was_busy = is_busy;
        let now = self.look.now;
        if is_busy {
            // A turn that ran before the session was opened began with its last prompt.
            let prompted = self.open_id().and_then(|id| self.sessions.get(&id)?.prompted);
            let started = prompted.filter(|prompted| *prompted <= now && self.opened_at == Some(now));
            self.turn_started = started.or(Some(now));
            return;
        }
        self.mark_seen(effects);
        if self.note.as_ref().is_some_and(|note| note.text.as_str() == CANCELLING) {
            self.note = None;
        }
        if let Some(started) = self.turn_started.take()
            && !self.has_focus
        {
            let time = crate::time::clock(crate::time::seconds_between(started, now));
            effects.push(Effect::Notify(format!("Turn ended after {time} ({})", self.session_title())));
        }
    }

    /// Says that the open session was seen, if a person looks at it.
    fn mark_seen(&self, effects: &mut Vec<Effect>) {
        if let (true, Some(conversation), Link::Live) = (self.has_focus, &self.conversation, &self.link)
            && !conversation.is_busy()
            && self.sessions.get(&conversation.id).is_some_and(|row| row.is_unread)
        {
            effects.push(Effect::Send(Call::Seen(conversation.id.clone())));
        }
    }

    fn title_of_window(&self) -> String {
        let waiting =
            if self.requests.is_empty() { String::new() } else { format!("! {} ", self.requests.len()) };
        let running = if self.is_busy() { "● " } else { "" };
        match &self.conversation {
            Some(_) => format!("{waiting}{running}{} - parlor", self.session_title()),
            None => format!("{waiting}parlor"),
        }
    }

    /// Shows a note for a few seconds.
    fn note(&mut self, text: &str) {
        self.note =
            Some(Note { text: Clean::line(text), role: Role::Text, until: self.look.now + NOTE_TIME });
    }

    /// Shows a failure for a few seconds.
    fn fail(&mut self, text: &str) {
        let until = self.look.now + NOTE_TIME + NOTE_TIME;
        self.note = Some(Note { text: Clean::line(text), role: Role::Error, until });
    }

    /// Whether a turn of the open session runs.
    fn is_busy(&self) -> bool {
        self.conversation.as_ref().is_some_and(Conversation::is_busy)
    }

    /// Counts a prompt of the open session that is sent.
    fn on_prompt_sent(&mut self) {
        self.sending = (self.sending.0 + 1, self.sending.1.or(Some(self.look.now)));
    }

    /// Counts a prompt that was accepted or rejected.
    fn on_prompt_settled(&mut self, session: &SessionId) {
        if self.open_id().as_ref() != Some(session) {
            return;
        }
        let left = self.sending.0.saturating_sub(1);
        self.sending = (left, self.sending.1.filter(|_| left > 0));
    }

    /// Whether a prompt would be sent at once, and not wait for a connection or a session.
    fn can_send(&self) -> bool {
        let is_connected = matches!(self.link, Link::Live | Link::Direct);
        let has_session = self.conversation.is_some() && self.reopening.is_none() && !self.has_ended;
        let is_new = self.conversation.is_none() && self.opening.is_none();
        is_connected && self.is_started && (has_session || is_new)
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
        self.history.retain(|known| *known != text);
        self.history.insert(0, text);
        self.history.truncate(MAX_HISTORY);
        self.history_place = None;
    }

    fn is_offline(&self) -> bool {
        matches!(self.link, Link::Retrying { .. })
    }

    fn open_id(&self) -> Option<SessionId> {
        self.conversation.as_ref().map(|conversation| conversation.id.clone())
    }

    /// The directory of the open session, or that of a new one.
    fn cwd(&self) -> &str {
        self.conversation.as_ref().map_or(&self.new_cwd, |conversation| &conversation.cwd)
    }

    fn session_title(&self) -> Clean {
        let Some(conversation) = &self.conversation else { return Clean::line("New session") };
        if let Some(row) = self.sessions.get(&conversation.id).filter(|row| row.has_title) {
            return row.title.clone();
        }
        let info = conversation.slot(Slot::Info);
        let title = info.and_then(|info| info.fields.get_string("title"));
        Clean::line(&title.unwrap_or_else(|| "New session".to_owned()))
    }

    /// The name of the agent of the open session.
    fn agent_name(&self) -> Clean {
        let row = self.open_id().and_then(|id| self.sessions.get(&id));
        row.map_or_else(|| Clean::line("agent"), |row| row.agent.clone())
    }

    /// The requests of the open session, the oldest first.
    fn own_requests(&self) -> Vec<&Request> {
        let Some(conversation) = &self.conversation else { return Vec::new() };
        let is_direct = self.link == Link::Direct;
        self.requests.iter().filter(|request| is_direct || request.session == conversation.id).collect()
    }

    /// The request that can be answered in place of the input.
    fn shown_request(&self) -> Option<&Request> {
        self.own_requests().into_iter().next()
    }

    /// Whether the form of the shown request is being filled in.
    fn shown_form(&self) -> bool {
        matches!(self.shown_request().map(|request| &request.subject), Some(Subject::Form(_)))
    }

    /// The queued prompts of the open session.
    fn queue(&self) -> Vec<QueuedPrompt> {
        let info = self.conversation.as_ref().and_then(|conversation| conversation.slot(Slot::Info));
        let Some(meta) = info.and_then(|info| info.meta) else { return Vec::new() };
        let queue = meta.get_array("parlor/queue").unwrap_or_default();
        let prompt = |raw: parlor_client::JsonRef<'_>| {
            let prompt = raw.to_object()?;
            let id = prompt.get("id")?.clone();
            Some(QueuedPrompt { id, text: prompt.get_string("text").unwrap_or_default() })
        };
        queue.into_iter().filter_map(prompt).collect()
    }

    /// How many clients are attached to the open session, this one included; 0 if the server does not say.
    fn attached_clients(&self) -> u64 {
        let info = self.conversation.as_ref().and_then(|conversation| conversation.slot(Slot::Info));
        let Some(meta) = info.and_then(|info| info.meta) else { return 0 };
        let listed = meta.get_array("parlor/clients").map_or(0, |clients| clients.len());
        listed as u64 + meta.get_u64("parlor/moreClients").unwrap_or_default()
    }

    /// Copies the value of a text field of the form to the text that is edited, and back before it changes.
    fn load_form_field(&mut self) {
        let cursor = self.form.cursor;
        let text = match self.shown_request().map(|request| &request.subject) {
            Some(Subject::Form(form)) => match form.fields.get(cursor).map(|field| &field.value) {
                Some(FieldValue::Text(text)) => text.clone(),
                Some(FieldValue::Boolean(_) | FieldValue::One { .. } | FieldValue::Many { .. }) | None => {
                    String::new()
                }
            },
            Some(Subject::Permission(_) | Subject::Unknown(_)) | None => String::new(),
        };
        self.form.text = TextField::new(text);
    }

    fn on_files(&mut self, files: Vec<String>) {
        if let Some(cwd) = self.wanted_files.take() {
            self.files = Some((cwd, files));
            self.listings += 1;
        }
    }

    /// Sends what is delayed, and ends the program.
    fn quit(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.removals.drain(..).map(|removal| removal.effect()));
        effects.push(Effect::Quit);
    }
}

impl PendingRemoval {
    fn effect(&self) -> Effect {
        Effect::Send(if self.is_deletion {
            Call::Delete(self.id.clone())
        } else {
            Call::Archive(self.id.clone())
        })
    }
}

#[cfg(test)]
mod tests;
