//! An agent that takes notes: it thinks, streams text, uses a tool, requests permission to write, and sets the title.
//!
//! It appends prompts to `notes.txt` in the working directory of the session. Its argument is a file for the sessions:
//!
//! ```text
//! cargo build -p parlor-agent --example worker --features persist
//! target/debug/examples/worker sessions.db
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use parlor_agent::{
    Agent, EntryId, Info, PermissionOption, Role, ServeError, Server, StopReason, ToolKind, Turn, TurnError,
};

struct Worker;

impl Agent for Worker {
    fn info(&self) -> Info {
        Info::new("worker", "0.1.0").title("Note taker")
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        let note = turn.prompt_text();
        turn.send_thought("That is worth a note.").await;

        // The transcript also has what was sent before this process was started.
        let transcript = turn.transcript().await?;
        let is_prompt = |id: &EntryId| matches!(id, EntryId::Message(Role::User, _));
        let number = transcript.entries().iter().filter(|entry| is_prompt(entry.id())).count();

        if number == 1 {
            let start: String = note.chars().take(40).collect();
            turn.set_title(&format!("Notes: {start}")).await;
        }

        // Parts of one message, which the tool call ends.
        for word in ["I will ", "write ", "that ", "down."] {
            turn.send_text(word).await;
        }
        if append(&turn, &note).await? {
            turn.send_text(&format!("That was note {number}.")).await;
        } else {
            turn.send_text("Then I will not.").await;
        }
        Ok(StopReason::EndTurn)
    }
}

/// Appends a note to the file, if that is allowed. A tool call that is dropped before it has ended, for instance by `?`, fails.
async fn append(turn: &Turn, note: &str) -> Result<bool, TurnError> {
    let path = turn.cwd().join("notes.txt");
    let call = turn.tool_call("Write notes.txt").kind(ToolKind::Edit).location(&path, None).start().await;

    let old = read(&path)?;
    let new = format!("{}{note}\n", old.as_deref().unwrap_or_default());
    call.send_diff(&path, old.as_deref(), &new).await;

    let options = [PermissionOption::allow_once(), PermissionOption::reject_once()];
    if !call.request_permission(options).await?.is_allowed() {
        call.fail().await;
        return Ok(false);
    }
    fs::write(&path, new)?;
    call.complete().await;
    Ok(true)
}

fn read(path: &Path) -> Result<Option<String>, TurnError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    let mut agent = Server::builder(Worker);
    if let Some(file) = std::env::args_os().nth(1) {
        agent = agent.persist(file);
    }
    agent.start().await?.stdio().await
}
