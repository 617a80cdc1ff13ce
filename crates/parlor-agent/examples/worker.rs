//! An agent that works: it thinks, talks while it does, uses a tool, asks before it writes, and names its session.
//!
//! It keeps what it is told in `notes.txt` in the directory of the session. With a file as its argument it keeps its
//! sessions there, so that they are found again the next time:
//!
//! ```text
//! cargo build -p parlor-agent --example worker
//! target/debug/examples/worker sessions.db
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use parlor_agent::{Agent, Choice, EntryId, Failure, Info, Role, Server, Stop, Turn};

struct Worker;

impl Agent for Worker {
    fn info(&self) -> Info {
        Info::new("worker", "0.1.0").title("Note taker")
    }

    async fn prompt(&self, turn: Turn) -> Result<Stop, Failure> {
        let note = turn.text();
        turn.think("That is worth a note.").await;

        // All of the session is at hand, also what was said before this program was started.
        let transcript = turn.transcript().await?;
        let is_prompt = |id: &EntryId| matches!(id, EntryId::Message(Role::User, _));
        let number = transcript.entries().iter().filter(|entry| is_prompt(entry.id())).count();

        // A session is named after the first thing that is said in it.
        if number == 1 {
            let beginning: String = note.chars().take(40).collect();
            turn.title(&format!("Notes: {beginning}")).await;
        }

        // What is said piece by piece is one message, until a tool is used.
        for word in ["I will ", "write ", "that ", "down."] {
            turn.say(word).await;
        }
        if write_down(&turn, &note).await? {
            turn.say(&format!("That was note {number}.")).await;
        } else {
            turn.say("Then I will not.").await;
        }
        Ok(Stop::EndTurn)
    }
}

/// Adds a note to the file, if that is allowed. A tool call that is dropped on the way, by `?` for instance, has failed.
async fn write_down(turn: &Turn, note: &str) -> Result<bool, Failure> {
    let path = turn.cwd().join("notes.txt");
    let shown = path.to_string_lossy();
    let call = turn.tool("Write notes.txt").kind("edit").file(shown.as_ref()).start().await;

    let old = read(&path)?;
    let new = format!("{}{note}\n", old.as_deref().unwrap_or_default());
    call.diff(&shown, old.as_deref(), &new).await;

    // `None` means that nobody decided.
    let choice = call.ask(&[Choice::AllowOnce, Choice::RejectOnce]).await?;
    if !choice.is_some_and(Choice::allows) {
        call.fail().await;
        return Ok(false);
    }
    fs::write(&path, new)?;
    call.complete().await;
    Ok(true)
}

fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut agent = Server::of(Worker);
    if let Some(file) = std::env::args_os().nth(1) {
        agent = agent.store(Path::new(&file));
    }
    agent.start().await?.stdio().await;
    Ok(())
}
