//! Steps that send messages.

use std::time::Duration;

use parlor_agent::{Turn, text_of};
use tokio::time::Instant;

use super::commands::{COMMANDS, NUMBER, Stream};
use crate::script;

/// An image of one pixel.
pub(super) const IMAGE: &str = r#"{"type":"image","mimeType":"image/png","data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="}"#;
/// A link to a resource.
pub(super) const LINK: &str =
    r#"{"type":"resource_link","name":"The protocol","uri":"https://agentclientprotocol.com"}"#;

/// Counts words, which this agent uses as tokens.
pub(super) fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// Streams a text word by word, as a model would.
pub(super) async fn say(turn: &Turn, text: &str) {
    for word in text.split_inclusive(' ') {
        turn.say(word).await;
    }
    turn.spent(0, count(text));
}

pub(super) async fn think(turn: &Turn, text: &str) {
    for word in text.split_inclusive(' ') {
        turn.think(word).await;
    }
    turn.spent(0, count(text));
}

pub(super) async fn twice(turn: &Turn, text: &str) {
    say(turn, text).await;
    turn.end_message();
    say(turn, text).await;
}

pub(super) async fn help(turn: &Turn) {
    turn.say(&format!("One command per line:\n{}", script::list(COMMANDS))).await;
}

/// Answers text that is not a command.
pub(super) async fn chat(turn: &Turn, text: &str) {
    let others = turn.content().iter().filter(|block| text_of(block.json).is_none()).count();
    let more = if others == 0 { String::new() } else { format!(" (and attached {others})") };
    let hello = "Hello! I am a demo agent.";
    say(turn, &format!("{hello} You said: \"{text}\"{more}. Say `help` to see what I can do.")).await;
}

/// Sends a message and replaces it.
pub(super) async fn redact(turn: &Turn, clear: bool) {
    say(turn, "The password is swordfish.").await;
    if let Some(said) = turn.said() {
        turn.replace(&said, if clear { "" } else { "The password is [redacted]." }).await;
    }
}

/// Streams chunks that start with their number, from 0, in eight digits and a space.
pub(super) async fn stream(turn: &Turn, stream: &Stream) {
    let filler = "abcdefghijklmnopqrstuvwxyz ".chars().cycle().take(stream.size - NUMBER).collect::<String>();
    let start = Instant::now();
    for number in 0..stream.count {
        if let Some(rate) = stream.rate {
            // Relative to the start, so that one late chunk does not delay the others.
            let due = Duration::from_secs_f64(f64::from(number) / f64::from(rate));
            tokio::time::sleep_until(start + due).await;
        }
        turn.say(&format!("{number:08} {filler}")).await;
    }
}
