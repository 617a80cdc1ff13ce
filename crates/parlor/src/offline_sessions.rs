//! The stored sessions, read without a server.

use std::path::Path;
use std::time::Duration;

use parlor_dialect::live::{self, EncodeContext, UpdateEncoder};
use parlor_dialect::{Dialect, Fold, Losses};
use parlor_json::{JsonStr, Object};
use parlor_server::agent_sessions;
use parlor_server::search;
use parlor_server::stored::{self, StoredSession};
use parlor_session::{EntryId, ReplayCursor, Role, SessionId, Transcript, text_of};
use parlor_store::{Cursor, ErrorKind, Filter, SessionRow, SqliteStore, Store, StoreError};

use crate::command_error::CommandError;
use crate::output;
use crate::setup::PathOptions;

/// The sessions of a data directory.
pub(crate) struct OfflineSessions {
    /// Nothing if there is no database yet.
    store: Option<SqliteStore>,
}

/// How many sessions are read at once.
const PAGE: usize = 1000;

/// How many characters of an id are shown at least.
const SHORTEST: usize = 8;

/// How many entries are looked through for the first prompt.
const FIRST: usize = 16;

impl OfflineSessions {
    pub(crate) fn open(paths: &PathOptions) -> Result<Self, CommandError> {
        let Some(data) = paths.existing_data_dir()? else { return Ok(Self { store: None }) };
        let database = data.database();
        // One that is there and cannot be looked at is opened, and the error says why.
        if let Ok(false) = database.try_exists() {
            return Ok(Self { store: None });
        }
        let store = read_only(&database).map_err(|error| {
            let hint = if error.kind == ErrorKind::Outdated {
                "`parlor serve` upgrades it, and so does every command that starts a server"
            } else {
                "`parlor doctor` looks for what is wrong"
            };
            CommandError::failed(format_args!("{}: {error}", database.display())).hint(hint)
        })?;
        Ok(Self { store: Some(store) })
    }

    pub(crate) fn store(&self) -> Option<&dyn Store> {
        self.store.as_ref().map(|store| store as &dyn Store)
    }

    /// The sessions, the latest first.
    pub(crate) fn sessions(&self, filter: &Filter, limit: usize) -> Result<Vec<SessionRow>, CommandError> {
        let Some(store) = &self.store else { return Ok(Vec::new()) };
        let mut rows: Vec<SessionRow> = Vec::new();
        while rows.len() < limit {
            let after = rows.last().map(|row| Cursor { active_at: row.active_at, id: row.id.clone() });
            let wanted = PAGE.min(limit - rows.len());
            let page = store.sessions(filter, after.as_ref(), wanted).map_err(read_error)?;
            let is_last = page.len() < wanted;
            rows.extend(page);
            if is_last {
                break;
            }
        }
        Ok(rows)
    }

    /// The sessions and those that only agents know, the latest first.
    pub(crate) fn list(&self, filter: &Filter, limit: usize) -> Result<Vec<SessionRow>, CommandError> {
        let Some(store) = self.store() else { return Ok(Vec::new()) };
        let mut known = agent_sessions::of_all(store).map_err(read_error)?;
        known.retain(|row| filter.agent.as_ref().is_none_or(|agent| *agent == row.agent));
        let mut rows: Vec<SessionRow> = Vec::new();
        while rows.len() < limit {
            let after = rows.last().map(|row| Cursor { active_at: row.active_at, id: row.id.clone() });
            let wanted = PAGE.min(limit - rows.len());
            let page =
                agent_sessions::page(store, &known, filter, after.as_ref(), wanted).map_err(read_error)?;
            let is_last = page.len() < wanted;
            rows.extend(page);
            if is_last {
                break;
            }
        }
        Ok(rows)
    }

    /// The session that is meant, be it one that only its agent knows.
    pub(crate) fn find_any(&self, name: &str) -> Result<SessionRow, CommandError> {
        match self.find_known(name)? {
            Some(row) => Ok(row),
            None => self.find(name),
        }
    }

    /// The one session that only its agent knows and whose id is this, or begins so as no other one does.
    fn find_known(&self, name: &str) -> Result<Option<SessionRow>, CommandError> {
        if name.is_empty() {
            return Ok(None);
        }
        let mut found = self.list(&Filter::default(), usize::MAX)?;
        found.retain(|row| session_id(row).starts_with(name));
        let exact = found.iter().position(|row| session_id(row) == name);
        let one = match (exact, found.len()) {
            (Some(index), _) => Some(found.swap_remove(index)),
            (None, 1) => found.pop(),
            (None, _) => None,
        };
        Ok(one.filter(agent_sessions::is_agent_only))
    }

    /// The archived session that is meant, as in [`find`](Self::find): `latest` is the latest that is archived.
    pub(crate) fn find_archived(&self, name: &str) -> Result<SessionRow, CommandError> {
        if name != "latest" {
            return self.find(name);
        }
        let filter = Filter { archived: Some(true), ..Filter::default() };
        self.sessions(&filter, 1)?.pop().ok_or_else(|| CommandError::bad_input("no session is archived"))
    }

    /// The session that is meant: by its id, by the beginning of its id if no other begins so, or the `latest`.
    pub(crate) fn find(&self, name: &str) -> Result<SessionRow, CommandError> {
        if name == "latest" {
            let filter = Filter { archived: Some(false), ..Filter::default() };
            let latest = self.sessions(&filter, 1)?.pop();
            return latest.ok_or_else(|| {
                CommandError::bad_input("there are no sessions yet")
                    .hint("begin one with `parlor prompt --new TEXT`")
            });
        }
        let exact = self.store().map(|store| store.session(JsonStr::new(name).as_literal()));
        if let Some(row) = exact.transpose().map_err(read_error)?.flatten() {
            return Ok(row);
        }
        let mut found = self.sessions(&Filter::default(), usize::MAX)?;
        found.retain(|row| !name.is_empty() && session_id(row).starts_with(name));
        match found.len() {
            1 => Ok(found.remove(0)),
            0 if self.find_known(name)?.is_some() => {
                Err(CommandError::bad_input(format_args!("only its agent knows the session '{name}' yet"))
                    .hint("`parlor prompt` takes it over, and so does an editor that opens it"))
            }
            0 => Err(CommandError::bad_input(format_args!("there is no session '{name}'"))
                .hint("`parlor ls` lists them; the latest one is called latest")),
            many => {
                let mut ids: Vec<String> = found.iter().take(3).map(session_id).collect();
                if many > ids.len() {
                    ids.push("…".to_owned());
                }
                Err(CommandError::bad_input(format_args!("'{name}' is the beginning of {many} ids"))
                    .hint(format_args!("write more of the one that is meant: {}", ids.join(", "))))
            }
        }
    }

    /// All of a session.
    pub(crate) fn read(&self, row: &SessionRow) -> Result<StoredSession, CommandError> {
        let opened = self.store().map(|store| stored::open(store, &row.id));
        opened
            .transpose()
            .map_err(read_error)?
            .flatten()
            .ok_or_else(|| CommandError::failed("the session is gone"))
    }

    /// What a server would answer to `_parlor/search`.
    pub(crate) fn search(&self, params: &Object) -> Result<Object, CommandError> {
        let Some(store) = &self.store else { return Ok(Object::default()) };
        search::answer(store, params, output::now(), str::to_owned)
            .map_err(|error| CommandError::query(&parlor_client::Error::Rpc(error)))
    }

    /// How many characters tell the ids apart, at least.
    pub(crate) fn id_length(&self) -> Result<usize, CommandError> {
        let mut rows = self.sessions(&Filter::default(), usize::MAX)?;
        if let Some(store) = self.store() {
            rows.extend(agent_sessions::of_all(store).map_err(read_error)?);
        }
        let mut ids: Vec<String> = rows.iter().map(session_id).collect();
        ids.sort_unstable();
        ids.dedup();
        let alike = |pair: &[String]| {
            let same = pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count();
            same + 1
        };
        Ok(ids.windows(2).map(alike).max().unwrap_or(0).max(SHORTEST))
    }

    /// The words with which a session began.
    pub(crate) fn first_prompt_line(&self, row: &SessionRow) -> Result<Option<String>, CommandError> {
        let Some(store) = &self.store else { return Ok(None) };
        let mut after = 0;
        for _ in 0..FIRST {
            let Some(entry) = store.entries(&row.id, 0, after, 1).map_err(read_error)?.into_iter().next()
            else {
                break;
            };
            after = entry.created;
            let mut transcript = Transcript::default();
            let restored = transcript.restore_entry(
                entry.created,
                entry.seq,
                &entry.head,
                &entry.content,
                entry.inherited,
            );
            let Some(entry) = restored.ok().and(transcript.entries().first()) else { continue };
            if matches!(entry.id(), EntryId::Message(Role::User, _)) {
                let content = entry.body().content.joined();
                let text = content.iter().find_map(|item| text_of(item.json).map(|text| first_line(&text)));
                return Ok(text.filter(|text| !text.is_empty()));
            }
        }
        Ok(None)
    }
}

/// Opens a database. One that a server is just making is there before it can be read.
fn read_only(path: &Path) -> Result<SqliteStore, StoreError> {
    let mut opened = SqliteStore::open_read_only(path);
    for _ in 0..10 {
        let may_be_unfinished =
            |error: &StoreError| matches!(error.kind, ErrorKind::Format | ErrorKind::Outdated);
        if !opened.as_ref().is_err_and(may_be_unfinished) {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
        opened = SqliteStore::open_read_only(path);
    }
    opened
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(200).collect()
}

fn read_error(error: StoreError) -> CommandError {
    CommandError::failed(error).hint("`parlor doctor` looks for what is wrong")
}

/// The id of a session as text.
pub(crate) fn session_id(row: &SessionRow) -> String {
    literal_text(&row.id)
}

/// The title of a session.
pub(crate) fn session_title(row: &SessionRow) -> Option<String> {
    let title = stored::title(row).map(|title| title.to_text().into_owned());
    title.filter(|title| !title.trim().is_empty())
}

/// A JSON string as text.
pub(crate) fn literal_text(literal: &str) -> String {
    JsonStr::from_literal(literal).map_or_else(|| literal.to_owned(), |text| text.to_text().into_owned())
}

/// How much is said in one update at most, unless one block is longer.
const UPDATE: usize = 1 << 20;

/// The updates that tell a client of protocol version 2 all of a session, one JSON object each.
pub(crate) fn updates(opened: &StoredSession) -> Vec<String> {
    let transcript = &opened.transcript;
    let from = stored::SessionData::of(&opened.row).agent_dialect.unwrap_or(Dialect::V1);
    let mut encoder = UpdateEncoder::new(Dialect::V2, &Object::default()).with_events();
    let mut losses = Losses::default();
    let mut fresh = || -> parlor_session::MessageId { unreachable!("version 2 needs no new ids") };
    let mut read_error = ReplayCursor::new(0, transcript.seq());
    let mut updates = Vec::new();
    while let Some(update) = read_error.next(transcript, UPDATE) {
        let telling = EncodeContext { from, transcript, meta_before: None };
        updates.extend(encoder.encode(&update, telling, &mut fresh, &mut losses));
    }
    updates
}

/// A session in the words of protocol version 2, whichever version its agent speaks: what a client of it would show.
pub(crate) fn v2_transcript(opened: &StoredSession) -> Transcript {
    let id = SessionId::from("");
    let mut fold = Fold::of_session(Dialect::V2, id.clone());
    for update in updates(opened) {
        // What was stored was taken once, and is taken again.
        let _ = fold.line(live::update_line(&id, &update, None).trim_end());
    }
    fold.transcript().clone()
}
