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
    /// The columns that are left out if the table does not fit, the first one first.
    optional: Vec<usize>,
}

struct Column {
    name: &'static str,
    shrinks: bool,
    /// Whether cells are aligned at the right, as numbers are.
    is_right: bool,
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
    /// Creates a table without rows. A `~` before a name marks a column that may shrink, a `<` one whose cells are aligned at the
    /// right.
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        let columns = columns.iter().map(|name| {
            let bare = name.trim_start_matches(['~', '<']);
            Column { name: bare, shrinks: name.starts_with('~'), is_right: name.starts_with('<') }
        });
        Self { columns: columns.collect(), rows: Vec::new(), optional: Vec::new() }
    }

    /// Leaves out columns, the first one first, if the terminal is too narrow for the table even with truncated texts.
    pub(crate) fn drop_if_narrow(&mut self, names: &[&str]) {
        let index = |name: &&str| self.columns.iter().position(|column| column.name == *name);
        self.optional = names.iter().filter_map(index).collect();
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn push(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// Writes the table: truncated to the width of a terminal, whole into a pipe.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_within(terminal_width(), out)
    }

    pub(crate) fn write_within(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths(width);
        let names: Vec<_> = self.columns.iter().map(|column| Cell::styled(column.name, BOLD)).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let shown = row.iter().zip(&self.columns).zip(&widths);
            let shown = shown.filter_map(|((cell, column), width)| Some((cell, column, (*width)?)));
            let shown: Vec<_> = shown.collect();
            let last = shown.iter().rposition(|(cell, ..)| !cell.text.is_empty()).unwrap_or(0);
            for (index, (cell, column, width)) in shown.into_iter().enumerate().take(last + 1) {
                let (text, style) = (truncate(&cell.text, width), cell.style);
                let room = width - text.width();
                let (before, after) = if column.is_right { (room, 0) } else { (0, room) };
                let after = if index == last { 0 } else { after + 2 };
                write!(out, "{:before$}{style}{text}{style:#}{:after$}", "", "")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// The widths of the columns; `None` for those that are left out.
    fn widths(&self, limit: Option<usize>) -> Vec<Option<usize>> {
        let wanted = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].text.width());
            cells.chain([self.columns[index].name.width()]).max().unwrap_or(0)
        };
        let wanted: Vec<usize> = (0..self.columns.len()).map(wanted).collect();
        let mut widths: Vec<_> = wanted.iter().copied().map(Some).collect();
        let Some(limit) = limit else { return widths };
        let mut optional = self.optional.iter();
        while !self.shrink(&mut widths, limit) {
            let Some(dropped) = optional.next() else { break };
            widths = wanted.iter().zip(widths).map(|(wanted, width)| width.and(Some(*wanted))).collect();
            widths[*dropped] = None;
        }
        widths
    }

    /// Shrinks the widest columns first, so that short columns stay whole. Returns whether the table fits.
    fn shrink(&self, widths: &mut [Option<usize>], limit: usize) -> bool {
        let total = |widths: &[Option<usize>]| {
            let shown = widths.iter().flatten();
            shown.clone().sum::<usize>() + 2 * shown.count().saturating_sub(1)
        };
        while total(widths) > limit {
            let indices = (0..widths.len()).filter(|index| self.columns[*index].shrinks);
            let widest = indices.max_by_key(|index| widths[*index]);
            match widest.and_then(|widest| widths[widest].as_mut()).filter(|width| **width > MIN_WIDTH) {
                Some(width) => *width -= 1,
                None => return false,
            }
        }
        true
    }
}

/// The width of the terminal, if standard output is one.
pub(crate) fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// Writes a label and a text after it. If they do not fit the terminal, the text follows on lines of its own, wrapped at spaces; what
/// has no spaces, such as a path, is broken anywhere.
pub(crate) fn write_labelled(
    out: &mut dyn Write,
    width: Option<usize>,
    label: &str,
    text: &str,
    style: Style,
) -> io::Result<()> {
    /// How far wrapped lines are indented.
    const INDENT: usize = 4;
    let length = anstream::adapter::strip_str(label).to_string().width();
    let Some(width) = width.filter(|width| length + text.width() > *width) else {
        return writeln!(out, "{label}{style}{text}{style:#}");
    };
    let written = anstream::adapter::strip_str(label).to_string();
    if !written.trim().is_empty() {
        writeln!(out, "{}", label.trim_end())?;
    }
    for line in wrap(text, width.saturating_sub(INDENT).max(MIN_WIDTH)) {
        writeln!(out, "{:INDENT$}{style}{line}{style:#}", "")?;
    }
    Ok(())
}

/// Breaks a text into lines of at most a width.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if line.width() + c.width().unwrap_or(0) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines
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
    fn numbers_are_aligned_at_the_right() {
        let mut table = Table::new(&["NAME", "<TURNS", "<COST"]);
        table.row(["a".into(), "7".into(), "$1.00".into()]);
        table.push(vec!["b".into(), "1234567".into(), "".into()]);
        let mut out = Vec::new();
        table.write_within(None, &mut out).unwrap();
        let written = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
        expect![[r#"
            NAME    TURNS   COST
            a           7  $1.00
            b     1234567
        "#]]
        .assert_eq(&written);
    }

    #[test]
    fn columns_are_left_out_of_a_narrow_table_in_the_given_order() {
        let mut table = table();
        table.drop_if_narrow(&["CWD", "AGENT"]);
        let mut out = Vec::new();
        table.write_within(Some(30), &mut out).unwrap();
        let written = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
        expect![[r#"
            ID  TITLE       AGENT  STATE
            01  A plain t…  demo
            02  日本語の…   demo   running
            03  two lines…  x
        "#]]
        .assert_eq(&written);
    }

    #[test]
    fn a_text_that_does_not_fit_after_its_label_is_wrapped_below_it() {
        let written = |width, label: &str, text: &str| {
            let mut out = Vec::new();
            write_labelled(&mut out, width, label, text, PLAIN).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(None, "  data  ", "/a/b c"), "  data  /a/b c\n");
        assert_eq!(written(Some(14), "  data  ", "/a/b c"), "  data  /a/b c\n");
        assert_eq!(
            written(Some(14), "  data  ", "/a/b cc 日本語日本語"),
            "  data\n    /a/b cc\n    日本語日本\n    語\n"
        );
        assert_eq!(written(Some(14), "      ", "a hint that is long"), "    a hint\n    that is\n    long\n");
    }

    #[test]
    fn text_is_truncated_by_columns() {
        assert_eq!((truncate("abc", 3), truncate("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
        assert_eq!((truncate("日本語", 4), truncate("日本語", 0)), ("日…".to_owned(), "…".to_owned()));
    }
}
