//! Commands that use a tool, or request something of people.

use parlor_agent::{
    FormOutcome, Json, PermissionOption, PermissionOptionKind, PermissionOutcome, ToolKind, Turn, TurnError,
};

use super::text::say;

/// A tool call with content and a diff.
pub(super) async fn edit(turn: &Turn, title: &str) {
    let path = turn.cwd().join("notes.txt");
    let call = turn.tool_call(title).kind(ToolKind::Edit).location(&path, None).start().await;
    call.send_content("One line changed.").await;
    call.send_diff(&path, Some("Hello\n"), "Hello, world\n").await;
    call.complete().await;
}

/// A tool call that needs permission. If no client decides, the turn fails, and the tool call with it.
pub(super) async fn ask(turn: &Turn, title: &str) -> Result<(), TurnError> {
    let call = turn.tool_call(title).kind(ToolKind::Delete).start().await;
    let options =
        [PermissionOption::allow_once(), PermissionOption::allow_always(), PermissionOption::reject_once()];
    let PermissionOutcome::Selected(selected) = call.request_permission(options).await? else {
        return Err(TurnError::new("the permission request was not answered"));
    };
    if selected.kind.allows() {
        call.complete().await;
    } else {
        call.fail().await;
    }
    let answer = match selected.kind {
        PermissionOptionKind::AllowOnce => "You allowed it this once.",
        PermissionOptionKind::AllowAlways => "You allowed it from now on.",
        PermissionOptionKind::RejectOnce
        | PermissionOptionKind::RejectAlways
        | PermissionOptionKind::Other(_)
        | _ => "You did not allow it.",
    };
    say(turn, answer).await;
    Ok(())
}

/// A form for people.
pub(super) async fn form(turn: &Turn) -> Result<(), TurnError> {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string","title":"Your name"},"sugar":{"type":"boolean","title":"Sugar?"}},"required":["name"]}"#;
    match turn.request_form("Who wants coffee?", &Json::parse(schema)?).await? {
        FormOutcome::Accepted(values) => {
            say(turn, &format!("You filled in {}.", values.to_json().as_str())).await;
        }
        FormOutcome::Declined | FormOutcome::Cancelled | FormOutcome::Unanswered | _ => {
            say(turn, "The form was not filled in.").await;
        }
    }
    Ok(())
}
