use std::path::Path;
use std::sync::Arc;

use parlor_dialect::{Dialect, Fold};
use parlor_json::{Json, Object};
use parlor_session::{Activity, MessageId, SessionId, State, Transcript};

use crate::driver::{Command, Purpose};
use crate::replica::{Position, ReplicaState, SessionReplica, Snapshot};
use crate::updates::wait;
use crate::{Changes, Client, Error, Losses, Turn, Updates};

/// A handle of a session. All clones share one transcript, which the connection keeps up to date.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// let session = client.new_session("/tmp".as_ref()).await?;
/// session.prompt("What is in this directory?").await?.await?;
/// let fork = session.fork(None, "/tmp".as_ref()).await?;
/// assert_eq!(fork.transcript().entries().len(), session.transcript().entries().len());
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    client: Client,
    replica: Arc<SessionReplica>,
}

/// What to say to an agent.
///
/// ```
/// use parlor_client::{Json, Prompt};
///
/// let prompt = Prompt::from("Hello").key("hello-1");
/// assert_eq!(prompt.content().as_str(), r#"[{"type":"text","text":"Hello"}]"#);
/// let image = r#"[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]"#;
/// let prompt = Prompt::blocks(Json::parse(image).unwrap());
/// ```
#[derive(Debug, Clone)]
pub struct Prompt {
    content: Json,
    key: Option<String>,
    during_turn: DuringTurn,
}

/// What a parlor server does with a prompt while a turn is running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DuringTurn {
    /// Queues it: its turn is one of the next.
    #[default]
    Queue,
    /// Sends it to the agent at once, as a part of the running turn. If the agent does not support that, the prompt is rejected.
    Steer,
    /// The same, but if the agent does not support that, the turn is cancelled and the prompt is the next one.
    SteerOrCancel,
}

/// Entries before those that [`Client::load_tail`](crate::Client::load_tail) loaded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OlderEntries {
    /// The entries in order, as a transcript of their own.
    pub transcript: Transcript,
    /// The cursor for the entries before these; `None` if these are the first.
    pub before: Option<Json>,
}

impl Session {
    pub(crate) fn new(client: Client, replica: Arc<SessionReplica>) -> Self {
        Self { client, replica }
    }

    pub(crate) fn replica(&self) -> &Arc<SessionReplica> {
        &self.replica
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        self.replica.id()
    }

    /// The client of the connection that it was opened on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The transcript as it is now. The session goes on while a snapshot exists, and the next update then copies the
    /// transcript once: a snapshot should not be kept longer than it is read.
    pub fn transcript(&self) -> Snapshot {
        self.replica.snapshot()
    }

    /// The response with which the session was last opened: its options and what else the peer returned. Options that change
    /// later are in the transcript.
    pub fn opened(&self) -> Object {
        self.replica.state().fold.opened.clone()
    }

    /// How often the transcript was reloaded: its changes are numbered again then.
    pub fn reloads(&self) -> u64 {
        self.replica.position().epoch
    }

    /// The updates of this session that could not be decoded, or not in full. The transcript is without them.
    pub fn losses(&self) -> Losses {
        self.replica.state().fold.losses.clone()
    }

    /// The updates from here on: text as it is appended, and everything else that changes.
    pub fn updates(&self) -> Updates {
        Updates::new(self.clone(), self.replica.position())
    }

    /// Waits for changes from here on, without reading them.
    pub fn changes(&self) -> Changes {
        Changes::new(self)
    }

    /// The cursor for entries before those that were loaded; `None` if everything was.
    pub fn older_cursor(&self) -> Option<Json> {
        self.replica.state().fold.older.clone()
    }

    /// How many messages there are before the entries that were loaded, so that the next message has the next number.
    pub fn older_messages(&self) -> usize {
        self.replica.state().fold.older_messages
    }

    /// Loads entries of a parlor server before a cursor, at most this many. The transcript stays as it is.
    pub async fn older(&self, before: &Json, entries: usize) -> Result<OlderEntries, Error> {
        let mut params = self.params();
        params.set("before", before.clone());
        params.set("entries", entries);
        let page = self.client.call("_parlor/older", &params).await?;
        let updates = page.get_array("updates").ok_or(Error::Protocol("the response has no updates"))?;
        let mut fold = Fold::of_session(Dialect::V2, self.id().clone());
        for update in updates {
            // An update that cannot be decoded leaves the others as they are.
            let _ = fold.line(update.as_str());
        }
        let before = page.get("before").filter(|before| !before.is_null()).cloned();
        Ok(OlderEntries { transcript: fold.transcript().clone(), before })
    }

    /// The updates after a change, by the number that the transcript has for it; after 0 it is everything.
    pub fn updates_since(&self, seq: u64) -> Updates {
        Updates::new(self.clone(), Position { seq, ..self.replica.position() })
    }

    /// Prompts the agent, and returns when it has accepted the prompt. Dropping the future before withdraws the prompt;
    /// dropping the [`Turn`] leaves it running.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
    /// # use example::*;
    /// # run(async {
    /// # let client = connect().await;
    /// # let session = client.new_session("/tmp".as_ref()).await?;
    /// let outcome = session.prompt("What is in this directory?").await?.await?;
    /// assert_eq!(outcome.stop_reason, Some(parlor_client::StopReason::EndTurn));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<Turn, Error> {
        let Prompt { content, key, during_turn } = prompt.into();
        let mut params = self.params();
        params.set("prompt", content);
        if let Some(key) = key {
            params.set_nested("_meta", "parlor/key", key);
        }
        match during_turn {
            DuringTurn::Queue => {}
            DuringTurn::Steer => params.set_nested("_meta", "parlor/steer", true),
            DuringTurn::SteerOrCancel => params.set_nested("_meta", "parlor/steer", "cancel"),
        }
        let purpose = Purpose::Prompt(Arc::clone(&self.replica));
        let response = self.client.connection().request("session/prompt", &params, purpose).await?;
        let message_id = response.result.get_json_str("messageId");
        Ok(Turn::new(self.clone(), message_id.map(MessageId::from), response.position, response.is_next))
    }

    /// Withdraws the prompts of this client that the agent has not accepted. [`prompt`](Self::prompt) then fails with
    /// [`REQUEST_CANCELLED`](crate::code::REQUEST_CANCELLED), or succeeds if the agent was faster.
    pub async fn withdraw_prompts(&self) -> Result<(), Error> {
        self.client.connection().send(Command::WithdrawPrompts(self.id().clone())).await
    }

    /// Waits until the session is idle, and returns its state. Returns at once if it is idle, and waits for the first state if
    /// none was reported. For the turn of a prompt there is [`Turn::outcome`].
    pub async fn idle(&self) -> Result<State, Error> {
        let is_idle = |state: &&State| state.activity == Activity::Idle;
        self.wait_for(|state| state.fold.transcript().state().filter(is_idle).cloned()).await
    }

    /// Cancels the running turn and the prompts that are queued after it.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.client.notify("session/cancel", &self.params()).await
    }

    /// Cancels the running turn and the prompts of this client that are queued after it. A parlor server keeps those of other
    /// clients.
    pub async fn cancel_turn(&self) -> Result<(), Error> {
        let mut params = self.params();
        params.set("_meta", Object::new().with("parlor/scope", "turn"));
        self.client.notify("session/cancel", &params).await
    }

    /// Creates a session that continues from a message of this one, or from its end.
    pub async fn fork(&self, at: Option<&MessageId>, cwd: &Path) -> Result<Session, Error> {
        let mut params = self.params();
        if let Some(at) = at {
            params.set("messageId", at.as_json());
        }
        params.set("cwd", &*cwd.to_string_lossy());
        let result = self.client.call("session/fork", &params).await?;
        let id = crate::client::session_in(&result)?;
        // Its history is that of this session up to the message, but under other numbers.
        self.client.load(&id, cwd).await
    }

    /// Sets the title.
    pub async fn set_title(&self, title: &str) -> Result<(), Error> {
        let mut params = self.params();
        params.set("title", title);
        self.client.call("session/set_title", &params).await.map(drop)
    }

    /// Ends the subscription of this client, whatever the response is. The session stays; calls that wait for something of it
    /// fail with [`Error::SessionClosed`].
    pub async fn close(&self) -> Result<(), Error> {
        let purpose = Purpose::Close(Arc::clone(&self.replica));
        self.client.connection().request("session/close", &self.params(), purpose).await.map(drop)
    }

    /// Deletes the session for all clients.
    pub async fn delete(&self) -> Result<(), Error> {
        let purpose = Purpose::Delete(Arc::clone(&self.replica));
        self.client.connection().request("session/delete", &self.params(), purpose).await.map(drop)
    }

    /// Waits until `find` finds something in the state.
    pub(crate) async fn wait_for<T>(&self, find: impl Fn(&ReplicaState) -> Option<T>) -> Result<T, Error> {
        wait(&mut self.replica.subscribe(), || find(&self.replica.state())).await
    }

    fn params(&self) -> Object {
        Object::new().with("sessionId", self.id().as_json())
    }
}

impl Prompt {
    /// A prompt of content blocks, as the protocol has them: a JSON list.
    pub fn blocks(content: Json) -> Self {
        Self { content, key: None, during_turn: DuringTurn::Queue }
    }

    /// The content blocks.
    pub fn content(&self) -> &Json {
        &self.content
    }

    /// Sets an idempotency key: a parlor server accepts the prompt once, however often it is sent.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets what a parlor server does with the prompt while a turn is running.
    #[must_use]
    pub fn during_turn(mut self, during_turn: DuringTurn) -> Self {
        self.during_turn = during_turn;
        self
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::blocks(Json::array([Object::new().with("type", "text").with("text", text)]))
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}
