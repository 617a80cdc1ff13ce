//! Source code with classes for its colours.

use std::ops::Range;

use maud::{Markup, html};
use parlor_view::highlight::{Highlighter, Token};

use crate::assets::icon;

/// A block of code that can be copied, in the language that a fence names.
pub(crate) fn block(text: &str, language: &str) -> Markup {
    highlighted(text, Highlighter::of_language(language))
}

/// A file that can be copied.
pub(crate) fn file(text: &str, path: &str) -> Markup {
    highlighted(text, Highlighter::of_path(path))
}

fn highlighted(text: &str, mut highlighter: Highlighter) -> Markup {
    html! {
        div.code {
            pre tabindex="0" {
                code {
                    @for (index, line) in text.split('\n').enumerate() {
                        @if index > 0 { "\n" }
                        (line_html(line, &mut highlighter))
                    }
                }
            }
            button.btn.quiet.small.icon type="button" data-do="copy-code" aria-label="Copy code" { (icon("copy", "")) }
        }
    }
}

/// The next line of some code, which is clean and has no line break.
pub(crate) fn line_html(line: &str, highlighter: &mut Highlighter) -> Markup {
    marked_line_html(line, highlighter, &(0..0))
}

/// The same with a part that is marked.
pub(crate) fn marked_line_html(line: &str, highlighter: &mut Highlighter, marked: &Range<usize>) -> Markup {
    let mut start = 0;
    html! {
        @for (end, token) in highlighter.line(line) {
            @let from = std::mem::replace(&mut start, end);
            @let (before, after) = (marked.start.clamp(from, end), marked.end.clamp(from, end));
            (token_html(&line[from..before], token))
            @if before < after { mark { (token_html(&line[before..after], token)) } }
            (token_html(&line[before.max(after)..end], token))
        }
    }
}

fn token_html(text: &str, token: Token) -> Markup {
    html! {
        @if let Some(class) = class(token).filter(|_| !text.is_empty()) { span class=(class) { (text) } } @else { (text) }
    }
}

fn class(token: Token) -> Option<&'static str> {
    match token {
        Token::Plain => None,
        Token::Comment => Some("c"),
        Token::Keyword => Some("k"),
        Token::String => Some("s"),
        Token::Number => Some("n"),
        Token::Type => Some("ty"),
        Token::Function => Some("f"),
        Token::Added => Some("plus"),
        Token::Removed => Some("minus"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_classes() {
        let html = block("let a = \"<b>\"; // x\nf(1)", "rust").into_string();
        let code = html.split_once("<code>").unwrap().1.split_once("</code>").unwrap().0;
        assert_eq!(
            code,
            "<span class=\"k\">let</span> a = <span class=\"s\">&quot;&lt;b&gt;&quot;</span>; <span class=\"c\">// x</span>\n\
             <span class=\"f\">f</span>(<span class=\"n\">1</span>)"
        );
        assert!(block("x y", "").into_string().contains("<code>x y</code>"));
    }
}
