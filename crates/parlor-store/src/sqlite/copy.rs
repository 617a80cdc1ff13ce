//! Copies entries that share their contents.
//!
//! A fork copies thousands of entries, so each statement reads or writes many rows, because starting a statement
//! takes longer than writing a row. The rows are not copied by one statement: it would read the table that it writes
//! to, and collect all rows in a temporary table first.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::LazyLock;

use rusqlite::{Connection, params};

use super::index;
use crate::check::{no_entry, number};
use crate::{CopiedEntry, StoreError};

/// The number of rows that one statement writes.
const ROWS: usize = 32;

/// The most entries that are read before they are written, and about how many bytes.
const READ: usize = 8 * ROWS;
const READ_BYTES: usize = 1 << 20;

/// Inserts one entry, and increments the number of entries of its content.
static ONE: LazyLock<[String; 2]> = LazyLock::new(|| statements(1));

/// The same for [`ROWS`] entries.
static MANY: LazyLock<[String; 2]> = LazyLock::new(|| statements(ROWS));

fn statements(rows: usize) -> [String; 2] {
    let values = |values: &str| vec![values; rows].join(", ");
    [
        format!(
            "INSERT OR IGNORE INTO entries (session, created, seq, content, inherited, head) VALUES {}",
            values("(?, ?, ?, ?, NULL, ?)")
        ),
        format!(
            "INSERT INTO shared (content, entries) VALUES {} ON CONFLICT DO UPDATE SET entries = entries + 1",
            values("(?, 2)")
        ),
    ]
}

/// Entries that were read, with their heads in one text.
#[derive(Default)]
struct Page {
    heads: String,
    rows: Vec<(i64, Range<usize>)>,
}

/// Copies entries from one session to another, both given by id and key.
pub(super) fn copy(
    conn: &Connection,
    from: (&str, i64),
    to: (&str, i64),
    entries: &[CopiedEntry],
) -> Result<(), StoreError> {
    index::link(conn, from.1, to.1)?;
    let mut page = Page::default();
    // A copy within a session may be copied again.
    let most = if from.1 == to.1 { 1 } else { READ };
    let mut rest = entries;
    while !rest.is_empty() {
        // A page is read in the order of the table.
        let follows = |pair: &&[CopiedEntry]| pair[0].from < pair[1].from;
        let count = 1 + rest.windows(2).take(most - 1).take_while(follows).count();
        page.read(conn, from, &rest[..count])?;
        let (now, later) = rest.split_at(page.rows.len());
        page.write(conn, to, now)?;
        rest = later;
    }
    Ok(())
}

impl Page {
    /// Reads entries, at least the first one.
    fn read(
        &mut self,
        conn: &Connection,
        from: (&str, i64),
        entries: &[CopiedEntry],
    ) -> Result<(), StoreError> {
        self.heads.clear();
        self.rows.clear();
        let mut read = conn.prepare_cached(
            "SELECT created, content, head FROM entries WHERE session = ? AND created BETWEEN ? AND ?
             ORDER BY created",
        )?;
        let (first, last) = (number(entries[0].from)?, number(entries[entries.len() - 1].from)?);
        let mut rows = read.query(params![from.1, first, last])?;
        for CopiedEntry { from: created, head, .. } in entries {
            let row = loop {
                let row = rows.next()?.ok_or_else(|| no_entry(from.0, *created))?;
                match row.get::<_, u64>(0)?.cmp(created) {
                    Ordering::Less => {}
                    Ordering::Equal => break row,
                    Ordering::Greater => return Err(no_entry(from.0, *created)),
                }
            };
            let start = self.heads.len();
            if head.is_none() {
                self.heads.push_str(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?);
            }
            self.rows.push((row.get(1)?, start..self.heads.len()));
            if self.heads.len() >= READ_BYTES {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, conn: &Connection, to: (&str, i64), entries: &[CopiedEntry]) -> Result<(), StoreError> {
        for (copied, rows) in entries.chunks(ROWS).zip(self.rows.chunks(ROWS)) {
            if copied.len() == ROWS {
                self.write_rows(conn, &MANY, to, copied, rows)?;
            } else {
                for (copied, row) in copied.chunks(1).zip(rows.chunks(1)) {
                    self.write_rows(conn, &ONE, to, copied, row)?;
                }
            }
        }
        Ok(())
    }

    fn write_rows(
        &self,
        conn: &Connection,
        [insert, share]: &[String; 2],
        to: (&str, i64),
        entries: &[CopiedEntry],
        rows: &[(i64, Range<usize>)],
    ) -> Result<(), StoreError> {
        let (mut insert, mut share) = (conn.prepare_cached(insert)?, conn.prepare_cached(share)?);
        let mut parameter = 0;
        for ((content, head), n) in rows.iter().zip(1..) {
            let CopiedEntry { to: created, head: other, .. } = &entries[n - 1];
            let created = number(*created)?;
            let head = other.as_deref().unwrap_or(&self.heads[head.clone()]);
            insert.raw_bind_parameter(parameter + 1, to.1)?;
            insert.raw_bind_parameter(parameter + 2, created)?;
            insert.raw_bind_parameter(parameter + 3, created)?;
            insert.raw_bind_parameter(parameter + 4, content)?;
            insert.raw_bind_parameter(parameter + 5, head)?;
            share.raw_bind_parameter(n, content)?;
            parameter += 5;
        }
        if insert.raw_execute()? < rows.len() {
            let (first, last) = (entries[0].to, entries[entries.len() - 1].to);
            let message = format!("session {} already has one of the entries {first} to {last}", to.0);
            return Err(StoreError::invalid(message));
        }
        share.raw_execute()?;
        Ok(())
    }
}
