//! Colour roles and marks.

use ratatui::style::{Color, Modifier, Style};

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
            Mark::Horizontal => ("─", "-"),
            Mark::Branch => ("├", "+"),
            Mark::LastBranch => ("└", "+"),
            Mark::Bar => ("▌", "|"),
            Mark::Up => ("↑", "Up"),
            Mark::Down => ("↓", "Dn"),
            Mark::Left => ("←", "<"),
            Mark::Right => ("→", ">"),
            Mark::Meter => ("━", "#"),
            Mark::MeterRest => ("─", "-"),
            Mark::Radio => ("•", "*"),
        };
        if self.is_ascii { ascii } else { unicode }
    }
}
