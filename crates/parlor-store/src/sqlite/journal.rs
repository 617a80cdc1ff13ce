//! The format of the journal: batches that are done and not yet folded into the database.
//!
//! A journal is a header and records, one for each batch. Positions count all bytes of records that were ever written
//! for a database, so that the database says with one number what is folded. The header says which position the first
//! record has. Behind the last record are zeros, or nothing.
//!
//! ```text
//! header   "prlrjrn", version (1 byte), position of the first record (8), checksum of both (4)
//! record   length of the batch (4), checksum (4), synced position (8), batch
//! ```
//!
//! Numbers of fixed size are little-endian. The checksum of a record covers its own position too, so that what an
//! earlier journal left in the file is no record of this one. The synced position is how far the journal was known to
//! be on the disk when the record was written: a bad record below that is damage, one above is what a power cut leaves.

use crate::{Batch, SessionRow, Words, Write};

/// The bytes of the header.
pub(super) const HEADER: usize = 20;

/// The bytes of a record before its batch.
pub(super) const RECORD: usize = 16;

const MAGIC: &[u8; 7] = b"prlrjrn";
const VERSION: u8 = 1;

/// Encodes the header of a journal whose first record has this position.
pub(super) fn header(base: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..7].copy_from_slice(MAGIC);
    header[7] = VERSION;
    header[8..16].copy_from_slice(&base.to_le_bytes());
    let sum = Checksum::default().add(&header[..16]).0;
    header[16..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// The position of the first record; `None` in a journal that has none yet.
pub(super) fn base(bytes: &[u8]) -> Result<Option<u64>, String> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return if bytes.iter().all(|byte| *byte == 0) { Ok(None) } else { Err("its header is cut".into()) };
    };
    if header.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if header[..7] != *MAGIC || Checksum::default().add(&header[..16]).0 != u32_at(header, 16) {
        return Err("its header is damaged".into());
    }
    if header[7] != VERSION {
        return Err(format!("it has version {}, and this program knows version {VERSION}", header[7]));
    }
    Ok(Some(u64_at(header, 8)))
}

/// Appends the record of a batch to `out`, and says at which position the next one begins.
pub(super) fn encode(batch: &Batch, position: u64, synced: u64, out: &mut Vec<u8>) -> u64 {
    let start = out.len();
    out.extend([0; RECORD]);
    encode_batch(batch, out);
    let length = u32::try_from(out.len() - start - RECORD).expect("large batches do not go to the journal");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 8..start + 16].copy_from_slice(&synced.to_le_bytes());
    let sum = checksum(&out[start..], position);
    out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
    position + (out.len() - start) as u64
}

/// A record whose checksum is right.
struct Record<'a> {
    synced: u64,
    batch: &'a [u8],
    next: u64,
}

/// The record at the beginning of `bytes`, if there is a whole one that belongs at this position.
fn record(bytes: &[u8], position: u64) -> Option<Record<'_>> {
    let length = usize::try_from(u32_at(bytes.first_chunk::<RECORD>()?, 0)).ok()?;
    let record = bytes.get(..RECORD.checked_add(length)?)?;
    if length == 0 || checksum(record, position) != u32_at(record, 4) {
        return None;
    }
    let next = position.checked_add(record.len() as u64)?;
    Some(Record { synced: u64_at(record, 8), batch: &record[RECORD..], next })
}

/// Whether a record may begin here: if not, `bytes` are the end of a journal.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    bytes.iter().take(4).any(|byte| *byte != 0)
}

/// What a journal has that is not folded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfolded {
    pub(super) batches: Vec<Batch>,
    /// The position behind them.
    pub(super) end: u64,
}

/// Reads what comes after a position. What was cut off by a power cut is left out; an error says what is damaged.
pub(super) fn unfolded(bytes: &[u8], folded: u64) -> Result<Unfolded, String> {
    let mut unfolded = Unfolded { batches: Vec::new(), end: folded };
    let Some(base) = base(bytes)? else { return Ok(unfolded) };
    let place = |position: u64| usize::try_from(position - base).ok()?.checked_add(HEADER);
    if base <= folded {
        let mut rest = place(folded).and_then(|place| bytes.get(place..)).unwrap_or_default();
        while let Some(record) = record(rest, unfolded.end) {
            let batch = decode_batch(record.batch)
                .ok_or_else(|| format!("the record at {} cannot be understood", unfolded.end))?;
            rest = &rest[RECORD + record.batch.len()..];
            unfolded.batches.push(batch);
            unfolded.end = record.next;
        }
    }
    // Records that come later and were written when what is missing was on the disk already.
    let first = place(unfolded.end.max(base)).unwrap_or(usize::MAX);
    let rest = bytes.get(first..).unwrap_or_default();
    let is_damaged = (0..rest.len()).any(|at| {
        let position = unfolded.end.max(base) + at as u64;
        record(&rest[at..], position).is_some_and(|record| record.synced > unfolded.end)
    });
    match is_damaged {
        false => Ok(unfolded),
        true if base > folded => Err(format!(
            "it goes on from {base}, and the database ends at {folded}: they do not belong together"
        )),
        true => Err(format!("the record at {} is damaged, and others come after it", unfolded.end)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("there are enough"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("there are enough"))
}

/// The checksum of a record at a position.
fn checksum(record: &[u8], position: u64) -> u32 {
    Checksum::default().add(&position.to_le_bytes()).add(&record[..4]).add(&record[8..]).0
}

/// CRC-32, eight bytes at a time.
#[derive(Clone, Copy, Default)]
struct Checksum(u32);

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "it is less than 256")]
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

impl Checksum {
    fn add(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut sum = !self.0;
        for word in words {
            let word = u64::from_le_bytes(*word) ^ u64::from(sum);
            let bytes = word.to_le_bytes().into_iter().zip(TABLES.iter().rev());
            sum = bytes.fold(0, |sum, (byte, table)| sum ^ table[usize::from(byte)]);
        }
        for byte in rest {
            let [low, ..] = (sum ^ u32::from(*byte)).to_le_bytes();
            sum = sum >> 8 ^ TABLES[0][usize::from(low)];
        }
        Self(!sum)
    }
}

fn encode_batch(batch: &Batch, out: &mut Vec<u8>) {
    // Whether it was durable does not matter to who folds it.
    put_number(batch.writes.len() as u64, out);
    batch.writes.iter().for_each(|write| encode_write(write, out));
}

fn encode_write(write: &Write, out: &mut Vec<u8>) {
    match write {
        Write::Session(row) => {
            out.push(1);
            for text in [&row.id, &row.agent, &row.cwd, &row.data] {
                put_text(text, out);
            }
            for text in [&row.agent_session, &row.title, &row.parent] {
                put_option(text.as_deref(), out);
            }
            out.extend(row.created_at.to_le_bytes());
            out.extend(row.active_at.to_le_bytes());
            out.push(u8::from(row.archived) | u8::from(row.busy) << 1);
        }
        Write::Slot { session, name, seq, body } => {
            out.push(2);
            put_text(session, out);
            put_text(name, out);
            put_number(*seq, out);
            put_option(body.as_deref(), out);
        }
        Write::Entry { session, created, seq, head, content } => {
            out.push(3);
            put_place(session, *created, *seq, out);
            put_text(head, out);
            put_option(content.as_deref(), out);
        }
        Write::Append { session, created, seq, content } => {
            out.push(4);
            put_place(session, *created, *seq, out);
            put_text(content, out);
        }
        Write::Words { session, created, seq, words, only_missing } => {
            out.push(5);
            put_place(session, *created, *seq, out);
            out.push(u8::from(*only_missing) | u8::from(words.is_some()) << 1);
            if let Some(words) = words {
                put_text(&words.kind, out);
                out.extend(words.at.to_le_bytes());
                put_text(&words.text, out);
            }
        }
        Write::Value { key, value } => {
            out.push(6);
            put_text(key, out);
            put_option(value.as_deref(), out);
        }
        Write::Copy { .. } | Write::Indexed { .. } | Write::Delete { .. } => {
            unreachable!("these do not go to the journal")
        }
    }
}

fn put_place(session: &str, created: u64, seq: u64, out: &mut Vec<u8>) {
    put_text(session, out);
    put_number(created, out);
    put_number(seq, out);
}

/// Seven bits a byte, the lowest first; all but the last byte have the eighth bit.
fn put_number(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn put_option(text: Option<&str>, out: &mut Vec<u8>) {
    out.push(u8::from(text.is_some()));
    if let Some(text) = text {
        put_text(text, out);
    }
}

fn decode_batch(bytes: &[u8]) -> Option<Batch> {
    let mut input = Input(bytes);
    let count = input.number()?;
    let mut writes = Vec::new();
    for _ in 0..count {
        writes.push(input.write()?);
    }
    input.0.is_empty().then_some(Batch { writes, durable: false })
}

/// What is left of a batch to decode.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn write(&mut self) -> Option<Write> {
        Some(match self.byte()? {
            1 => Write::Session(self.session()?),
            2 => Write::Slot {
                session: self.text()?,
                name: self.text()?,
                seq: self.number()?,
                body: self.option()?,
            },
            3 => Write::Entry {
                session: self.text()?,
                created: self.number()?,
                seq: self.number()?,
                head: self.text()?,
                content: self.option()?,
            },
            4 => Write::Append {
                session: self.text()?,
                created: self.number()?,
                seq: self.number()?,
                content: self.text()?,
            },
            5 => {
                let (session, created, seq) = (self.text()?, self.number()?, self.number()?);
                let [only_missing, has_words] = self.flags()?;
                let words = if has_words {
                    Some(Words { kind: self.text()?, at: self.time()?, text: self.text()? })
                } else {
                    None
                };
                Write::Words { session, created, seq, words, only_missing }
            }
            6 => Write::Value { key: self.text()?, value: self.option()? },
            _ => return None,
        })
    }

    fn session(&mut self) -> Option<SessionRow> {
        let (id, agent, cwd, data) = (self.text()?, self.text()?, self.text()?, self.text()?);
        let (agent_session, title, parent) = (self.option()?, self.option()?, self.option()?);
        let (created_at, active_at) = (self.time()?, self.time()?);
        let [archived, busy] = self.flags()?;
        Some(SessionRow {
            id,
            agent,
            agent_session,
            cwd,
            title,
            parent,
            created_at,
            active_at,
            archived,
            busy,
            data,
        })
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn flags(&mut self) -> Option<[bool; 2]> {
        let byte = self.byte()?;
        (byte < 4).then_some([byte & 1 == 1, byte & 2 == 2])
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn time(&mut self) -> Option<i64> {
        self.take(8)?.first_chunk().copied().map(i64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        Some(str::from_utf8(self.take(length)?).ok()?.to_owned())
    }

    #[allow(clippy::option_option, reason = "the outer one says whether it could be decoded")]
    fn option(&mut self) -> Option<Option<String>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.text()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
