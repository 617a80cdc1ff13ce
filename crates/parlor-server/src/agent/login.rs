//! Whether a person is logged in to an agent, as far as its responses show.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use memchr::memmem::Finder;
use parlor_json::{Json, Object};
use parlor_store::{Batch, Write};
use parlor_wire::{RpcError, code};
use tokio::task::JoinHandle;

use super::{Agent, PendingCall, Reply};
use crate::auth_method::AuthMethod;
use crate::lock;
use crate::session::SessionCall;
use crate::store::StoreHandle;
use crate::stored;

/// The login states of all agents, by [agent key](stored::agent_key). They are stored, so that commands show them without
/// starting an agent.
pub(crate) struct LoginStates {
    store: Arc<StoreHandle>,
    known: Mutex<HashMap<String, Option<bool>>>,
}

/// Where the login state of an agent is recorded.
pub(super) struct LoginRecord {
    states: Arc<LoginStates>,
    key: String,
}

/// The calls for which agents require a login. One that requires it for prompts may open sessions without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckedCall {
    Open,
    Prompt,
}

impl LoginStates {
    pub(crate) fn new(store: Arc<StoreHandle>) -> Self {
        Self { store, known: Mutex::default() }
    }

    /// Whether a person is logged in, if it is known; read from the store the first time.
    pub(crate) async fn get(&self, key: &str) -> Option<bool> {
        if let Some(known) = lock(&self.known).get(key) {
            return *known;
        }
        let wanted = key.to_owned();
        // A failed read is repeated by the next call.
        let stored = self.store.read(move |store| stored::login_state_by_key(store, &wanted)).await.ok()?;
        *lock(&self.known).entry(key.to_owned()).or_insert(stored)
    }

    /// Records a state, and stores it in the background: returns the task that does so, unless the state is the same.
    fn set(self: &Arc<Self>, key: &str, is_logged_in: bool) -> Option<JoinHandle<()>> {
        if lock(&self.known).insert(key.to_owned(), Some(is_logged_in)) == Some(Some(is_logged_in)) {
            return None;
        }
        let (states, key) = (Arc::clone(self), key.to_owned());
        Some(tokio::spawn(async move {
            // The state at this time: that of the last of several tasks is stored last.
            let value = lock(&states.known).get(&key).copied().flatten();
            let value = value.map(|is_logged_in| Json::from(is_logged_in).as_str().to_owned());
            let write = Write::Value { key: stored::login_key(&key), value };
            if let Err(error) = states.store.write(Batch { writes: vec![write], durable: false }).await {
                tracing::warn!(%error, "cannot store whether an agent is logged in");
            }
        }))
    }
}

impl Agent {
    /// Has the login state of the agent recorded.
    pub(super) fn record_login(&self, states: &Arc<LoginStates>, key: String) {
        let _ = self.login_record.set(LoginRecord { states: Arc::clone(states), key });
    }

    /// Whether it has required a login since the last one.
    pub(crate) fn requires_login(&self) -> bool {
        lock(&self.login_required).is_some()
    }

    /// Records the login or logout of a person: returns the task that stores it.
    pub(crate) fn set_logged_in(&self, is_logged_in: bool) -> Option<JoinHandle<()>> {
        let required = (!is_logged_in).then_some(CheckedCall::Open);
        *lock(&self.login_required) = required;
        self.store_login(is_logged_in)
    }

    /// Handles the agent's notification of its login state.
    pub(super) fn on_login_status(&self, params: &Object) {
        let extension = params.get_object("authStatus").and_then(|status| status.get_string("kind"));
        match (params.get_str("state").as_deref(), extension.as_deref()) {
            (Some("unauthenticated"), _) | (None, Some("none")) => drop(self.set_logged_in(false)),
            // The extension has the kind of the account or key.
            (Some("authenticated"), _) | (None, Some(_)) => drop(self.set_logged_in(true)),
            (Some(_), _) | (None, None) => {}
        }
    }

    fn store_login(&self, is_logged_in: bool) -> Option<JoinHandle<()>> {
        self.login_record.get().and_then(|record| record.states.set(&record.key, is_logged_in))
    }

    /// Derives the login state from a response, and explains the error of a call that requires a login.
    pub(super) fn check_login(&self, call: &PendingCall, reply: &mut Reply) {
        let (call, is_proof) = match call {
            PendingCall::Opening(..) | PendingCall::Session(_, SessionCall::Restore) => {
                (CheckedCall::Open, true)
            }
            PendingCall::Session(_, SessionCall::Prompt(_) | SessionCall::Steer(_)) => {
                (CheckedCall::Prompt, true)
            }
            PendingCall::Session(_, SessionCall::Forwarded(_) | SessionCall::SetTitle) => {
                (CheckedCall::Prompt, false)
            }
            // A client that authenticates gets the agent's own error.
            PendingCall::Caller(..) => return,
        };
        match reply {
            Ok(_) => {
                // The person may have logged in elsewhere.
                let mut required = lock(&self.login_required);
                if is_proof && *required == Some(call) {
                    *required = None;
                    drop(required);
                    self.store_login(true);
                }
            }
            Err(error) => {
                if let Some(explained) = self.explain_login(&RpcError::from_raw(error.raw()), call) {
                    *error = explained.to_json();
                }
            }
        }
    }

    /// Derives the login state from a line that says that a turn failed, and explains its error. Version 2 reports the end of a
    /// turn as a state, not as a response.
    pub(super) fn check_login_in<'a>(&self, line: Cow<'a, str>) -> Cow<'a, str> {
        if AUTH_REQUIRED_TEXT.find(line.as_bytes()).is_none() {
            return line;
        }
        self.explain_login_in(&line).map_or(line, Cow::Owned)
    }

    fn explain_login_in(&self, line: &str) -> Option<String> {
        let mut message = Json::parse(line).ok()?.to_object()?;
        let mut params = message.get_object("params")?;
        let mut update = params.get_object("update")?;
        let kind = update.get_string("sessionUpdate")?;
        if !matches!(kind.as_str(), "state_update" | "state_change") {
            return None;
        }
        let received = RpcError::from_raw(update.get("error")?.raw());
        let error = self.explain_login(&received, CheckedCall::Prompt)?;
        update.set("error", error.to_json());
        params.set("update", update.to_json());
        message.set("params", params.to_json());
        Some(message.to_json().as_str().to_owned())
    }

    /// The explanation of an error, if it says that a login is required, which is recorded.
    fn explain_login(&self, received: &RpcError, call: CheckedCall) -> Option<RpcError> {
        let methods = AuthMethod::all_in(&self.info.initialize);
        // The code also stands for other errors of servers. An embedded agent has no command to log in with.
        if received.code() != code::AUTH_REQUIRED || methods.is_empty() || self.info.is_embedded {
            return None;
        }
        *lock(&self.login_required) = Some(call);
        self.store_login(false);
        Some(login_required(&self.info.name, &self.info.label, received, &methods))
    }
}

/// Finds [`code::AUTH_REQUIRED`] in a line: every line is searched and few are parsed.
static AUTH_REQUIRED_TEXT: LazyLock<Finder<'_>> =
    LazyLock::new(|| Finder::new(&code::AUTH_REQUIRED.to_string()).into_owned());

/// The message of agents that give no reason.
const STANDARD_MESSAGE: &str = "Authentication required";

/// The error of a call that requires a login, with the methods of the agent.
fn login_required(name: &str, label: &str, received: &RpcError, methods: &[AuthMethod]) -> RpcError {
    let reason = match received.message().trim() {
        "" | STANDARD_MESSAGE => String::new(),
        reason => format!(" ({reason})"),
    };
    // An agent that a client gave as a command has no name that `parlor login` knows.
    let command = if name == label { format!(": run `parlor login {name}`") } else { String::new() };
    let message = format!("agent '{label}' requires a login{reason}{command}");
    let mut data = received.data().and_then(Json::to_object).unwrap_or_default();
    data.set("agent", name);
    data.set("methods", Json::array(methods.iter().map(|method| method.to_json(None))));
    RpcError::new(received.code(), message).with_data(data.to_json())
}

impl std::fmt::Debug for LoginRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginRecord").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_agent_the_command_and_the_methods() {
        let methods = Json::parse(r#"{"authMethods":[{"id":"a","name":"A"}]}"#).unwrap();
        let methods = AuthMethod::all_in(&methods.to_object().unwrap());
        let received = RpcError::new(code::AUTH_REQUIRED, STANDARD_MESSAGE);
        let error = login_required("codex", "codex", &received, &methods);
        assert_eq!(error.code(), code::AUTH_REQUIRED);
        assert_eq!(error.message(), "agent 'codex' requires a login: run `parlor login codex`");
        assert_eq!(
            error.data().unwrap().as_str(),
            r#"{"agent":"codex","methods":[{"methodId":"a","name":"A","type":"agent"}]}"#
        );
        let received = RpcError::new(code::AUTH_REQUIRED, "expired")
            .with_data(Object::new().with("until", "today").to_json());
        let error = login_required("x --acp", "x", &received, &methods);
        assert_eq!(error.message(), "agent 'x' requires a login (expired)");
        assert!(error.data().unwrap().as_str().starts_with(r#"{"until":"today","agent":"x --acp","#));
    }
}
