//! `initialize`: identity, capabilities and authentication methods of the peers.
//!
//! v1 has most capabilities as booleans, v2 as objects that are present or not. v1 lists the session methods of an
//! agent; v2 requires listing, resuming and closing. Members that only one version has stay in the other as unknown
//! fields, so that they can be converted back.

use parlor_json::{Json, Object, Type};

use crate::json_ext;
use crate::{LossKind, Losses};

/// The members of a v1 agent's session methods, which v2 requires. If a v1 agent has only some of them, v2's
/// `session` carries these, and the presence of any means that the others are missing.
const MARKERS: [&str; 4] = ["load", "list", "resume", "close"];

const PROMPT: [&str; 3] = ["image", "audio", "embeddedContext"];
const MCP: [&str; 3] = ["http", "sse", "acp"];

/// Converts the params of a v1 client's `initialize` to v2.
pub(crate) fn client_to_v2(params: &Object, losses: &mut Losses) -> Object {
    let params = with_info(params, "clientInfo", losses);
    let mut params = json_ext::renamed(&params, "clientCapabilities", "capabilities");
    json_ext::within(&mut params, "capabilities", |mut capabilities| {
        json_ext::within(&mut capabilities, "auth", |auth| flags_to_objects(auth, &["terminal"]));
        capabilities
    });
    params
}

/// Converts the params of a v2 client's `initialize` to v1.
pub(crate) fn client_to_v1(params: &Object) -> Object {
    let params = without_generated_info(params, "clientInfo");
    let mut params = json_ext::renamed(&params, "capabilities", "clientCapabilities");
    json_ext::within(&mut params, "clientCapabilities", |mut capabilities| {
        without_null(&mut capabilities, "auth");
        json_ext::within(&mut capabilities, "auth", |auth| objects_to_flags(auth, &["terminal"]));
        capabilities
    });
    params
}

/// Converts the result of a v1 agent's `initialize` to v2.
pub(crate) fn agent_to_v2(result: &Object, losses: &mut Losses) -> Object {
    let mut result = with_info(result, "agentInfo", losses);
    if result.get("capabilities").is_none() {
        let offers_login = offers_login(&result);
        let v1 = result.get("agentCapabilities");
        let converted = match v1.filter(|v1| !v1.is_null()).map(Json::to_object) {
            Some(None) => None,
            Some(Some(v1)) => Some(agent_capabilities_to_v2(v1, offers_login, losses)),
            // A v1 agent without capabilities still has sessions.
            None => Some(agent_capabilities_to_v2(Object::default(), offers_login, losses)),
        };
        result = json_ext::renamed(&result, "agentCapabilities", "capabilities");
        if let Some(converted) = converted {
            result.set("capabilities", converted.to_json());
        }
    }
    json_ext::each_in(&mut result, "authMethods", |method| Some(auth_method_to_v2(&method)));
    result
}

/// Converts the result of a v2 agent's `initialize` to v1.
pub(crate) fn agent_to_v1(result: &Object, losses: &mut Losses) -> Object {
    let mut result = without_generated_info(result, "agentInfo");
    if result.get("agentCapabilities").is_none() {
        let offers_login = offers_login(&result);
        result = json_ext::renamed(&result, "capabilities", "agentCapabilities");
        if result.get("agentCapabilities").is_none() {
            result.set("agentCapabilities", Object::new());
        }
        json_ext::within(&mut result, "agentCapabilities", |v2| {
            agent_capabilities_to_v1(v2, offers_login, losses)
        });
    }
    json_ext::each_in(&mut result, "authMethods", |method| Some(auth_method_to_v1(&method, losses)));
    result
}

/// Adds a name and a version, which v2 requires.
fn with_info(message: &Object, v1_name: &str, losses: &mut Losses) -> Object {
    let mut message = json_ext::renamed(message, v1_name, "info");
    message.set("protocolVersion", 2_u64);
    if message.get("info").is_none_or(Json::is_null) {
        message.set("info", made_info());
        losses.add(LossKind::InfoMade);
    }
    let made = made_info();
    json_ext::within(&mut message, "info", |mut info| {
        let missing: Vec<_> = made.iter().filter(|(name, _)| info.get_key(name).is_none()).collect();
        if !missing.is_empty() {
            losses.add(LossKind::InfoMade);
        }
        for (name, value) in missing {
            info.set(name.clone(), value.clone());
        }
        info
    });
    message
}

/// Removes a name and a version that were added for v2.
fn without_generated_info(message: &Object, v1_name: &str) -> Object {
    let mut message = json_ext::renamed(message, "info", v1_name);
    message.set("protocolVersion", 1_u64);
    if message.get(v1_name) == Some(&made_info().to_json()) {
        message.remove(v1_name);
    }
    message
}

fn made_info() -> Object {
    Object::new().with("name", "unknown").with("version", "0.0.0")
}

/// Whether an agent has authentication methods: in v2 it then supports both login and logout.
fn offers_login(result: &Object) -> bool {
    let methods = result.get_array("authMethods");
    methods.is_some_and(|methods| !methods.is_empty())
}

fn agent_capabilities_to_v2(mut v1: Object, offers_login: bool, losses: &mut Losses) -> Object {
    let mut session = v1.get_object("session").unwrap_or_default();
    for (name, value) in v1.get_object("sessionCapabilities").unwrap_or_default().iter() {
        session.set(name.clone(), value.clone());
    }
    let loads = v1.get_bool("loadSession") == Some(true);
    mark_methods(&mut session, &mut v1, loads, offers_login, losses);

    if let Some(prompt) = v1.get("promptCapabilities").filter(|prompt| !prompt.is_null()) {
        session.set("prompt", prompt.clone());
        json_ext::within(&mut session, "prompt", |prompt| flags_to_objects(prompt, &PROMPT));
    }
    let mut mcp = flags_to_objects(v1.get_object("mcpCapabilities").unwrap_or_default(), &MCP);
    if mcp.get("stdio").is_none() {
        let stdio = mcp.remove_nested("_meta", &note_of("stdio")).unwrap_or_else(|| Object::new().to_json());
        mcp = json_ext::in_front(&mcp, "stdio", stdio);
    }
    session.set("mcp", mcp.to_json());

    // `session` replaces the first of the members that it contains.
    let went = ["loadSession", "promptCapabilities", "mcpCapabilities", "sessionCapabilities"];
    let first = v1.iter().find_map(|(name, _)| went.into_iter().find(|went| *name == **went));
    let mut v2 = first.map_or_else(|| v1.clone(), |first| json_ext::renamed(&v1, first, "session"));
    for name in went {
        v2.remove(name);
    }
    v2.set("session", session.to_json());
    v2
}

/// Marks in v2's `session` which session methods a v1 agent has, unless it has all that v2 requires.
fn mark_methods(session: &mut Object, v1: &mut Object, loads: bool, offers_login: bool, losses: &mut Losses) {
    let has = |name| json_ext::is(session, name, Type::Object);
    if !(has("list") && has("close") && (has("resume") || loads)) {
        losses.add(LossKind::CapabilityBaseline);
    }
    let plain = |holder: &Object, name| holder.get(name) == Some(&Object::new().to_json());
    let mut auth = v1.get_object("auth").unwrap_or_default();
    let logs_out = !offers_login || plain(&auth, "logout");
    if loads && logs_out && MARKERS[1..].iter().all(|name| plain(session, name)) {
        for name in &MARKERS[1..] {
            session.remove(name);
        }
        if offers_login {
            auth.remove("logout");
            if auth.is_empty() {
                v1.remove("auth");
            } else {
                v1.set("auth", auth.to_json());
            }
        }
    } else if loads {
        session.set("load", Object::new());
    } else if MARKERS.iter().all(|name| session.get(name).is_none()) {
        // Without any marker, converting back would add all methods.
        session.set("load", Json::null());
    }
}

fn agent_capabilities_to_v1(mut v2: Object, offers_login: bool, losses: &mut Losses) -> Object {
    without_null(&mut v2, "auth");
    let Some(mut session) = v2.get_object("session") else {
        // v1 requires sessions.
        losses.add(LossKind::NoSessions);
        return v2;
    };
    let from_v1 = MARKERS.iter().any(|name| session.get(name).is_some());
    let loads = !from_v1 || json_ext::is(&session, "load", Type::Object);
    session.remove("load");
    if !from_v1 {
        for name in &MARKERS[1..] {
            session.set(*name, Object::new());
        }
    }
    let mut converted = Object::default();
    if loads {
        converted.set("loadSession", true);
    }
    if let Some(prompt) = session.remove("prompt").filter(|prompt| !prompt.is_null()) {
        converted.set("promptCapabilities", prompt);
        json_ext::within(&mut converted, "promptCapabilities", |prompt| objects_to_flags(prompt, &PROMPT));
    }
    let mcp = session.remove("mcp").and_then(|mcp| mcp.to_object()).unwrap_or_default();
    let mut mcp = objects_to_flags(mcp, &MCP);
    match mcp.remove("stdio").filter(|stdio| stdio.type_of() == Type::Object) {
        // v1 requires that an agent can start MCP servers.
        None => losses.add(LossKind::McpStdio),
        Some(stdio) if stdio != Object::new().to_json() => mcp.set_nested("_meta", &note_of("stdio"), stdio),
        Some(_) => (),
    }
    if !mcp.is_empty() {
        converted.set("mcpCapabilities", mcp.to_json());
    }
    if !session.is_empty() {
        converted.set("sessionCapabilities", session.to_json());
    }

    let mut v1 = Object::default();
    for (name, value) in v2.iter() {
        if *name == *"session" {
            converted.iter().for_each(|(name, value)| v1.set(name.clone(), value.clone()));
        } else {
            v1.set(name.clone(), value.clone());
        }
    }
    if offers_login && !from_v1 {
        let mut auth = v1.get_object("auth").unwrap_or_default();
        if auth.get("logout").is_none() {
            auth.set("logout", Object::new());
            v1.set("auth", auth.to_json());
        }
    }
    v1
}

/// Converts v1's booleans to v2's objects; a missing one is false in both.
fn flags_to_objects(mut level: Object, names: &[&str]) -> Object {
    for name in names {
        match level.get(name).map(Json::as_str) {
            Some("true") => {
                let kept = level.remove_nested("_meta", &note_of(name));
                level.set(*name, kept.unwrap_or_else(|| Object::new().to_json()));
            }
            Some("false") => drop(level.remove(name)),
            Some(_) | None => (),
        }
    }
    level
}

/// Removes a null, which v1 expresses by omission.
fn without_null(level: &mut Object, name: &str) {
    if level.get(name).is_some_and(Json::is_null) {
        level.remove(name);
    }
}

/// Converts v2's objects to v1's booleans. The members of an object are kept in the metadata.
fn objects_to_flags(mut level: Object, names: &[&str]) -> Object {
    for name in names {
        let Some(value) = level.get(name).cloned() else { continue };
        match value.type_of() {
            Type::Object => {
                if value.to_object().is_some_and(|value| !value.is_empty()) {
                    level.set_nested("_meta", &note_of(name), value);
                }
                level.set(*name, true);
            }
            Type::Null => drop(level.remove(name)),
            Type::Bool | Type::Number | Type::String | Type::Array => (),
        }
    }
    level
}

fn note_of(name: &str) -> String {
    format!("parlor/{name}")
}

fn auth_method_to_v2(method: &Object) -> Object {
    let mut method = json_ext::renamed(method, "id", "methodId");
    if method.get("type").is_none_or(Json::is_null) {
        method = json_ext::in_front(&method, "type", "agent");
    }
    if method.get_str("type").as_deref() == Some("terminal")
        && let Some(env) = method.get_object("env")
    {
        let variables = env.iter().map(|(name, value)| {
            let mut variable = Object::default();
            variable.set("name", name);
            variable.set("value", value.clone());
            variable.to_json()
        });
        let list = Json::array(variables.collect::<Vec<_>>());
        let kept = method.remove_nested("_meta", &note_of("env"));
        method.set("env", kept.unwrap_or(list));
    }
    method
}

fn auth_method_to_v1(method: &Object, losses: &mut Losses) -> Object {
    let mut method = json_ext::renamed(method, "methodId", "id");
    match method.get_string("type").as_deref() {
        Some("agent") => drop(method.remove("type")),
        Some("terminal") => env_to_v1(&mut method),
        None => (),
        Some(_) => {
            method.remove("type");
            losses.add(LossKind::AuthMethodType);
        }
    }
    method
}

/// Converts the environment to an object for v1. A list with more than an object can hold is kept in the metadata.
fn env_to_v1(method: &mut Object) {
    let Some(list) = method.get("env").filter(|env| env.type_of() == Type::Array).cloned() else { return };
    let mut env = Object::default();
    let mut says_more = false;
    for variable in list.elements().unwrap_or_default() {
        let Ok(variable) = Object::parse(variable) else { return };
        let name = variable.get_json_str("name");
        let (Some(name), Some(value)) = (name, variable.get("value")) else { return };
        says_more |= variable.iter().count() > 2 || env.get_key(&name).is_some();
        env.set(name, value.clone());
    }
    method.set("env", env.to_json());
    if says_more {
        method.set_nested("_meta", &note_of("env"), list);
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;
    use crate::values::check;

    #[test]
    fn clients_go_both_ways() {
        for (v1_text, v2_text, unknown) in [
            (
                r#"{"protocolVersion":1,"clientInfo":{"name":"c","version":"1"},"clientCapabilities":{}}"#,
                r#"{"protocolVersion":2,"info":{"name":"c","version":"1"},"capabilities":{}}"#,
                &[][..],
            ),
            (
                r#"{"protocolVersion":1,"clientInfo":{"name":"c","title":"C","version":"1"},
                    "clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":false},"terminal":true,
                    "session":{"notices":{}},"plan":{},"subagents":{},"auth":{"terminal":true,"_meta":{"k":1}},
                    "elicitation":{"form":{}},"_meta":{"k":2}},"_meta":{"k":3}}"#,
                r#"{"protocolVersion":2,"info":{"name":"c","title":"C","version":"1"},
                    "capabilities":{"fs":{"readTextFile":true,"writeTextFile":false},"terminal":true,
                    "session":{"notices":{}},"plan":{},"subagents":{},"auth":{"terminal":{},"_meta":{"k":1}},
                    "elicitation":{"form":{}},"_meta":{"k":2}},"_meta":{"k":3}}"#,
                &["fs", "plan", "session", "subagents", "terminal"],
            ),
            (
                r#"{"protocolVersion":1,"clientInfo":{"name":"c","version":"1"},
                    "clientCapabilities":{"auth":{"terminal":true,"_meta":{"parlor/terminal":{"_meta":{"a":1}}}}}}"#,
                r#"{"protocolVersion":2,"info":{"name":"c","version":"1"},
                    "capabilities":{"auth":{"terminal":{"_meta":{"a":1}}}}}"#,
                &[],
            ),
        ] {
            let v1_params = check::object(v1_text);
            check::parses::<v1::InitializeRequest>(&v1_params.to_json(), &[]);
            let mut losses = Losses::default();
            let converted = client_to_v2(&v1_params, &mut losses);
            check::same(&converted.to_json(), v2_text);
            let unknown: Vec<_> = unknown.iter().map(|name| format!("capabilities.{name}")).collect();
            let unknown: Vec<_> = unknown.iter().map(String::as_str).collect();
            check::parses::<v2::InitializeRequest>(&converted.to_json(), &unknown);
            assert_eq!(client_to_v2(&converted, &mut losses), converted, "already converted");
            assert_eq!(losses, Losses::default());

            let back = client_to_v1(&converted);
            check::same(&back.to_json(), v1_text);
            assert_eq!(client_to_v1(&back), back, "already converted");
            assert_eq!(client_to_v2(&back, &mut losses), converted);
        }
    }

    #[test]
    fn a_missing_name_is_generated_and_removed_again() {
        for (v1_text, info, back) in [
            (
                r#"{"protocolVersion":1}"#,
                r#"{"name":"unknown","version":"0.0.0"}"#,
                r#"{"protocolVersion":1}"#,
            ),
            (
                r#"{"protocolVersion":1,"clientInfo":{"name":"c"}}"#,
                r#"{"name":"c","version":"0.0.0"}"#,
                r#"{"protocolVersion":1,"clientInfo":{"name":"c","version":"0.0.0"}}"#,
            ),
        ] {
            let mut losses = Losses::default();
            let converted = client_to_v2(&check::object(v1_text), &mut losses);
            check::same(converted.get("info").unwrap(), info);
            check::parses::<v2::InitializeRequest>(&converted.to_json(), &[]);
            assert_eq!(check::names(losses), ["info_made"]);
            check::same(&client_to_v1(&converted).to_json(), back);
        }
    }

    #[test]
    fn false_capabilities_are_left_out() {
        let mut losses = Losses::default();
        let client = r#"{"protocolVersion":1,"clientInfo":{"name":"c","version":"1"},
            "clientCapabilities":{"auth":{"terminal":false}}}"#;
        let converted = client_to_v2(&check::object(client), &mut losses);
        check::same(converted.get("capabilities").unwrap(), r#"{"auth":{}}"#);
        let agent = agent(
            r#"{"loadSession":true,"promptCapabilities":{"image":false,"audio":true},
                "mcpCapabilities":{"http":false,"sse":false},"sessionCapabilities":{"list":{},"resume":{},"close":{}}}"#,
            "[]",
        );
        let converted = agent_to_v2(&check::object(&agent), &mut losses);
        check::same(
            converted.get("capabilities").unwrap(),
            r#"{"session":{"prompt":{"audio":{}},"mcp":{"stdio":{}}}}"#,
        );
        let typed = |text: &str| serde_json::from_str::<v1::InitializeResponse>(text).unwrap();
        let back = agent_to_v1(&converted, &mut losses).to_json();
        assert_eq!(typed(back.as_str()), typed(&agent));
        assert_eq!(losses, Losses::default());
    }

    fn agent(capabilities: &str, methods: &str) -> String {
        format!(
            r#"{{"protocolVersion":1,"agentInfo":{{"name":"a","version":"1"}},
                "agentCapabilities":{capabilities},"authMethods":{methods}}}"#
        )
    }

    fn agent_v2(capabilities: &str, methods: &str) -> String {
        format!(
            r#"{{"protocolVersion":2,"info":{{"name":"a","version":"1"}},
                "capabilities":{capabilities},"authMethods":{methods}}}"#
        )
    }

    const METHOD_V1: &str = r#"[{"id":"m","name":"M"}]"#;
    const METHOD_V2: &str = r#"[{"type":"agent","methodId":"m","name":"M"}]"#;

    #[test]
    fn agents_go_both_ways() {
        for (v1_caps, v2_caps, methods, lost, unknown) in [
            // All methods that v2 requires, and more.
            (
                r#"{"loadSession":true,"promptCapabilities":{"image":true,"_meta":{"p":1}},
                    "mcpCapabilities":{"http":true,"sse":true,"_meta":{"m":1}},"sessionCapabilities":{"list":{},
                    "resume":{},"close":{},"fork":{"atMessageId":true},"delete":{},"own":[1e400],"_meta":{"s":1}},
                    "auth":{"logout":{}},"providers":{},"_meta":{"c":1}}"#,
                r#"{"session":{"prompt":{"image":{},"_meta":{"p":1}},
                    "mcp":{"stdio":{},"http":{},"sse":{},"_meta":{"m":1}},"fork":{"atMessageId":true},"delete":{},
                    "own":[1e400],"_meta":{"s":1}},"providers":{},"_meta":{"c":1}}"#,
                true,
                &[][..],
                None,
            ),
            // Without listing: the existing methods are marked.
            (
                r#"{"loadSession":true,"sessionCapabilities":{"resume":{},"close":{}}}"#,
                r#"{"session":{"mcp":{"stdio":{}},"load":{},"resume":{},"close":{}}}"#,
                false,
                &["capability_baseline"],
                Some(["session.close", "session.load", "session.resume"].as_slice()),
            ),
            // Load replaces resume, but is marked.
            (
                r#"{"loadSession":true,"sessionCapabilities":{"list":{"_meta":{"l":1}},"close":{}}}"#,
                r#"{"session":{"mcp":{"stdio":{}},"load":{},"list":{"_meta":{"l":1}},"close":{}}}"#,
                false,
                &[],
                Some(&["session.close", "session.list", "session.load"]),
            ),
            // Login without logout.
            (
                r#"{"loadSession":true,"sessionCapabilities":{"list":{},"resume":{},"close":{}}}"#,
                r#"{"session":{"mcp":{"stdio":{}},"load":{},"list":{},"resume":{},"close":{}}}"#,
                true,
                &[],
                Some(&["session.close", "session.list", "session.load", "session.resume"]),
            ),
            // Logout without login.
            (
                r#"{"loadSession":true,"sessionCapabilities":{"list":{},"resume":{},"close":{}},
                    "auth":{"logout":{}}}"#,
                r#"{"session":{"mcp":{"stdio":{}}},"auth":{"logout":{}}}"#,
                false,
                &[],
                Some(&["auth.logout"]),
            ),
            // No methods.
            (
                r"{}",
                r#"{"session":{"mcp":{"stdio":{}},"load":null}}"#,
                false,
                &["capability_baseline"],
                Some(&["session.load"]),
            ),
        ] {
            let (v1_methods, v2_methods) = if methods { (METHOD_V1, METHOD_V2) } else { ("[]", "[]") };
            let (v1_text, v2_text) = (agent(v1_caps, v1_methods), agent_v2(v2_caps, v2_methods));
            let mut losses = Losses::default();
            let converted = agent_to_v2(&check::object(&v1_text), &mut losses);
            same_but_for_huge_numbers(&converted.to_json(), &v2_text);
            assert_eq!(check::names(losses), lost);
            if let Some(unknown) = unknown {
                let unknown: Vec<_> = unknown.iter().map(|name| format!("capabilities.{name}")).collect();
                let unknown: Vec<_> = unknown.iter().map(String::as_str).collect();
                check::parses::<v2::InitializeResponse>(&converted.to_json(), &unknown);
            }

            let mut losses = Losses::default();
            assert_eq!(agent_to_v2(&converted, &mut losses), converted, "already converted");
            let back = agent_to_v1(&converted, &mut losses);
            same_but_for_huge_numbers(&back.to_json(), &v1_text);
            assert_eq!(agent_to_v1(&back, &mut losses), back, "already converted");
            assert_eq!(losses, Losses::default());
        }
    }

    fn same_but_for_huge_numbers(found: &Json, expected: &str) {
        assert_eq!(found.as_str().contains("1e400"), expected.contains("1e400"));
        check::same(
            &check::json(&found.as_str().replace("1e400", "\"huge\"")),
            &expected.replace("1e400", "\"huge\""),
        );
    }

    #[test]
    fn v2_agents_convert_to_v1_and_back() {
        for (v2_caps, methods, v1_caps, lost) in [
            (
                r#"{"session":{"prompt":{"embeddedContext":{},"image":{"_meta":{"max":1}}},
                    "mcp":{"stdio":{"_meta":{"x":1}},"http":{}},"delete":{},"fork":{}},
                    "auth":{"_meta":{"authStatus":{}}},"providers":{}}"#,
                METHOD_V2,
                r#"{"loadSession":true,"promptCapabilities":{"embeddedContext":true,"image":true,
                    "_meta":{"parlor/image":{"_meta":{"max":1}}}},
                    "mcpCapabilities":{"http":true,"_meta":{"parlor/stdio":{"_meta":{"x":1}}}},
                    "sessionCapabilities":{"delete":{},"fork":{},"list":{},"resume":{},"close":{}},
                    "auth":{"_meta":{"authStatus":{}},"logout":{}},"providers":{}}"#,
                &[][..],
            ),
            (
                r#"{"session":{"mcp":{"stdio":{}}}}"#,
                METHOD_V2,
                r#"{"loadSession":true,"sessionCapabilities":{"list":{},"resume":{},"close":{}},
                    "auth":{"logout":{}}}"#,
                &[],
            ),
            (
                r#"{"session":{"prompt":{}}}"#,
                "[]",
                r#"{"loadSession":true,"promptCapabilities":{},
                    "sessionCapabilities":{"list":{},"resume":{},"close":{}}}"#,
                &["mcp_stdio"],
            ),
            (r#"{"providers":{}}"#, "[]", r#"{"providers":{}}"#, &["no_sessions"]),
        ] {
            let v2_text = agent_v2(v2_caps, methods);
            check::parses::<v2::InitializeResponse>(&check::json(&v2_text), &[]);
            let mut losses = Losses::default();
            let converted = agent_to_v1(&check::object(&v2_text), &mut losses);
            check::same(converted.get("agentCapabilities").unwrap(), v1_caps);
            check::parses::<v1::InitializeResponse>(&converted.to_json(), &[]);
            assert_eq!(check::names(losses), lost);
            if lost.is_empty() {
                let mut losses = Losses::default();
                check::same(&agent_to_v2(&converted, &mut losses).to_json(), &v2_text);
                assert_eq!(losses, Losses::default());
            }
        }
    }

    #[test]
    fn ways_to_authenticate_go_both_ways() {
        for (v1_text, v2_text) in [
            (
                r#"{"id":"a","name":"A","description":"d","_meta":{"k":1}}"#,
                r#"{"type":"agent","methodId":"a","name":"A","description":"d","_meta":{"k":1}}"#,
            ),
            (
                r#"{"type":"terminal","id":"t","name":"T","args":["login"],"env":{"A":"1","B":"2"}}"#,
                r#"{"type":"terminal","methodId":"t","name":"T","args":["login"],
                    "env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]}"#,
            ),
            (
                r#"{"type":"terminal","id":"t","name":"T","env":{"A":"1"},
                    "_meta":{"parlor/env":[{"name":"A","value":"1","_meta":{}}]}}"#,
                r#"{"type":"terminal","methodId":"t","name":"T","env":[{"name":"A","value":"1","_meta":{}}]}"#,
            ),
        ] {
            check::parses::<v1::AuthMethod>(&check::json(v1_text), &[]);
            check::parses::<v2::AuthMethod>(&check::json(v2_text), &[]);
            let converted = auth_method_to_v2(&check::object(v1_text));
            check::same(&converted.to_json(), v2_text);
            assert_eq!(auth_method_to_v2(&converted), converted, "already converted");
            let mut losses = Losses::default();
            let back = auth_method_to_v1(&converted, &mut losses);
            check::same(&back.to_json(), v1_text);
            assert_eq!(auth_method_to_v1(&back, &mut losses), back, "already converted");
            assert_eq!(losses, Losses::default());
        }
        let mut losses = Losses::default();
        let other = check::object(r#"{"type":"_sso","methodId":"s","name":"S","issuer":"i"}"#);
        let converted = auth_method_to_v1(&other, &mut losses);
        assert_eq!(converted.to_json().as_str(), r#"{"id":"s","name":"S","issuer":"i"}"#);
        assert_eq!(check::names(losses), ["auth_method_type"]);
    }

    #[test]
    fn malformed_parts_pass() {
        let text = r#"{"protocolVersion":1,"agentInfo":"a","agentCapabilities":[],"authMethods":{"a":1}}"#;
        let mut losses = Losses::default();
        let converted = agent_to_v2(&check::object(text), &mut losses);
        let expected = r#"{"protocolVersion":2,"info":"a","capabilities":[],"authMethods":{"a":1}}"#;
        assert_eq!(converted.to_json().as_str(), expected);
        assert_eq!(agent_to_v1(&converted, &mut losses).to_json().as_str(), text);
        assert_eq!(losses, Losses::default());

        let text = r#"{"promptCapabilities":3,"mcpCapabilities":{"http":"yes"},"sessionCapabilities":{"list":1},
            "loadSession":"?"}"#;
        agent_to_v1(&agent_to_v2(&check::object(&agent(text, "[1]")), &mut losses), &mut losses);
    }
}
