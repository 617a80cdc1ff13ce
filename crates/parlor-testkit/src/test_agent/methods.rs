//! What a client can ask for.

use std::path::Path;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_json::{Object, ObjectWriter};
use parlor_wire::{RequestId, RpcError, code};

use super::json::{self, list};
use super::offer::{self, MODE, MODEL, Offer};
use super::quirk::Quirk;
use super::say::{self, Role, Voice};
use super::server::{Agent, Peer, random};
use super::session::{Saved, Session, Work};
use super::store::{MAX_SESSIONS, now};

/// What a session is set to when it begins.
const DEFAULT_MODE: &str = "ask";
const DEFAULT_MODEL: &str = "small";

/// How many sessions one page of a list has.
const PAGE: usize = 100;

type Done = Result<(), RpcError>;

impl Agent {
    /// Serves a request. What goes wrong is given back; everything else has been said.
    pub(super) fn request(self: &Arc<Self>, id: &RequestId, method: &str, params: &Object) -> Done {
        if method == "initialize" {
            return self.initialize(id, params);
        }
        let peer = self.peer()?;
        let is_v1 = peer.voice.is_v1();
        let offers = |offer| self.options.offers.has(offer);
        match method {
            "authenticate" if is_v1 => self.log_in(id, &required(params, "methodId")?),
            "auth/login" if !is_v1 => self.log_in(id, &required(params, "methodId")?),
            "logout" | "auth/logout" if is_v1 == (method == "logout") && self.options.auth.is_required() => {
                self.set_logged_in(id, false);
                Ok(())
            }
            "session/new" => self.new_session(id, params, &peer),
            "session/load" if is_v1 && offers(Offer::Load) => self.open(id, params, &peer, true),
            "session/resume" if offers(Offer::Resume) => self.resume(id, params, &peer),
            "session/fork" if offers(Offer::Fork) => self.fork(id, params, &peer),
            "session/list" if offers(Offer::List) => self.list(id, params),
            "session/close" if offers(Offer::Close) && self.options.quirks.has(Quirk::SlowClose) => {
                self.close_slowly(id, params)
            }
            "session/close" if offers(Offer::Close) => self.close(id, params, &peer),
            "session/delete" if offers(Offer::Delete) => self.delete(id, params),
            "session/set_title" if offers(Offer::Title) => self.set_title(id, params),
            "session/set_mode" if is_v1 && !self.options.quirks.has(Quirk::LacksSettings) => {
                let session = self.open_session(params)?;
                self.set(&session, MODE, &required(params, "modeId")?)?;
                self.answer(id, "{}");
                Ok(())
            }
            "session/set_model" if is_v1 && self.options.quirks.has(Quirk::Models) => {
                let session = self.open_session(params)?;
                self.set(&session, MODEL, &required(params, "modelId")?)?;
                self.answer(id, "{}");
                Ok(())
            }
            "session/set_config_option" if !self.options.quirks.has(Quirk::LacksSettings) => {
                self.set_option(id, params, peer.voice)
            }
            "_session/steering" if offers(Offer::Steering) => self.steer(id, params, &peer),
            "session/prompt" => self.prompt(id, params, &peer),
            _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method {method}"))),
        }
    }

    fn initialize(&self, id: &RequestId, params: &Object) -> Done {
        let asked = match Dialect::negotiate(params.to_json().raw()) {
            Ok(asked) => asked,
            // An agent of one version answers with it, whatever was asked.
            Err(_) if self.options.version != super::Versions::Both => Dialect::V1,
            Err(unsupported) => return Err(unsupported.to_error()),
        };
        let dialect = self.options.version.choose(asked);
        let voice = Voice { dialect, message_ids: self.options.message_ids };
        // A client that hoped for the other version wrote its capabilities under the name of that one.
        let names = if voice.is_v1() {
            ["clientCapabilities", "capabilities"]
        } else {
            ["capabilities", "clientCapabilities"]
        };
        let capabilities = names.iter().find_map(|name| params.get_object(name)).unwrap_or_default();
        let peer = Arc::new(Peer { voice, capabilities });
        self.answer(id, &offer::initialize(&self.options, &peer));
        *self.peer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(peer);
        Ok(())
    }

    fn new_session(&self, id: &RequestId, params: &Object, peer: &Peer) -> Done {
        let saved = Saved {
            id: self.new_id(),
            cwd: cwd(params)?,
            title: None,
            mode: DEFAULT_MODE.to_owned(),
            model: DEFAULT_MODEL.to_owned(),
            updated_at: now(),
            messages: Vec::new(),
        };
        self.begin(id, saved, peer, false)
    }

    /// An id for a new session.
    fn new_id(&self) -> String {
        let open = self.sessions().keys().next().cloned();
        open.filter(|_| self.options.quirks.has(Quirk::SameId))
            .unwrap_or_else(|| format!("test-{:016x}", random()))
    }

    /// What a session is set to that did not begin just now.
    fn restore_settings(&self, saved: &mut Saved) {
        if self.options.quirks.has(Quirk::ForgetsSettings) {
            DEFAULT_MODE.clone_into(&mut saved.mode);
            DEFAULT_MODEL.clone_into(&mut saved.model);
        }
    }

    /// Tells the messages of a session.
    fn replay(&self, name: &str, saved: &Saved, voice: Voice, with_ids: impl Fn(&str) -> String) {
        for message in &saved.messages {
            for update in voice.replay(message.role, &with_ids(&message.id), &message.content) {
                self.update(name, &update);
            }
        }
    }

    fn fork(&self, id: &RequestId, params: &Object, peer: &Peer) -> Done {
        let name = required(params, "sessionId")?;
        let mut saved = self.saved(&name).ok_or_else(|| unknown(&name))?;
        saved.cwd = cwd(params)?;
        saved.id = self.new_id();
        self.restore_settings(&mut saved);
        if params.get("messageId").is_some_and(|message| !message.is_null()) {
            let message = required(params, "messageId")?;
            if !self.options.offers.has(Offer::ForkAtMessage) {
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
            let is_cut = if self.options.offers.has(Offer::AirTurnFork) {
                saved.cut_after_turn(&message)
            } else {
                saved.cut_after(&message)
            };
            if !is_cut {
                return Err(invalid(&format!("fork point message {message} was not found")));
            }
        }
        let (name, kept) = (saved.id.clone(), saved.clone());
        let replay = || self.replay(&name, &kept, peer.voice, |_| self.fresh_id());
        if self.options.quirks.has(Quirk::ForkReplays) {
            replay();
        }
        self.begin(id, saved, peer, true)?;
        if self.options.quirks.has(Quirk::ForkReplaysLate) {
            replay();
        }
        Ok(())
    }

    /// The message in `_meta.jetbrains.air.fork`, for an agent that knows it.
    fn air_message(&self, params: &Object) -> Option<String> {
        let is_known = self.options.offers.has(Offer::AirFork) || self.options.offers.has(Offer::AirTurnFork);
        let meta = params.get_object("_meta").filter(|_| is_known)?;
        let fork = meta.get_object("jetbrains")?.get_object("air")?.get_object("fork")?;
        (fork.get_u64("version") == Some(1)).then(|| fork.get_string("messageId"))?
    }

    /// Opens a session that did not exist before.
    fn begin(&self, id: &RequestId, saved: Saved, peer: &Peer, is_restored: bool) -> Done {
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
            offer::session(&self.options.quirks, peer.voice, &saved, text)
        };
        let session = Arc::new(Session::new(saved));
        session.lock().is_restored = is_restored;
        self.save(&session);
        self.sessions().insert(session.id.clone(), Arc::clone(&session));
        self.answer(id, &result);
        self.update(&session.id, &offer::commands(peer.voice));
        Ok(())
    }

    fn resume(&self, id: &RequestId, params: &Object, peer: &Peer) -> Done {
        let from = params.get_object("replayFrom").filter(|_| !peer.voice.is_v1());
        let from = from.map(|from| from.get_string("type").unwrap_or_default());
        match from.as_deref() {
            None => self.open(id, params, peer, false),
            Some("start") => self.open(id, params, peer, true),
            Some(other) => Err(invalid(&format!("there is no replay from `{other}`"))),
        }
    }

    /// Opens a session that was kept, or says again what an open one is.
    fn open(&self, id: &RequestId, params: &Object, peer: &Peer, with_replay: bool) -> Done {
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
            self.replay(&name, &state.saved, peer.voice, str::to_owned);
        }
        if self.options.quirks.has(Quirk::SilentSettings) {
            self.answer(id, "{}");
        } else {
            let quirks = &self.options.quirks;
            self.answer(id, &offer::session(quirks, peer.voice, &state.saved, ObjectWriter::new()));
        }
        self.update(&name, &offer::commands(peer.voice));
        Ok(())
    }

    fn list(&self, id: &RequestId, params: &Object) -> Done {
        let cwd = params.get_string("cwd");
        let start = match params.get_string("cursor") {
            Some(cursor) => cursor.parse().map_err(|_| invalid("the cursor is not one of this agent"))?,
            None => 0,
        };
        let all = self.store.list();
        let wanted: Vec<&Saved> =
            all.iter().filter(|session| cwd.as_ref().is_none_or(|cwd| *cwd == session.cwd)).collect();
        let page = wanted.iter().skip(start).take(PAGE).map(|session| offer::listed(session));
        let result = ObjectWriter::new().raw("sessions", &list(page));
        let next = (wanted.len() > start.saturating_add(PAGE)).then(|| (start + PAGE).to_string());
        self.answer(id, &result.optional_str("nextCursor", next.as_deref()).finish());
        Ok(())
    }

    fn close(&self, id: &RequestId, params: &Object, peer: &Peer) -> Done {
        let name = required(params, "sessionId")?;
        let Some(session) = self.sessions().remove(&name) else {
            if peer.voice.is_v1() && self.store.get(&name).is_none() {
                return Err(unknown(&name));
            }
            // A session that is not open is as closed as it can be.
            self.answer(id, "{}");
            return Ok(());
        };
        self.save(&session);
        self.cancel(&session);
        let answer = session.lock().close(id.clone());
        if let Some(id) = answer {
            self.answer(&id, "{}");
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
            agent.answer(&id, "{}");
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
        self.answer(id, "{}");
        Ok(())
    }

    fn set_title(&self, id: &RequestId, params: &Object) -> Done {
        let (session, title) = (self.open_session(params)?, required(params, "title")?);
        session.lock().saved.title = Some(title.clone());
        self.save(&session);
        self.answer(id, &ObjectWriter::new().str("title", &title).finish());
        self.update(&session.id, &say::title(&title));
        Ok(())
    }

    fn set_option(&self, id: &RequestId, params: &Object, voice: Voice) -> Done {
        let session = self.open_session(params)?;
        let option = required(params, "configId")?;
        if !offer::has_option(&self.options.quirks, voice, &option) {
            return Err(invalid(&format!("the {option} is not set with an option")));
        }
        self.set(&session, &option, &required(params, "value")?)?;
        let options = offer::config_options(&self.options.quirks, voice, &session.lock().saved);
        self.answer(id, &ObjectWriter::new().raw("configOptions", &options).finish());
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
        if !offer::set(&mut session.lock().saved, option, value) {
            return Err(invalid(&format!("there is no {option} `{value}`")));
        }
        self.save(session);
        Ok(())
    }

    fn prompt(self: &Arc<Self>, id: &RequestId, params: &Object, peer: &Arc<Peer>) -> Done {
        let session = self.open_session(params)?;
        self.require_login()?;
        let content = json::array(params, "prompt").ok_or_else(|| invalid("`prompt` is not a list"))?;
        if content.iter().any(|block| Object::parse(block.raw()).is_err()) {
            return Err(invalid("a block of `prompt` is not an object"));
        }
        session.lock().saved.updated_at = now();
        self.submit(&session, peer, Work::Prompt { request: id.clone(), content })
    }

    /// Takes a prompt into the running turn. In v2, the agent sends it back.
    fn steer(&self, id: &RequestId, params: &Object, peer: &Peer) -> Done {
        let session = self.open_session(params)?;
        let content = json::array(params, "prompt").ok_or_else(|| invalid("`prompt` is not a list"))?;
        let message = self.fresh_id();
        // The turn does not end meanwhile.
        let mut state = session.lock();
        if !state.has_turn() {
            self.answer(id, r#"{"outcome":"promptRequired","reason":"noRunningTurn"}"#);
            return Ok(());
        }
        if !peer.voice.is_v1() {
            for block in &content {
                self.update(&session.id, &peer.voice.chunk(Role::User, &message, block.as_str()));
            }
        }
        self.answer(id, r#"{"outcome":"injected"}"#);
        state.steer(&message, &content);
        Ok(())
    }

    fn open_session(&self, params: &Object) -> Result<Arc<Session>, RpcError> {
        let name = required(params, "sessionId")?;
        self.session(&name).ok_or_else(|| unknown(&name))
    }

    /// A session as it is now, open or not.
    fn saved(&self, name: &str) -> Option<Saved> {
        let open = self.session(name).map(|session| session.lock().saved.clone());
        open.or_else(|| self.store.get(name))
    }
}

fn cwd(params: &Object) -> Result<String, RpcError> {
    let cwd = required(params, "cwd")?;
    if Path::new(&cwd).is_absolute() { Ok(cwd) } else { Err(invalid("`cwd` is not an absolute path")) }
}

fn required(params: &Object, name: &str) -> Result<String, RpcError> {
    params.get_string(name).ok_or_else(|| invalid(&format!("`{name}` is missing or no string")))
}

fn invalid(message: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, message)
}

fn unknown(session: &str) -> RpcError {
    RpcError::new(code::RESOURCE_NOT_FOUND, format!("there is no open session {session}"))
}
