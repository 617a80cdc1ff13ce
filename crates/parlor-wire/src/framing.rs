use crate::malformed::excerpt_of_bytes;
use crate::{Batches, Incoming, Malformed, Reason, RequestId, parse};

/// The longest line that is read unless another limit is given: 64 MiB.
pub const DEFAULT_LINE_LIMIT: usize = 64 * 1024 * 1024;

/// How much memory is kept for the next line when a longer one has been read.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Cuts a stream of bytes into lines, without doing any reading itself.
///
/// Bytes go in with [`extend`](Lines::extend) as they come, frames come out of
/// [`next_line`](Lines::next_line) until it has none. Each byte is searched for a line end once.
/// Whoever takes all frames before adding bytes never holds more than the limit (and the `\r` of a line
/// end) and what was added last: a longer line is dropped as it comes in, and only its length is kept.
///
/// ```
/// use parlor_wire::{InputLine, Lines};
///
/// let mut lines = Lines::new(8);
/// lines.extend(b"first\r\nmuch too long\n la");
/// assert_eq!(lines.next_line(), Some(InputLine::Line("first")));
/// assert_eq!(lines.next_line(), Some(InputLine::TooLong { bytes: 13, limit: 8 }));
/// assert_eq!(lines.next_line(), None);
/// lines.extend(b"st");
/// lines.finish();
/// assert_eq!(lines.next_line(), Some(InputLine::Line(" last")));
/// ```
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the next line begins. What lies before it is used up.
    start: usize,
    /// Up to where there is no line end after `start`.
    searched: usize,
    skip: Skip,
}

/// What a line turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputLine<'a> {
    /// A line, without its end (`\n` or `\r\n`).
    Line(&'a str),
    /// A line over the limit. Its content is gone.
    TooLong {
        /// Its length, without its end.
        bytes: u64,
        /// The limit that it broke.
        limit: usize,
    },
    /// A line that is not text.
    NotUtf8 {
        /// The beginning of it, with U+FFFD for what is not text.
        excerpt: String,
    },
    /// A line with nothing but white space.
    Blank,
}

/// A line that is too long and so is not kept. While one goes on, the buffer is empty.
#[derive(Debug, Clone, Copy)]
enum Skip {
    No,
    Going { bytes: u64, ends_in_cr: bool },
    Done { bytes: u64 },
}

impl Lines {
    /// Lines of at most `limit` bytes, not counting the line end.
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: Vec::new(), start: 0, searched: 0, skip: Skip::No }
    }

    /// Adds what was read.
    pub fn extend(&mut self, bytes: &[u8]) {
        let bytes = self.skip_on(bytes);
        // Worth it only if no more is moved than was used up, else taking few and adding many would be slow.
        if self.start >= self.buffer.len() - self.start {
            self.compact();
        }
        self.grow(bytes.len());
        self.buffer.extend_from_slice(bytes);
    }

    /// Says that nothing more will come, so that a last line without a line end is a line as well.
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

    /// The next line, or `None` until more bytes are added.
    pub fn next_line(&mut self) -> Option<InputLine<'_>> {
        if let Skip::Done { bytes } = self.skip {
            self.skip = Skip::No;
            return Some(InputLine::TooLong { bytes, limit: self.limit });
        }
        let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.wait();
            return None;
        };
        let (start, end) = (self.start, self.searched + found);
        self.start = end + 1;
        self.searched = end + 1;
        Some(frame(&self.buffer[start..end], self.limit))
    }

    /// How many bytes of memory are held at the moment.
    pub fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Gives up on a line that is too long already, and the memory that a long one needed.
    fn wait(&mut self) {
        self.compact();
        self.searched = self.buffer.len();
        // A `\r` just over the limit may belong to the line end.
        let ends_in_cr = self.buffer.last() == Some(&b'\r');
        if self.buffer.len() - usize::from(ends_in_cr) > self.limit {
            self.skip = Skip::Going { bytes: self.buffer.len() as u64, ends_in_cr };
            self.buffer.clear();
            self.searched = 0;
        }
        if self.buffer.capacity() > KEPT_CAPACITY && self.buffer.capacity() / 4 > self.buffer.len() {
            self.buffer.shrink_to(KEPT_CAPACITY.max(self.buffer.len() * 2));
        }
    }

    /// Takes from `bytes` what belongs to a line that is being skipped, and gives the rest.
    fn skip_on<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
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

    /// Makes room by doubling, but not beyond what a line within the limit needs.
    fn grow(&mut self, more: usize) {
        let needed = self.buffer.len() + more;
        if needed > self.buffer.capacity() {
            let doubled = (self.buffer.capacity() * 2).min(self.limit.saturating_add(more));
            self.buffer.reserve_exact(doubled.max(needed) - self.buffer.len());
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new(DEFAULT_LINE_LIMIT)
    }
}

impl<'a> InputLine<'a> {
    /// The line, or what is wrong with it.
    pub fn line(self) -> Result<&'a str, Malformed> {
        let (reason, excerpt) = match self {
            Self::Line(line) => return Ok(line),
            Self::Blank => return Err(Malformed::blank()),
            Self::TooLong { bytes, limit } => (Reason::TooLong { bytes, limit }, String::new()),
            Self::NotUtf8 { excerpt } => (Reason::NotUtf8, excerpt),
        };
        Err(Malformed { reason, excerpt, id: None, answer_to: Some(RequestId::null()) })
    }

    /// The messages of the line, or what is wrong with it.
    pub fn parse(self, batches: Batches) -> Result<Incoming<'a>, Malformed> {
        parse(self.line()?, batches)
    }
}

fn frame(line: &[u8], limit: usize) -> InputLine<'_> {
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
