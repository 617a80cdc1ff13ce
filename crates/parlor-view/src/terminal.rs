//! Terminal output as lines with colours, for any output: escape sequences are interpreted and never passed on.

use anstyle_parse::{DefaultCharAccumulator, Params, Parser, Perform};

/// Lines that are kept; earlier ones are counted.
pub const MAX_LINES: usize = 2_000;

/// Columns of a line that are kept.
const MAX_COLUMNS: usize = 4_000;

/// Bytes of output that are interpreted at once; of more, only the end is.
const MAX_BYTES: usize = 256 << 10;

/// Rows that the cursor can reach, as on a real terminal.
const SCREEN_ROWS: usize = 50;

/// A colour that a program chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalColor {
    /// One of the terminal's 256.
    Index(u8),
    /// 24 bits.
    Rgb(u8, u8, u8),
}

/// How a program styled its output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an attribute that can be set by itself")]
pub struct TerminalStyle {
    /// The colour of the text.
    pub foreground: Option<TerminalColor>,
    /// The colour behind the text.
    pub background: Option<TerminalColor>,
    /// Bold.
    pub is_bold: bool,
    /// Dim.
    pub is_dim: bool,
    /// Italic.
    pub is_italic: bool,
    /// Underlined.
    pub is_underlined: bool,
    /// Reversed.
    pub is_reversed: bool,
    /// Crossed out.
    pub is_crossed_out: bool,
}

/// The screen that output was written to, without a limit of its width.
#[derive(Debug, Default)]
pub struct TerminalScreen {
    parser: Parser<DefaultCharAccumulator>,
    grid: Grid,
    /// Bytes of the output that were interpreted.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Grid {
    lines: Vec<Vec<Cell>>,
    row: usize,
    column: usize,
    style: TerminalStyle,
    saved: (usize, usize),
    /// Lines that were dropped at the beginning.
    dropped: usize,
    /// The first row after the screen was last erased.
    erased: usize,
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    character: char,
    style: TerminalStyle,
}

impl TerminalScreen {
    /// The screen after some output.
    pub fn of(output: &[u8]) -> Self {
        let mut screen = Self::default();
        screen.update(output);
        screen
    }

    /// Interprets the output that was appended since the last call.
    pub fn update(&mut self, output: &[u8]) {
        let start = self.bytes.max(output.len().saturating_sub(MAX_BYTES));
        if start > self.bytes {
            let skipped = &output[self.bytes..start];
            self.grid.dropped += memchr::memchr_iter(b'\n', skipped).count();
        }
        for byte in output.get(start..).unwrap_or_default() {
            self.parser.advance(&mut self.grid, *byte);
        }
        self.bytes = output.len();
    }

    /// Bytes of the output that were interpreted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lines at the beginning that are not kept.
    pub fn dropped(&self) -> usize {
        self.grid.dropped
    }

    /// The number of lines, without blank ones at the end.
    pub fn len(&self) -> usize {
        let is_blank = |line: &Vec<Cell>| line.iter().all(|cell| cell.character == ' ');
        self.grid.lines.iter().rposition(|line| !is_blank(line)).map_or(0, |last| last + 1)
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A line in parts of one style.
    pub fn line(&self, index: usize) -> Vec<(String, TerminalStyle)> {
        let line = self.grid.lines.get(index).map(Vec::as_slice).unwrap_or_default();
        let end = line.iter().rposition(|cell| cell.character != ' ' || cell.style.background.is_some());
        let mut parts: Vec<(String, TerminalStyle)> = Vec::new();
        for cell in line[..end.map_or(0, |end| end + 1)].iter().filter(|cell| cell.character != FILLER) {
            match parts.last_mut() {
                Some((text, style)) if *style == cell.style => text.push(cell.character),
                Some(_) | None => parts.push((cell.character.to_string(), cell.style)),
            }
        }
        parts
    }

    /// The text without styles.
    pub fn text(&self) -> String {
        let line = |index| self.line(index).into_iter().map(|(text, _)| text).collect::<String>();
        (0..self.len()).map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The second column of a wide character.
const FILLER: char = '\0';

impl Grid {
    fn line(&mut self) -> &mut Vec<Cell> {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, Vec::new());
        }
        &mut self.lines[self.row]
    }

    fn put(&mut self, character: char) {
        let columns = unicode_width::UnicodeWidthChar::width(character).unwrap_or(1);
        let (column, style) = (self.column, self.style);
        if column + columns > MAX_COLUMNS {
            return;
        }
        let line = self.line();
        let blank = Cell { character: ' ', style: TerminalStyle::default() };
        if line.len() < column {
            line.resize(column, blank);
        }
        let cells = [Cell { character, style }, Cell { character: FILLER, style }];
        // A combining character is kept beside the one that it belongs to.
        for (offset, cell) in cells.into_iter().take(columns.max(1)).enumerate() {
            match line.get_mut(column + offset) {
                Some(old) => *old = cell,
                None => line.push(cell),
            }
        }
        self.column += columns.max(1);
    }

    fn line_feed(&mut self) {
        self.row += 1;
        self.column = 0;
        self.line();
        if self.lines.len() > MAX_LINES + SCREEN_ROWS {
            let excess = self.lines.len() - MAX_LINES;
            self.lines.drain(..excess);
            self.dropped += excess;
            self.row -= excess.min(self.row);
            self.saved.0 -= excess.min(self.saved.0);
            self.erased -= excess.min(self.erased);
        }
    }

    /// The first row that the cursor can reach.
    fn top(&self) -> usize {
        self.lines.len().saturating_sub(SCREEN_ROWS).max(self.erased)
    }

    fn move_to(&mut self, row: usize, column: usize) {
        self.row = row.clamp(self.top(), self.top() + SCREEN_ROWS - 1);
        self.column = column.min(MAX_COLUMNS);
    }

    fn erase_line(&mut self, mode: u16) {
        let column = self.column;
        let line = self.line();
        match mode {
            0 => line.truncate(column),
            1 => {
                let end = line.len().min(column + 1);
                line[..end].fill(Cell { character: ' ', style: TerminalStyle::default() });
            }
            _ => line.clear(),
        }
    }

    fn erase_screen(&mut self, mode: u16) {
        match mode {
            0 => {
                self.erase_line(0);
                self.lines.truncate(self.row + 1);
            }
            1 => {
                let (top, row) = (self.top(), self.row.min(self.lines.len()));
                self.lines[top.min(row)..row].iter_mut().for_each(Vec::clear);
                self.erase_line(1);
            }
            // What was erased stays readable: the screen continues below it.
            _ => {
                self.row = self.lines.len();
                self.column = 0;
                self.erased = self.row;
                self.line();
            }
        }
    }

    fn set_style(&mut self, params: &Params) {
        let style = &mut self.style;
        let mut codes = params.iter().flat_map(|param| param.iter().copied()).peekable();
        if codes.peek().is_none() {
            *style = TerminalStyle::default();
        }
        while let Some(code) = codes.next() {
            let index = |base: u16| u8::try_from(code - base).ok().map(TerminalColor::Index);
            match code {
                0 => *style = TerminalStyle::default(),
                1 => style.is_bold = true,
                2 => style.is_dim = true,
                3 => style.is_italic = true,
                4 => style.is_underlined = true,
                7 => style.is_reversed = true,
                9 => style.is_crossed_out = true,
                22 => (style.is_bold, style.is_dim) = (false, false),
                23 => style.is_italic = false,
                24 => style.is_underlined = false,
                27 => style.is_reversed = false,
                29 => style.is_crossed_out = false,
                30..=37 => style.foreground = index(30),
                38 => style.foreground = extended(&mut codes),
                39 => style.foreground = None,
                40..=47 => style.background = index(40),
                48 => style.background = extended(&mut codes),
                49 => style.background = None,
                90..=97 => style.foreground = index(82),
                100..=107 => style.background = index(92),
                // Hidden text (8) stays visible.
                _ => {}
            }
        }
    }
}

/// A colour after 38 or 48.
fn extended(codes: &mut impl Iterator<Item = u16>) -> Option<TerminalColor> {
    let byte = |codes: &mut dyn Iterator<Item = u16>| u8::try_from(codes.next()?).ok();
    match codes.next()? {
        5 => byte(codes).map(TerminalColor::Index),
        2 => Some(TerminalColor::Rgb(byte(codes)?, byte(codes)?, byte(codes)?)),
        _ => None,
    }
}

impl Perform for Grid {
    fn print(&mut self, character: char) {
        self.put(character);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' | 0x0b | 0x0c => self.line_feed(),
            b'\r' => self.column = 0,
            0x08 => self.column = self.column.saturating_sub(1),
            b'\t' => self.column = (self.column / 8 + 1) * 8,
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: u8) {
        if ignore || !intermediates.is_empty() {
            return;
        }
        let param = |index: usize| params.iter().nth(index).and_then(|param| param.first().copied());
        let count = usize::from(param(0).unwrap_or(1).max(1)).min(MAX_COLUMNS);
        let second = usize::from(param(1).unwrap_or(1).max(1));
        match action {
            b'A' => self.move_to(self.row.saturating_sub(count), self.column),
            b'B' => self.move_to(self.row + count, self.column),
            b'C' => self.move_to(self.row, self.column + count),
            b'D' => self.move_to(self.row, self.column.saturating_sub(count)),
            b'E' => self.move_to(self.row + count, 0),
            b'F' => self.move_to(self.row.saturating_sub(count), 0),
            b'G' => self.column = count - 1,
            b'H' | b'f' => self.move_to(self.top() + count - 1, second - 1),
            b'J' => self.erase_screen(param(0).unwrap_or(0)),
            b'K' => self.erase_line(param(0).unwrap_or(0)),
            b'm' => self.set_style(params),
            b's' => self.saved = (self.row, self.column),
            b'u' => self.move_to(self.saved.0, self.saved.1),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, _intermediates: &[u8], _ignore: bool, byte: u8) {
        match byte {
            b'7' => self.saved = (self.row, self.column),
            b'8' => self.move_to(self.saved.0, self.saved.1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_that_is_written_again_replaces_the_earlier_one() {
        for (output, text) in [
            ("10%\r20%\rdone\n", "done"),
            ("abc\r\x1b[Kx\n", "x"),
            ("one\ntwo\n\x1b[1A\x1b[2Kthree\n", "one\nthree"),
            ("a\x08b", "b"),
            ("a\tb", "a       b"),
            ("漢\x08\x08x", "x"),
            ("one\x1b[2J\x1b[Htwo", "one\ntwo"),
            ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
            ("\x1b[?25lx\x1b[?1049h", "x"),
            ("tail\n\n\n", "tail"),
        ] {
            assert_eq!(TerminalScreen::of(output.as_bytes()).text().replace(FILLER, ""), text, "{output:?}");
        }
    }

    #[test]
    fn colours_and_attributes_are_kept_and_hidden_text_is_visible() {
        let screen = TerminalScreen::of(b"\x1b[1;31mred\x1b[0m \x1b[38;5;208mx\x1b[48;2;1;2;3;8my\x1b[m");
        let line = screen.line(0);
        assert_eq!(line[0].0, "red");
        assert_eq!((line[0].1.foreground, line[0].1.is_bold), (Some(TerminalColor::Index(1)), true));
        assert_eq!(line[2].1.foreground, Some(TerminalColor::Index(208)));
        assert_eq!((line[3].0.as_str(), line[3].1.background), ("y", Some(TerminalColor::Rgb(1, 2, 3))));
    }

    #[test]
    fn much_output_keeps_its_end_and_counts_the_rest() {
        let output: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
        let screen = TerminalScreen::of(output.as_bytes());
        assert!(screen.len() <= MAX_LINES + SCREEN_ROWS, "{}", screen.len());
        assert_eq!(screen.dropped() + screen.len(), 100_000);
        assert!(screen.text().ends_with("line 99999"));
        let screen = TerminalScreen::of("x".repeat(1 << 20).as_bytes());
        assert_eq!(screen.text().len(), MAX_COLUMNS);
    }

    #[test]
    fn output_in_pieces_is_output_at_once() {
        let output = "a\x1b[31mé漢\r\nb\x1b[1Ac\n".repeat(20);
        let mut screen = TerminalScreen::default();
        for end in 0..=output.len() {
            screen.update(&output.as_bytes()[..end]);
        }
        assert_eq!(screen.text(), TerminalScreen::of(output.as_bytes()).text());
    }

    proptest! {
        #[test]
        fn no_output_makes_it_fail(output: Vec<u8>, text in "(\\x1b\\[[0-9;]{0,6}[A-HJKfmsu]|[a漢\\n\\r\\t\\x08]){0,60}") {
            TerminalScreen::of(&output);
            let screen = TerminalScreen::of(text.as_bytes());
            prop_assert!(!screen.text().contains(|c: char| c.is_control() && c != '\n' && c != FILLER));
        }
    }
}
