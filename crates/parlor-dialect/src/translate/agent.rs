//! What an agent asks, and what it answers.

use parlor_json::{JsonRef, JsonStr, Object};
use parlor_session::Slot;
use parlor_wire::{Message, Outcome, RequestId};

use super::client::Asked;
use super::questions::{request_to_v1, request_to_v2};
use super::requests::{Unsayable, What, session_in};
use super::{Output, Session, Translator, Way, envelope, notification, result_of, session_of};
use crate::encode::v1::{self, Features};
use crate::encode::v2;
use crate::text::ObjectText;
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
        let given = params.and_then(|params| Object::parse(params).ok());
        let session = given.as_ref().and_then(session_in);
        let what = match method {
            "session/request_permission" => What::Permission,
            "elicitation/create" => What::Elicitation,
            _ => What::Same,
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
            Err(Unsayable(loss)) => return self.refuse(Side::Agent, id, method, loss, out),
        };
        if self.mode.hears_both() {
            if let Some(session) = &session {
                self.end_echo(session, out);
            }
            let asked = Asked { what, session: session.clone(), value: None };
            let _ = self.agent_asked.register(id.clone(), asked);
            if let Some(session) = session.filter(|_| what != What::Same)
                && let Ok(known) = session_of(&mut self.sessions, &session, self.agent)
            {
                known.turn.blocks(self.agent, &mut out.turn(&session));
            }
        }
        out.say(Side::Agent, text);
    }

    pub(super) fn agent_response(
        &mut self,
        message: &Message<'_>,
        id: &RequestId,
        asked: Asked,
        outcome: Outcome<'_>,
        out: &mut Output,
    ) {
        if asked.what == What::Prompt {
            if let Some(session) = &asked.session {
                self.end_echo(session, out);
            }
            if let Some(session) = asked.session
                && let Ok(known) = session_of(&mut self.sessions, &session, self.agent)
            {
                known.decoder.turn_boundary();
                let Session { turn, heard, .. } = known;
                turn.answered(message, id, outcome, self.agent, heard, &mut out.turn(&session));
                return;
            }
            return out.say(Side::Agent, message.text().to_owned());
        }
        if asked.what == What::Dropped {
            return;
        }
        let Some(result) = result_of(outcome) else {
            // What was not replayed is not stale.
            if let Some(known) = asked.session.as_ref().and_then(|session| self.sessions.get_mut(session)) {
                known.stale.clear();
            }
            return out.say(Side::Agent, message.text().to_owned());
        };
        if let Some(session) = asked.session.as_ref().filter(|_| asked.what == What::Delete) {
            self.sessions.remove(session);
        }
        let mut after = Vec::new();
        let result = match self.agent {
            Way { from: Dialect::V1, to: Dialect::V2 | Dialect::Draft } => {
                self.result_to_v2(&asked, &result, out)
            }
            Way { from: Dialect::V2 | Dialect::Draft, to: Dialect::V1 } => {
                self.result_to_v1(&asked, &result, &mut after, out)
            }
            Way { .. } => None,
        };
        match result.map(|result| result.to_json()) {
            Some(result) => out.say(Side::Agent, envelope(message, None, &[("result", result.as_str())])),
            None => out.say(Side::Agent, message.text().to_owned()),
        }
        after.into_iter().for_each(|line| out.say(Side::Agent, line));
    }

    /// A v1 agent's result for a v2 client; `None` if it is the same.
    fn result_to_v2(&mut self, asked: &Asked, result: &Object, out: &mut Output) -> Option<Object> {
        match asked.what {
            What::Initialize => Some(capabilities::agent_to_v2(result, &mut out.losses)),
            What::Session | What::SetOption => {
                let session = self.session_of_result(asked, result)?;
                session.learn_v1(result);
                Some(session.with_v2_options(result, &mut out.losses))
            }
            What::SetMode | What::SetModeOption => {
                let session = self.session_of_result(asked, result)?;
                if let Some(mode) = &asked.value {
                    let mut fields = Object::default();
                    fields.set("currentModeId", mode.clone());
                    session.learn(Slot::Mode, fields);
                }
                Some(session.with_v2_options(result, &mut out.losses))
            }
            What::Prompt
            | What::Permission
            | What::Elicitation
            | What::Delete
            | What::Same
            | What::Dropped => None,
        }
    }

    /// A v2 agent's result for a v1 client; `None` if it is the same. What v1 has no place for in a result comes
    /// `after` it.
    fn result_to_v1(
        &mut self,
        asked: &Asked,
        result: &Object,
        after: &mut Vec<String>,
        out: &mut Output,
    ) -> Option<Object> {
        let features = self.features;
        match asked.what {
            What::Initialize => Some(capabilities::agent_to_v1(result, &mut out.losses)),
            What::Session | What::SetOption => {
                let id = session_in(result).or_else(|| asked.session.clone())?;
                let session = session_of(&mut self.sessions, &id, self.agent).ok()?;
                session.learn_v2(result);
                let mut result = session.with_v1_options(result, asked.what, features, &mut out.losses);
                let list = result.get("availableCommands").filter(|_| asked.what == What::Session);
                if let Some(list) = list.cloned() {
                    result.remove("availableCommands");
                    let list = commands::to_v1(&list, &mut out.losses);
                    let update = ObjectText::update("available_commands_update");
                    let update = update.raw("availableCommands", list.as_str()).finish();
                    after.push(notification(&id, &update, &[], &[]));
                }
                Some(result)
            }
            What::SetMode => {
                let session = self.session_of_result(asked, result)?;
                session.learn_v2(result);
                session.heard.set_mode(asked.value.as_ref().and_then(|mode| JsonStr::from_raw(mode.raw())));
                let mut result = result.clone();
                // Setting a mode may change other options, of which v1 hears by themselves.
                if let Some(list) = result.remove("configOptions") {
                    let (list, _) = v1::split_modes(&list, features, &mut out.losses);
                    let update =
                        ObjectText::update("config_option_update").raw("configOptions", list.as_str());
                    let id = asked.session.clone().filter(|_| list.as_str() != "[]");
                    after.extend(id.map(|id| notification(&id, &update.finish(), &[], &[])));
                }
                Some(result)
            }
            What::SetModeOption
            | What::Prompt
            | What::Permission
            | What::Elicitation
            | What::Delete
            | What::Same
            | What::Dropped => None,
        }
    }

    fn session_of_result(&mut self, asked: &Asked, result: &Object) -> Option<&mut Session> {
        let id = session_in(result).or_else(|| asked.session.clone())?;
        session_of(&mut self.sessions, &id, self.agent).ok()
    }
}

impl Session {
    /// Keeps the modes and options that a v1 result tells of.
    fn learn_v1(&mut self, result: &Object) {
        if let Some(modes) = result.get_object("modes") {
            self.learn(Slot::Mode, modes);
        }
        self.learn_list(Slot::Options, result, "configOptions");
    }

    /// Keeps the options that a v2 result tells of.
    fn learn_v2(&mut self, result: &Object) {
        self.learn_list(Slot::Options, result, "configOptions");
    }

    fn learn_list(&mut self, slot: Slot, result: &Object, name: &str) {
        if let Some(list) = result.get(name).filter(|list| list.type_of() == parlor_json::Type::Array) {
            let mut fields = Object::default();
            fields.set(name, list.clone());
            self.learn(slot, fields);
        }
    }

    /// A v1 result with its modes among its options.
    fn with_v2_options(&self, result: &Object, losses: &mut Losses) -> Object {
        let options = self.transcript.slot(Slot::Options).and_then(|body| body.fields.get("configOptions"));
        let modes = self.transcript.slot(Slot::Mode).map(|body| &body.fields);
        let list = v2::option_list(options, modes, None, losses);
        let mut result = result.clone();
        // The option says all that the modes did.
        if result.get("modes").is_some() && options::mode_option(&list).is_some() {
            result.remove("modes");
        }
        result.set("configOptions", list);
        result
    }

    /// A v2 result with its mode by itself, as v1 has it.
    fn with_v1_options(
        &mut self,
        result: &Object,
        what: What,
        features: Features,
        losses: &mut Losses,
    ) -> Object {
        let mut result = result.clone();
        let Some(list) = result.get("configOptions").cloned() else { return result };
        let (list, modes) = v1::split_modes(&list, features, losses);
        let is_empty = list.as_str() == "[]";
        result.set("configOptions", list);
        if what == What::Session && is_empty {
            // An agent that has only modes, or no options at all, said nothing of options in v1.
            result.remove("configOptions");
        }
        if let Some(modes) = modes {
            self.heard.set_mode(modes.get("currentModeId").and_then(|mode| JsonStr::from_raw(mode.raw())));
            if what == What::Session {
                result.set("modes", modes.to_json());
            }
        }
        result
    }
}
