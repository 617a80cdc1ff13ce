//! What a tab sends: a person's action.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The most bytes of a text that a person writes.
const MAX_TEXT: usize = 4 << 20;

/// The most bytes of an id, a title or another short text.
const MAX_SHORT: usize = 8 << 10;

/// The most files that are attached to a prompt.
const MAX_FILES: usize = 20;

/// The most values of a form.
const MAX_VALUES: usize = 500;

/// A message of a tab.
///
/// Elements that show an entry are named by their ids; sessions are named as in the addresses of the page.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Action {
    /// Shows a session, or none. With the epoch and the revision that the tab has, it is sent what changed since.
    Show {
        session: Option<String>,
        #[serde(default)]
        epoch: Option<String>,
        #[serde(default)]
        revision: Option<u64>,
    },
    /// Sends a prompt. The key identifies it if it is sent again.
    Prompt {
        key: String,
        text: String,
        #[serde(default)]
        files: Vec<Attachment>,
        /// Sends it into the running turn.
        #[serde(default)]
        now: bool,
    },
    /// Withdraws a queued prompt.
    Withdraw { id: String },
    /// Cancels the running turn.
    Stop,
    /// Answers a request: with an option, or with the values of a form.
    Answer {
        request: String,
        #[serde(default)]
        opened: String,
        #[serde(default)]
        option: Option<String>,
        #[serde(flatten)]
        values: BTreeMap<String, FieldValue>,
    },
    /// Declines a request.
    Decline {
        request: String,
        #[serde(default)]
        opened: String,
    },
    /// Moves a request to the end of the inbox.
    NotNow {
        request: String,
        #[serde(default)]
        opened: String,
    },
    /// Creates a session.
    New {
        agent: String,
        directory: String,
        text: String,
        #[serde(default)]
        files: Vec<Attachment>,
    },
    /// A person has seen that the turn of a session failed.
    Dismiss { session: String },
    /// Sets a mode, a model or another option.
    SetOption { option: String, value: String },
    /// Sets the title; an empty one lets the agent choose.
    Rename { title: String },
    /// Archives the session.
    Archive,
    /// Restores the archived session.
    Restore,
    /// Deletes the session after a time in which this can be undone.
    Delete,
    /// Keeps a session that was to be deleted.
    Undelete,
    /// Forks the session after a message, or at its end, and continues with another agent if one is named.
    Fork {
        #[serde(default)]
        message: Option<String>,
        #[serde(default)]
        agent: Option<String>,
    },
    /// Forks before a prompt and sends another one there.
    Edit {
        message: String,
        text: String,
        /// The numbers of the attachments that the prompt loses, as in [`TabPatch::Source`](super::to_tab::TabPatch::Source).
        #[serde(default)]
        dropped: Option<FieldValue>,
    },
    /// Forks before a prompt and sends it again.
    Regenerate { message: String },
    /// Requests the text of a message, to copy or to edit it.
    Source { message: String, to: String },
    /// Requests entries before a cursor.
    Older { before: String },
    /// Requests entries after one that is shown.
    Newer { after: String },
    /// Requests the entries around one that is not shown.
    Find { message: String },
    /// Requests the latest entries.
    Latest,
    /// Requests files and commands that complete a word.
    Complete { word: String },
    /// A person has seen the session.
    Seen,
}

/// A value of a form: repeated names are lists.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum FieldValue {
    One(String),
    Many(Vec<String>),
}

/// A file that a person attaches to a prompt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Attachment {
    /// Its name.
    pub(super) name: String,
    /// Its type, as the browser knows it.
    #[serde(rename = "type")]
    pub(super) mime: String,
    /// Its content, in Base64.
    pub(super) data: String,
}

impl Action {
    /// Reads a message. The error is for the person at the tab.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let action: Self =
            serde_json::from_str(text).map_err(|error| format!("The page sent a bad message: {error}"))?;
        action.check()?;
        Ok(action)
    }

    /// The key of the page with an entry that was searched for.
    pub(super) const FIND_KEY: &str = "find";

    /// The key of the page after an element.
    pub(super) fn newer_key(after: &str) -> String {
        format!("after:{after}")
    }

    /// The key of the page of entries that it requests, by which the tab knows the response.
    pub(super) fn page_key(&self) -> Option<String> {
        if let Self::Older { before } = self {
            return Some(before.clone());
        }
        if let Self::Newer { after } = self {
            return Some(Self::newer_key(after));
        }
        matches!(self, Self::Find { .. }).then(|| Self::FIND_KEY.to_owned())
    }

    /// Whether it needs a driver: it changes something, or reads more than the session, such as the names of files.
    pub(super) fn needs_driver(&self) -> bool {
        match self {
            Self::Show { .. }
            | Self::Source { .. }
            | Self::Older { .. }
            | Self::Newer { .. }
            | Self::Find { .. }
            | Self::Latest
            | Self::Seen => false,
            Self::Prompt { .. }
            | Self::Withdraw { .. }
            | Self::Stop
            | Self::Answer { .. }
            | Self::Decline { .. }
            | Self::NotNow { .. }
            | Self::New { .. }
            | Self::Dismiss { .. }
            | Self::SetOption { .. }
            | Self::Rename { .. }
            | Self::Archive
            | Self::Restore
            | Self::Delete
            | Self::Undelete
            | Self::Fork { .. }
            | Self::Edit { .. }
            | Self::Regenerate { .. }
            | Self::Complete { .. } => true,
        }
    }

    fn check(&self) -> Result<(), String> {
        let short = |text: &str| {
            if text.len() > MAX_SHORT { Err("A value is too long.".to_owned()) } else { Ok(()) }
        };
        let long = |text: &str| {
            if text.len() > MAX_TEXT {
                Err(format!("The text is longer than {} MB.", MAX_TEXT >> 20))
            } else {
                Ok(())
            }
        };
        let check_files = |files: &[Attachment]| {
            if files.len() > MAX_FILES {
                return Err(format!("A prompt can have {MAX_FILES} files."));
            }
            files.iter().try_for_each(|file| short(&file.name).and_then(|()| short(&file.mime)))
        };
        match self {
            Self::Stop
            | Self::Archive
            | Self::Restore
            | Self::Delete
            | Self::Undelete
            | Self::Latest
            | Self::Seen => Ok(()),
            Self::Show { session, epoch, .. } => {
                [session, epoch].into_iter().flatten().try_for_each(|text| short(text))
            }
            Self::Prompt { key, text, files, now: _ } => {
                short(key)?;
                long(text)?;
                check_files(files)
            }
            Self::Answer { request, opened, option, values } => {
                short(request)?;
                short(opened)?;
                option.iter().try_for_each(|option| short(option))?;
                let count: usize = values.values().map(FieldValue::len).sum();
                if count > MAX_VALUES {
                    return Err("The form has too many values.".to_owned());
                }
                Ok(())
            }
            Self::Decline { request, opened } | Self::NotNow { request, opened } => {
                short(request).and_then(|()| short(opened))
            }
            Self::New { agent, directory, text, files } => {
                short(agent)?;
                short(directory)?;
                long(text)?;
                check_files(files)
            }
            Self::SetOption { option, value } => short(option).and_then(|()| short(value)),
            Self::Fork { message, agent } => {
                [message, agent].into_iter().flatten().try_for_each(|text| short(text))
            }
            Self::Edit { message, text, dropped } => {
                if dropped.as_ref().is_some_and(|dropped| dropped.len() > MAX_VALUES) {
                    return Err("The form has too many values.".to_owned());
                }
                short(message).and_then(|()| long(text))
            }
            Self::Source { message, to } => short(message).and_then(|()| short(to)),
            Self::Withdraw { id: text }
            | Self::Dismiss { session: text }
            | Self::Rename { title: text }
            | Self::Regenerate { message: text }
            | Self::Older { before: text }
            | Self::Newer { after: text }
            | Self::Find { message: text }
            | Self::Complete { word: text } => short(text),
        }
    }
}

impl FieldValue {
    /// The values.
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    fn len(&self) -> usize {
        self.as_slice().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_with_the_values_of_forms() {
        let action = |text: &str| Action::parse(text).unwrap();
        assert_eq!(
            action(r#"{"do":"show","session":"s1","epoch":"e","revision":3}"#),
            Action::Show { session: Some("s1".into()), epoch: Some("e".into()), revision: Some(3) }
        );
        assert_eq!(
            action(r#"{"do":"show","session":null}"#),
            Action::Show { session: None, epoch: None, revision: None }
        );
        assert_eq!(action(r#"{"do":"stop","other":"x"}"#), Action::Stop);
        let answer = action(
            r#"{"do":"answer","session":"s1","request":"r1","opened":"t","f.name":"x","f.many":["a","b"]}"#,
        );
        let Action::Answer { request, option, values, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((request.as_str(), option), ("r1", None));
        assert_eq!(values["f.many"].as_slice(), ["a", "b"]);
        assert_eq!(values["f.name"].as_slice(), ["x"]);
    }

    #[test]
    fn bad_and_long_messages_are_refused() {
        for text in ["", "[]", "{}", r#"{"do":"fly"}"#, r#"{"do":"prompt"}"#, r#"{"do":"withdraw","id":{}}"#]
        {
            assert!(Action::parse(text).is_err(), "{text}");
        }
        let long = "x".repeat(MAX_SHORT + 1);
        for text in [
            format!(r#"{{"do":"rename","title":"{long}"}}"#),
            format!(r#"{{"do":"prompt","key":"{long}","text":"x"}}"#),
            format!(r#"{{"do":"prompt","key":"k","text":"{}"}}"#, "x".repeat(MAX_TEXT + 1)),
            format!(r#"{{"do":"fork","agent":"{long}"}}"#),
            format!(r#"{{"do":"edit","message":"{long}","text":"x"}}"#),
            format!(r#"{{"do":"answer","request":"{long}"}}"#),
            format!(r#"{{"do":"not_now","request":"r","opened":"{long}"}}"#),
            format!(r#"{{"do":"new","agent":"a","directory":"{long}","text":""}}"#),
        ] {
            assert!(Action::parse(&text).is_err());
        }
        let file = r#"{"name":"a","type":"","data":""}"#;
        let files = vec![file; MAX_FILES + 1].join(",");
        assert!(
            Action::parse(&format!(r#"{{"do":"prompt","key":"k","text":"","files":[{files}]}}"#)).is_err()
        );
        let new = format!(r#"{{"do":"new","agent":"a","directory":"/","text":"","files":[{files}]}}"#);
        assert!(Action::parse(&new).is_err());
        let values = vec![r#""v""#; MAX_VALUES + 1].join(",");
        assert!(Action::parse(&format!(r#"{{"do":"answer","request":"r","f":[{values}]}}"#)).is_err());
    }

    #[test]
    fn observers_may_only_read_the_session() {
        let needs_driver = |text: &str| Action::parse(text).unwrap().needs_driver();
        for text in [
            r#"{"do":"show","session":null}"#,
            r#"{"do":"source","message":"m","to":"copy"}"#,
            r#"{"do":"older","before":"e:m-1"}"#,
            r#"{"do":"newer","after":"m-1"}"#,
            r#"{"do":"find","message":"m-1"}"#,
            r#"{"do":"latest"}"#,
            r#"{"do":"seen"}"#,
        ] {
            assert!(!needs_driver(text), "{text}");
        }
        for text in [
            r#"{"do":"prompt","key":"k","text":"x"}"#,
            r#"{"do":"withdraw","id":"1"}"#,
            r#"{"do":"stop"}"#,
            r#"{"do":"answer","request":"r"}"#,
            r#"{"do":"decline","request":"r"}"#,
            r#"{"do":"not_now","request":"r"}"#,
            r#"{"do":"new","agent":"a","directory":"/","text":""}"#,
            r#"{"do":"dismiss","session":"s"}"#,
            r#"{"do":"set_option","option":"1","value":"1"}"#,
            r#"{"do":"rename","title":""}"#,
            r#"{"do":"archive"}"#,
            r#"{"do":"restore"}"#,
            r#"{"do":"delete"}"#,
            r#"{"do":"undelete"}"#,
            r#"{"do":"fork"}"#,
            r#"{"do":"edit","message":"m","text":"x"}"#,
            r#"{"do":"regenerate","message":"m"}"#,
            r#"{"do":"complete","word":"@"}"#,
        ] {
            assert!(needs_driver(text), "{text}");
        }
    }
}
