//! A client of version 1.

use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, ContentChunk, InitializeRequest, ListSessionsRequest,
    LoadSessionRequest, NewSessionRequest, PermissionOptionKind, PromptRequest, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionNotification,
    SessionUpdate, TextContent,
};
use agent_client_protocol::{Agent, Client, Error};
use tokio::sync::mpsc;

use super::{Action, ClientCommand, SharedView, Wire, name, show};
use crate::client_view::ClientView;

fn chunk(view: &mut ClientView, role: &'static str, chunk: &ContentChunk) {
    let text = if let ContentBlock::Text(text) = &chunk.content { &text.text } else { "" };
    view.chunk(role, chunk.message_id.as_ref().map(name), text);
}

/// Folds one update.
fn note(view: &mut ClientView, update: &SessionUpdate) {
    match update {
        SessionUpdate::UserMessageChunk(update) => chunk(view, "user", update),
        SessionUpdate::AgentMessageChunk(update) => chunk(view, "agent", update),
        SessionUpdate::AgentThoughtChunk(update) => chunk(view, "thought", update),
        _ => {}
    }
}

pub(super) async fn speak(
    wire: Wire,
    shown: SharedView,
    mut requests: mpsc::UnboundedReceiver<ClientCommand>,
) -> Result<(), Error> {
    let request_view = Arc::clone(&shown);
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _connection| {
                show(&shown, |view| note(view, &notification.update));
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _connection| {
                show(&request_view, |view| view.requests += 1);
                let allow =
                    request.options.iter().find(|option| option.kind == PermissionOptionKind::AllowOnce);
                let allow = SelectedPermissionOutcome::new(allow.unwrap().option_id.clone());
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(allow)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(wire, async move |connection: v1::ConnectionTo<Agent>| {
            let hello = InitializeRequest::new(ProtocolVersion::V1);
            let welcome = connection.send_request(hello).block_task().await?;
            assert_eq!(welcome.protocol_version, ProtocolVersion::V1);
            assert!(welcome.agent_capabilities.load_session);
            while let Some(ClientCommand { action, answer }) = requests.recv().await {
                let text = match action {
                    Action::New => {
                        let new = connection.send_request(NewSessionRequest::new("/")).block_task().await;
                        new.map(|new| new.session_id.to_string())
                    }
                    Action::Join(session) => {
                        let load = LoadSessionRequest::new(session, "/");
                        connection.send_request(load).block_task().await.map(|_| String::new())
                    }
                    Action::List => {
                        let list = connection.send_request(ListSessionsRequest::new()).block_task().await;
                        list.map(|list| {
                            list.sessions.iter().map(|info| format!("{} ", info.session_id)).collect()
                        })
                    }
                    Action::Cancel(session) => {
                        connection.send_notification(CancelNotification::new(session)).map(|()| String::new())
                    }
                    Action::Prompt(session, text) => {
                        let text = ContentBlock::Text(TextContent::new(text));
                        let prompt = connection.send_request(PromptRequest::new(session, vec![text]));
                        connection.spawn(async move {
                            let done = prompt.block_task().await;
                            let _ = answer.send(done.map(|done| name(&done.stop_reason)));
                            Ok(())
                        })?;
                        continue;
                    }
                };
                let _ = answer.send(text);
            }
            Ok(())
        })
        .await
}
