//! What happens to the client, and what the client does about it.

use parlor_client::{DuringTurn, Json, MessageId, Object, SessionId, Transcript};

use crate::clean::Clean;
use crate::conversation::Replica;
use crate::keys::Key;
use crate::request::Request;
use crate::sessions::SessionRow;

/// An agent that new sessions can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    /// Its name.
    pub name: String,
    /// Whether its program is installed.
    pub is_installed: bool,
    /// Whether it is the default.
    pub is_default: bool,
    /// Whether a person is logged in, if the server knows it.
    pub is_logged_in: Option<bool>,
}

impl AgentInfo {
    /// Whether it can be used, in a few words.
    pub fn state(&self) -> &'static str {
        match (self.name.as_str(), self.is_installed, self.is_logged_in) {
            ("demo", ..) => "built in, needs no model and no network",
            (_, false, _) => "not installed",
            (_, true, Some(true)) => "installed, logged in",
            (_, true, Some(false)) => "installed, not logged in",
            (_, true, None) => "installed",
        }
    }
}

/// A session that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The request that opened it.
    pub ticket: u64,
    /// Its id.
    pub id: SessionId,
    /// Its working directory.
    pub cwd: String,
    /// Its transcript.
    pub replica: Replica,
    /// The cursor for entries before those that are loaded.
    pub older: Option<Json>,
    /// How many messages there are among those entries.
    pub older_messages: usize,
    /// Whether everything was loaded again, so that changes have other numbers.
    pub is_reloaded: bool,
}

/// A search hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The session.
    pub session: SessionId,
    /// The title of the session.
    pub title: Clean,
    /// The agent of the session.
    pub agent: Clean,
    /// The working directory of the session.
    pub cwd: String,
    /// The message, if it is one.
    pub message: Option<MessageId>,
    /// The tool call, if it is one.
    pub tool_call: Option<String>,
    /// `user`, `agent`, `thought`, `tool` or `title`.
    pub role: Clean,
    /// When it was written.
    pub at: Option<jiff::Timestamp>,
    /// The text around the words.
    pub snippet: Clean,
    /// The characters of the snippet that match, as pairs of start and end.
    pub matches: Vec<(usize, usize)>,
}

/// Why the agent did not accept a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason, for people.
    pub reason: String,
    /// Whether the agent requires a login.
    pub needs_login: bool,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// Text was pasted.
    Paste(String),
    /// The wheel was turned.
    Wheel {
        /// How far, negative if up.
        rows: isize,
        /// The column of the mouse.
        column: u16,
        /// The row of the mouse.
        row: u16,
    },
    /// The mouse was pressed at a column and row.
    Click(u16, u16),
    /// The screen has another size.
    Resize(u16, u16),
    /// The window got or lost the focus.
    Focus(bool),
    /// The terminal may not report whether the window has the focus.
    FocusUnknown,
    /// Time has passed.
    Tick,
    /// The server accepts requests.
    Connected,
    /// The connection was lost or could not be made.
    Disconnected {
        /// The address of the server, for people.
        server: String,
        /// Why.
        reason: String,
        /// Whether nothing listens there: the server does not run.
        is_down: bool,
        /// When the next attempt is made.
        retry_at: jiff::Timestamp,
    },
    /// The server cannot be used, and trying again would not help. No connection was made before.
    Refused {
        /// The address of the server, for people.
        server: String,
        /// Why.
        reason: String,
    },
    /// All sessions.
    List(Vec<SessionRow>),
    /// Sessions that changed and sessions that are gone.
    ListChanged(Vec<SessionRow>, Vec<SessionId>),
    /// The agents of the server.
    Agents(Vec<AgentInfo>),
    /// All open requests, on a new connection.
    AllRequests(Vec<Request>),
    /// Requests that were opened, and ids of requests that were closed.
    Requests(Vec<Request>, Vec<String>),
    /// The answer to a request was not delivered.
    AnswerFailed {
        /// The request.
        id: String,
        /// Why.
        reason: String,
    },
    /// A session was opened.
    Opened(Box<Opened>),
    /// A session could not be opened.
    OpenFailed {
        /// The request that failed.
        ticket: u64,
        /// Why.
        failure: Failure,
    },
    /// The transcript of the open session changed.
    Changed,
    /// A session gets no more updates.
    SessionLost {
        /// The request that opened it.
        ticket: u64,
    },
    /// Entries before those that are loaded.
    Older {
        /// The session.
        session: SessionId,
        /// The cursor that they were requested with.
        cursor: Json,
        /// The entries.
        page: Box<Transcript>,
        /// The cursor for entries before these.
        before: Option<Json>,
    },
    /// Earlier entries of a session could not be loaded.
    OlderFailed {
        /// The session.
        session: SessionId,
        /// The cursor that they were requested with.
        cursor: Json,
        /// Why.
        reason: String,
    },
    /// A prompt of a session was accepted.
    PromptAccepted(SessionId),
    /// A queued prompt was withdrawn, by this client or another one, or because the turn before it was cancelled.
    PromptWithdrawn {
        /// The session.
        session: SessionId,
        /// Its text.
        text: String,
    },
    /// A prompt was not accepted.
    PromptFailed {
        /// The session.
        session: SessionId,
        /// Its text.
        text: String,
        /// Why.
        failure: Failure,
    },
    /// A session was not archived or deleted.
    RemovalFailed {
        /// The session.
        id: SessionId,
        /// Whether it was to be deleted.
        is_deletion: bool,
        /// Why.
        reason: String,
    },
    /// A session was forked; the fork is to be opened.
    Forked {
        /// The session that was forked.
        parent: SessionId,
        /// The new session.
        id: SessionId,
        /// Its working directory.
        cwd: String,
        /// The request that it was made with.
        ticket: u64,
    },
    /// A session was not forked.
    ForkFailed {
        /// The session.
        parent: SessionId,
        /// The request.
        ticket: u64,
        /// Why.
        failure: Failure,
    },
    /// The hits of a search.
    Hits {
        /// Which search.
        generation: u64,
        /// The hits, or why there are none.
        hits: Result<Vec<Hit>, String>,
        /// How long it took.
        millis: u64,
    },
    /// The files of the working directory.
    Files(Vec<String>),
    /// A text that no program of the system copied.
    NotCopied(String),
    /// The text that an editor returned.
    Edited(String),
    /// A login has ended, or why it failed.
    LoginEnded(Result<(), String>),
    /// Something to say in the status line.
    Note(String),
    /// Something that failed, for the status line.
    Failed(String),
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Sends a request to the server.
    Send(Call),
    /// Copies a text to the clipboard.
    Copy(String),
    /// Copies a text with an escape sequence of the terminal.
    CopyBySequence(String),
    /// Opens a text in the editor.
    Edit(String),
    /// Shows a text in the pager.
    Page(String),
    /// Opens a link in the browser.
    OpenLink(String),
    /// Notifies the person: bell and desktop notification.
    Notify(String),
    /// Sets the title of the window.
    WindowTitle(String),
    /// Lists the files of a directory for completion.
    ListFiles(String),
    /// Runs the login of an agent on the terminal.
    Login(String),
    /// Tries to connect at once.
    Reconnect,
    /// Suspends the program.
    Suspend,
    /// Draws the whole screen again.
    Redraw,
    /// Ends the program; the turn goes on.
    Quit,
    /// Ends the program with an error.
    Fail(String),
}

/// A request to the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Opens a session.
    Open {
        /// Identifies the request.
        ticket: u64,
        /// The session.
        id: SessionId,
        /// Its working directory.
        cwd: String,
    },
    /// Creates a session and sends its first prompt.
    New {
        /// Identifies the request.
        ticket: u64,
        /// The agent; the default one if missing.
        agent: Option<String>,
        /// The working directory.
        cwd: String,
        /// The first prompt.
        prompt: String,
    },
    /// A request about the open session. It fails if another session was opened meanwhile.
    InSession(SessionId, SessionCall),
    /// Answers a request.
    Answer {
        /// The request.
        id: String,
        /// The result.
        result: Object,
    },
    /// Sets the title of a session.
    SetTitle(SessionId, String),
    /// Archives a session.
    Archive(SessionId),
    /// Restores an archived session.
    Restore {
        /// The session.
        id: SessionId,
        /// The note when it is done.
        note: String,
    },
    /// Deletes a session.
    Delete(SessionId),
    /// Says that a person has seen the open session.
    Seen(SessionId),
    /// Lists the agents again.
    Agents,
    /// Searches.
    Search {
        /// Which search.
        generation: u64,
        /// The words and filters.
        query: String,
        /// Only sessions of this directory.
        cwd: Option<String>,
        /// Only this session.
        session: Option<SessionId>,
    },
}

/// A request about the open session.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionCall {
    /// Sends a prompt.
    Prompt {
        /// The text.
        text: String,
        /// The key that makes a repeated prompt the same one.
        key: String,
        /// Whether it is queued or steers while a turn is running.
        during_turn: DuringTurn,
    },
    /// Cancels the turn.
    Cancel,
    /// Withdraws a queued prompt by its id.
    Withdraw(Json),
    /// Forks the session at a message, or at its end.
    Fork {
        /// The message.
        at: Option<MessageId>,
        /// The agent that continues, if it is another one.
        agent: Option<String>,
        /// Which request this is.
        ticket: u64,
    },
    /// Forks before a prompt and sends another one there.
    EditPrompt {
        /// The prompt.
        message: MessageId,
        /// The new text.
        text: String,
        /// Which request this is.
        ticket: u64,
    },
    /// Forks before a prompt and sends it again.
    Regenerate {
        /// The prompt or a message of its turn.
        message: MessageId,
        /// Which request this is.
        ticket: u64,
    },
    /// Sets an option.
    SetOption {
        /// The option.
        option: Json,
        /// The value.
        value: Json,
        /// The note when it is done.
        note: String,
    },
    /// Loads entries before those that are loaded.
    Older(Json),
}
