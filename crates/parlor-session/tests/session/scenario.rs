//! Scripts of inputs to a session, with the changes and effects of each as short text.
//!
//! Inputs: `attach 1 [waits] [forms] [observer]`, `detach 1`, `close 1`, `prompt 7 by 1 [key=K] some text`,
//! `steer 7 by 1 [key=K] some text` (in the running turn), `next 7 by 1 some text` (before queued prompts), `steered 7`, `not-steered 7`,
//! `withdraw 7 [by 1]`, `cancel [by 1] [turn]`, `dropped 7`, `ready serial|queued [without-history]`,
//! `restored serial|queued [without-history]`, `applied` (early updates), `context ENVELOPE` (handed over), `lost`,
//! `released`, `accepted 7 [ID]`, `rejected 7`, `ended 7 REASON`, `request 5 [form] [call=T]`, `answer 5 by 1`,
//! `err 5 by 1`, `leave-open 5 by 1`, `decide 5 by 1`, `cancel-request 5`, `rebuilt`, `person [TITLE]`, `restart`.
//!
//! Updates of the agent: `chunk ROLE [ID]: text` and `whole ROLE ID: text` with `image` for a block that is not text and
//! ` | ` between blocks, `null ROLE ID`, `meta ROLE ID`, `tool ID STATUS`, `starts ID`, `title T`, `notice`, `event ID`,
//! `state ACTIVITY [REASON]`. A chunk without an id is assigned one that begins with `~`.
//!
//! `fork end`, `fork after ID` and `fork before ID` show the plan of a fork.
//!
//! Results are indented: changes begin with `-`, the rest are effects and flags.

use std::fmt::Write as _;

use expect_test::Expect;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{
    Answer, Client, ClientId, DialectHooks, Effect, Envelope, Input, PeerRequestId, Point, Prompt, PromptId,
    PromptMode, PromptOutcome, PromptTiming, Reply, Scope, Session, Step, TITLE_MARK, TurnEnd,
};
use parlor_session::turns::user_message;
use parlor_session::{
    Activity, Change, Content, EntryId, EventKind, IdSource, ImplicitMessageIds, MessageId, MetaPatch, Patch,
    Role, Slot, State, Target, Transcript, UnixMillis, Update, Upsert,
};

/// Runs the inputs of a script, which are the lines that are not indented, and compares the results.
#[track_caller]
pub(crate) fn check(script: &Expect) {
    let lines = || script.data().lines().filter(|line| !line.trim().is_empty());
    let indent = |line: &str| line.len() - line.trim_start().len();
    let least = lines().map(indent).min().unwrap_or_default();
    let inputs: Vec<_> = lines().filter(|line| indent(line) == least).collect();
    script.assert_eq(&Scenario::default().run(&inputs.join("\n")));
}

/// A session, and a replica that its changes are applied to.
pub(crate) struct Scenario {
    pub(crate) session: Session,
    replica: Transcript,
    new_ids: u32,
    implicit_ids: ImplicitMessageIds,
    assigned_ids: u32,
    /// The time, which increases by one with each step.
    now: i64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self::with(Transcript::default())
    }
}

impl Scenario {
    pub(crate) fn with(transcript: Transcript) -> Self {
        Self::restored(transcript, None)
    }

    /// A session with this transcript and side state.
    pub(crate) fn restored(transcript: Transcript, side_state: Option<&Object>) -> Self {
        let replica = transcript.clone();
        Self {
            session: Session::new(transcript, HOOKS, side_state),
            replica,
            new_ids: 0,
            implicit_ids: ImplicitMessageIds::default(),
            assigned_ids: 0,
            now: 0,
        }
    }

    pub(crate) fn run(&mut self, script: &str) -> String {
        let mut results = String::new();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let _ = writeln!(results, "{line}");
            if line == "restart" {
                self.restart();
                continue;
            }
            if let Some(point) = line.strip_prefix("fork ") {
                let _ = writeln!(results, "    {}", forked(&self.session, point));
                continue;
            }
            let input = self.input(line);
            let step = self.step(input);
            show(&step, &self.session, &mut results);
        }
        results
    }

    /// Handles one input and checks that its changes are all that changed.
    pub(crate) fn step(&mut self, input: Input) -> Step {
        let mut step = Step::default();
        let id_source =
            if let Input::AgentUpdate(_, id_source) = &input { *id_source } else { IdSource::Given };
        let new_ids = &mut self.new_ids;
        let mut new_id = || {
            *new_ids += 1;
            MessageId::from(format!("new{new_ids}").as_str())
        };
        self.now += 1;
        let user_message = if let Input::AgentUpdate(update, IdSource::Assigned) = &input {
            user_message(update).cloned()
        } else {
            None
        };
        self.session.step(input, UnixMillis(self.now), &mut new_id, &mut step);
        if let Some(id) = user_message.filter(|_| step.changes.is_empty() && step.rejected.is_empty()) {
            self.implicit_ids.on_message_applied(Role::User, &id, id_source);
        }
        for change in &step.changes {
            self.implicit_ids.on_applied(change, id_source);
            self.replica.apply(change).expect("the session has applied it");
        }
        assert_eq!(&self.replica, self.session.transcript());
        step
    }

    /// Restores the session from its transcript and side state.
    pub(crate) fn restart(&mut self) {
        let side_state = self.session.side_state();
        self.session = Session::new(self.session.transcript().clone(), HOOKS, Some(&side_state));
        assert_eq!(self.session.side_state(), side_state);
    }

    pub(crate) fn input(&mut self, line: &str) -> Input {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<_> = rest.split(' ').filter(|word| !word.is_empty()).collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        let has = |word: &str| words.contains(&word);
        let by =
            || ClientId(words.iter().position(|word| *word == "by").map_or(1, |index| number(index + 1)));
        match verb {
            "attach" => {
                let id = number(0);
                let (is_driver, waits_for_turn_end, can_elicit) =
                    (!has("observer"), has("waits"), has("forms"));
                let name = words.iter().find_map(|word| word.strip_prefix("name=")).map(JsonStr::new);
                Input::Attached(ClientId(id), Client { name, is_driver, waits_for_turn_end, can_elicit })
            }
            "detach" => Input::Detached(ClientId(number(0))),
            "close" => Input::Closed(ClientId(number(0))),
            "prompt" | "steer" | "next" => {
                let timing = match verb {
                    "steer" => PromptTiming::InTurn,
                    "next" => PromptTiming::Next,
                    _ => PromptTiming::InOrder,
                };
                let key = words[3].strip_prefix("key=").map(JsonStr::new);
                let text = words[3 + usize::from(key.is_some())..].join(" ");
                let content = Json::parse(blocks(&text)).unwrap();
                let (id, by) = (PromptId(number(0)), ClientId(number(2)));
                Input::Prompted(Prompt { id, by, content, extra: Object::default(), key, timing })
            }
            "steered" => Input::Steered(PromptId(number(0))),
            "not-steered" => Input::NotSteered(PromptId(number(0))),
            "withdraw" => Input::Withdrawn { prompt: PromptId(number(0)), by: by() },
            "cancel" => {
                Input::Cancelled { by: by(), scope: if has("turn") { Scope::Turn } else { Scope::Session } }
            }
            "dropped" => {
                Input::Dropped { prompt: PromptId(number(0)), error: Json::parse(r#""dropped""#).unwrap() }
            }
            "ready" => {
                let mode = if has("serial") { PromptMode::Serial } else { PromptMode::Queued };
                Input::AgentReady { mode, without_history: has("without-history") }
            }
            "restored" => {
                let mode = if has("serial") { PromptMode::Serial } else { PromptMode::Queued };
                Input::AgentRestored { mode, without_history: has("without-history") }
            }
            "applied" => Input::EarlyUpdatesApplied,
            "context" => Input::ContextHandedOver(Envelope::new(words[0])),
            "lost" => Input::AgentLost(state("idle", Some(words.first().copied().unwrap_or("error")))),
            "released" => Input::AgentReleased,
            "accepted" => {
                let message = words.get(1).map(|id| MessageId::from(*id));
                Input::Accepted { prompt: PromptId(number(0)), message, fields: object(r#"{"field":1}"#) }
            }
            "rejected" => {
                Input::Rejected { prompt: PromptId(number(0)), error: Json::parse(r#""no""#).unwrap() }
            }
            "ended" => Input::Ended { prompt: PromptId(number(0)), state: state("idle", Some(words[1])) },
            "request" => {
                let call = words.iter().find_map(|word| word.strip_prefix("call=")).map(Into::into);
                Input::RequestOpened { peer_request: PeerRequestId(number(0)), form: has("form"), call }
            }
            "answer" | "err" | "leave-open" => {
                let value = Json::parse(format!(r#""{verb} of {}""#, words[2])).unwrap();
                let answer = match verb {
                    "answer" => Answer::Result(value),
                    "err" => Answer::Error(value),
                    _ => Answer::LeftOpen,
                };
                Input::RequestAnswered {
                    peer_request: PeerRequestId(number(0)),
                    by: ClientId(number(2)),
                    answer,
                }
            }
            "decide" => Input::RequestDecided {
                peer_request: PeerRequestId(number(0)),
                by: ClientId(number(2)),
                result: Json::parse(format!(r#""decision of {}""#, words[2])).unwrap(),
            },
            "cancel-request" => Input::RequestCancelled(PeerRequestId(number(0))),
            "rebuilt" => Input::EventOccurred(EventKind::MemoryRebuilt { reason: String::new() }),
            "person" => Input::Titled((!rest.is_empty()).then(|| JsonStr::new(rest))),
            _ => {
                let (update, id_source) = self.update(verb, rest, &words);
                Input::AgentUpdate(update, id_source)
            }
        }
    }

    /// The message that a chunk without an id belongs to.
    fn assigned(&mut self, role: &str) -> EntryId {
        let EntryId::Message(role, _) = message(role, "") else { unreachable!("it is a message") };
        let assigned_ids = &mut self.assigned_ids;
        let id = self.implicit_ids.assign(role, &mut || {
            *assigned_ids += 1;
            MessageId::from(format!("~{assigned_ids}").as_str())
        });
        EntryId::Message(role, id)
    }

    fn update(&mut self, verb: &str, rest: &str, words: &[&str]) -> (Update, IdSource) {
        match verb {
            "chunk" => {
                let (head, text) = rest.split_once(": ").expect("a text");
                let (role, id) = head.split_once(' ').map_or((head, None), |(role, id)| (role, Some(id)));
                let (entry, id_source) = match id {
                    Some(id) => (message(role, id), IdSource::Given),
                    None => (self.assigned(role), IdSource::Assigned),
                };
                let item = Json::parse(block(text)).unwrap();
                (Update::Append { entry, item, extra: None }, id_source)
            }
            "whole" => {
                let (head, text) = rest.split_once(": ").expect("a text");
                let (role, id) = head.split_once(' ').expect("an id");
                (whole(message(role, id), text), IdSource::Given)
            }
            "meta" => {
                let meta = MetaPatch::Replace(object(r#"{"k":1}"#));
                let target = Target::Entry(message(words[0], words[1]));
                let upsert = Upsert { meta, ..Upsert::default() };
                (Update::Upsert { target, upsert }, IdSource::Given)
            }
            "null" => {
                let target = Target::Entry(message(words[0], words[1]));
                let upsert = Upsert { content: Patch::Clear, ..Upsert::default() };
                (Update::Upsert { target, upsert }, IdSource::Given)
            }
            "tool" => (tool(words[0], words[1]), IdSource::Given),
            "starts" => (tool(words[0], "open"), IdSource::StartsToolCall),
            "title" => (title(words[0]), IdSource::Given),
            "event" => {
                let target = Target::Entry(EntryId::Event(words[0].into()));
                let upsert = Upsert { fields: object(r#"{"type":"forged"}"#), ..Upsert::default() };
                (Update::Upsert { target, upsert }, IdSource::Given)
            }
            "notice" => (Update::Note { fields: object(r#"{"n":1}"#) }, IdSource::Given),
            "state" => (Update::State(state(words[0], words.get(1).copied())), IdSource::Given),
            _ => panic!("unknown input `{verb}`"),
        }
    }
}

/// The plan of a fork as text.
fn forked(session: &Session, point: &str) -> String {
    let point = match point.split_once(' ') {
        Some(("after", id)) => Point::After(id.into()),
        Some(("before", id)) => Point::BeforePrompt(id.into()),
        _ => Point::End,
    };
    let fork = match session.fork(&point) {
        Ok(fork) => fork,
        Err(why) => return format!("{why:?}"),
    };
    let entries = session.transcript().entries();
    let copied = fork.entries.iter().zip(entries).map(|(copy, entry)| {
        assert_eq!(copy.from, entry.created());
        let name = if let EntryId::Message(role, id) = entry.id() {
            format!("{role:?} {id}")
        } else {
            format!("{:?}", entry.id())
        };
        let head = copy.head.as_ref().map_or(String::new(), |head| format!(" as {head}"));
        format!("{} {name}{head}", copy.to)
    });
    let copied: Vec<_> = copied.collect();
    let slots: Vec<_> = fork.slots.iter().map(|slot| format!("{slot:?}")).collect();
    let prompt =
        fork.prompt.map_or(String::new(), |(id, content)| format!("; prompt {id} {}", content.as_str()));
    let side_state = fork.side_state.to_json();
    format!("{copied:?} {slots:?} side state {}; agent: {:?}{prompt}", side_state.as_str(), fork.agent_point)
}

const HOOKS: DialectHooks = DialectHooks {
    is_final: |body| body.fields.get("status").is_some_and(|status| status.as_str() != r#""open""#),
    mark_failed: |body| {
        let is_open = body.fields.get("status").is_some_and(|status| status.as_str() == r#""open""#);
        is_open.then(|| Upsert { fields: object(r#"{"status":"failed"}"#), ..Upsert::default() })
    },
    mark_cancelled: |body| {
        let is_open = body.fields.get("status").is_some_and(|status| status.as_str() == r#""open""#);
        is_open.then(|| Upsert { fields: object(r#"{"status":"cancelled"}"#), ..Upsert::default() })
    },
    turn_end: |state| match state.stop_reason.as_ref().map(JsonStr::inner) {
        Some("cancelled") => TurnEnd::Cancelled,
        Some("refusal") => TurnEnd::Refused,
        Some("error") => TurnEnd::Failed(None),
        Some(_) | None => TurnEnd::Completed,
    },
    event_entry: |event| {
        let mut fields = Object::default();
        let mut by = None;
        let (kind, prompt) = match &event.kind {
            EventKind::TurnFailed { prompt, .. } => ("failed", prompt.as_ref()),
            EventKind::TurnRefused { prompt } => ("refused", prompt.as_ref()),
            EventKind::TurnCancelled { prompt, by: cancelled, unanswered } => {
                by = cancelled.as_ref();
                (if *unanswered { "unanswered" } else { "cancelled" }, prompt.as_ref())
            }
            EventKind::Decision(_) => ("decision", None),
            EventKind::MemoryRebuilt { .. } => ("rebuilt", None),
        };
        fields.set("type", JsonStr::new(kind));
        fields.set("at", Json::parse(event.at.0.to_string()).unwrap());
        if let Some(prompt) = prompt {
            fields.set("prompt", prompt.as_json());
        }
        if let Some(by) = by {
            let name = by.name.as_ref().map(|name| format!(" {}", name.to_text())).unwrap_or_default();
            fields.set("by", JsonStr::new(&format!("{}{name}", by.client.0)));
        }
        Upsert { whole: true, fields, ..Upsert::default() }
    },
    linked_settings: |_, _| Vec::new(),
};

pub(crate) fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn block(text: &str) -> String {
    if text == "image" {
        r#"{"type":"image"}"#.to_owned()
    } else {
        // A script writes a quotation mark as an apostrophe.
        format!(r#"{{"type":"text","text":"{}"}}"#, text.replace('\'', "\\\""))
    }
}

/// The blocks of a text, separated by ` | `.
fn blocks(text: &str) -> String {
    let blocks: Vec<_> = text.split(" | ").map(block).collect();
    format!("[{}]", blocks.join(","))
}

pub(crate) fn message(role: &str, id: &str) -> EntryId {
    let role = match role {
        "user" => Role::User,
        "agent" => Role::Agent,
        "thought" => Role::Thought,
        _ => panic!("unknown role `{role}`"),
    };
    EntryId::Message(role, id.into())
}

pub(crate) fn whole(entry: EntryId, text: &str) -> Update {
    let blocks = Json::parse(blocks(text)).unwrap();
    let content = Patch::Value(Content::parse(blocks.raw()).unwrap());
    Update::Upsert { target: Target::Entry(entry), upsert: Upsert { content, ..Upsert::default() } }
}

pub(crate) fn tool(id: &str, status: &str) -> Update {
    let fields = object(&format!(r#"{{"status":"{status}"}}"#));
    let target = Target::Entry(EntryId::ToolCall(id.into()));
    Update::Upsert { target, upsert: Upsert { fields, ..Upsert::default() } }
}

pub(crate) fn title(title: &str) -> Update {
    let title = if title == "null" { title.to_owned() } else { format!("\"{title}\"") };
    let fields = object(&format!(r#"{{"title":{title}}}"#));
    Update::Upsert { target: Target::Slot(Slot::Info), upsert: Upsert { fields, ..Upsert::default() } }
}

pub(crate) fn state(activity: &str, reason: Option<&str>) -> State {
    let activity = match activity {
        "running" => Activity::Running,
        "idle" => Activity::Idle,
        "requires_action" => Activity::RequiresAction,
        other => Activity::Other(JsonStr::new(other)),
    };
    State { activity, stop_reason: reason.map(JsonStr::new), fields: Object::default(), meta: None }
}

fn show(step: &Step, session: &Session, results: &mut String) {
    for change in &step.changes {
        let _ = writeln!(results, "    - {}", change_text(change));
    }
    for error in &step.rejected {
        let _ = writeln!(results, "    rejected: {error}");
    }
    if step.durable {
        results.push_str("    durable\n");
    }
    for effect in &step.effects {
        let _ = writeln!(results, "    {}", effect_text(effect, session));
    }
}

fn change_text(change: &Change) -> String {
    match &change.update {
        Update::Append { entry, item, .. } => {
            format!(
                "{} + {}",
                entry_text(entry),
                parlor_session::text_of(item.as_str()).unwrap_or("image".into())
            )
        }
        Update::Upsert { target, upsert } => {
            let mut text = match target {
                Target::Entry(entry) => entry_text(entry),
                Target::Slot(slot) => format!("{slot:?}"),
            };
            match &upsert.content {
                Patch::Omitted => {}
                Patch::Clear => text.push_str(" cleared"),
                Patch::Value(content) => {
                    let _ = write!(text, " = {}", content.to_text());
                }
            }
            for (_, value) in upsert.fields.iter() {
                let _ = write!(text, " {}", value.as_str().trim_matches('"'));
            }
            match &upsert.meta {
                MetaPatch::Keep => {}
                MetaPatch::MergeKeys(meta) if meta.get(TITLE_MARK).is_some() => {
                    let _ = write!(text, " {meta:?}");
                }
                MetaPatch::Clear
                | MetaPatch::Replace(_)
                | MetaPatch::MergeKeys(_)
                | MetaPatch::MergeDeep(_) => {
                    text.push_str(" meta");
                }
            }
            text
        }
        Update::State(state) => format!("state {}", state_text(state)),
        Update::Note { .. } => "note".to_owned(),
        Update::Output { .. } | Update::Remove { .. } => format!("{:?}", change.update),
    }
}

fn entry_text(entry: &EntryId) -> String {
    match entry {
        EntryId::Message(Role::User, id) => format!("user {id}"),
        EntryId::Message(Role::Agent, id) => format!("agent {id}"),
        EntryId::Message(Role::Thought, id) => format!("thought {id}"),
        EntryId::ToolCall(id) => format!("tool {id}"),
        EntryId::Event(id) => format!("event {id}"),
        EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Note(_) => format!("{entry:?}"),
    }
}

fn state_text(state: &State) -> String {
    let activity = match &state.activity {
        Activity::Running => "running",
        Activity::Idle => "idle",
        Activity::RequiresAction => "requires_action",
        Activity::Other(other) => other.inner(),
    };
    state.stop_reason.as_ref().map_or(activity.to_owned(), |reason| format!("{activity} ({reason})"))
}

fn effect_text(effect: &Effect, session: &Session) -> String {
    match effect {
        Effect::SendPrompt(prompt) => format!("send {}", prompt.id.0),
        Effect::Steer(prompt) => format!("steer {}", prompt.id.0),
        Effect::CancelPrompt(prompt) => format!("cancel prompt {}", prompt.0),
        Effect::CancelTurn => "cancel turn".to_owned(),
        Effect::RespondPrompt { prompt, by, outcome } => {
            let with = |fields: &Object| if fields.is_empty() { "" } else { ", with fields" };
            let outcome = match outcome {
                PromptOutcome::Accepted { message, fields } => {
                    format!("accepted as {message}{}", with(fields))
                }
                PromptOutcome::Ended { state, fields, .. } => {
                    format!("ended {}{}", state_text(state), with(fields))
                }
                PromptOutcome::Withdrawn { by } => format!("withdrawn{}", by_text(*by)),
                PromptOutcome::Rejected { error, by } => {
                    format!("rejected {}{}", error.as_str(), by_text(*by))
                }
                PromptOutcome::Failed(state) => format!("failed {}", state_text(state)),
                PromptOutcome::TooMany { limit } => format!("more than {limit}"),
                PromptOutcome::NoRoom(error) => format!("no room: {error}"),
            };
            format!("respond {} to {}: {outcome}", prompt.0, by.0)
        }
        Effect::SendRequest(peer_request, client) => {
            format!("send request {} to {}", peer_request.0, client.0)
        }
        Effect::CancelClientRequest(peer_request, client) => {
            format!("cancel request {} at {}", peer_request.0, client.0)
        }
        Effect::RespondRequest(peer_request, reply) => {
            let reply = match reply {
                Reply::Result(result) => format!("result {}", result.as_str()),
                Reply::Error(error) => format!("error {}", error.as_str()),
                Reply::Cancelled => "cancelled".to_owned(),
                Reply::CancelledByAgent => "cancelled by agent".to_owned(),
                Reply::AgentLost => "agent lost".to_owned(),
            };
            format!("respond to request {}: {reply}", peer_request.0)
        }
        Effect::RecordDecision { peer_request, by, result } => {
            format!("decision {} by {}: {}", peer_request.0, by.0, result.as_str())
        }
        Effect::QueueChanged => {
            let queue = session.queued_prompts();
            let queue: Vec<_> = queue
                .iter()
                .map(|prompt| format!("{} {} ({})", prompt.id.0, prompt.text, prompt.by.0))
                .collect();
            format!("queue: [{}]", queue.join(", "))
        }
        Effect::StartAgent => "start agent".to_owned(),
    }
}

fn by_text(by: Option<ClientId>) -> String {
    by.map_or_else(String::new, |by| format!(" by {}", by.0))
}
