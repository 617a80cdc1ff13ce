use parlor_json::ObjectWriter;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::Session;
use crate::wire_text::update;

/// A terminal that shows a command which the agent itself runs. If the command has not ended when the turn ends, clients are
/// sent that it has.
#[derive(Debug)]
pub struct Terminal {
    session: Session,
    id: String,
}

impl Terminal {
    pub(crate) fn new(session: Session, id: String) -> Self {
        Self { session, id }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends output of the command.
    pub async fn send_output(&self, bytes: &[u8]) {
        let chunk = update("terminal_output_chunk").str("terminalId", &self.id);
        self.session.send_raw_update(&chunk.str("data", &BASE64_STANDARD.encode(bytes)).finish()).await;
    }

    /// Ends the terminal: the command ended with this code.
    pub async fn exit(self, code: i32) {
        self.end(ObjectWriter::new().raw("exitCode", &code.to_string())).await;
    }

    /// Ends the terminal: the command was ended by a signal, such as `SIGKILL`.
    pub async fn exit_by_signal(self, signal: &str) {
        self.end(ObjectWriter::new().str("signal", signal)).await;
    }

    async fn end(self, status: ObjectWriter) {
        let update = update("terminal_update").str("terminalId", &self.id);
        self.session.send_raw_update(&update.raw("exitStatus", &status.finish()).finish()).await;
        self.session.end_terminal(&self.id);
    }
}
