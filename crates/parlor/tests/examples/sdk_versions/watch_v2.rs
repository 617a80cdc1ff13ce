//! The example `watch` with the official SDK, version 2 of the protocol.

use agent_client_protocol::schema::{MaybeUndefined, ProtocolVersion};
use agent_client_protocol::v2::schema::{
    ContentBlock, Implementation, InitializeRequest, MessageId, PermissionOptionKind,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
    SessionUpdate, StateUpdate, UpdateSessionNotification,
};
use agent_client_protocol::v2::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, ConnectTo, Error, Result};
use tokio::sync::mpsc;

use super::Print;

/// The role and the id of the message that was printed last.
struct Screen {
    open: Option<(&'static str, String)>,
    print: Print,
}

impl Screen {
    fn show(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::UserMessageChunk(it) => self.chunk("you", &it.message_id, &it.content),
            SessionUpdate::AgentMessageChunk(it) => self.chunk("agent", &it.message_id, &it.content),
            SessionUpdate::AgentThoughtChunk(it) => self.chunk("thought", &it.message_id, &it.content),
            SessionUpdate::UserMessage(it) => self.whole("you", &it.message_id, it.content),
            SessionUpdate::AgentMessage(it) => self.whole("agent", &it.message_id, it.content),
            SessionUpdate::AgentThought(it) => self.whole("thought", &it.message_id, it.content),
            SessionUpdate::ToolCallUpdate(call) => {
                self.begin(Some(("tool", call.tool_call_id.to_string())));
                if let MaybeUndefined::Value(title) = call.title {
                    (self.print)(&format!("{title} "));
                }
                if let MaybeUndefined::Value(status) = call.status {
                    (self.print)(&format!("{} ", super::name(&status)));
                }
            }
            _ => {}
        }
    }

    fn chunk(&mut self, name: &'static str, id: &MessageId, block: &ContentBlock) {
        self.begin(Some((name, id.to_string())));
        if let ContentBlock::Text(text) = block {
            (self.print)(&text.text);
        }
    }

    /// Prints a whole message, unless its chunks were printed.
    fn whole(&mut self, name: &'static str, id: &MessageId, content: MaybeUndefined<Vec<ContentBlock>>) {
        let blocks = match content {
            MaybeUndefined::Undefined => return,
            MaybeUndefined::Null => Vec::new(),
            MaybeUndefined::Value(blocks) => blocks,
        };
        self.begin(None);
        self.begin(Some((name, id.to_string())));
        blocks.iter().for_each(|block| self.chunk(name, id, block));
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
    #[expect(clippy::disallowed_methods, reason = "a test sends a bounded number of events")]
    let (updates, mut received) = mpsc::unbounded_channel();
    Client
        .v2()
        .on_receive_notification(
            async move |notification: UpdateSessionNotification, _connection: ConnectionTo<Agent>| {
                updates.send(notification.update).map_err(Error::into_internal_error)
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest,
                        responder: Responder<RequestPermissionResponse>,
                        _connection: ConnectionTo<Agent>| {
                let mut options = request.options.into_iter();
                let allow = options.find(|option| option.kind == PermissionOptionKind::AllowOnce);
                let outcome = allow.map_or(RequestPermissionOutcome::Cancelled(<_>::default()), |option| {
                    RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id))
                });
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(agent, async move |connection: ConnectionTo<Agent>| {
            let info = Implementation::new("watch", "0.1.0");
            let hello = InitializeRequest::new(ProtocolVersion::V2, info);
            connection.send_request(hello).block_task().await?;
            let opened = connection.build_session_cwd()?.start_session().block_task().await?;
            opened.session.send_prompt(&text).block_task().await?;
            // The response says only that the prompt was accepted; and a session may report idle before the turn starts.
            let mut screen = Screen { open: None, print };
            let mut worked = false;
            while let Some(update) = received.recv().await {
                match update {
                    SessionUpdate::StateUpdate(StateUpdate::Idle(idle)) if worked => {
                        screen.begin(None);
                        let reason = super::name(
                            &serde_json::to_value(idle).map_err(Error::into_internal_error)?["stopReason"],
                        );
                        (screen.print)(&format!("{reason}\n"));
                        break;
                    }
                    SessionUpdate::StateUpdate(StateUpdate::Idle(_)) => {}
                    SessionUpdate::StateUpdate(_) => worked = true,
                    update => screen.show(update),
                }
            }
            Ok(())
        })
        .await
}
