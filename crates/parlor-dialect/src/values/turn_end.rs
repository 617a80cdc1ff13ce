//! The end of a turn: the response to a v1 prompt, and the idle state of v2.

use parlor_json::{Json, JsonStr, Object, Type};
use parlor_session::{Activity, MessageId, State};
use parlor_wire::{Outcome, RpcError, code};

use crate::{LossKind, Losses, json_ext};

/// The metadata key that marks token counts as those of one turn or of the session: v1 and v2 differ.
pub(crate) const USAGE: &str = "parlor/usage";

/// The metadata key for the message id in the response to a v1 prompt.
pub(crate) const MESSAGE: &str = "parlor/messageId";

/// The state that the response to a v1 prompt stands for, and the id of the prompt's message in it.
pub(crate) fn idle_and_message(outcome: Outcome<'_>) -> (State, Option<MessageId>) {
    let mut state = idle(outcome);
    let named = state.meta.as_mut().and_then(|meta| meta.remove(MESSAGE));
    if state.meta.as_ref().is_some_and(Object::is_empty) {
        state.meta = None;
    }
    (state, named.and_then(|id| id.to_json_str()).map(MessageId::from))
}

/// The state that the response to a v1 prompt stands for.
pub(crate) fn idle(outcome: Outcome<'_>) -> State {
    let (mut fields, stop_reason) = match outcome {
        Outcome::Result(result) => {
            let mut fields = Object::parse(result).unwrap_or_default();
            let reason = fields.remove("stopReason").and_then(|reason| reason.to_json_str());
            (fields, reason)
        }
        Outcome::Error(error) => {
            let mut fields = Object::default();
            fields.set("error", error);
            (fields, Some("error".into()))
        }
    };
    if fields.get("usage").is_some_and(Json::is_null) {
        fields.remove("usage");
    }
    // v1 counts over the whole session, unless the count came from v2.
    if fields.remove_nested("_meta", USAGE).is_none() && fields.get("usage").is_some() {
        fields.set_nested("_meta", USAGE, "session");
    }
    let meta = fields.remove("_meta").and_then(|meta| meta.to_object());
    State { activity: Activity::Idle, stop_reason, fields, meta }
}

/// The result of a v1 prompt whose turn ends with this state. `accepted` has the members of the agent's response to
/// the prompt.
pub(crate) fn v1_result(
    state: &State,
    accepted: Option<&Object>,
    losses: &mut Losses,
) -> Result<Object, RpcError> {
    let reason = state.stop_reason.as_ref().map(JsonStr::to_text);
    if reason.as_deref() == Some("error") {
        return Err(failed_turn(state, losses));
    }
    let known = match reason.as_deref() {
        Some(known @ ("end_turn" | "max_tokens" | "max_turn_requests" | "refusal" | "cancelled")) => known,
        Some(_) | None => {
            losses.add(LossKind::StopReason);
            "end_turn"
        }
    };
    let mut result = Object::default();
    result.set("stopReason", known);
    result.add_missing(&state.fields);
    if let Some(meta) = &state.meta {
        result.set("_meta", meta.to_json());
    }
    // v2 counts the turn that ended, unless the count came from v1.
    if result.get("usage").is_some() && result.remove_nested("_meta", USAGE).is_none() {
        result.set_nested("_meta", USAGE, "turn");
    }
    let mut accepted = accepted.cloned().unwrap_or_default();
    accepted.remove("messageId");
    result.add_missing(&accepted);
    Ok(result)
}

/// The error response to a v1 prompt. The other members of the state go into its data.
fn failed_turn(state: &State, losses: &mut Losses) -> RpcError {
    let mut rest = state.fields.clone();
    let error = rest.remove("error").and_then(|error| error.to_object()).unwrap_or_default();
    if let Some(meta) = &state.meta {
        rest.set("_meta", meta.to_json());
    }
    let is_whole =
        json_ext::is(&error, "code", Type::Number) && json_ext::is(&error, "message", Type::String);
    let has_data = error.get("data").is_some();
    let converted = if is_whole {
        RpcError::from_raw(error.to_json().raw())
    } else {
        let message = error.get_string("message");
        RpcError::new(code::INTERNAL_ERROR, message.as_deref().unwrap_or("the turn ended with an error"))
    };
    match (rest.is_empty(), has_data) {
        (true, _) => converted,
        (false, false) => converted.with_data(rest.to_json()),
        (false, true) => {
            losses.add(LossKind::State);
            converted
        }
    }
}
