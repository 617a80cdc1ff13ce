//! Full-text search: decodes queries, looks up hits, and indexes old sessions.

mod index;
mod params;
mod snippet;

use parlor_json::{Json, Object};
use parlor_session::{EntryId, Transcript};
use parlor_store::{Hit, Query, SessionRow, Store, StoreError};
use parlor_wire::{RpcError, code};

pub(crate) use self::index::index;
use self::params::SearchParams;
pub use self::params::{FILTERS, since};
use self::snippet::Snippet;
use crate::stored;
use parlor_engine::search_text::index_document;

/// The roles by which entries can be filtered.
pub const ROLES: [&str; 5] = ["user", "agent", "thought", "tool", parlor_store::TITLE];

/// Runs a search with the params of `_parlor/search` and returns its result. `now` is in milliseconds since 1970, and
/// `agent_name` maps the names of agents to those that are shown. This blocks.
pub fn answer(
    store: &dyn Store,
    params: &Object,
    now: i64,
    agent_name: impl Fn(&str) -> String,
) -> Result<Object, RpcError> {
    let params = SearchParams::read(params, now)?;
    let failed = |error: StoreError| RpcError::new(code::INTERNAL_ERROR, error.to_string());
    let mut hits = store.search(&params.search, params.offset, params.limit + 1).map_err(failed)?;
    let has_more = hits.len() > params.limit;
    hits.truncate(params.limit);
    let mut shown = Vec::with_capacity(hits.len());
    for hit in &hits {
        // Entries that were deleted meanwhile are left out.
        if let Some(mut found) = look_up(store, &params.search.query, hit).map_err(failed)? {
            if let Some(agent) = found.get_string("agent") {
                found.set("agent", agent_name(&agent));
            }
            shown.push(found);
        }
    }
    let mut result = Object::default();
    result.set("hits", Json::array(shown));
    if let Some(next) = params.next().filter(|_| has_more) {
        result.set("nextCursor", &next);
    }
    if params.search.query.ignored_words() > 0 {
        result.set("ignoredWords", params.search.query.ignored_words());
    }
    if !store.unindexed(1).map_err(failed)?.is_empty() {
        result.set("incomplete", true);
    }
    Ok(result)
}

/// Encodes a hit; `None` if the entry was deleted.
fn look_up(store: &dyn Store, query: &Query, hit: &Hit) -> Result<Option<Object>, StoreError> {
    let Some(row) = store.session(&hit.session)? else { return Ok(None) };
    let Some(created) = hit.created else {
        let text = stored::title(&row).map(|title| title.to_text().into_owned()).unwrap_or_default();
        return show(store, &row, hit, None, &Snippet::of(&text, query)).map(Some);
    };
    let entries = store.entries(&hit.session, 0, created.saturating_sub(1), 0)?;
    let Some(entry) = entries.first().filter(|entry| entry.created == created) else { return Ok(None) };
    let mut transcript = Transcript::default();
    let restored =
        transcript.restore_entry(entry.created, entry.seq, &entry.head, &entry.content, entry.inherited);
    let Some(entry) = restored.ok().and(transcript.entries().first()) else { return Ok(None) };
    let Some(document) = index_document(entry, hit.at) else { return Ok(None) };
    show(store, &row, hit, Some(entry.id()), &Snippet::of(&document.text, query)).map(Some)
}

fn show(
    store: &dyn Store,
    row: &SessionRow,
    hit: &Hit,
    entry: Option<&EntryId>,
    snippet: &Snippet,
) -> Result<Object, StoreError> {
    let mut shown = Object::default();
    shown.set("sessionId", Json::parse(&row.id).unwrap_or_default());
    match entry {
        Some(EntryId::Message(_, id)) => shown.set("messageId", id.as_json()),
        Some(EntryId::ToolCall(id)) => shown.set("toolCallId", id.as_json()),
        Some(EntryId::Terminal(id)) => shown.set("terminalId", id.as_json()),
        Some(
            EntryId::Plan(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_),
        )
        | None => {}
    }
    shown.set("role", &hit.kind);
    shown.set("title", stored::title(row).map(Json::from).unwrap_or_default());
    shown.set("name", stored::display_name(store, row)?.map(Json::from).unwrap_or_default());
    shown.set("cwd", &row.cwd);
    shown.set("agent", &row.agent);
    let at = jiff::Timestamp::from_millisecond(hit.at).ok();
    shown.set("at", at.map(|at| Json::from(at.to_string())).unwrap_or_default());
    shown.set("snippet", &snippet.text);
    let matches = snippet.matches.iter().map(|range| Json::array([range.start, range.end]));
    shown.set("matches", Json::array(matches));
    Ok(shown)
}
