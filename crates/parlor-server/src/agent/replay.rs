//! Whether what an agent tells of a session that it resumed or forked was before.
//!
//! It need not tell it again, but some agents do, from the beginning. The first entry that it tells of decides: if the
//! conversation has that entry, all that is told until the agent is silent was before; else all of it is new. Prompts that the
//! conversation does not have decide nothing, because agents replay them in other words and with context of their own: what
//! follows them decides, and if nothing does, they were before. In a fork, nobody has prompted the agent yet: any prompt was
//! before.

use std::collections::HashSet;
use std::sync::Arc;

use parlor_dialect::Decoded;
use parlor_session::session::Session;
use parlor_session::{Content, EntryId, Naming, Patch, Role, Target, Update, text_beginning};

/// How many bytes of a message's text are compared.
const BEGINNING: usize = 256;

/// What an agent that tells a conversation again may begin with.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Messages and tool calls by the agent's ids.
    entries: HashSet<EntryId>,
    messages: HashSet<(Role, Beginning)>,
}

/// How the text of a message begins.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Beginning {
    text: String,
    is_whole: bool,
}

/// What is known of what an agent tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Unknown,
    /// It was before.
    Replay,
    New,
}

/// What an agent has told so far, until it is known whether it was before.
#[derive(Debug)]
pub(super) struct Told {
    history: Arc<History>,
    is_fork: bool,
    /// The message that decides, and how its text begins, as far as it was told.
    first: Option<(Role, EntryId, String)>,
    /// Whether it told of a prompt.
    has_prompt: bool,
    /// The lines.
    pub(super) held: Vec<HeldLine>,
    pub(super) held_bytes: usize,
}

/// A line of which it is not known whether it was before.
#[derive(Debug)]
pub(super) struct HeldLine {
    pub(super) line: String,
    /// Whether the session is busy, if the line says that.
    pub(super) is_busy: Option<bool>,
}

impl History {
    pub(crate) fn of(session: &Session) -> Arc<Self> {
        let messages = session.transcript().entries().iter().filter_map(|entry| match entry.id() {
            EntryId::Message(role, _) => Some((*role, Beginning::of(&entry.body().content))),
            EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => None,
        });
        // An agent that was given the conversation has that in front of a prompt.
        let envelopes = session
            .envelopes()
            .map(|envelope| (Role::User, Beginning { text: envelope.opening(), is_whole: false }));
        Arc::new(Self {
            messages: messages.chain(envelopes).collect(),
            entries: session.agents_entries().collect(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.messages.is_empty()
    }

    /// What a text means with which a message begins, or which is all of it. That of a prompt is never new.
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

impl Beginning {
    fn of(content: &Content) -> Self {
        let mut text = beginning_of(content);
        let is_whole = text.len() <= BEGINNING;
        if !is_whole {
            let end = (0..=BEGINNING).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
        }
        Self { text, is_whole }
    }

    /// `is_loose`: agents join such messages, or leave parts of them out, when they tell them again.
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

impl Told {
    pub(super) fn new(history: Arc<History>, is_fork: bool) -> Self {
        Self { history, is_fork, first: None, has_prompt: false, held: Vec::new(), held_bytes: 0 }
    }

    pub(super) fn hold(&mut self, line: &str, update: &Update) {
        let is_busy = if let Update::State(state) = update { Some(state.activity.is_busy()) } else { None };
        self.held_bytes += line.len();
        self.held.push(HeldLine { line: line.to_owned(), is_busy });
    }

    /// What one more update means.
    pub(super) fn hears(&mut self, Decoded { update, naming, .. }: &Decoded) -> Verdict {
        let (entry, content) = match update {
            Update::Append { entry, item, .. } => {
                (entry, Some(text_beginning(item.as_str(), BEGINNING).unwrap_or_default()))
            }
            Update::Upsert { target: Target::Entry(entry), upsert } => match &upsert.content {
                Patch::Value(content) => (entry, Some(beginning_of(content))),
                Patch::Omitted | Patch::Clear => (entry, None),
            },
            Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => return Verdict::Unknown,
        };
        let is_known = *naming != Naming::Named && self.history.entries.contains(entry);
        let role = match entry {
            EntryId::Message(role, _) => *role,
            EntryId::ToolCall(_) => {
                return match self.end() {
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
            match self.end() {
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
        if text.len() > BEGINNING {
            // More of it tells no more.
            return Verdict::Unknown;
        }
        text.push_str(&content);
        self.history.verdict(role, text, is_whole)
    }

    /// What it all means if the message that decides is whole. It is unknown if none does.
    pub(super) fn end(&self) -> Verdict {
        let Some((role, _, text)) = &self.first else { return Verdict::Unknown };
        self.history.verdict(*role, text, true)
    }

    /// What it all means if nothing follows, or nothing more can be held.
    pub(super) fn at_silence(&self) -> Verdict {
        match self.end() {
            Verdict::Unknown if self.has_prompt => Verdict::Replay,
            Verdict::Unknown => Verdict::New,
            verdict @ (Verdict::Replay | Verdict::New) => verdict,
        }
    }
}

/// How the text of a message begins: all of it, or a little more than what is compared.
fn beginning_of(content: &Content) -> String {
    let mut text = String::new();
    for item in content.iter() {
        if text.len() > BEGINNING {
            break;
        }
        text.extend(text_beginning(item.json, BEGINNING));
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
    fn a_message_is_compared_with_how_stored_ones_begin() {
        let whole = |text: &str| Beginning { text: text.to_owned(), is_whole: true };
        let cut = |text: &str| Beginning { text: text.to_owned(), is_whole: false };
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
    fn a_conversation_that_was_given_in_any_envelope_is_no_news() {
        let mut session = Session::new(Transcript::default(), live::WORDS, None);
        let mut new_id = || "m".into();
        for id in ["one", "two"] {
            let handed = Input::HandedOver(Envelope::new(id));
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
    fn no_more_of_a_message_is_copied_than_what_is_compared() {
        let block = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
        for (blocks, is_whole) in [
            (vec![block(&"é\\n".repeat(1 << 20))], false),
            (vec![block("a"), block(&"b".repeat(1 << 20)), block("c")], false),
            (vec![block(&"x".repeat(BEGINNING))], true),
            (vec![block(&"x".repeat(BEGINNING)), block("y")], false),
        ] {
            let content: Content = blocks
                .iter()
                .map(|block| serde_json::from_str(block).unwrap())
                .collect::<Vec<_>>()
                .into_iter()
                .collect();
            let beginning = Beginning::of(&content);
            let text: String = content.to_text().chars().take(BEGINNING).collect();
            assert!(text.starts_with(&beginning.text) && beginning.text.len() > BEGINNING - 4);
            assert_eq!(beginning.is_whole, is_whole);
            assert!(beginning.text.capacity() < 4 * BEGINNING, "{}", beginning.text.capacity());
        }
    }
}
