//! Output of programs as HTML, with classes for its colours.

use maud::{Markup, html};
use parlor_view::terminal::{TerminalColor, TerminalScreen, TerminalStyle};

use super::text::clean;

/// The screen after some output, and how many lines at its beginning are left out.
pub(crate) fn output(output: &[u8]) -> Markup {
    let screen = TerminalScreen::of(output);
    html! {
        @if screen.dropped() > 0 { header { (screen.dropped()) " lines before these are not shown" } }
        @if !screen.is_empty() {
            pre.term tabindex="0" aria-label="Output" {
                @for index in 0..screen.len() {
                    @if index > 0 { "\n" }
                    @for (text, style) in screen.line(index) {
                        @let classes = classes(&style);
                        @if classes.is_empty() { (clean(&text)) } @else { span class=(classes) { (clean(&text)) } }
                    }
                }
            }
        }
    }
}

/// The classes of a style: `a` and `b` with a number for the colours of the text and behind it, and letters for the rest.
fn classes(style: &TerminalStyle) -> String {
    let colour = |prefix: &str, colour: Option<TerminalColor>| {
        let index = colour.and_then(theme_index);
        index.map(|index| format!("{prefix}{index}"))
    };
    let flag = |is_set: bool, name: &str| is_set.then(|| name.to_owned());
    let classes = [
        colour("a", style.foreground),
        colour("b", style.background),
        flag(style.is_bold, "ab"),
        flag(style.is_dim, "ad"),
        flag(style.is_italic, "ai"),
        flag(style.is_underlined, "au"),
        flag(style.is_reversed, "ar"),
        flag(style.is_crossed_out, "ax"),
    ];
    classes.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The nearest of the eight colours of the page; `None` for greys, which are the colour of other text.
fn theme_index(colour: TerminalColor) -> Option<u8> {
    let (red, green, blue) = match colour {
        // The bright colours are not brighter: those of the page have enough contrast.
        TerminalColor::Index(index @ 0..16) => return Some(index % 8),
        TerminalColor::Index(index @ 16..232) => {
            let cube = index - 16;
            (cube / 36 * 51, cube / 6 % 6 * 51, cube % 6 * 51)
        }
        TerminalColor::Index(232..) => return None,
        TerminalColor::Rgb(red, green, blue) => (red, green, blue),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_classes_and_text_is_escaped() {
        let bytes = "a\u{1b}[1;91mb<\u{1b}[0m\u{1b}[38;2;250;200;10;44mc\u{1b}[38;5;196;49md\u{1b}[38;5;240me\u{202e}\r\n10%\r20%";
        assert_eq!(
            output(bytes.as_bytes()).into_string(),
            "<pre class=\"term\" tabindex=\"0\" aria-label=\"Output\">a<span class=\"a1 ab\">b&lt;</span>\
             <span class=\"a3 b4\">c</span><span class=\"a1\">d</span>e‹U+202E›\n20%</pre>"
        );
    }

    #[test]
    fn no_output_is_no_element_and_long_output_says_what_is_left_out() {
        assert_eq!(output(b" \n\n").into_string(), "");
        let long = output("x\n".repeat(5_000).as_bytes()).into_string();
        assert!(long.contains("lines before these are not shown"), "{}", &long[..200]);
    }
}
