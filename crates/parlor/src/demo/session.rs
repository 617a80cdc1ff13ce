//! Steps that change or describe the session.

use parlor_agent::{EntryId, Failure, Json, Object, Step, Turn};

use super::messages::{count, say};

/// The size of the context window, in words.
const WINDOW: u64 = 200_000;

/// Sends a plan and completes its steps.
pub(super) async fn plan(turn: &Turn, steps: &[String]) {
    for at in 0..=steps.len() {
        let shown: Vec<Step<'_>> = steps
            .iter()
            .enumerate()
            .map(|(index, text)| match index {
                done if done < at => Step::Completed(text),
                now if now == at => Step::InProgress(text),
                _ => Step::Pending(text),
            })
            .collect();
        turn.plan(&shown).await;
    }
}

/// Patches the session's metadata.
pub(super) async fn meta(turn: &Turn, patch: &str) {
    match Json::parse(patch).ok().and_then(|patch| Object::parse(patch.raw()).ok()) {
        Some(patch) => turn.meta(&patch).await,
        None => say(turn, "The metadata has to be a JSON object.").await,
    }
}

/// Changes the mode without a request of the client.
pub(super) async fn mode(turn: &Turn, mode: &str) {
    if let Err(failure) = turn.choose("mode", mode).await {
        say(turn, &failure.to_string()).await;
    }
}

/// Sends the usage of the context window.
pub(super) async fn usage(turn: &Turn) -> Result<(), Failure> {
    let transcript = turn.transcript().await?;
    let words = transcript.entries().iter().map(|entry| count(&entry.body().content.to_text())).sum();
    turn.usage(words, WINDOW).await;
    Ok(())
}

/// Describes the session.
pub(super) async fn whoami(turn: &Turn) -> Result<(), Failure> {
    let transcript = turn.transcript().await?;
    let is_message = |id: &EntryId| matches!(id, EntryId::Message(..));
    let messages = transcript.entries().iter().filter(|entry| is_message(entry.id())).count();
    let setting = |id| turn.setting(id).unwrap_or_default();
    let text = format!(
        "session {} in {}, mode {}, model {}, {messages} messages",
        turn.id(),
        turn.cwd().display(),
        setting("mode"),
        setting("model"),
    );
    say(turn, &text).await;
    Ok(())
}
