use crate::malformed::excerpt_of_bytes;
use crate::{Batches, Incoming, Malformed, Reason, RequestId, parse};

/// The default limit of a line: 64 MiB.
pub const DEFAULT_LINE_LIMIT: usize = 64 * 1024 * 1024;

/// The buffer capacity that is kept after a longer line was decoded.
const RETAINED_CAPACITY: usize = 64 * 1024;

/// Splits a stream of bytes into lines; the caller does the reading.
///
/// The caller adds bytes with [`extend`](LineDecoder::extend) and calls [`next_line`](LineDecoder::next_line) until it
/// returns `None`. Each byte is searched for a line end once. If the caller takes all lines before it adds bytes,
/// the buffer never holds more than the limit, the `\r` of a line end and the bytes that were added last: a longer
/// line is discarded as it is received, and only its length is counted.
///
/// ```
/// use parlor_wire::{InputLine, LineDecoder};
///
/// let mut lines = LineDecoder::new(8);
/// lines.extend(b"first\r\nmuch too long\n la");
/// assert_eq!(lines.next_line(), Some(InputLine::Line("first")));
/// assert_eq!(lines.next_line(), Some(InputLine::TooLong { bytes: 13, limit: 8 }));
/// assert_eq!(lines.next_line(), None);
/// lines.extend(b"st");
/// lines.finish();
/// assert_eq!(lines.next_line(), Some(InputLine::Line(" last")));
/// ```
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    buffer: Vec<u8>,
    /// The offset of the next line; the bytes before it were returned.
    start: usize,
    /// The offset up to which there is no line end after `start`.
    searched: usize,
    skip: Skip,
}

/// A line of input, or the reason why it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputLine<'a> {
    /// A line, without its end (`\n` or `\r\n`).
    Line(&'a str),
    /// A line over the limit, whose content was discarded.
    TooLong {
        /// Its length, without its end.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// A line that is not UTF-8.
    NotUtf8 {
        /// The start of the line, with U+FFFD for invalid bytes.
        excerpt: String,
    },
    /// A line of white space.
    Blank,
}

/// The state of discarding a line that is too long; the buffer is empty in state `Going`.
#[derive(Debug, Clone, Copy)]
enum Skip {
    No,
    Going { bytes: u64, ends_in_cr: bool },
    Done { bytes: u64 },
}

impl LineDecoder {
    /// Creates a decoder for lines of at most `limit` bytes without the line end.
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: Vec::new(), start: 0, searched: 0, skip: Skip::No }
    }

    /// Adds received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let bytes = self.skip_part(bytes);
        // Moves at most as many bytes as were returned since the last move, so that the cost per byte is constant.
        if self.start >= self.buffer.len() - self.start {
            self.compact();
        }
        self.grow(bytes.len());
        self.buffer.extend_from_slice(bytes);
    }

    /// Ends the input: a last line without a line end is returned too.
    pub fn finish(&mut self) {
        let is_open = match self.skip {
            Skip::Going { .. } => true,
            Skip::No | Skip::Done { .. } => {
                self.start < self.buffer.len() && self.buffer.last() != Some(&b'\n')
            }
        };
        if is_open {
            self.extend(b"\n");
        }
    }

    /// Returns the next line, or `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<InputLine<'_>> {
        if let Skip::Done { bytes } = self.skip {
            self.skip = Skip::No;
            return Some(InputLine::TooLong { bytes, limit: self.limit });
        }
        let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.on_incomplete();
            return None;
        };
        let (start, end) = (self.start, self.searched + found);
        self.start = end + 1;
        self.searched = end + 1;
        Some(classify(&self.buffer[start..end], self.limit))
    }

    /// Returns the capacity of the buffer in bytes.
    pub fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Discards an incomplete line that is already too long, and frees memory that an earlier line needed.
    fn on_incomplete(&mut self) {
        self.compact();
        self.searched = self.buffer.len();
        // A `\r` just over the limit may belong to the line end.
        let ends_in_cr = self.buffer.last() == Some(&b'\r');
        if self.buffer.len() - usize::from(ends_in_cr) > self.limit {
            self.skip = Skip::Going { bytes: self.buffer.len() as u64, ends_in_cr };
            self.buffer.clear();
            self.searched = 0;
        }
        if self.buffer.capacity() > RETAINED_CAPACITY && self.buffer.capacity() / 4 > self.buffer.len() {
            self.buffer.shrink_to(RETAINED_CAPACITY.max(self.buffer.len() * 2));
        }
    }

    /// Discards the part of `bytes` that belongs to a line that is too long, and returns the rest.
    fn skip_part<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Skip::Going { bytes: before, ends_in_cr } = self.skip else { return bytes };
        let (part, rest) = match memchr::memchr(b'\n', bytes) {
            Some(end) => (&bytes[..end], Some(&bytes[end + 1..])),
            None => (bytes, None),
        };
        let length = before + part.len() as u64;
        let ends_in_cr = part.last().map_or(ends_in_cr, |last| *last == b'\r');
        self.skip = match rest {
            Some(_) => Skip::Done { bytes: length - u64::from(ends_in_cr) },
            None => Skip::Going { bytes: length, ends_in_cr },
        };
        rest.unwrap_or_default()
    }

    fn compact(&mut self) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
    }

    /// Reserves space by doubling, up to what a line within the limit needs.
    fn grow(&mut self, more: usize) {
        let needed = self.buffer.len() + more;
        if needed > self.buffer.capacity() {
            let doubled = (self.buffer.capacity() * 2).min(self.limit.saturating_add(more));
            self.buffer.reserve_exact(doubled.max(needed) - self.buffer.len());
        }
    }
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self::new(DEFAULT_LINE_LIMIT)
    }
}

impl<'a> InputLine<'a> {
    /// Returns the text of the line, or why it cannot be used.
    pub fn line(self) -> Result<&'a str, Malformed> {
        let (reason, excerpt) = match self {
            Self::Line(line) => return Ok(line),
            Self::Blank => return Err(Malformed::blank()),
            Self::TooLong { bytes, limit } => (Reason::TooLong { bytes, limit }, String::new()),
            Self::NotUtf8 { excerpt } => (Reason::NotUtf8, excerpt),
        };
        Err(Malformed { reason, excerpt, id: None, respond_to: Some(RequestId::null()) })
    }

    /// Parses the line.
    pub fn parse(self, batches: Batches) -> Result<Incoming<'a>, Malformed> {
        parse(self.line()?, batches)
    }
}

fn classify(line: &[u8], limit: usize) -> InputLine<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > limit {
        return InputLine::TooLong { bytes: line.len() as u64, limit };
    }
    if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        return InputLine::Blank;
    }
    match std::str::from_utf8(line) {
        Ok(line) => InputLine::Line(line),
        Err(_) => InputLine::NotUtf8 { excerpt: excerpt_of_bytes(line) },
    }
}
