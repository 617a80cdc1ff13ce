//! The agent of the official SDK that streams, version 1 of the protocol.

use agent_client_protocol::v1::schema::{
    ContentChunk, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio};

pub(crate) async fn serve() -> Result<()> {
    Agent
        .v1()
        .on_receive_request(
            async |request: InitializeRequest, responder, _connection| {
                responder.respond(InitializeResponse::new(request.protocol_version))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async |_request: NewSessionRequest, responder, _connection| {
                responder.respond(NewSessionResponse::new("session"))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async |request: PromptRequest,
                   responder: Responder<PromptResponse>,
                   connection: ConnectionTo<Client>| {
                let to = connection.clone();
                // Its queue has no end, so nothing is waited for here.
                connection.spawn(async move {
                    for number in 0..crate::CHUNKS {
                        let chunk = ContentChunk::new(crate::text(number).into());
                        let update = SessionUpdate::AgentMessageChunk(chunk);
                        to.send_notification(SessionNotification::new(request.session_id.clone(), update))?;
                    }
                    responder.respond(PromptResponse::new(StopReason::EndTurn))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(Stdio::new())
        .await
}
