//! Scripts of what happens to a session, and what comes of it as short text.
//!
//! What happens: `join 1 [waits] [forms] [watches]`, `left 1`, `close 1`, `prompt 7 by 1 [key=K] some text`, `back 7 [by 1]`,
//! `cancel [by 1] [turn]`, `drops 7`, `ready one|queue [anew]`, `restored one|queue [anew]`,
//! `taken`, `handed ENVELOPE`, `gone`, `released`, `accepted 7 [ID]`, `rejected 7`, `ended 7 REASON`,
//! `ask 5 [form] [call=T]`, `answer 5 by 1`, `err 5 by 1`, `unask 5`, `rebuilt`, `person [TITLE]`, `restart`; and what the agent says: `chunk ROLE [ID]: text`
//! and `whole ROLE ID: text` with `image` for a block that is no text and ` | ` between blocks, `null ROLE ID`, `meta ROLE ID`, `tool ID STATUS`, `starts ID`,
//! `title T`, `notice`, `event ID`, `state ACTIVITY [REASON]`; and `fork end`, `fork after ID`, `fork before ID`. A chunk without an id gets one that begins with `~`.
//!
//! What comes of it is indented: changes begin with `-`, the rest are effects and flags.

use std::fmt::Write as _;

use expect_test::Expect;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{
    Answer, Client, ClientId, Effect, Envelope, Input, Point, Prompt, PromptId, QuestionId, Reply, Scope,
    Session, Settled, Step, TITLE_MARK, TurnEnd, TurnTaking, Words,
};
use parlor_session::{
    Activity, Change, Content, EntryId, EventKind, MessageId, MetaPatch, Namer, Naming, Patch, Role, Slot,
    State, Target, Transcript, UnixMillis, Update, Upsert,
};

/// Plays what happens in a script, the lines that are not indented, and compares what comes of it.
#[track_caller]
pub(crate) fn check(script: &Expect) {
    let lines = || script.data().lines().filter(|line| !line.trim().is_empty());
    let indent = |line: &str| line.len() - line.trim_start().len();
    let least = lines().map(indent).min().unwrap_or_default();
    let happens: Vec<_> = lines().filter(|line| indent(line) == least).collect();
    script.assert_eq(&Stage::default().play(&happens.join("\n")));
}

/// A session, and a second one that hears of its changes only.
pub(crate) struct Stage {
    pub(crate) session: Session,
    folded: Transcript,
    minted: u32,
    namer: Namer,
    unnamed: u32,
    /// The time goes on by one with each step.
    now: i64,
}

impl Default for Stage {
    fn default() -> Self {
        Self::with(Transcript::default())
    }
}

impl Stage {
    pub(crate) fn with(transcript: Transcript) -> Self {
        Self::kept(transcript, None)
    }

    /// A session that goes on from what was kept of one.
    pub(crate) fn kept(transcript: Transcript, kept: Option<&Object>) -> Self {
        let folded = transcript.clone();
        Self {
            session: Session::new(transcript, WORDS, kept),
            folded,
            minted: 0,
            namer: Namer::default(),
            unnamed: 0,
            now: 0,
        }
    }

    pub(crate) fn play(&mut self, script: &str) -> String {
        let mut told = String::new();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let _ = writeln!(told, "{line}");
            if line == "restart" {
                self.restart();
                continue;
            }
            if let Some(point) = line.strip_prefix("fork ") {
                let _ = writeln!(told, "    {}", forked(&self.session, point));
                continue;
            }
            let input = self.input(line);
            let step = self.step(input);
            tell(&step, &self.session, &mut told);
        }
        told
    }

    /// Takes one input and looks whether its changes are all that changed.
    pub(crate) fn step(&mut self, input: Input) -> Step {
        let mut step = Step::default();
        let naming = if let Input::Said(_, naming) = &input { *naming } else { Naming::Silent };
        let minted = &mut self.minted;
        let mut fresh = || {
            *minted += 1;
            MessageId::from(format!("new{minted}").as_str())
        };
        self.now += 1;
        self.session.step(input, UnixMillis(self.now), &mut fresh, &mut step);
        for change in &step.changes {
            self.namer.took(change, naming);
            self.folded.apply(change).expect("it was taken before");
        }
        assert_eq!(&self.folded, self.session.transcript());
        step
    }

    /// The session goes on from what was kept of it.
    pub(crate) fn restart(&mut self) {
        let kept = self.session.kept();
        self.session = Session::new(self.session.transcript().clone(), WORDS, Some(&kept));
        assert_eq!(self.session.kept(), kept);
    }

    pub(crate) fn input(&mut self, line: &str) -> Input {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<_> = rest.split(' ').filter(|word| !word.is_empty()).collect();
        let number = |place: usize| words[place].parse::<u64>().expect("a number");
        let has = |word: &str| words.contains(&word);
        let by =
            || ClientId(words.iter().position(|word| *word == "by").map_or(1, |place| number(place + 1)));
        match verb {
            "join" => {
                let id = number(0);
                let (drives, waits, elicits) = (!has("watches"), has("waits"), has("forms"));
                let name = words.iter().find_map(|word| word.strip_prefix("name=")).map(JsonStr::new);
                Input::Joined(ClientId(id), Client { name, drives, waits, elicits })
            }
            "left" => Input::Left(ClientId(number(0))),
            "close" => Input::Closed(ClientId(number(0))),
            "prompt" => {
                let key = words[3].strip_prefix("key=").map(JsonStr::new);
                let text = words[3 + usize::from(key.is_some())..].join(" ");
                let content = Json::parse(blocks(&text)).unwrap();
                let (id, by) = (PromptId(number(0)), ClientId(number(2)));
                Input::Prompted(Prompt { id, by, content, more: Object::default(), key })
            }
            "back" => Input::Withdrawn { prompt: PromptId(number(0)), by: by() },
            "cancel" => {
                Input::Cancelled { by: by(), scope: if has("turn") { Scope::Turn } else { Scope::Session } }
            }
            "drops" => {
                Input::Dropped { prompt: PromptId(number(0)), error: Json::parse(r#""dropped""#).unwrap() }
            }
            "ready" => {
                let taking = if has("one") { TurnTaking::OneByOne } else { TurnTaking::Queueing };
                Input::AgentReady { taking, anew: has("anew") }
            }
            "restored" => {
                let taking = if has("one") { TurnTaking::OneByOne } else { TurnTaking::Queueing };
                Input::AgentRestored { taking, anew: has("anew") }
            }
            "taken" => Input::EarlyUpdatesTaken,
            "handed" => Input::HandedOver(Envelope::new(words[0])),
            "gone" => Input::AgentGone(state("idle", Some(words.first().copied().unwrap_or("error")))),
            "released" => Input::AgentReleased,
            "accepted" => {
                let message = words.get(1).map(|id| MessageId::from(*id));
                Input::Accepted { prompt: PromptId(number(0)), message, fields: object(r#"{"said":1}"#) }
            }
            "rejected" => {
                Input::Rejected { prompt: PromptId(number(0)), error: Json::parse(r#""no""#).unwrap() }
            }
            "ended" => Input::Ended { prompt: PromptId(number(0)), state: state("idle", Some(words[1])) },
            "ask" => {
                let call = words.iter().find_map(|word| word.strip_prefix("call=")).map(Into::into);
                Input::Asked { question: QuestionId(number(0)), form: has("form"), call }
            }
            "answer" | "err" => {
                let said = Json::parse(format!(r#""{verb} of {}""#, words[2])).unwrap();
                let answer = if verb == "answer" { Answer::Result(said) } else { Answer::Error(said) };
                Input::Answered { question: QuestionId(number(0)), by: ClientId(number(2)), answer }
            }
            "unask" => Input::Unasked(QuestionId(number(0))),
            "rebuilt" => Input::Happened(EventKind::MemoryRebuilt { reason: String::new() }),
            "person" => Input::Titled((!rest.is_empty()).then(|| JsonStr::new(rest))),
            _ => {
                let (update, naming) = self.said(verb, rest, &words);
                Input::Said(update, naming)
            }
        }
    }

    /// The message that a chunk without an id belongs to.
    fn unnamed(&mut self, role: &str) -> EntryId {
        let EntryId::Message(role, _) = message(role, "") else { unreachable!("it is a message") };
        let unnamed = &mut self.unnamed;
        let id = self.namer.name(role, &mut || {
            *unnamed += 1;
            MessageId::from(format!("~{unnamed}").as_str())
        });
        EntryId::Message(role, id)
    }

    fn said(&mut self, verb: &str, rest: &str, words: &[&str]) -> (Update, Naming) {
        match verb {
            "chunk" => {
                let (head, text) = rest.split_once(": ").expect("a text");
                let (role, id) = head.split_once(' ').map_or((head, None), |(role, id)| (role, Some(id)));
                let (entry, naming) = match id {
                    Some(id) => (message(role, id), Naming::Silent),
                    None => (self.unnamed(role), Naming::Named),
                };
                let item = Json::parse(block(text)).unwrap();
                (Update::Append { entry, item, extra: None }, naming)
            }
            "whole" => {
                let (head, text) = rest.split_once(": ").expect("a text");
                let (role, id) = head.split_once(' ').expect("an id");
                (whole(message(role, id), text), Naming::Silent)
            }
            "meta" => {
                let meta = MetaPatch::Replace(object(r#"{"k":1}"#));
                let target = Target::Entry(message(words[0], words[1]));
                let upsert = Upsert { meta, ..Upsert::default() };
                (Update::Upsert { target, upsert }, Naming::Silent)
            }
            "null" => {
                let target = Target::Entry(message(words[0], words[1]));
                let upsert = Upsert { content: Patch::Clear, ..Upsert::default() };
                (Update::Upsert { target, upsert }, Naming::Silent)
            }
            "tool" => (tool(words[0], words[1]), Naming::Silent),
            "starts" => (tool(words[0], "open"), Naming::StartsToolCall),
            "title" => (title(words[0]), Naming::Silent),
            "event" => {
                let target = Target::Entry(EntryId::Event(words[0].into()));
                let upsert = Upsert { fields: object(r#"{"type":"forged"}"#), ..Upsert::default() };
                (Update::Upsert { target, upsert }, Naming::Silent)
            }
            "notice" => (Update::Note { fields: object(r#"{"n":1}"#) }, Naming::Silent),
            "state" => (Update::State(state(words[0], words.get(1).copied())), Naming::Silent),
            _ => panic!("nobody knows what `{verb}` is"),
        }
    }
}

/// How these tests say that a tool call is over.
/// What a session that goes on from a point begins with.
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
    let taken = fork.entries.iter().zip(entries).map(|(moved, entry)| {
        assert_eq!(moved.from, entry.created());
        let name = if let EntryId::Message(role, id) = entry.id() {
            format!("{role:?} {id}")
        } else {
            format!("{:?}", entry.id())
        };
        let head = moved.head.as_ref().map_or(String::new(), |head| format!(" as {head}"));
        format!("{} {name}{head}", moved.to)
    });
    let taken: Vec<_> = taken.collect();
    let slots: Vec<_> = fork.slots.iter().map(|slot| format!("{slot:?}")).collect();
    let prompt =
        fork.prompt.map_or(String::new(), |(id, content)| format!("; prompt {id} {}", content.as_str()));
    let kept = fork.kept.to_json();
    format!("{taken:?} {slots:?} kept {}; agent: {:?}{prompt}", kept.as_str(), fork.agents)
}

const WORDS: Words = Words {
    is_final: |body| body.fields.get("status").is_some_and(|status| status.as_str() != r#""open""#),
    failed: |body| {
        let is_open = body.fields.get("status").is_some_and(|status| status.as_str() == r#""open""#);
        is_open.then(|| Upsert { fields: object(r#"{"status":"failed"}"#), ..Upsert::default() })
    },
    cancelled: |body| {
        let is_open = body.fields.get("status").is_some_and(|status| status.as_str() == r#""open""#);
        is_open.then(|| Upsert { fields: object(r#"{"status":"cancelled"}"#), ..Upsert::default() })
    },
    ended: |state| match state.stop_reason.as_ref().map(JsonStr::inner) {
        Some("cancelled") => TurnEnd::Cancelled,
        Some("refusal") => TurnEnd::Refused,
        Some("error") => TurnEnd::Failed(None),
        Some(_) | None => TurnEnd::Completed,
    },
    event: |event| {
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
    same_setting: |_, _| Vec::new(),
};

pub(crate) fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn block(text: &str) -> String {
    if text == "image" {
        r#"{"type":"image"}"#.to_owned()
    } else {
        // In a script it is enough to write a quotation mark as an apostrophe.
        format!(r#"{{"type":"text","text":"{}"}}"#, text.replace('\'', "\\\""))
    }
}

/// The blocks of a text in which ` | ` separates them.
fn blocks(text: &str) -> String {
    let blocks: Vec<_> = text.split(" | ").map(block).collect();
    format!("[{}]", blocks.join(","))
}

pub(crate) fn message(role: &str, id: &str) -> EntryId {
    let role = match role {
        "user" => Role::User,
        "agent" => Role::Agent,
        "thought" => Role::Thought,
        _ => panic!("nobody is `{role}`"),
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
        "waits" => Activity::RequiresAction,
        other => Activity::Other(JsonStr::new(other)),
    };
    State { activity, stop_reason: reason.map(JsonStr::new), fields: Object::default(), meta: None }
}

fn tell(step: &Step, session: &Session, told: &mut String) {
    for change in &step.changes {
        let _ = writeln!(told, "    - {}", change_text(change));
    }
    for refused in &step.refused {
        let _ = writeln!(told, "    refused: {refused}");
    }
    if step.durable {
        told.push_str("    durable\n");
    }
    for effect in &step.effects {
        let _ = writeln!(told, "    {}", effect_text(effect, session));
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
        Activity::RequiresAction => "waits",
        Activity::Other(other) => other.inner(),
    };
    state.stop_reason.as_ref().map_or(activity.to_owned(), |reason| format!("{activity} ({reason})"))
}

fn effect_text(effect: &Effect, session: &Session) -> String {
    match effect {
        Effect::Send(prompt) => format!("send {}", prompt.id.0),
        Effect::Recall(prompt) => format!("recall {}", prompt.0),
        Effect::Interrupt => "interrupt".to_owned(),
        Effect::Settle { prompt, by, outcome } => {
            let with = |fields: &Object| if fields.is_empty() { "" } else { ", with fields" };
            let outcome = match outcome {
                Settled::Accepted { message, fields } => format!("accepted as {message}{}", with(fields)),
                Settled::Ended { state, fields, .. } => {
                    format!("ended {}{}", state_text(state), with(fields))
                }
                Settled::Withdrawn { by } => format!("withdrawn{}", by_text(*by)),
                Settled::Rejected { error, by } => format!("rejected {}{}", error.as_str(), by_text(*by)),
                Settled::Failed(state) => format!("failed {}", state_text(state)),
                Settled::TooMany { limit } => format!("more than {limit}"),
                Settled::NoRoom(refused) => format!("no room: {refused}"),
            };
            format!("settle {} of {}: {outcome}", prompt.0, by.0)
        }
        Effect::Ask(question, client) => format!("ask {} of {}", question.0, client.0),
        Effect::Withdraw(question, client) => format!("withdraw {} from {}", question.0, client.0),
        Effect::Reply(question, reply) => {
            let reply = match reply {
                Reply::Result(result) => format!("result {}", result.as_str()),
                Reply::Error(error) => format!("error {}", error.as_str()),
                Reply::Cancelled => "cancelled".to_owned(),
                Reply::TakenBack => "taken back".to_owned(),
                Reply::Gone => "gone".to_owned(),
            };
            format!("reply {}: {reply}", question.0)
        }
        Effect::Decided { question, by, result } => {
            format!("decided {} by {}: {}", question.0, by.0, result.as_str())
        }
        Effect::HeldChanged => {
            let held = session.held();
            let held: Vec<_> =
                held.iter().map(|held| format!("{} {} ({})", held.id.0, held.text, held.by.0)).collect();
            format!("held: [{}]", held.join(", "))
        }
        Effect::NeedAgent => "need agent".to_owned(),
    }
}

fn by_text(by: Option<ClientId>) -> String {
    by.map_or_else(String::new, |by| format!(" by {}", by.0))
}
