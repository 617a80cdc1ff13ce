//! Counts what a client has received: the chunks of each message and their order.
//!
//! The client shares the machine with the server, so it parses no JSON. It searches for the few strings that matter
//! and compares each line with the one before: in a stream they differ only in the text.

use std::collections::HashMap;

use memchr::memmem;
use parlor_client::{Role, Update, Words};
use parlor_testkit::test_agent::{STAMPED, STREAM_NUMBER, monotonic};

/// Everything that a client has received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The number of times that the session became idle.
    pub(crate) idles: u64,
    /// The id and the line of the last response.
    pub(crate) answer: Option<(u64, String)>,
    /// The latencies of stamped chunks in nanoseconds.
    pub(crate) latencies: Vec<u64>,
    /// The number of chunks, with duplicates.
    pub(crate) chunks: u64,
    /// The length of a chunk's text.
    size: usize,
    /// Whether each chunk has the time at which it was written.
    is_stamped: bool,
    messages: HashMap<Vec<u8>, usize>,
    /// The numbers of the chunks of each message.
    numbers: Vec<Vec<u32>>,
    last: Option<Layout>,
}

/// The text of a chunk's line before and after its content.
#[derive(Debug)]
struct Layout {
    before: Vec<u8>,
    after: Vec<u8>,
    message: usize,
}

/// The faults of a delivery; a correct server causes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Chunks that were not received.
    pub(crate) lost: u64,
    /// Chunks that were received more than once.
    pub(crate) duplicated: u64,
    /// Chunks that were received after a later one.
    pub(crate) out_of_order: u64,
}

/// Whether a caller may wait for this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Chunk,
    Other,
}

/// The length of a chunk's number with the space after it.
const NUMBER: usize = STREAM_NUMBER;

impl Received {
    /// Sets the length of the text of the following chunks.
    pub(crate) fn expect_chunks_of(&mut self, size: usize) {
        self.size = size;
    }

    /// Sets the length of the text of the following chunks, which have the time at which they were written.
    pub(crate) fn expect_stamped_chunks_of(&mut self, size: usize) {
        self.size = size;
        self.is_stamped = true;
    }

    /// Processes a line without its line end.
    pub(crate) fn line(&mut self, line: &[u8]) -> Line {
        if let Some(last) = &self.last
            && line.starts_with(&last.before)
            && line.ends_with(&last.after)
            && line.len() == last.before.len() + self.size + last.after.len()
        {
            let (at, message) = (last.before.len(), last.message);
            self.chunk(&line[at..at + self.size], message);
            return Line::Chunk;
        }
        match string_after(line, br#""sessionUpdate":""#) {
            Some(b"agent_message_chunk") => {
                self.message(line, true);
                return Line::Chunk;
            }
            Some(b"agent_message") => self.message(line, false),
            Some(b"state_update") => self.state(string_after(line, br#""state":""#)),
            Some(b"session_info_update") => self.state(string_after(line, br#""parlor/state":""#)),
            Some(_) => {}
            None => {
                let id = number_after(line, br#""id":"#);
                let is_answer = memmem::find(line, br#""method":"#).is_none();
                if let Some(id) = id.filter(|_| is_answer) {
                    self.answer = Some((id, String::from_utf8_lossy(line).into_owned()));
                }
            }
        }
        Line::Other
    }

    fn state(&mut self, state: Option<&[u8]>) {
        self.idles += u64::from(state == Some(b"idle"));
    }

    /// Processes a chunk that differs from the one before, or a whole message.
    fn message(&mut self, line: &[u8], is_chunk: bool) {
        let message = self.index_of(string_after(line, br#""messageId":""#).unwrap_or_default());
        if !is_chunk && memmem::find(line, br#""content":"#).is_some() {
            self.numbers[message].clear();
        }
        let mut at = 0;
        let mut texts = 0;
        while let Some(text) = string_after(&line[at..], br#""text":""#) {
            let start = at + offset(&line[at..], text);
            at = start + text.len();
            texts += 1;
            // A client that catches up receives many chunks as one.
            text.chunks(self.size.max(NUMBER)).for_each(|chunk| self.chunk(chunk, message));
            if is_chunk && text.len() == self.size {
                let (before, after) = (line[..start].to_owned(), line[at..].to_owned());
                self.last = Some(Layout { before, after, message });
            }
        }
        if texts != 1 {
            self.last = None;
        }
    }

    /// Processes an update of the client library.
    pub(crate) fn news(&mut self, update: &Update) {
        let Some(words) = Words::of(update).filter(|words| words.role == Role::Agent) else { return };
        let message = self.index_of(words.message.as_json().as_literal().as_bytes());
        if words.is_all {
            self.numbers[message].clear();
        }
        words.text.as_bytes().chunks(self.size.max(NUMBER)).for_each(|chunk| self.chunk(chunk, message));
    }

    /// Returns the index of a message's numbers.
    fn index_of(&mut self, id: &[u8]) -> usize {
        if let Some(index) = self.messages.get(id) {
            return *index;
        }
        let index = self.numbers.len();
        self.messages.insert(id.to_owned(), index);
        self.numbers.push(Vec::new());
        index
    }

    fn chunk(&mut self, text: &[u8], message: usize) {
        let Some(number) = text.get(..NUMBER - 1).and_then(digits) else { return };
        self.numbers[message].push(u32::try_from(number).unwrap_or(u32::MAX));
        self.chunks += 1;
        if self.is_stamped
            && let Some(stamp) = text.get(NUMBER..STAMPED).and_then(digits)
        {
            self.latencies.push(monotonic().saturating_sub(stamp));
        }
    }

    /// Compares the received chunks with the expected number of messages and chunks.
    pub(crate) fn faults(&self, messages: usize, chunks: u32) -> Faults {
        let mut faults = Faults::default();
        let said = self.numbers.iter().filter(|numbers| !numbers.is_empty());
        let mut received = 0;
        for numbers in said {
            received += 1;
            if numbers.len() == chunks as usize && numbers.iter().copied().eq(0..chunks) {
                continue;
            }
            let mut seen = vec![false; chunks as usize];
            let mut highest = 0;
            for number in numbers {
                faults.out_of_order += u64::from(*number < highest);
                highest = highest.max(*number);
                match seen.get_mut(*number as usize) {
                    Some(seen) if !*seen => *seen = true,
                    Some(_) | None => faults.duplicated += 1,
                }
            }
            faults.lost += seen.iter().filter(|seen| !**seen).count() as u64;
        }
        faults.lost += (messages.saturating_sub(received) * chunks as usize) as u64;
        faults.duplicated += (received.saturating_sub(messages) * chunks as usize) as u64;
        faults
    }
}

impl Faults {
    pub(crate) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
    }
}

/// Returns the string after these bytes, up to its quote. The strings that are searched have no escapes.
fn string_after<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = &line[memmem::find(line, name)? + name.len()..];
    rest.get(..memchr::memchr(b'"', rest)?)
}

fn number_after(line: &[u8], name: &[u8]) -> Option<u64> {
    let rest = &line[memmem::find(line, name)? + name.len()..];
    let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    digits(&rest[..end])
}

fn digits(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 20 {
        return None;
    }
    bytes.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Returns the offset of a part of a line.
fn offset(line: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - line.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use parlor_client::{EntryId, Json};

    use super::*;

    fn chunk(id: &str, text: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        )
    }

    fn received(lines: &[String]) -> Received {
        let mut received = Received::default();
        received.expect_chunks_of(10);
        for line in lines {
            let _ = received.line(line.as_bytes());
        }
        received
    }

    #[test]
    fn a_stream_is_complete_also_when_its_chunks_were_joined() {
        let lines = [
            chunk("a", "00000000 x"),
            chunk("a", "00000001 x00000002 x"),
            chunk("a", "00000003 x"),
            chunk("b", "00000000 x"),
        ];
        let received = received(&lines);
        assert_eq!(received.faults(1, 4).duplicated, 4, "there is one message more");
        assert_eq!(received.faults(2, 4), Faults { lost: 3, ..Faults::default() });
    }

    #[test]
    fn what_is_wrong_is_counted() {
        let lines = ["00000000 x", "00000002 x", "00000001 x", "00000001 x", "00000004 x"];
        let received = received(&lines.map(|text| chunk("a", text)));
        assert_eq!(received.faults(1, 5), Faults { lost: 1, duplicated: 1, out_of_order: 2 });
    }

    #[test]
    fn a_message_replaces_what_was_heard_of_it() {
        let whole = chunk("a", "00000000 x00000001 x").replace("_chunk", "");
        let received = received(&[chunk("a", "00000000 x"), whole, chunk("a", "00000002 x")]);
        assert_eq!(received.faults(1, 3), Faults::default());
    }

    #[test]
    fn news_are_counted_as_lines_are() {
        let mut received = received(&[chunk("a", "00000000 x")]);
        let mut append = |id: &str, text: &str| {
            let item = Json::parse(format!(r#"{{"type":"text","text":"{text}"}}"#)).unwrap();
            let entry = EntryId::Message(Role::Agent, id.into());
            received.news(&Update::Append { entry, item, extra: None });
        };
        append("b", "00000000 x00000001 x");
        append("b", "00000002 x");
        append("b", "00000002 x");
        assert_eq!(received.faults(2, 3), Faults { lost: 2, duplicated: 1, out_of_order: 0 });
    }

    #[test]
    fn answers_and_states_are_heard() {
        let mut received = received(&[r#"{"jsonrpc":"2.0","id":12,"result":{}}"#.to_owned()]);
        assert_eq!(received.answer.as_ref().unwrap().0, 12);
        received.line(br#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"state_update","state":"idle"}}}"#);
        assert_eq!(received.idles, 1);
    }
}
