//! The agent of the official SDK that streams, version 2 of the protocol.

use agent_client_protocol::v2::schema::{
    AgentCapabilities, ContentChunk, IdleStateUpdate, Implementation, InitializeRequest, InitializeResponse,
    MessageId, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, RunningStateUpdate,
    SessionCapabilities, SessionUpdate, StateUpdate, StopReason, UpdateSessionNotification,
};
use agent_client_protocol::v2::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio};

pub(crate) async fn serve() -> Result<()> {
    Agent
        .v2()
        .on_receive_request(
            async |request: InitializeRequest,
                   responder: Responder<InitializeResponse>,
                   _connection: ConnectionTo<Client>| {
                let capabilities = AgentCapabilities::new().session(SessionCapabilities::new());
                let info = Implementation::new("streamer", "1");
                responder.respond(
                    InitializeResponse::new(request.protocol_version, info).capabilities(capabilities),
                )
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async |_request: NewSessionRequest,
                   responder: Responder<NewSessionResponse>,
                   _connection: ConnectionTo<Client>| {
                responder.respond(NewSessionResponse::new("session"))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async |request: PromptRequest,
                   responder: Responder<PromptResponse>,
                   connection: ConnectionTo<Client>| {
                responder.respond(PromptResponse::new("prompt"))?;
                let to = connection.clone();
                // Its queue has no end, so nothing is waited for here.
                connection.spawn(async move {
                    let tell = |update| {
                        let session = request.session_id.clone();
                        to.send_notification(UpdateSessionNotification::new(session, update))
                    };
                    tell(SessionUpdate::StateUpdate(StateUpdate::Running(RunningStateUpdate::new())))?;
                    let message = MessageId::new("message");
                    for number in 0..crate::CHUNKS {
                        let chunk = ContentChunk::new(crate::text(number).into(), message.clone());
                        tell(SessionUpdate::AgentMessageChunk(chunk))?;
                    }
                    let idle = IdleStateUpdate::new().stop_reason(StopReason::EndTurn);
                    tell(SessionUpdate::StateUpdate(StateUpdate::Idle(idle)))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(Stdio::new())
        .await
}
