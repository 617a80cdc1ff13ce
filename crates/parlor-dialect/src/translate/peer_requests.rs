//! Converts requests of agents for clients of another version.

use parlor_json::Object;
use parlor_session::{EntryId, Transcript};
use parlor_wire::RequestId;

use super::requests::{Inexpressible, cannot};
use crate::encode::{v1, v2};
use crate::values::permission;
use crate::{LossKind, Losses};

/// Converts a v1 agent's request for a v2 client; `None` if it is the same.
pub(crate) fn request_to_v2(
    method: &str,
    params: Option<Object>,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<Option<Object>, Inexpressible> {
    if ["fs/", "terminal/", "proxy/"].iter().any(|prefix| method.starts_with(prefix)) {
        return Err(cannot(LossKind::Method, losses));
    }
    let Some(params) = params else { return Ok(None) };
    match method {
        "session/request_permission" => {
            if params.get("options").is_some_and(|options| options.as_str() == "[]") {
                return Err(cannot(LossKind::EmptyList, losses));
            }
            let known = known_title(&params, transcript);
            let mut convert = |call: &Object, _: &mut Losses| v2::tool_call(call);
            let params = permission::request_to_v2(&params, known.as_deref(), &mut convert, losses);
            Ok(Some(params))
        }
        "elicitation/create" => match permission::elicitation_to_v2(&params, losses) {
            Some(params) => Ok(Some(params)),
            None => Err(Inexpressible(LossKind::NullId)),
        },
        _ => Ok(None),
    }
}

/// Converts a v2 agent's request for a v1 client; `None` if it is the same.
pub(crate) fn request_to_v1(
    method: &str,
    id: &RequestId,
    params: Option<Object>,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<Option<Object>, Inexpressible> {
    if method.starts_with("proxy/") {
        return Err(cannot(LossKind::Method, losses));
    }
    let Some(params) = params else { return Ok(None) };
    match method {
        "session/request_permission" => {
            let made = format!("permission-{}", id.as_literal().trim_matches('"'));
            let mut convert = |call: &Object, losses: &mut Losses| v1::tool_call(call, transcript, losses);
            Ok(Some(permission::request_to_v1(&params, &made, &mut convert, losses)))
        }
        "elicitation/create" => match permission::elicitation_to_v1(&params, losses) {
            Some(params) => Ok(Some(params)),
            None => Err(Inexpressible(LossKind::ElicitationMode)),
        },
        _ => Ok(None),
    }
}

/// The title of the tool call that permission is requested for, from the transcript.
fn known_title(params: &Object, transcript: Option<&Transcript>) -> Option<String> {
    let call = params.get_object("toolCall")?.get_string("toolCallId")?;
    let entry = transcript?.get(&EntryId::ToolCall(call.as_str().into()))?;
    entry.body().fields.get_string("title")
}
