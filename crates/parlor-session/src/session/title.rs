//! Whose title a session has.
//!
//! A person's title stays until a person changes or clears it. Without one the agent's latest counts, and without that
//! the one that was made from the first prompt. All three are kept: when one goes, the next one shows again.

use parlor_json::{Json, JsonStr, Object};

use super::string_member;
use crate::{
    Body, Content, EntryId, Limits, MetaPatch, Role, Slot, TITLE, Target, Transcript, Update, Upsert, text_of,
};

/// The key of a session's metadata that says whose title it has. An agent's own title is not marked.
pub const TITLE_MARK: &str = "parlor/title";

/// How many characters a made title has at most.
const MADE_CHARS: usize = 60;

/// The key under which titles are kept.
const KEY: &str = "titles";

/// The titles that a session has, of which one shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Titles {
    person: Option<JsonStr>,
    agent: Option<JsonStr>,
    made: Option<JsonStr>,
}

/// The title that shows, and the mark that says whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown<'a> {
    title: Option<&'a JsonStr>,
    mark: Option<&'static str>,
}

impl Titles {
    /// The titles that were kept. Where none were, the transcript says which one shows, and whose it is.
    pub(super) fn restored(kept: Option<&Object>, transcript: &Transcript) -> Self {
        match kept.and_then(|kept| Object::parse(kept.get(KEY)?.raw()).ok()) {
            Some(titles) => Self {
                person: string_member(&titles, "person"),
                agent: string_member(&titles, "agent"),
                made: string_member(&titles, "made"),
            },
            None => {
                let info = transcript.slot(Slot::Info);
                let title = info.and_then(|info| string_member(&info.fields, TITLE)).filter(has_words);
                let mark = info.and_then(|info| string_member(info.meta.as_ref()?, TITLE_MARK));
                match mark.as_ref().map(JsonStr::inner) {
                    Some("person") => Self { person: title, ..Self::default() },
                    Some("made") => Self { made: title, ..Self::default() },
                    Some(_) | None => Self { agent: title, ..Self::default() },
                }
            }
        }
    }

    /// The titles of a fork. In one that begins with nothing, nothing was said that a title could be made of.
    pub(super) fn of_fork(&self, is_empty: bool) -> Self {
        let made = self.made.clone().filter(|_| !is_empty);
        Self { made, ..self.clone() }
    }

    /// The title that shows.
    pub(super) fn title(&self) -> Option<&JsonStr> {
        self.shown().title
    }

    /// Whether the title that shows was made.
    pub(super) fn is_made(&self) -> bool {
        self.shown().mark == Some("made")
    }

    /// What is known of a session, with the title that shows.
    pub(super) fn set_in(&self, info: &mut Body) {
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

    pub(super) fn keep(&self, kept: &mut Object) {
        let mut titles = Object::default();
        for (name, title) in [("person", &self.person), ("agent", &self.agent), ("made", &self.made)] {
            if let Some(title) = title {
                titles.set(name, title);
            }
        }
        if !titles.is_empty() {
            kept.set(KEY, titles.to_json());
        }
    }

    /// What an agent says about the session, as it counts: a title that does not show is remembered and left out, and
    /// one that goes makes room for the made one. `None` if nothing of it counts.
    pub(super) fn said(&mut self, mut upsert: Upsert, limits: Limits) -> Option<Upsert> {
        let mark_before = self.shown().mark;
        if let Some(said) = upsert.fields.get(TITLE) {
            let said = JsonStr::from_raw(said.raw()).map(|title| cut(title, limits)).filter(has_words);
            // An agent that was told a person's title may say it again; that does not make it the agent's.
            if said.is_none() || said != self.person {
                self.agent = said;
            }
            if self.person.is_some() {
                upsert.fields.remove(TITLE);
                if upsert.fields.is_empty() && upsert.meta == MetaPatch::Keep {
                    return None;
                }
            } else if let (None, Some(made)) = (&self.agent, &self.made) {
                upsert.fields.set(TITLE, made);
            }
        }
        let mark = self.shown().mark;
        upsert.meta = marked(upsert.meta, mark, mark_before != mark);
        Some(upsert)
    }

    /// A person gives the session a title, or takes it away; what there is to tell.
    pub(super) fn named(&mut self, title: Option<JsonStr>, limits: Limits) -> Option<Update> {
        self.change(|titles| {
            titles.person = title.map(|title| cut(title, limits)).filter(has_words);
        })
    }

    /// A title is made of the first words of a conversation, unless there is one; what there is to tell.
    pub(super) fn make(&mut self, content: &Content) -> Option<Update> {
        if self.made.is_some() {
            return None;
        }
        let title = content.iter().find_map(|item| first_words(&text_of(item.json)?))?;
        self.change(|titles| titles.made = Some(JsonStr::new(&title)))
    }

    /// The same for a conversation that is there.
    pub(super) fn make_for(&mut self, transcript: &Transcript) -> Option<Update> {
        let is_prompt = |id: &EntryId| matches!(id, EntryId::Message(Role::User, _));
        for prompt in transcript.entries().iter().filter(|entry| is_prompt(entry.id())) {
            if self.made.is_some() {
                break;
            }
            let told = self.make(&prompt.body().content.joined());
            if told.is_some() {
                return told;
            }
        }
        None
    }

    /// What a person said was replaced: a made title whose words nobody said any more is made again of what is there
    /// now. What there is to tell.
    pub(super) fn remake(&mut self, transcript: &Transcript) -> Option<Update> {
        let made = self.made.as_ref()?;
        let prompts =
            transcript.entries().iter().filter(|entry| matches!(entry.id(), EntryId::Message(Role::User, _)));
        let mut titles = prompts.filter_map(|prompt| {
            let content = prompt.body().content.joined();
            content
                .iter()
                .find_map(|item| first_words(&text_of(item.json)?))
                .map(|title| JsonStr::new(&title))
        });
        let first = titles.next();
        if first.as_ref() == Some(made) || titles.any(|title| title == *made) {
            return None;
        }
        self.change(|titles| titles.made = first)
    }

    fn shown(&self) -> Shown<'_> {
        match self {
            Self { person: title @ Some(_), .. } => Shown { title: title.as_ref(), mark: Some("person") },
            Self { agent: title @ Some(_), .. } => Shown { title: title.as_ref(), mark: None },
            Self { made: title @ Some(_), .. } => Shown { title: title.as_ref(), mark: Some("made") },
            Self { person: None, agent: None, made: None } => Shown { title: None, mark: None },
        }
    }

    /// Changes something; what there is to tell if another title shows then.
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

/// A patch of the metadata that leaves the right mark there. Only this crate writes marks.
fn marked(patch: MetaPatch, mark: Option<&'static str>, is_news: bool) -> MetaPatch {
    let value = || mark.map_or_else(Json::null, |mark| Json::from(&JsonStr::new(mark)));
    let merged = |mut patch: Object| {
        patch.remove(TITLE_MARK);
        if is_news {
            patch.set(TITLE_MARK, value());
        }
        patch
    };
    match patch {
        MetaPatch::Keep if is_news => MetaPatch::MergeKeys(merged(Object::default())),
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

fn has_words(title: &JsonStr) -> bool {
    !title.to_text().trim().is_empty()
}

/// The first line that has words in it, as far as they fit.
fn first_words(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.chars().any(char::is_alphanumeric))?;
    let is_space = |c: char| c.is_whitespace() || c.is_control();
    let words: Vec<&str> = line.split(is_space).filter(|word| !word.is_empty()).collect();
    let whole = words.join(" ");
    if whole.chars().count() <= MADE_CHARS {
        return Some(whole);
    }
    let mut title = String::new();
    let mut room = MADE_CHARS - 1;
    for word in words {
        let length = word.chars().count() + usize::from(!title.is_empty());
        if length > room {
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(word);
        room -= length;
    }
    if title.is_empty() {
        title = whole.chars().take(room).collect();
    }
    title.push('…');
    Some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_title_is_the_first_line_with_words_in_whole_words() {
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
            assert_eq!(first_words(text).as_deref(), title, "{text:?}");
        }
        for length in 0..200 {
            let text: String = "ab cde 😀 fghijk ".chars().cycle().take(length).collect();
            let made = first_words(&text).unwrap_or_default();
            assert!(made.chars().count() <= MADE_CHARS, "{made}");
            let whole = made.strip_suffix('…').unwrap_or(&made);
            assert!(
                whole.split(' ').eq(text.split_whitespace().take(whole.split(' ').count())) || length == 0,
                "{made}"
            );
        }
    }
}
