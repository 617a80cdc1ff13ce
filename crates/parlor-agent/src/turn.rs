use std::ops::Deref;

use parlor_json::Json;
use parlor_session::{Content, MessageId, Transcript};

use crate::{ContentBlock, RequestError, Session};

/// A prompt that is being answered. All methods of [`Session`] can be called on it. Clones belong to the same turn.
#[derive(Debug, Clone)]
pub struct Turn {
    pub(crate) session: Session,
    pub(crate) message: MessageId,
    pub(crate) prompt: Content,
}

impl Turn {
    /// The text of the prompt.
    pub fn prompt_text(&self) -> String {
        self.prompt.to_text()
    }

    /// The content of the prompt.
    ///
    /// ```
    /// # use parlor_agent::{ContentBlock, Turn};
    /// # fn example(turn: Turn) {
    /// for block in turn.prompt_blocks() {
    ///     match block {
    ///         ContentBlock::Text(text) => eprintln!("{}", text.text),
    ///         ContentBlock::Image(image) => eprintln!("an image of type {}", image.mime_type),
    ///         other => eprintln!("{}", other.to_json().as_str()),
    ///     }
    /// }
    /// # }
    /// ```
    pub fn prompt_blocks(&self) -> impl Iterator<Item = ContentBlock> + '_ {
        let json = self.prompt.iter().map(|item| Json::parse(item.json).expect("content is JSON"));
        json.map(ContentBlock::from)
    }

    /// The content of the prompt as the protocol has it.
    pub fn prompt_content(&self) -> &Content {
        &self.prompt
    }

    /// The id of the prompt's message.
    pub fn message_id(&self) -> &MessageId {
        &self.message
    }

    /// The transcript of the session, which has the prompt and everything that was sent before this call.
    pub async fn transcript(&self) -> Result<Transcript, RequestError> {
        self.session.transcript_with(Some(self.message.clone())).await
    }

    /// Counts tokens that a model received and produced. Clients receive the sum when the turn ends.
    pub fn add_tokens(&self, input: u64, output: u64) {
        self.session.add_tokens(input, output);
    }

    /// The session without this turn: what is sent with it is sent also when the turn has ended or was cancelled.
    ///
    /// ```
    /// # use parlor_agent::Turn;
    /// # async fn build() -> bool { true }
    /// # async fn example(turn: Turn) {
    /// turn.send_text("The build runs.").await;
    /// let session = turn.session();
    /// tokio::spawn(async move {
    ///     let result = if build().await { "The build succeeded." } else { "The build failed." };
    ///     session.send_text(result).await;
    /// });
    /// # }
    /// ```
    pub fn session(&self) -> Session {
        self.session.outside_turn()
    }
}

impl Deref for Turn {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}
