//! What is searched for.

use std::ops::Range;

use crate::words::{Word, words};

/// How many things one query asks for, and how many words one of them has. What is more is left out.
const MOST_TERMS: usize = 64;
const MOST_WORDS: usize = 64;

/// What is searched for: every text is a query, and none is wrong.
///
/// All words must be there, in any order. `"these words"` must stand together, `begin*` is the beginning of a word, and
/// `-word` must not be there. Signs are not looked for: `foo_bar()` is the words foo and bar, next to each other.
/// A query without words, or with none but those that must not be there, finds nothing.
///
/// ```
/// use parlor_store::Query;
///
/// let query = Query::parse(r#"cafe "two words" pri* -without"#);
/// assert!(query.finds("Two words about the Café and its prices"));
/// assert!(!query.finds("Two words about the Café and its prices, without tips"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    all: Vec<Term>,
    none: Vec<Term>,
    left_out: usize,
}

/// Words that stand together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) words: Vec<String>,
    /// Whether the last word may go on.
    pub(crate) is_prefix: bool,
}

impl Query {
    /// Reads a query.
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
        let taken: Vec<_> = found.by_ref().take(MOST_WORDS).collect();
        let cut = found.count();
        if taken.is_empty() {
            return;
        }
        if self.all.len() + self.none.len() >= MOST_TERMS {
            self.left_out += taken.len() + cut;
            return;
        }
        self.left_out += cut;
        let term = Term { words: taken, is_prefix: is_prefix && cut == 0 };
        let terms = if excludes { &mut self.none } else { &mut self.all };
        if !terms.contains(&term) {
            terms.push(term);
        }
    }

    /// Whether it can find nothing.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many words were too many and are not looked for.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether a text is found.
    pub fn finds(&self, text: &str) -> bool {
        self.finds_words(&words(text).collect::<Vec<_>>())
    }

    pub(crate) fn finds_words(&self, words: &[Word]) -> bool {
        let is_there = |term: &Term| term.places(words).next().is_some();
        !self.is_empty() && self.all.iter().all(is_there) && !self.none.iter().any(is_there)
    }

    /// Where the words that are looked for stand in a text, in bytes and in order. Places do not overlap.
    pub fn places(&self, text: &str) -> Vec<Range<usize>> {
        let words: Vec<_> = words(text).collect();
        let places = self.all.iter().flat_map(|term| {
            term.places(&words).map(|at| words[at].place.start..words[at + term.words.len() - 1].place.end)
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable_by_key(|place| (place.start, place.end));
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(places.len());
        for place in places {
            match merged.last_mut() {
                Some(last) if place.start < last.end => last.end = last.end.max(place.end),
                Some(_) | None => merged.push(place),
            }
        }
        merged
    }

    pub(crate) fn wanted(&self) -> &[Term] {
        &self.all
    }

    pub(crate) fn unwanted(&self) -> &[Term] {
        &self.none
    }
}

impl Term {
    /// The places among the words of a text at which this begins.
    pub(crate) fn places<'a>(&'a self, words: &'a [Word]) -> impl Iterator<Item = usize> + 'a {
        let (last, first) = self.words.split_last().expect("a term has a word");
        let is_last =
            move |word: &str| if self.is_prefix { word.starts_with(last.as_str()) } else { word == last };
        words.windows(self.words.len()).enumerate().filter_map(move |(at, window)| {
            let (end, begin) = window.split_last().expect("a term has a word");
            let found =
                is_last(&end.folded) && begin.iter().zip(first).all(|(word, wanted)| word.folded == *wanted);
            found.then_some(at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, text: &str, expected: bool) {
        assert_eq!(Query::parse(query).finds(text), expected, "{query} in {text}");
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
        assert_eq!((query.all.len(), query.left_out()), (MOST_TERMS, 10_000 - MOST_TERMS));
        let phrase = Query::parse(&format!("\"{many}\"*"));
        assert_eq!((phrase.all[0].words.len(), phrase.left_out()), (MOST_WORDS, 10_000 - MOST_WORDS));
        assert!(phrase.finds(&many));
        assert_eq!(Query::parse(&"again ".repeat(1000)).left_out(), 0);
    }

    #[test]
    fn places_are_those_of_the_words() {
        let text = "The café: two words, twofold. CAFÉ";
        let places: Vec<_> = Query::parse("cafe two* \"two words\" -x").places(text);
        let found: Vec<_> = places.into_iter().map(|place| &text[place]).collect();
        assert_eq!(found, ["café", "two words", "twofold", "CAFÉ"]);
    }
}
