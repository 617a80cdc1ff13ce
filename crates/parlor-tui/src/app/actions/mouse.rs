//! The mouse.

use crate::app::{App, Focus};
use crate::event::Effect;
use crate::overlay::{Overlay, step};
use crate::sessions::ListLine;

impl App {
    pub(in crate::app) fn on_wheel(&mut self, rows: isize) {
        match self.overlays.last_mut() {
            None if self.focus == Focus::Request => {
                self.request_scroll = self.request_scroll.saturating_add_signed(rows);
            }
            None => {
                if let Some(conversation) = &mut self.conversation {
                    conversation.scroll(rows, &self.look);
                }
            }
            Some(Overlay::Picker(picker)) => picker.step(rows > 0),
            Some(Overlay::Inbox(inbox)) => inbox.scroll = inbox.scroll.saturating_add_signed(rows),
            Some(Overlay::Search(search)) => search.cursor = step(search.cursor, search.hits.len(), rows > 0),
            Some(Overlay::Forks(forks)) => forks.cursor = step(forks.cursor, forks.lines.len(), rows > 0),
            Some(Overlay::Help(help)) => help.scroll = help.scroll.saturating_add_signed(rows),
            Some(Overlay::Ask(_)) => {}
        }
    }

    pub(in crate::app) fn on_click(&mut self, column: u16, row: u16, effects: &mut Vec<Effect>) {
        if !self.overlays.is_empty() {
            return;
        }
        let left = self.list_width();
        if self.shows_list() && (column < left || self.size.0 < crate::app::draw::WIDE) {
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
        let top = crate::app::draw::HEADER_ROWS;
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
}
