//! Checks that all backends have in common.

use parlor_json::JsonStr;

#[cfg(feature = "sqlite")]
use crate::{Batch, Write};
use crate::{SessionRow, StoreError};

/// Converts the seq of a change for a backend.
pub(crate) fn number(seq: u64) -> Result<i64, StoreError> {
    i64::try_from(seq)
        .ok()
        .filter(|seq| *seq > 0)
        .ok_or_else(|| StoreError::invalid(format!("{seq} is not a valid seq")))
}

pub(crate) fn no_session(id: &str) -> StoreError {
    StoreError::invalid(format!("session {id} does not exist"))
}

pub(crate) fn no_entry(session: &str, created: u64) -> StoreError {
    StoreError::invalid(format!("session {session} has no entry {created}"))
}

pub(crate) fn entry_exists(session: &str, created: u64) -> StoreError {
    StoreError::invalid(format!("session {session} already has an entry {created}"))
}

/// Returns the title of a session as text.
pub(crate) fn title(row: &SessionRow) -> Option<String> {
    let title = JsonStr::from_literal(row.title.as_deref()?)?;
    Some(title.to_text().into_owned())
}

/// Returns the session that a write changes.
#[cfg(feature = "sqlite")]
pub(crate) fn session_of(write: &Write) -> Option<&str> {
    match write {
        Write::Session(row) => Some(&row.id),
        Write::Slot { session, .. }
        | Write::Entry { session, .. }
        | Write::Append { session, .. }
        | Write::Copy { to: session, .. }
        | Write::Index { session, .. }
        | Write::Indexed { session }
        | Write::Delete { session } => Some(session),
        Write::Value { .. } => None,
    }
}

/// Returns whether a batch may replace or delete data, whose old copy is then in the log.
#[cfg(feature = "sqlite")]
pub(crate) fn may_replace(batch: &Batch) -> bool {
    let only_adds =
        |write: &Write| matches!(write, Write::Append { .. } | Write::Copy { .. } | Write::Indexed { .. });
    !batch.writes.iter().all(only_adds)
}

/// Returns an estimate of the size of a batch in bytes, which is at least its size in a journal.
#[cfg(feature = "sqlite")]
pub(crate) fn size(batch: &Batch) -> usize {
    1 + batch.writes.iter().map(size_of_write).sum::<usize>()
}

#[cfg(feature = "sqlite")]
fn size_of_write(write: &Write) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let texts = match write {
        Write::Session(row) => {
            let texts = [&row.id, &row.agent, &row.cwd, &row.data].map(String::len);
            let others = [&row.agent_session, &row.title, &row.parent, &row.owner].map(optional);
            texts.into_iter().chain(others).sum()
        }
        Write::Slot { session, name, body, .. } => session.len() + name.len() + optional(body),
        Write::Entry { session, head, content, .. } => session.len() + head.len() + optional(content),
        Write::Append { session, content, .. } => session.len() + content.len(),
        Write::Copy { entries, .. } => {
            entries.iter().map(|copied| size_of_val(copied) + optional(&copied.head)).sum()
        }
        Write::Index { session, document, .. } => {
            session.len() + document.as_ref().map_or(0, |document| document.kind.len() + document.text.len())
        }
        Write::Delete { .. } | Write::Indexed { .. } => 0,
        Write::Value { key, value } => key.len() + optional(value),
    };
    size_of::<Write>() + texts
}
