//! Files and terminals that the session serves its agent.

use parlor_json::{Json, Object};
use parlor_session::session::{ClientId, Input};
use parlor_session::{EntryId, Target, Update, Upsert};
use parlor_wire::{RequestId, RpcError, code};

use super::SessionMachine;
use super::subscriber::Subscriber;
use crate::{AgentCommand, TerminalEvent};

impl SessionMachine {
    /// Serves a file request of the agent: by the client whose prompt runs, which has unsaved changes, else from the disk.
    pub(super) fn serve_file(&mut self, id: RequestId, method: String, params: Object) {
        self.command(match self.editor(&method) {
            Some(_) => AgentCommand::CheckFile { id, method, params },
            None => AgentCommand::ServeFile { id, method, params },
        });
    }

    /// Serves a file that the agent may access, from the disk if the client has disconnected meanwhile.
    pub(super) fn on_file_allowed(&mut self, id: RequestId, method: String, params: Object) {
        match self.editor(&method) {
            Some(client) => self.forward_to(client, id, method, params),
            None => self.serve_file_from_disk(id, method, params),
        }
    }

    /// The client that serves files: the one whose prompt runs, if it does so on this machine.
    fn editor(&self, method: &str) -> Option<ClientId> {
        let client = self.session.running_prompt_sender().filter(|client| self.is_staying(*client))?;
        let serves = |subscriber: &Subscriber| subscriber.client.is_local && subscriber.client.serves(method);
        self.subscribers.get(&client).is_some_and(serves).then_some(client)
    }

    /// Reads or writes a file for the agent on the disk.
    pub(super) fn serve_file_from_disk(&mut self, id: RequestId, method: String, params: Object) {
        self.command(AgentCommand::ServeFile { id, method, params });
    }

    /// Ends the command in a terminal that the server runs for the agent.
    pub(super) fn cancel_terminal(&mut self, params: &Object) -> Result<(), RpcError> {
        let terminal = params.get_json_str("terminalId").map(|id| EntryId::Terminal(id.into()));
        let shown = terminal.and_then(|terminal| self.session.transcript().get(&terminal));
        let runs = shown.is_some_and(|shown| shown.body().fields.get("exitStatus").is_none());
        if !runs {
            return Err(RpcError::new(code::INVALID_PARAMS, "no such terminal runs in this session"));
        }
        // The client is answered at once; the terminal reports its exit as an update.
        self.command(AgentCommand::KillTerminal { params: params.clone() });
        Ok(())
    }

    /// Adds the events of a terminal that the server runs for the agent to the transcript.
    pub(super) fn on_terminal(&mut self, event: TerminalEvent) {
        let entry = |id: &str| Target::Entry(EntryId::Terminal(id.into()));
        let update = match event {
            TerminalEvent::Created { id, command, cwd } => {
                let mut fields = Object::default();
                fields.set("command", &command);
                fields.set("cwd", &*cwd.to_string_lossy());
                fields.set("capabilities", Object::new().with("cancel", Object::new()));
                Update::Upsert { target: entry(&id), upsert: Upsert { fields, ..Upsert::default() } }
            }
            TerminalEvent::Output { id, bytes } => {
                Update::Output { terminal: (&*id).into(), bytes, extra: None }
            }
            TerminalEvent::Exited { id, code, signal } => {
                let mut status = Object::default();
                if let Some(code) = code {
                    status.set("exitCode", code);
                }
                if let Some(signal) = signal {
                    status.set("signal", &signal);
                }
                let mut fields = Object::default();
                fields.set("exitStatus", status.to_json());
                fields.set("capabilities", Json::null());
                Update::Upsert { target: entry(&id), upsert: Upsert { fields, ..Upsert::default() } }
            }
            TerminalEvent::Released { .. } => return,
        };
        self.step(Input::ServerUpdate(update));
    }
}
