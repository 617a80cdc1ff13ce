//! The echo agent with the official SDK, version 2 of the protocol.

use agent_client_protocol::v2::schema::{
    AgentCapabilities, ContentChunk, IdleStateUpdate, Implementation, InitializeRequest, InitializeResponse,
    MessageId, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, RunningStateUpdate,
    SessionCapabilities, SessionUpdate, StateUpdate, StopReason, UpdateSessionNotification, UserMessage,
};
use agent_client_protocol::v2::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio};

pub(crate) async fn serve() -> Result<()> {
    let mut sessions = 0;
    let mut messages = 0;
    Agent
        .v2()
        .on_receive_request(
            async |request: InitializeRequest,
                   responder: Responder<InitializeResponse>,
                   _connection: ConnectionTo<Client>| {
                let capabilities = AgentCapabilities::new().session(SessionCapabilities::new());
                let info = Implementation::new("echo", "0.1.0");
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
                sessions += 1;
                responder.respond(NewSessionResponse::new(format!("session-{sessions}")))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest,
                        responder: Responder<PromptResponse>,
                        connection: ConnectionTo<Client>| {
                messages += 1;
                let user = MessageId::new(format!("user-{messages}"));
                let agent = MessageId::new(format!("agent-{messages}"));
                responder.respond(PromptResponse::new(user.clone()))?;
                let send = |update| {
                    let session = request.session_id.clone();
                    connection.send_notification(UpdateSessionNotification::new(session, update))
                };
                send(SessionUpdate::UserMessage(UserMessage::new(user).content(request.prompt.clone())))?;
                send(SessionUpdate::StateUpdate(StateUpdate::Running(RunningStateUpdate::new())))?;
                for block in request.prompt.clone() {
                    send(SessionUpdate::AgentMessageChunk(ContentChunk::new(block, agent.clone())))?;
                }
                let idle = IdleStateUpdate::new().stop_reason(StopReason::EndTurn);
                send(SessionUpdate::StateUpdate(StateUpdate::Idle(idle)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(Stdio::new())
        .await
}
