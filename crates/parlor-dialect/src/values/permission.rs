//! Permission requests and elicitations of an agent, and their results.

use parlor_json::{Json, Object, Type};

use crate::json_ext;
use crate::{LossKind, Losses};

/// Converts the tool call inside a permission request to the other version.
pub(crate) type ConvertToolCall<'a> = &'a mut dyn FnMut(&Object, &mut Losses) -> Object;

/// Converts a v1 permission request to v2.
///
/// v2 requires a title: that of the tool call in the request, else that of the tool call in the transcript, else a
/// default. A request that was converted from v2 gets its title and subject back.
pub(crate) fn request_to_v2(
    params: &Object,
    known_title: Option<&str>,
    convert_tool_call: ConvertToolCall<'_>,
    losses: &mut Losses,
) -> Object {
    let Some(mut call) = params.get_object("toolCall") else { return params.clone() };
    let mut converted = params.clone();
    let asked =
        converted.remove_nested("_meta", REQUEST).and_then(|asked| asked.to_object()).unwrap_or_default();
    if let Some(title) = asked.get("title").filter(|title| call.get("title") == Some(*title)) {
        // The tool call had no title, and was given this one by the conversion to v1.
        converted.set("title", title.clone());
        call.remove("title");
    }
    for (name, value) in asked.iter() {
        converted.set(name.clone(), value.clone());
    }
    let params = &converted.clone();
    if !json_ext::is(params, "title", Type::String) {
        let title = call.get("title").filter(|title| title.type_of() == Type::String).cloned();
        converted.set("title", title.unwrap_or_else(|| Json::from(known_title.unwrap_or("Permission"))));
    }
    let subject = params.get_object("subject").unwrap_or_default();
    match subject.get_string("type").as_deref() {
        // The tool call was generated for this subject, or for none.
        Some(type_) if type_ != "tool_call" => drop(converted.remove("toolCall")),
        None if json_ext::is(params, "subject", Type::Null) => {
            converted.remove("toolCall");
            converted.remove("subject");
        }
        known => {
            let mut asked = Object::default();
            asked.set("type", "tool_call");
            if known.is_some() {
                asked = subject;
            }
            asked.set("toolCall", convert_tool_call(&call, losses).to_json());
            converted = json_ext::renamed(&converted, "toolCall", "subject");
            converted.remove("toolCall");
            converted.set("subject", asked.to_json());
        }
    }
    converted
}

/// Converts a v2 permission request to v1.
///
/// v1 has permission requests only for tool calls. For any other subject a tool call is generated, with the id of the
/// subject or else `generated_id`. The title becomes that of the tool call if it has none; all else that v1 lacks goes
/// into the metadata.
pub(crate) fn request_to_v1(
    params: &Object,
    generated_id: &str,
    convert_tool_call: ConvertToolCall<'_>,
    losses: &mut Losses,
) -> Object {
    let mut converted = params.clone();
    json_ext::each_in(&mut converted, "options", |option| Some(option_to_v1(option, losses)));
    if params.get("toolCall").is_some() {
        return converted;
    }

    let mut subject = params.get_object("subject");
    let asked = subject.as_mut().filter(|s| s.get_str("type").as_deref() == Some("tool_call"));
    let asked = asked.and_then(|subject| Some((subject.get_object("toolCall")?, subject)));
    let (mut call, extra) = if let Some((call, subject)) = asked {
        subject.remove("toolCall");
        subject.remove("type");
        // Converting back generates the plain subject; only its other members must be kept.
        let extra = (!subject.is_empty()).then(|| json_ext::in_front(subject, "type", "tool_call").to_json());
        (convert_tool_call(&call, losses), extra)
    } else {
        losses.add(LossKind::PermissionSubject);
        let call = generated_call(params, &subject.unwrap_or_default(), generated_id);
        (call, Some(params.get("subject").cloned().unwrap_or_else(Json::null)))
    };

    let mut asked = Object::default();
    if let Some(title) = converted.remove("title").filter(|title| call.get("title") != Some(title)) {
        if call.get("title").is_none_or(Json::is_null) {
            call.set("title", title.clone());
        }
        asked.set("title", title);
    }
    if let Some(description) = converted.remove("description") {
        asked.set("description", description);
    }
    if let Some(extra) = extra {
        asked.set("subject", extra);
    }
    converted = json_ext::renamed(&converted, "subject", "toolCall");
    converted.set("toolCall", call.to_json());
    if !asked.is_empty() {
        converted.set_nested("_meta", REQUEST, asked.to_json());
    }
    converted
}

/// The metadata key for the root members of a v2 request: title, description and subject.
const REQUEST: &str = "parlor/permission";

/// A tool call for a permission request about something else. It shows everything that the user needs for a decision.
fn generated_call(params: &Object, subject: &Object, generated_id: &str) -> Object {
    let id = subject.get("toolCallId").filter(|id| id.type_of() == Type::String).cloned();
    let is_command = subject.get_str("type").as_deref() == Some("command");
    let mut call = Object::default();
    call.set("toolCallId", id.unwrap_or_else(|| Json::from(generated_id)));
    if let Some(title) = params.get("title") {
        call.set("title", title.clone());
    }
    call.set("kind", if is_command { "execute" } else { "other" });
    if is_command {
        let mut input = Object::default();
        for name in ["command", "cwd"] {
            if let Some(value) = subject.get(name) {
                input.set(name, value.clone());
            }
        }
        call.set("rawInput", input.to_json());
    }
    if let Some(description) = params.get("description").filter(|text| text.type_of() == Type::String) {
        let block = Object::new().with("type", "text").with("text", description.clone());
        let item = Object::new().with("type", "content").with("content", block);
        call.set("content", Json::array([item.to_json()]));
    }
    call
}

fn option_to_v1(mut option: Object, losses: &mut Losses) -> Object {
    let known = ["allow_once", "allow_always", "reject_once", "reject_always"];
    if option.get_string("kind").is_some_and(|kind| !known.contains(&kind.as_str())) {
        option.set("kind", "reject_once");
        losses.add(LossKind::PermissionOptionKind);
    }
    option
}

/// Converts a v2 client's permission result to v1. v1 results are valid in v2.
///
/// An unknown outcome is not an approval, so that it becomes `cancelled`.
pub(crate) fn result_to_v1(result: &Object, losses: &mut Losses) -> Object {
    let mut result = result.clone();
    json_ext::within(&mut result, "outcome", |mut outcome| {
        let kind = outcome.get_string("outcome");
        if kind.is_some_and(|kind| kind != "cancelled" && kind != "selected") {
            outcome.set("outcome", "cancelled");
            losses.add(LossKind::PermissionOutcome);
        }
        outcome
    });
    result
}

/// The metadata key for a string format that v1 cannot parse.
const FORMAT: &str = "parlor/format";

/// Converts a v1 elicitation to v2, where a form's schema must have a type and properties.
///
/// `None` if it is about a request without an id, which v2 cannot express.
pub(crate) fn elicitation_to_v2(params: &Object, losses: &mut Losses) -> Option<Object> {
    let mut params = params.clone();
    if params.get("requestId").is_some_and(Json::is_null) {
        losses.add(LossKind::NullId);
        return None;
    }
    if params.get_str("mode").as_deref() == Some("form") {
        json_ext::within(&mut params, "requestedSchema", |mut schema| {
            if schema.get("type").is_none() {
                schema = json_ext::in_front(&schema, "type", "object");
            }
            if schema.get("properties").is_none() {
                schema.set("properties", Object::new());
            }
            each_property(&mut schema, |property| {
                if let Some(format) = property.remove_nested("_meta", FORMAT) {
                    property.set("format", format);
                }
            });
            without_empty_lists(&mut schema, losses);
            schema
        });
    }
    Some(params)
}

/// Removes empty lists of choices, which v2 does not allow. A single choice becomes free text, a multiple choice is
/// removed.
fn without_empty_lists(schema: &mut Object, losses: &mut Losses) {
    let is_empty = |holder: &Object, name: &str| holder.get(name).is_some_and(|list| list.as_str() == "[]");
    let lists = ["enum", "oneOf", "anyOf"];
    let properties = schema.get_object("properties").unwrap_or_default();
    let mut kept = Object::default();
    for (name, value) in properties.iter() {
        let Some(mut property) = value.to_object() else {
            kept.set(name.clone(), value.clone());
            continue;
        };
        let items = property.get_object("items").unwrap_or_default();
        if lists.iter().any(|list| is_empty(&items, list)) {
            losses.add(LossKind::EmptyList);
            continue;
        }
        for list in lists {
            if is_empty(&property, list) {
                property.remove(list);
                losses.add(LossKind::EmptyList);
            }
        }
        kept.set(name.clone(), property.to_json());
    }
    if kept != properties {
        schema.set("properties", kept.to_json());
    }
}

/// Converts a v2 elicitation to v1; `None` if its mode does not exist in v1.
///
/// A string's format is advisory in v2, but v1 rejects unknown formats.
pub(crate) fn elicitation_to_v1(params: &Object, losses: &mut Losses) -> Option<Object> {
    let mut params = params.clone();
    match params.get_string("mode").as_deref() {
        Some("form") => json_ext::within(&mut params, "requestedSchema", |mut schema| {
            each_property(&mut schema, |property| {
                let known = ["email", "uri", "date", "date-time"];
                if property.get_str("type").as_deref() == Some("string")
                    && property.get_string("format").is_some_and(|f| !known.contains(&f.as_str()))
                    && let Some(format) = property.remove("format")
                {
                    property.set_nested("_meta", FORMAT, format);
                }
            });
            schema
        }),
        Some("url") | None => (),
        Some(_) => {
            losses.add(LossKind::ElicitationMode);
            return None;
        }
    }
    Some(params)
}

fn each_property(schema: &mut Object, mut change: impl FnMut(&mut Object)) {
    json_ext::within(schema, "properties", |properties| {
        let changed = properties.iter().map(|(name, property)| match property.to_object() {
            Some(old) => {
                let mut new = old.clone();
                change(&mut new);
                (name.clone(), if new == old { property.clone() } else { new.to_json() })
            }
            None => (name.clone(), property.clone()),
        });
        changed.collect()
    });
}

/// Converts a v2 client's elicitation result to v1. v1 results are valid in v2.
///
/// v2 results may have values of any shape, which a v1 agent cannot parse. A null is a field that was not filled in,
/// which v1 omits.
pub(crate) fn elicitation_result_to_v1(result: &Object, losses: &mut Losses) -> Object {
    let mut result = result.clone();
    let known = match result.get_string("action").as_deref() {
        Some("decline" | "cancel") | None => true,
        Some("accept") => match result.get_object("content") {
            Some(content) => {
                let filled = content.iter().filter(|(_, value)| !value.is_null());
                let filled = filled.map(|(name, value)| (name.clone(), value.clone())).collect::<Object>();
                let parses = filled.iter().all(|(_, value)| is_plain(value));
                if filled != content {
                    result.set("content", filled.to_json());
                }
                parses
            }
            None => true,
        },
        Some(_) => false,
    };
    if !known {
        result.set("action", "cancel");
        result.remove("content");
        losses.add(LossKind::ElicitationAction);
    }
    result
}

/// Whether v1 allows such values in an elicitation result.
fn is_plain(value: &Json) -> bool {
    match value.type_of() {
        Type::String | Type::Number | Type::Bool => true,
        Type::Array => {
            value.elements().is_some_and(|list| list.into_iter().all(|text| text.type_of() == Type::String))
        }
        Type::Null | Type::Object => false,
    }
}

/// Replaces the request id (as JSON) in an elicitation that is about a request by the receiver's id.
pub fn with_request_id(params: &Object, id: &Json) -> Object {
    let mut params = params.clone();
    if params.get("requestId").is_some() {
        params.set("requestId", id.clone());
    }
    params
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;
    use crate::values::check;

    /// Replaces the conversion of tool calls, which has its own tests.
    fn as_it_is(call: &Object, _: &mut Losses) -> Object {
        call.clone()
    }

    fn ask_v2(v1_text: &str, known_title: Option<&str>) -> Json {
        let mut losses = Losses::default();
        let converted = request_to_v2(&check::object(v1_text), known_title, &mut as_it_is, &mut losses);
        assert_eq!(losses, Losses::default());
        converted.to_json()
    }

    fn ask_v1(v2_text: &str) -> (Json, Vec<&'static str>) {
        let mut losses = Losses::default();
        let converted = request_to_v1(&check::object(v2_text), "made", &mut as_it_is, &mut losses);
        (converted.to_json(), check::names(losses))
    }

    const OPTIONS: &str = r#""options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]"#;

    #[test]
    fn tool_calls_go_both_ways() {
        for (v1_text, known_title, v2_text) in [
            (
                r#"{"sessionId":"s","toolCall":{"toolCallId":"c","title":"Run it"},OPTIONS,"_meta":{"k":1}}"#,
                Some("other"),
                r#"{"sessionId":"s","title":"Run it","subject":{"type":"tool_call",
                    "toolCall":{"toolCallId":"c","title":"Run it"}},OPTIONS,"_meta":{"k":1}}"#,
            ),
            (
                r#"{"sessionId":"s","toolCall":{"toolCallId":"c","title":"Edit a file"},OPTIONS,
                    "_meta":{"parlor/permission":{"title":"Edit a file"}}}"#,
                Some("other"),
                r#"{"sessionId":"s","title":"Edit a file","subject":{"type":"tool_call",
                    "toolCall":{"toolCallId":"c"}},OPTIONS}"#,
            ),
            (
                r#"{"sessionId":"s","toolCall":{"toolCallId":"c","title":"T"},OPTIONS,
                    "_meta":{"parlor/permission":{"title":"May I?","description":"d",
                    "subject":{"type":"tool_call","_meta":{"k":1}}}}}"#,
                None,
                r#"{"sessionId":"s","title":"May I?","description":"d","subject":{"type":"tool_call",
                    "toolCall":{"toolCallId":"c","title":"T"},"_meta":{"k":1}},OPTIONS}"#,
            ),
        ] {
            let (v1_text, v2_text) =
                (v1_text.replace("OPTIONS", OPTIONS), v2_text.replace("OPTIONS", OPTIONS));
            let converted = ask_v2(&v1_text, known_title);
            check::same(&converted, &v2_text);
            check::parses::<v2::RequestPermissionRequest>(&converted, &[]);
            assert_eq!(ask_v2(converted.as_str(), None), converted, "already converted");

            let (back, lost) = ask_v1(converted.as_str());
            check::same(&back, &v1_text);
            check::parses::<v1::RequestPermissionRequest>(&back, &[]);
            assert_eq!(ask_v1(back.as_str()).0, back, "already converted");
            assert_eq!(lost, [""; 0]);
        }
    }

    #[test]
    fn a_title_is_found() {
        for (call, known, title) in [
            (r#"{"toolCallId":"c","title":null}"#, Some("Known"), "Known"),
            (r#"{"toolCallId":"c"}"#, None, "Permission"),
        ] {
            let params = format!(r#"{{"sessionId":"s","toolCall":{call},{OPTIONS}}}"#);
            let converted: serde_json::Value = serde_json::from_str(ask_v2(&params, known).as_str()).unwrap();
            assert_eq!(converted["title"], title);
        }
    }

    #[test]
    fn other_subjects_get_a_tool_call_and_survive_a_round_trip() {
        for (v2_text, v1_text) in [
            (
                r#"{"sessionId":"s","title":"Run","description":"why","subject":{"type":"command",
                    "command":"ls","cwd":"/w","toolCallId":"c"},OPTIONS}"#,
                r#"{"sessionId":"s","toolCall":{"toolCallId":"c","title":"Run",
                    "kind":"execute","rawInput":{"command":"ls","cwd":"/w"},
                    "content":[{"type":"content","content":{"type":"text","text":"why"}}]},OPTIONS,
                    "_meta":{"parlor/permission":{"description":"why",
                    "subject":{"type":"command","command":"ls","cwd":"/w","toolCallId":"c"}}}}"#,
            ),
            (
                r#"{"sessionId":"s","title":"Go on?",OPTIONS}"#,
                r#"{"sessionId":"s","toolCall":{"toolCallId":"made","title":"Go on?","kind":"other"},OPTIONS,
                    "_meta":{"parlor/permission":{"subject":null}}}"#,
            ),
            (
                r#"{"sessionId":"s","title":"Pay","subject":{"type":"_payment","cents":1},OPTIONS}"#,
                r#"{"sessionId":"s","toolCall":{"toolCallId":"made","title":"Pay","kind":"other"},OPTIONS,
                    "_meta":{"parlor/permission":{"subject":{"type":"_payment","cents":1}}}}"#,
            ),
        ] {
            let (v1_text, v2_text) =
                (v1_text.replace("OPTIONS", OPTIONS), v2_text.replace("OPTIONS", OPTIONS));
            check::parses::<v2::RequestPermissionRequest>(&check::json(&v2_text), &[]);
            let (converted, lost) = ask_v1(&v2_text);
            check::same(&converted, &v1_text);
            check::parses::<v1::RequestPermissionRequest>(&converted, &[]);
            assert_eq!(lost, ["permission_subject"]);
            check::same(&ask_v2(converted.as_str(), None), &v2_text);
        }
    }

    #[test]
    fn an_unknown_kind_of_option_becomes_a_rejection() {
        let (converted, lost) = ask_v1(
            r#"{"sessionId":"s","title":"T","subject":{"type":"tool_call","toolCall":{"toolCallId":"c"}},
                "options":[{"optionId":"a","name":"A","kind":"_ask_boss"},{"optionId":"b","name":"B","kind":"allow_once"}]}"#,
        );
        check::parses::<v1::RequestPermissionRequest>(&converted, &[]);
        assert!(converted.as_str().contains(r#"{"optionId":"a","name":"A","kind":"reject_once"}"#));
        assert_eq!(lost, ["permission_option_kind"]);
    }

    #[test]
    fn malformed_requests_pass() {
        for text in ["{}", r#"{"toolCall":3,"options":{}}"#] {
            assert_eq!(ask_v2(text, None).as_str(), text);
        }
        assert_eq!(ask_v1(r#"{"toolCall":3,"options":{}}"#).0.as_str(), r#"{"toolCall":3,"options":{}}"#);
    }

    #[test]
    fn outcomes() {
        for (v2_text, v1_text, lost) in [
            (r#"{"outcome":{"outcome":"cancelled"}}"#, r#"{"outcome":{"outcome":"cancelled"}}"#, &[][..]),
            (
                r#"{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"k":1}}"#,
                r#"{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"k":1}}"#,
                &[],
            ),
            (
                r#"{"outcome":{"outcome":"_later","_meta":{"k":1}}}"#,
                r#"{"outcome":{"outcome":"cancelled","_meta":{"k":1}}}"#,
                &["permission_outcome"],
            ),
            (r#"{"outcome":3}"#, r#"{"outcome":3}"#, &[]),
        ] {
            let mut losses = Losses::default();
            let converted = result_to_v1(&check::object(v2_text), &mut losses).to_json();
            assert_eq!(converted.as_str(), v1_text);
            assert_eq!(check::names(losses), lost);
            if !v1_text.contains('3') {
                serde_json::from_str::<v1::RequestPermissionResponse>(v1_text).unwrap();
            }
        }
    }

    #[test]
    fn elicitations_go_both_ways() {
        for (v1_text, v2_text) in [
            (
                r#"{"sessionId":"s","mode":"form","message":"m","requestedSchema":{"properties":{}}}"#,
                r#"{"sessionId":"s","mode":"form","message":"m",
                    "requestedSchema":{"type":"object","properties":{}}}"#,
            ),
            (
                r#"{"requestId":7,"mode":"url","message":"m","elicitationId":"e","url":"https://e"}"#,
                r#"{"requestId":7,"mode":"url","message":"m","elicitationId":"e","url":"https://e"}"#,
            ),
        ] {
            let converted = elicitation_to_v2(&check::object(v1_text), &mut Losses::default()).unwrap();
            check::same(&converted.to_json(), v2_text);
            check::parses::<v2::CreateElicitationRequest>(&converted.to_json(), &[]);
            let mut losses = Losses::default();
            let back = elicitation_to_v1(&converted, &mut losses).unwrap();
            assert_eq!(back, converted);
            check::parses::<v1::CreateElicitationRequest>(&back.to_json(), &[]);
            assert_eq!(losses, Losses::default());
        }
        let unsayable = r#"{"sessionId":"s","mode":"_voice","message":"m"}"#;
        serde_json::from_str::<v2::CreateElicitationRequest>(unsayable).unwrap();
        let mut losses = Losses::default();
        assert_eq!(elicitation_to_v1(&check::object(unsayable), &mut losses), None);
        assert_eq!(check::names(losses), ["elicitation_mode"]);
    }

    #[test]
    fn formats_that_v1_cannot_parse_are_kept_aside() {
        let form = |phone: &str| {
            format!(
                r#"{{"sessionId":"s","mode":"form","message":"m","requestedSchema":{{"type":"object","properties":{{
                    "mail":{{"type":"string","format":"email"}},"phone":{phone},"n":{{"type":"integer"}}}}}}}}"#
            )
        };
        let v2_text = form(r#"{"type":"string","format":"phone"}"#);
        let v1_text = form(r#"{"type":"string","_meta":{"parlor/format":"phone"}}"#);
        check::parses::<v2::CreateElicitationRequest>(&check::json(&v2_text), &[]);
        let mut losses = Losses::default();
        let converted = elicitation_to_v1(&check::object(&v2_text), &mut losses).unwrap();
        check::same(&converted.to_json(), &v1_text);
        check::parses::<v1::CreateElicitationRequest>(&converted.to_json(), &[]);
        check::same(&elicitation_to_v2(&converted, &mut Losses::default()).unwrap().to_json(), &v2_text);
        assert_eq!(losses, Losses::default());
    }

    #[test]
    fn answers_to_elicitations() {
        for (v2_text, v1_text, lost) in [
            (r#"{"action":"decline"}"#, r#"{"action":"decline"}"#, &[][..]),
            (
                r#"{"action":"accept","content":{"a":"x","n":1.5,"b":true,"l":["x"],"none":null}}"#,
                r#"{"action":"accept","content":{"a":"x","n":1.5,"b":true,"l":["x"]}}"#,
                &[],
            ),
            (
                r#"{"action":"accept","content":{"where":{"lat":1}},"_meta":{"k":1}}"#,
                r#"{"action":"cancel","_meta":{"k":1}}"#,
                &["elicitation_action"],
            ),
            (r#"{"action":"_later"}"#, r#"{"action":"cancel"}"#, &["elicitation_action"]),
        ] {
            serde_json::from_str::<v2::CreateElicitationResponse>(v2_text).unwrap();
            let mut losses = Losses::default();
            let converted = elicitation_result_to_v1(&check::object(v2_text), &mut losses).to_json();
            assert_eq!(converted.as_str(), v1_text);
            check::parses::<v1::CreateElicitationResponse>(&converted, &[]);
            assert_eq!(check::names(losses), lost);
        }
    }

    #[test]
    fn the_request_that_an_elicitation_is_about_is_renamed() {
        let about = check::object(r#"{"requestId":7,"mode":"url"}"#);
        assert_eq!(
            with_request_id(&about, &check::json("\"a-1\"")).to_json().as_str(),
            r#"{"requestId":"a-1","mode":"url"}"#
        );
        let other = check::object(r#"{"sessionId":"s","mode":"url"}"#);
        assert_eq!(with_request_id(&other, &check::json("1")), other);
    }
}
