//! Runs an [`Opening`] with a script of events, and prints what comes of it.
//!
//! The line of an event is its time in milliseconds, its name and its arguments. The lines of the actions that follow it are
//! indented; `until` is the deadline where it changed. What comes before a line `...` is run and not printed.

use core::fmt::Write as _;
use core::time::Duration;
use std::sync::Arc;

use parlor_dialect::settings::{Setting, Settings};
use parlor_dialect::{Dialect, Losses, live};
use parlor_json::{Json, Object};
use parlor_session::session::{Input, Session, Step};
use parlor_session::{IdSource, SessionId, Transcript, UnixMillis};
use parlor_wire::{RequestId, RpcError};

use super::{
    AgentSession, EarlyMessage, History, Opening, OpeningAction, OpeningError, OpeningEvent, OpeningOutput,
    OpeningPlan, RestorePlan, RestoreSource, StartupLimit,
};
use crate::SessionData;
use crate::rows::SessionRow;
use crate::{AgentEpoch, AgentInfo, Now};

/// The agent's session in all scripts.
pub(super) const SESSION: &str = "s";

/// An agent of version 1 with these capabilities: `load`, or any of a session.
pub(super) fn v1(capabilities: &[&str]) -> AgentInfo {
    let session = capabilities.iter().filter(|name| **name != "load").map(|name| format!(r#""{name}":{{}}"#));
    let session: Vec<_> = session.collect();
    let load = capabilities.contains(&"load");
    let initialize = format!(
        r#"{{"agentCapabilities":{{"loadSession":{load},"sessionCapabilities":{{{}}}}}}}"#,
        session.join(",")
    );
    agent(Dialect::V1, &initialize)
}

/// An agent of version 2.
pub(super) fn v2() -> AgentInfo {
    agent(Dialect::V2, "{}")
}

fn agent(dialect: Dialect, initialize: &str) -> AgentInfo {
    AgentInfo {
        name: "a".to_owned(),
        label: "a".to_owned(),
        dialect,
        initialize: object(initialize),
        is_embedded: false,
    }
}

pub(super) fn object(text: &str) -> Object {
    Json::parse(text).unwrap().to_object().unwrap_or_default()
}

/// The conversation of all scripts: a prompt and an answer.
pub(super) fn history() -> Arc<History> {
    let mut session = Session::new(Transcript::default(), live::HOOKS, None);
    let decoder = parlor_dialect::Decoder::new(Dialect::V2);
    for (role, id, text) in [("user", "u1", "hi there"), ("agent", "a1", "Hello.")] {
        let update = format!(
            r#"{{"sessionUpdate":"{role}_message","messageId":"{id}","content":[{{"type":"text","text":"{text}"}}]}}"#
        );
        let decoded = decoder.decode(Json::parse(update).unwrap().raw(), &mut || "none".into()).unwrap();
        let input = Input::AgentUpdate(decoded.update, IdSource::Given);
        session.step(input, UnixMillis::default(), &mut || "none".into(), &mut Step::default());
    }
    History::of(&session)
}

/// Settings with this mode.
pub(super) fn mode(mode: &str) -> Settings {
    let mut settings = Settings::default();
    settings.want(&Setting::Mode, &Json::from(mode));
    settings
}

/// A plan to restore the session with these settings.
pub(super) fn restore(agent: &AgentInfo, settings: &Settings) -> OpeningPlan {
    restore_with(agent, Some(SESSION), settings, "{}")
}

/// The same for a session that has this id at the agent, and these stored data.
pub(super) fn restore_with(
    agent: &AgentInfo,
    agent_session: Option<&str>,
    settings: &Settings,
    data: &str,
) -> OpeningPlan {
    let agent_session = agent_session.map(SessionId::from);
    let row = SessionRow { data: data.to_owned(), ..SessionRow::default() };
    let data = SessionData::of(&row);
    let stored = RestoreSource {
        session: &"ours".into(),
        agent_session: agent_session.as_ref(),
        cwd: "/",
        data: &data,
    };
    let plan = RestorePlan::new(stored, settings, &history(), agent.dialect, &mut Losses::default());
    OpeningPlan::Restore(plan.unwrap())
}

/// An opening with a startup timeout of 30 seconds.
pub(super) struct Script {
    dialect: Dialect,
    opening: Opening,
    deadline: Option<Duration>,
    printed: String,
}

pub(super) fn script(agent: AgentInfo, plan: OpeningPlan) -> Script {
    let timeout = Duration::from_secs(30);
    let dialect = agent.dialect;
    let (opening, output) = Opening::start(plan, &Arc::new(agent), StartupLimit { timeout, until: timeout });
    let mut script = Script { dialect, opening, deadline: None, printed: "start\n".to_owned() };
    script.print(&output);
    script
}

impl Script {
    /// Runs the events of a text and compares what is printed with the text.
    pub(super) fn check(self, text: &str) {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let least = lines.iter().map(|line| indent(line)).min().unwrap();
        let lines: Vec<_> = lines.into_iter().map(|line| &line[least..]).collect();
        let first = lines.iter().position(|line| *line == "...").map_or(0, |place| place + 1);
        let expected: String = lines[first..].iter().map(|line| format!("{line}\n")).collect();
        let printed = self.run(lines.iter().filter(|line| indent(line) == 0 && **line != "start"));
        assert!(printed == expected, "printed:\n{printed}\nexpected:\n{expected}");
    }

    /// Runs events, one a line, and gives what is printed.
    pub(super) fn run<L: AsRef<str>>(mut self, events: impl IntoIterator<Item = L>) -> String {
        for line in events {
            let line = line.as_ref();
            if line == "..." {
                self.printed.clear();
                continue;
            }
            let (at, event) = line.split_once(' ').unwrap();
            let (name, argument) = event.split_once(' ').unwrap_or((event, ""));
            let time =
                Now { monotonic: Duration::from_millis(at.parse().unwrap()), wall: UnixMillis::default() };
            let output = self.opening.handle(self::event(self.dialect, name, argument), time);
            writeln!(self.printed, "{line}").unwrap();
            self.print(&output);
        }
        self.printed
    }

    fn print(&mut self, output: &OpeningOutput) {
        for action in &output.actions {
            print_action(action, &mut self.printed);
        }
        if let Some(deadline) = output.deadline.filter(|deadline| Some(*deadline) != self.deadline) {
            writeln!(self.printed, "    until {}", deadline.as_millis()).unwrap();
        }
        self.deadline = output.deadline;
    }
}

fn event(dialect: Dialect, name: &str, argument: &str) -> OpeningEvent {
    let error = |message: &str| RpcError::new(-32603, message);
    let id = |id: &str| RequestId::from(id.parse::<u64>().unwrap());
    match name {
        "closed" => OpeningEvent::Closed { open_since: argument.parse().ok().map(AgentEpoch) },
        "routed" => OpeningEvent::RouteSet,
        "route_failed" => OpeningEvent::RouteFailed(error(argument)),
        "result" => OpeningEvent::Response(Ok(Json::parse(argument).unwrap())),
        "error" => {
            let (code, message) = argument.split_once(' ').unwrap();
            let error = RpcError::new(code.parse().unwrap(), message);
            OpeningEvent::Response(Err(error.to_json()))
        }
        "call_failed" => OpeningEvent::CallFailed(error(argument)),
        "listed" if argument == "nothing" => OpeningEvent::Listed(None),
        "listed" => OpeningEvent::Listed(Some(argument.split_whitespace().map(Into::into).collect())),
        "cancelled" => OpeningEvent::Cancelled,
        "gone" => OpeningEvent::AgentGone(error(argument)),
        "timeout" => OpeningEvent::Timeout { awaits_person: argument == "person" },
        "request" => OpeningEvent::Message(EarlyMessage::Request {
            id: id(argument),
            method: "session/request_permission".to_owned(),
            params: Object::default(),
        }),
        "unrequest" => OpeningEvent::Message(EarlyMessage::RequestCancelled(id(argument))),
        "note" => OpeningEvent::Message(EarlyMessage::Notification(argument.to_owned())),
        _ => OpeningEvent::Message(EarlyMessage::Updates(update(dialect, name, argument))),
    }
}

/// The line of an update.
fn update(dialect: Dialect, name: &str, argument: &str) -> String {
    let chunk = |kind: &str| {
        let id = if dialect == Dialect::V1 { String::new() } else { format!(r#""messageId":"{kind}","#) };
        let text = Json::from(argument);
        format!(
            r#"{{"sessionUpdate":"{kind}_chunk",{id}"content":{{"type":"text","text":{}}}}}"#,
            text.as_str()
        )
    };
    let update = match name {
        "user" => chunk("user_message"),
        "agent" => chunk("agent_message"),
        "thought" => chunk("agent_thought"),
        "tool" => format!(r#"{{"sessionUpdate":"tool_call","toolCallId":"{argument}","title":"t"}}"#),
        "mode" => format!(r#"{{"sessionUpdate":"current_mode_update","currentModeId":"{argument}"}}"#),
        "title" => format!(r#"{{"sessionUpdate":"session_info_update","title":"{argument}"}}"#),
        "replayed" => {
            let meta = r#"{"jetbrains":{"air":{"loadReplayEnd":true}}}"#;
            format!(r#"{{"sessionUpdate":"session_info_update","_meta":{meta}}}"#)
        }
        "state" => format!(r#"{{"sessionUpdate":"state_update","state":"{argument}"}}"#),
        "commands" => r#"{"sessionUpdate":"available_commands_update","availableCommands":[]}"#.to_owned(),
        "bad" => r#"{"sessionUpdate":"agent_message_chunk"}"#.to_owned(),
        other => panic!("{other} is not an event"),
    };
    live::update_line(&SESSION.into(), &update, None)
}

fn print_action(action: &OpeningAction, printed: &mut String) {
    let line = match action {
        OpeningAction::AwaitClosed(session) => format!("await close of {session}"),
        OpeningAction::SetRoute { session, epoch, drops_early } => {
            let epoch = epoch.map_or(String::new(), |epoch| format!(" as {}", epoch.0));
            format!("route {session}{epoch}{}", if *drops_early { ", drop early updates" } else { "" })
        }
        OpeningAction::RemoveRoute => "remove route".to_owned(),
        OpeningAction::Call { method, params, creates } => {
            format!("call {method} {}{}", params.to_json().as_str(), if *creates { ", creates" } else { "" })
        }
        OpeningAction::CancelCall => "cancel call".to_owned(),
        OpeningAction::List => "list".to_owned(),
        OpeningAction::Reject { id, error } => {
            format!("reject {}: {} {}", id.as_literal(), error.code(), error.message())
        }
        OpeningAction::Done(session) => return print_session(session, printed),
        OpeningAction::Failed(OpeningError::Rpc(error)) => {
            let data = error.data().map_or(String::new(), |data| format!(" {}", data.as_str()));
            format!("failed: {} {}{data}", error.code(), error.message())
        }
        OpeningAction::Failed(OpeningError::Late(method)) => format!("failed: no response to {method}"),
    };
    writeln!(printed, "    {line}").unwrap();
}

fn print_session(done: &AgentSession, printed: &mut String) {
    writeln!(printed, "    done {} {}", done.session, done.result.to_json().as_str()).unwrap();
    let mut add = |line: String| writeln!(printed, "        {line}").unwrap();
    if let Some(mode) = done.settings.get(&Setting::Mode) {
        add(format!("mode {}", mode.as_str()));
    }
    if let Some(refused) = &done.refused {
        add(format!("refused {} {}", refused.to_json().as_str(), refused.error.message()));
    }
    if done.without_history {
        add("without history".to_owned());
    }
    if let Some(lost) = &done.lost {
        add(format!("lost: {lost}"));
    }
    for lines in &done.replay {
        add(format!("replay: {}", short(lines)));
    }
    for message in &done.early {
        add(match message {
            EarlyMessage::Updates(lines) => format!("early: {}", short(lines)),
            EarlyMessage::Request { id, .. } => format!("early: request {}", id.as_literal()),
            EarlyMessage::RequestCancelled(id) => format!("early: unrequest {}", id.as_literal()),
            EarlyMessage::Notification(line) => format!("early: note {line}"),
        });
    }
    if done.dropped > 0 {
        add(format!("dropped {}", done.dropped));
    }
}

/// What lines of updates say.
fn short(lines: &str) -> String {
    let say = |line: &str| {
        let params = object(line).get_object("params").unwrap();
        let update = params.get_object("update").unwrap();
        let kind = update.get_string("sessionUpdate").unwrap();
        let text = update.get_object("content").and_then(|content| content.get_string("text"));
        let more = text.or_else(|| update.get_string("state")).or_else(|| update.get_string("title"));
        more.map_or(kind.clone(), |more| format!("{kind} {more}"))
    };
    lines.lines().map(say).collect::<Vec<_>>().join(" | ")
}

/// The JSON of a list of modes, with the one in force.
pub(super) fn modes(current: &str, available: &[&str]) -> Json {
    let available = available.iter().map(|mode| Object::new().with("id", *mode).with("name", *mode));
    Object::new().with("currentModeId", current).with("availableModes", Json::array(available)).to_json()
}
