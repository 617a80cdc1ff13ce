//! Steps that make tool calls or send requests.

use parlor_agent::{Choice, Failure, Json, Turn};

use super::messages::say;

/// Makes a tool call with a diff.
pub(super) async fn edit(turn: &Turn, title: &str) {
    let path = turn.cwd().join("notes.txt");
    let path = path.to_string_lossy();
    let call = turn.tool(title).kind("edit").file(path.as_ref()).start().await;
    call.say("One line changed.").await;
    call.diff(&path, Some("Hello\n"), "Hello, world\n").await;
    call.complete().await;
}

/// Makes a tool call that needs permission. If the request is not answered, the turn and the tool call fail.
pub(super) async fn ask(turn: &Turn, title: &str) -> Result<(), Failure> {
    let call = turn.tool(title).kind("delete").start().await;
    let choice = call.ask(&[Choice::AllowOnce, Choice::AllowAlways, Choice::RejectOnce]).await?;
    let choice = choice.ok_or("the permission request was not answered")?;
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

/// Sends a form.
pub(super) async fn form(turn: &Turn) -> Result<(), Failure> {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string","title":"Your name"},"sugar":{"type":"boolean","title":"Sugar?"}},"required":["name"]}"#;
    match turn.form("Who wants coffee?", &Json::parse(schema)?).await? {
        Some(filled_in) => say(turn, &format!("You filled in {}.", filled_in.to_json().as_str())).await,
        None => say(turn, "The form was not filled in.").await,
    }
    Ok(())
}
