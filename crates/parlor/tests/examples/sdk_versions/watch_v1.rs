//! The example `watch` with the official SDK, version 1 of the protocol.

use std::env;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, InitializeRequest, NewSessionRequest, PermissionOptionKind, PromptRequest,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
    SessionNotification, SessionUpdate, TextContent,
};
use agent_client_protocol::{Agent, Client, ConnectTo, Result};

use super::Print;

/// The role of the message that was printed last, and its id, if it has one.
struct Screen {
    open: Option<(&'static str, String)>,
    print: Print,
}

impl Screen {
    fn show(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::UserMessageChunk(chunk) => self.chunk("you", chunk),
            SessionUpdate::AgentMessageChunk(chunk) => self.chunk("agent", chunk),
            SessionUpdate::AgentThoughtChunk(chunk) => self.chunk("thought", chunk),
            SessionUpdate::ToolCall(call) => {
                self.begin(Some(("tool", call.tool_call_id.to_string())));
                (self.print)(&format!("{} {} ", call.title, super::name(&call.status)));
            }
            SessionUpdate::ToolCallUpdate(call) => {
                self.begin(Some(("tool", call.tool_call_id.to_string())));
                if let Some(title) = call.fields.title {
                    (self.print)(&format!("{title} "));
                }
                if let Some(status) = call.fields.status {
                    (self.print)(&format!("{} ", super::name(&status)));
                }
            }
            _ => {}
        }
    }

    fn chunk(&mut self, name: &'static str, chunk: ContentChunk) {
        // Without ids a chunk continues the last message with the same role.
        let id = chunk.message_id.map(|id| id.to_string()).unwrap_or_default();
        self.begin(Some((name, id)));
        if let ContentBlock::Text(text) = chunk.content {
            (self.print)(&text.text);
        }
    }

    fn begin(&mut self, entry: Option<(&'static str, String)>) {
        if self.open == entry {
            return;
        }
        if self.open.is_some() {
            (self.print)("\n\n");
        }
        if let Some((name, _)) = &entry {
            (self.print)(&format!("{name}:\n"));
        }
        self.open = entry;
    }
}

pub(crate) async fn watch(agent: impl ConnectTo<Client> + 'static, text: String, print: Print) -> Result<()> {
    let screen = Arc::new(Mutex::new(Screen { open: None, print }));
    let updates = Arc::clone(&screen);
    let show = move |update| updates.lock().unwrap_or_else(PoisonError::into_inner).show(update);
    let shown = show.clone();
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _connection| {
                shown(notification.update);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _connection| {
                let mut options = request.options.into_iter();
                let allow = options.find(|option| option.kind == PermissionOptionKind::AllowOnce);
                let outcome = allow.map_or(RequestPermissionOutcome::Cancelled, |option| {
                    RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id))
                });
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(agent, async move |connection: ConnectionTo<Agent>| {
            connection.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
            let cwd = env::current_dir().map_err(agent_client_protocol::Error::into_internal_error)?;
            let new = connection.send_request(NewSessionRequest::new(cwd)).block_task().await?;
            // An agent of version 1 does not echo the prompt.
            let prompt = ContentBlock::Text(TextContent::new(text));
            show(SessionUpdate::UserMessageChunk(ContentChunk::new(prompt.clone())));
            let prompt = PromptRequest::new(new.session_id, vec![prompt]);
            let done = connection.send_request(prompt).block_task().await?;
            let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
            screen.begin(None);
            (screen.print)(&format!("{}\n", super::name(&done.stop_reason)));
            Ok(())
        })
        .await
}
