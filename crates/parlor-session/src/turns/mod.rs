//! The turns of prompts, for everything that stands between a client and an agent.
//!
//! [`OpenPrompts`] knows how far each prompt has come and which state of the agent ends its turn, [`Candidate`] which user
//! messages of the agent are its prompts. A live session and a translator both decide by them; what clients are told of it
//! is their own.
//!
//! An agent that takes any number of prompts assigns the message ids: a new user message is a prompt if the response to the
//! prompt names it or if it equals the prompt, and without an id in the response the first new user message after it is. An
//! agent that takes one prompt at a time gives its prompt no id in time: an equal text before any output is the prompt
//! once more.
//!
//! **Invariant:** a prompt ends once, with the state that ends its turn.

mod candidate;
mod open;
mod pattern;

pub(crate) use self::candidate::{Buffered, has_content, left_of, size_of};
pub use self::candidate::{Candidate, Claim, is_output, user_message};
pub use self::open::{OpenPrompt, OpenPrompts, PromptId, PromptState};
pub use self::pattern::{MatchRule, Pattern};
pub(crate) use self::pattern::{Progress, are_same_blocks};
