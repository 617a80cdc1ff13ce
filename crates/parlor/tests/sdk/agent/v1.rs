//! An agent of version 1. It assigns no message ids, like many agents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, InitializeRequest, InitializeResponse,
    LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse, PermissionOption,
    PermissionOptionKind, PromptRequest, PromptResponse, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, SessionNotification, SessionUpdate, StopReason, TextContent, ToolCallUpdate,
    ToolCallUpdateFields,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio};
use tokio::sync::watch;

use super::Wish;

/// The sessions: their messages, and how often a turn was cancelled.
#[derive(Clone, Default)]
struct Sessions(Arc<Mutex<HashMap<SessionId, Session>>>);

#[derive(Default)]
struct Session {
    history: Vec<SessionUpdate>,
    cancelled: watch::Sender<u64>,
}

impl Sessions {
    fn with<T>(&self, id: &SessionId, act: impl FnOnce(&mut Session) -> T) -> T {
        act(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default())
    }

    fn begin(&self) -> SessionId {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = SessionId::new(format!("v1-{}", sessions.len()));
        sessions.insert(id.clone(), Session::default());
        id
    }
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// Runs one turn.
async fn turn(
    sessions: Sessions,
    connection: ConnectionTo<Client>,
    request: PromptRequest,
    mut cancelled: watch::Receiver<u64>,
) -> Result<StopReason> {
    let id = &request.session_id;
    let say = |text: &str| {
        let update = SessionUpdate::AgentMessageChunk(chunk(text));
        sessions.with(id, |session| session.history.push(update.clone()));
        connection.send_notification(SessionNotification::new(id.clone(), update))
    };
    let texts = request.prompt.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let prompt: String = texts.collect();
    sessions.with(id, |session| session.history.push(SessionUpdate::UserMessageChunk(chunk(&prompt))));
    match Wish::of(&prompt) {
        Wish::Say(pieces) => pieces.iter().try_for_each(|piece| say(piece))?,
        Wish::ClientCommand(title) => {
            let call = ToolCallUpdate::new("call", ToolCallUpdateFields::new().title(title));
            let options = [
                ("allow-once", PermissionOptionKind::AllowOnce),
                ("reject-once", PermissionOptionKind::RejectOnce),
            ];
            let options = options.map(|(id, kind)| PermissionOption::new(id, id, kind));
            let request = RequestPermissionRequest::new(id.clone(), call, options.to_vec());
            let answer = connection.send_request(request).block_task().await?;
            match answer.outcome {
                RequestPermissionOutcome::Selected(chosen) => {
                    say(&format!("You chose {}.", chosen.option_id))?;
                }
                _ => return Ok(StopReason::Cancelled),
            }
        }
        Wish::Wait => {
            say("Waiting.")?;
            let _ = cancelled.changed().await;
            return Ok(StopReason::Cancelled);
        }
    }
    Ok(StopReason::EndTurn)
}

pub(super) async fn serve() -> Result<()> {
    let sessions = Sessions::default();
    let (new, load, prompt, cancel) = (sessions.clone(), sessions.clone(), sessions.clone(), sessions);
    Agent
        .v1()
        .on_receive_request(
            async move |request: InitializeRequest, responder, _connection| {
                let capabilities = AgentCapabilities::new().load_session(true);
                responder.respond(
                    InitializeResponse::new(request.protocol_version).agent_capabilities(capabilities),
                )
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_request: NewSessionRequest, responder, _connection| {
                responder.respond(NewSessionResponse::new(new.begin()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, connection: ConnectionTo<Client>| {
                let history = load.with(&request.session_id, |session| session.history.clone());
                for update in history {
                    let id = request.session_id.clone();
                    connection.send_notification(SessionNotification::new(id, update))?;
                }
                responder.respond(LoadSessionResponse::new())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest,
                        responder: Responder<PromptResponse>,
                        connection: ConnectionTo<Client>| {
                let (sessions, to) = (prompt.clone(), connection.clone());
                let cancelled = sessions.with(&request.session_id, |session| session.cancelled.subscribe());
                connection.spawn(async move {
                    let stop = turn(sessions, to, request, cancelled).await?;
                    responder.respond(PromptResponse::new(stop))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, _connection| {
                cancel.with(&notification.session_id, |session| {
                    session.cancelled.send_modify(|count| *count += 1);
                });
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}
