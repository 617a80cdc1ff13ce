//! Selects the title of a session.
//!
//! A person's title stays until a person changes or clears it. Without one the agent's latest title is shown, and
//! without that the title generated from the first prompt. All three are stored: when one is cleared, the next is
//! shown.

use parlor_json::{Json, JsonStr, Object};

use crate::{
    Body, Content, EntryId, Limits, MetaPatch, Role, Slot, TITLE, Target, Transcript, Update, Upsert, text_of,
};

/// The key in a session's metadata that marks a person's or a generated title. An agent's title is not marked.
pub const TITLE_MARK: &str = "parlor/title";

/// Maximum number of characters of a generated title.
const MAX_CHARS: usize = 60;

/// The key of the titles in the side state.
const KEY: &str = "titles";

/// The titles of a session, of which one is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Titles {
    person: Option<JsonStr>,
    agent: Option<JsonStr>,
    generated: Option<JsonStr>,
}

/// The title that is shown, and its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown<'a> {
    title: Option<&'a JsonStr>,
    mark: Option<&'static str>,
}

impl Titles {
    /// Restores the titles from the side state; if it has none, from the title in the transcript and its mark.
    pub(super) fn restored(side_state: Option<&Object>, transcript: &Transcript) -> Self {
        match side_state.and_then(|state| state.get_object(KEY)) {
            Some(titles) => Self {
                person: titles.get_json_str("person"),
                agent: titles.get_json_str("agent"),
                generated: titles.get_json_str("made"),
            },
            None => {
                let info = transcript.slot(Slot::Info);
                let title = info.and_then(|info| info.fields.get_json_str(TITLE)).filter(is_not_blank);
                let mark = info.and_then(|info| info.meta.as_ref()?.get_json_str(TITLE_MARK));
                match mark.as_ref().map(JsonStr::inner) {
                    Some("person") => Self { person: title, ..Self::default() },
                    Some("made") => Self { generated: title, ..Self::default() },
                    Some(_) | None => Self { agent: title, ..Self::default() },
                }
            }
        }
    }

    /// The titles of a fork. An empty fork has no generated title.
    pub(super) fn for_fork(&self, is_empty: bool) -> Self {
        let generated = self.generated.clone().filter(|_| !is_empty);
        Self { generated, ..self.clone() }
    }

    /// The title that is shown.
    pub(super) fn title(&self) -> Option<&JsonStr> {
        self.shown().title
    }

    /// Whether the title that is shown was generated.
    pub(super) fn is_generated(&self) -> bool {
        self.shown().mark == Some("made")
    }

    /// Sets the title that is shown in the session info.
    pub(super) fn write_to(&self, info: &mut Body) {
        let Shown { title, mark } = self.shown();
        match title {
            Some(title) => info.fields.set(TITLE, title),
            None => drop(info.fields.remove(TITLE)),
        }
        if mark.is_none()
            && let Some(meta) = &mut info.meta
        {
            meta.remove(TITLE_MARK);
        }
    }

    pub(super) fn store(&self, side_state: &mut Object) {
        let mut titles = Object::default();
        for (name, title) in [("person", &self.person), ("agent", &self.agent), ("made", &self.generated)] {
            if let Some(title) = title {
                titles.set(name, title);
            }
        }
        if !titles.is_empty() {
            side_state.set(KEY, titles.to_json());
        }
    }

    /// Returns the part of an agent's update of the session info that is applied: a title that is not shown is
    /// remembered and left out, and a cleared one is replaced by the generated title. `None` if nothing is left.
    pub(super) fn on_agent_info(&mut self, mut upsert: Upsert, limits: Limits) -> Option<Upsert> {
        let mark_before = self.shown().mark;
        if let Some(title) = upsert.fields.get(TITLE) {
            let title = title.to_json_str().map(|title| cut(title, limits)).filter(is_not_blank);
            // An agent may repeat a person's title that it was sent; that does not make it the agent's title.
            if title.is_none() || title != self.person {
                self.agent = title;
            }
            if self.person.is_some() {
                upsert.fields.remove(TITLE);
                if upsert.fields.is_empty() && upsert.meta == MetaPatch::Keep {
                    return None;
                }
            } else if let (None, Some(generated)) = (&self.agent, &self.generated) {
                upsert.fields.set(TITLE, generated);
            }
        }
        let mark = self.shown().mark;
        upsert.meta = marked(upsert.meta, mark, mark_before != mark);
        Some(upsert)
    }

    /// Sets or clears a person's title; returns the update if another title is shown.
    pub(super) fn set_person_title(&mut self, title: Option<JsonStr>, limits: Limits) -> Option<Update> {
        self.change(|titles| {
            titles.person = title.map(|title| cut(title, limits)).filter(is_not_blank);
        })
    }

    /// Generates a title from the content of a prompt unless there is one; returns the update if another title is
    /// shown.
    pub(super) fn generate(&mut self, content: &Content) -> Option<Update> {
        if self.generated.is_some() {
            return None;
        }
        let title = content.iter().find_map(|item| title_from(&text_of(item.json)?))?;
        self.change(|titles| titles.generated = Some(JsonStr::new(&title)))
    }

    /// As [`generate`](Self::generate), from the prompts of a transcript.
    pub(super) fn generate_for(&mut self, transcript: &Transcript) -> Option<Update> {
        let is_prompt = |id: &EntryId| matches!(id, EntryId::Message(Role::User, _));
        for prompt in transcript.entries().iter().filter(|entry| is_prompt(entry.id())) {
            if self.generated.is_some() {
                break;
            }
            let update = self.generate(&prompt.body().content.joined());
            if update.is_some() {
                return update;
            }
        }
        None
    }

    /// Generates the title again if it is not that of any prompt any more, after a prompt was replaced or removed;
    /// returns the update if another title is shown.
    pub(super) fn regenerate(&mut self, transcript: &Transcript) -> Option<Update> {
        let generated = self.generated.as_ref()?;
        let prompts =
            transcript.entries().iter().filter(|entry| matches!(entry.id(), EntryId::Message(Role::User, _)));
        let mut titles = prompts.filter_map(|prompt| {
            let content = prompt.body().content.joined();
            content.iter().find_map(|item| title_from(&text_of(item.json)?)).map(|title| JsonStr::new(&title))
        });
        let first = titles.next();
        if first.as_ref() == Some(generated) || titles.any(|title| title == *generated) {
            return None;
        }
        self.change(|titles| titles.generated = first)
    }

    fn shown(&self) -> Shown<'_> {
        match self {
            Self { person: title @ Some(_), .. } => Shown { title: title.as_ref(), mark: Some("person") },
            Self { agent: title @ Some(_), .. } => Shown { title: title.as_ref(), mark: None },
            Self { generated: title @ Some(_), .. } => Shown { title: title.as_ref(), mark: Some("made") },
            Self { person: None, agent: None, generated: None } => Shown { title: None, mark: None },
        }
    }

    /// Applies a change; returns the update if another title is shown.
    fn change(&mut self, change: impl FnOnce(&mut Self)) -> Option<Update> {
        let before = self.clone();
        change(self);
        let (was, is) = (before.shown(), self.shown());
        if was == is {
            return None;
        }
        let mut fields = Object::default();
        fields.set(TITLE, is.title.map_or_else(Json::null, Json::from));
        let meta = marked(MetaPatch::Keep, is.mark, was.mark != is.mark);
        let upsert = Upsert { fields, meta, ..Upsert::default() };
        Some(Update::Upsert { target: Target::Slot(Slot::Info), upsert })
    }
}

/// Sets the mark in a patch of the metadata. Only this crate writes marks.
fn marked(patch: MetaPatch, mark: Option<&'static str>, is_changed: bool) -> MetaPatch {
    let value = || mark.map_or_else(Json::null, |mark| Json::from(&JsonStr::new(mark)));
    let merged = |mut patch: Object| {
        patch.remove(TITLE_MARK);
        if is_changed {
            patch.set(TITLE_MARK, value());
        }
        patch
    };
    match patch {
        MetaPatch::Keep if is_changed => MetaPatch::MergeKeys(merged(Object::default())),
        MetaPatch::Keep => MetaPatch::Keep,
        MetaPatch::Clear if mark.is_some() => {
            MetaPatch::Replace([(JsonStr::new(TITLE_MARK), value())].into_iter().collect())
        }
        MetaPatch::Clear => MetaPatch::Clear,
        MetaPatch::Replace(mut meta) => {
            meta.remove(TITLE_MARK);
            if mark.is_some() {
                meta.set(TITLE_MARK, value());
            }
            MetaPatch::Replace(meta)
        }
        MetaPatch::MergeKeys(patch) => MetaPatch::MergeKeys(merged(patch)),
        MetaPatch::MergeDeep(patch) => MetaPatch::MergeDeep(merged(patch)),
    }
}

fn cut(title: JsonStr, limits: Limits) -> JsonStr {
    title.truncated(limits.title_chars).unwrap_or(title)
}

fn is_not_blank(title: &JsonStr) -> bool {
    !title.to_text().trim().is_empty()
}

/// The first line with a letter or digit, cut at a word boundary to [`MAX_CHARS`].
fn title_from(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.chars().any(char::is_alphanumeric))?;
    let is_space = |c: char| c.is_whitespace() || c.is_control();
    let words: Vec<&str> = line.split(is_space).filter(|word| !word.is_empty()).collect();
    let whole = words.join(" ");
    if whole.chars().count() <= MAX_CHARS {
        return Some(whole);
    }
    let mut title = String::new();
    let mut chars_left = MAX_CHARS - 1;
    for word in words {
        let length = word.chars().count() + usize::from(!title.is_empty());
        if length > chars_left {
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(word);
        chars_left -= length;
    }
    if title.is_empty() {
        title = whole.chars().take(chars_left).collect();
    }
    title.push('…');
    Some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_title_is_the_first_line_cut_at_a_word_boundary() {
        let words = "word ".repeat(20);
        let twelve = format!("{}…", "word ".repeat(12).trim_end());
        for (text, title) in [
            ("Fix the bug", Some("Fix the bug")),
            ("\n  ---\n\tFix   the\u{1b} bug \nand more", Some("Fix the bug")),
            ("\n \n---", None),
            ("", None),
            (&words, Some(&*twelve)),
            (&"ü".repeat(60), Some(&*"ü".repeat(60))),
            (&"ü".repeat(61), Some(&*format!("{}…", "ü".repeat(59)))),
            ("/init", Some("/init")),
        ] {
            assert_eq!(title_from(text).as_deref(), title, "{text:?}");
        }
        for length in 0..200 {
            let text: String = "ab cde 😀 fghijk ".chars().cycle().take(length).collect();
            let generated = title_from(&text).unwrap_or_default();
            assert!(generated.chars().count() <= MAX_CHARS, "{generated}");
            let whole = generated.strip_suffix('…').unwrap_or(&generated);
            assert!(
                whole.split(' ').eq(text.split_whitespace().take(whole.split(' ').count())) || length == 0,
                "{generated}"
            );
        }
    }
}
