//! Searching what was said: which words an entry is found by, what is asked for, and what is shown of what was found.

mod ask;
mod index;
mod snippet;

use parlor_json::{Json, Object};
use parlor_session::{EntryId, Transcript};
use parlor_store::{Hit, Query, SessionRow, Store, StoreError};
use parlor_wire::{RpcError, code};

use self::ask::Asked;
pub(crate) use self::index::index;
use self::snippet::Snippet;
use crate::json;
use crate::stored;
use parlor_engine::search_text::words_of;

/// What was said by whom; what an entry is called in a search.
pub const ROLES: [&str; 5] = ["user", "agent", "thought", "tool", parlor_store::TITLE];

/// Answers a search, as `_parlor/search` does: the params of the request in, the result out. `now` is in milliseconds
/// since 1970, and `agent_name` says how an agent is shown. This blocks.
pub fn answer(
    store: &dyn Store,
    params: &Object,
    now: i64,
    agent_name: impl Fn(&str) -> String,
) -> Result<Object, RpcError> {
    let asked = Asked::read(params, now)?;
    let failed = |error: StoreError| RpcError::new(code::INTERNAL_ERROR, error.to_string());
    let mut hits = store.search(&asked.search, asked.offset, asked.limit + 1).map_err(failed)?;
    let has_more = hits.len() > asked.limit;
    hits.truncate(asked.limit);
    let mut shown = Vec::with_capacity(hits.len());
    for hit in &hits {
        // What was deleted or taken back meanwhile is not shown.
        if let Some(mut found) = look_up(store, &asked.search.query, hit).map_err(failed)? {
            if let Some(agent) = found.get_string("agent") {
                found.set("agent", agent_name(&agent));
            }
            shown.push(found.to_json().as_str().to_owned());
        }
    }
    let mut result = Object::default();
    result.set("hits", json::json(format!("[{}]", shown.join(","))));
    if let Some(next) = asked.next().filter(|_| has_more) {
        result.set("nextCursor", &next);
    }
    if asked.search.query.ignored_words() > 0 {
        result.set("ignoredWords", asked.search.query.ignored_words());
    }
    if !store.unindexed(1).map_err(failed)?.is_empty() {
        result.set("incomplete", true);
    }
    Ok(result)
}

/// What is shown of a hit; `None` if it is not there any more.
fn look_up(store: &dyn Store, query: &Query, hit: &Hit) -> Result<Option<Object>, StoreError> {
    let Some(row) = store.session(&hit.session)? else { return Ok(None) };
    let Some(created) = hit.created else {
        let text = stored::title(&row).map(|title| title.to_text().into_owned()).unwrap_or_default();
        return Ok(Some(show(&row, hit, None, &Snippet::of(&text, query))));
    };
    let entries = store.entries(&hit.session, 0, created.saturating_sub(1), 0)?;
    let Some(entry) = entries.first().filter(|entry| entry.created == created) else { return Ok(None) };
    let mut transcript = Transcript::default();
    let restored =
        transcript.restore_entry(entry.created, entry.seq, &entry.head, &entry.content, entry.inherited);
    let Some(entry) = restored.ok().and(transcript.entries().first()) else { return Ok(None) };
    let Some(words) = words_of(entry, hit.at) else { return Ok(None) };
    Ok(Some(show(&row, hit, Some(entry.id()), &Snippet::of(&words.text, query))))
}

fn show(row: &SessionRow, hit: &Hit, entry: Option<&EntryId>, snippet: &Snippet) -> Object {
    let mut shown = Object::default();
    shown.set("sessionId", json::json(row.id.clone()));
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
    shown.set("title", stored::title(row).map_or_else(Json::null, |title| Json::from(&title)));
    shown.set("cwd", &row.cwd);
    shown.set("agent", &row.agent);
    let at = jiff::Timestamp::from_millisecond(hit.at).ok();
    shown.set("at", at.map_or_else(Json::null, |at| Json::from(&at.to_string())));
    shown.set("snippet", &snippet.text);
    let matches: Vec<_> =
        snippet.matches.iter().map(|place| format!("[{},{}]", place.start, place.end)).collect();
    shown.set("matches", json::json(format!("[{}]", matches.join(","))));
    shown
}
