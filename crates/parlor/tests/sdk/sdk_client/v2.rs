//! A client of version 2.

use std::sync::Arc;

use agent_client_protocol::schema::{MaybeUndefined, ProtocolVersion};
use agent_client_protocol::v2;
use agent_client_protocol::v2::schema::{
    CancelSessionNotification, ContentBlock, ContentChunk, IdleStateUpdate, Implementation,
    InitializeRequest, ListSessionsRequest, MessageId, NewSessionRequest, PermissionOptionKind,
    PromptRequest, ReplayFrom, ReplayFromStart, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ResumeSessionRequest, SelectedPermissionOutcome, SessionUpdate, StateUpdate,
    UpdateSessionNotification,
};
use agent_client_protocol::{Agent, Client, Error};
use tokio::sync::mpsc;

use super::{Action, ClientCommand, SharedView, Wire, name, show};
use crate::client_view::ClientView;

fn chunk(view: &mut ClientView, role: &'static str, chunk: &ContentChunk) {
    view.chunk(role, Some(name(&chunk.message_id)), text(&chunk.content));
}

fn stop(idle: &IdleStateUpdate) -> String {
    name(&serde_json::to_value(idle).unwrap()["stopReason"])
}

fn text(block: &ContentBlock) -> &str {
    if let ContentBlock::Text(text) = block { &text.text } else { "" }
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

/// Folds one update.
fn note(view: &mut ClientView, update: &SessionUpdate) {
    match update {
        SessionUpdate::UserMessageChunk(update) => chunk(view, "user", update),
        SessionUpdate::AgentMessageChunk(update) => chunk(view, "agent", update),
        SessionUpdate::AgentThoughtChunk(update) => chunk(view, "thought", update),
        SessionUpdate::UserMessage(update) => whole(view, "user", &update.message_id, &update.content),
        SessionUpdate::AgentMessage(update) => whole(view, "agent", &update.message_id, &update.content),
        SessionUpdate::AgentThought(update) => whole(view, "thought", &update.message_id, &update.content),
        SessionUpdate::StateUpdate(StateUpdate::Idle(idle)) => {
            // A state update does not always end a turn.
            let ended = std::mem::take(&mut view.running).then(|| stop(idle));
            view.idles.extend(ended);
        }
        SessionUpdate::StateUpdate(_) => view.running = true,
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
        .v2()
        .on_receive_notification(
            async move |notification: UpdateSessionNotification, _connection: v2::ConnectionTo<Agent>| {
                show(&shown, |view| note(view, &notification.update));
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest,
                        responder: v2::Responder<RequestPermissionResponse>,
                        _connection: v2::ConnectionTo<Agent>| {
                show(&request_view, |view| view.requests += 1);
                let allow =
                    request.options.iter().find(|option| option.kind == PermissionOptionKind::AllowOnce);
                let allow = SelectedPermissionOutcome::new(allow.unwrap().option_id.clone());
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(allow)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(wire, async move |connection: v2::ConnectionTo<Agent>| {
            let hello = InitializeRequest::new(ProtocolVersion::V2, Implementation::new("sdk", "1"));
            let welcome = connection.send_request(hello).block_task().await?;
            assert!(welcome.capabilities.session.is_some());
            while let Some(ClientCommand { action, answer }) = requests.recv().await {
                let text = match action {
                    Action::New => {
                        let new = connection.send_request(NewSessionRequest::new("/")).block_task().await;
                        new.map(|new| new.session_id.to_string())
                    }
                    Action::Join(session) => {
                        let resume = ResumeSessionRequest::new(session, "/")
                            .replay_from(ReplayFrom::Start(ReplayFromStart::new()));
                        connection.send_request(resume).block_task().await.map(|_| String::new())
                    }
                    Action::List => {
                        let list = connection.send_request(ListSessionsRequest::new()).block_task().await;
                        list.map(|list| {
                            list.sessions.iter().map(|info| format!("{} ", info.session_id)).collect()
                        })
                    }
                    Action::Cancel(session) => connection
                        .send_notification(CancelSessionNotification::new(session))
                        .map(|()| String::new()),
                    Action::Prompt(session, text) => {
                        let prompt = PromptRequest::new(session, vec![text.into()]);
                        let prompt = connection.send_request(prompt);
                        connection.spawn(async move {
                            let accepted = prompt.block_task().await;
                            let _ = answer.send(accepted.map(|accepted| name(&accepted.message_id)));
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
