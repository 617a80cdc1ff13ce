//! Widths, cutting, padding and wrapping by grapheme clusters. All texts here are [clean](crate::clean::Clean).

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Cuts a text to a number of columns. A text that was cut ends with the ellipsis; a wide character that fits only in half is
/// replaced by a space.
pub fn cut(text: &str, columns: usize, ellipsis: &str) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(width(ellipsis));
    let mut kept = String::new();
    let mut used = 0;
    for cluster in text.graphemes(true) {
        let wide = width(cluster);
        if used + wide > room {
            break;
        }
        kept.push_str(cluster);
        used += wide;
    }
    if width(ellipsis) <= columns {
        kept.push_str(ellipsis);
        used += width(ellipsis);
    }
    // Half of a wide character is left over.
    (used..columns).for_each(|_| kept.push(' '));
    kept
}

/// Cuts a path in the middle: its first and last parts are kept.
pub fn cut_path(path: &str, columns: usize, ellipsis: &str) -> String {
    if width(path) <= columns {
        return path.to_owned();
    }
    let parts: Vec<&str> = path.split('/').collect();
    for tail in 1..parts.len() {
        let short = format!("{}/{ellipsis}/{}", parts[0], parts[tail + 1..].join("/"));
        if tail + 1 < parts.len() && width(&short) <= columns {
            return short;
        }
    }
    cut(path, columns, ellipsis)
}

/// Cuts a text and fills it with spaces on the right.
pub fn pad(text: &str, columns: usize, ellipsis: &str) -> String {
    let mut padded = cut(text, columns, ellipsis);
    (width(&padded)..columns).for_each(|_| padded.push(' '));
    padded
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
    use super::*;

    #[test]
    fn a_cut_never_splits_a_wide_character() {
        assert_eq!(cut("請求書の丸め", 12, "…"), "請求書の丸め");
        assert_eq!(cut("請求書の丸め", 11, "…"), "請求書の丸…");
        assert_eq!(cut("請求書の丸め", 10, "…"), "請求書の… ");
        assert_eq!(cut("abc", 2, "..."), "  ");
        assert_eq!(pad("né", 4, "…"), "né  ");
        assert_eq!(width("👩‍👩‍👧‍👦"), 2);
    }

    #[test]
    fn a_path_is_cut_in_the_middle() {
        assert_eq!(cut_path("crates/parlor-server/tests/port.rs", 24, "…"), "crates/…/tests/port.rs");
        assert_eq!(cut_path("crates/parlor-server/tests/port.rs", 17, "…"), "crates/…/port.rs");
        assert_eq!(cut_path("averyveryverylongname.rs", 10, "…"), "averyvery…");
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
    fn thousands_are_separated() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(10_024), "10,024");
    }
}
