//! The selected entry of a conversation.

use ratatui::text::Line;

use parlor_client::{Entry, EntryId, MessageId, Role, Transcript};

use crate::clean::Clean;
use crate::entry::Fold;

use super::{Anchor, Conversation, Kind, Look, found_text};

/// The text of a message with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedText {
    /// Its number.
    pub number: usize,
    /// `user` or `agent`.
    pub role: &'static str,
    /// Its text.
    pub text: Clean,
}

impl Conversation {
    /// The index of the selected entry.
    pub(super) fn selected_index(&self) -> Option<usize> {
        let key = self.selected?;
        let index = self.index_of(key);
        self.items.get(index).filter(|item| item.key == key).map(|_| index)
    }

    /// Whether an entry is selected.
    pub fn has_selection(&self) -> bool {
        self.selected_index().is_some()
    }

    /// Selects nothing.
    pub fn deselect(&mut self) {
        self.selected = None;
    }

    /// Selects the last entry that is shown.
    pub fn select_visible(&mut self, look: &Look) {
        if self.has_selection() {
            return;
        }
        let shown = self.visible(look);
        self.selected = shown.last().map(|(index, _)| self.items[*index].key);
    }

    /// Selects the next or previous entry that a condition holds for, and scrolls to it. An entry that is longer than the screen
    /// is first scrolled through.
    fn select_step(&mut self, forward: bool, look: &Look, fits: impl Fn(&Self, usize) -> bool) {
        let Some(selected) = self.selected_index() else {
            self.select_visible(look);
            return;
        };
        let mut candidates: Vec<usize> =
            if forward { (selected + 1..self.items.len()).collect() } else { (0..selected).rev().collect() };
        candidates.retain(|index| fits(self, *index));
        let next = candidates.into_iter().find(|index| self.height(*index, look) > 0);
        if let Some(next) = next {
            self.selected = Some(self.items[next].key);
            self.reveal(next, look);
        } else if forward {
            self.follow();
        } else if self.older.is_some() {
            self.scroll(-1, look);
        }
    }

    /// Selects the next entry.
    pub fn select_next(&mut self, look: &Look) {
        if self.scroll_in_selected(true, look) {
            return;
        }
        self.select_step(true, look, |_, _| true);
    }

    /// Selects the previous entry.
    pub fn select_previous(&mut self, look: &Look) {
        if self.scroll_in_selected(false, look) {
            return;
        }
        self.select_step(false, look, |_, _| true);
    }

    /// Scrolls if the selected entry goes on below or above the view. Returns whether it did.
    fn scroll_in_selected(&mut self, forward: bool, look: &Look) -> bool {
        let Some(selected) = self.selected_index() else { return false };
        let page = self.page();
        let shown = self.visible(look);
        let Some((_, first)) = shown.iter().find(|(index, _)| *index == selected) else { return false };
        let height = isize::try_from(self.height(selected, look)).unwrap_or(0);
        let hidden = if forward { first + height - page } else { -first };
        if hidden <= 0 || height <= page {
            return false;
        }
        let step = hidden.min((page / 2).max(1));
        self.scroll(if forward { step } else { -step }, look);
        true
    }

    /// Selects the next prompt.
    pub fn select_next_prompt(&mut self, look: &Look) {
        self.select_step(true, look, |this, index| this.items[index].kind == Kind::Prompt);
    }

    /// Selects the previous prompt.
    pub fn select_previous_prompt(&mut self, look: &Look) {
        self.select_step(false, look, |this, index| this.items[index].kind == Kind::Prompt);
    }

    /// Selects the first entry, and has all earlier ones loaded.
    pub fn select_first(&mut self, look: &Look) {
        self.wants_first = self.older.is_some();
        let Some(first) = (0..self.items.len()).find(|index| self.height(*index, look) > 0) else { return };
        self.selected = Some(self.items[first].key);
        self.leave_end();
        self.anchor = Some(Anchor { key: self.items[0].key, row: 0 });
    }

    /// Selects the last entry and follows the end.
    pub fn select_last(&mut self, look: &Look) {
        let last = (0..self.items.len()).rev().find(|index| self.height(*index, look) > 0);
        self.selected = last.map(|index| self.items[index].key);
        self.follow();
    }

    /// Selects the entry at a row of the screen.
    pub fn select_row(&mut self, row: u16, look: &Look) -> bool {
        let row = isize::try_from(row).unwrap_or(0);
        let shown = self.visible(look);
        let Some((index, _)) = shown.into_iter().rev().find(|(_, first)| *first <= row) else { return false };
        let is_again = self.selected == Some(self.items[index].key);
        self.selected = Some(self.items[index].key);
        is_again
    }

    /// Selects a message and shows it. Returns false if it is not loaded.
    pub fn select_message(&mut self, id: &MessageId, look: &Look) -> bool {
        let is_it = |entry: &Entry| matches!(entry.id(), EntryId::Message(_, known) if known == id);
        self.select_where(is_it, look)
    }

    /// Selects the last entry that a condition holds for. Returns false if there is none.
    pub fn select_where(&mut self, is_it: impl Fn(&Entry) -> bool, look: &Look) -> bool {
        let found = (0..self.items.len())
            .rev()
            .find(|index| self.with_entry(*index, |entry, _| is_it(entry)).unwrap_or(false));
        let Some(index) = found else { return false };
        self.selected = Some(self.items[index].key);
        self.leave_end();
        let key = self.items[index].key;
        self.anchor = Some(Anchor { key, row: 0 });
        // Some lines above it show where it belongs.
        self.scroll(-(self.page() / 4), look);
        self.reveal(index, look);
        true
    }

    /// Unfolds or folds the selected entry.
    pub fn toggle(&mut self, look: &Look) {
        let Some(index) = self.selected_index() else { return };
        let key = self.items[index].key;
        let height =
            |this: &mut Self, fold| this.with_lines(index, Some(fold), look, <[_]>::len).unwrap_or(0);
        let shown = self.height(index, look);
        let next = if height(self, Fold::Unfolded) > shown {
            Fold::Unfolded
        } else if height(self, Fold::Auto) < shown {
            Fold::Auto
        } else {
            Fold::Folded
        };
        self.folds.insert(key, next);
        if !self.is_following {
            self.reveal(index, look);
        }
    }

    /// Unfolds everything, or folds everything again.
    pub fn toggle_all(&mut self) {
        self.folds.clear();
        self.fold_all = match self.fold_all {
            None => Some(Fold::Unfolded),
            Some(_) => None,
        };
    }

    /// Whether an entry is shown and has the words that are searched for.
    fn is_match(&mut self, index: usize, look: &Look) -> bool {
        let matches = &self.matches;
        let has_words = |entry: &Entry, transcript: &Transcript| {
            let text = found_text(entry, transcript, &self.cwd).to_lowercase();
            matches.iter().all(|word| text.contains(word.as_str()))
        };
        !matches.is_empty()
            && self.with_entry(index, has_words).unwrap_or(false)
            && self.height(index, look) > 0
    }

    /// Whether an entry above the selected one has the words that are searched for.
    pub fn has_match_above(&mut self, look: &Look) -> bool {
        let start = self.selected_index().unwrap_or(self.items.len());
        (0..start).rev().any(|index| self.is_match(index, look))
    }

    /// Selects the next or previous entry that has the words that are searched for.
    pub fn select_match(&mut self, forward: bool, look: &Look) -> bool {
        let count = self.items.len();
        let start = self.selected_index().unwrap_or(if forward { 0 } else { count });
        let order: Vec<usize> = if forward {
            (start + 1..count).chain(0..=start.min(count.saturating_sub(1))).collect()
        } else {
            (0..start).rev().chain((start..count).rev()).collect()
        };
        let Some(index) = order.into_iter().find(|index| self.is_match(*index, look)) else { return false };
        self.selected = Some(self.items[index].key);
        self.reveal(index, look);
        self.reveal_words(look);
        true
    }

    /// Shows the words that are searched for in the selected entry: unfolds it if it hides them, and scrolls to them.
    pub fn reveal_words(&mut self, look: &Look) {
        let Some(index) = self.selected_index().filter(|_| !self.matches.is_empty()) else { return };
        let words = self.matches.clone();
        let text = |line: &Line<'_>| line.to_string().to_lowercase();
        let shown_words = |lines: &[Line<'_>]| {
            let all = lines.iter().map(text).collect::<Vec<_>>().join(" ");
            words.iter().filter(|word| all.contains(word.as_str())).count()
        };
        let count = |this: &mut Self, fold| this.with_lines(index, fold, look, shown_words).unwrap_or(0);
        if count(self, Some(Fold::Unfolded)) > count(self, None) {
            self.folds.insert(self.items[index].key, Fold::Unfolded);
        }
        // The first of the lines with the most words.
        let best = |lines: &[Line<'_>]| {
            let counts = lines.iter().map(|line| shown_words(std::slice::from_ref(line)));
            counts
                .enumerate()
                .max_by_key(|(row, count)| (*count, std::cmp::Reverse(*row)))
                .map(|(row, _)| row)
        };
        let row = self.with_lines(index, None, look, best).flatten();
        let row = isize::try_from(row.unwrap_or(0)).unwrap_or(0);
        let shown = self.visible(look);
        let first = shown.iter().find(|(shown, _)| *shown == index).map_or(0, |(_, first)| *first);
        if !(0..self.page()).contains(&(first + row)) {
            self.scroll(first + row - self.page() / 4, look);
        }
    }

    /// Reads the selected entry.
    pub fn with_selected<T>(&self, read: impl FnOnce(&Entry, &Transcript) -> T) -> Option<T> {
        self.with_entry(self.selected_index()?, read)
    }

    /// The number of the selected entry, if it is a message and its number is known.
    pub fn selected_number(&self) -> Option<usize> {
        self.number(self.selected_index()?)
    }

    /// The message at or before the selected entry: where a fork is made.
    pub fn selected_message(&self) -> Option<MessageId> {
        let selected = self.selected_index()?;
        (0..=selected).rev().find_map(|index| {
            self.with_entry(index, |entry, _| {
                let EntryId::Message(_, id) = entry.id() else { return None };
                Some(id.clone())
            })?
        })
    }

    /// A message by its id, and the one after it. Thoughts do not count.
    pub fn around(&self, id: &MessageId) -> Option<(NumberedText, Option<NumberedText>)> {
        let is_it = |entry: &Entry| matches!(entry.id(), EntryId::Message(_, known) if known == id);
        let index = (0..self.items.len())
            .rev()
            .find(|index| self.with_entry(*index, |entry, _| is_it(entry)).unwrap_or(false))?;
        let next = (index + 1..self.items.len()).find_map(|index| self.numbered_text(index));
        Some((self.numbered_text(index)?, next))
    }

    fn numbered_text(&self, index: usize) -> Option<NumberedText> {
        let number = self.number(index)?;
        self.with_entry(index, |entry, _| {
            let EntryId::Message(role @ (Role::User | Role::Agent), _) = entry.id() else { return None };
            let role = if *role == Role::User { "user" } else { "agent" };
            let text = entry.body().content.to_text();
            Some(NumberedText { number, role, text: Clean::line(text.trim()) })
        })?
    }

    /// The prompt at or before the selected entry, or the last one if nothing is selected.
    pub fn selected_prompt(&self) -> Option<(MessageId, String)> {
        let last = self.items.len().checked_sub(1)?;
        let selected = self.selected_index().unwrap_or(last);
        (0..=selected).rev().find_map(|index| {
            self.with_entry(index, |entry, _| {
                let EntryId::Message(Role::User, id) = entry.id() else { return None };
                Some((id.clone(), entry.body().content.to_text()))
            })?
        })
    }
}
