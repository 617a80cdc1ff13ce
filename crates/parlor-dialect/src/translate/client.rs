//! What a client asks, and what it answers.

use parlor_json::{Json, JsonStr, Object, Type};
use parlor_session::{SessionId, Slot};
use parlor_wire::{Message, Outcome, RequestId, RpcError, code, write};
use serde_json::value::RawValue;

use super::{Mode, Output, Translator, Way, envelope, result_of, session_of};
use crate::encode::v1::Features;
use crate::fold::fresh_id;
use crate::values::{blocks, capabilities, mcp, options, permission};
use crate::{Dialect, LossKind, Side, shape};

/// The option that stands for the modes of a v1 agent, unless the agent has one of its own.
const MODE: &str = "mode";

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) what: What,
    /// The session it is about, where its params say so.
    pub(super) session: Option<SessionId>,
    /// The prompt, or the value that a mode is set to.
    pub(super) value: Option<Json>,
}

/// What kind of answer a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Capabilities.
    Initialize,
    /// A session with its options.
    Session,
    /// Nothing, after a session was deleted.
    Delete,
    /// Options after one was set.
    SetOption,
    /// Nothing, after a v1 client set a mode.
    SetMode,
    /// Nothing, after a v2 client set the option that stands for a v1 agent's modes.
    SetModeOption,
    /// The end of a turn, or its beginning.
    Prompt,
    /// A person's decision.
    Permission,
    /// What a person filled in.
    Elicitation,
    /// The same in all versions.
    Same,
    /// None that the other side hears: it was answered here.
    Dropped,
}

/// A request as the other side knows it.
struct Request {
    method: &'static str,
    what: What,
    params: Object,
}

impl Translator {
    pub(super) fn client_request(
        &mut self,
        message: &Message<'_>,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
        out: &mut Output,
    ) {
        let way = self.client;
        let given = params.and_then(|params| Object::parse(params).ok());
        let request = match (way.from, way.to) {
            (Dialect::V1, Dialect::V2 | Dialect::Draft) => self.request_for_v2(method, given.clone(), out),
            (Dialect::V2 | Dialect::Draft, Dialect::V1) => self.request_for_v1(method, given.clone(), out),
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
        if self.mode == Mode::Relay && self.client_asked.is_open(id) {
            return out.id_in_use(id);
        }
        match request {
            Some(Request { method, params, .. }) => {
                let params = params.to_json();
                out.say(Side::Client, envelope(message, Some(method), &[("params", params.as_str())]));
            }
            None => out.say(Side::Client, message.text().to_owned()),
        }
        if self.mode.hears_both() {
            self.client_asks(id, method, what, &given.unwrap_or_default(), out);
        }
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
        let _ = self.client_asked.begin(id.clone(), asked);
        if let (What::Prompt, Some(session), Some(content)) = (what, session, value)
            && let Ok(known) = session_of(&mut self.sessions, &session, self.agent)
        {
            known.decoder.turn_boundary();
            known.stale.clear();
            let spare = fresh_id(&known.transcript, "parlor", &mut self.named);
            known.turn.prompted(id, content.clone(), spare, self.agent, &mut out.turn(&session));
        }
    }

    /// A v1 client's request to a v2 agent; `None` if it is the same.
    fn request_for_v2(
        &self,
        method: &str,
        params: Option<Object>,
        out: &mut Output,
    ) -> Result<Option<Request>, Unsayable> {
        if method.starts_with("proxy/") {
            return Err(out.cannot(LossKind::Method));
        }
        let Some(params) = params else { return Ok(None) };
        let request = |method, what, params| Ok(Some(Request { method, what, params }));
        match method {
            "initialize" => {
                let mut params = capabilities::client_to_v2(&params, &mut out.losses);
                mark_dialect(&mut params, self.client.to);
                request("initialize", What::Initialize, params)
            }
            "authenticate" => request("auth/login", What::Same, params),
            "logout" => request("auth/logout", What::Same, params),
            "session/new" => request("session/new", What::Session, with_servers(params, mcp::to_v2, out)),
            "session/resume" => {
                request("session/resume", What::Session, with_servers(params, mcp::to_v2, out))
            }
            "session/fork" => request("session/fork", What::Session, with_servers(params, mcp::to_v2, out)),
            "session/load" => {
                let mut params = with_servers(params, mcp::to_v2, out);
                params.set("replayFrom", shape::json(r#"{"type":"start"}"#));
                request("session/resume", What::Session, params)
            }
            "session/set_mode" => {
                let option = session_in(&params).and_then(|session| self.mode_option(&session));
                let option = option.and_then(|option| shape::text(&option, "configId"));
                let mut params = shape::renamed(&params, "modeId", "value");
                params.set("configId", shape::string(option.as_deref().unwrap_or(MODE)));
                params.set("type", shape::string("id"));
                request("session/set_config_option", What::SetMode, params)
            }
            "session/set_config_option" => {
                let is_boolean = self.is_boolean(&params);
                request("session/set_config_option", What::SetOption, options::set_to_v2(&params, is_boolean))
            }
            "session/prompt" if params.get("prompt").is_some_and(|prompt| prompt.as_str() == "[]") => {
                Err(out.cannot(LossKind::EmptyList))
            }
            _ => Ok(None),
        }
    }

    /// A v2 client's request to a v1 agent; `None` if it is the same.
    fn request_for_v1(
        &self,
        method: &str,
        params: Option<Object>,
        out: &mut Output,
    ) -> Result<Option<Request>, Unsayable> {
        if matches!(method, "tool_call/cancel" | "terminal/cancel") || method.starts_with("proxy/") {
            return Err(out.cannot(LossKind::Method));
        }
        let Some(mut params) = params else { return Ok(None) };
        let request = |method, what, params| Ok(Some(Request { method, what, params }));
        match method {
            "initialize" => {
                let mut params = capabilities::client_to_v1(&params);
                mark_dialect(&mut params, Dialect::V1);
                request("initialize", What::Initialize, params)
            }
            "auth/login" => request("authenticate", What::Same, params),
            "auth/logout" => request("logout", What::Same, params),
            "session/new" => request("session/new", What::Session, session_for_v1(params, out)),
            "session/fork" => request("session/fork", What::Session, session_for_v1(params, out)),
            "session/prompt" => {
                if let Some(prompt) = params.get("prompt").cloned() {
                    params.set("prompt", blocks::list_to_v1(&prompt, &mut out.losses));
                }
                request("session/prompt", What::Prompt, params)
            }
            "session/resume" => {
                let from = params.remove("replayFrom").filter(|from| !from.is_null());
                let params = session_for_v1(params, out);
                let Some(from) = from else { return request("session/resume", What::Session, params) };
                let is_start = shape::object(&from).and_then(|from| shape::text(&from, "type"));
                if is_start.as_deref() != Some("start") {
                    out.losses.add(LossKind::ReplayFrom);
                }
                request("session/load", What::Session, params)
            }
            "session/set_config_option" if self.is_made_mode(&params) => {
                params.remove("configId");
                params.remove("type");
                let params = shape::renamed(&params, "value", "modeId");
                request("session/set_mode", What::SetModeOption, params)
            }
            "session/set_config_option" => match options::set_to_v1(&params, &mut out.losses) {
                Some(params) => request("session/set_config_option", What::SetOption, params),
                None => Err(Unsayable(LossKind::OptionValue)),
            },
            _ => Ok(None),
        }
    }

    /// The option of a session by which its mode is set.
    fn mode_option(&self, session: &SessionId) -> Option<Object> {
        let options = self.sessions.get(session)?.transcript.slot(Slot::Options)?;
        options::mode_option(options.fields.get("configOptions")?)
    }

    /// Whether params set an option that is a boolean on the agent's side.
    fn is_boolean(&self, params: &Object) -> bool {
        let option = || {
            let options = self.sessions.get(&session_in(params)?)?.transcript.slot(Slot::Options)?;
            let list = parlor_json::elements(options.fields.get("configOptions")?.raw())?;
            let wanted = shape::text(params, "configId")?;
            let options = list.into_iter().filter_map(|option| Object::parse(option).ok());
            options.into_iter().find(|option| shape::text(option, "configId").as_ref() == Some(&wanted))
        };
        option().is_some_and(|option| shape::text(&option, "type").as_deref() == Some("boolean"))
    }

    /// Whether params set the option that was made of a v1 agent's modes.
    fn is_made_mode(&self, params: &Object) -> bool {
        let session = session_in(params).and_then(|session| self.sessions.get(&session));
        let Some(transcript) = session.map(|session| &session.transcript) else { return false };
        let has_modes = transcript.slot(Slot::Mode).is_some();
        let options = transcript.slot(Slot::Options).and_then(|options| options.fields.get("configOptions"));
        let own = options.and_then(options::mode_option);
        let sets_mode = shape::text(params, "configId").as_deref() == Some(MODE);
        has_modes && own.is_none() && sets_mode && shape::is(params, "value", Type::String)
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

/// A request cannot be said in the other version; the loss was reported.
pub(super) struct Unsayable(pub(super) LossKind);

impl Output {
    /// Answers a client that asks twice by one id.
    fn id_in_use(&mut self, id: &RequestId) {
        let error = RpcError::new(code::INVALID_REQUEST, "another request with this id has no answer yet");
        self.say(Side::Agent, write::error_response(id, &error));
    }

    /// Reports a loss that leaves nothing to say.
    pub(super) fn cannot(&mut self, loss: LossKind) -> Unsayable {
        self.losses.add(loss);
        Unsayable(loss)
    }
}

/// What kind of answer a request gets that needs no translation.
fn same_in_all(method: &str) -> What {
    match method {
        "initialize" => What::Initialize,
        "session/new" | "session/load" | "session/resume" | "session/fork" => What::Session,
        "session/prompt" => What::Prompt,
        "session/delete" => What::Delete,
        "session/set_config_option" => What::SetOption,
        _ => What::Same,
    }
}

/// Between v2 and its draft, only the mark by which the draft is chosen differs in what a client asks.
fn same_version(method: &str, params: Option<Object>, to: Dialect) -> Option<Request> {
    let mut params = params.filter(|_| method == "initialize")?;
    mark_dialect(&mut params, to);
    Some(Request { method: "initialize", what: What::Initialize, params })
}

pub(super) fn session_in(params: &Object) -> Option<SessionId> {
    JsonStr::from_raw(params.get("sessionId")?.raw()).map(SessionId::from)
}

fn with_servers(
    mut params: Object,
    convert: fn(&Json, &mut crate::Losses) -> Json,
    out: &mut Output,
) -> Object {
    if let Some(servers) = params.get("mcpServers").cloned() {
        params.set("mcpServers", convert(&servers, &mut out.losses));
    }
    params
}

/// The params of a request for a session, as v1 has them: the list of servers must be there, and a system prompt
/// has blocks of its own.
fn session_for_v1(params: Object, out: &mut Output) -> Object {
    let mut params = with_servers(params, mcp::to_v1, out);
    if params.get("mcpServers").is_none() {
        params.set("mcpServers", shape::json("[]"));
    }
    shape::within(&mut params, "systemPrompt", |mut prompt| {
        if let Some(content) = prompt.get("content").cloned() {
            prompt.set("content", blocks::list_to_v1(&content, &mut out.losses));
        }
        prompt
    });
    params
}

/// The draft is chosen by a mark in the metadata; the published versions have none.
fn mark_dialect(params: &mut Object, dialect: Dialect) {
    shape::take_note(params, Dialect::MARK);
    if dialect == Dialect::Draft {
        shape::note(params, Dialect::MARK, shape::string(dialect.name()));
    }
}
