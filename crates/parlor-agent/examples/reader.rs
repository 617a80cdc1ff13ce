//! An agent that reads a file, with permission: the one of the guide.

use parlor_agent::{
    Agent, PermissionOption, RequestError, ServeError, Server, StopReason, ToolKind, Turn, TurnError,
};

struct Reader;

impl Agent for Reader {
    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        let path = turn.cwd().join(turn.prompt_text().trim());
        turn.set_title(&format!("About {}", path.display())).await;

        // Parts of one message.
        turn.send_text("I will ").await;
        turn.send_text("read it.").await;

        // Clients show the tool call while it runs. If it has not ended when the turn ends, it has failed.
        let title = format!("Read {}", path.display());
        let call = turn.tool_call(title).kind(ToolKind::Read).location(&path, None).start().await;
        let options = [PermissionOption::allow_once(), PermissionOption::reject_once()];
        if !call.request_permission(options).await?.is_allowed() {
            call.fail().await;
            return Ok(StopReason::Refusal);
        }

        // The editor has changes that are not saved. Errors end the turn, and people see their message.
        let text = match turn.client().read_text_file(&path).await {
            Err(RequestError::Unsupported { .. }) => std::fs::read_to_string(&path)?,
            text => text?,
        };
        let lines = text.lines().count();
        call.send_content(text).await;
        call.complete().await;

        turn.send_text(&format!("It has {lines} lines.")).await;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    // The sessions are in this file, and available again after a restart.
    let file = std::env::args_os().nth(1).unwrap_or("sessions.db".into());
    Server::builder(Reader).persist(file).start().await?.stdio().await
}
