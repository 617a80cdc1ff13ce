//! Commands about the session.

use parlor_agent::{EntryId, Json, Object, PlanEntry, Turn, TurnError};

use super::text::{count, say};

/// The size of the context window, in words.
const WINDOW: u64 = 200_000;

/// Sends a plan and completes its entries one by one.
pub(super) async fn plan(turn: &Turn, steps: &[String]) {
    for at in 0..=steps.len() {
        let entries = steps.iter().enumerate().map(|(index, text)| match index {
            done if done < at => PlanEntry::completed(text),
            now if now == at => PlanEntry::in_progress(text),
            _ => PlanEntry::pending(text),
        });
        turn.set_plan(entries).await;
    }
}

/// Changes the session's metadata.
pub(super) async fn meta(turn: &Turn, patch: &str) {
    match Json::parse(patch).ok().and_then(|patch| Object::parse(patch.raw()).ok()) {
        Some(patch) => turn.patch_meta(&patch).await,
        None => say(turn, "The metadata has to be a JSON object.").await,
    }
}

/// Changes the mode by the agent itself.
pub(super) async fn mode(turn: &Turn, mode: &str) {
    if let Err(error) = turn.set_setting("mode", mode).await {
        say(turn, &error.to_string()).await;
    }
}

/// Reports how much of the context window is used.
pub(super) async fn usage(turn: &Turn) -> Result<(), TurnError> {
    let transcript = turn.transcript().await?;
    let words = transcript.entries().iter().map(|entry| count(&entry.body().content.to_text())).sum();
    turn.set_usage(words, WINDOW).await;
    Ok(())
}

/// Sends what the agent knows about the session.
pub(super) async fn whoami(turn: &Turn) -> Result<(), TurnError> {
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
