//! Stored sessions, read without a server.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use parlor_dialect::live::{self, EncodeContext, UpdateEncoder};
use parlor_dialect::{Dialect, Fold, Losses};
use parlor_json::{JsonStr, Object};
use parlor_server::agent_sessions;
use parlor_server::search;
use parlor_server::stored::{self, StoredSession};
use parlor_session::{ReplayCursor, SessionId, Transcript};
use parlor_store::{Cursor, ErrorKind, Filter, SessionRow, SqliteStore, Store, StoreError};

use crate::command_error::CommandError;
use crate::output;
use crate::path_options::{self, PathOptions};

/// How many of several matching sessions an error lists.
const SHOWN_MATCHES: usize = 5;

/// The sessions of a data directory.
pub(crate) struct OfflineSessions {
    /// `None` if there is no database yet.
    store: Option<SqliteStore>,
}

/// The option `--all` of commands that select a session.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LatestOption {
    /// Let `latest` be the latest session of all directories, not only of this one
    #[arg(long)]
    all: bool,
}

/// The name of the latest session.
pub(crate) const LATEST: &str = "latest";

/// The sessions of which `latest` is the latest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatestScope {
    /// Those with the current directory.
    Directory,
    All,
}

impl LatestOption {
    pub(crate) fn scope(self) -> LatestScope {
        if self.all { LatestScope::All } else { LatestScope::Directory }
    }
}

/// How many sessions are read in one query.
const PAGE: usize = 1000;

/// The minimum length of a printed id.
const MIN_ID_LENGTH: usize = 8;

/// The maximum size of one exported update, unless a single content block is longer.
const UPDATE_SIZE: usize = 1 << 20;

const DOCTOR_HINT: &str = "`parlor doctor` checks the database";

impl OfflineSessions {
    pub(crate) fn open(paths: &PathOptions) -> Result<Self, CommandError> {
        let Some(data) = paths.existing_data_dir()? else {
            let Some(named) = &paths.data else { return Ok(Self { store: None }) };
            let message = format!("the data directory {} does not exist", named.display());
            return Err(CommandError::bad_input(message).hint("a server that uses it creates it"));
        };
        let database = data.database();
        // If this cannot be determined, opening the database reports why.
        if let Ok(false) = database.try_exists() {
            return Ok(Self { store: None });
        }
        let store = read_only(&database).map_err(|error| {
            let hint = if error.kind == ErrorKind::Outdated {
                "`parlor serve` migrates it, and so does every command that starts a server"
            } else if error.kind == ErrorKind::Full {
                "delete or move files on the disk of the data directory; the server then continues by itself"
            } else {
                DOCTOR_HINT
            };
            CommandError::server_unavailable(format_args!("cannot read {}: {error}", database.display()))
                .hint(hint)
        })?;
        Ok(Self { store: Some(store) })
    }

    /// The database; `None` if there is none yet.
    pub(crate) fn database(&self) -> Option<&SqliteStore> {
        self.store.as_ref()
    }

    pub(crate) fn store(&self) -> Option<&dyn Store> {
        self.store.as_ref().map(|store| store as &dyn Store)
    }

    /// Lists sessions, the latest first.
    pub(crate) fn sessions(&self, filter: &Filter, limit: usize) -> Result<Vec<SessionRow>, CommandError> {
        let Some(store) = &self.store else { return Ok(Vec::new()) };
        read_pages(limit, |after, wanted| store.sessions(filter, after, wanted))
            .map_err(|error| read_error(&error))
    }

    /// Lists sessions, including those that only agents have, the latest first.
    pub(crate) fn list(&self, filter: &Filter, limit: usize) -> Result<Vec<SessionRow>, CommandError> {
        let Some(store) = self.store() else { return Ok(Vec::new()) };
        let mut agent_only = agent_sessions::of_all(store).map_err(|error| read_error(&error))?;
        agent_only.retain(|row| filter.agent.as_ref().is_none_or(|agent| *agent == row.agent));
        read_pages(limit, |after, wanted| agent_sessions::page(store, &agent_only, filter, after, wanted))
            .map_err(|error| read_error(&error))
    }

    /// Finds a session by name, including those that only agents have.
    pub(crate) fn find_any(&self, name: &str, scope: LatestScope) -> Result<SessionRow, CommandError> {
        match self.find_agent_only(name)? {
            Some(row) => Ok(row),
            None => self.find(name, scope),
        }
    }

    /// Finds a session that only its agent has, by its id or a unique prefix of it.
    fn find_agent_only(&self, name: &str) -> Result<Option<SessionRow>, CommandError> {
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

    /// Finds a session by name, where `latest` is the latest archived session.
    pub(crate) fn find_archived(&self, name: &str, scope: LatestScope) -> Result<SessionRow, CommandError> {
        if name == LATEST { self.latest(scope, true) } else { self.find(name, scope) }
    }

    /// The latest session that is archived or not.
    fn latest(&self, scope: LatestScope, archived: bool) -> Result<SessionRow, CommandError> {
        let cwd = match scope {
            LatestScope::All => None,
            LatestScope::Directory => Some(path_options::canonical_directory(Path::new("."))?),
        };
        let all = Filter { archived: Some(archived), ..Filter::default() };
        let here = Filter { cwd: cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned()), ..all.clone() };
        if let Some(latest) = self.sessions(&here, 1)?.pop() {
            return Ok(latest);
        }
        let cwd = cwd.filter(|_| self.sessions(&all, 1).is_ok_and(|others| !others.is_empty()));
        Err(match (cwd, archived) {
            (Some(cwd), true) => {
                let cwd = output::short_path(&cwd.to_string_lossy());
                CommandError::bad_input(format_args!("there is no archived session in {cwd}")).hint(
                    "--all selects the latest session of all directories; `parlor ls --archived` lists them",
                )
            }
            (Some(cwd), false) => {
                let cwd = output::short_path(&cwd.to_string_lossy());
                CommandError::bad_input(format_args!("there is no session in {cwd} yet")).hint(
                    "`parlor prompt --new TEXT` starts one; --all selects the latest session of all directories",
                )
            }
            (None, true) => CommandError::bad_input("there are no archived sessions"),
            (None, false) => CommandError::bad_input("there are no sessions yet")
                .hint("`parlor prompt --new TEXT` starts one"),
        })
    }

    /// Finds a session by its id, a unique prefix of its id or of its [name](Self::display_name), or `latest`.
    pub(crate) fn find(&self, name: &str, scope: LatestScope) -> Result<SessionRow, CommandError> {
        if name == LATEST {
            return self.latest(scope, false);
        }
        let exact = self.store().map(|store| store.session(JsonStr::new(name).as_literal()));
        if let Some(row) = exact.transpose().map_err(|error| read_error(&error))?.flatten() {
            return Ok(row);
        }
        let all = self.sessions(&Filter { owned: true, ..Filter::default() }, usize::MAX)?;
        let mut found = self.named(&all, name)?;
        match found.len() {
            1 => Ok(found.remove(0).clone()),
            0 if self.find_agent_only(name)?.is_some() => Err(CommandError::bad_input(format_args!(
                "session '{name}' is not stored: only its agent has it"
            ))
            .hint("`parlor prompt` adopts it, and so does an editor that opens it")),
            0 => Err(CommandError::bad_input(format_args!(
                "no session has an id or a name that starts with '{name}'"
            ))
            .hint("`parlor ls` lists the sessions; `latest` is the latest one of this directory")),
            many => {
                let (length, now) = (self.id_length()?, output::now());
                let describe = |row: &&SessionRow| {
                    let id: String = session_id(row).chars().take(length).collect();
                    let name = self.display_name(row).ok().flatten();
                    let name = name.map(|name| name.split_whitespace().collect::<Vec<_>>().join(" "));
                    let (cwd, ago) = (output::short_path(&row.cwd), output::ago(row.active_at, now));
                    format!("{id}  {} ({cwd}, {ago})", name.unwrap_or_default())
                };
                let mut matches: Vec<String> = found.iter().take(SHOWN_MATCHES).map(describe).collect();
                if many > matches.len() {
                    matches.push("…".to_owned());
                }
                Err(CommandError::bad_input(format_args!("'{name}' matches {many} sessions"))
                    .details(matches)
                    .hint("use an id, or more of the name"))
            }
        }
    }

    /// Whether a session is still stored.
    pub(crate) fn exists(&self, row: &SessionRow) -> Result<bool, CommandError> {
        let found = self.store().map(|store| store.session(&row.id));
        Ok(found.transpose().map_err(|error| read_error(&error))?.flatten().is_some())
    }

    /// Reads a session with its transcript.
    pub(crate) fn read(&self, row: &SessionRow) -> Result<StoredSession, CommandError> {
        let opened = self.store().map(|store| stored::open(store, &row.id));
        opened
            .transpose()
            .map_err(|error| read_error(&error))?
            .flatten()
            .ok_or_else(|| CommandError::bad_input("the session was deleted"))
    }

    /// Returns the result that a server would return for `_parlor/search`.
    pub(crate) fn search(&self, params: &Object) -> Result<Object, CommandError> {
        let Some(store) = &self.store else { return Ok(Object::default()) };
        search::answer(store, params, output::now(), str::to_owned)
            .map_err(|error| CommandError::client(&parlor_client::Error::Rpc(error)))
    }

    /// The length of the shortest prefix that is unique for every id.
    pub(crate) fn id_length(&self) -> Result<usize, CommandError> {
        let mut rows = self.sessions(&Filter { owned: true, ..Filter::default() }, usize::MAX)?;
        if let Some(store) = self.store() {
            rows.extend(agent_sessions::of_all(store).map_err(|error| read_error(&error))?);
        }
        let mut ids: Vec<String> = rows.iter().map(session_id).collect();
        ids.sort_unstable();
        ids.dedup();
        let unique_length = |pair: &[String]| {
            let shared = pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count();
            shared + 1
        };
        Ok(ids.windows(2).map(unique_length).max().unwrap_or(0).max(MIN_ID_LENGTH))
    }

    /// The id of a session as people type it: the shortest prefix that is unique for every session.
    pub(crate) fn short_id(&self, id: &str) -> String {
        let length = self.id_length().unwrap_or(usize::MAX);
        id.chars().take(length).collect()
    }

    /// The name of a session for people, which also selects it: its title, else the first line of its first prompt, and of a fork that has
    /// the title of its parent a name of its own.
    pub(crate) fn display_name(&self, row: &SessionRow) -> Result<Option<String>, CommandError> {
        let Some(store) = self.store() else { return Ok(None) };
        stored::display_name(store, row).map_err(|error| read_error(&error))
    }

    /// The sessions that a name matches: by a prefix of the id, else by the whole name, else by a prefix of the name. Case is ignored in
    /// names, and so is the ellipsis of one that a list has truncated.
    fn named<'a>(&self, rows: &'a [SessionRow], name: &str) -> Result<Vec<&'a SessionRow>, CommandError> {
        let wanted = comparable(name);
        let (wanted, is_truncated) = match wanted.strip_suffix('…') {
            Some(begin) => (begin, true),
            None => (wanted.as_str(), false),
        };
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let by_id: Vec<_> = rows.iter().filter(|row| session_id(row).starts_with(name)).collect();
        if !by_id.is_empty() {
            return Ok(by_id);
        }
        let mut by_prefix = Vec::new();
        // Lists do not show subagents, whose names their agents choose.
        for row in rows.iter().filter(|row| row.owner.is_none()) {
            let name = self.display_name(row)?.map(|name| comparable(&name)).unwrap_or_default();
            if name.starts_with(wanted) {
                by_prefix.push((row, name == wanted && !is_truncated));
            }
        }
        let has_whole = by_prefix.iter().any(|(_, is_whole)| *is_whole);
        Ok(by_prefix
            .into_iter()
            .filter(|(_, is_whole)| *is_whole || !has_whole)
            .map(|(row, _)| row)
            .collect())
    }
}

/// A name without case and with single spaces, as lists print it.
fn comparable(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Reads pages of sessions until there are no more, or `limit` sessions were read.
pub(crate) fn read_pages(
    limit: usize,
    mut page: impl FnMut(Option<&Cursor>, usize) -> Result<Vec<SessionRow>, StoreError>,
) -> Result<Vec<SessionRow>, StoreError> {
    let mut rows: Vec<SessionRow> = Vec::new();
    while rows.len() < limit {
        let after = rows.last().map(|row| Cursor { active_at: row.active_at, id: row.id.clone() });
        let wanted = PAGE.min(limit - rows.len());
        let page = page(after.as_ref(), wanted)?;
        let is_last = page.len() < wanted;
        rows.extend(page);
        if is_last {
            break;
        }
    }
    Ok(rows)
}

/// Opens a database, and tries again for a short time while a server is still creating it.
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

fn read_error(error: &StoreError) -> CommandError {
    CommandError::server_unavailable(format_args!("cannot read the store: {error}")).hint(DOCTOR_HINT)
}

/// The id of a session, as it is sent to the server.
pub(crate) fn id_json(row: &SessionRow) -> JsonStr {
    JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id))
}

/// The id of a session as text.
pub(crate) fn session_id(row: &SessionRow) -> String {
    literal_text(&row.id)
}

/// The title of a session, if it has one.
pub(crate) fn session_title(row: &SessionRow) -> Option<String> {
    let title = stored::title(row).map(|title| title.to_text().into_owned());
    title.filter(|title| !title.trim().is_empty())
}

/// A JSON string as text.
pub(crate) fn literal_text(literal: &str) -> String {
    JsonStr::from_literal(literal).map_or_else(|| literal.to_owned(), |text| text.to_text().into_owned())
}

/// The updates of protocol version 2 that replay a whole session, one JSON object each.
pub(crate) fn updates(opened: &StoredSession) -> Vec<String> {
    let transcript = &opened.transcript;
    let from = stored::SessionData::of(&opened.row).agent_dialect.unwrap_or(Dialect::V1);
    let mut encoder = UpdateEncoder::new(Dialect::V2, &Object::default()).with_events();
    let mut losses = Losses::default();
    let mut new_id = || -> parlor_session::MessageId { unreachable!("version 2 needs no new ids") };
    let mut cursor = ReplayCursor::new(0, transcript.seq());
    let mut updates = Vec::new();
    while let Some(update) = cursor.next(transcript, UPDATE_SIZE) {
        let context = EncodeContext { from, transcript, meta_before: None };
        updates.extend(encoder.encode(&update, context, &mut new_id, &mut losses));
    }
    updates
}

/// The transcript with the names of protocol version 2, whatever version the agent speaks.
pub(crate) fn v2_transcript(opened: &StoredSession) -> Transcript {
    let id = SessionId::from("");
    let mut fold = Fold::of_session(Dialect::V2, id.clone());
    for update in updates(opened) {
        // Stored updates were valid when they were applied.
        let _ = fold.line(live::update_line(&id, &update, None).trim_end());
    }
    fold.transcript().clone()
}
