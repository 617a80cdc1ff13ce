use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_dialect::{Dialect, Fold};
use parlor_json::{Json, JsonStr, Object, string_literal};
use parlor_session::{
    Activity, EntryId, MessageId, Patch, Reading, Role, SessionId, State, Target, Transcript, Update, text_of,
};
use tokio::sync::watch;

use crate::driver::Command;
use crate::{Client, Error};

/// How much one piece of news has at most, unless a single block is longer.
const PIECE: usize = 1 << 20;

/// A session that is followed. All clones and the connection share one transcript.
#[derive(Debug, Clone)]
pub struct Session {
    client: Client,
    shared: Arc<Shared>,
}

/// What is known of a session.
#[derive(Debug)]
pub(crate) struct Shared {
    id: SessionId,
    known: Mutex<Known>,
    /// The number of the last change here, and whether more can come.
    changed: watch::Sender<(u64, bool)>,
}

#[derive(Debug)]
struct Known {
    fold: Fold,
    /// The last change as a server of parlor's numbers it.
    server_seq: Option<u64>,
    /// How many updates could not be read, and what was wrong with the last of them.
    unread: Option<(u64, String)>,
}

/// What is said to an agent.
#[derive(Debug, Clone)]
pub struct Prompt {
    content: Json,
    key: Option<String>,
}

/// A turn that an agent has taken on.
#[derive(Debug)]
pub struct Turn {
    session: Session,
    message: Option<MessageId>,
    /// Up to where the session was known when the prompt was taken.
    accepted: u64,
}

/// The news of a session, each of them once.
#[derive(Debug)]
pub struct News {
    session: Session,
    changed: watch::Receiver<(u64, bool)>,
    reading: Option<Reading>,
    told: u64,
}

/// The words of a piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Words {
    /// Who said them.
    pub role: Role,
    /// In which message.
    pub message: MessageId,
    /// What was said: text, without pictures and the like.
    pub text: String,
    /// Whether this is all of the message so far, because it is new or was replaced; else it comes at its end.
    pub is_all: bool,
}

impl Words {
    /// The words of a message, if the news are such.
    pub fn of(update: &Update) -> Option<Self> {
        match update {
            Update::Append { entry: EntryId::Message(role, message), item, .. } => {
                let text = text_of(item.as_str()).unwrap_or_default().into_owned();
                Some(Self { role: *role, message: message.clone(), text, is_all: false })
            }
            Update::Upsert { target: Target::Entry(EntryId::Message(role, message)), upsert } => {
                let text = match &upsert.content {
                    Patch::Omitted => return None,
                    Patch::Clear => String::new(),
                    Patch::Value(content) => content.to_text(),
                };
                Some(Self { role: *role, message: message.clone(), text, is_all: true })
            }
            Update::Append { .. }
            | Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => None,
        }
    }
}

impl Known {
    fn new(id: &SessionId) -> Self {
        Self { fold: Fold::of_session(Dialect::V2, id.clone()), server_seq: None, unread: None }
    }
}

impl Shared {
    pub(crate) fn new(id: SessionId) -> Self {
        let known = Mutex::new(Known::new(&id));
        Self { id, known, changed: watch::Sender::new((0, true)) }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the line of an update.
    pub(crate) fn take(&self, line: &str, server_seq: Option<u64>) {
        let mut known = self.known();
        // An update that cannot be read, or only in part, leaves the rest of the session as it is.
        if let Err(problem) = known.fold.line(line) {
            let before = known.unread.take().map_or(0, |(count, _)| count);
            known.unread = Some((before + 1, problem.to_string()));
        }
        known.server_seq = server_seq.or(known.server_seq);
        let seq = known.fold.transcript().seq();
        drop(known);
        self.changed.send_replace((seq, true));
    }

    /// All that was known is going to be said again.
    pub(crate) fn begin_anew(&self) {
        *self.known() = Known::new(&self.id);
    }

    /// The connection is there again.
    pub(crate) fn found(&self) {
        self.changed.send_modify(|(_, more)| *more = true);
    }

    /// The connection is gone.
    pub(crate) fn lost(&self) {
        self.changed.send_modify(|(_, more)| *more = false);
    }

    /// What the answer to joining says of the session: the last change, and whether a turn runs.
    pub(crate) fn joined(&self, answer: &Object) {
        let meta = answer.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok()).unwrap_or_default();
        let seq = meta.get("parlor/seq").and_then(|seq| seq.as_str().parse().ok());
        let mut known = self.known();
        known.server_seq = seq.or(known.server_seq);
        // A state that was told since is the later one.
        if let Some(state) = meta.get("parlor/state").filter(|_| known.fold.transcript().state().is_none()) {
            let line = format!(r#"{{"sessionUpdate":"state_update","state":{}}}"#, state.as_str());
            let _ = known.fold.line(&line);
        }
        let seq = known.fold.transcript().seq();
        drop(known);
        self.changed.send_modify(|(last, _)| *last = seq);
    }

    /// The number of the last change here.
    pub(crate) fn seq(&self) -> u64 {
        self.known().fold.transcript().seq()
    }

    pub(crate) fn server_seq(&self) -> Option<u64> {
        self.known().server_seq
    }
}

impl Session {
    pub(crate) fn new(client: Client, shared: Arc<Shared>) -> Self {
        Self { client, shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.shared.id
    }

    /// The connection that it came with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Looks at what was said so far. Nothing changes while `look` runs, so it should not take long.
    pub fn read<T>(&self, look: impl FnOnce(&Transcript) -> T) -> T {
        look(self.shared.known().fold.transcript())
    }

    /// What was said so far, as it is now.
    pub fn transcript(&self) -> Transcript {
        self.read(Transcript::clone)
    }

    /// How many updates could not be read, or not in full, and what was wrong with the last of them. The transcript is
    /// without them.
    pub fn unread(&self) -> Option<(u64, String)> {
        self.shared.known().unread.clone()
    }

    /// What is new from here on: pieces of text, and whatever else changes as a whole.
    pub fn news(&self) -> News {
        self.news_since(self.read(Transcript::seq))
    }

    /// What is new after a change, by the number that the transcript gave it; from 0 on it is everything.
    pub fn news_since(&self, seq: u64) -> News {
        let changed = self.shared.changed.subscribe();
        News { session: self.clone(), changed, reading: None, told: seq }
    }

    /// Says something. The answer is there when the agent has taken it; the turn goes on without anybody waiting. A prompt
    /// that is dropped before is taken back.
    ///
    /// ```no_run
    /// # async fn example(session: parlor_client::Session) -> Result<(), parlor_client::Error> {
    /// let turn = session.prompt("What is in this directory?").await?;
    /// let end = turn.end().await?;
    /// println!("{:?}", end.stop_reason);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<Turn, Error> {
        let Prompt { content, key } = prompt.into();
        let mut params = self.params();
        params.set("prompt", content);
        if let Some(key) = key {
            let meta = format!(r#"{{"parlor/key":{}}}"#, string_literal(&key));
            params.set("_meta", Json::parse(meta).expect("it is made of JSON"));
        }
        let prompted = Some(Arc::clone(&self.shared));
        let answer = self.client.connection().ask("session/prompt", &params, prompted).await?;
        let message = answer.result.get("messageId").and_then(|id| JsonStr::from_raw(id.raw()));
        Ok(Turn { session: self.clone(), message: message.map(MessageId::from), accepted: answer.seq })
    }

    /// Takes back the prompts of this client that were not taken yet. What came of it says [`prompt`](Self::prompt): the
    /// error -32800, or the turn if the agent was faster.
    pub async fn take_back(&self) -> Result<(), Error> {
        self.client.send(Command::TakeBack(self.id().clone())).await
    }

    /// Waits for the turn that runs, if one does, or for one that is about to, to end.
    pub async fn idle(&self) -> Result<State, Error> {
        self.until(|transcript| transcript.state().filter(|state| state.activity == Activity::Idle).cloned())
            .await
    }

    /// Ends the running turn, and takes back what waits after it.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.client.notify("session/cancel", &self.params()).await
    }

    /// A new session that goes on from a message of this one, or from its end.
    pub async fn fork(&self, at: Option<&MessageId>, cwd: &Path) -> Result<Session, Error> {
        let mut params = self.params();
        if let Some(at) = at {
            params.set("messageId", at.as_json());
        }
        params.set("cwd", &JsonStr::new(&cwd.to_string_lossy()));
        params.set("mcpServers", Json::parse("[]").expect("it is JSON"));
        let answer = self.client.call("session/fork", &params).await?;
        let id = crate::client::session_in(&answer)?;
        // What it has is what this one has up to the point, but under other numbers.
        self.client.load(&id, cwd).await
    }

    /// Names the session.
    pub async fn set_title(&self, title: &str) -> Result<(), Error> {
        let mut params = self.params();
        params.set("title", &JsonStr::new(title));
        self.client.call("session/set_title", &params).await.map(drop)
    }

    /// Takes part no more. The session is there for others, and for later.
    pub async fn close(&self) -> Result<(), Error> {
        let done = self.client.call("session/close", &self.params()).await.map(drop);
        self.client.send(Command::Forget(self.id().clone())).await?;
        done
    }

    /// Deletes it for everybody.
    pub async fn delete(&self) -> Result<(), Error> {
        let done = self.client.call("session/delete", &self.params()).await.map(drop);
        self.client.send(Command::Forget(self.id().clone())).await?;
        done
    }

    /// Waits until something is so.
    async fn until<T>(&self, look: impl Fn(&Transcript) -> Option<T>) -> Result<T, Error> {
        let mut changed = self.shared.changed.subscribe();
        loop {
            let more = changed.borrow_and_update().1;
            if let Some(found) = self.read(&look) {
                return Ok(found);
            }
            if !more || changed.changed().await.is_err() {
                return Err(Error::Gone);
            }
        }
    }

    fn params(&self) -> Object {
        let mut params = Object::default();
        params.set("sessionId", self.id().as_json());
        params
    }
}

impl Prompt {
    /// Content blocks, as the protocol has them: a JSON list.
    pub fn blocks(content: Json) -> Self {
        Self { content, key: None }
    }

    /// The content blocks.
    pub fn content(&self) -> &Json {
        &self.content
    }

    /// A name for the prompt, so that a server of parlor's takes it once however often it is sent.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        let block = format!(r#"[{{"type":"text","text":{}}}]"#, string_literal(text));
        Self::blocks(Json::parse(block).expect("it is made of JSON"))
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Turn {
    /// The message that the prompt became.
    pub fn message(&self) -> Option<&MessageId> {
        self.message.as_ref()
    }

    /// What is new since the agent has taken it, and so the turn as it happens.
    pub fn news(&self) -> News {
        self.session.news_since(self.accepted)
    }

    /// Waits for the end of the turn: how it ended.
    pub async fn end(&self) -> Result<State, Error> {
        self.session
            .until(|transcript| {
                let entry = self.message.clone().map(|id| EntryId::Message(Role::User, id));
                let began = match entry {
                    Some(entry) => transcript.get(&entry)?.created(),
                    None => self.accepted,
                };
                let state = transcript.state().filter(|state| state.activity == Activity::Idle);
                state.filter(|_| transcript.state_seq() > began).cloned()
            })
            .await
    }
}

impl News {
    /// The next piece of news; `None` when the connection is gone and all was told.
    pub async fn next(&mut self) -> Option<Update> {
        loop {
            let more = self.changed.borrow_and_update().1;
            if let Some(update) = self.ready() {
                return Some(update);
            }
            if !more || self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    /// The next piece of news that is there already.
    pub fn ready(&mut self) -> Option<Update> {
        let known = self.session.shared.known();
        let transcript = known.fold.transcript();
        // A transcript that began anew is told anew.
        if transcript.seq() < self.told {
            self.told = 0;
            self.reading = None;
        }
        loop {
            let reading = self.reading.get_or_insert_with(|| Reading::new(self.told, transcript.seq()));
            if let Some(update) = reading.next(transcript, PIECE) {
                return Some(update);
            }
            self.told = reading.upto();
            self.reading = None;
            if transcript.seq() == self.told {
                return None;
            }
        }
    }
}
