//! What a client asks, and what it answers.

use parlor_json::{Json, JsonRef, JsonStr, Object};
use parlor_session::{MessageId, SessionId, Transcript};
use parlor_wire::{Message, Outcome, RequestId, RpcError, code, write};

use super::requests::{
    Request, Unsayable, What, request_for_v1, request_for_v2, same_in_all, same_version, session_in,
};
use super::{Mode, Output, Translator, Way, envelope, result_of, session_of};
use crate::encode::v1::Features;
use crate::fold::GeneratedIds;
use crate::values::permission;
use crate::{Dialect, Side};

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) what: What,
    /// The session it is about, where its params say so.
    pub(super) session: Option<SessionId>,
    /// The prompt, or the value that a mode is set to.
    pub(super) value: Option<Json>,
}

impl Translator {
    pub(super) fn client_request(
        &mut self,
        message: &Message<'_>,
        id: &RequestId,
        method: &str,
        params: Option<JsonRef<'_>>,
        out: &mut Output,
    ) {
        let way = self.client;
        let mut given = params.and_then(|params| Object::parse(params).ok());
        let is_renamed = given.as_mut().is_some_and(|params| self.rename(params));
        let request = match (way.from, way.to) {
            (Dialect::V1, Dialect::V2 | Dialect::Draft) => {
                let transcript = given.as_ref().and_then(|params| self.transcript_of(params));
                request_for_v2(method, given.clone(), way.to, transcript, &mut out.losses)
            }
            (Dialect::V2 | Dialect::Draft, Dialect::V1) => {
                let transcript = given.as_ref().and_then(|params| self.transcript_of(params));
                request_for_v1(method, given.clone(), transcript, &mut out.losses)
            }
            (Dialect::V1 | Dialect::V2 | Dialect::Draft, _) => {
                Ok(same_version(method, given.clone(), way.to))
            }
        };
        let request = match request {
            Ok(request) => request,
            Err(Unsayable(loss)) => return self.refuse(Side::Client, id, method, loss, out),
        };
        let what = request.as_ref().map_or_else(|| same_in_all(method), |request| request.what);
        // What a v1 client asked for stands in the v1 form of its params, whichever side speaks v1.
        let v1_params = match &request {
            Some(request) if way.to == Dialect::V1 => Some(&request.params),
            Some(_) | None => given.as_ref().filter(|_| way.from == Dialect::V1),
        };
        if let Some(params) = v1_params.filter(|_| what == What::Initialize) {
            self.features = Features::of(params);
        }
        // The answer to a request whose id is in use could not be told from the other one's.
        if self.mode == Mode::Relay && self.client_asked.contains(id) {
            return out.id_in_use(id);
        }
        match request {
            Some(Request { method, params, .. }) => {
                let params = params.to_json();
                out.say(Side::Client, envelope(message, Some(method), &[("params", params.as_str())]));
            }
            None => match given.as_ref().filter(|_| is_renamed).map(Object::to_json) {
                Some(params) => {
                    out.say(Side::Client, envelope(message, Some(method), &[("params", params.as_str())]));
                }
                None => out.say(Side::Client, message.text().to_owned()),
            },
        }
        if self.mode.hears_both() {
            self.client_asks(id, method, what, &given.unwrap_or_default(), out);
        }
    }

    /// Names the message that params are about as the agent does, if it has another name there.
    fn rename(&self, params: &mut Object) -> bool {
        let message = params.get("messageId").and_then(|id| JsonStr::from_raw(id.raw())).map(MessageId::from);
        let session = session_in(params).and_then(|session| self.sessions.get(&session));
        let named = message.and_then(|message| session?.turn.named(&message));
        match named.cloned() {
            Some(named) => params.set("messageId", named.as_json()),
            None => return false,
        }
        true
    }

    /// Remembers a request for its answer, and what it means for the session.
    fn client_asks(&mut self, id: &RequestId, method: &str, what: What, params: &Object, out: &mut Output) {
        let session = session_in(params);
        let replay_from = params.get("replayFrom").filter(|from| !from.is_null());
        let known = session.as_ref().and_then(|session| self.sessions.get_mut(session));
        if let Some(known) = known.filter(|_| method == "session/load" || replay_from.is_some()) {
            known.replays(self.agent.from);
        }
        let value = match what {
            What::Prompt => params.get("prompt"),
            What::SetMode => params.get("modeId"),
            What::SetModeOption => params.get("value"),
            What::Initialize
            | What::Session
            | What::SetOption
            | What::Permission
            | What::Elicitation
            | What::Delete
            | What::Same
            | What::Dropped => None,
        };
        let asked = Asked { what, session: session.clone(), value: value.cloned() };
        // A request too many, or one whose id is in use, is answered like one that was not seen.
        let _ = self.client_asked.register(id.clone(), asked);
        if let (What::Prompt, Some(session), Some(content)) = (what, session, value)
            && let Ok(known) = session_of(&mut self.sessions, &session, self.agent)
        {
            known.decoder.turn_boundary();
            known.stale.clear();
            // A v1 agent never names the message of its prompt, so that the client has this id at once.
            let spare = match self.agent.from {
                Dialect::V1 => known.generated.new_id(&known.transcript, "parlor", &mut self.named),
                Dialect::V2 | Dialect::Draft => {
                    GeneratedIds::unused_id(&known.transcript, "parlor", &mut self.named)
                }
            };
            known.turn.prompted(id, content.clone(), spare, self.agent, &mut out.turn(&session));
        }
    }

    /// The session that params are about.
    pub(super) fn transcript_of(&self, params: &Object) -> Option<&Transcript> {
        Some(&self.sessions.get(&session_in(params)?)?.transcript)
    }

    /// The client answered what the agent asked.
    pub(super) fn client_response(
        &mut self,
        message: &Message<'_>,
        asked: &Asked,
        outcome: Outcome<'_>,
        out: &mut Output,
    ) {
        if asked.what == What::Dropped {
            return;
        }
        let to_v1 = matches!(self.client, Way { from: Dialect::V2 | Dialect::Draft, to: Dialect::V1 });
        let result = result_of(outcome).filter(|_| to_v1).and_then(|result| match asked.what {
            What::Permission => Some(permission::result_to_v1(&result, &mut out.losses)),
            What::Elicitation => Some(permission::elicitation_result_to_v1(&result, &mut out.losses)),
            What::Initialize
            | What::Session
            | What::SetOption
            | What::SetMode
            | What::SetModeOption
            | What::Prompt
            | What::Delete
            | What::Same
            | What::Dropped => None,
        });
        match result.map(|result| result.to_json()) {
            Some(result) => out.say(Side::Client, envelope(message, None, &[("result", result.as_str())])),
            None => out.say(Side::Client, message.text().to_owned()),
        }
        let blocks = matches!(asked.what, What::Permission | What::Elicitation);
        if let Some(session) = asked.session.as_ref().filter(|_| blocks)
            && let Some(known) = self.sessions.get_mut(session)
        {
            known.turn.unblocks(self.agent, &mut out.turn(session));
        }
    }
}

impl Output {
    /// Answers a client that asks twice by one id.
    fn id_in_use(&mut self, id: &RequestId) {
        let error = RpcError::new(code::INVALID_REQUEST, "another request with this id has no answer yet");
        self.say(Side::Agent, write::error_response(id, &error));
    }
}
