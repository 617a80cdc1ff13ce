//! Output of programs without the escape sequences of terminals.

/// Removes escape sequences. A carriage return starts its line again, as progress bars do.
pub(crate) fn plain(output: &str) -> String {
    let output = output.replace("\r\n", "\n");
    let mut plain = String::with_capacity(output.len());
    let mut rest = output.as_str();
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\u{1b}' => rest = after_escape(rest),
            '\u{9b}' => rest = after_control_sequence(rest),
            '\r' => plain.truncate(plain.rfind('\n').map_or(0, |end| end + 1)),
            _ => plain.push(c),
        }
    }
    plain
}

/// What follows an escape sequence, of which the first character was read.
fn after_escape(text: &str) -> &str {
    let mut chars = text.chars();
    match chars.next() {
        Some('[') => after_control_sequence(chars.as_str()),
        // A string, such as a window title or a link, ends with BEL or ESC \.
        Some(']' | 'P' | '^' | '_' | 'X') => {
            let text = chars.as_str();
            let end = text.find(['\u{7}', '\u{1b}']).unwrap_or(text.len());
            let rest = &text[end..];
            rest.strip_prefix('\u{7}').or_else(|| rest.strip_prefix("\u{1b}\\")).unwrap_or(rest)
        }
        // A sequence with intermediate characters, such as the selection of a character set.
        Some(' '..='/') => chars.as_str().get(1..).unwrap_or(""),
        Some(_) => chars.as_str(),
        None => "",
    }
}

/// What follows a control sequence, of which the introducer was read.
fn after_control_sequence(text: &str) -> &str {
    let is_final = |c: char| ('@'..='~').contains(&c);
    // An invalid sequence ends before the first character that cannot be part of one.
    let end = text.find(|c: char| is_final(c) || !(' '..='?').contains(&c)).unwrap_or(text.len());
    let rest = &text[end..];
    rest.strip_prefix(is_final).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_left_out() {
        for text in [
            "a\u{1b}[1;31mb\u{1b}[0m",
            "a\u{1b}[2Jb",
            "a\u{1b}]0;title\u{7}b",
            "a\u{1b}]8;;https://example.org\u{1b}\\b",
            "a\u{1b}(Bb",
            "a\u{1b}[?25lb",
            "a\u{9b}31mb",
            "ab\u{1b}",
            "ab\u{1b}[",
            "ab\u{1b}[38;5",
            "a\u{1b}[38;2;999;1mb",
        ] {
            assert_eq!(plain(text), "ab", "{text:?}");
        }
        assert_eq!(plain("é\u{1b}(é"), "é", "no sequence is cut inside of a character");
    }

    #[test]
    fn a_carriage_return_starts_the_line_again() {
        assert_eq!(plain("one\r\n10%\r50%\r100%\ntwo"), "one\n100%\ntwo");
        assert_eq!(plain("\u{1b}[31mred\u{1b}[0m plain\rnew"), "new");
    }
}
