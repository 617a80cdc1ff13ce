//! Indexes sessions from before there was a search index, in the background.

use std::sync::Weak;

use parlor_engine::search_text::index_document;
use parlor_session::Transcript;
use parlor_store::{Batch, EntryRow, ErrorKind, IndexDocument, Store, StoreError, Write};

use crate::hub::HubState;

/// How many bytes of a session are indexed in one batch, so that other writes do not wait for long.
const CHUNK: usize = 256 << 10;

/// How many sessions may be deleted meanwhile before the error is treated as another one.
const MAX_DELETED: usize = 1000;

/// Indexes all sessions that are not indexed. If the server stops before the end, the next one continues with the same session.
pub(crate) async fn index(hub: Weak<HubState>) {
    let mut deleted = 0;
    let mut done = 0;
    loop {
        let Some(shared) = hub.upgrade() else { return };
        let next = shared.read(|store| Ok(store.unindexed(1)?.pop())).await;
        drop(shared);
        let id = match next {
            Ok(Some(id)) => id,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!("cannot read the sessions to index: {}", error.message());
                return;
            }
        };
        match index_session(&hub, &id).await {
            Ok(()) => done += 1,
            // The session was deleted meanwhile.
            Err(error) if error.kind == ErrorKind::Invalid && deleted < MAX_DELETED => deleted += 1,
            Err(error) => {
                tracing::warn!(session = id, %error, "cannot index a session; search is incomplete");
                return;
            }
        }
    }
    if done > 0 {
        tracing::info!(sessions = done, "indexed old sessions for search");
    }
}

async fn index_session(hub: &Weak<HubState>, id: &str) -> Result<(), StoreError> {
    let mut after = 0;
    loop {
        let Some(shared) = hub.upgrade() else { return Ok(()) };
        let key = id.to_owned();
        let chunk = shared.read(move |store| chunk(store, &key, after)).await;
        let chunk =
            chunk.map_err(|error| StoreError { kind: ErrorKind::Io, message: error.message().to_owned() })?;
        let (writes, last) = match chunk {
            Some((writes, last)) => (writes, Some(last)),
            None => (vec![Write::Indexed { session: id.to_owned() }], None),
        };
        shared.write(Batch { writes, durable: false }).await?;
        drop(shared);
        match last {
            Some(last) => after = last,
            None => return Ok(()),
        }
    }
}

/// The writes that index the next entries, and the last of these entries; `None` if there are no more.
fn chunk(store: &dyn Store, id: &str, after: u64) -> Result<Option<(Vec<Write>, u64)>, StoreError> {
    // The times of entries were not stored; all are dated to the last activity of the session.
    let Some(row) = store.session(id)? else { return Ok(None) };
    let entries = store.entries(id, 0, after, CHUNK)?;
    let Some(last) = entries.last().map(|entry| entry.created) else { return Ok(None) };
    let writes = entries.iter().filter_map(|entry| {
        let document = Some(row_document(entry, row.active_at)?);
        let (session, created, seq) = (id.to_owned(), entry.created, entry.seq);
        Some(Write::Index { session, created, seq, document, only_missing: true })
    });
    Ok(Some((writes.collect(), last)))
}

/// The indexed text of a stored entry; `None` if it has none or cannot be read.
fn row_document(row: &EntryRow, at: i64) -> Option<IndexDocument> {
    let mut transcript = Transcript::default();
    transcript.restore_entry(row.created, row.seq, &row.head, &row.content, row.inherited).ok()?;
    index_document(transcript.entries().first()?, at)
}
