use std::path::Path;
use std::sync::{Arc, PoisonError};

use parlor_dialect::{Dialect, Translator};
use parlor_json::{Json, JsonStr, Object, string_literal};
use parlor_session::SessionId;
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::{Command, Driver, MAX_QUESTIONS, Sessions};
use crate::question::Question;
use crate::session::Shared;
use crate::transport::Transport;
use crate::{Error, Session};

/// How many commands wait for the connection.
const COMMANDS: usize = 64;

/// A connection to an agent, or to a server of parlor's. Clones share it; it ends with the last of them.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    questions: Arc<tokio::sync::Mutex<mpsc::Receiver<Question>>>,
    sessions: Sessions,
    gone: watch::Receiver<bool>,
    info: Arc<Info>,
}

/// Who the other side is.
#[derive(Debug)]
struct Info {
    dialect: Dialect,
    answer: Object,
}

/// A session that could be joined.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// Where it works.
    pub cwd: String,
    /// When something last happened in it.
    pub updated_at: Option<String>,
    /// All that is said of it.
    pub all: Object,
}

/// A connection that has yet to begin.
pub(crate) struct Beginning {
    commands: mpsc::Sender<Command>,
    questions: mpsc::Receiver<Question>,
    sessions: Sessions,
    gone: watch::Receiver<bool>,
}

impl Beginning {
    /// Puts a client in front of a transport. An agent of version 1 is translated.
    pub(crate) fn new(transport: Transport, dialect: Dialect) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let (asker, questions) = mpsc::channel(MAX_QUESTIONS);
        let (gone_sender, gone) = watch::channel(false);
        let sessions = Sessions::default();
        let translator = (dialect != Dialect::V2).then(|| Translator::relay(dialect, Dialect::V2));
        let driver = Driver::new(
            transport,
            translator,
            receiver,
            commands.downgrade(),
            Arc::clone(&sessions),
            asker,
            gone_sender,
        );
        tokio::spawn(driver.run());
        Self { commands, questions, sessions, gone }
    }

    /// Says who is there.
    pub(crate) async fn initialize(self, params: &Object, dialect: Dialect) -> Result<Client, Error> {
        let answer = ask(&self.commands, "initialize", params).await?;
        let Self { commands, questions, sessions, gone } = self;
        let questions = Arc::new(tokio::sync::Mutex::new(questions));
        Ok(Client { commands, questions, sessions, gone, info: Arc::new(Info { dialect, answer }) })
    }
}

async fn ask(commands: &mpsc::Sender<Command>, method: &str, params: &Object) -> Result<Object, Error> {
    let (reply, answer) = oneshot::channel();
    let command = Command::Ask { method: method.to_owned(), params: params.clone(), reply };
    commands.send(command).await.map_err(|_| Error::Gone)?;
    answer.await.unwrap_or(Err(Error::Gone))
}

impl Client {
    /// What the other side said of itself, in the words of version 2.
    pub fn info(&self) -> &Object {
        &self.info.answer
    }

    /// The protocol version that the other side speaks.
    pub fn version(&self) -> u16 {
        self.info.dialect.version()
    }

    /// Begins a session that works in a directory.
    pub async fn new_session(&self, cwd: &Path) -> Result<Session, Error> {
        let answer = self.call("session/new", &place(None, cwd)).await?;
        let session = self.followed(&session_in(&answer)?);
        session.shared().joined(&answer);
        Ok(session)
    }

    /// Joins a session and is told all of it.
    pub async fn load(&self, id: &SessionId, cwd: &Path) -> Result<Session, Error> {
        let session = self.followed(id);
        session.shared().begin_anew();
        let mut params = place(Some(id), cwd);
        params.set("replayFrom", Json::parse(r#"{"type":"start"}"#).expect("it is JSON"));
        let answer = self.call("session/resume", &params).await?;
        session.shared().joined(&answer);
        Ok(session)
    }

    /// Goes on with a session whose connection was lost, where it was lost. Nothing is told twice: a server of parlor's
    /// is asked for what came meanwhile, any other for all of it anew.
    pub async fn rejoin(&self, lost: &Session, cwd: &Path) -> Result<Session, Error> {
        let shared = Arc::clone(lost.shared());
        shared.found();
        self.send(Command::Follow(Arc::clone(&shared))).await?;
        if let Some(seq) = shared.server_seq() {
            let mut params = place(Some(lost.id()), cwd);
            let from = format!(r#"{{"type":"_parlor_after","seq":{seq}}}"#);
            params.set("replayFrom", Json::parse(from).expect("it is made of JSON"));
            match self.call("session/resume", &params).await {
                Ok(answer) => {
                    shared.joined(&answer);
                    return Ok(Session::new(self.clone(), shared));
                }
                // The session may have been made anew, or its server be another.
                Err(Error::Rpc(error)) if error.code() == parlor_wire::code::INVALID_PARAMS => {}
                Err(error) => return Err(error),
            }
        }
        self.load(lost.id(), cwd).await
    }

    /// The sessions that could be joined, the latest first.
    pub async fn list(&self, cwd: Option<&Path>) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        let mut cursor: Option<Json> = None;
        loop {
            let mut params = Object::default();
            if let Some(cwd) = cwd {
                params.set("cwd", &JsonStr::new(&cwd.to_string_lossy()));
            }
            if let Some(cursor) = cursor.take() {
                params.set("cursor", cursor);
            }
            let page = self.call("session/list", &params).await?;
            let sessions = page.get("sessions").and_then(|list| parlor_json::elements(list.raw()));
            let sessions = sessions.ok_or(Error::Odd("a list without sessions"))?;
            listed.extend(
                sessions.into_iter().filter_map(|session| Listed::read(Object::parse(session).ok()?)),
            );
            cursor = page.get("nextCursor").filter(|next| !next.is_null()).cloned();
            if cursor.is_none() {
                return Ok(listed);
            }
        }
    }

    /// The next thing that the agent wants to know; `None` when the connection is gone. Who does not look declines.
    pub async fn question(&self) -> Option<Question> {
        self.questions.lock().await.recv().await
    }

    /// Asks anything that the protocol has, in the words of version 2.
    pub async fn call(&self, method: &str, params: &Object) -> Result<Object, Error> {
        ask(&self.commands, method, params).await
    }

    /// Says anything that wants no answer.
    pub async fn notify(&self, method: &str, params: &Object) -> Result<(), Error> {
        self.send(Command::Notify { method: method.to_owned(), params: params.clone() }).await
    }

    /// Ends the connection, also for all clones. Sessions that were followed can be looked at and
    /// [joined again](Self::rejoin) with another one.
    pub async fn disconnect(&self) {
        let _ = self.send(Command::Disconnect).await;
        self.gone().await;
    }

    /// Waits until the connection is gone.
    pub async fn gone(&self) {
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    pub(crate) async fn send(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| Error::Gone)
    }

    /// A session, as it is followed.
    fn followed(&self, id: &SessionId) -> Session {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = sessions.entry(id.clone()).or_insert_with(|| Arc::new(Shared::new(id.clone())));
        Session::new(self.clone(), Arc::clone(shared))
    }
}

impl Listed {
    fn read(all: Object) -> Option<Self> {
        let text = |name: &str| Some(JsonStr::from_raw(all.get(name)?.raw())?.to_text().into_owned());
        let id = JsonStr::from_raw(all.get("sessionId")?.raw())?.into();
        Some(Self {
            id,
            title: text("title"),
            cwd: text("cwd").unwrap_or_default(),
            updated_at: text("updatedAt"),
            all,
        })
    }
}

/// The session that an answer names.
pub(crate) fn session_in(answer: &Object) -> Result<SessionId, Error> {
    let id = answer.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw()));
    id.map(SessionId::from).ok_or(Error::Odd("a session without an id"))
}

/// Where a session is and works.
fn place(session: Option<&SessionId>, cwd: &Path) -> Object {
    let mut params = Object::default();
    if let Some(session) = session {
        params.set("sessionId", session.as_json());
    }
    params.set("cwd", &JsonStr::new(&cwd.to_string_lossy()));
    params.set("mcpServers", Json::parse("[]").expect("it is JSON"));
    params
}

/// What a client says of itself, in the words of version 2.
pub(crate) fn initialize(name: &str, version: &str, capabilities: &Object) -> Object {
    let text = format!(
        r#"{{"protocolVersion":2,"info":{{"name":{},"version":{}}},"capabilities":{},"_meta":{{"parlor/seq":true}}}}"#,
        string_literal(name),
        string_literal(version),
        capabilities.to_json().as_str()
    );
    let json = Json::parse(text).expect("it is made of JSON");
    Object::parse(json.raw()).expect("it is an object")
}
