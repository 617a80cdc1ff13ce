//! The last part of a command's output, as text.

/// Text of limited length; longer text is cut at the front, between characters.
#[derive(Debug)]
pub(super) struct Output {
    text: String,
    limit: usize,
    truncated: bool,
    decoder: Utf8Decoder,
}

/// Decodes output that arrives in pieces. Bytes that are not UTF-8 become U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
}

impl Utf8Decoder {
    /// Decodes the next piece.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.partial);
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            if chunks.peek().is_none() && is_incomplete(chunk.invalid()) {
                self.partial = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    /// Ends the output: the text of an incomplete character.
    pub(crate) fn finish(&mut self) -> String {
        let is_complete = std::mem::take(&mut self.partial).is_empty();
        if is_complete { String::new() } else { char::REPLACEMENT_CHARACTER.to_string() }
    }
}

/// How many bytes more than twice the limit are kept before the front is cut, which moves the rest and must be rare.
const SLACK: usize = 64 << 10;

impl Output {
    pub(super) fn new(limit: usize) -> Self {
        Self { text: String::new(), limit, truncated: false, decoder: Utf8Decoder::default() }
    }

    /// Adds output. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.text.push_str(&self.decoder.decode(bytes));
        if self.text.len() > self.limit * 2 + SLACK {
            self.text.drain(..self.start());
            self.truncated = true;
        }
    }

    /// Ends the output.
    pub(super) fn finish(&mut self) {
        self.text.push_str(&self.decoder.finish());
    }

    /// The text within the limit.
    pub(super) fn text(&self) -> &str {
        &self.text[self.start()..]
    }

    /// Whether output was cut.
    pub(super) fn is_truncated(&self) -> bool {
        self.truncated || self.text.len() > self.limit
    }

    /// The offset of the text within the limit.
    fn start(&self) -> usize {
        let mut start = self.text.len().saturating_sub(self.limit);
        while !self.text.is_char_boundary(start) {
            start += 1;
        }
        start
    }
}

/// Whether these bytes are an incomplete character. The decoder has checked all but their number.
fn is_incomplete(bytes: &[u8]) -> bool {
    let whole = match bytes.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        Some(_) | None => 0,
    };
    bytes.len() < whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_arrive_in_pieces_are_joined() {
        let mut output = Output::new(100);
        for byte in "a€😀\n".as_bytes() {
            output.push(&[*byte]);
        }
        output.push(&[0xff, b'b', 0xe2, 0x82]);
        assert_eq!(output.text(), "a€😀\n\u{fffd}b");
        output.push(b"c");
        assert_eq!(output.text(), "a€😀\n\u{fffd}b\u{fffd}c");
        output.push(&[0xf0, 0x9f]);
        output.finish();
        assert_eq!(output.text(), "a€😀\n\u{fffd}b\u{fffd}c\u{fffd}");
        assert!(!output.is_truncated());
    }

    #[test]
    fn the_front_is_cut_between_characters() {
        for (limit, kept, truncated) in
            [(7, "a€€", false), (6, "€€", true), (5, "€", true), (2, "", true), (0, "", true)]
        {
            let mut output = Output::new(limit);
            output.push("a€€".as_bytes());
            assert_eq!((output.text(), output.is_truncated()), (kept, truncated), "{limit}");
        }
    }

    #[test]
    fn the_buffer_does_not_grow() {
        let mut output = Output::new(1000);
        for _ in 0..1000 {
            output.push(&[b'x'; 1000]);
            assert!(output.text.len() <= 2 * 1000 + SLACK);
        }
        output.push(b"end");
        assert_eq!(output.text(), format!("{}end", "x".repeat(997)));
        assert!(output.is_truncated());
        let mut all_kept = Output::new(2000);
        all_kept.push(&[b'x'; 2000]);
        assert!(!all_kept.is_truncated());
    }
}
