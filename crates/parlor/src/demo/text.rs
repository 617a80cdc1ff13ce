//! Commands that send messages.

use std::time::Duration;

use parlor_agent::{ContentBlock, Turn};
use tokio::time::Instant;

use super::commands::{COMMANDS, NUMBER, Stream};
use crate::script;

/// A PNG image of one pixel.
pub(super) const IMAGE: &[u8] =
    b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\
    \x00\x00\x1f\x15\xc4\x89\x00\x00\x00\x0dIDATx\xdacd\xf8\xcfP\x0f\x00\x03\x86\x01\x80Z4}k\
    \x00\x00\x00\x00IEND\xaeB`\x82";

/// A link to a page.
pub(super) fn link() -> ContentBlock {
    ContentBlock::resource_link("The protocol", "https://agentclientprotocol.com")
}

/// Counts words, which are the tokens of this agent.
pub(super) fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// Sends a text word by word, as a model would.
pub(super) async fn say(turn: &Turn, text: &str) {
    for word in text.split_inclusive(' ') {
        turn.send_text(word).await;
    }
    turn.add_tokens(0, count(text));
}

pub(super) async fn think(turn: &Turn, text: &str) {
    for word in text.split_inclusive(' ') {
        turn.send_thought(word).await;
    }
    turn.add_tokens(0, count(text));
}

pub(super) async fn twice(turn: &Turn, text: &str) {
    say(turn, text).await;
    turn.end_message();
    say(turn, text).await;
}

pub(super) async fn help(turn: &Turn) {
    turn.send_text(&format!("One command per line:\n{}", script::list(COMMANDS))).await;
}

/// Answers a line that is not a command.
pub(super) async fn chat(turn: &Turn, line: &str) {
    let others = turn.prompt_blocks().filter(|block| block.as_text().is_none()).count();
    let more = if others == 0 { String::new() } else { format!(" (and attached {others})") };
    let hello = "Hello! I am a demo agent.";
    say(turn, &format!("{hello} You said: \"{line}\"{more}. Say `help` to see what I can do.")).await;
}

/// Sends a message and replaces it.
pub(super) async fn redact(turn: &Turn, clear: bool) {
    say(turn, "The password is swordfish.").await;
    if let Some(message) = turn.current_message() {
        turn.replace_message(&message, if clear { "" } else { "The password is [redacted]." }).await;
    }
}

/// Sends chunks that start with their number, from 0, in eight digits and a space.
pub(super) async fn stream(turn: &Turn, stream: &Stream) {
    let filler = "abcdefghijklmnopqrstuvwxyz ".chars().cycle().take(stream.size - NUMBER).collect::<String>();
    let start = Instant::now();
    for number in 0..stream.count {
        if let Some(rate) = stream.rate {
            // Relative to the start, so that one delay does not slow down the rest.
            let due = Duration::from_secs_f64(f64::from(number) / f64::from(rate));
            tokio::time::sleep_until(start + due).await;
        }
        turn.send_text(&format!("{number:08} {filler}")).await;
    }
}
