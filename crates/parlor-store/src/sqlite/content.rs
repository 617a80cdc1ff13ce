//! The contents of entries: texts that grow at their end, shared by entries until one of them changes.

use rusqlite::{Connection, OptionalExtension, params};

use super::cache::Known;
use super::words;
use crate::StoreError;

/// A segment of this many bytes is left alone once it is written.
const LARGE: usize = 16 << 10;

/// When there are this many open segments at the end of a content, or as many bytes in them, they become one. Fewer
/// would make short ones of the pieces that agents send, and SQLite leaves half a page empty behind each.
const MOST_OPEN: usize = 512;
const MOST_OPEN_BYTES: usize = MOST_BYTES - LARGE;

/// How long one segment gets. Longer texts are cut, so that a row costs little to read, to write and to delete.
const MOST_BYTES: usize = 64 << 10;

/// How many bits of a segment's key are its number; those before it are the number of its content.
const NUMBER_BITS: u32 = 20;

/// How many numbers of contents are set aside at a time. Those that are not used are lost, and do not matter.
const SET_ASIDE: i64 = 1024;

const INSERT: &str = "INSERT INTO segments (key, seq, closed, text) VALUES (?, ?, ?, ?)";

const EXTEND: &str = "UPDATE segments SET seq = ?2, closed = 1, text = text || ?3 WHERE key = ?1";

const DELETE: &str = "DELETE FROM segments WHERE key BETWEEN ? AND ?";

/// The keys of the segments of a content: the first and the last that it can have.
pub(super) fn keys(content: i64) -> [i64; 2] {
    let first = content << NUMBER_BITS;
    [first, first | ((1 << NUMBER_BITS) - 1)]
}

/// The end of a content that belongs to one entry alone.
#[derive(Debug, Clone)]
pub(super) struct Tail {
    content: i64,
    /// The key of the next segment.
    next: i64,
    /// The last change in this session that appended; 0 for none.
    seq: i64,
    /// How many segments at the end are open, and how many bytes they have.
    open: usize,
    open_bytes: usize,
}

/// What is known of an entry's content.
pub(super) struct Owned {
    pub(super) content: i64,
    /// As in the table: `None` while all of it came with a copy.
    pub(super) inherited: Option<i64>,
}

impl Tail {
    /// The end of a content that has no segments.
    pub(super) fn empty(content: i64) -> Self {
        Self { content, next: keys(content)[0], seq: 0, open: 0, open_bytes: 0 }
    }

    /// Looks the end up.
    pub(super) fn find(conn: &Connection, content: i64) -> Result<Self, StoreError> {
        let mut tail = Self::empty(content);
        let mut last = conn.prepare_cached(
            "SELECT key, seq, closed, octet_length(text) FROM segments WHERE key BETWEEN ? AND ?
             ORDER BY key DESC LIMIT ?",
        )?;
        let [first, end] = keys(content);
        let mut rows = last.query(params![first, end, MOST_OPEN])?;
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

    /// Writes more text. This is one insert, apart from long texts and from the merge that is due now and then.
    pub(super) fn push(&mut self, conn: &Connection, seq: i64, text: &str) -> Result<(), StoreError> {
        self.seq = self.seq.max(seq);
        let mut rest = text;
        while rest.len() > MOST_BYTES {
            let (now, later) = rest.split_at(boundary(rest, MOST_BYTES));
            self.insert(conn, now)?;
            rest = later;
        }
        self.insert(conn, rest)
    }

    fn insert(&mut self, conn: &Connection, text: &str) -> Result<(), StoreError> {
        let closed = text.len() >= LARGE;
        if closed {
            (self.open, self.open_bytes) = (0, 0);
        } else {
            self.open += 1;
            self.open_bytes += text.len();
        }
        self.segment(conn, closed, text)?;
        if self.open >= MOST_OPEN || self.open_bytes >= MOST_OPEN_BYTES { self.merge(conn) } else { Ok(()) }
    }

    fn segment(&mut self, conn: &Connection, closed: bool, text: &str) -> Result<(), StoreError> {
        if self.next > keys(self.content)[1] {
            // There is no number for one more.
            conn.prepare_cached(EXTEND)?.execute(params![self.next - 1, self.seq, text])?;
            (self.open, self.open_bytes) = (0, 0);
            return Ok(());
        }
        conn.prepare_cached(INSERT)?.execute(params![self.next, self.seq, closed, text])?;
        self.next += 1;
        Ok(())
    }

    /// Makes one closed segment of the open ones. It is never touched again, so that each byte is written twice at
    /// most, however long the content gets.
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

    /// Nothing of it counts in the numbers of this session.
    fn foreign(self) -> Self {
        Self { seq: 0, ..self }
    }
}

/// The last place between two characters that is not behind `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).expect("every text begins at 0")
}

/// The number of a content that nobody has yet.
pub(super) fn new_content(conn: &Connection, known: &mut Known) -> Result<i64, StoreError> {
    if let Some(content) = known.contents.next() {
        return Ok(content);
    }
    let end: i64 = conn
        .prepare_cached("UPDATE contents SET next = next + ? RETURNING next")?
        .query_row([SET_ASIDE], |row| row.get(0))?;
    known.contents = end - SET_ASIDE + 1..end;
    Ok(end - SET_ASIDE)
}

/// An entry has a content no more. The text and its words go with the last that had it, else they are found in another.
pub(super) fn release(conn: &Connection, session: i64, created: i64, content: i64) -> Result<(), StoreError> {
    if let Released::ByOne = count_down(conn, content)? {
        words::left(conn, session, created, content)?;
    }
    Ok(())
}

/// Whether others have a content that an entry does not have any more.
pub(super) enum Released {
    /// It is gone, and so are its words.
    ByAll,
    ByOne,
}

/// One entry less has a content.
pub(super) fn count_down(conn: &Connection, content: i64) -> Result<Released, StoreError> {
    let sql = match entries_of(conn, content)? {
        ..=1 => {
            conn.prepare_cached(DELETE)?.execute(keys(content))?;
            words::forget(conn, content)?;
            return Ok(Released::ByAll);
        }
        2 => "DELETE FROM shared WHERE content = ?",
        3.. => "UPDATE shared SET entries = entries - 1 WHERE content = ?",
    };
    conn.prepare_cached(sql)?.execute([content])?;
    Ok(Released::ByOne)
}

/// Gives an entry a content of its own that is the same.
pub(super) fn unshare(
    conn: &Connection,
    known: &mut Known,
    session: i64,
    created: i64,
    content: i64,
) -> Result<i64, StoreError> {
    let copy = new_content(conn, known)?;
    copy_segments(conn, content, copy)?;
    conn.prepare_cached("UPDATE entries SET content = ? WHERE session = ? AND created = ?")?
        .execute(params![copy, session, created])?;
    release(conn, session, created, content)?;
    Ok(copy)
}

/// How many entries have a content.
pub(super) fn entries_of(conn: &Connection, content: i64) -> Result<i64, StoreError> {
    let entries = conn
        .prepare_cached("SELECT entries FROM shared WHERE content = ?")?
        .query_row([content], |row| row.get(0))
        .optional()?;
    Ok(entries.unwrap_or(1))
}

/// What is known of an entry's content; `None` without such an entry.
pub(super) fn owned(conn: &Connection, session: i64, created: i64) -> Result<Option<Owned>, StoreError> {
    let found = conn
        .prepare_cached("SELECT content, inherited FROM entries WHERE session = ? AND created = ?")?
        .query_row(params![session, created], |row| {
            Ok(Owned { content: row.get(0)?, inherited: row.get(1)? })
        })
        .optional()?;
    Ok(found)
}

/// The number of the last change that appended to an entry.
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

/// The end of an entry's content, ready to be appended to: a content that is shared is copied, and what came with a
/// copy is measured before more comes behind it. `None` without such an entry.
pub(super) fn own_tail(
    conn: &Connection,
    known: &mut Known,
    session: i64,
    created: i64,
) -> Result<Option<Tail>, StoreError> {
    if let Some(tail) = known.tails.take(&(session, created)) {
        return Ok(Some(tail));
    }
    let Some(owned) = owned(conn, session, created)? else { return Ok(None) };
    let content = if entries_of(conn, owned.content)? > 1 {
        unshare(conn, known, session, created, owned.content)?
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
    Ok(Some(if owned.inherited.is_none() { tail.foreign() } else { tail }))
}

fn copy_segments(conn: &Connection, from: i64, to: i64) -> Result<(), StoreError> {
    // One row at a time, by two statements: one alone would gather all rows in memory first.
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
