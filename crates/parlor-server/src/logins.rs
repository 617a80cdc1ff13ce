//! The logins that are running: at most one per agent, each for one client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use parlor_json::Object;
use parlor_process::TerminalSize;
use parlor_session::session::ClientId;
use parlor_wire::{RpcError, code};
use tokio::sync::{mpsc, watch};

use crate::client::Client;
use crate::lock;

/// How many inputs of a client wait for the program.
const MAX_INPUTS: usize = 64;

/// How many bytes one input may have, and how many bytes may wait before no more inputs are taken.
pub(crate) const MAX_INPUT_BYTES: usize = 64 << 10;

/// The running logins, by the name of the agent.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<HashMap<String, RunningLogin>>);

#[derive(Debug)]
struct RunningLogin {
    client: ClientId,
    input: mpsc::Sender<LoginInput>,
    /// Whether the client has disconnected.
    gone: watch::Sender<bool>,
}

/// The input of a client for a login on a terminal.
#[derive(Debug)]
pub(crate) enum LoginInput {
    Typed(String),
    Resized(TerminalSize),
}

/// A running login. Dropping it allows the next one.
#[derive(Debug)]
pub(crate) struct LoginGuard {
    logins: Arc<Logins>,
    agent: String,
    gone: watch::Receiver<bool>,
    pub(crate) inputs: mpsc::Receiver<LoginInput>,
}

impl Logins {
    /// Starts a login of a client, unless one to the agent is running.
    pub(crate) fn start(self: &Arc<Self>, agent: &str, client: &Client) -> Result<LoginGuard, RpcError> {
        let (input, inputs) = mpsc::channel(MAX_INPUTS);
        let (sender, gone) = watch::channel(false);
        match lock(&self.0).entry(agent.to_owned()) {
            Entry::Occupied(_) => {
                let message = format!("a login to agent '{agent}' is running already");
                let hint =
                    "end the other `parlor login`, or try again in some seconds if it has just been ended";
                let data = Object::new().with("reason", "login_running").with("hint", hint);
                return Err(RpcError::new(code::INVALID_REQUEST, message).with_data(data.to_json()));
            }
            Entry::Vacant(entry) => entry.insert(RunningLogin { client: client.id, input, gone: sender }),
        };
        let guard = LoginGuard { logins: Arc::clone(self), agent: agent.to_owned(), gone, inputs };
        // A client that disconnected before did not see this login.
        if client.queue.is_closed() {
            self.on_disconnected(client.id);
        }
        Ok(guard)
    }

    /// Ends the logins of a client that has disconnected.
    pub(crate) fn on_disconnected(&self, client: ClientId) {
        for login in lock(&self.0).values().filter(|login| login.client == client) {
            login.gone.send_replace(true);
        }
    }

    /// Passes input to the login of a client.
    pub(crate) fn send_input(
        &self,
        agent: &str,
        client: ClientId,
        input: LoginInput,
    ) -> Result<(), RpcError> {
        let logins = lock(&self.0);
        let Some(login) = logins.get(agent).filter(|login| login.client == client) else {
            let message = format!("this client runs no login to agent '{agent}'");
            let data = Object::new().with("reason", "no_login");
            return Err(RpcError::new(code::INVALID_PARAMS, message).with_data(data.to_json()));
        };
        login.input.try_send(input).map_err(|_| {
            RpcError::new(code::INTERNAL_ERROR, "the login does not read its input: try again later")
        })
    }
}

impl LoginGuard {
    /// A future that completes when the client has disconnected.
    pub(crate) fn client_gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut gone = self.gone.clone();
        async move {
            // The sender is kept until the login has ended.
            let _ = gone.wait_for(|gone| *gone).await;
        }
    }
}

impl Drop for LoginGuard {
    fn drop(&mut self) {
        lock(&self.logins.0).remove(&self.agent);
    }
}
