//! Steps that use a tool, or need an answer.

use parlor_agent::{Choice, Failure, Json, Turn};

use super::messages::say;

/// A tool at work, from its beginning to its end.
pub(super) async fn edit(turn: &Turn, title: &str) {
    let path = turn.cwd().join("notes.txt");
    let path = path.to_string_lossy();
    let call = turn.tool(title).kind("edit").file(path.as_ref()).start().await;
    call.say("One line changed.").await;
    call.diff(&path, Some("Hello\n"), "Hello, world\n").await;
    call.complete().await;
}

/// A tool that is only used if a person agrees. If nobody decides the turn fails, and the tool call with it.
pub(super) async fn ask(turn: &Turn, title: &str) -> Result<(), Failure> {
    let call = turn.tool(title).kind("delete").start().await;
    let choice = call.ask(&[Choice::AllowOnce, Choice::AllowAlways, Choice::RejectOnce]).await?;
    let choice = choice.ok_or("nobody decided")?;
    if choice.allows() {
        call.complete().await;
    } else {
        call.fail().await;
    }
    let answer = match choice {
        Choice::AllowOnce => "You allowed it this once.",
        Choice::AllowAlways => "You allowed it from now on.",
        Choice::RejectOnce | Choice::RejectAlways | _ => "You did not allow it.",
    };
    say(turn, answer).await;
    Ok(())
}

/// A form for a person.
pub(super) async fn form(turn: &Turn) -> Result<(), Failure> {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string","title":"Your name"},"sugar":{"type":"boolean","title":"Sugar?"}},"required":["name"]}"#;
    match turn.form("Who wants coffee?", &Json::parse(schema)?).await? {
        Some(filled_in) => say(turn, &format!("You filled in {}.", filled_in.to_json().as_str())).await,
        None => say(turn, "Nobody filled it in.").await,
    }
    Ok(())
}
