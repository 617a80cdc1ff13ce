//! Steps that are about the session itself.

use parlor_agent::{EntryId, Json, Object, PlanEntry, Turn, TurnError};

use super::words::{count, say};

/// How many words the context window of this agent would hold.
const WINDOW: u64 = 200_000;

/// Shows a plan and works it off.
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
        None => say(turn, "Metadata is a JSON object.").await,
    }
}

/// Changes the mode without being asked to by the client.
pub(super) async fn mode(turn: &Turn, mode: &str) {
    if let Err(failure) = turn.set_setting("mode", mode).await {
        say(turn, &failure.to_string()).await;
    }
}

/// Tells how full the context window is.
pub(super) async fn usage(turn: &Turn) -> Result<(), TurnError> {
    let transcript = turn.transcript().await?;
    let words = transcript.entries().iter().map(|entry| count(&entry.body().content.to_text())).sum();
    turn.set_usage(words, WINDOW).await;
    Ok(())
}

/// Says what the agent knows of the session.
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
