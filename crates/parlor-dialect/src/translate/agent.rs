//! Requests and responses of the agent.

use parlor_json::{JsonRef, Object};
use parlor_session::Slot;
use parlor_wire::{Message, Outcome, RequestId};

use super::client::PendingRequest;
use super::peer_requests::{request_to_v1, request_to_v2};
use super::requests::{Inexpressible, ResultKind, session_in};
use super::session::{LineExtras, TranslatedSession};
use super::{Output, Translator, Way, envelope, notification, result_of, session_of};
use crate::encode::update_writer;
use crate::encode::v1::{self, Features};
use crate::encode::v2;
use crate::values::{capabilities, commands, options};
use crate::{Dialect, Losses, Side};

impl Translator {
    pub(super) fn agent_request(
        &mut self,
        message: &Message<'_>,
        id: &RequestId,
        method: &str,
        params: Option<JsonRef<'_>>,
        out: &mut Output,
    ) {
        let given = params.and_then(JsonRef::to_object);
        let session = given.as_ref().and_then(session_in);
        let what = match method {
            "session/request_permission" => ResultKind::Permission,
            "elicitation/create" => ResultKind::Elicitation,
            _ => ResultKind::Same,
        };
        let translated = match self.agent {
            Way { from: Dialect::V1, to: Dialect::V2 | Dialect::Draft } => {
                let transcript = given.as_ref().and_then(|params| self.transcript_of(params));
                request_to_v2(method, given.clone(), transcript, &mut out.losses)
            }
            Way { from: Dialect::V2 | Dialect::Draft, to: Dialect::V1 } => {
                let transcript = given.as_ref().and_then(|params| self.transcript_of(params));
                request_to_v1(method, id, given.clone(), transcript, &mut out.losses)
            }
            Way { .. } => Ok(None),
        };
        let text = match translated {
            Ok(None) => message.text().to_owned(),
            Ok(Some(params)) => envelope(message, Some(method), &[("params", params.to_json().as_str())]),
            Err(Inexpressible(loss)) => return self.reject(Side::Agent, id, method, loss, out),
        };
        if self.mode.is_two_sided() {
            let request = PendingRequest { what, session: session.clone(), value: None };
            let _ = self.agent_requests.register(id.clone(), request);
            if let Some(session) = session
                && let Ok((known, mut out)) = self.session(&session, out)
            {
                known.end_echo(&mut out);
                if what != ResultKind::Same {
                    known.turns.block(&mut out);
                }
            }
        }
        out.say(Side::Agent, text);
    }

    pub(super) fn agent_response(
        &mut self,
        message: &Message<'_>,
        id: &RequestId,
        request: &PendingRequest,
        outcome: Outcome<'_>,
        out: &mut Output,
    ) {
        if request.what == ResultKind::Prompt {
            if let Some(session) = &request.session
                && let Ok((known, mut out)) = self.session(session, out)
            {
                return known.on_prompt_response(message, id, outcome, &mut out);
            }
            return out.say(Side::Agent, message.text().to_owned());
        }
        if request.what == ResultKind::Dropped {
            return;
        }
        let Some(result) = result_of(outcome) else {
            // Messages that were not replayed are not stale.
            if let Some(known) = request.session.as_ref().and_then(|session| self.sessions.get_mut(session)) {
                known.stale.clear();
            }
            return out.say(Side::Agent, message.text().to_owned());
        };
        if let Some(session) = request.session.as_ref().filter(|_| request.what == ResultKind::Delete)
            && self.sessions.get(session).is_some_and(|known| known.turns.prompts.all.is_empty())
        {
            // With open prompts it is kept: the client awaits the responses to them.
            self.sessions.remove(session);
        }
        let mut after = Vec::new();
        let result = match self.agent {
            Way { from: Dialect::V1, to: Dialect::V2 | Dialect::Draft } => {
                self.result_to_v2(request, &result, out)
            }
            Way { from: Dialect::V2 | Dialect::Draft, to: Dialect::V1 } => {
                self.result_to_v1(request, &result, &mut after, out)
            }
            Way { .. } => None,
        };
        match result.map(|result| result.to_json()) {
            Some(result) => out.say(Side::Agent, envelope(message, None, &[("result", result.as_str())])),
            None => out.say(Side::Agent, message.text().to_owned()),
        }
        after.into_iter().for_each(|line| out.say(Side::Agent, line));
    }

    /// Converts a v1 agent's result for a v2 client; `None` if it is the same.
    fn result_to_v2(
        &mut self,
        request: &PendingRequest,
        result: &Object,
        out: &mut Output,
    ) -> Option<Object> {
        match request.what {
            ResultKind::Initialize => Some(capabilities::agent_to_v2(result, &mut out.losses)),
            ResultKind::Session | ResultKind::SetOption => {
                let session = self.session_of_result(request, result)?;
                session.store_v1_settings(result);
                Some(session.with_v2_options(result, &mut out.losses))
            }
            ResultKind::SetMode | ResultKind::SetModeOption => {
                let session = self.session_of_result(request, result)?;
                if let Some(mode) = &request.value {
                    let mut fields = Object::default();
                    fields.set("currentModeId", mode.clone());
                    session.store_slot(Slot::Mode, fields);
                }
                Some(session.with_v2_options(result, &mut out.losses))
            }
            ResultKind::Prompt
            | ResultKind::Permission
            | ResultKind::Elicitation
            | ResultKind::Delete
            | ResultKind::Same
            | ResultKind::Dropped => None,
        }
    }

    /// Converts a v2 agent's result for a v1 client; `None` if it is the same. Updates for what a v1 result cannot
    /// hold follow in `after`.
    fn result_to_v1(
        &mut self,
        request: &PendingRequest,
        result: &Object,
        after: &mut Vec<String>,
        out: &mut Output,
    ) -> Option<Object> {
        let features = self.features;
        match request.what {
            ResultKind::Initialize => Some(capabilities::agent_to_v1(result, &mut out.losses)),
            ResultKind::Session | ResultKind::SetOption => {
                let id = session_in(result).or_else(|| request.session.clone())?;
                let session = session_of(&mut self.sessions, &id, self.agent).ok()?;
                session.store_v2_settings(result);
                let mut result = session.with_v1_options(result, request.what, features, &mut out.losses);
                let list = result.get("availableCommands").filter(|_| request.what == ResultKind::Session);
                if let Some(list) = list.cloned() {
                    result.remove("availableCommands");
                    let list = commands::to_v1(&list, &mut out.losses);
                    let update = update_writer("available_commands_update");
                    let update = update.raw("availableCommands", list.as_str()).finish();
                    after.push(notification(&id, &update, &LineExtras::default()));
                }
                Some(result)
            }
            ResultKind::SetMode => {
                let session = self.session_of_result(request, result)?;
                session.store_v2_settings(result);
                session.peer.set_mode(request.value.as_ref().and_then(parlor_json::Json::to_json_str));
                let mut result = result.clone();
                // Setting a mode may change other options, which v1 receives separately.
                if let Some(list) = result.remove("configOptions") {
                    let (list, _) = v1::split_modes(&list, features, &mut out.losses);
                    let update = update_writer("config_option_update").raw("configOptions", list.as_str());
                    let id = request.session.clone().filter(|_| list.as_str() != "[]");
                    after.extend(id.map(|id| notification(&id, &update.finish(), &LineExtras::default())));
                }
                Some(result)
            }
            ResultKind::SetModeOption
            | ResultKind::Prompt
            | ResultKind::Permission
            | ResultKind::Elicitation
            | ResultKind::Delete
            | ResultKind::Same
            | ResultKind::Dropped => None,
        }
    }

    fn session_of_result(
        &mut self,
        request: &PendingRequest,
        result: &Object,
    ) -> Option<&mut TranslatedSession> {
        let id = session_in(result).or_else(|| request.session.clone())?;
        session_of(&mut self.sessions, &id, self.agent).ok()
    }
}

impl TranslatedSession {
    /// Stores the modes and options of a v1 result.
    fn store_v1_settings(&mut self, result: &Object) {
        if let Some(modes) = result.get_object("modes") {
            self.store_slot(Slot::Mode, modes);
        }
        self.learn_list(Slot::Options, result, "configOptions");
    }

    /// Stores the options of a v2 result.
    fn store_v2_settings(&mut self, result: &Object) {
        self.learn_list(Slot::Options, result, "configOptions");
    }

    fn learn_list(&mut self, slot: Slot, result: &Object, name: &str) {
        if let Some(list) = result.get(name).filter(|list| list.type_of() == parlor_json::Type::Array) {
            let mut fields = Object::default();
            fields.set(name, list.clone());
            self.store_slot(slot, fields);
        }
    }

    /// Adds the modes of a v1 result to its options.
    fn with_v2_options(&self, result: &Object, losses: &mut Losses) -> Object {
        let options = self.transcript.slot(Slot::Options).and_then(|body| body.fields.get("configOptions"));
        let modes = self.transcript.slot(Slot::Mode).map(|body| &body.fields);
        let list = v2::option_list(options, modes, None, losses);
        let mut result = result.clone();
        // The option has all that the modes had.
        if result.get("modes").is_some() && options::mode_option(&list).is_some() {
            result.remove("modes");
        }
        result.set("configOptions", list);
        result
    }

    /// Separates the mode from the options of a v2 result.
    fn with_v1_options(
        &mut self,
        result: &Object,
        what: ResultKind,
        features: Features,
        losses: &mut Losses,
    ) -> Object {
        let mut result = result.clone();
        let Some(list) = result.get("configOptions").cloned() else { return result };
        let (list, modes) = v1::split_modes(&list, features, losses);
        let is_empty = list.as_str() == "[]";
        result.set("configOptions", list);
        if what == ResultKind::Session && is_empty {
            // An agent with only modes, or without options, had none in v1.
            result.remove("configOptions");
        }
        if let Some(modes) = modes {
            self.peer.set_mode(modes.get_json_str("currentModeId"));
            if what == ResultKind::Session {
                result.set("modes", modes.to_json());
            }
        }
        result
    }
}
