use std::ops::Deref;

use parlor_session::{Content, MessageId, Transcript};

use crate::{Failure, Session};

/// One prompt that is being answered. What can be said in a [`Session`] can be said in a turn. Clones speak in the same
/// turn.
#[derive(Debug, Clone)]
pub struct Turn {
    pub(crate) session: Session,
    pub(crate) message: MessageId,
    pub(crate) prompt: Content,
}

impl Turn {
    /// What the person says, as words.
    pub fn text(&self) -> String {
        self.prompt.to_text()
    }

    /// All that the person says: content blocks as the protocol has them.
    pub fn content(&self) -> &Content {
        &self.prompt
    }

    /// The message that the prompt is.
    pub fn message(&self) -> &MessageId {
        &self.message
    }

    /// What was said in the session so far, the prompt included. Fails if the session was deleted, or the server has
    /// ended.
    pub async fn transcript(&self) -> Result<Transcript, Failure> {
        self.session.transcript_with(Some(self.message.clone())).await
    }

    /// Counts the tokens that a model took and gave, which are told when the turn ends. Called again, they add up.
    pub fn spent(&self, input: u64, output: u64) {
        self.session.spend(input, output);
    }

    /// The session apart from this turn, to speak in when the turn is over: of work that goes on in the background, for
    /// instance. Whether the turn is cancelled does not concern it.
    ///
    /// ```
    /// # use parlor_agent::Turn;
    /// # async fn build() -> bool { true }
    /// # async fn example(turn: Turn) {
    /// turn.say("I will tell you when it is built.").await;
    /// let session = turn.session();
    /// tokio::spawn(async move {
    ///     let word = if build().await { "It is built." } else { "It does not build." };
    ///     session.say(word).await;
    /// });
    /// # }
    /// ```
    pub fn session(&self) -> Session {
        self.session.apart()
    }
}

impl Deref for Turn {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}
