//! Search queries.

use std::ops::Range;

use crate::words::{Word, words};

/// The most terms of a query and the most words of a term; the rest is ignored and counted.
const MAX_TERMS: usize = 64;
const MAX_WORDS: usize = 64;

/// A search query; every text is a valid query.
///
/// A text matches if it has all words of the query, in any order. `"these words"` match in this order without others
/// between them, `begin*` matches words with that prefix, and `-word` excludes texts with that word. Punctuation is
/// ignored: `foo_bar()` is the words foo and bar, next to each other. A query without words, or only with excluded
/// ones, matches nothing.
///
/// ```
/// use parlor_store::Query;
///
/// let query = Query::parse(r#"cafe "two words" pri* -without"#);
/// assert!(query.matches("Two words about the Café and its prices"));
/// assert!(!query.matches("Two words about the Café and its prices, without tips"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    all: Vec<Term>,
    none: Vec<Term>,
    ignored_words: usize,
}

/// Words that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) words: Vec<String>,
    /// Whether the last word is a prefix.
    pub(crate) is_prefix: bool,
}

impl Query {
    /// Parses a query.
    pub fn parse(text: &str) -> Self {
        let mut query = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let excludes = rest.starts_with('-');
            let said = rest.strip_prefix('-').unwrap_or(rest);
            let (part, after) = match said.strip_prefix('"') {
                Some(quoted) => {
                    let (part, after) = quoted.split_once('"').unwrap_or((quoted, ""));
                    (part, after)
                }
                None => {
                    let end = said.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(said.len());
                    said.split_at(end)
                }
            };
            let is_prefix = part.ends_with('*') || after.starts_with('*');
            query.add(part, is_prefix, excludes);
            rest = after.strip_prefix('*').unwrap_or(after).trim_start();
        }
        query
    }

    fn add(&mut self, part: &str, is_prefix: bool, excludes: bool) {
        let mut found = words(part).map(|word| word.folded);
        let taken: Vec<_> = found.by_ref().take(MAX_WORDS).collect();
        let cut = found.count();
        if taken.is_empty() {
            return;
        }
        if self.all.len() + self.none.len() >= MAX_TERMS {
            self.ignored_words += taken.len() + cut;
            return;
        }
        self.ignored_words += cut;
        let term = Term { words: taken, is_prefix: is_prefix && cut == 0 };
        let terms = if excludes { &mut self.none } else { &mut self.all };
        if !terms.contains(&term) {
            terms.push(term);
        }
    }

    /// Returns whether the query matches nothing.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of ignored words.
    pub fn ignored_words(&self) -> usize {
        self.ignored_words
    }

    /// Returns whether a text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_words(&words(text).collect::<Vec<_>>())
    }

    pub(crate) fn matches_words(&self, words: &[Word]) -> bool {
        let is_there = |term: &Term| term.positions(words).next().is_some();
        !self.is_empty() && self.all.iter().all(is_there) && !self.none.iter().any(is_there)
    }

    /// Returns the byte ranges of the matching words of a text, in order and without overlap.
    pub fn ranges(&self, text: &str) -> Vec<Range<usize>> {
        let words: Vec<_> = words(text).collect();
        let ranges = self.all.iter().flat_map(|term| {
            term.positions(&words).map(|at| words[at].range.start..words[at + term.words.len() - 1].range.end)
        });
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                Some(_) | None => merged.push(range),
            }
        }
        merged
    }

    pub(crate) fn required(&self) -> &[Term] {
        &self.all
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn excluded(&self) -> &[Term] {
        &self.none
    }
}

impl Term {
    /// Returns the indices of the words at which the term matches.
    pub(crate) fn positions<'a>(&'a self, words: &'a [Word]) -> impl Iterator<Item = usize> + 'a {
        let (last, first) = self.words.split_last().expect("a term has a word");
        let is_last =
            move |word: &str| if self.is_prefix { word.starts_with(last.as_str()) } else { word == last };
        words.windows(self.words.len()).enumerate().filter_map(move |(at, window)| {
            let (end, begin) = window.split_last().expect("a term has a word");
            let found = is_last(&end.folded)
                && begin.iter().zip(first).all(|(word, required)| word.folded == *required);
            found.then_some(at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, text: &str, expected: bool) {
        assert_eq!(Query::parse(query).matches(text), expected, "{query} in {text}");
    }

    #[test]
    fn all_words_must_be_there() {
        for (query, text, expected) in [
            ("one two", "two and one", true),
            ("one two", "one", false),
            ("One ÉTÉ", "été one", true),
            ("\"one two\"", "one two", true),
            ("\"one two\"", "two one", false),
            ("\"one two", "one two", true),
            ("one\"two three\"four", "four two three one", true),
            ("pre*", "prefix", true),
            ("pre", "prefix", false),
            ("\"a pre\"*", "a prefix", true),
            ("\"a pre*\"", "a prefix", true),
            ("one -two", "one three", true),
            ("one -two", "one two", false),
            ("one -\"two three\"", "one three two", true),
            ("one -tw*", "one two", false),
            ("-two", "one", false),
            ("- one", "one", true),
            ("foo_bar()", "x = foo.bar", true),
            ("foo_bar()", "bar foo", false),
            ("foo-bar", "foo bar", true),
            ("東京", "私は東京に行く", true),
            ("東京", "京東", false),
            ("NEAR(a b) AND OR NOT", "near a b and or not", true),
            ("", "anything", false),
            ("\"\" * - -- \" ' ( ) ^ : {}", "anything", false),
        ] {
            check(query, text, expected);
        }
    }

    #[test]
    fn what_is_too_much_is_left_out_and_counted() {
        let many: String = (0..10_000).map(|n| format!("word{n} ")).collect();
        let query = Query::parse(&many);
        assert_eq!((query.all.len(), query.ignored_words()), (MAX_TERMS, 10_000 - MAX_TERMS));
        let phrase = Query::parse(&format!("\"{many}\"*"));
        assert_eq!((phrase.all[0].words.len(), phrase.ignored_words()), (MAX_WORDS, 10_000 - MAX_WORDS));
        assert!(phrase.matches(&many));
        assert_eq!(Query::parse(&"again ".repeat(1000)).ignored_words(), 0);
    }

    #[test]
    fn ranges_are_those_of_the_matching_words() {
        let text = "The café: two words, twofold. CAFÉ";
        let ranges: Vec<_> = Query::parse("cafe two* \"two words\" -x").ranges(text);
        let found: Vec<_> = ranges.into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["café", "two words", "twofold", "CAFÉ"]);
    }
}
