//! Handles the requests of the client.

use std::path::Path;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_json::{Object, ObjectWriter};
use parlor_wire::{RequestId, RpcError, code};

use super::capabilities::{self, MODE, MODEL, OptionalMethod};
use super::encode::{self, Encoder, Role};
use super::json::{self, list};
use super::quirks::Quirk;
use super::server::{Agent, ClientInfo, random};
use super::session::{Session, StoredSession, Work};
use super::store::{MAX_SESSIONS, now};

/// The settings of a new session.
const DEFAULT_MODE: &str = "ask";
const DEFAULT_MODEL: &str = "small";

/// Sessions per page of a list.
const PAGE: usize = 100;

type Done = Result<(), RpcError>;

impl Agent {
    /// Handles a request. Sends its result; returns its error.
    pub(super) fn on_request(self: &Arc<Self>, id: &RequestId, method: &str, params: &Object) -> Done {
        if method == "initialize" {
            return self.initialize(id, params);
        }
        let client = self.client()?;
        let is_v1 = client.encoder.is_v1();
        let has = |method| self.options.methods.has(method);
        match method {
            "authenticate" if is_v1 => self.log_in(id, &required(params, "methodId")?),
            "auth/login" if !is_v1 => self.log_in(id, &required(params, "methodId")?),
            "logout" | "auth/logout" if is_v1 == (method == "logout") && self.options.auth.is_required() => {
                self.set_logged_in(id, false);
                Ok(())
            }
            "session/new" => self.new_session(id, params, &client),
            "session/load" if is_v1 && has(OptionalMethod::Load) => self.open(id, params, &client, true),
            "session/resume" if has(OptionalMethod::Resume) => self.resume(id, params, &client),
            "session/fork" if has(OptionalMethod::Fork) => self.fork(id, params, &client),
            "session/list" if has(OptionalMethod::List) => self.list(id, params),
            "session/close" if has(OptionalMethod::Close) && self.options.quirks.has(Quirk::SlowClose) => {
                self.close_slowly(id, params)
            }
            "session/close" if has(OptionalMethod::Close) => self.close(id, params, &client),
            "session/delete" if has(OptionalMethod::Delete) => self.delete(id, params),
            "session/set_title" if has(OptionalMethod::Title) => self.set_title(id, params),
            "session/set_mode" if is_v1 && !self.options.quirks.has(Quirk::LacksSettings) => {
                let session = self.open_session(params)?;
                self.set(&session, MODE, &required(params, "modeId")?)?;
                self.respond(id, "{}");
                Ok(())
            }
            "session/set_model" if is_v1 && self.options.quirks.has(Quirk::Models) => {
                let session = self.open_session(params)?;
                self.set(&session, MODEL, &required(params, "modelId")?)?;
                self.respond(id, "{}");
                Ok(())
            }
            "session/set_config_option" if !self.options.quirks.has(Quirk::LacksSettings) => {
                self.set_option(id, params, client.encoder)
            }
            "_session/steering" if has(OptionalMethod::Steering) => self.steer(id, params, &client),
            "session/prompt" => self.prompt(id, params, &client),
            _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("method not found: {method}"))),
        }
    }

    fn initialize(&self, id: &RequestId, params: &Object) -> Done {
        let asked = match Dialect::negotiate(params.to_json().raw()) {
            Ok(asked) => asked,
            // An agent with a single version ignores the requested one.
            Err(_) if self.options.version != super::Versions::Both => Dialect::V1,
            Err(unsupported) => return Err(unsupported.to_error()),
        };
        let dialect = self.options.version.choose(asked);
        let encoder = Encoder { dialect, message_ids: self.options.message_ids };
        // A client that requested the other version sent its capabilities in the field of that version.
        let names = if encoder.is_v1() {
            ["clientCapabilities", "capabilities"]
        } else {
            ["capabilities", "clientCapabilities"]
        };
        let capabilities = names.iter().find_map(|name| params.get_object(name)).unwrap_or_default();
        let client = Arc::new(ClientInfo { encoder, capabilities });
        self.respond(id, &capabilities::initialize(&self.options, &client));
        *self.client.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(client);
        Ok(())
    }

    fn new_session(&self, id: &RequestId, params: &Object, client: &ClientInfo) -> Done {
        let saved = StoredSession {
            id: self.new_session_id(),
            cwd: cwd(params)?,
            title: None,
            mode: DEFAULT_MODE.to_owned(),
            model: DEFAULT_MODEL.to_owned(),
            updated_at: now(),
            messages: Vec::new(),
        };
        self.begin(id, saved, client, false)
    }

    /// Returns an id for a new session.
    fn new_session_id(&self) -> String {
        let open = self.sessions().keys().next().cloned();
        open.filter(|_| self.options.quirks.has(Quirk::SameId))
            .unwrap_or_else(|| format!("test-{:016x}", random()))
    }

    /// Resets the settings of a restored session with `forgets-settings`.
    fn restore_settings(&self, saved: &mut StoredSession) {
        if self.options.quirks.has(Quirk::ForgetsSettings) {
            DEFAULT_MODE.clone_into(&mut saved.mode);
            DEFAULT_MODEL.clone_into(&mut saved.model);
        }
    }

    /// Sends the messages of a session.
    fn replay(&self, name: &str, saved: &StoredSession, encoder: Encoder, with_ids: impl Fn(&str) -> String) {
        for message in &saved.messages {
            for update in encoder.replay(message.role, &with_ids(&message.id), &message.content) {
                self.update(name, &update);
            }
        }
    }

    fn fork(&self, id: &RequestId, params: &Object, client: &ClientInfo) -> Done {
        let name = required(params, "sessionId")?;
        let mut saved = self.saved(&name).ok_or_else(|| unknown(&name))?;
        saved.cwd = cwd(params)?;
        saved.id = self.new_session_id();
        self.restore_settings(&mut saved);
        if params.get("messageId").is_some_and(|message| !message.is_null()) {
            let message = required(params, "messageId")?;
            if !self.options.methods.has(OptionalMethod::ForkAtMessage) {
                return Err(invalid("this agent does not fork at a message"));
            }
            if !saved.cut_after(&message) {
                return Err(RpcError::new(
                    code::RESOURCE_NOT_FOUND,
                    format!("there is no message {message}"),
                ));
            }
        }
        if let Some(message) = self.air_message(params) {
            let is_cut = if self.options.methods.has(OptionalMethod::AirTurnFork) {
                saved.cut_after_turn(&message)
            } else {
                saved.cut_after(&message)
            };
            if !is_cut {
                return Err(invalid(&format!("fork point message {message} was not found")));
            }
        }
        let (name, kept) = (saved.id.clone(), saved.clone());
        let replay = || self.replay(&name, &kept, client.encoder, |_| self.new_id());
        if self.options.quirks.has(Quirk::ForkReplays) {
            replay();
        }
        self.begin(id, saved, client, true)?;
        if self.options.quirks.has(Quirk::ForkReplaysLate) {
            replay();
        }
        Ok(())
    }

    /// Returns the message in `_meta.jetbrains.air.fork`, if the agent supports it.
    fn air_message(&self, params: &Object) -> Option<String> {
        let is_known = self.options.methods.has(OptionalMethod::AirFork)
            || self.options.methods.has(OptionalMethod::AirTurnFork);
        let meta = params.get_object("_meta").filter(|_| is_known)?;
        let fork = meta.get_object("jetbrains")?.get_object("air")?.get_object("fork")?;
        (fork.get_u64("version") == Some(1)).then(|| fork.get_string("messageId"))?
    }

    /// Opens a new session.
    fn begin(&self, id: &RequestId, saved: StoredSession, client: &ClientInfo, is_restored: bool) -> Done {
        self.require_login()?;
        if self.sessions().len() >= MAX_SESSIONS || self.store.len() >= MAX_SESSIONS {
            return Err(RpcError::new(
                code::INTERNAL_ERROR,
                format!("there are {MAX_SESSIONS} sessions already"),
            ));
        }
        let text = ObjectWriter::new().str("sessionId", &saved.id);
        let result = if is_restored && self.options.quirks.has(Quirk::SilentSettings) {
            text.finish()
        } else {
            capabilities::session(&self.options.quirks, client.encoder, &saved, text)
        };
        let session = Arc::new(Session::new(saved));
        session.lock().is_restored = is_restored;
        self.save(&session);
        self.sessions().insert(session.id.clone(), Arc::clone(&session));
        self.respond(id, &result);
        self.update(&session.id, &capabilities::commands(client.encoder));
        Ok(())
    }

    fn resume(&self, id: &RequestId, params: &Object, client: &ClientInfo) -> Done {
        let from = params.get_object("replayFrom").filter(|_| !client.encoder.is_v1());
        let from = from.map(|from| from.get_string("type").unwrap_or_default());
        match from.as_deref() {
            None => self.open(id, params, client, false),
            Some("start") => self.open(id, params, client, true),
            Some(other) => Err(invalid(&format!("replay from `{other}` is not supported"))),
        }
    }

    /// Opens a stored session, or sends the settings of an open one again.
    fn open(&self, id: &RequestId, params: &Object, client: &ClientInfo, with_replay: bool) -> Done {
        let (name, cwd) = (required(params, "sessionId")?, cwd(params)?);
        if self.options.quirks.has(Quirk::RestoreFails) {
            return Err(RpcError::new(code::INTERNAL_ERROR, "the provider is overloaded"));
        }
        if self.closing().contains(&name) {
            return Err(RpcError::new(code::INTERNAL_ERROR, "it is already loaded"));
        }
        let session = match self.session(&name) {
            Some(session) => session,
            None => {
                let saved = self.store.get(&name).ok_or_else(|| unknown(&name))?;
                if self.sessions().len() >= MAX_SESSIONS {
                    return Err(RpcError::new(code::INTERNAL_ERROR, "too many sessions are open"));
                }
                let session = Arc::new(Session::new(saved));
                self.sessions().insert(name.clone(), Arc::clone(&session));
                session
            }
        };
        let mut state = session.lock();
        state.saved.cwd = cwd;
        state.is_restored = true;
        self.restore_settings(&mut state.saved);
        if with_replay {
            self.replay(&name, &state.saved, client.encoder, str::to_owned);
        }
        if self.options.quirks.has(Quirk::SilentSettings) {
            self.respond(id, "{}");
        } else {
            let quirks = &self.options.quirks;
            self.respond(
                id,
                &capabilities::session(quirks, client.encoder, &state.saved, ObjectWriter::new()),
            );
        }
        self.update(&name, &capabilities::commands(client.encoder));
        Ok(())
    }

    fn list(&self, id: &RequestId, params: &Object) -> Done {
        let cwd = params.get_string("cwd");
        let start = match params.get_string("cursor") {
            Some(cursor) => cursor.parse().map_err(|_| invalid("unknown cursor"))?,
            None => 0,
        };
        let all = self.store.list();
        let wanted: Vec<&StoredSession> =
            all.iter().filter(|session| cwd.as_ref().is_none_or(|cwd| *cwd == session.cwd)).collect();
        let page = wanted.iter().skip(start).take(PAGE).map(|session| capabilities::listed(session));
        let result = ObjectWriter::new().raw("sessions", &list(page));
        let next = (wanted.len() > start.saturating_add(PAGE)).then(|| (start + PAGE).to_string());
        self.respond(id, &result.optional_str("nextCursor", next.as_deref()).finish());
        Ok(())
    }

    fn close(&self, id: &RequestId, params: &Object, client: &ClientInfo) -> Done {
        let name = required(params, "sessionId")?;
        let Some(session) = self.sessions().remove(&name) else {
            if client.encoder.is_v1() && self.store.get(&name).is_none() {
                return Err(unknown(&name));
            }
            // A session that is not open is closed.
            self.respond(id, "{}");
            return Ok(());
        };
        self.save(&session);
        self.cancel(&session);
        let answer = session.lock().close(id.clone());
        if let Some(id) = answer {
            self.respond(&id, "{}");
        }
        Ok(())
    }

    /// Closes a session in the background.
    fn close_slowly(self: &Arc<Self>, id: &RequestId, params: &Object) -> Done {
        let name = required(params, "sessionId")?;
        if let Some(session) = self.sessions().remove(&name) {
            self.save(&session);
            session.lock().is_closed = true;
        }
        self.closing().insert(name.clone());
        let (agent, id) = (Arc::clone(self), id.clone());
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            agent.closing().remove(&name);
            agent.respond(&id, "{}");
            agent.out.flush();
        });
        Ok(())
    }

    fn delete(&self, id: &RequestId, params: &Object) -> Done {
        let name = required(params, "sessionId")?;
        let session = self.sessions().remove(&name);
        if let Some(session) = session {
            self.cancel(&session);
            let mut state = session.lock();
            state.is_deleted = true;
            state.is_closed = true;
        }
        self.store.remove(&name);
        self.respond(id, "{}");
        Ok(())
    }

    fn set_title(&self, id: &RequestId, params: &Object) -> Done {
        let (session, title) = (self.open_session(params)?, required(params, "title")?);
        session.lock().saved.title = Some(title.clone());
        self.save(&session);
        self.respond(id, &ObjectWriter::new().str("title", &title).finish());
        self.update(&session.id, &encode::title(&title));
        Ok(())
    }

    fn set_option(&self, id: &RequestId, params: &Object, encoder: Encoder) -> Done {
        let session = self.open_session(params)?;
        let option = required(params, "configId")?;
        if !capabilities::has_option(&self.options.quirks, encoder, &option) {
            return Err(invalid(&format!("the {option} is not set with an option")));
        }
        self.set(&session, &option, &required(params, "value")?)?;
        let options = capabilities::config_options(&self.options.quirks, encoder, &session.lock().saved);
        self.respond(id, &ObjectWriter::new().raw("configOptions", &options).finish());
        Ok(())
    }

    fn set(&self, session: &Session, option: &str, value: &str) -> Done {
        let quirks = &self.options.quirks;
        let is_default = [DEFAULT_MODE, DEFAULT_MODEL].contains(&value);
        if session.lock().is_restored && !is_default && quirks.has(Quirk::RefusesSettings) {
            let message = format!("the {option} cannot be set to `{value}` now");
            return Err(RpcError::new(code::INTERNAL_ERROR, message));
        }
        if option == MODE && !is_default && quirks.has(Quirk::LacksModes) {
            return Err(invalid(&format!("there is no {option} `{value}`")));
        }
        if !capabilities::set(&mut session.lock().saved, option, value) {
            return Err(invalid(&format!("there is no {option} `{value}`")));
        }
        self.save(session);
        Ok(())
    }

    fn prompt(self: &Arc<Self>, id: &RequestId, params: &Object, client: &Arc<ClientInfo>) -> Done {
        let session = self.open_session(params)?;
        self.require_login()?;
        let content = json::array(params, "prompt").ok_or_else(|| invalid("`prompt` is not a list"))?;
        if content.iter().any(|block| Object::parse(block.raw()).is_err()) {
            return Err(invalid("a block of `prompt` is not an object"));
        }
        session.lock().saved.updated_at = now();
        self.submit(&session, client, Work::Prompt { request: id.clone(), content })
    }

    /// Steers the running turn with a prompt. In v2, the agent sends its message.
    fn steer(&self, id: &RequestId, params: &Object, client: &ClientInfo) -> Done {
        let session = self.open_session(params)?;
        let content = json::array(params, "prompt").ok_or_else(|| invalid("`prompt` is not a list"))?;
        let message = self.new_id();
        // While the lock is held, the turn does not end.
        let mut state = session.lock();
        if !state.has_turn() {
            self.respond(id, r#"{"outcome":"promptRequired","reason":"noRunningTurn"}"#);
            return Ok(());
        }
        if !client.encoder.is_v1() {
            for block in &content {
                self.update(&session.id, &client.encoder.chunk(Role::User, &message, block.as_str()));
            }
        }
        self.respond(id, r#"{"outcome":"injected"}"#);
        state.steer(&message, &content);
        Ok(())
    }

    fn open_session(&self, params: &Object) -> Result<Arc<Session>, RpcError> {
        let name = required(params, "sessionId")?;
        self.session(&name).ok_or_else(|| unknown(&name))
    }

    /// Returns the state of a session, open or not.
    fn saved(&self, name: &str) -> Option<StoredSession> {
        let open = self.session(name).map(|session| session.lock().saved.clone());
        open.or_else(|| self.store.get(name))
    }
}

fn cwd(params: &Object) -> Result<String, RpcError> {
    let cwd = required(params, "cwd")?;
    if Path::new(&cwd).is_absolute() { Ok(cwd) } else { Err(invalid("`cwd` is not an absolute path")) }
}

fn required(params: &Object, name: &str) -> Result<String, RpcError> {
    params.get_string(name).ok_or_else(|| invalid(&format!("`{name}` is missing or not a string")))
}

fn invalid(message: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, message)
}

fn unknown(session: &str) -> RpcError {
    RpcError::new(code::RESOURCE_NOT_FOUND, format!("there is no open session {session}"))
}
