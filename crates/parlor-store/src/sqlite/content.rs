//! The contents of entries: texts that grow at their end, shared by entries until one of them changes.

use rusqlite::{Connection, OptionalExtension, params};

use super::cache::WriterCache;
use super::index;
use crate::StoreError;

/// A segment of this many bytes is not merged any more.
const CLOSED_BYTES: usize = 16 << 10;

/// The number of open segments at the end of a content, or of their bytes, at which they are merged. A lower limit
/// would give short segments, and SQLite leaves half a page empty after each.
const MAX_OPEN: usize = 512;
const MAX_OPEN_BYTES: usize = 48 << 10;

/// The last text that is added before a merge is shorter than a closed segment.
const _: () = assert!(MAX_OPEN_BYTES + CLOSED_BYTES <= MAX_SEGMENT);

/// The most bytes of a segment; longer texts are split, so that a row is cheap to read, write and delete.
const MAX_SEGMENT: usize = 64 << 10;

/// The number of low bits of a segment's key that are its number; the other bits are the number of its content.
const NUMBER_BITS: u32 = 20;

/// The number of content numbers that are reserved at a time; unused ones are lost.
const RESERVED: i64 = 1024;

const INSERT: &str = "INSERT INTO segments (key, seq, closed, text) VALUES (?, ?, ?, ?)";

const EXTEND: &str = "UPDATE segments SET seq = ?2, closed = 1, text = text || ?3 WHERE key = ?1";

const DELETE: &str = "DELETE FROM segments WHERE key BETWEEN ? AND ?";

/// Returns the first and the last key that segments of a content can have.
pub(super) fn keys(content: i64) -> [i64; 2] {
    let first = content << NUMBER_BITS;
    [first, first | ((1 << NUMBER_BITS) - 1)]
}

/// The tail of a content that belongs to one entry alone.
#[derive(Debug, Clone)]
pub(super) struct Tail {
    content: i64,
    /// The key of the next segment.
    next: i64,
    /// The last change of this session that appended; 0 for none.
    seq: i64,
    /// The number of open segments at the end, and of their bytes.
    open: usize,
    open_bytes: usize,
}

/// The content of an entry as its row describes it.
pub(super) struct Owned {
    pub(super) content: i64,
    /// As in the table: `None` while all of the content was copied.
    pub(super) inherited: Option<i64>,
}

impl Tail {
    /// Returns the tail of a content without segments.
    pub(super) fn empty(content: i64) -> Self {
        Self { content, next: keys(content)[0], seq: 0, open: 0, open_bytes: 0 }
    }

    /// Reads the tail of a content.
    pub(super) fn find(conn: &Connection, content: i64) -> Result<Self, StoreError> {
        let mut tail = Self::empty(content);
        let mut last = conn.prepare_cached(
            "SELECT key, seq, closed, octet_length(text) FROM segments WHERE key BETWEEN ? AND ?
             ORDER BY key DESC LIMIT ?",
        )?;
        let [first, end] = keys(content);
        let mut rows = last.query(params![first, end, MAX_OPEN])?;
        while let Some(row) = rows.next()? {
            if tail.next == first {
                tail.next = row.get::<_, i64>(0)? + 1;
                tail.seq = row.get(1)?;
            }
            if row.get(2)? {
                break;
            }
            tail.open += 1;
            tail.open_bytes += row.get::<_, usize>(3)?;
        }
        Ok(tail)
    }

    /// Appends text. This is one insert, except for long texts and for a merge now and then.
    pub(super) fn push(&mut self, conn: &Connection, seq: i64, text: &str) -> Result<(), StoreError> {
        self.seq = self.seq.max(seq);
        let mut rest = text;
        while rest.len() > MAX_SEGMENT {
            let (now, later) = rest.split_at(boundary(rest, MAX_SEGMENT));
            self.insert(conn, now)?;
            rest = later;
        }
        self.insert(conn, rest)
    }

    fn insert(&mut self, conn: &Connection, text: &str) -> Result<(), StoreError> {
        let closed = text.len() >= CLOSED_BYTES;
        if closed {
            (self.open, self.open_bytes) = (0, 0);
        } else {
            self.open += 1;
            self.open_bytes += text.len();
        }
        self.segment(conn, closed, text)?;
        if self.open >= MAX_OPEN || self.open_bytes >= MAX_OPEN_BYTES { self.merge(conn) } else { Ok(()) }
    }

    fn segment(&mut self, conn: &Connection, closed: bool, text: &str) -> Result<(), StoreError> {
        if self.next > keys(self.content)[1] {
            // There is no number for another segment.
            conn.prepare_cached(EXTEND)?.execute(params![self.next - 1, self.seq, text])?;
            (self.open, self.open_bytes) = (0, 0);
            return Ok(());
        }
        conn.prepare_cached(INSERT)?.execute(params![self.next, self.seq, closed, text])?;
        self.next += 1;
        Ok(())
    }

    /// Merges the open segments into a closed one, which is never changed again: each byte is written at most twice,
    /// however long the content gets.
    fn merge(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let first = self.next - i64::try_from(self.open).expect("there are few");
        let mut text = String::with_capacity(self.open_bytes);
        let mut open =
            conn.prepare_cached("SELECT text FROM segments WHERE key BETWEEN ? AND ? ORDER BY key")?;
        let mut rows = open.query([first, self.next - 1])?;
        while let Some(row) = rows.next()? {
            text.push_str(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        }
        drop(rows);
        conn.prepare_cached(DELETE)?.execute([first, self.next - 1])?;
        self.next = first;
        (self.open, self.open_bytes) = (0, 0);
        self.segment(conn, true, &text)
    }

    /// Marks the content as copied, so that its seq does not count in this session.
    fn into_copied(self) -> Self {
        Self { seq: 0, ..self }
    }
}

/// Returns the last character boundary that is not after `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).expect("every text begins at 0")
}

/// Returns an unused content number.
pub(super) fn new_content(conn: &Connection, cache: &mut WriterCache) -> Result<i64, StoreError> {
    if let Some(content) = cache.contents.next() {
        return Ok(content);
    }
    let end: i64 = conn
        .prepare_cached("UPDATE contents SET next = next + ? RETURNING next")?
        .query_row([RESERVED], |row| row.get(0))?;
    cache.contents = end - RESERVED + 1..end;
    Ok(end - RESERVED)
}

/// Detaches an entry from a content. The last entry deletes the text and its index document; otherwise search hits
/// move to another entry.
pub(super) fn release(conn: &Connection, session: i64, created: i64, content: i64) -> Result<(), StoreError> {
    if let Released::ByOne = count_down(conn, content)? {
        index::on_detached(conn, session, created, content)?;
    }
    Ok(())
}

/// Whether other entries still have a released content.
pub(super) enum Released {
    /// The content and its index document were deleted.
    ByAll,
    ByOne,
}

/// Decrements the number of entries of a content.
pub(super) fn count_down(conn: &Connection, content: i64) -> Result<Released, StoreError> {
    let sql = match entries_of(conn, content)? {
        ..=1 => {
            conn.prepare_cached(DELETE)?.execute(keys(content))?;
            index::remove(conn, content)?;
            return Ok(Released::ByAll);
        }
        2 => "DELETE FROM shared WHERE content = ?",
        3.. => "UPDATE shared SET entries = entries - 1 WHERE content = ?",
    };
    conn.prepare_cached(sql)?.execute([content])?;
    Ok(Released::ByOne)
}

/// Gives an entry a copy of its content.
pub(super) fn unshare(
    conn: &Connection,
    cache: &mut WriterCache,
    session: i64,
    created: i64,
    content: i64,
) -> Result<i64, StoreError> {
    let copy = new_content(conn, cache)?;
    copy_segments(conn, content, copy)?;
    conn.prepare_cached("UPDATE entries SET content = ? WHERE session = ? AND created = ?")?
        .execute(params![copy, session, created])?;
    release(conn, session, created, content)?;
    Ok(copy)
}

/// Returns the number of entries that have a content.
pub(super) fn entries_of(conn: &Connection, content: i64) -> Result<i64, StoreError> {
    let entries = conn
        .prepare_cached("SELECT entries FROM shared WHERE content = ?")?
        .query_row([content], |row| row.get(0))
        .optional()?;
    Ok(entries.unwrap_or(1))
}

/// Returns the content of an entry, or `None` if the entry does not exist.
pub(super) fn owned(conn: &Connection, session: i64, created: i64) -> Result<Option<Owned>, StoreError> {
    let found = conn
        .prepare_cached("SELECT content, inherited FROM entries WHERE session = ? AND created = ?")?
        .query_row(params![session, created], |row| {
            Ok(Owned { content: row.get(0)?, inherited: row.get(1)? })
        })
        .optional()?;
    Ok(found)
}

/// Returns the seq of the last change that appended to an entry.
pub(super) fn appended_seq(conn: &Connection, owned: &Owned) -> Result<i64, StoreError> {
    if owned.inherited.is_none() {
        return Ok(0);
    }
    let seq = conn
        .prepare_cached("SELECT seq FROM segments WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1")?
        .query_row(keys(owned.content), |row| row.get(0))
        .optional()?;
    Ok(seq.unwrap_or(0))
}

/// Returns the tail of an entry's content, ready for an append: a shared content is copied, and the length of copied
/// text is recorded before more is appended. Returns `None` if the entry does not exist.
pub(super) fn own_tail(
    conn: &Connection,
    cache: &mut WriterCache,
    session: i64,
    created: i64,
) -> Result<Option<Tail>, StoreError> {
    if let Some(tail) = cache.tails.take(&(session, created)) {
        return Ok(Some(tail));
    }
    let Some(owned) = owned(conn, session, created)? else { return Ok(None) };
    let content = if entries_of(conn, owned.content)? > 1 {
        unshare(conn, cache, session, created, owned.content)?
    } else {
        owned.content
    };
    let inherited = match owned.inherited {
        Some(inherited) => inherited,
        None => conn
            .prepare_cached(
                "SELECT coalesce(sum(octet_length(text)), 0) FROM segments WHERE key BETWEEN ? AND ?",
            )?
            .query_row(keys(content), |row| row.get(0))?,
    };
    if content != owned.content || owned.inherited.is_none() {
        conn.prepare_cached(
            "UPDATE entries SET content = ?, inherited = ? WHERE session = ? AND created = ?",
        )?
        .execute(params![content, inherited, session, created])?;
    }
    let tail = Tail::find(conn, content)?;
    Ok(Some(if owned.inherited.is_none() { tail.into_copied() } else { tail }))
}

fn copy_segments(conn: &Connection, from: i64, to: i64) -> Result<(), StoreError> {
    // Row by row with two statements, because a single statement would collect all rows in memory first.
    let mut read = conn.prepare_cached(
        "SELECT key, seq, closed, text FROM segments WHERE key BETWEEN ? AND ? ORDER BY key",
    )?;
    let mut write = conn.prepare_cached(INSERT)?;
    let ([first, _], [target, _]) = (keys(from), keys(to));
    let mut rows = read.query(keys(from))?;
    while let Some(row) = rows.next()? {
        let text = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?;
        let key = row.get::<_, i64>(0)? - first + target;
        write.execute(params![key, row.get::<_, i64>(1)?, row.get::<_, bool>(2)?, text])?;
    }
    Ok(())
}
