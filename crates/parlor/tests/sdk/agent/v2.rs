//! An agent of version 2. It assigns message ids, and sends each message again as a whole when it is complete.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::v2::schema::{
    AgentCapabilities, AgentMessage, CancelSessionNotification, CloseSessionRequest, CloseSessionResponse,
    ContentBlock, ContentChunk, IdleStateUpdate, Implementation, InitializeRequest, InitializeResponse,
    MessageId, NewSessionRequest, NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest,
    PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, ResumeSessionRequest,
    ResumeSessionResponse, RunningStateUpdate, SessionCapabilities, SessionId, SessionUpdate, StateUpdate,
    StopReason, UpdateSessionNotification, UserMessage,
};
use agent_client_protocol::v2::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio};
use tokio::sync::watch;

use super::Wish;

/// The sessions: their messages, and how often a turn was cancelled.
#[derive(Clone, Default)]
struct Sessions(Arc<Mutex<HashMap<SessionId, Session>>>);

#[derive(Default)]
struct Session {
    history: Vec<SessionUpdate>,
    messages: usize,
    cancelled: watch::Sender<u64>,
}

impl Sessions {
    fn with<T>(&self, id: &SessionId, act: impl FnOnce(&mut Session) -> T) -> T {
        act(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default())
    }

    fn begin(&self) -> SessionId {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = SessionId::new(format!("v2-{}", sessions.len()));
        sessions.insert(id.clone(), Session::default());
        id
    }

    fn message(&self, id: &SessionId) -> MessageId {
        self.with(id, |session| {
            session.messages += 1;
            MessageId::new(format!("message-{}", session.messages))
        })
    }
}

fn send_update(connection: &ConnectionTo<Client>, id: &SessionId, update: SessionUpdate) -> Result<()> {
    connection.send_notification(UpdateSessionNotification::new(id.clone(), update))
}

/// Runs one turn. The last message is sent again as a whole.
async fn output(
    sessions: &Sessions,
    connection: &ConnectionTo<Client>,
    id: &SessionId,
    prompt: &str,
    mut cancelled: watch::Receiver<u64>,
) -> Result<StopReason> {
    let message = sessions.message(id);
    let mut message_text = String::new();
    let mut say = |text: &str| {
        message_text.push_str(text);
        let chunk = ContentChunk::new(text.into(), message.clone());
        send_update(connection, id, SessionUpdate::AgentMessageChunk(chunk))
    };
    let mut stop = StopReason::EndTurn;
    match Wish::of(prompt) {
        Wish::Say(pieces) => pieces.iter().try_for_each(|piece| say(piece))?,
        Wish::ClientCommand(title) => {
            let options = [
                ("allow-once", PermissionOptionKind::AllowOnce),
                ("reject-once", PermissionOptionKind::RejectOnce),
            ];
            let options = options.map(|(id, kind)| PermissionOption::new(id, id, kind));
            let request = RequestPermissionRequest::new(id.clone(), title, options.to_vec());
            let answer = connection.send_request(request).block_task().await?;
            match answer.outcome {
                RequestPermissionOutcome::Selected(chosen) => {
                    say(&format!("You chose {}.", chosen.option_id))?;
                }
                _ => stop = StopReason::Cancelled,
            }
        }
        Wish::Wait => {
            say("Waiting.")?;
            let _ = cancelled.changed().await;
            stop = StopReason::Cancelled;
        }
    }
    let whole = AgentMessage::new(message.clone()).content(vec![ContentBlock::from(message_text.as_str())]);
    let whole = SessionUpdate::AgentMessage(whole);
    sessions.with(id, |session| session.history.push(whole.clone()));
    send_update(connection, id, whole)?;
    Ok(stop)
}

async fn turn(
    sessions: Sessions,
    connection: ConnectionTo<Client>,
    request: PromptRequest,
    responder: Responder<PromptResponse>,
    cancelled: watch::Receiver<u64>,
) -> Result<()> {
    let id = &request.session_id;
    let message = sessions.message(id);
    let inserted =
        SessionUpdate::UserMessage(UserMessage::new(message.clone()).content(request.prompt.clone()));
    sessions.with(id, |session| session.history.push(inserted.clone()));
    responder.respond(PromptResponse::new(message))?;
    send_update(&connection, id, inserted)?;
    send_update(
        &connection,
        id,
        SessionUpdate::StateUpdate(StateUpdate::Running(RunningStateUpdate::new())),
    )?;
    let texts = request.prompt.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let prompt: String = texts.collect();
    let stop = output(&sessions, &connection, id, &prompt, cancelled).await?;
    let idle = IdleStateUpdate::new().stop_reason(stop);
    send_update(&connection, id, SessionUpdate::StateUpdate(StateUpdate::Idle(idle)))
}

pub(super) async fn serve() -> Result<()> {
    let sessions = Sessions::default();
    let (new, resume, prompt, cancel) = (sessions.clone(), sessions.clone(), sessions.clone(), sessions);
    Agent
        .v2()
        .on_receive_request(
            async |request: InitializeRequest,
                   responder: Responder<InitializeResponse>,
                   _connection: ConnectionTo<Client>| {
                let capabilities = AgentCapabilities::new().session(SessionCapabilities::new());
                let info = Implementation::new("sdk-agent", "1");
                responder.respond(
                    InitializeResponse::new(request.protocol_version, info).capabilities(capabilities),
                )
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_request: NewSessionRequest,
                        responder: Responder<NewSessionResponse>,
                        _connection: ConnectionTo<Client>| {
                responder.respond(NewSessionResponse::new(new.begin()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest,
                        responder: Responder<ResumeSessionResponse>,
                        connection: ConnectionTo<Client>| {
                if request.replay_from.is_some() {
                    let history = resume.with(&request.session_id, |session| session.history.clone());
                    history
                        .into_iter()
                        .try_for_each(|update| send_update(&connection, &request.session_id, update))?;
                }
                responder.respond(ResumeSessionResponse::new())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async |_request: CloseSessionRequest,
                   responder: Responder<CloseSessionResponse>,
                   _connection: ConnectionTo<Client>| {
                responder.respond(CloseSessionResponse::new())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest,
                        responder: Responder<PromptResponse>,
                        connection: ConnectionTo<Client>| {
                let (sessions, to) = (prompt.clone(), connection.clone());
                let cancelled = sessions.with(&request.session_id, |session| session.cancelled.subscribe());
                connection.spawn(turn(sessions, to, request, responder, cancelled))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelSessionNotification, _connection: ConnectionTo<Client>| {
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
