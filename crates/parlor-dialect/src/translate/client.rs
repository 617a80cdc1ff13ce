//! Requests and responses of the client.

use parlor_json::{Json, JsonRef, Object};
use parlor_session::{MessageId, SessionId, Transcript};
use parlor_wire::{Message, Outcome, RequestId, RpcError, code, write};

use super::requests::{
    Inexpressible, Request, ResultKind, request_for_v1, request_for_v2, same_in_all, same_version, session_in,
};
use super::{Mode, Output, Translator, Way, envelope, result_of};
use crate::encode::v1::Features;
use crate::values::permission;
use crate::{Dialect, Side};

/// A request without a response.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) what: ResultKind,
    /// Its session, if its params have one.
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
        let mut given = params.and_then(JsonRef::to_object);
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
            Err(Inexpressible(loss)) => return self.reject(Side::Client, id, method, loss, out),
        };
        let what = request.as_ref().map_or_else(|| same_in_all(method), |request| request.what);
        // The v1 form of the params has what a v1 client requested, whichever side speaks v1.
        let v1_params = match &request {
            Some(request) if way.to == Dialect::V1 => Some(&request.params),
            Some(_) | None => given.as_ref().filter(|_| way.from == Dialect::V1),
        };
        if let Some(params) = v1_params.filter(|_| what == ResultKind::Initialize) {
            self.features = Features::of(params);
        }
        // The response to a request whose id is in use could not be matched.
        if self.mode == Mode::Relay && self.client_requests.contains(id) {
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
        if self.mode.is_two_sided() {
            self.track_client_request(id, method, what, &given.unwrap_or_default(), out);
        }
    }

    /// Replaces the message id in params by the agent's, if they differ.
    fn rename(&self, params: &mut Object) -> bool {
        let message = params.get_json_str("messageId").map(MessageId::from);
        let session = session_in(params).and_then(|session| self.sessions.get(&session));
        let named = message.and_then(|message| session?.turns.agents_id(&message));
        match named.cloned() {
            Some(named) => params.set("messageId", named.as_json()),
            None => return false,
        }
        true
    }

    /// Tracks a request until its response, and its meaning for the session.
    fn track_client_request(
        &mut self,
        id: &RequestId,
        method: &str,
        what: ResultKind,
        params: &Object,
        out: &mut Output,
    ) {
        let session = session_in(params);
        let replay_from = params.get("replayFrom").filter(|from| !from.is_null());
        let known = session.as_ref().and_then(|session| self.sessions.get_mut(session));
        if let Some(known) = known.filter(|_| method == "session/load" || replay_from.is_some()) {
            known.on_replay_requested(self.agent.from);
        }
        let value = match what {
            ResultKind::Prompt => params.get("prompt"),
            ResultKind::SetMode => params.get("modeId"),
            ResultKind::SetModeOption => params.get("value"),
            ResultKind::Initialize
            | ResultKind::Session
            | ResultKind::SetOption
            | ResultKind::Permission
            | ResultKind::Elicitation
            | ResultKind::Delete
            | ResultKind::Same
            | ResultKind::Dropped => None,
        };
        let request = PendingRequest { what, session: session.clone(), value: value.cloned() };
        // A response to a request that is not tracked (too many, or an id in use) is handled like one of an unknown
        // request.
        let _ = self.client_requests.register(id.clone(), request);
        if let (ResultKind::Prompt, Some(session), Some(content)) = (what, session, value)
            && let Ok((known, mut out)) = self.session(&session, out)
        {
            known.on_prompt(id, content, &mut out);
        }
    }

    /// The transcript of the session in the params.
    pub(super) fn transcript_of(&self, params: &Object) -> Option<&Transcript> {
        Some(&self.sessions.get(&session_in(params)?)?.transcript)
    }

    /// Handles the client's response to a request of the agent.
    pub(super) fn client_response(
        &mut self,
        message: &Message<'_>,
        request: &PendingRequest,
        outcome: Outcome<'_>,
        out: &mut Output,
    ) {
        if request.what == ResultKind::Dropped {
            return;
        }
        let to_v1 = matches!(self.client, Way { from: Dialect::V2 | Dialect::Draft, to: Dialect::V1 });
        let result = result_of(outcome).filter(|_| to_v1).and_then(|result| match request.what {
            ResultKind::Permission => Some(permission::result_to_v1(&result, &mut out.losses)),
            ResultKind::Elicitation => Some(permission::elicitation_result_to_v1(&result, &mut out.losses)),
            ResultKind::Initialize
            | ResultKind::Session
            | ResultKind::SetOption
            | ResultKind::SetMode
            | ResultKind::SetModeOption
            | ResultKind::Prompt
            | ResultKind::Delete
            | ResultKind::Same
            | ResultKind::Dropped => None,
        });
        match result.map(|result| result.to_json()) {
            Some(result) => out.say(Side::Client, envelope(message, None, &[("result", result.as_str())])),
            None => out.say(Side::Client, message.text().to_owned()),
        }
        let blocks = matches!(request.what, ResultKind::Permission | ResultKind::Elicitation);
        if let Some(session) = request.session.as_ref().filter(|_| blocks)
            && self.sessions.contains_key(session)
            && let Ok((known, mut out)) = self.session(session, out)
        {
            known.turns.unblock(&mut out);
        }
    }
}

impl Output {
    /// Responds to a request whose id is in use.
    fn id_in_use(&mut self, id: &RequestId) {
        let error = RpcError::new(code::INVALID_REQUEST, "another request with this id has no answer yet");
        self.say(Side::Agent, write::error_response(id, &error));
    }
}
