//! Widths, cutting, padding and wrapping by grapheme clusters. All texts here are [clean](crate::clean::Clean).

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Columns of a clean text, counted per grapheme cluster.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.graphemes(true).map(UnicodeWidthStr::width).sum() }
}

/// The beginning of a clean text that is at most `columns` wide, and whether it is the whole text.
pub fn prefix(text: &str, columns: usize) -> (&str, bool) {
    let mut used = 0;
    for (at, cluster) in text.grapheme_indices(true) {
        used += width(cluster);
        if used > columns {
            return (&text[..at], false);
        }
    }
    (text, true)
}

/// A path with `~` for the home directory.
pub fn short_path(path: &str, home: Option<&str>) -> String {
    let rest = home.and_then(|home| path.strip_prefix(home));
    match rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        Some(rest) => format!("~{rest}"),
        None => path.to_owned(),
    }
}

/// Cuts a clean text to at most `columns`; `ellipsis` shows that something was cut. A wide character that does not fit is
/// replaced by the ellipsis and a space.
pub fn cut(text: &str, columns: usize, ellipsis: &str) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(width(ellipsis));
    let (kept, _) = prefix(text, room);
    let mut cut = format!("{kept}{ellipsis}");
    if width(kept) < room {
        cut.push(' ');
    }
    prefix(&cut, columns).0.to_owned()
}

/// Cuts a clean path to at most `columns` in its middle (`crates/…/port.rs`): the first directory and as many of the last
/// components as fit are kept.
pub fn cut_path(path: &str, columns: usize, ellipsis: &str) -> String {
    if width(path) <= columns {
        return path.to_owned();
    }
    let separators: Vec<usize> = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).collect();
    let first = separators.first().map_or("", |at| &path[..=*at]);
    for start in [first, ""] {
        for at in separators.iter().filter(|at| **at >= start.len()) {
            let short = format!("{start}{ellipsis}{}", &path[*at..]);
            if width(&short) <= columns {
                return short;
            }
        }
    }
    // Not even the name fits: its end says most.
    let name = separators.last().map_or(path, |at| &path[at + 1..]);
    let room = columns.saturating_sub(width(ellipsis));
    let start = name.grapheme_indices(true).map(|(at, _)| at).find(|at| width(&name[*at..]) <= room);
    prefix(&format!("{ellipsis}{}", &name[start.unwrap_or(name.len())..]), columns).0.to_owned()
}

/// Cuts a text and fills it with spaces on the right.
pub fn pad(text: &str, columns: usize, ellipsis: &str) -> String {
    let mut padded = cut(text, columns, ellipsis);
    (width(&padded)..columns).for_each(|_| padded.push(' '));
    padded
}

/// The part of a clean text around its cursor that fits into `columns`, and the column of the cursor in it. An ellipsis stands for
/// what is cut at an end.
pub fn window(text: &str, cursor: usize, columns: usize, ellipsis: &str) -> (String, usize) {
    // The cursor needs a column behind the text.
    if width(text) < columns {
        return (text.to_owned(), cursor);
    }
    let room = columns.saturating_sub(width(ellipsis) + 1);
    if cursor <= room {
        return (cut(text, columns, ellipsis), cursor);
    }
    let mut before = 0;
    let mut start = 0;
    for (at, cluster) in text.grapheme_indices(true) {
        if cursor - before <= room {
            start = at;
            break;
        }
        (before, start) = (before + width(cluster), at + cluster.len());
    }
    let shown = format!("{ellipsis}{}", &text[start..]);
    let column = width(ellipsis) + cursor.saturating_sub(before);
    if width(&shown) < columns {
        (shown, column)
    } else {
        (cut(&shown, columns.max(column + 1), ellipsis), column)
    }
}

/// Wraps a text at spaces, and inside of words that are wider than a row. A line break starts a new row.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut rows = Vec::new();
    for line in text.split('\n') {
        let mut row = String::new();
        let mut used = 0;
        for word in line.split_word_bounds() {
            let wide = width(word);
            if used + wide <= columns {
                row.push_str(word);
                used += wide;
                continue;
            }
            if word.trim().is_empty() {
                rows.push(std::mem::take(&mut row));
                used = 0;
                continue;
            }
            if used > 0 && wide <= columns {
                // Punctuation stays with its word.
                let start = row.rfind(' ').map_or(row.len(), |space| space + 1);
                let carried = if width(&row[start..]) + wide <= columns && start > 0 {
                    row.split_off(start)
                } else {
                    String::new()
                };
                rows.push(row.trim_end().to_owned());
                used = width(&carried) + wide;
                row = carried + word;
                continue;
            }
            for cluster in word.graphemes(true) {
                let wide = width(cluster);
                if used + wide > columns && used > 0 {
                    rows.push(std::mem::take(&mut row));
                    used = 0;
                }
                row.push_str(cluster);
                used += wide;
            }
        }
        rows.push(row);
    }
    rows
}

/// A count with its noun, in the plural unless it is 1.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A number with a comma between thousands.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|digit| char::from(*digit)));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("請求書の丸め誤差を直す", 20, "…"), "請求書の丸め誤差を… ");
        assert_eq!(cut("abcdef", 6, "…"), "abcdef");
        assert_eq!(cut("abcdef", 5, "…"), "abcd…");
        assert_eq!(cut("abcdef", 5, "..."), "ab...");
        assert_eq!(cut("abcdef", 2, "..."), "..");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2, "…"), "e\u{301}…");
    }

    #[test]
    fn a_path_is_cut_in_its_middle() {
        let path = "crates/parlor-server/tests/port.rs";
        for (columns, short) in [
            (34, path),
            (33, "crates/…/tests/port.rs"),
            (22, "crates/…/tests/port.rs"),
            (21, "crates/…/port.rs"),
            (15, "…/tests/port.rs"),
            (14, "…/port.rs"),
            (7, "…ort.rs"),
            (1, "…"),
            (0, ""),
        ] {
            assert_eq!(cut_path(path, columns, "…"), short, "{columns}");
        }
        assert_eq!(cut_path("/a/very/long/path/x.rs", 12, "…"), "/a/…/x.rs");
    }

    #[test]
    fn a_text_is_padded_to_its_columns() {
        assert_eq!(pad("né", 4, "…"), "né  ");
        assert_eq!(pad("請求書の丸め", 10, "…"), "請求書の… ");
        assert_eq!(width("👩‍👩‍👧‍👦"), 2);
    }

    #[test]
    fn words_are_wrapped_whole_and_long_ones_at_any_character() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("wait, (what?) so", 9), ["wait,", "(what?)", "so"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("ログイン画面", 5), ["ログ", "イン", "画面"]);
        assert_eq!(wrap("a\n\nb", 5), ["a", "", "b"]);
    }

    #[test]
    fn a_window_shows_the_text_around_the_cursor() {
        assert_eq!(window("abc", 3, 4, "…"), ("abc".to_owned(), 3));
        assert_eq!(window("abcdefgh", 8, 5, "…"), ("…fgh".to_owned(), 4));
        assert_eq!(window("abcdefgh", 0, 5, "…"), ("abcd…".to_owned(), 0));
        assert_eq!(window("abcdefgh", 5, 5, "…"), ("…cde…".to_owned(), 4));
        assert_eq!(window("丸め誤差", 8, 6, "…"), ("…誤差".to_owned(), 5));
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(10_024), "10,024");
    }

    proptest! {
        #[test]
        fn a_cut_text_is_at_most_as_wide_as_asked(text: String, columns in 0_usize..40, is_ascii: bool) {
            let ellipsis = if is_ascii { "..." } else { "…" };
            let clean = crate::clean::Clean::line(&text);
            prop_assert!(width(&cut(clean.as_str(), columns, ellipsis)) <= columns);
            prop_assert!(width(&cut_path(clean.as_str(), columns, ellipsis)) <= columns);
            let (shown, cursor) = window(clean.as_str(), width(clean.as_str()), columns.max(4), ellipsis);
            prop_assert!(width(&shown) <= columns.max(4) && cursor < columns.max(4));
            prop_assert!(width(prefix(clean.as_str(), columns).0) <= columns);
        }
    }
}
