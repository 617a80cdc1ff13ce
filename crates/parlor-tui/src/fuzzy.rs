//! Fuzzy matching: the letters of a query in order, best where they begin words or follow each other.

/// How well a text fits a query, and which characters fit; `None` if it does not.
pub fn fit(query: &str, text: &str) -> Option<(i32, Vec<usize>)> {
    let folded: Vec<char> = text.chars().map(fold).collect();
    let mut score = 0;
    let mut places = Vec::new();
    for word in query.split_whitespace() {
        let (word_score, word_places) = fit_word(word, &folded)?;
        score += word_score;
        places.extend(word_places);
    }
    places.sort_unstable();
    places.dedup();
    Some((score, places))
}

/// Fits one word: as a substring if possible, else letter by letter.
fn fit_word(word: &str, text: &[char]) -> Option<(i32, Vec<usize>)> {
    let word: Vec<char> = word.chars().map(fold).collect();
    let starts_word = |place: usize| place == 0 || !text[place - 1].is_alphanumeric();
    let whole = text.windows(word.len().max(1)).enumerate().filter(|(_, part)| *part == word.as_slice());
    let whole = whole.map(|(place, _)| place).min_by_key(|place| (!starts_word(*place), *place));
    if let Some(place) = whole {
        let bonus = if starts_word(place) { 20 } else { 0 };
        let length = i32::try_from(word.len()).unwrap_or(i32::MAX / 16);
        return Some((100 + bonus + 8 * length, (place..place + word.len()).collect()));
    }
    let mut score = 0;
    let mut places = Vec::with_capacity(word.len());
    let mut from = 0;
    for letter in word {
        let fits = |place: &usize| text[*place] == letter;
        let next = (from..text.len()).find(fits)?;
        // A later letter that begins a word is better than one inside of a word.
        let place = (next..text.len()).find(|place| fits(place) && starts_word(*place)).unwrap_or(next);
        let place = if place > next + 12 { next } else { place };
        score += if starts_word(place) { 10 } else { 1 };
        score += if places.last().is_some_and(|last| last + 1 == place) { 5 } else { 0 };
        places.push(place);
        from = place + 1;
    }
    Some((score, places))
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
