//! Output of programs with the colours of a terminal.

use maud::{Markup, html};

use super::text::clean;

/// A part of the output in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// How it is shown.
    pub style: TextStyle,
}

/// How a terminal displays text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an attribute of a terminal")]
pub struct TextStyle {
    /// The colour of the text.
    pub foreground: Option<Colour>,
    /// The colour behind the text.
    pub background: Option<Colour>,
    /// Whether it is bold.
    pub bold: bool,
    /// Whether it is dim.
    pub dim: bool,
    /// Whether it is italic.
    pub italic: bool,
    /// Whether it is underlined.
    pub underlined: bool,
}

/// A colour of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// One of the 16 colours of the terminal's theme.
    Theme(u8),
    /// Red, green and blue.
    Rgb(u8, u8, u8),
}

impl Colour {
    /// The nearest of the eight colours of the page; `None` for greys, which are the colour of other text.
    fn theme_index(self) -> Option<u8> {
        let (red, green, blue) = match self {
            // The bright colours are not brighter: the page's have enough contrast.
            Self::Theme(index) => return Some(index % 8),
            Self::Rgb(red, green, blue) => (red, green, blue),
        };
        let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
        if most - least < 48 {
            return None;
        }
        // A part counts if it is nearer to the greatest than to the least.
        let middle = u8::midpoint(most, least);
        let bit = |part: u8, bit: u8| if part > middle { bit } else { 0 };
        Some(bit(red, 1) | bit(green, 2) | bit(blue, 4))
    }
}

/// Splits output into spans. Escape sequences that are no colours are left out, and a carriage return starts its line again, as
/// progress bars do.
pub fn spans(output: &str) -> Vec<Span> {
    let mut parser = Parser::default();
    let output = output.replace("\r\n", "\n");
    let mut rest = output.as_str();
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\u{1b}' => rest = parser.escape(rest),
            '\u{9b}' => rest = parser.control_sequence(rest),
            '\r' => parser.restart_line(),
            _ => parser.push(c),
        }
    }
    parser.spans
}

/// The output without colours.
pub fn plain(output: &str) -> String {
    spans(output).into_iter().map(|span| span.text).collect()
}

/// Output as HTML, with classes for its colours.
pub fn to_html(output: &str) -> Markup {
    html! {
        @for span in spans(output) {
            @let classes = span.style.classes();
            @if classes.is_empty() { (clean(&span.text)) } @else { span class=(classes) { (clean(&span.text)) } }
        }
    }
}

#[derive(Default)]
struct Parser {
    spans: Vec<Span>,
    style: TextStyle,
}

impl Parser {
    fn push(&mut self, c: char) {
        match self.spans.last_mut() {
            Some(last) if last.style == self.style => last.text.push(c),
            Some(_) | None => self.spans.push(Span { text: c.to_string(), style: self.style }),
        }
    }

    /// Removes the text of the last line.
    fn restart_line(&mut self) {
        while let Some(last) = self.spans.last_mut() {
            if let Some(end) = last.text.rfind('\n') {
                last.text.truncate(end + 1);
                return;
            }
            self.spans.pop();
        }
    }

    /// Handles an escape sequence after its first character, and returns what follows it.
    fn escape<'a>(&mut self, text: &'a str) -> &'a str {
        let mut chars = text.chars();
        match chars.next() {
            Some('[') => self.control_sequence(chars.as_str()),
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

    /// Handles a control sequence after its introducer, and returns what follows it.
    fn control_sequence<'a>(&mut self, text: &'a str) -> &'a str {
        let is_final = |c: char| ('@'..='~').contains(&c);
        // An invalid sequence ends before the first character that cannot be part of one.
        let end = text.find(|c: char| is_final(c) || !(' '..='?').contains(&c)).unwrap_or(text.len());
        let rest = &text[end..];
        match rest.strip_prefix('m') {
            Some(rest) => {
                self.style.apply(&text[..end]);
                rest
            }
            None => rest.strip_prefix(is_final).unwrap_or(rest),
        }
    }
}

impl TextStyle {
    /// The classes of the style: `a` and `b` with a number for the colours of the text and behind it, and letters for the rest.
    fn classes(&self) -> String {
        let colour = |prefix: &str, colour: Option<Colour>| {
            let index = colour.and_then(Colour::theme_index);
            index.map(|index| format!("{prefix}{index}"))
        };
        let flag = |is_set: bool, name: &str| is_set.then(|| name.to_owned());
        let classes = [
            colour("a", self.foreground),
            colour("b", self.background),
            flag(self.bold, "ab"),
            flag(self.dim, "ad"),
            flag(self.italic, "ai"),
            flag(self.underlined, "au"),
        ];
        classes.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Applies the parameters of a colour sequence.
    fn apply(&mut self, params: &str) {
        let mut params = params.split([';', ':']).map(|param| param.parse::<u16>().unwrap_or(0));
        while let Some(param) = params.next() {
            match param {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underlined = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                30..=37 => self.foreground = theme(param - 30),
                38 => self.foreground = extended(&mut params),
                39 => self.foreground = None,
                40..=47 => self.background = theme(param - 40),
                48 => self.background = extended(&mut params),
                49 => self.background = None,
                90..=97 => self.foreground = theme(param - 90 + 8),
                100..=107 => self.background = theme(param - 100 + 8),
                _ => {}
            }
        }
    }
}

fn theme(index: u16) -> Option<Colour> {
    u8::try_from(index).ok().map(Colour::Theme)
}

/// A colour of the palette of 256 (`5;N`) or a 24-bit one (`2;R;G;B`).
fn extended(params: &mut impl Iterator<Item = u16>) -> Option<Colour> {
    let mut byte = || u8::try_from(params.next()?).ok();
    match byte()? {
        2 => Some(Colour::Rgb(byte()?, byte()?, byte()?)),
        5 => Some(match byte()? {
            index @ 0..16 => Colour::Theme(index),
            index @ 16..232 => {
                let level = |value: u8| if value == 0 { 0 } else { 55 + 40 * value };
                let index = index - 16;
                Colour::Rgb(level(index / 36), level(index / 6 % 6), level(index % 6))
            }
            grey @ 232.. => Colour::Rgb(8 + 10 * (grey - 232), 8 + 10 * (grey - 232), 8 + 10 * (grey - 232)),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styled(text: &str, style: TextStyle) -> Span {
        Span { text: text.to_owned(), style }
    }

    #[test]
    fn colours_become_spans() {
        let red = TextStyle { foreground: Some(Colour::Theme(1)), bold: true, ..TextStyle::default() };
        let rgb = TextStyle {
            foreground: Some(Colour::Rgb(1, 2, 3)),
            background: Some(Colour::Theme(12)),
            ..TextStyle::default()
        };
        assert_eq!(
            spans("a\u{1b}[1;31mb\u{1b}[0mc\u{1b}[38;2;1;2;3m\u{1b}[104md\u{1b}[m"),
            [
                styled("a", TextStyle::default()),
                styled("b", red),
                styled("c", TextStyle::default()),
                styled("d", rgb)
            ]
        );
        let palette = |n: u8| spans(&format!("\u{1b}[38;5;{n}mx"))[0].style.foreground;
        assert_eq!(palette(3), Some(Colour::Theme(3)));
        assert_eq!(palette(196), Some(Colour::Rgb(255, 0, 0)));
        assert_eq!(palette(255), Some(Colour::Rgb(238, 238, 238)));
    }

    #[test]
    fn colours_are_classes_and_text_is_escaped() {
        assert_eq!(
            to_html("a\u{1b}[1;91mb<\u{1b}[0m\u{1b}[38;2;250;200;10;44mc\u{1b}[38;2;99;99;99;49md\u{202e}")
                .into_string(),
            r#"a<span class="a1 ab">b&lt;</span><span class="a3 b4">c</span>d‹U+202E›"#
        );
    }

    #[test]
    fn other_sequences_are_left_out() {
        for text in [
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
