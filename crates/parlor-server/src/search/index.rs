//! The sessions of before there was a search: their words are handed in little by little, while the server does its work.

use std::sync::Weak;

use parlor_engine::search_text::words_of;
use parlor_session::Transcript;
use parlor_store::{Batch, EntryRow, ErrorKind, IndexDocument, Store, StoreError, Write};

use crate::hub::Shared;

/// How much of a session is handed in at once: little enough that nobody who writes has to wait for long.
const PIECE: usize = 256 << 10;

/// How many sessions may go away under our hands before something else must be wrong.
const MOST_GONE: usize = 1000;

/// Hands in what was never handed in. When the server ends before it is done, the next one goes on with the session that
/// this one was at.
pub(crate) async fn index(hub: Weak<Shared>) {
    let mut gone = 0;
    let mut done = 0;
    loop {
        let Some(shared) = hub.upgrade() else { return };
        let next = shared.read(|store| Ok(store.unindexed(1)?.pop())).await;
        drop(shared);
        let id = match next {
            Ok(Some(id)) => id,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!("the sessions of before cannot be indexed: {}", error.message());
                return;
            }
        };
        match session(&hub, &id).await {
            Ok(()) => done += 1,
            // It was deleted meanwhile.
            Err(error) if error.kind == ErrorKind::Invalid && gone < MOST_GONE => gone += 1,
            Err(error) => {
                tracing::warn!(session = id, %error, "the sessions of before cannot be indexed");
                return;
            }
        }
    }
    if done > 0 {
        tracing::info!(sessions = done, "the sessions of before can be searched now");
    }
}

async fn session(hub: &Weak<Shared>, id: &str) -> Result<(), StoreError> {
    let mut after = 0;
    loop {
        let Some(shared) = hub.upgrade() else { return Ok(()) };
        let key = id.to_owned();
        let piece = shared.read(move |store| piece(store, &key, after)).await;
        let piece =
            piece.map_err(|error| StoreError { kind: ErrorKind::Io, message: error.message().to_owned() })?;
        let (writes, last) = match piece {
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

/// The words of the next entries, and the last of these entries; `None` if there are no more.
fn piece(store: &dyn Store, id: &str, after: u64) -> Result<Option<(Vec<Write>, u64)>, StoreError> {
    // When each thing was said was not written down; all of it was when the session was last active, or before.
    let Some(row) = store.session(id)? else { return Ok(None) };
    let entries = store.entries(id, 0, after, PIECE)?;
    let Some(last) = entries.last().map(|entry| entry.created) else { return Ok(None) };
    let writes = entries.iter().filter_map(|entry| {
        let words = Some(words_of_row(entry, row.active_at)?);
        let (session, created, seq) = (id.to_owned(), entry.created, entry.seq);
        Some(Write::Index { session, created, seq, document: words, only_missing: true })
    });
    Ok(Some((writes.collect(), last)))
}

/// What a stored entry is found by; `None` also for one that cannot be read.
fn words_of_row(row: &EntryRow, at: i64) -> Option<IndexDocument> {
    let mut transcript = Transcript::default();
    transcript.restore_entry(row.created, row.seq, &row.head, &row.content, row.inherited).ok()?;
    words_of(transcript.entries().first()?, at)
}
