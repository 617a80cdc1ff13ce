//! A client of version 2.

use agent_client_protocol::schema::{MaybeUndefined, ProtocolVersion};
use agent_client_protocol::v2::schema::{
    ContentBlock, ContentChunk, Implementation, InitializeRequest, MessageId, NewSessionRequest,
    PermissionOptionKind, PromptRequest, ReplayFrom, ReplayFromStart, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, ResumeSessionRequest, SelectedPermissionOutcome,
    SessionUpdate, StateUpdate, StopReason, UpdateSessionNotification,
};
use agent_client_protocol::v2::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result};
use tokio::sync::mpsc;

use super::{Plan, SharedView, name, show, tool};
use crate::client_view::ClientView;
use crate::wire::Wire;

fn text(block: &ContentBlock) -> &str {
    if let ContentBlock::Text(text) = block { &text.text } else { "" }
}

fn chunk(view: &mut ClientView, role: &'static str, chunk: &ContentChunk) {
    view.chunk(role, Some(name(&chunk.message_id)), text(&chunk.content));
}

fn whole(
    view: &mut ClientView,
    role: &'static str,
    id: &MessageId,
    content: &MaybeUndefined<Vec<ContentBlock>>,
) {
    match content {
        MaybeUndefined::Undefined => view.chunk(role, Some(name(id)), ""),
        MaybeUndefined::Null => view.whole(role, name(id), String::new()),
        MaybeUndefined::Value(blocks) => view.whole(role, name(id), blocks.iter().map(text).collect()),
    }
}

fn note(view: &mut ClientView, calls: &mut Vec<String>, update: SessionUpdate) {
    match update {
        SessionUpdate::UserMessageChunk(update) => chunk(view, "user", &update),
        SessionUpdate::AgentMessageChunk(update) => chunk(view, "agent", &update),
        SessionUpdate::AgentThoughtChunk(update) => chunk(view, "thought", &update),
        SessionUpdate::UserMessage(update) => whole(view, "user", &update.message_id, &update.content),
        SessionUpdate::AgentMessage(update) => {
            whole(view, "agent", &update.message_id, &update.content);
        }
        SessionUpdate::AgentThought(update) => {
            whole(view, "thought", &update.message_id, &update.content);
        }
        SessionUpdate::ToolCallUpdate(call) => {
            let title = call.title.value().map(ToString::to_string);
            let status = call.status.value().map(name);
            tool(view, calls, call.tool_call_id.to_string(), title, status);
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
    #[expect(clippy::disallowed_methods, reason = "a test sends a bounded number of events")]
    let (states, mut state) = mpsc::unbounded_channel();
    Client
        .v2()
        .on_receive_notification(
            async move |notification: UpdateSessionNotification, _connection: ConnectionTo<Agent>| {
                if let SessionUpdate::StateUpdate(state) = notification.update {
                    let _ = states.send(state);
                } else {
                    show(&shown, |view| note(view, &mut calls, notification.update));
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest,
                        responder: Responder<RequestPermissionResponse>,
                        _connection: ConnectionTo<Agent>| {
                let mut options = request.options.into_iter();
                let allow = options.find(|option| option.kind == PermissionOptionKind::AllowOnce).unwrap();
                let allow = SelectedPermissionOutcome::new(allow.option_id);
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(allow)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(wire, async move |connection: ConnectionTo<Agent>| {
            let hello = InitializeRequest::new(ProtocolVersion::V2, Implementation::new("visitor", "1"));
            let welcome = connection.send_request(hello).block_task().await?;
            assert!(welcome.capabilities.session.is_some());
            let session = match session {
                Some(session) => {
                    let from = ReplayFrom::Start(ReplayFromStart::new());
                    let resume = ResumeSessionRequest::new(session.clone(), cwd).replay_from(from);
                    connection.send_request(resume).block_task().await?;
                    session
                }
                None => {
                    let new = connection.send_request(NewSessionRequest::new(cwd)).block_task().await?;
                    new.session_id.to_string()
                }
            };
            for prompt in prompts {
                let prompt = PromptRequest::new(session.clone(), vec![prompt.as_str().into()]);
                connection.send_request(prompt).block_task().await?;
                // A session may report idle before the turn starts.
                let mut worked = false;
                loop {
                    match state.recv().await.expect("the turn ends") {
                        StateUpdate::Idle(idle) if worked => {
                            assert_eq!(idle.stop_reason, Some(StopReason::EndTurn));
                            break;
                        }
                        StateUpdate::Idle(_) => {}
                        _ => worked = true,
                    }
                }
            }
            Ok(session)
        })
        .await
}
