//! What is shown of a text that was found.

use std::ops::Range;

use parlor_store::Query;

/// About how many characters are shown, and how many of them before the first match.
const LENGTH: usize = 160;
const BEFORE: usize = 50;

/// How far a piece may be shortened so that it begins and ends between words.
const LONGEST_WORD: usize = 30;

/// A piece of a text around the first match, in one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snippet {
    pub(super) text: String,
    /// Where the words stand that were looked for, in characters.
    pub(super) matches: Vec<Range<usize>>,
}

impl Snippet {
    pub(super) fn of(text: &str, query: &Query) -> Self {
        let places = query.ranges(text);
        let first = places.first().cloned().unwrap_or(0..0);
        let begin = begin(text, first.start);
        let end = end(text, begin, first.end);
        let mut snippet = Writer::default();
        if begin > 0 {
            snippet.push('…');
        }
        let mut places = places.into_iter().peekable();
        let mut matches = Vec::new();
        for (at, c) in text[begin..end].char_indices().map(|(at, c)| (begin + at, c)) {
            // A match ends before the sign behind it, and the next one may begin there.
            if places.next_if(|place| place.end <= at).is_some() {
                matches.extend(snippet.close());
            }
            if places.peek().is_some_and(|place| place.start == at) {
                snippet.open();
            }
            snippet.push(c);
        }
        matches.extend(snippet.close());
        if end < text.len() {
            snippet.text.truncate(snippet.text.trim_end().len());
            snippet.text.push('…');
        }
        Self { text: snippet.text, matches }
    }
}

/// Text on its way into a snippet: every gap is one space.
#[derive(Default)]
struct Writer {
    text: String,
    length: usize,
    /// Where a match began that has not ended.
    open: Option<usize>,
}

impl Writer {
    fn push(&mut self, c: char) {
        let c = if c.is_whitespace() { ' ' } else { c };
        if c == ' ' && (self.text.is_empty() || self.text.ends_with([' ', '…'])) {
            return;
        }
        self.text.push(c);
        self.length += 1;
    }

    fn open(&mut self) {
        self.open = Some(self.length);
    }

    fn close(&mut self) -> Option<Range<usize>> {
        Some(self.open.take()?..self.length)
    }
}

/// Where to begin so that the match has something before it.
fn begin(text: &str, first: usize) -> usize {
    let before = text[..first].char_indices().rev().take(BEFORE).last().map_or(first, |(at, _)| at);
    if before == 0 {
        return 0;
    }
    let gap = text[before..first].char_indices().take(LONGEST_WORD).find(|(_, c)| c.is_whitespace());
    gap.map_or(before, |(at, c)| before + at + c.len_utf8())
}

/// Where to end: not within the first match if there is room for it, and not within a word.
fn end(text: &str, begin: usize, first_end: usize) -> usize {
    let Some((end, _)) = text[begin..].char_indices().nth(LENGTH) else { return text.len() };
    let end = begin + end;
    let gap = text[begin..end].char_indices().rev().take(LONGEST_WORD).find(|(_, c)| c.is_whitespace());
    gap.map(|(at, _)| begin + at).filter(|gap| *gap >= first_end.min(end)).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str, query: &str) -> String {
        let snippet = Snippet::of(text, &Query::parse(query));
        let mut marked = String::new();
        for (n, c) in snippet.text.chars().enumerate() {
            if snippet.matches.iter().any(|place| place.end == n) {
                marked.push(']');
            }
            if snippet.matches.iter().any(|place| place.start == n) {
                marked.push('[');
            }
            marked.push(c);
        }
        if snippet.matches.iter().any(|place| place.end == snippet.text.chars().count()) {
            marked.push(']');
        }
        marked
    }

    #[test]
    fn a_short_text_is_shown_whole_and_in_one_line() {
        for (text, query, expected) in [
            ("The café is\n\n open", "cafe open", "The [café] is [open]"),
            ("foo_bar(foo)", "foo", "[foo]_bar([foo])"),
            ("東京に行く", "京に", "東[京に]行く"),
            ("  \n leading", "leading", "[leading]"),
            ("one two three", "\"one two\" \"two three\"", "[one two three]"),
            ("nothing of it", "else", "nothing of it"),
            ("", "x", ""),
            ("a\u{0}b \u{fffd} b", "b", "a\u{0}[b] \u{fffd} [b]"),
        ] {
            assert_eq!(marked(text, query), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_shown_around_the_first_match_and_between_words() {
        let text = format!("{} needle {} needle", "before it ".repeat(50), "after it ".repeat(50));
        let shown = marked(&text, "needle");
        assert!(shown.starts_with("…it before it ") || shown.starts_with("…before it "), "{shown}");
        assert!(shown.contains("before it [needle] after it") && shown.ends_with("t…"), "{shown}");
        let length = shown.chars().count();
        assert!((120..=165).contains(&length), "{length}: {shown}");
    }

    #[test]
    fn a_text_without_gaps_is_cut_anywhere() {
        let long = "é".repeat(1000);
        assert_eq!(Snippet::of(&format!("{long} x {long}"), &Query::parse("x")).matches.len(), 1);
        let snippet = Snippet::of(&long, &Query::parse(&long));
        assert_eq!(snippet.text.chars().count(), LENGTH + 1);
        assert!(snippet.matches.iter().eq([&(0..LENGTH)]));
    }
}
