//! A client of version 1.

use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, InitializeRequest, LoadSessionRequest, NewSessionRequest,
    PermissionOptionKind, PromptRequest, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionNotification, SessionUpdate, TextContent,
};
use agent_client_protocol::{Agent, Client, Result};

use super::{Plan, SharedView, name, show, tool};
use crate::client_view::ClientView;
use crate::wire::Wire;

fn chunk(view: &mut ClientView, role: &'static str, chunk: &ContentChunk) {
    let text = if let ContentBlock::Text(text) = &chunk.content { &text.text } else { "" };
    view.chunk(role, chunk.message_id.as_ref().map(name), text);
}

fn note(view: &mut ClientView, calls: &mut Vec<String>, update: SessionUpdate) {
    match update {
        SessionUpdate::UserMessageChunk(update) => chunk(view, "user", &update),
        SessionUpdate::AgentMessageChunk(update) => chunk(view, "agent", &update),
        SessionUpdate::AgentThoughtChunk(update) => chunk(view, "thought", &update),
        SessionUpdate::ToolCall(call) => {
            tool(view, calls, call.tool_call_id.to_string(), Some(call.title), Some(name(&call.status)));
        }
        SessionUpdate::ToolCallUpdate(call) => {
            let status = call.fields.status.as_ref().map(name);
            tool(view, calls, call.tool_call_id.to_string(), call.fields.title, status);
        }
        SessionUpdate::SessionInfoUpdate(info) => {
            if let Some(title) = info.title.value() {
                view.title = Some(title.clone());
            }
        }
        _ => {}
    }
}

pub(super) async fn client_run(wire: Wire, plan: Plan, shown: SharedView) -> Result<String> {
    let Plan { cwd, session, prompts } = plan;
    let mut calls = Vec::new();
    let updates = Arc::clone(&shown);
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _connection| {
                show(&updates, |view| note(view, &mut calls, notification.update));
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _connection| {
                let mut options = request.options.into_iter();
                let allow = options.find(|option| option.kind == PermissionOptionKind::AllowOnce).unwrap();
                let allow = SelectedPermissionOutcome::new(allow.option_id);
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(allow)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(wire, async move |connection: ConnectionTo<Agent>| {
            let welcome =
                connection.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
            assert_eq!(welcome.protocol_version, ProtocolVersion::V1);
            let session = match session {
                Some(session) => {
                    let load = LoadSessionRequest::new(session.clone(), cwd);
                    connection.send_request(load).block_task().await?;
                    session
                }
                None => {
                    let new = connection.send_request(NewSessionRequest::new(cwd)).block_task().await?;
                    new.session_id.to_string()
                }
            };
            for prompt in prompts {
                // The client that sent a prompt does not get it as an update.
                show(&shown, |view| view.chunk("user", None, &prompt));
                let prompt = vec![ContentBlock::Text(TextContent::new(prompt))];
                let prompt = PromptRequest::new(session.clone(), prompt);
                let done = connection.send_request(prompt).block_task().await?;
                assert_eq!(name(&done.stop_reason), "end_turn");
            }
            Ok(session)
        })
        .await
}
