use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream::{StreamExt, unfold};
use parlor_session::{Activity, EntryId, MessageId, Patch, ReplayCursor, Role, Target, Update, text_of};
use tokio::sync::watch;

use crate::replica::{Position, ReplicaState, SubscriptionStatus};
use crate::{Error, Session};

/// The size of one update at most, unless a single content block is longer.
const MAX_UPDATE: usize = 1 << 20;

/// A stream whose state is on the heap, so that it can be moved and polled anywhere.
pub(crate) type BoxStream<T> = Pin<Box<dyn Stream<Item = T> + Send + Sync>>;

/// A stream of what `next` returns. After `None` it returns `None` again.
pub(crate) fn stream<S, T, F>(state: S, next: impl FnMut(S) -> F + Send + Sync + 'static) -> BoxStream<T>
where
    S: Send + Sync + 'static,
    T: 'static,
    F: Future<Output = Option<(T, S)>> + Send + Sync + 'static,
{
    Box::pin(unfold(state, next).fuse())
}

/// A stream of the updates of a session, each of them once. Updates that arrive faster than they are read are merged.
///
/// It ends when the connection receives no more updates of the session and all were read.
///
/// ```
/// use parlor_client::{Activity, Role, TextDelta, Update};
///
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// # let session = client.new_session("/tmp".as_ref()).await?;
/// let mut updates = session.updates();
/// session.prompt("Hello!").await?;
/// let mut text = String::new();
/// while let Some(update) = updates.next().await {
///     match TextDelta::of(&update).filter(|delta| delta.role == Role::Agent) {
///         Some(delta) => text.push_str(&delta.text),
///         None if matches!(&update, Update::State(state) if state.activity == Activity::Idle) => break,
///         None => {}
///     }
/// }
/// assert_eq!(text, "Hello!");
/// # Ok(())
/// # });
/// ```
pub struct Updates {
    stream: BoxStream<Update>,
}

impl Updates {
    /// The updates after a position.
    pub(crate) fn new(session: Session, after: Position) -> Self {
        let changes = session.replica().subscribe();
        let state = (Cursor::new(session, after), changes);
        let stream = stream(state, |(mut cursor, mut changes)| async {
            let update = wait(&mut changes, || cursor.read_all()).await.ok()?;
            Some((update, (cursor, changes)))
        });
        Self { stream }
    }

    /// The next update; `None` after the last. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Update> {
        poll_fn(|cx| self.stream.as_mut().poll_next(cx)).await
    }
}

impl Stream for Updates {
    type Item = Update;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Update>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates").finish_non_exhaustive()
    }
}

/// Waits for changes of a session without reading them, for clients that show the whole transcript.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// # let session = client.new_session("/tmp".as_ref()).await?;
/// let mut changes = session.changes();
/// session.prompt("Hello!").await?;
/// while session.transcript().entries().is_empty() {
///     changes.next().await?;
/// }
/// # Ok(())
/// # });
/// ```
#[derive(Debug)]
pub struct Changes {
    changes: watch::Receiver<SubscriptionStatus>,
}

impl Changes {
    pub(crate) fn new(session: &Session) -> Self {
        Self { changes: session.replica().subscribe() }
    }

    /// Waits until the session has changed since the last call, or since the stream was made. Many changes may be one. Fails when
    /// the connection receives no more updates of the session.
    pub async fn next(&mut self) -> Result<(), Error> {
        if self.changes.changed().await.is_err() {
            return Err(Error::Disconnected);
        }
        let status = *self.changes.borrow_and_update();
        status.error().map_or(Ok(()), Err)
    }
}

/// A position in the updates of a session.
pub(crate) struct Cursor {
    session: Session,
    position: Position,
    replay: Option<ReplayCursor>,
}

/// Waits until `find` finds something or no more changes can arrive. `find` is called with each poll, so that what a replica has
/// is found also before its change is announced.
pub(crate) async fn wait<T>(
    changes: &mut watch::Receiver<SubscriptionStatus>,
    mut find: impl FnMut() -> Option<T>,
) -> Result<T, Error> {
    loop {
        let status = *changes.borrow_and_update();
        let mut changed = pin!(changes.changed());
        let found = poll_fn(|cx| match (find(), status.error()) {
            (Some(found), _) => Poll::Ready(Some(Ok(found))),
            (None, Some(error)) => Poll::Ready(Some(Err(error))),
            (None, None) => {
                changed.as_mut().poll(cx).map(|changed| changed.err().map(|_| Err(Error::Disconnected)))
            }
        });
        if let Some(found) = found.await {
            return found;
        }
    }
}

impl Cursor {
    pub(crate) fn new(session: Session, position: Position) -> Self {
        Self { session, position, replay: None }
    }

    fn read_all(&mut self) -> Option<Update> {
        let replica = Arc::clone(self.session.replica());
        let state = replica.state();
        // A transcript that was reloaded is read from its beginning.
        self.read(&state, u64::MAX, |_| 0)
    }

    /// The next update up to a change. `restart` gives the change after which a reloaded transcript is read.
    pub(crate) fn read(
        &mut self,
        state: &ReplicaState,
        last: u64,
        restart: impl FnOnce(&ReplicaState) -> u64,
    ) -> Option<Update> {
        let transcript = state.fold.transcript();
        if state.epoch != self.position.epoch {
            self.position = Position { epoch: state.epoch, seq: restart(state) };
            self.replay = None;
        }
        let last = last.min(transcript.seq());
        loop {
            let replay = self.replay.get_or_insert_with(|| ReplayCursor::new(self.position.seq, last));
            if let Some(update) = replay.next(transcript, MAX_UPDATE) {
                return Some(update);
            }
            self.position.seq = replay.through();
            self.replay = None;
            if self.position.seq >= last {
                return None;
            }
        }
    }
}

/// Whether an update says that the session is idle.
pub(crate) fn is_idle(update: &Update) -> bool {
    matches!(update, Update::State(state) if state.activity == Activity::Idle)
}

/// The text that an update adds to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextDelta {
    /// Whose message it is.
    pub role: Role,
    /// The id of the message.
    pub message: MessageId,
    /// The text, without images and other content.
    pub text: String,
    /// Whether this is the whole text of the message, because it is new or was replaced. Otherwise it is appended.
    pub replaces: bool,
}

impl TextDelta {
    /// The text in an update, if the update is about the content of a message.
    ///
    /// ```
    /// use parlor_client::{EntryId, Json, Role, TextDelta, Update};
    ///
    /// let item = Json::parse(r#"{"type":"text","text":"Hello"}"#).unwrap();
    /// let update = Update::Append { entry: EntryId::Message(Role::Agent, "m".into()), item, extra: None };
    /// assert_eq!(TextDelta::of(&update).unwrap().text, "Hello");
    /// ```
    pub fn of(update: &Update) -> Option<Self> {
        match update {
            Update::Append { entry: EntryId::Message(role, message), item, .. } => {
                let text = text_of(item.as_str()).unwrap_or_default().into_owned();
                Some(Self { role: *role, message: message.clone(), text, replaces: false })
            }
            Update::Upsert { target: Target::Entry(EntryId::Message(role, message)), upsert } => {
                let text = match &upsert.content {
                    Patch::Omitted => return None,
                    Patch::Clear => String::new(),
                    Patch::Value(content) => content.to_text(),
                };
                Some(Self { role: *role, message: message.clone(), text, replaces: true })
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
