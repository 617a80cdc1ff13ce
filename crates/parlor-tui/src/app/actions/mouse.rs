//! The mouse.

use crate::app::draw::{HEADER_ROWS, WIDE};
use crate::app::{App, Focus};
use crate::conversation::Conversation;
use crate::event::Effect;
use crate::keys::Action;
use crate::overlay::{Overlay, step};
use crate::sessions::ListLine;

impl App {
    pub(in crate::app) fn on_wheel(&mut self, rows: isize, (column, row): (u16, u16)) {
        let is_down = rows > 0;
        let is_on_list = self.is_on_list(column);
        let page = self.conversation.as_ref().map_or(0, Conversation::page);
        let is_below = isize::try_from(row.saturating_sub(HEADER_ROWS)).is_ok_and(|row| row >= page);
        match self.overlays.last_mut() {
            None if is_on_list && self.focus == Focus::Sessions => self.step_list(is_down),
            None if is_on_list => self.list_scroll = self.list_scroll.saturating_add_signed(rows),
            None if self.focus == Focus::Request && is_below => {
                self.request_scroll = self.request_scroll.saturating_add_signed(rows);
            }
            None => {
                if let Some(conversation) = &mut self.conversation {
                    conversation.scroll(rows, &self.look);
                }
            }
            Some(Overlay::Picker(picker)) => picker.step(is_down),
            Some(Overlay::Inbox(inbox)) => inbox.scroll = inbox.scroll.saturating_add_signed(rows),
            Some(Overlay::Search(search)) => search.cursor = step(search.cursor, search.hits.len(), is_down),
            Some(Overlay::Forks(forks)) => forks.cursor = step(forks.cursor, forks.lines.len(), is_down),
            Some(Overlay::Help(help)) => help.scroll = help.scroll.saturating_add_signed(rows),
            Some(Overlay::Ask(_)) => {}
        }
    }

    /// Whether a column of the screen is in the list of sessions.
    fn is_on_list(&self, column: u16) -> bool {
        self.shows_list() && (column < self.list_width() || self.size.0 < WIDE)
    }

    pub(in crate::app) fn on_click(&mut self, column: u16, row: u16, effects: &mut Vec<Effect>) {
        self.last_key = Some(self.look.now);
        if !self.overlays.is_empty() {
            let item = self.overlay_items.get(usize::from(row)).copied().flatten();
            return item.into_iter().for_each(|item| self.click_item(item, effects));
        }
        if self.is_on_list(column) {
            match self.list_row(row) {
                Some(ListLine::Session { id, .. }) => {
                    self.list_cursor = Some(id);
                    self.open_listed(effects);
                }
                Some(ListLine::Archived(_)) => self.toggle_archived(),
                Some(ListLine::Directory(_)) | None => {}
            }
            return;
        }
        let Some(conversation) = &mut self.conversation else { return };
        let top = HEADER_ROWS;
        let height = u16::try_from(conversation.page()).unwrap_or(0);
        if row >= top && row < top + height {
            if conversation.select_row(row - top, &self.look) {
                conversation.toggle(&self.look);
            }
            if self.focus == Focus::Input || self.focus == Focus::Sessions {
                self.set_focus(Focus::Messages);
            }
        } else if row >= top + height {
            let focus = if self.shown_request().is_some() && self.focus == Focus::Request {
                Focus::Request
            } else {
                Focus::Input
            };
            self.set_focus(focus);
        }
    }

    /// Selects an item of the topmost overlay. A click on the selected one is an Enter, but answers no request.
    fn click_item(&mut self, item: usize, effects: &mut Vec<Effect>) {
        let ids = self.inbox_ids();
        let cursor = match self.overlays.last_mut() {
            Some(Overlay::Picker(picker)) => &mut picker.cursor,
            Some(Overlay::Search(search)) => &mut search.cursor,
            Some(Overlay::Forks(forks)) => &mut forks.cursor,
            Some(Overlay::Inbox(inbox)) => return inbox.select(&ids, item),
            Some(Overlay::Help(_) | Overlay::Ask(_)) | None => return,
        };
        if std::mem::replace(cursor, item) != item {
            return;
        }
        match self.overlays.last() {
            Some(Overlay::Picker(_)) => self.choose(effects),
            Some(Overlay::Search(_)) => self.open_hit(effects),
            _ => self.on_fork_tree_action(Some(Action::Open), effects),
        }
    }
}
