//! Splits text into the words by which it is searched.
//!
//! Letters and digits form words; all other characters separate them. Case, accents and the width of letters are
//! ignored. In scripts without spaces between words (Chinese, Japanese, Thai and others) each character is a word, so
//! that any part of a sentence matches as a phrase.

use std::ops::Range;

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// The most bytes of a word; the rest of a longer word is ignored.
const MAX_BYTES: usize = 64;

/// A word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The byte range of the word in the text.
    pub range: Range<usize>,
    /// The word in lower case and without accents, as it is compared.
    pub folded: String,
}

/// Iterates over the words of a text.
pub fn words(text: &str) -> impl Iterator<Item = Word> {
    let mut scanner = Scanner { text, at: 0 };
    std::iter::from_fn(move || {
        let mut folded = String::new();
        scanner.next(&mut folded).map(|range| Word { range, folded })
    })
}

/// Returns the folded words of a text, separated by spaces.
#[cfg(feature = "sqlite")]
pub(crate) fn folded(text: &str) -> String {
    let mut scanner = Scanner { text, at: 0 };
    let mut all = String::with_capacity(text.len());
    while scanner.next(&mut all).is_some() {
        all.push(' ');
    }
    all
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    /// Appends the next word to `folded` and returns its byte range.
    fn next(&mut self, folded: &mut String) -> Option<Range<usize>> {
        let before = folded.len();
        loop {
            let rest = &self.text[self.at..];
            let (skipped, first) = rest.char_indices().find(|(_, c)| c.is_alphanumeric())?;
            let start = self.at + skipped;
            self.at = start;
            let unspaced = is_unspaced(first);
            for (n, c) in self.text[start..].chars().enumerate() {
                let goes_on =
                    is_ignored(c) || is_mark(c) || (!unspaced && c.is_alphanumeric() && !is_unspaced(c));
                if n > 0 && !goes_on {
                    break;
                }
                self.at += c.len_utf8();
                if folded.len() - before < MAX_BYTES {
                    fold(c, folded);
                }
            }
            if folded.len() > before {
                return Some(start..self.at);
            }
        }
    }
}

/// Appends a character in lower case and without accents.
fn fold(c: char, folded: &mut String) {
    if c.is_ascii() {
        folded.push(c.to_ascii_lowercase());
        return;
    }
    let mut push = |c: char| {
        for small in c.to_lowercase().filter(|c| !is_ignored(*c)) {
            if small.is_alphanumeric() || is_mark(small) {
                folded.push(if small == 'ς' { 'σ' } else { small });
            }
        }
    };
    match c {
        // Decomposition would change the sound of these.
        '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7a3}' => push(c),
        _ => decompose_compatible(c, push),
    }
}

fn is_mark(c: char) -> bool {
    !c.is_ascii() && is_combining_mark(c)
}

/// Returns whether a character within a word is ignored: accents, vowel points of Hebrew and Arabic, and characters
/// that only control line breaks.
fn is_ignored(c: char) -> bool {
    matches!(c,
        '\u{ad}'
        | '\u{300}'..='\u{36f}'
        | '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}' | '\u{5c2}' | '\u{5c4}' | '\u{5c5}' | '\u{5c7}'
        | '\u{640}' | '\u{64b}'..='\u{65f}' | '\u{670}'
        | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{20d0}'..='\u{20ff}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{feff}')
}

/// Returns whether a character belongs to a script without spaces between words.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{fff}' // Thai, Lao, Tibetan
        | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' // Myanmar, Khmer
        | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' // kana
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' // Han
        | '\u{ff66}'..='\u{ff9f}' // narrow kana
        | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_by_its_words() {
        for (text, expected) in [
            ("", ""),
            ("...?! \u{301} \u{0}", ""),
            ("Hello, World", "hello world "),
            ("foo_bar.baz() --x=7", "foo bar baz x 7 "),
            ("Éclair E\u{301}CLAIR naïve ﬁne ＡＢＣ", "eclair eclair naive fine abc "),
            ("Ἀθῆναι ΣΟΦΟΣ σοφος σοφός", "αθηναι σοφοσ σοφοσ σοφοσ "),
            ("Žluťoučký kůň", "zlutoucky kun "),
            ("co\u{ad}operate zero\u{200b}width", "cooperate zerowidth "),
            ("東京に行く。", "東 京 に 行 く "),
            ("ABC東京x", "abc 東 京 x "),
            ("ガス ｱｽ", "ガ ス ア ス "),
            ("한국어 텍스트", "한국어 텍스트 "),
            ("हिन्दी में", "हिन्दी में "),
            ("שָׁלוֹם", "שלום "),
            ("مُحَمَّد", "محمد "),
            ("İstanbul", "istanbul "),
            ("a½b ⑴", "a12b 1 "),
            ("😀x😀", "x "),
        ] {
            assert_eq!(folded(text), expected, "{text}");
            let joined: String = words(text).map(|word| word.folded + " ").collect();
            assert_eq!(joined, expected, "{text}");
        }
    }

    #[test]
    fn a_word_says_where_it_stands() {
        let text = "  Éa, 東京!";
        let places: Vec<_> = words(text).map(|word| &text[word.range]).collect();
        assert_eq!(places, ["Éa", "東", "京"]);
    }

    #[test]
    fn a_word_is_as_long_as_anybody_types() {
        let long = "é".repeat(1000);
        assert_eq!(folded(&long), format!("{} ", "e".repeat(MAX_BYTES)));
        assert_eq!(words(&long).next().unwrap().range, 0..2000);
    }
}
