use std::path::Path;
use std::sync::Arc;

use parlor_json::{Json, JsonStr, Object, string_literal};
use parlor_session::{Activity, Entry, EntryId, MessageId, Role, SessionId, State, Transcript};

use crate::driver::{Command, Purpose};
use crate::known::{Known, Shared, Standing};
use crate::{Client, Error, News, Question};

/// A session that is followed. All clones and the connection share one transcript.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// let session = client.new_session("/tmp".as_ref()).await?;
/// session.prompt("What is in this directory?").await?.end().await?;
/// let entries = session.read(|transcript| transcript.entries().len());
/// let fork = session.fork(None, "/tmp".as_ref()).await?;
/// assert_eq!(fork.transcript().entries().len(), entries);
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    client: Client,
    shared: Arc<Shared>,
}

/// What is said to an agent.
///
/// ```
/// use parlor_client::{Json, Prompt};
///
/// let prompt = Prompt::from("Hello").key("hello-1");
/// assert_eq!(prompt.content().as_str(), r#"[{"type":"text","text":"Hello"}]"#);
/// let picture = r#"[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]"#;
/// let prompt = Prompt::blocks(Json::parse(picture).unwrap());
/// ```
#[derive(Debug, Clone)]
pub struct Prompt {
    content: Json,
    key: Option<String>,
}

/// A turn that an agent has taken on. There is an example at [`Session::prompt`].
#[derive(Debug, Clone)]
pub struct Turn {
    session: Session,
    message: Option<MessageId>,
    /// Up to where the session was known when the prompt was taken.
    accepted: (u64, u64),
    /// Whether nothing was to end before it.
    is_next: bool,
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
        self.shared.id()
    }

    /// The connection that it came with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Looks at what was said so far. Nothing changes while `look` runs, so it should not take long, and must not ask the
    /// session itself for anything: that would wait for ever. [`transcript`](Self::transcript) gives a copy.
    pub fn read<T>(&self, look: impl FnOnce(&Transcript) -> T) -> T {
        look(self.shared.known().told.fold.transcript())
    }

    /// What was said so far, as it is now.
    pub fn transcript(&self) -> Transcript {
        self.read(Transcript::clone)
    }

    /// How many updates could not be read, or not in full, and what was wrong with the last of them. The transcript is
    /// without them.
    pub fn unread(&self) -> Option<(u64, String)> {
        self.shared.known().told.unread.clone()
    }

    /// What is new from here on: pieces of text, and whatever else changes as a whole.
    pub fn news(&self) -> News {
        News::new(self.clone(), self.shared.place())
    }

    /// What is new after a change, by the number that the transcript gave it; from 0 on it is everything.
    pub fn news_since(&self, seq: u64) -> News {
        News::new(self.clone(), (self.shared.place().0, seq))
    }

    /// Says something. The answer is there when the agent has taken it; the turn goes on without anybody waiting. A prompt
    /// that is dropped before is taken back.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
    /// # use example::*;
    /// # run(async {
    /// # let client = connect().await;
    /// # let session = client.new_session("/tmp".as_ref()).await?;
    /// let turn = session.prompt("What is in this directory?").await?;
    /// let end = turn.end().await?;
    /// assert_eq!(end.stop_reason.unwrap().to_text(), "end_turn");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<Turn, Error> {
        let Prompt { content, key } = prompt.into();
        let mut params = self.params();
        params.set("prompt", content);
        if let Some(key) = key {
            let meta = format!(r#"{{"parlor/key":{}}}"#, string_literal(&key));
            params.set("_meta", Json::parse(meta).expect("it is made of JSON"));
        }
        let purpose = Purpose::Prompt(Arc::clone(&self.shared));
        let answer = self.client.connection().ask("session/prompt", &params, purpose).await?;
        let message = answer.result.get("messageId").and_then(|id| JsonStr::from_raw(id.raw()));
        Ok(Turn {
            session: self.clone(),
            message: message.map(MessageId::from),
            accepted: answer.place,
            is_next: answer.is_next,
        })
    }

    /// Takes back the prompts of this client that were not taken yet. What came of it says [`prompt`](Self::prompt): the
    /// error -32800, or the turn if the agent was faster.
    pub async fn take_back(&self) -> Result<(), Error> {
        self.client.send(Command::TakeBack(self.id().clone())).await
    }

    /// Waits until the session is idle, and says how its last turn ended. If it is idle now, that is at once; if nothing was
    /// said of its state yet, it waits to be told. For the turn of a prompt there is [`Turn::end`].
    pub async fn idle(&self) -> Result<State, Error> {
        let is_idle = |state: &&State| state.activity == Activity::Idle;
        self.until(|known| known.told.fold.transcript().state().filter(is_idle).cloned()).await
    }

    /// Ends the running turn, and takes back what waits after it.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.client.notify("session/cancel", &self.params()).await
    }

    /// Ends the running turn, and withdraws the prompts of this client that wait after it. Those of others stay, if the other
    /// side is a server of parlor's.
    pub async fn cancel_turn(&self) -> Result<(), Error> {
        let mut params = self.params();
        params.set("_meta", Json::parse(r#"{"parlor/scope":"turn"}"#).expect("it is JSON"));
        self.client.notify("session/cancel", &params).await
    }

    /// A new session that goes on from a message of this one, or from its end.
    pub async fn fork(&self, at: Option<&MessageId>, cwd: &Path) -> Result<Session, Error> {
        let mut params = self.params();
        if let Some(at) = at {
            params.set("messageId", at.as_json());
        }
        params.set("cwd", JsonStr::new(&cwd.to_string_lossy()));
        let answer = self.client.call("session/fork", &params).await?;
        let id = crate::client::session_in(&answer)?;
        // What it has is what this one has up to the point, but under other numbers.
        self.client.load(&id, cwd).await
    }

    /// Names the session.
    pub async fn set_title(&self, title: &str) -> Result<(), Error> {
        let mut params = self.params();
        params.set("title", JsonStr::new(title));
        self.client.call("session/set_title", &params).await.map(drop)
    }

    /// Takes part no more. The session is there for others, and for later; who waits for something of it here waits no more.
    pub async fn close(&self) -> Result<(), Error> {
        let purpose = Purpose::Close(Arc::clone(&self.shared));
        self.client.connection().ask("session/close", &self.params(), purpose).await.map(drop)
    }

    /// Deletes it for everybody.
    pub async fn delete(&self) -> Result<(), Error> {
        let purpose = Purpose::Delete(Arc::clone(&self.shared));
        self.client.connection().ask("session/delete", &self.params(), purpose).await.map(drop)
    }

    /// Waits until something is so.
    async fn until<T>(&self, look: impl Fn(&Known) -> Option<T>) -> Result<T, Error> {
        let mut changed = self.shared.subscribe();
        loop {
            let standing = changed.borrow_and_update().1;
            if let Some(found) = look(&self.shared.known()) {
                return Ok(found);
            }
            match standing {
                Standing::Followed if changed.changed().await.is_ok() => {}
                Standing::Followed | Standing::Gone => return Err(Error::Gone),
                Standing::Unfollowed => return Err(Error::Unfollowed),
                Standing::Left => return Err(Error::Left),
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

    /// What is new since the agent has taken it, up to the state in which it ended: the turn as it happens.
    pub fn news(&self) -> News {
        let began = self.began(&self.session.shared.known());
        News::of_turn(self.session.clone(), began, self.clone())
    }

    /// Waits for the end of the turn: how it ended. If the session was told anew by somebody who calls the prompt something
    /// else, it is how the session came to be idle; or [`Error::Gone`] if that is another connection, which says nothing of
    /// it.
    pub async fn end(&self) -> Result<State, Error> {
        self.session.until(|known| self.ended(known)).await?.map(|(_, state)| state)
    }

    /// Whether the agent asked this after it had taken the prompt. What was asked before is about another turn.
    pub fn has_asked(&self, question: &Question) -> bool {
        question.session().as_ref() == Some(self.session.id())
            && question.place().is_some_and(|place| place > self.accepted)
    }

    /// How the turn ended, and the change that said so.
    pub(crate) fn ended(&self, known: &Known) -> Option<Result<(u64, State), Error>> {
        let transcript = known.told.fold.transcript();
        let (epoch, accepted) = self.accepted;
        if let Some(entry) = self.entry(transcript) {
            return known.told.end_after(entry.created()).map(Ok);
        }
        if epoch == known.epoch {
            // Where others end first, only its message tells which end is its own.
            let is_told_apart = self.message.is_none() || self.is_next;
            return known.told.end_after(accepted).filter(|_| is_told_apart).map(Ok);
        }
        match transcript.state() {
            None => (!known.is_told_by(self.session.client.owner())).then_some(Err(Error::Gone)),
            Some(state) => {
                (state.activity == Activity::Idle).then(|| Ok((transcript.state_seq(), state.clone())))
            }
        }
    }

    /// The change before the turn. Where all was told anew since, the numbers are others.
    fn began(&self, known: &Known) -> (u64, u64) {
        if self.accepted.0 == known.epoch {
            return self.accepted;
        }
        let entry = self.entry(known.told.fold.transcript());
        (known.epoch, entry.map_or(0, |entry| entry.created() - 1))
    }

    /// What the prompt is in the transcript.
    fn entry<'a>(&self, transcript: &'a Transcript) -> Option<&'a Entry> {
        transcript.get(&EntryId::Message(Role::User, self.message.clone()?))
    }
}
