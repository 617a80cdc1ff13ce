//! Fuzzy matching: the letters of a query in order, best where they begin words or follow each other.

/// How well a text fits a query, and which characters fit; `None` if it does not.
pub fn fit(query: &str, text: &str) -> Option<(i32, Vec<usize>)> {
    let folded: Vec<char> = text.chars().map(fold).collect();
    let mut score = 0;
    let mut matches = Vec::new();
    for word in query.split_whitespace() {
        let (word_score, word_matches) = fit_word(word, &folded)?;
        score += word_score;
        matches.extend(word_matches);
    }
    matches.sort_unstable();
    matches.dedup();
    Some((score, matches))
}

/// Fits one word: as a substring if possible, else letter by letter.
fn fit_word(word: &str, text: &[char]) -> Option<(i32, Vec<usize>)> {
    let word: Vec<char> = word.chars().map(fold).collect();
    let starts_word = |index: usize| index == 0 || !text[index - 1].is_alphanumeric();
    let whole = text.windows(word.len().max(1)).enumerate().filter(|(_, part)| *part == word.as_slice());
    let whole = whole.map(|(index, _)| index).min_by_key(|index| (!starts_word(*index), *index));
    if let Some(index) = whole {
        let bonus = if starts_word(index) { 20 } else { 0 };
        let length = i32::try_from(word.len()).unwrap_or(i32::MAX / 16);
        return Some((100 + bonus + 8 * length, (index..index + word.len()).collect()));
    }
    let mut score = 0;
    let mut matches = Vec::with_capacity(word.len());
    let mut from = 0;
    for letter in word {
        let fits = |index: &usize| text[*index] == letter;
        let next = (from..text.len()).find(fits)?;
        // A later letter that begins a word is better than one inside of a word.
        let index = (next..text.len()).find(|index| fits(index) && starts_word(*index)).unwrap_or(next);
        let index = if index > next + 12 { next } else { index };
        score += if starts_word(index) { 10 } else { 1 };
        score += if matches.last().is_some_and(|last| last + 1 == index) { 5 } else { 0 };
        matches.push(index);
        from = index + 1;
    }
    Some((score, matches))
}

fn fold(letter: char) -> char {
    letter.to_lowercase().next().unwrap_or(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best<'a>(query: &str, texts: &[&'a str]) -> Vec<&'a str> {
        let mut fits: Vec<_> =
            texts.iter().filter_map(|text| fit(query, text).map(|(score, _)| (score, *text))).collect();
        fits.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        fits.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn beginnings_of_words_come_before_their_middles() {
        let texts = ["Reports in two columns", "Fix flaky port test", "Port the importer", "Nothing"];
        assert_eq!(
            best("port", &texts),
            ["Fix flaky port test", "Port the importer", "Reports in two columns"]
        );
        assert_eq!(best("ffp", &texts), ["Fix flaky port test"]);
        assert_eq!(best("test fix", &texts), ["Fix flaky port test"]);
    }

    #[test]
    fn the_letters_that_fit_are_reported() {
        assert_eq!(fit("port", "Fix port").unwrap().1, [4, 5, 6, 7]);
        assert_eq!(fit("", "Fix").unwrap().1, [0; 0]);
        assert_eq!(fit("X", "éx").unwrap().1, [1]);
        assert!(fit("xyz", "Fix").is_none());
    }
}
