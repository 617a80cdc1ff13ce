//! The migrations of the database format, which are never edited.

use rusqlite::{Connection, params};

use crate::StoreError;

/// Migrates a database from one version to the next.
type Migration = fn(&Connection) -> Result<(), StoreError>;

/// The migrations; each one's index is the version that it migrates from.
pub(super) const ALL: &[Migration] = &[
    |conn| Ok(conn.execute_batch(include_str!("1.sql"))?),
    |conn| Ok(conn.execute_batch(include_str!("2.sql"))?),
    |conn| {
        conn.execute_batch(include_str!("3.sql"))?;
        split_segments(conn)
    },
    |conn| Ok(conn.execute_batch(include_str!("4.sql"))?),
    |conn| Ok(conn.execute_batch(include_str!("5.sql"))?),
];

/// Version 3: segments of at most 64 KiB, numbered without gaps.
fn split_segments(conn: &Connection) -> Result<(), StoreError> {
    const LONGEST: usize = 64 << 10;
    let mut read =
        conn.prepare("SELECT content, seq, closed, text FROM segments_of_version_2 ORDER BY content, n")?;
    let mut write = conn.prepare("INSERT INTO segments (key, seq, closed, text) VALUES (?, ?, ?, ?)")?;
    let mut rows = read.query([])?;
    let mut next = 0;
    while let Some(row) = rows.next()? {
        next = next.max(row.get::<_, i64>(0)? << 20);
        let (seq, closed): (i64, bool) = (row.get(1)?, row.get(2)?);
        let mut rest = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?;
        loop {
            let end =
                (0..=LONGEST.min(rest.len())).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or(0);
            write.execute(params![next, seq, closed, &rest[..end]])?;
            next += 1;
            rest = &rest[end..];
            if rest.is_empty() {
                break;
            }
        }
    }
    drop(rows);
    drop((read, write));
    Ok(conn.execute_batch("DROP TABLE segments_of_version_2")?)
}
