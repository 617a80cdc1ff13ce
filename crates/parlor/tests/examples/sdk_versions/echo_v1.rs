//! The echo agent with the official SDK, version 1 of the protocol.

use agent_client_protocol::v1::schema::{
    ContentChunk, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio};

pub(crate) async fn serve() -> Result<()> {
    let mut sessions = 0;
    Agent
        .v1()
        .on_receive_request(
            async move |request: InitializeRequest, responder, _connection| {
                responder.respond(InitializeResponse::new(request.protocol_version))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_request: NewSessionRequest, responder, _connection| {
                sessions += 1;
                responder.respond(NewSessionResponse::new(format!("session-{sessions}")))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest,
                        responder: Responder<PromptResponse>,
                        connection: ConnectionTo<Client>| {
                for block in request.prompt {
                    let chunk = SessionUpdate::AgentMessageChunk(ContentChunk::new(block));
                    connection
                        .send_notification(SessionNotification::new(request.session_id.clone(), chunk))?;
                }
                responder.respond(PromptResponse::new(StopReason::EndTurn))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(Stdio::new())
        .await
}
