//! Tables that fit into the terminal.

use std::io::{self, IsTerminal, Write};

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{BOLD, PLAIN};
use crate::render::safe;

/// What a column shrinks to before it would be of no use.
const NARROWEST: usize = 10;

/// Rows under a line of names. Columns that may shrink are cut where the terminal is too narrow.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

struct Column {
    name: &'static str,
    shrinks: bool,
}

/// One field of a table.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: &str, style: Style) -> Self {
        // A table has one line a row.
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
    /// A table without rows. A name that begins with `~` is of a column that may shrink.
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

    /// Writes it, as wide as the terminal allows, and as wide as it is into a pipe.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_within(terminal_width(), out)
    }

    fn write_within(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths(width);
        let names: Vec<_> = self.columns.iter().map(|column| Cell::styled(column.name, BOLD)).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate().take(last + 1) {
                let (text, style) = (cut(&cell.text, *width), cell.style);
                let room = if index == last { 0 } else { width - text.width() + 2 };
                write!(out, "{style}{text}{style:#}{:room$}", "")?;
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
        // The widest gives way first, so that a short column stays whole beside a long one.
        while widths.iter().sum::<usize>() + 2 * (widths.len() - 1) > limit {
            let indices = (0..widths.len()).filter(|index| self.columns[*index].shrinks);
            match indices.max_by_key(|index| widths[*index]).filter(|index| widths[*index] > NARROWEST) {
                Some(widest) => widths[widest] -= 1,
                None => break,
            }
        }
        widths
    }
}

/// How many columns the terminal has, if the output goes to one.
pub(crate) fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// As much of a text as fits.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut text_that_fits = String::new();
    for c in text.chars() {
        let taken = c.width().unwrap_or(0);
        if taken > room {
            break;
        }
        room -= taken;
        text_that_fits.push(c);
    }
    text_that_fits.push('…');
    text_that_fits
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
    fn a_pipe_gets_all_of_it() {
        expect![[r#"
            ID  TITLE                                       AGENT  CWD                   STATE
            01  A plain title                               demo   ~/work
            02  日本語のとても長い題名、端末に入らないもの  demo   /srv/a/long/way/down  running
            03  two lines�[2J                               x
        "#]]
        .assert_eq(&written(None));
    }

    #[test]
    fn a_terminal_gets_what_fits() {
        expect![[r#"
            ID  TITLE               AGENT  CWD                 STATE
            01  A plain title       demo   ~/work
            02  日本語のとても長…   demo   /srv/a/long/way/d…  running
            03  two lines�[2J       x
        "#]]
        .assert_eq(&written(Some(58)));
        // Narrower than all, it stays readable and the terminal wraps it.
        assert!(written(Some(5)).contains("A plain t…"));
    }

    #[test]
    fn cutting_goes_by_columns() {
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
        assert_eq!((cut("日本語", 4), cut("日本語", 0)), ("日…".to_owned(), "…".to_owned()));
    }
}
