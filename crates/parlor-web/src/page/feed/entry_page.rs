//! Parts of the entries of a session, for tabs that scroll.

use std::collections::HashSet;

use parlor_client::{Error, Json};
use parlor_session::{MessageNumbers, Transcript};

use super::super::media::ServedMedia;
use super::super::to_tab::TabPatch;
use super::super::{media, side};
use super::refresh::Contexts;
use super::{FIRST_ENTRIES, Feed, FeedState, lock};
use crate::render::text::element_id;
use crate::render::{TurnBounds, TurnFiles, entry, is_shown};

/// Entries that a tab gets at a time.
pub(crate) const PAGE_ENTRIES: usize = 100;

/// Pages of older entries that are read to find media.
const MAX_PAGES: usize = 200;

/// A part of the entries, for a tab.
pub(in crate::page) struct EntryPage {
    pub(in crate::page) html: String,
    /// The ids of its elements.
    pub(in crate::page) ids: Vec<String>,
    /// The cursor for the entries before it; `None` if there are none.
    pub(in crate::page) before: Option<String>,
    /// Whether there are no entries after it.
    pub(in crate::page) is_last: bool,
}

impl EntryPage {
    /// The patch that answers a request for it.
    pub(in crate::page) fn into_patch(self, key: String, below: Option<Vec<String>>) -> TabPatch {
        TabPatch::Page { key, html: self.html, before: self.before, is_last: self.is_last, below }
    }
}

impl Feed {
    /// The latest entries, with their revision.
    pub(in crate::page) fn tail(&self) -> (EntryPage, u64) {
        let state = lock(&self.state);
        let transcript = self.session.transcript();
        (
            self.page_of(&state, &transcript, transcript.entries().len(), PAGE_ENTRIES),
            state.fragments.revision(),
        )
    }

    /// The entries before a cursor.
    pub(in crate::page) async fn older(&self, cursor: &str) -> Result<EntryPage, Error> {
        if let Some(element) = cursor.strip_prefix("e:") {
            let state = lock(&self.state);
            let transcript = self.session.transcript();
            let at = transcript.entries().iter().position(|one| element_id(one.id()) == element);
            let at = at.ok_or(Error::Protocol("the entry is not shown any more"))?;
            return Ok(self.page_of(&state, &transcript, at, PAGE_ENTRIES));
        }
        let parsed = cursor.strip_prefix("c:").and_then(|cursor| cursor.split_once(':'));
        let (messages, before) = parsed.ok_or(Error::Protocol("the cursor is unknown"))?;
        let messages: usize = messages.parse().map_err(|_| Error::Protocol("the cursor is unknown"))?;
        let before = Json::parse(before).map_err(|_| Error::Protocol("the cursor is unknown"))?;
        let page = self.session.older(&before, PAGE_ENTRIES).await?;
        let transcript = &page.transcript;
        let own = transcript.entries().iter().filter(|one| parlor_session::is_numbered(one)).count();
        let skipped = messages.saturating_sub(own);
        let media = format!("{}/media/", side::address(&self.row.id));
        let waiting = HashSet::new();
        let mut files = TurnFiles::default();
        let bounds = TurnBounds { is_from_start: page.before.is_none(), is_to_end: false };
        files.update(transcript, &self.row.cwd, bounds);
        let context = Contexts {
            transcript,
            numbers: MessageNumbers::after(skipped, transcript),
            row: &self.row,
            media,
            waiting: &waiting,
            files: &files,
            times: None,
        };
        let elements = transcript.entries().iter().filter_map(|one| entry(one, &context.of(one)));
        let html = elements.map(maud::Markup::into_string).collect();
        let before = page.before.map(|before| format!("c:{skipped}:{}", before.as_str()));
        let ids = transcript.entries().iter().map(|one| element_id(one.id())).collect();
        Ok(EntryPage { html, ids, before, is_last: false })
    }

    /// The entries after an element; the first ones that the feed has if it does not have that one.
    pub(in crate::page) fn newer(&self, element: &str) -> EntryPage {
        let state = lock(&self.state);
        let transcript = self.session.transcript();
        let at = transcript.entries().iter().position(|one| element_id(one.id()) == element);
        let start = at.map_or(0, |at| at + 1);
        let end = start + length_of_page(&transcript.entries()[start..], |one| is_shown(one, &transcript));
        let mut page = self.page_of(&state, &transcript, end, end - start);
        page.is_last = end == transcript.entries().len();
        page
    }

    /// The entries before an index, at most this many.
    pub(super) fn page_of(
        &self,
        state: &FeedState,
        transcript: &Transcript,
        end: usize,
        entries: usize,
    ) -> EntryPage {
        let context = self.contexts(transcript, state);
        let start = end.saturating_sub(entries);
        let shown = transcript.entries()[start..end].iter();
        let html = shown.clone().filter_map(|one| state.fragments.html(one, &context.of(one)));
        let html: String = html.map(|html| html.to_string()).collect();
        let first = shown.clone().find(|one| is_shown(one, transcript));
        let before = match first {
            Some(first) if start > 0 => Some(format!("e:{}", element_id(first.id()))),
            Some(_) | None => self
                .session
                .older_cursor()
                .map(|cursor| format!("c:{}:{}", self.session.older_messages(), cursor.as_str())),
        };
        let ids = shown.map(|one| element_id(one.id())).collect();
        EntryPage { html, ids, before, is_last: end == transcript.entries().len() }
    }

    /// The media at a place, also in entries that are not loaded.
    pub(in crate::page) async fn media(&self, place: &str) -> Result<Option<ServedMedia>, Error> {
        if let Some(found) = media::find(&self.session.transcript(), place) {
            return Ok(Some(found));
        }
        let mut before = self.session.older_cursor();
        for _ in 0..MAX_PAGES {
            let Some(cursor) = before else { break };
            let page = self.session.older(&cursor, FIRST_ENTRIES).await?;
            if let Some(found) = media::find(&page.transcript, place) {
                return Ok(Some(found));
            }
            before = page.before;
        }
        Ok(None)
    }
}

/// The entries of a page at the beginning of these. It has one that is shown, if there is one: a tab asks for what is after the last
/// one that it shows.
fn length_of_page<T>(entries: &[T], is_shown: impl Fn(&T) -> bool) -> usize {
    let shown = entries.iter().position(is_shown);
    shown.map_or(entries.len(), |first| PAGE_ENTRIES.max(first + 1).min(entries.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_newer_entries_has_one_that_is_shown() {
        let shown_at =
            |at: usize, len: usize| length_of_page(&(0..len).collect::<Vec<_>>(), |one| *one == at);
        assert_eq!(shown_at(0, 300), PAGE_ENTRIES);
        assert_eq!(shown_at(0, 30), 30);
        assert_eq!(shown_at(PAGE_ENTRIES - 1, 300), PAGE_ENTRIES);
        assert_eq!(shown_at(150, 300), 151);
        assert_eq!(shown_at(400, 300), 300, "none is shown: the end is reached");
    }
}
