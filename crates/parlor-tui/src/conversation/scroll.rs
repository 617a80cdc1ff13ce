//! Which rows of a conversation are on the screen. Only entries that are visible are laid out.

use parlor_client::EntryId;
use ratatui::text::Line;

use crate::entry::{EntryContext, Fold};

use super::{Anchor, Conversation, Kind, Look, margin};

/// How many rendered entries are kept.
const MAX_VIEWS: usize = 500;

impl Conversation {
    /// Renders the entry at an index and passes its lines on. An entry without lines is not shown.
    pub(super) fn with_lines<T>(
        &mut self,
        index: usize,
        fold: Option<Fold>,
        look: &Look,
        read: impl FnOnce(&[Line<'static>]) -> T,
    ) -> Option<T> {
        let key = self.items.get(index)?.key;
        let fold = fold.unwrap_or_else(|| self.fold(key));
        let mut cached = self.views.remove(&key).unwrap_or_default();
        cached.used = self.frame;
        let number = self.number(index);
        let times = self.times(index);
        let width = self.entry_width();
        let result = self.with_entry(index, |entry, transcript| {
            if let EntryId::Terminal(id) = entry.id()
                && self.shown_terminals.contains(&id.to_string())
            {
                return read(&[]);
            }
            let context = EntryContext {
                theme: &look.theme,
                transcript,
                number,
                times,
                now: look.now,
                zone: &look.zone,
                cwd: &self.cwd,
                home: look.home.as_deref(),
                matches: &self.matches,
                needs_answer: matches!(entry.id(), EntryId::ToolCall(id) if self.waiting.contains(id)),
            };
            read(cached.view.lines(entry, &context, width, fold))
        });
        self.views.insert(key, cached);
        result
    }

    /// The width of an entry: without the margin.
    fn entry_width(&self) -> u16 {
        self.size.0.saturating_sub(margin(self.size.0)).max(1)
    }

    pub(super) fn height(&mut self, index: usize, look: &Look) -> usize {
        self.with_lines(index, None, look, <[_]>::len).unwrap_or(0)
    }

    /// The rows of an entry: the blank line before it, if there is one, and its lines.
    fn block(&mut self, index: usize, look: &Look) -> (usize, usize) {
        let height = self.height(index, look);
        if height == 0 {
            return (0, 0);
        }
        let Some(before) = (0..index).rev().find(|before| self.height(*before, look) > 0) else {
            return (0, height);
        };
        let kinds = (self.items[before].kind, self.items[index].kind);
        if kinds == (Kind::Compact, Kind::Below) {
            return (0, height);
        }
        let are_compact = kinds == (Kind::Compact, Kind::Compact);
        let is_narrow = margin(self.size.0) == 0;
        let has_gap = !(are_compact && (is_narrow || self.height(before, look) == 1));
        (usize::from(has_gap), height)
    }

    /// Sets the size of the view.
    pub fn resize(&mut self, width: u16, height: u16) {
        self.size = (width, height);
    }

    /// The anchor that shows the end.
    fn end_anchor(&mut self, look: &Look) -> Option<Anchor> {
        let mut left = usize::from(self.size.1);
        for index in (0..self.items.len()).rev() {
            let (gap, height) = self.block(index, look);
            let rows = gap + height;
            if rows >= left && rows > 0 {
                return Some(Anchor { key: self.items[index].key, row: rows - left });
            }
            left -= rows;
        }
        self.items.first().map(|first| Anchor { key: first.key, row: 0 })
    }

    /// The present anchor.
    fn top(&mut self, look: &Look) -> Option<Anchor> {
        let end = self.end_anchor(look);
        let anchor = self.anchor.filter(|_| !self.is_following);
        // What is shown may have become shorter: no blank rows are shown below the end while something is hidden above.
        match (anchor, end) {
            (Some(anchor), Some(end)) if (anchor.key, anchor.row) <= (end.key, end.row) => Some(anchor),
            (_, end) => end,
        }
    }

    /// Scrolls by rows: up if the number is negative.
    pub fn scroll(&mut self, rows: isize, look: &Look) {
        let Some(Anchor { key, row }) = self.top(look) else { return };
        if self.is_following && rows > 0 {
            return;
        }
        let mut index = self.index_of(key);
        let mut row = row;
        for _ in 0..rows.unsigned_abs() {
            let (gap, height) = self.block(index, look);
            if rows > 0 {
                if row + 1 < gap + height {
                    row += 1;
                } else if index + 1 < self.items.len() {
                    index += 1;
                    row = 0;
                }
            } else if row > 0 {
                row -= 1;
            } else if let Some(before) = (0..index).rev().find(|before| self.height(*before, look) > 0) {
                let (gap, height) = self.block(before, look);
                (index, row) = (before, (gap + height).saturating_sub(1));
            } else {
                break;
            }
        }
        self.leave_end();
        self.anchor = Some(Anchor { key: self.items[index].key, row });
        self.follow_at_end(look);
    }

    /// Follows the end again if the view shows it.
    fn follow_at_end(&mut self, look: &Look) {
        let (Some(anchor), Some(end)) = (self.anchor, self.end_anchor(look)) else { return };
        if (anchor.key, anchor.row) >= (end.key, end.row) {
            self.follow();
        }
    }

    /// Stops following the end.
    pub(super) fn leave_end(&mut self) {
        if self.is_following {
            self.messages_at_leave = self.messages();
        }
        self.is_following = false;
    }

    /// Shows the end and follows it.
    pub fn follow(&mut self) {
        self.is_following = true;
        self.anchor = None;
    }

    /// How many messages have arrived since the view left the end.
    pub fn new_messages(&self) -> usize {
        if self.is_following { 0 } else { self.messages().saturating_sub(self.messages_at_leave) }
    }

    /// Whether the end of the conversation is on the screen.
    pub fn shows_end(&mut self, look: &Look) -> bool {
        let last = (0..self.items.len()).rev().find(|index| self.height(*index, look) > 0);
        let shown = self.visible(look);
        match (last, shown.last()) {
            (Some(last), Some((index, first))) if *index == last => {
                let height = isize::try_from(self.height(last, look)).unwrap_or(0);
                first + height <= self.page()
            }
            (last, _) => last.is_none(),
        }
    }

    /// The height of the view.
    pub fn page(&self) -> isize {
        isize::try_from(self.size.1).unwrap_or(1)
    }

    /// Whether the view shows its first entry, so that earlier ones are needed.
    pub fn needs_older(&mut self, look: &Look) -> bool {
        if self.older.is_none()
            || self.is_loading_older
            || self.older_retry.is_some_and(|retry| look.now < retry)
        {
            return false;
        }
        let is_at_start = match self.top(look) {
            Some(anchor) => self.index_of(anchor.key) < 3,
            None => true,
        };
        self.wants_first || is_at_start
    }

    /// The indexes of the entries that are shown, with their first rows on the screen, which may be above it.
    pub(super) fn visible(&mut self, look: &Look) -> Vec<(usize, isize)> {
        let Some(anchor) = self.top(look) else { return Vec::new() };
        let mut shown = Vec::new();
        let mut row = -isize::try_from(anchor.row).unwrap_or(0);
        for index in self.index_of(anchor.key)..self.items.len() {
            if row >= isize::try_from(self.size.1).unwrap_or(isize::MAX) {
                break;
            }
            let (gap, height) = self.block(index, look);
            if height > 0 {
                shown.push((index, row + isize::try_from(gap).unwrap_or(0)));
            }
            row += isize::try_from(gap + height).unwrap_or(0);
        }
        shown
    }

    /// Scrolls until an entry is shown, as far as it fits.
    pub(super) fn reveal(&mut self, index: usize, look: &Look) {
        let page = self.page();
        let height = isize::try_from(self.height(index, look)).unwrap_or(0);
        let shown = self.visible(look);
        let row = shown.iter().find(|(shown, _)| *shown == index).map(|(_, first)| *first);
        match row {
            Some(first) if first < 0 => self.scroll(first, look),
            Some(first) if first + height > page => self.scroll((first + height - page).min(first), look),
            // The view does not follow the end while something above it is selected.
            Some(_) if self.is_following && index + 1 < self.items.len() => {
                self.anchor = self.end_anchor(look);
                self.leave_end();
            }
            Some(_) => {}
            None => {
                let is_above = shown.first().is_none_or(|(first, _)| index < *first);
                self.leave_end();
                self.anchor = Some(Anchor { key: self.items[index].key, row: 0 });
                if !is_above {
                    self.scroll(-(page - height).max(0), look);
                }
                self.follow_at_end(look);
            }
        }
    }

    /// The numbers of the first and last message on the screen, and how many there are.
    pub fn shown_numbers(&mut self, look: &Look) -> Option<(usize, usize, usize)> {
        let shown = self.visible(look);
        let mut messages = shown.iter().filter_map(|(index, _)| self.number(*index));
        let first = messages.next()?;
        let last = messages.next_back().unwrap_or(first);
        Some((first, last, self.older_messages + self.messages()))
    }

    /// The rows of the view. Each has the line and whether its entry is selected.
    pub fn draw(&mut self, look: &Look) -> Vec<(Line<'static>, bool)> {
        self.frame += 1;
        let rows = usize::from(self.size.1);
        let mut drawn = Vec::with_capacity(rows);
        let selected = self.selected_index();
        for (index, first) in self.visible(look) {
            // Blank rows before the entry.
            while isize::try_from(drawn.len()).is_ok_and(|drawn| drawn < first) && drawn.len() < rows {
                drawn.push((Line::default(), false));
            }
            let skipped = usize::try_from(-first).unwrap_or(0);
            let left = rows - drawn.len();
            let lines = self.with_lines(index, None, look, |lines| {
                lines.iter().skip(skipped).take(left).cloned().collect::<Vec<_>>()
            });
            let is_selected = selected == Some(index);
            drawn.extend(lines.unwrap_or_default().into_iter().map(|line| (line, is_selected)));
        }
        if self.views.len() > MAX_VIEWS {
            let mut used: Vec<u64> = self.views.values().map(|view| view.used).collect();
            used.sort_unstable();
            let oldest = used[used.len() - MAX_VIEWS / 2];
            self.views.retain(|_, view| view.used >= oldest);
        }
        drawn
    }
}
