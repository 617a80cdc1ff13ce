//! Colour roles and marks.

use ratatui::style::{Color, Modifier, Style};

use parlor_view::highlight::Token;

/// The use of a style; the program names no colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything else.
    Text,
    /// Prompts, running, unread, the mark of the cursor's row.
    Accent,
    /// Times, numbers, folded text, the texts beside key names.
    Dim,
    /// Added lines, completed.
    Added,
    /// Removed lines.
    Removed,
    /// A request waits for a person; the context is nearly full.
    Warning,
    /// Failed, lost connection.
    Error,
    /// The selected row or entry.
    Selected,
    /// Search hits.
    Match,
}

/// A mark, drawn in Unicode or ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A request waits for a person.
    NeedsYou,
    /// Running.
    Running,
    /// Failed.
    Failed,
    /// Idle and not read yet.
    Unread,
    /// Not started.
    Pending,
    /// Completed.
    Completed,
    /// Cancelled.
    Cancelled,
    /// A folded entry.
    Folded,
    /// An unfolded entry.
    Unfolded,
    /// A prompt, the input, the cursor's row.
    Prompt,
    /// Text that was cut.
    Ellipsis,
    /// Between parts of a line.
    Dot,
    /// A vertical line.
    Vertical,
    /// A horizontal line.
    Horizontal,
    /// A branch with more below.
    Branch,
    /// The last branch.
    LastBranch,
    /// The bar beside the selected entry.
    Bar,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Left.
    Left,
    /// Right.
    Right,
    /// The filled part of a meter.
    Meter,
    /// The empty part of a meter.
    MeterRest,
    /// A chosen option of several.
    Radio,
    /// An item of a list in a message.
    Bullet,
}

/// How many colours the terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    /// None: `NO_COLOR` is set or the terminal has none.
    None,
    /// The terminal's own 16.
    Ansi,
    /// 24 bits.
    True,
}

/// Styles and marks for one terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// How many colours are used.
    pub colors: Colors,
    /// Whether the background is light.
    pub is_light: bool,
    /// Whether marks are ASCII.
    pub is_ascii: bool,
}

impl Theme {
    /// Chooses a theme by environment variables (`NO_COLOR`, `TERM`, `COLORTERM`, `LC_ALL`, `LC_CTYPE`, `LANG`).
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_some_and(|term| term == "dumb");
        let colors = if variable("NO_COLOR").is_some() || is_dumb {
            Colors::None
        } else if variable("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit") {
            Colors::True
        } else {
            Colors::Ansi
        };
        let locale = variable("LC_ALL").or_else(|| variable("LC_CTYPE")).or_else(|| variable("LANG"));
        let is_utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Self { colors, is_light: false, is_ascii: !is_utf8 }
    }

    /// The style of a role.
    pub fn style(&self, role: Role) -> Style {
        let style = Style::new();
        let has_color = self.colors != Colors::None;
        let in_color = |color| if has_color { style.fg(color) } else { style };
        let strong = if self.is_light { Color::Magenta } else { Color::Yellow };
        match role {
            Role::Text => style,
            Role::Accent if has_color => style.fg(Color::Cyan),
            Role::Accent => style.add_modifier(Modifier::BOLD),
            Role::Dim if has_color && self.is_light => style.add_modifier(Modifier::DIM),
            Role::Dim => in_color(Color::DarkGray),
            Role::Added => in_color(Color::Green),
            Role::Removed => in_color(Color::Red),
            Role::Warning => in_color(strong).add_modifier(Modifier::BOLD),
            Role::Error => in_color(Color::Red).add_modifier(Modifier::BOLD),
            Role::Selected => style.add_modifier(Modifier::REVERSED),
            Role::Match => in_color(strong).add_modifier(Modifier::UNDERLINED),
        }
    }

    /// The style of a part of source code: 24-bit colours for the background, or the terminal's own.
    pub fn token(&self, token: Token) -> Style {
        let style = Style::new();
        // Each has a contrast of at least 4 to the background.
        let (dark, light, own) = match token {
            Token::Plain => return style,
            Token::Added => return self.style(Role::Added),
            Token::Removed => return self.style(Role::Removed),
            Token::Comment if self.colors == Colors::Ansi => return self.style(Role::Dim),
            Token::Comment => (0x87_8f_9a, 0x6a_73_7d, Color::DarkGray),
            Token::Keyword => (0xd1_8f_f0, 0x8a_2b_c2, Color::Magenta),
            Token::String => (0x9a_cd_68, 0x2f_75_1a, Color::Green),
            Token::Number => (0xe0_a4_5e, 0xa3_52_00, Color::Yellow),
            Token::Type => (0xe5_c0_7b, 0x8a_60_00, Color::Yellow),
            Token::Function => (0x6c_b6_f5, 0x0b_5c_ad, Color::Blue),
        };
        match self.colors {
            Colors::None => style,
            Colors::Ansi => style.fg(own),
            Colors::True => style.fg(Color::from_u32(if self.is_light { light } else { dark })),
        }
    }

    /// The style of code in a line of prose.
    pub fn inline_code(&self) -> Style {
        self.style(if self.colors == Colors::None { Role::Text } else { Role::Accent })
    }

    /// The background of an added or a removed line; only with 24-bit colour.
    pub fn diff_background(&self, is_added: bool) -> Style {
        if self.colors != Colors::True {
            return Style::new();
        }
        Style::new().bg(Color::from_u32(match (is_added, self.is_light) {
            (true, false) => 0x14_2b_1a,
            (true, true) => 0xe2_f5_e5,
            (false, false) => 0x35_19_1c,
            (false, true) => 0xfb_e6_e6,
        }))
    }

    /// The characters of a mark.
    pub fn mark(&self, mark: Mark) -> &'static str {
        let (unicode, ascii) = match mark {
            Mark::NeedsYou => ("!", "!"),
            Mark::Running => ("●", "*"),
            Mark::Failed => ("✗", "x"),
            Mark::Unread => ("◆", "+"),
            Mark::Pending => ("○", "o"),
            Mark::Completed => ("✓", "v"),
            Mark::Cancelled => ("⊘", "/"),
            Mark::Folded => ("▸", "+"),
            Mark::Unfolded => ("▾", "-"),
            Mark::Prompt => ("›", ">"),
            Mark::Ellipsis => ("…", "..."),
            Mark::Dot => ("·", "-"),
            Mark::Vertical => ("│", "|"),
            Mark::Horizontal | Mark::MeterRest => ("─", "-"),
            Mark::Branch => ("├", "+"),
            Mark::LastBranch => ("└", "+"),
            Mark::Bar => ("▌", "|"),
            Mark::Up => ("↑", "Up"),
            Mark::Down => ("↓", "Dn"),
            Mark::Left => ("←", "<"),
            Mark::Right => ("→", ">"),
            Mark::Meter => ("━", "#"),
            Mark::Radio => ("•", "*"),
            Mark::Bullet => ("•", "-"),
        };
        if self.is_ascii { ascii } else { unicode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(variables: &[(&str, &str)]) -> Theme {
        Theme::from_env(|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_chooses_colours_and_characters() {
        for (variables, colors, is_ascii) in [
            (&[][..], Colors::Ansi, true),
            (&[("LANG", "de_DE.UTF-8")], Colors::Ansi, false),
            (&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")], Colors::Ansi, true),
            (&[("LC_CTYPE", "en_US.utf8"), ("COLORTERM", "truecolor")], Colors::True, false),
            (&[("LANG", "C.UTF-8"), ("COLORTERM", "24bit"), ("NO_COLOR", "1")], Colors::None, false),
            (&[("LANG", "C.UTF-8"), ("NO_COLOR", "")], Colors::Ansi, false),
            (&[("LANG", "C.UTF-8"), ("TERM", "dumb")], Colors::None, false),
        ] {
            assert_eq!(theme(variables), Theme { colors, is_light: false, is_ascii }, "{variables:?}");
        }
    }

    #[test]
    fn without_colour_roles_are_told_by_bold_underline_and_reverse_only() {
        let theme = theme(&[("NO_COLOR", "1")]);
        for role in [
            Role::Text,
            Role::Accent,
            Role::Dim,
            Role::Added,
            Role::Removed,
            Role::Warning,
            Role::Error,
            Role::Selected,
            Role::Match,
        ] {
            let style = theme.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
        assert_eq!(theme.style(Role::Dim), Style::new());
        assert_eq!(theme.style(Role::Warning), Style::new().add_modifier(Modifier::BOLD));
        assert_eq!(theme.diff_background(true), Style::new());
        assert_eq!(theme.token(Token::Keyword), Style::new());
    }

    #[test]
    fn a_light_background_has_no_yellow_and_no_bright_black() {
        let theme = Theme { colors: Colors::Ansi, is_light: true, is_ascii: false };
        assert_eq!(theme.style(Role::Warning).fg, Some(Color::Magenta));
        assert_eq!(theme.style(Role::Match).fg, Some(Color::Magenta));
        assert_eq!(theme.style(Role::Dim), Style::new().add_modifier(Modifier::DIM));
    }
    /// The contrast of two colours as WCAG defines it.
    fn contrast(one: Color, other: Color) -> f64 {
        let luminance = |color: Color| {
            let Color::Rgb(red, green, blue) = color else { panic!("{color}") };
            let part = |value: u8| {
                let value = f64::from(value) / 255.0;
                if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue)
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn code_can_be_read_on_each_background() {
        for is_light in [false, true] {
            let theme = Theme { colors: Colors::True, is_light, is_ascii: false };
            let screen = if is_light { Color::Rgb(255, 255, 255) } else { Color::Rgb(0, 0, 0) };
            let backgrounds = [Some(screen), theme.diff_background(true).bg, theme.diff_background(false).bg];
            for background in backgrounds.into_iter().flatten() {
                for token in [
                    Token::Comment,
                    Token::Keyword,
                    Token::String,
                    Token::Number,
                    Token::Type,
                    Token::Function,
                ] {
                    let contrast = contrast(theme.token(token).fg.unwrap(), background);
                    assert!(contrast >= 4.0, "{token:?} on {background}: {contrast}");
                }
            }
        }
    }
}
