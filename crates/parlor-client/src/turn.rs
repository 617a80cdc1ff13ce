use std::future::IntoFuture;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use parlor_session::{Activity, Entry, EntryId, MessageId, Role, State, Transcript, Update};
use tokio::sync::watch;

use crate::replica::{Position, ReplicaState, SubscriptionStatus};
use crate::updates::{BoxStream, Cursor, is_idle, stream, wait};
use crate::{Error, PeerRequest, Session, TurnOutcome};

/// A turn that the agent has accepted: a stream of its updates, the last item of which is its outcome. Awaiting it waits for
/// the outcome alone. Dropping it leaves the turn running.
///
/// ```
/// use parlor_client::{Role, StopReason, TextDelta, TurnEvent};
///
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// # let session = client.new_session("/tmp".as_ref()).await?;
/// let mut turn = session.prompt("Hello!").await?;
/// let mut text = String::new();
/// while let Some(event) = turn.next().await {
///     match event? {
///         TurnEvent::Update(update) => {
///             let delta = TextDelta::of(&update).filter(|delta| delta.role == Role::Agent);
///             text.extend(delta.map(|delta| delta.text));
///         }
///         TurnEvent::Ended(outcome) => assert_eq!(outcome.stop_reason, Some(StopReason::EndTurn)),
///     }
/// }
/// assert_eq!(text, "Hello!");
///
/// let outcome = session.prompt("And again!").await?.await?;
/// assert_eq!(outcome.stop_reason, Some(StopReason::EndTurn));
/// # Ok(())
/// # });
/// ```
pub struct Turn {
    prompt: AcceptedPrompt,
    events: BoxStream<Result<TurnEvent, Error>>,
}

/// What happens in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEvent {
    /// The session changed.
    Update(Update),
    /// The turn ended. Nothing follows.
    Ended(TurnOutcome),
}

/// A prompt that the agent has accepted.
#[derive(Clone)]
struct AcceptedPrompt {
    session: Session,
    message_id: Option<MessageId>,
    /// The last change when the agent accepted the prompt.
    accepted: Position,
    /// Whether no other turn was to end before its own.
    is_next: bool,
}

/// The state of a turn's stream.
struct TurnCursor {
    prompt: AcceptedPrompt,
    cursor: Cursor,
    changes: watch::Receiver<SubscriptionStatus>,
    is_over: bool,
}

impl Turn {
    pub(crate) fn new(
        session: Session,
        message_id: Option<MessageId>,
        accepted: Position,
        is_next: bool,
    ) -> Self {
        let changes = session.replica().subscribe();
        let cursor = Cursor::new(session.clone(), accepted);
        let prompt = AcceptedPrompt { session, message_id, accepted, is_next };
        let events = TurnCursor { prompt: prompt.clone(), cursor, changes, is_over: false };
        Self { prompt, events: stream(events, TurnCursor::next) }
    }

    /// The id of the user's message, if the agent gave one.
    pub fn message_id(&self) -> Option<&MessageId> {
        self.prompt.message_id.as_ref()
    }

    /// The next event; `None` after the outcome or an error. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<TurnEvent, Error>> {
        std::future::poll_fn(|cx| self.events.as_mut().poll_next(cx)).await
    }

    /// Waits for the outcome, whatever was read of the stream.
    ///
    /// If the session was reloaded from a peer that has another id for the prompt, it is how the session came to be idle, or
    /// [`Error::Disconnected`] if the peer reports no state.
    pub async fn outcome(&self) -> Result<TurnOutcome, Error> {
        let prompt = &self.prompt;
        let (_, state) = prompt.session.wait_for(|state| prompt.end(state)).await??;
        Ok(state.into())
    }

    /// Whether the agent sent a request after it had accepted the prompt. Earlier requests belong to other turns.
    pub fn owns(&self, request: &PeerRequest) -> bool {
        request.session().as_ref() == Some(self.prompt.session.id())
            && request.position().is_some_and(|position| position > self.prompt.accepted)
    }
}

impl Stream for Turn {
    type Item = Result<TurnEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(cx)
    }
}

impl IntoFuture for Turn {
    type Output = Result<TurnOutcome, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.outcome().await })
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let session = self.prompt.session.id();
        let mut debug = f.debug_struct("Turn");
        debug.field("session", session).field("message_id", &self.message_id()).finish_non_exhaustive()
    }
}

impl TurnCursor {
    async fn next(mut self) -> Option<(Result<TurnEvent, Error>, Self)> {
        if self.is_over {
            return None;
        }
        let Self { prompt, cursor, changes, .. } = &mut self;
        let event = wait(changes, || Self::read(prompt, cursor)).await.flatten();
        self.is_over = !matches!(event, Ok(TurnEvent::Update(_)));
        Some((event, self))
    }

    /// The next event that has arrived. Changes after the end of the turn belong to others.
    fn read(prompt: &AcceptedPrompt, cursor: &mut Cursor) -> Option<Result<TurnEvent, Error>> {
        let state = prompt.session.replica().state();
        let end = prompt.end(&state);
        let last = end.as_ref().and_then(|end| end.as_ref().ok()).map_or(u64::MAX, |(seq, _)| *seq);
        while let Some(update) = cursor.read(&state, last, |state| prompt.start(state)) {
            // The outcome has the idle state of this turn; another one is that of the turn before.
            if !is_idle(&update) {
                return Some(Ok(TurnEvent::Update(update)));
            }
        }
        end.map(|end| end.map(|(_, state)| TurnEvent::Ended(state.into())))
    }
}

impl AcceptedPrompt {
    /// How the turn ended, and the change that reported it.
    fn end(&self, state: &ReplicaState) -> Option<Result<(u64, State), Error>> {
        let transcript = state.fold.transcript();
        if let Some(entry) = self.entry(transcript) {
            return state.fold.turn_end_after(entry.created()).map(Ok);
        }
        if self.accepted.epoch == state.epoch {
            // Where other turns end first, only its message tells which end is its own.
            let is_its_own = self.message_id.is_none() || self.is_next;
            return state.fold.turn_end_after(self.accepted.seq).filter(|_| is_its_own).map(Ok);
        }
        match transcript.state() {
            None => (!state.is_owned_by(self.session.client().token())).then_some(Err(Error::Disconnected)),
            Some(idle) => {
                (idle.activity == Activity::Idle).then(|| Ok((transcript.state_seq(), idle.clone())))
            }
        }
    }

    /// The change before the turn in a transcript that was reloaded.
    fn start(&self, state: &ReplicaState) -> u64 {
        self.entry(state.fold.transcript()).map_or(0, |entry| entry.created() - 1)
    }

    /// The entry of the prompt.
    fn entry<'a>(&self, transcript: &'a Transcript) -> Option<&'a Entry> {
        transcript.get(&EntryId::Message(Role::User, self.message_id.clone()?))
    }
}
