//! The format of the journal, which has batches that are done and not yet folded into the database.
//!
//! A journal is a header and records, one for each batch. A position counts all bytes of records that were ever written
//! for a database, so that one number in the database says what is folded. The header has the position of the first
//! record. After the last record the file has zeros or ends.
//!
//! ```text
//! header   "prlrjrn", version (1 byte), position of the first record (8), checksum of both (4)
//! record   length of the batch and the end byte (4), checksum (4), synced position (8), batch, end byte (1)
//! ```
//!
//! Numbers of fixed size are little-endian. The checksum of a record includes its position, so that remains of an
//! earlier journal in the file are not records of this one. The synced position is the position up to which the journal
//! was known to be on the disk when the record was written.
//!
//! The end byte is never zero, so that an incomplete append (after a kill or a power cut) differs from damage: it leaves
//! zeros where its last record should end, and nothing after that. Version 1 had no end byte.

use std::fmt;

use crate::{Batch, IndexDocument, SessionRow, Write};

/// The length of the header in bytes.
pub(super) const HEADER: usize = 20;

/// The length of a record in bytes without its batch.
pub(super) const RECORD: usize = 16;

const MAGIC: &[u8; 7] = b"prlrjrn";
const VERSION: u8 = 2;

/// The most bytes of a batch with its end byte; larger batches do not go to the journal.
pub(super) const MAX_BATCH: u32 = 256 << 10;

/// The most bytes between a record and the synced position in it; a journal is synced and emptied long before that.
const MAX_UNSYNCED: u64 = 1 << 40;

/// The last byte of a record; no change of a single bit makes it zero.
const END: u8 = 0xff;

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

/// The header of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// No header was written since the journal was created or emptied.
    Missing,
    /// The first record has this position.
    Base(u64),
    /// The header is damaged.
    Damaged,
}

/// The error for a journal of a later format version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LaterVersion(u8);

impl fmt::Display for LaterVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it has version {}, and this program knows versions up to {VERSION}", self.0)
    }
}

/// Reads the header of a journal.
pub(super) fn read_header(bytes: &[u8]) -> Result<Header, LaterVersion> {
    let header = &bytes[..bytes.len().min(HEADER)];
    if header.iter().all(|byte| *byte == 0) {
        return Ok(Header::Missing);
    }
    let Some(header) = header.first_chunk::<HEADER>() else { return Ok(Header::Damaged) };
    if header[..7] != *MAGIC || Checksum::default().add(&header[..16]).0 != u32_at(header, 16) {
        return Ok(Header::Damaged);
    }
    if header[7] > VERSION { Err(LaterVersion(header[7])) } else { Ok(Header::Base(u64_at(header, 8))) }
}

/// Appends the record of a batch to `out` and returns the position of the next record.
pub(super) fn encode(batch: &Batch, position: u64, synced: u64, out: &mut Vec<u8>) -> u64 {
    let start = out.len();
    out.extend([0; RECORD]);
    encode_batch(batch, out);
    out.push(END);
    let length = u32::try_from(out.len() - start - RECORD).expect("large batches do not go to the journal");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 8..start + 16].copy_from_slice(&synced.to_le_bytes());
    let sum = checksum(&out[start..], length, position);
    out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
    position + (out.len() - start) as u64
}

/// A record with a valid checksum.
struct Record<'a> {
    synced: u64,
    batch: &'a [u8],
    /// The length of the whole record in bytes.
    size: usize,
}

/// Returns the record at the start of `bytes`, if it is complete and belongs at this position.
fn record(bytes: &[u8], position: u64) -> Option<Record<'_>> {
    let head = bytes.first_chunk::<RECORD>()?;
    let (length, synced) = (u32_at(head, 0), u64_at(head, 8));
    // An implausible record is rejected without computing its checksum.
    if length == 0 || position.checked_sub(synced)? > MAX_UNSYNCED {
        return None;
    }
    let size = RECORD.checked_add(usize::try_from(length).ok()?)?;
    let record = bytes.get(..size)?;
    if checksum(record, length, position) != u32_at(record, 4) {
        return None;
    }
    position.checked_add(size as u64)?;
    Some(Record { synced, batch: &record[RECORD..], size })
}

/// Returns whether a record may start here; if not, `bytes` are the end of a journal.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    bytes.iter().take(4).any(|byte| *byte != 0)
}

/// The batches of a journal that are not folded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfolded {
    pub(super) batches: Vec<Batch>,
    /// The position after the batches.
    pub(super) end: u64,
    /// The damage of the journal, because of which later batches cannot be folded.
    pub(super) damage: Option<Damage>,
}

impl Unfolded {
    /// Returns a value without batches for a journal that is folded up to a position.
    pub(super) fn nothing(folded: u64) -> Self {
        Self { batches: Vec::new(), end: folded, damage: None }
    }
}

/// Damage to a journal that an incomplete append cannot have caused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    what: What,
    /// The number of complete records that are lost, because records are folded only in order.
    lost: usize,
    /// Whether the damaged part was synced: then it was changed on the disk and not lost in a power cut.
    was_synced: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Header,
    /// The record at this offset of the file is damaged.
    Record(usize),
    /// The record at this offset has a valid checksum but cannot be decoded.
    Batch(usize),
    /// The journal starts after the position of the database.
    OlderDatabase,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Header => f.write_str("its header is damaged")?,
            What::Record(offset) => write!(f, "the record at byte {offset} is damaged")?,
            What::Batch(offset) => write!(f, "the record at byte {offset} cannot be decoded")?,
            What::OlderDatabase => f.write_str("it belongs to a later state of the database")?,
        }
        match self.lost {
            0 => {}
            1 => f.write_str(", and 1 whole record cannot be applied")?,
            lost => write!(f, ", and {lost} whole records cannot be applied")?,
        }
        if self.was_synced {
            f.write_str("; it was intact when it was synced to the disk")?;
        }
        Ok(())
    }
}

/// Reads the batches after a position, up to the first incomplete record. An incomplete append is ignored.
pub(super) fn unfolded(bytes: &[u8], folded: u64) -> Result<Unfolded, LaterVersion> {
    let mut unfolded = Unfolded::nothing(folded);
    let header = read_header(bytes)?;
    let first = match header {
        // The base of a journal is at most the position of a later database.
        Header::Base(base) if base > folded => {
            let later = Later::find(bytes, HEADER, base);
            // If none of it was synced, a power cut may have undone commits of the database.
            unfolded.damage = later
                .filter(|later| later.synced > folded)
                .map(|later| later.damage(What::OlderDatabase, true));
            return Ok(unfolded);
        }
        Header::Base(base) => {
            usize::try_from(folded - base).ok().and_then(|offset| offset.checked_add(HEADER))
        }
        // The checksum of a record covers its position.
        Header::Missing | Header::Damaged => {
            (0..bytes.len()).find(|offset| record(&bytes[*offset..], folded).is_some())
        }
    };
    let mut offset = first.unwrap_or(bytes.len());
    while let Some(record) = record(bytes.get(offset..).unwrap_or_default(), unfolded.end) {
        let Some(batch) = decode_batch(record.batch) else { break };
        unfolded.batches.push(batch);
        unfolded.end += record.size as u64;
        offset += record.size;
    }
    unfolded.damage = damage_at(bytes, offset, unfolded.end);
    let lacks_header = match header {
        Header::Base(_) => false,
        // A journal that is emptied loses its header first, after all of it is folded.
        Header::Missing => !unfolded.batches.is_empty(),
        Header::Damaged => true,
    };
    if lacks_header {
        let damage = Damage { what: What::Header, lost: 0, was_synced: false };
        unfolded.damage.get_or_insert(damage);
    }
    Ok(unfolded)
}

/// Returns the damage of a journal whose database position is unknown.
pub(super) fn damage_of(bytes: &[u8]) -> Option<Damage> {
    let Ok(Header::Base(base)) = read_header(bytes) else {
        return Some(Damage { what: What::Header, lost: 0, was_synced: false });
    };
    let (mut offset, mut position) = (HEADER, base);
    loop {
        let rest = bytes.get(offset..).unwrap_or_default();
        let size = match record(rest, position) {
            Some(record) => decode_batch(record.batch).map(|_| record.size),
            // Commits of the database leave zeros before the next record.
            None => {
                let zeros = rest.iter().take_while(|byte| **byte == 0).count();
                (1..=zeros).find(|zeros| record(&rest[*zeros..], position + *zeros as u64).is_some())
            }
        };
        let Some(size) = size else { return damage_at(bytes, offset, position) };
        position += size as u64;
        offset += size;
    }
}

/// Returns the damage at an offset where there is no complete record that can be decoded, if it is damage.
fn damage_at(bytes: &[u8], offset: usize, position: u64) -> Option<Damage> {
    let rest = bytes.get(offset..).unwrap_or_default();
    if record(rest, position).is_some() {
        let later = Later::find(bytes, offset, position)?;
        return Some(later.damage(What::Batch(offset), false));
    }
    match Later::find(bytes, offset, position) {
        // A power cut undid a commit of the database: the later records were not synced and are dropped too.
        Some(later) if later.synced <= position && later.follows_zeros => None,
        Some(later) => Some(later.damage(What::Record(offset), later.synced > position)),
        None if may_be_torn(rest, position) => None,
        None => Some(Damage { what: What::Record(offset), lost: 0, was_synced: false }),
    }
}

/// Complete records at or after an offset.
struct Later {
    /// Whether only zeros precede the first of them.
    follows_zeros: bool,
    count: usize,
    /// The synced position when they were written.
    synced: u64,
}

impl Later {
    /// Searches records after an offset that has a position.
    fn find(bytes: &[u8], from: usize, position: u64) -> Option<Self> {
        let end = bytes.iter().rposition(|byte| *byte != 0)?;
        let mut found: Option<Self> = None;
        let mut offset = from;
        while offset <= end {
            let Some(record) = record(&bytes[offset..], position.saturating_add((offset - from) as u64))
            else {
                offset += 1;
                continue;
            };
            let later = found.get_or_insert_with(|| {
                let follows_zeros = bytes[from..offset].iter().all(|byte| *byte == 0);
                Self { follows_zeros, count: 0, synced: 0 }
            });
            later.count += 1;
            later.synced = later.synced.max(record.synced);
            offset += record.size;
        }
        found
    }

    fn damage(&self, what: What, was_synced: bool) -> Damage {
        Damage { what, lost: self.count, was_synced }
    }
}

/// Returns whether the bytes after the last complete record may be an incomplete append, or zeros.
fn may_be_torn(bytes: &[u8], position: u64) -> bool {
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { return true };
    let written = &bytes[..=last];
    let mut length = [0; 4];
    let cache = written.len().min(length.len());
    length[..cache].copy_from_slice(&written[..cache]);
    let length = u32::from_le_bytes(length);
    // The record is complete if another length makes its checksum valid.
    let is_whole = written.len().checked_sub(RECORD).is_some_and(|length| {
        u32::try_from(length).is_ok_and(|length| checksum(written, length, position) == u32_at(written, 4))
    });
    (1..=MAX_BATCH).contains(&length)
        && !is_whole
        && (written.len() as u64) < RECORD as u64 + u64::from(length)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("there are enough"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("there are enough"))
}

/// Computes the checksum of a record of this length at a position.
fn checksum(record: &[u8], length: u32, position: u64) -> u32 {
    Checksum::default().add(&position.to_le_bytes()).add(&length.to_le_bytes()).add(&record[8..]).0
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
    // `durable` is not encoded, because folding does not need it.
    put_number(batch.writes.len() as u64, out);
    batch.writes.iter().for_each(|write| encode_write(write, out));
}

fn encode_write(write: &Write, out: &mut Vec<u8>) {
    match write {
        Write::Session(row) => {
            out.push(if row.owner.is_some() { 7 } else { 1 });
            for text in [&row.id, &row.agent, &row.cwd, &row.data] {
                put_text(text, out);
            }
            for text in [&row.agent_session, &row.title, &row.parent] {
                put_option(text.as_deref(), out);
            }
            out.extend(row.created_at.to_le_bytes());
            out.extend(row.active_at.to_le_bytes());
            out.push(u8::from(row.archived) | u8::from(row.busy) << 1);
            if let Some(owner) = &row.owner {
                put_text(owner, out);
            }
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
            put_entry_key(session, *created, *seq, out);
            put_text(head, out);
            put_option(content.as_deref(), out);
        }
        Write::Append { session, created, seq, content } => {
            out.push(4);
            put_entry_key(session, *created, *seq, out);
            put_text(content, out);
        }
        Write::Index { session, created, seq, document, only_missing } => {
            out.push(5);
            put_entry_key(session, *created, *seq, out);
            out.push(u8::from(*only_missing) | u8::from(document.is_some()) << 1);
            if let Some(document) = document {
                put_text(&document.kind, out);
                out.extend(document.at.to_le_bytes());
                put_text(&document.text, out);
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

fn put_entry_key(session: &str, created: u64, seq: u64, out: &mut Vec<u8>) {
    put_text(session, out);
    put_number(created, out);
    put_number(seq, out);
}

/// Encodes seven bits per byte, the lowest first; all bytes but the last have the eighth bit set.
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
    matches!(input.0, [] | [END]).then_some(Batch { writes, durable: false })
}

/// The rest of a batch to decode.
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
                let [only_missing, has_document] = self.flags()?;
                let document = if has_document {
                    Some(IndexDocument { kind: self.text()?, at: self.time()?, text: self.text()? })
                } else {
                    None
                };
                Write::Index { session, created, seq, document, only_missing }
            }
            6 => Write::Value { key: self.text()?, value: self.option()? },
            7 => {
                let row = self.session()?;
                Write::Session(SessionRow { owner: Some(self.text()?), ..row })
            }
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
            owner: None,
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
