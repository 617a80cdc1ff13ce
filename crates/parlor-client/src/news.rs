use parlor_session::{Activity, EntryId, MessageId, Patch, ReplayCursor, Role, Target, Update, text_of};
use tokio::sync::watch;

use crate::known::Standing;
use crate::{Session, Turn};

/// How much one piece of news has at most, unless a single block is longer.
const PIECE: usize = 1 << 20;

/// The news of a session, each of them once. What comes faster than it is asked for is told as one.
///
/// ```
/// use parlor_client::{Activity, Role, Update, Words};
///
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// # let session = client.new_session("/tmp".as_ref()).await?;
/// let mut news = session.news();
/// session.prompt("Hello!").await?;
/// let mut said = String::new();
/// while let Some(update) = news.next().await {
///     match Words::of(&update).filter(|words| words.role == Role::Agent) {
///         Some(words) => said.push_str(&words.text),
///         None if matches!(&update, Update::State(state) if state.activity == Activity::Idle) => break,
///         None => {}
///     }
/// }
/// assert_eq!(said, "Hello!");
/// # Ok(())
/// # });
/// ```
#[derive(Debug)]
pub struct News {
    session: Session,
    changed: watch::Receiver<(u64, Standing)>,
    reading: Option<ReplayCursor>,
    told: u64,
    /// Which transcript that is of.
    epoch: u64,
    /// The turn that they are limited to.
    turn: Option<Turn>,
    /// Whether the turn has ended and all of it was told.
    is_over: bool,
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

impl News {
    /// The news of a session after a change, of the transcript that has the change.
    pub(crate) fn new(session: Session, (epoch, told): (u64, u64)) -> Self {
        let changed = session.shared().subscribe();
        Self { session, changed, reading: None, told, epoch, turn: None, is_over: false }
    }

    /// The news of one turn, the last of which is the state in which it ended.
    pub(crate) fn of_turn(session: Session, from: (u64, u64), turn: Turn) -> Self {
        Self { turn: Some(turn), ..Self::new(session, from) }
    }

    /// The next piece of news; `None` when no connection tells of the session any more or the turn has ended, and all was
    /// told.
    pub async fn next(&mut self) -> Option<Update> {
        while !self.is_over {
            let more = self.changed.borrow_and_update().1 == Standing::Followed;
            if let Some(update) = self.ready() {
                return Some(update);
            }
            if !more || self.changed.changed().await.is_err() {
                return None;
            }
        }
        None
    }

    /// The next piece of news that is there already.
    pub fn ready(&mut self) -> Option<Update> {
        if self.is_over {
            return None;
        }
        let known = self.session.shared().known();
        let transcript = known.told.fold.transcript();
        // A transcript that began anew is told anew.
        if known.epoch != self.epoch {
            self.epoch = known.epoch;
            self.told = 0;
            self.reading = None;
        }
        // Another turn may have begun since: what it changed is not looked at.
        let end = self.turn.as_ref().and_then(|turn| turn.ended(&known)?.ok());
        let last = end.as_ref().map_or(transcript.seq(), |(seq, _)| *seq);
        loop {
            let reading = self.reading.get_or_insert_with(|| ReplayCursor::new(self.told, last));
            match reading.next(transcript, PIECE) {
                Some(Update::State(state)) if self.turn.is_some() && state.activity == Activity::Idle => {}
                Some(update) => return Some(update),
                None => {
                    self.told = reading.through();
                    self.reading = None;
                    if self.told >= last {
                        self.is_over = end.is_some();
                        return end.map(|(_, state)| Update::State(state));
                    }
                }
            }
        }
    }
}

impl Words {
    /// The words of a message, if the news are such.
    ///
    /// ```
    /// use parlor_client::{EntryId, Json, Role, Update, Words};
    ///
    /// let item = Json::parse(r#"{"type":"text","text":"Hello"}"#).unwrap();
    /// let update = Update::Append { entry: EntryId::Message(Role::Agent, "m".into()), item, extra: None };
    /// assert_eq!(Words::of(&update).unwrap().text, "Hello");
    /// ```
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
