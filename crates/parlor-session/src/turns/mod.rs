//! The turns of prompts, for programs between a client and an agent.
//!
//! [`OpenPrompts`] tracks the progress of each prompt and which state of the agent ends its turn, [`Candidate`] which
//! user messages of the agent are its prompts. The live session and the translator both use them and decide for
//! themselves what they send to clients.
//!
//! An agent that accepts any number of prompts assigns the message ids: a new user message is a prompt if the
//! response to the prompt has its id or if it equals the prompt; if the response has no id, the first new user
//! message after it is the prompt. An agent that accepts one prompt at a time gives no id in time: an equal text
//! before any output is the prompt. Such an agent may take more prompts into its turn, and repeat several of them in chunks without
//! ids that follow each other.
//!
//! **Invariant:** a prompt ends once, with the state that ends its turn.

mod candidate;
mod open;
mod pattern;
mod repetition;

pub(crate) use self::candidate::{Buffered, has_content, size_of, without_content};
pub use self::candidate::{Candidate, is_output, user_message};
pub use self::open::{OpenPrompt, OpenPrompts, PromptId, PromptState};
pub use self::pattern::{MatchRule, Pattern};
pub(crate) use self::pattern::{Progress, blocks_are_equal};
pub use self::repetition::Claim;
