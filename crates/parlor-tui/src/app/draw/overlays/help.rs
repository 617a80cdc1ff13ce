//! Draws the help.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Drawn;
use crate::app::App;
use crate::app::draw::Hint;
use crate::keys::KeyContext;
use crate::overlay::HelpView;
use crate::text::{pad, width, wrap};
use crate::theme::Role;

/// From this width on the help has two columns.
const WIDE_HELP: u16 = 110;

/// The columns of the keys.
const KEY_COLUMNS: usize = 17;

impl App {
    pub(super) fn help_hints() -> Vec<Hint> {
        vec![("j k".to_owned(), "scroll"), ("/".to_owned(), "find a key"), ("Esc".to_owned(), "close")]
    }

    pub(super) fn help_lines(&self, help: &mut HelpView, area: Rect) -> Drawn {
        let rows = self.keys.help();
        let query = help.query.as_ref().map(|query| query.text().to_lowercase()).unwrap_or_default();
        let is_wide = area.width >= WIDE_HELP && query.is_empty();
        let half = usize::from(area.width) / 2;
        let columns = if is_wide { half - 1 } else { usize::from(area.width) };
        let (heading, lead) = if self.is_narrow() { ("", " ") } else { (" ", "   ") };
        let section = |context: KeyContext| -> Vec<Line<'static>> {
            let fits = |row: &&crate::keys::HelpRow| {
                let text = format!("{} {}", row.keys, row.text).to_lowercase();
                row.context == context && (query.is_empty() || text.contains(&query))
            };
            let found: Vec<_> = rows.iter().filter(fits).collect();
            if found.is_empty() {
                return Vec::new();
            }
            let mut lines = vec![Line::from(vec![self.bold(format!("{heading}{}", context.title()))])];
            for row in found {
                let mut keys = row.keys.clone();
                if width(&keys) > KEY_COLUMNS {
                    // The text is below keys that need its columns.
                    let rows = wrap(&std::mem::take(&mut keys), columns - width(lead));
                    lines.extend(
                        rows.into_iter()
                            .map(|row| Line::from(self.span(format!("{lead}{row}"), Role::Accent))),
                    );
                }
                for text in wrap(row.text, columns - width(lead) - KEY_COLUMNS - 1) {
                    let keys = format!("{lead}{} ", pad(&std::mem::take(&mut keys), KEY_COLUMNS, ""));
                    lines.push(Line::from(vec![self.span(keys, Role::Accent), Span::raw(text)]));
                }
            }
            lines
        };
        let mut lines = Vec::new();
        if is_wide {
            const LEFT: [KeyContext; 5] = [
                KeyContext::Anywhere,
                KeyContext::Panes,
                KeyContext::Input,
                KeyContext::Sessions,
                KeyContext::Inbox,
            ];
            let left: Vec<_> = LEFT.into_iter().flat_map(section).collect();
            let right: Vec<_> =
                [KeyContext::Messages, KeyContext::Request, KeyContext::Form, KeyContext::List]
                    .into_iter()
                    .flat_map(section)
                    .collect();
            for index in 0..left.len().max(right.len()) {
                let mut spans = left.get(index).map(|line| line.spans.clone()).unwrap_or_default();
                let used: usize = spans.iter().map(Span::width).sum();
                spans.push(Span::raw(" ".repeat(half.saturating_sub(used))));
                spans.extend(right.get(index).map(|line| line.spans.clone()).unwrap_or_default());
                lines.push(Line::from(spans));
            }
        } else {
            // The section of the pane that had the focus comes first.
            let others = KeyContext::ALL.into_iter().filter(|context| *context != help.context);
            lines.extend([help.context].into_iter().chain(others).flat_map(section));
        }
        let room = usize::from(area.height) - usize::from(help.query.is_some());
        help.scroll = help.scroll.min(lines.len().saturating_sub(room));
        let mut shown: Vec<_> = lines.into_iter().skip(help.scroll).take(room).collect();
        let mut cursor = None;
        if let Some(query) = &help.query {
            let (line, column) = self.query_line(query, area.width);
            shown.insert(0, line);
            cursor = Some((0, column));
        }
        Drawn { lines: shown, cursor, items: Vec::new() }
    }
}
