//! Rendered lines as text with escape sequences, for commands that print them instead of drawing a screen.

use std::fmt::Write as _;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use crate::entry::markdown::{MarkdownLayout, MarkdownView};
use crate::theme::Theme;

/// Markdown that is printed while it grows.
#[derive(Debug, Default)]
pub struct MarkdownRows(MarkdownView);

impl MarkdownRows {
    /// The rows that cannot change any more, since the last call, and the rows after them. `text` begins with the text of earlier
    /// calls.
    pub fn rows(&mut self, text: &str, theme: Theme, width: u16) -> (Vec<String>, Vec<String>) {
        let width = usize::from(width.max(1));
        let layout = MarkdownLayout::new(theme, width);
        let (closed, open) = self.0.rows(text, layout);
        let print = |rows: Vec<crate::entry::row::Text>| {
            rows.into_iter().map(|row| ansi(&row.into_line(width, theme))).collect()
        };
        (print(closed), print(open))
    }
}

/// The text of a line with its styles.
pub fn ansi(line: &Line<'_>) -> String {
    let mut text = String::new();
    for span in &line.spans {
        let codes = codes(line.style.patch(span.style));
        if codes.is_empty() {
            text.push_str(&span.content);
        } else {
            let _ = write!(text, "\u{1b}[{}m{}\u{1b}[0m", codes.join(";"), span.content);
        }
    }
    text.truncate(text.trim_end_matches(' ').len());
    text
}

/// The parameters of the sequence that selects a style.
fn codes(style: Style) -> Vec<String> {
    let modifiers = [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::ITALIC, "3"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::REVERSED, "7"),
        (Modifier::CROSSED_OUT, "9"),
    ];
    let is_set = |modifier: Modifier| style.add_modifier.contains(modifier);
    let modifiers = modifiers.into_iter().filter(|(modifier, _)| is_set(*modifier));
    let mut codes: Vec<String> = modifiers.map(|(_, code)| code.to_owned()).collect();
    codes.extend(style.fg.and_then(|color| color_code(color, 30)));
    codes.extend(style.bg.and_then(|color| color_code(color, 40)));
    codes
}

/// The parameters of a colour: `base` is 30 for the text and 40 for the background.
fn color_code(color: Color, base: u8) -> Option<String> {
    let bright = base + 60;
    Some(match color {
        Color::Reset => return None,
        Color::Rgb(red, green, blue) => format!("{};2;{red};{green};{blue}", base + 8),
        Color::Indexed(index) => format!("{};5;{index}", base + 8),
        Color::Black => base.to_string(),
        Color::Red => (base + 1).to_string(),
        Color::Green => (base + 2).to_string(),
        Color::Yellow => (base + 3).to_string(),
        Color::Blue => (base + 4).to_string(),
        Color::Magenta => (base + 5).to_string(),
        Color::Cyan => (base + 6).to_string(),
        Color::Gray => (base + 7).to_string(),
        Color::DarkGray => bright.to_string(),
        Color::LightRed => (bright + 1).to_string(),
        Color::LightGreen => (bright + 2).to_string(),
        Color::LightYellow => (bright + 3).to_string(),
        Color::LightBlue => (bright + 4).to_string(),
        Color::LightMagenta => (bright + 5).to_string(),
        Color::LightCyan => (bright + 6).to_string(),
        Color::White => (bright + 7).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::Colors;

    #[test]
    fn markdown_that_grows_is_printed_once_and_as_a_whole() {
        let theme = Theme { colors: Colors::None, is_light: false, is_ascii: false };
        let text = "Some **bold** text.\n\n- one\n- two\n\n```\ncode\n```\n\nThe end.";
        let (mut printed, mut markdown) = (Vec::new(), MarkdownRows::default());
        let mut open = Vec::new();
        for end in 0..=text.len() {
            let (closed, rest) = markdown.rows(&text[..end], theme, 40);
            printed.extend(closed);
            open = rest;
        }
        assert!(!printed.is_empty(), "some blocks are closed before the end");
        printed.extend(open);
        let (mut whole, rest) = MarkdownRows::default().rows(text, theme, 40);
        whole.extend(rest);
        assert_eq!(printed, whole);
        assert_eq!(whole[0], "Some \u{1b}[1mbold\u{1b}[0m text.");
    }

    #[test]
    fn styles_are_escape_sequences() {
        let style = Style::new().fg(Color::Cyan).bg(Color::Rgb(1, 2, 3)).add_modifier(Modifier::BOLD);
        let line = Line::from(vec![ratatui::text::Span::styled("a", style), "b  ".into()]);
        assert_eq!(ansi(&line), "\u{1b}[1;36;48;2;1;2;3ma\u{1b}[0mb");
    }
}
