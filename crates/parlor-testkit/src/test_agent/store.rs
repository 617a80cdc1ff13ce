//! Stores sessions in files or in memory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use parlor_json::{Object, ObjectWriter};

use super::encode::{Block, Role, blocks};
use super::json::{self, list};
use super::session::{StoredMessage, StoredSession};

/// The most stored sessions, and the most open ones.
pub(super) const MAX_SESSIONS: usize = 1000;

/// The stored sessions.
#[derive(Debug)]
pub(super) enum Store {
    /// One file per session.
    Folder(PathBuf),
    /// Until the process ends.
    Memory(Mutex<BTreeMap<String, StoredSession>>),
}

impl Store {
    /// Opens the store, and creates the folder if it is missing.
    pub(super) fn open(folder: Option<&Path>) -> io::Result<Self> {
        match folder {
            Some(folder) => {
                fs::create_dir_all(folder)?;
                Ok(Self::Folder(folder.to_owned()))
            }
            None => Ok(Self::Memory(Mutex::default())),
        }
    }

    /// Returns a session, or `None` also if its file is damaged.
    pub(super) fn get(&self, id: &str) -> Option<StoredSession> {
        match self {
            Self::Folder(folder) => read(&file(folder, id)?),
            Self::Memory(sessions) => {
                sessions.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
            }
        }
    }

    /// Stores a session.
    pub(super) fn put(&self, session: &StoredSession) -> io::Result<()> {
        match self {
            Self::Folder(folder) => {
                let Some(path) = file(folder, &session.id) else { return Ok(()) };
                // A process that is killed meanwhile leaves the old file whole.
                let half = path.with_extension("tmp");
                fs::write(&half, to_json(session))?;
                fs::rename(half, path)
            }
            Self::Memory(sessions) => {
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions.insert(session.id.clone(), session.clone());
                Ok(())
            }
        }
    }

    /// Removes a session.
    pub(super) fn remove(&self, id: &str) {
        match self {
            Self::Folder(folder) => {
                if let Some(path) = file(folder, id) {
                    // The file may not exist.
                    let _ = fs::remove_file(path);
                }
            }
            Self::Memory(sessions) => {
                sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
            }
        }
    }

    /// Lists all sessions, most recently changed first.
    pub(super) fn list(&self) -> Vec<StoredSession> {
        let mut all: Vec<StoredSession> = match self {
            Self::Folder(folder) => {
                let files = fs::read_dir(folder).into_iter().flatten().flatten();
                let files = files.map(|file| file.path());
                let sessions = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
                sessions.take(MAX_SESSIONS).filter_map(|path| read(&path)).collect()
            }
            Self::Memory(sessions) => {
                sessions.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
            }
        };
        all.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.id.cmp(&b.id)));
        all
    }

    /// Returns the number of sessions.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Folder(folder) => fs::read_dir(folder).map_or(0, Iterator::count),
            Self::Memory(sessions) => sessions.lock().unwrap_or_else(PoisonError::into_inner).len(),
        }
    }
}

/// Returns the path of a session's file. Ids come from clients, which must not reach other files.
fn file(folder: &Path, id: &str) -> Option<PathBuf> {
    let is_plain =
        !id.is_empty() && id.len() <= 100 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    is_plain.then(|| folder.join(format!("{id}.json")))
}

fn read(path: &Path) -> Option<StoredSession> {
    let object = Object::parse(parlor_json::Json::parse(fs::read_to_string(path).ok()?).ok()?.raw()).ok()?;
    let text = |name: &str| object.get_string(name);
    let message = |message: &parlor_json::Json| {
        let message = message.to_object()?;
        let content = json::array(&message, "content")?;
        Some(StoredMessage {
            role: Role::from_name(&message.get_string("role")?)?,
            id: message.get_string("messageId")?,
            content: content.iter().map(block).collect(),
        })
    };
    Some(StoredSession {
        id: text("sessionId")?,
        cwd: text("cwd")?,
        title: text("title"),
        mode: text("mode")?,
        model: text("model")?,
        updated_at: text("updatedAt")?,
        messages: json::array(&object, "messages")?.iter().filter_map(message).collect(),
    })
}

/// Converts a content block.
pub(super) fn block(json: &parlor_json::Json) -> Block {
    let object = Object::parse(json.raw()).unwrap_or_default();
    match (object.get_string("type").as_deref(), object.get_string("text")) {
        (Some("text"), Some(text)) if object.iter().count() == 2 => Block::Text(text),
        _ => Block::Json(json.as_str().to_owned()),
    }
}

fn to_json(session: &StoredSession) -> String {
    let message = |message: &StoredMessage| {
        let text = ObjectWriter::new().str("role", message.role.name()).str("messageId", &message.id);
        text.raw("content", &blocks(&message.content)).finish()
    };
    ObjectWriter::new()
        .str("sessionId", &session.id)
        .str("cwd", &session.cwd)
        .optional_str("title", session.title.as_deref())
        .str("mode", &session.mode)
        .str("model", &session.model)
        .str("updatedAt", &session.updated_at)
        .raw("messages", &list(session.messages.iter().map(message)))
        .finish()
}

/// Returns the time in RFC 3339.
pub(super) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    timestamp(since.as_secs(), since.subsec_millis())
}

fn timestamp(seconds: u64, millis: u32) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_735_689_599, "2024-12-31T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(timestamp(seconds, 7), expected);
        }
    }

    #[test]
    fn session_ids_cannot_reach_files_outside_the_folder() {
        let folder = Path::new("/state");
        assert_eq!(file(folder, "test-1a"), Some("/state/test-1a.json".into()));
        for id in ["", "..", "../x", "a/b", "a.b", "ä"] {
            assert_eq!(file(folder, id), None, "{id}");
        }
    }

    #[test]
    fn a_stored_session_is_read_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(Some(folder.path())).unwrap();
        let session = StoredSession {
            id: "test-1".into(),
            cwd: "/w".into(),
            title: Some("T".into()),
            mode: "code".into(),
            model: "large".into(),
            updated_at: "2026".into(),
            messages: vec![StoredMessage {
                role: Role::Thought,
                id: "m".into(),
                content: vec![Block::Text("a\nb".into()), Block::Json(r#"{"type":"x","n":1.0}"#.into())],
            }],
        };
        store.put(&session).unwrap();
        assert_eq!(store.get("test-1"), Some(session.clone()));
        assert_eq!(store.list(), [session]);
        store.remove("test-1");
        assert_eq!((store.get("test-1"), store.len()), (None, 0));
    }
}
