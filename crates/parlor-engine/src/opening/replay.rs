//! Whether the updates of an agent that resumed or forked a session are a replay.
//!
//! Such an agent need not replay, but some do, from the start. The first entry that it sends decides: if the conversation has
//! that entry, all updates until the agent is idle are replay; else all of them are new. Prompts that the conversation does not
//! have decide nothing, because agents replay them in other words and with context of their own: what follows them decides, and
//! if nothing does, they are replay. In a fork, nobody has prompted the agent yet: any prompt is replay.

use std::collections::HashSet;
use std::sync::Arc;

use parlor_dialect::Decoded;
use parlor_session::session::Session;
use parlor_session::{Content, EntryId, IdSource, Patch, Role, Target, Update, text_prefix};

/// How many bytes of a message's text are compared.
const COMPARED: usize = 256;

/// The entries that a replay of a conversation may start with.
#[derive(Debug, Default)]
pub struct History {
    /// Messages and tool calls by the agent's ids.
    entries: HashSet<EntryId>,
    messages: HashSet<(Role, TextStart)>,
}

/// The start of a message's text.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct TextStart {
    text: String,
    is_whole: bool,
}

/// What the updates of an agent are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Unknown,
    Replay,
    New,
}

/// The updates of an agent until it is known whether they are replay.
#[derive(Debug)]
pub(super) struct ReplayDetector {
    history: Arc<History>,
    is_fork: bool,
    /// The message that decides, and the start of its text as far as it has arrived.
    first: Option<(Role, EntryId, String)>,
    /// Whether a prompt was among the updates.
    has_prompt: bool,
    /// The lines of the updates.
    pub(super) held: Vec<HeldLine>,
    pub(super) held_bytes: usize,
}

/// A line of which it is not known whether it is replay.
#[derive(Debug)]
pub(super) struct HeldLine {
    pub(super) line: String,
    /// Whether the session is busy, if the line says that.
    pub(super) is_busy: Option<bool>,
}

impl History {
    /// The conversation of a session, by the ids that its agent uses.
    pub fn of(session: &Session) -> Arc<Self> {
        let messages = session.transcript().entries().iter().filter_map(|entry| match entry.id() {
            EntryId::Message(role, _) => Some((*role, TextStart::of(&entry.body().content))),
            EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => None,
        });
        // A prompt with which the agent was handed the conversation starts with that.
        let envelopes = session
            .envelopes()
            .map(|envelope| (Role::User, TextStart { text: envelope.opening(), is_whole: false }));
        Arc::new(Self {
            messages: messages.chain(envelopes).collect(),
            entries: session.agents_entries().collect(),
        })
    }

    /// Whether there is nothing to replay.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.messages.is_empty()
    }

    /// Compares the start of a message's text, or all of it. A prompt is never new by its text.
    fn verdict(&self, role: Role, text: &str, is_whole: bool) -> Verdict {
        let mut verdict = if role == Role::User { Verdict::Unknown } else { Verdict::New };
        for (_, known) in self.messages.iter().filter(|(of, _)| *of == role) {
            match known.compare(text, is_whole, role == Role::User) {
                Verdict::Replay => return Verdict::Replay,
                Verdict::Unknown => verdict = Verdict::Unknown,
                Verdict::New => {}
            }
        }
        verdict
    }
}

impl TextStart {
    fn of(content: &Content) -> Self {
        let mut text = start_of(content);
        let is_whole = text.len() <= COMPARED;
        if !is_whole {
            let end = (0..=COMPARED).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
        }
        Self { text, is_whole }
    }

    /// `is_loose`: agents join such messages, or leave parts of them out, when they replay them.
    fn compare(&self, text: &str, is_whole: bool, is_loose: bool) -> Verdict {
        let is_longer = text.len() > self.text.len();
        let is_like = if is_longer { text.starts_with(&self.text) } else { self.text.starts_with(text) };
        let is_loose = is_loose && !text.is_empty() && !self.text.is_empty();
        if !is_like {
            Verdict::New
        } else if text.len() >= self.text.len() && !self.is_whole || is_longer && is_loose {
            Verdict::Replay
        } else if is_longer {
            Verdict::New
        } else if !is_whole {
            Verdict::Unknown
        } else if text.len() == self.text.len() || is_loose {
            Verdict::Replay
        } else {
            Verdict::New
        }
    }
}

impl ReplayDetector {
    pub(super) fn new(history: Arc<History>, is_fork: bool) -> Self {
        Self { history, is_fork, first: None, has_prompt: false, held: Vec::new(), held_bytes: 0 }
    }

    /// Keeps the line of an update until there is a verdict.
    pub(super) fn hold(&mut self, line: &str, update: &Update) {
        let is_busy = if let Update::State(state) = update { Some(state.activity.is_busy()) } else { None };
        self.held_bytes += line.len();
        self.held.push(HeldLine { line: line.to_owned(), is_busy });
    }

    /// Looks at one more update.
    pub(super) fn on_update(&mut self, Decoded { update, id_source, .. }: &Decoded) -> Verdict {
        let (entry, content) = match update {
            Update::Append { entry, item, .. } => {
                (entry, Some(text_prefix(item.as_str(), COMPARED).unwrap_or_default()))
            }
            Update::Upsert { target: Target::Entry(entry), upsert } => match &upsert.content {
                Patch::Value(content) => (entry, Some(start_of(content))),
                Patch::Omitted | Patch::Clear => (entry, None),
            },
            Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => return Verdict::Unknown,
        };
        let is_known = *id_source != IdSource::Assigned && self.history.entries.contains(entry);
        let role = match entry {
            EntryId::Message(role, _) => *role,
            EntryId::ToolCall(_) => {
                return match self.at_end() {
                    Verdict::Unknown if is_known => Verdict::Replay,
                    Verdict::Unknown => Verdict::New,
                    verdict @ (Verdict::Replay | Verdict::New) => verdict,
                };
            }
            EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => return Verdict::Unknown,
        };
        if self.first.as_ref().is_some_and(|(_, first, _)| first != entry) {
            match self.at_end() {
                Verdict::Unknown => self.first = None,
                verdict @ (Verdict::Replay | Verdict::New) => return verdict,
            }
        }
        self.has_prompt |= role == Role::User;
        if is_known || self.is_fork && role == Role::User {
            return Verdict::Replay;
        }
        let Some(content) = content else { return Verdict::Unknown };
        let (_, _, text) = self.first.get_or_insert_with(|| (role, entry.clone(), String::new()));
        let is_whole = matches!(update, Update::Upsert { .. });
        if is_whole {
            text.clear();
        }
        if text.len() > COMPARED {
            // The rest of the text is not compared.
            return Verdict::Unknown;
        }
        text.push_str(&content);
        self.history.verdict(role, text, is_whole)
    }

    /// The verdict if the message that decides is whole; unknown if no message does.
    pub(super) fn at_end(&self) -> Verdict {
        let Some((role, _, text)) = &self.first else { return Verdict::Unknown };
        self.history.verdict(*role, text, true)
    }

    /// The verdict if nothing follows, or no more lines can be held.
    pub(super) fn at_idle(&self) -> Verdict {
        match self.at_end() {
            Verdict::Unknown if self.has_prompt => Verdict::Replay,
            Verdict::Unknown => Verdict::New,
            verdict @ (Verdict::Replay | Verdict::New) => verdict,
        }
    }
}

/// The start of a message's text: all of it, or a little more than what is compared.
fn start_of(content: &Content) -> String {
    let mut text = String::new();
    for item in content.iter() {
        if text.len() > COMPARED {
            break;
        }
        text.extend(text_prefix(item.json, COMPARED));
    }
    text
}

#[cfg(test)]
mod tests {
    use parlor_dialect::live;
    use parlor_session::session::{Envelope, Input, Step};
    use parlor_session::{Transcript, UnixMillis};

    use super::Verdict::{New, Replay, Unknown};
    use super::*;

    #[test]
    fn a_message_is_compared_with_the_start_of_stored_ones() {
        let whole = |text: &str| TextStart { text: text.to_owned(), is_whole: true };
        let cut = |text: &str| TextStart { text: text.to_owned(), is_whole: false };
        let history = History {
            entries: HashSet::new(),
            messages: [
                (Role::User, whole("hi there")),
                (Role::Agent, whole("Hello.")),
                (Role::Agent, cut("Long")),
            ]
            .into_iter()
            .collect(),
        };
        for (role, text, so_far, all) in [
            (Role::User, "hi", Unknown, Replay),
            (Role::User, "hi there", Unknown, Replay),
            (Role::User, "hi there, once more", Replay, Replay),
            (Role::User, "other", Unknown, Unknown),
            (Role::User, "", Unknown, Unknown),
            (Role::Agent, "H", Unknown, New),
            (Role::Agent, "Hello.", Unknown, Replay),
            (Role::Agent, "Hello. Again", New, New),
            (Role::Agent, "Lon", Unknown, New),
            (Role::Agent, "Longer", Replay, Replay),
            (Role::Thought, "Hello.", New, New),
        ] {
            assert_eq!(history.verdict(role, text, false), so_far, "{role:?} {text}");
            assert_eq!(history.verdict(role, text, true), all, "{role:?} {text}");
        }
    }

    #[test]
    fn a_prompt_that_starts_with_any_handed_over_context_is_replay() {
        let mut session = Session::new(Transcript::default(), live::HOOKS, None);
        let mut new_id = || "m".into();
        for id in ["one", "two"] {
            let handed = Input::ContextHandedOver(Envelope::new(id));
            session.step(handed, UnixMillis::default(), &mut new_id, &mut Step::default());
        }
        let history = History::of(&session);
        for id in ["one", "two"] {
            let prompt = format!("{}\nso far", Envelope::new(id).opening());
            assert_eq!(history.verdict(Role::User, &prompt, false), Replay, "{id}");
        }
        assert_eq!(history.verdict(Role::User, "<conversation id=\"three\">", false), Unknown);
    }

    #[test]
    fn the_first_entry_that_is_no_unknown_prompt_decides() {
        let history = || {
            let ids = [EntryId::ToolCall("t".into()), EntryId::Message(Role::Agent, "a".into())];
            let messages = [(Role::Agent, TextStart { text: "Hello.".to_owned(), is_whole: true })];
            Arc::new(History { entries: ids.into(), messages: messages.into() })
        };
        let message = |role: &str, id: &str, text: &str| {
            format!(
                r#"{{"sessionUpdate":"{role}_message_chunk","messageId":"{id}","content":{{"type":"text","text":"{text}"}}}}"#
            )
        };
        let tool = |id: &str| format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}"}}"#);
        let plan =
            r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[]}}"#.to_owned();
        let prompt = message("user", "u", "other words");
        for (updates, is_fork, so_far, at_idle) in [
            (vec![], false, Unknown, New),
            (vec![tool("t")], false, Replay, Replay),
            (vec![tool("other")], false, New, New),
            (vec![message("agent", "a", "x")], false, Replay, Replay),
            (vec![message("agent", "b", "x")], false, New, New),
            (vec![message("agent", "b", "Hel")], false, Unknown, New),
            (vec![message("agent", "b", "Hel"), message("agent", "b", "lo.")], false, Unknown, Replay),
            (vec![message("agent", "b", "Hello."), message("agent", "c", "x")], false, Replay, Replay),
            (vec![message("agent", "b", "Hello."), tool("other")], false, Replay, Replay),
            (vec![plan], false, Unknown, New),
            (vec![prompt.clone()], false, Unknown, Replay),
            (vec![prompt.clone(), tool("other")], false, New, New),
            (vec![prompt.clone(), message("agent", "b", "x")], false, New, New),
            (vec![prompt], true, Replay, Replay),
        ] {
            let mut detector = ReplayDetector::new(history(), is_fork);
            let decoder = parlor_dialect::Decoder::new(parlor_dialect::Dialect::V2);
            let mut verdict = Unknown;
            for update in &updates {
                let update = parlor_json::Json::parse(update.as_str()).unwrap();
                let decoded = decoder.decode(update.raw(), &mut || "none".into()).unwrap();
                verdict = detector.on_update(&decoded);
            }
            assert_eq!(verdict, so_far, "{updates:?}");
            if verdict == Unknown {
                assert_eq!(detector.at_idle(), at_idle, "{updates:?}");
            }
        }
    }

    #[test]
    fn no_more_of_a_message_is_copied_than_what_is_compared() {
        let block = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
        for (blocks, is_whole) in [
            (vec![block(&"é\\n".repeat(1 << 20))], false),
            (vec![block("a"), block(&"b".repeat(1 << 20)), block("c")], false),
            (vec![block(&"x".repeat(COMPARED))], true),
            (vec![block(&"x".repeat(COMPARED)), block("y")], false),
        ] {
            let content: Content = blocks
                .iter()
                .map(|block| serde_json::from_str(block).unwrap())
                .collect::<Vec<_>>()
                .into_iter()
                .collect();
            let start = TextStart::of(&content);
            let text: String = content.to_text().chars().take(COMPARED).collect();
            assert!(text.starts_with(&start.text) && start.text.len() > COMPARED - 4);
            assert_eq!(start.is_whole, is_whole);
            assert!(start.text.capacity() < 4 * COMPARED, "{}", start.text.capacity());
        }
    }
}
