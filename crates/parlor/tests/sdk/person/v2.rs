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

use super::{Ask, Show, What, Wire, name, show};
use crate::seen::Seen;

fn chunk(seen: &mut Seen, role: &'static str, chunk: &ContentChunk) {
    seen.chunk(role, Some(name(&chunk.message_id)), text(&chunk.content));
}

fn stop(idle: &IdleStateUpdate) -> String {
    name(&serde_json::to_value(idle).unwrap()["stopReason"])
}

fn text(block: &ContentBlock) -> &str {
    if let ContentBlock::Text(text) = block { &text.text } else { "" }
}

fn whole(seen: &mut Seen, role: &'static str, id: &MessageId, content: &MaybeUndefined<Vec<ContentBlock>>) {
    match content {
        MaybeUndefined::Undefined => seen.chunk(role, Some(name(id)), ""),
        MaybeUndefined::Null => seen.whole(role, name(id), String::new()),
        MaybeUndefined::Value(blocks) => seen.whole(role, name(id), blocks.iter().map(text).collect()),
    }
}

/// Folds one update.
fn note(seen: &mut Seen, update: &SessionUpdate) {
    match update {
        SessionUpdate::UserMessageChunk(said) => chunk(seen, "user", said),
        SessionUpdate::AgentMessageChunk(said) => chunk(seen, "agent", said),
        SessionUpdate::AgentThoughtChunk(said) => chunk(seen, "thought", said),
        SessionUpdate::UserMessage(said) => whole(seen, "user", &said.message_id, &said.content),
        SessionUpdate::AgentMessage(said) => whole(seen, "agent", &said.message_id, &said.content),
        SessionUpdate::AgentThought(said) => whole(seen, "thought", &said.message_id, &said.content),
        SessionUpdate::StateUpdate(StateUpdate::Idle(idle)) => {
            // The state may be told without a turn having ended.
            let ended = std::mem::take(&mut seen.running).then(|| stop(idle));
            seen.idles.extend(ended);
        }
        SessionUpdate::StateUpdate(_) => seen.running = true,
        _ => {}
    }
}

pub(super) async fn speak(
    wire: Wire,
    shown: Show,
    mut asked: mpsc::UnboundedReceiver<Ask>,
) -> Result<(), Error> {
    let questions = Arc::clone(&shown);
    Client
        .v2()
        .on_receive_notification(
            async move |notification: UpdateSessionNotification, _connection: v2::ConnectionTo<Agent>| {
                show(&shown, |seen| note(seen, &notification.update));
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest,
                        responder: v2::Responder<RequestPermissionResponse>,
                        _connection: v2::ConnectionTo<Agent>| {
                show(&questions, |seen| seen.asked += 1);
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
            while let Some(Ask { what, answer }) = asked.recv().await {
                let said = match what {
                    What::New => {
                        let new = connection.send_request(NewSessionRequest::new("/")).block_task().await;
                        new.map(|new| new.session_id.to_string())
                    }
                    What::Join(session) => {
                        let resume = ResumeSessionRequest::new(session, "/")
                            .replay_from(ReplayFrom::Start(ReplayFromStart::new()));
                        connection.send_request(resume).block_task().await.map(|_| String::new())
                    }
                    What::List => {
                        let list = connection.send_request(ListSessionsRequest::new()).block_task().await;
                        list.map(|list| {
                            list.sessions.iter().map(|info| format!("{} ", info.session_id)).collect()
                        })
                    }
                    What::Cancel(session) => connection
                        .send_notification(CancelSessionNotification::new(session))
                        .map(|()| String::new()),
                    What::Prompt(session, text) => {
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
                let _ = answer.send(said);
            }
            Ok(())
        })
        .await
}
