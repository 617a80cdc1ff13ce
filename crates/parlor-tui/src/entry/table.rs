//! Tables as rows of styled text.

use ratatui::style::{Modifier, Style};

use super::row::{Text, Wrap};
use crate::text::width;
use crate::theme::Theme;

/// Columns between the columns of a table.
const GAP: usize = 3;

/// No column becomes narrower than this; a table that does not fit then is shown row by row.
const MIN_COLUMN: usize = 8;

/// A table: the first row is the head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The columns that are aligned to the right.
    is_right: Vec<bool>,
    rows: Vec<Vec<Text>>,
}

impl Table {
    pub(crate) fn new(is_right: Vec<bool>) -> Self {
        Self { is_right, rows: Vec::new() }
    }

    pub(crate) fn start_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(crate) fn push(&mut self, cell: Text) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    /// The rows of the table in at most `room` columns.
    pub(crate) fn rows(mut self, room: usize, theme: Theme) -> Vec<Text> {
        let columns = self.rows.first().map_or(0, Vec::len);
        if columns == 0 {
            return Vec::new();
        }
        for column in 0..columns {
            let mut body = self.rows.iter().skip(1).filter_map(|row| row.get(column)).peekable();
            let is_numeric = body.peek().is_some() && body.all(is_number);
            if let Some(is_right) = self.is_right.get_mut(column) {
                *is_right |= is_numeric;
            }
        }
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if let Some(head) = self.rows.first_mut() {
            head.iter_mut().for_each(|cell| *cell = std::mem::take(cell).over(bold));
        }
        match self.widths(columns, room) {
            Some(widths) => self.rows.iter().flat_map(|row| self.aligned(row, &widths)).collect(),
            None => self.records(room, theme),
        }
    }

    /// The widths of the columns; `None` if they do not fit.
    fn widths(&self, columns: usize, room: usize) -> Option<Vec<usize>> {
        let widest =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(Text::width).max();
        let mut widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
        let gaps = GAP * (columns - 1);
        while widths.iter().sum::<usize>() + gaps > room {
            let excess = widths.iter().sum::<usize>() + gaps - room;
            let most = *widths.iter().max()?;
            let second = widths.iter().copied().filter(|width| *width < most).max().unwrap_or(0);
            let column = widths.iter().position(|width| *width == most)?;
            let shorter = most - excess.min((most - second).max(1));
            if shorter < MIN_COLUMN {
                return None;
            }
            widths[column] = shorter;
        }
        Some(widths)
    }

    /// One row of the table; long cells take several rows.
    fn aligned(&self, row: &[Text], widths: &[usize]) -> Vec<Text> {
        let cells: Vec<Vec<Text>> =
            row.iter().zip(widths).map(|(cell, width)| cell.wrap(*width, *width, Wrap::Words)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut rows = Vec::new();
        for line in 0..height {
            let mut text = Text::default();
            let mut used = 0;
            for (column, (cell, columns)) in cells.iter().zip(widths).enumerate() {
                let start: usize = widths[..column].iter().map(|width| width + GAP).sum();
                let part = cell.get(line).cloned().unwrap_or_default();
                let is_right = self.is_right.get(column).copied().unwrap_or(false);
                let pad = if is_right { columns.saturating_sub(part.width()) } else { 0 };
                if part.is_empty() {
                    continue;
                }
                text = text.with_own(" ".repeat(start + pad - used), Style::new());
                used = start + pad + part.width();
                text.append(part);
            }
            rows.push(text);
        }
        rows
    }

    /// The rows of the table below each other: `head  cell`.
    fn records(&self, room: usize, theme: Theme) -> Vec<Text> {
        let Some((head, body)) = self.rows.split_first() else { return Vec::new() };
        let label = head.iter().map(Text::width).max().unwrap_or(0).min(room / 3);
        let mut rows = Vec::new();
        for (index, row) in body.iter().enumerate() {
            if index > 0 {
                rows.push(Text::default());
            }
            for (name, cell) in head.iter().zip(row) {
                let name = name.clone().cut(label, theme);
                let pad = label.saturating_sub(width(&name.plain())) + 2;
                let parts =
                    cell.wrap(room.saturating_sub(label + 2), room.saturating_sub(label + 2), Wrap::Words);
                for (line, part) in parts.into_iter().enumerate() {
                    let before = if line == 0 {
                        name.clone().with_own(" ".repeat(pad), Style::new())
                    } else {
                        Text::own(" ".repeat(label + 2), Style::new())
                    };
                    rows.push(before.and(part));
                }
            }
        }
        if body.is_empty() { self.rows.iter().flatten().cloned().collect() } else { rows }
    }
}

/// Whether a cell is a number, possibly with a unit or a sign.
fn is_number(cell: &Text) -> bool {
    let cell = cell.plain();
    let cell = cell.trim();
    let number = cell.trim_start_matches(['-', '+', '$', '€', '~', '<', '>', '±', '−']);
    let first = number.chars().next();
    let units = number.split(' ').count();
    cell.is_empty()
        || cell == "-"
        || (first.is_some_and(|c| c.is_ascii_digit()) && units <= 2 && number.len() <= 16)
}
