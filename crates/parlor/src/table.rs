//! Tables that fit the width of the terminal.

use std::io::{self, IsTerminal, Write};

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{BOLD, PLAIN};
use crate::render::safe;

/// The minimum width of a column that shrinks.
const MIN_WIDTH: usize = 10;

/// Rows below a header. Columns that may shrink are truncated if the terminal is too narrow.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

struct Column {
    name: &'static str,
    shrinks: bool,
}

/// A cell.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: &str, style: Style) -> Self {
        // A row is one line.
        let text = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect::<String>();
        Self { text: safe(&text), style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text.as_ref(), PLAIN)
    }
}

impl Table {
    /// Creates a table without rows. A `~` before a name marks a column that may shrink.
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        let columns = columns.iter().map(|name| match name.strip_prefix('~') {
            Some(name) => Column { name, shrinks: true },
            None => Column { name, shrinks: false },
        });
        Self { columns: columns.collect(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// Writes the table: truncated to the width of a terminal, whole into a pipe.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_within(terminal_width(), out)
    }

    fn write_within(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths(width);
        let names: Vec<_> = self.columns.iter().map(|column| Cell::styled(column.name, BOLD)).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate().take(last + 1) {
                let (text, style) = (truncate(&cell.text, *width), cell.style);
                let padding = if index == last { 0 } else { width - text.width() + 2 };
                write!(out, "{style}{text}{style:#}{:padding$}", "")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let wanted = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].text.width());
            cells.chain([self.columns[index].name.width()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(wanted).collect();
        let Some(limit) = limit else { return widths };
        // The widest column shrinks first, so that short columns stay whole.
        while widths.iter().sum::<usize>() + 2 * (widths.len() - 1) > limit {
            let indices = (0..widths.len()).filter(|index| self.columns[*index].shrinks);
            match indices.max_by_key(|index| widths[*index]).filter(|index| widths[*index] > MIN_WIDTH) {
                Some(widest) => widths[widest] -= 1,
                None => break,
            }
        }
        widths
    }
}

/// The width of the terminal, if standard output is one.
pub(crate) fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// Truncates a text to a width, with `…` at the end.
pub(crate) fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut truncated = String::new();
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > room {
            break;
        }
        room -= columns;
        truncated.push(c);
    }
    truncated.push('…');
    truncated
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["ID", "~TITLE", "AGENT", "~CWD", "STATE"]);
        table.row(["01".into(), "A plain title".into(), "demo".into(), "~/work".into(), "".into()]);
        let wide = "日本語のとても長い題名、端末に入らないもの";
        table.row(["02".into(), wide.into(), "demo".into(), "/srv/a/long/way/down".into(), "running".into()]);
        table.row(["03".into(), "two\nlines\u{1b}[2J".into(), "x".into(), "".into(), "".into()]);
        table
    }

    fn written(width: Option<usize>) -> String {
        let mut out = Vec::new();
        table().write_within(width, &mut out).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string()
    }

    #[test]
    fn the_table_is_not_truncated_in_a_pipe() {
        expect![[r#"
            ID  TITLE                                       AGENT  CWD                   STATE
            01  A plain title                               demo   ~/work
            02  日本語のとても長い題名、端末に入らないもの  demo   /srv/a/long/way/down  running
            03  two lines�[2J                               x
        "#]]
        .assert_eq(&written(None));
    }

    #[test]
    fn the_table_is_truncated_to_the_width_of_a_terminal() {
        expect![[r#"
            ID  TITLE               AGENT  CWD                 STATE
            01  A plain title       demo   ~/work
            02  日本語のとても長…   demo   /srv/a/long/way/d…  running
            03  two lines�[2J       x
        "#]]
        .assert_eq(&written(Some(58)));
        // Columns keep their minimum width; the terminal wraps the lines.
        assert!(written(Some(5)).contains("A plain t…"));
    }

    #[test]
    fn text_is_truncated_by_columns() {
        assert_eq!((truncate("abc", 3), truncate("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
        assert_eq!((truncate("日本語", 4), truncate("日本語", 0)), ("日…".to_owned(), "…".to_owned()));
    }
}
