//! Markdown as rows of styled text.

use pulldown_cmark::{Alignment, CodeBlockKind, CowStr, Event, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};

use super::row::{Text, Wrap};
use super::table::Table;
use crate::clean::Clean;
use crate::theme::{Colors, Mark, Role, Theme};
use parlor_view::blocks::{OPTIONS, Part, Splitter};
use parlor_view::highlight::Highlighter;

/// Prose is not wider.
pub(crate) const MAX_PROSE: usize = 100;

/// Code in a block that is still open is highlighted up to this length: all of it is parsed again with each chunk.
const MAX_OPEN_CODE: usize = 2 << 10;

/// Columns before code blocks and tables.
const INDENT: usize = 2;

/// Markdown that is rendered as it grows.
#[derive(Debug, Default)]
pub(crate) struct MarkdownView {
    splitter: Splitter,
    code: Option<Highlighter>,
    /// Whether anything was rendered.
    has_rows: bool,
}

/// How Markdown is rendered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkdownLayout {
    pub(crate) theme: Theme,
    pub(crate) width: usize,
    /// Columns at the end of the first row that are left free.
    pub(crate) reserved: usize,
    /// The style below all others.
    pub(crate) base: Style,
    /// Columns of prose.
    pub(crate) prose: usize,
    /// Columns before code blocks and tables.
    pub(crate) indent: usize,
}

impl MarkdownLayout {
    pub(crate) fn new(theme: Theme, width: usize) -> Self {
        let indent = INDENT.min(width / 4);
        Self { theme, width, reserved: 0, base: Style::new(), prose: width.min(MAX_PROSE), indent }
    }

    /// A layout for text that is copied: lines are not broken.
    pub(crate) fn unbroken(theme: Theme) -> Self {
        Self { prose: usize::MAX, indent: 0, ..Self::new(theme, usize::MAX) }
    }
}

impl MarkdownView {
    /// The rows that cannot change any more, since the last call, and the rows after them. `text` begins with the text of
    /// earlier calls.
    pub(crate) fn rows(&mut self, text: &str, layout: MarkdownLayout) -> (Vec<Text>, Vec<Text>) {
        let mut closed = Vec::new();
        for part in self.splitter.closed(text) {
            self.render(text, &part, layout, false, &mut closed);
        }
        // The state after the closed parts stays as it is.
        let (code, has_rows) = (self.code.clone(), self.has_rows);
        let mut open = Vec::new();
        for part in self.splitter.open(text) {
            self.render(text, &part, layout, true, &mut open);
        }
        (self.code, self.has_rows) = (code, has_rows);
        (closed, open)
    }

    /// Bytes that were parsed.
    pub(crate) fn parsed(&self) -> u64 {
        self.splitter.parsed()
    }

    fn render(
        &mut self,
        text: &str,
        part: &Part,
        layout: MarkdownLayout,
        is_open: bool,
        rows: &mut Vec<Text>,
    ) {
        let layout = MarkdownLayout { reserved: if self.has_rows { 0 } else { layout.reserved }, ..layout };
        let (new, has_gap) = match part {
            Part::Blocks(range) => (blocks(&text[range.clone()], None, layout, is_open), true),
            Part::Item { text: range, number, is_tight } => {
                (blocks(&text[range.clone()], *number, layout, is_open), !is_tight)
            }
            Part::CodeStart(language) => {
                self.code = Some(Highlighter::of_language(&text[language.clone()]));
                // The blank row before the first line; an empty block shows nothing.
                if self.has_rows {
                    rows.push(Text::default());
                }
                return;
            }
            Part::CodeLine(range) => {
                let code = self.code.get_or_insert_with(|| Highlighter::of_language(""));
                (code_rows(&text[range.clone()], code, layout), false)
            }
            Part::CodeEnd => {
                self.code = None;
                return;
            }
        };
        if has_gap && self.has_rows && !new.is_empty() {
            rows.push(Text::default());
        }
        self.has_rows |= !new.is_empty();
        rows.extend(new.into_iter().map(|row| row.over(layout.base)));
    }
}

/// The rows of a whole text.
pub(crate) fn markdown(text: &str, layout: MarkdownLayout) -> Vec<Text> {
    let (mut rows, open) = MarkdownView::default().rows(text, layout);
    rows.extend(open);
    rows
}

/// The first line of a Markdown text, without its marks.
pub(crate) fn first_line(text: &str) -> String {
    let start = (0..=text.len().min(1 << 10)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let mut line = String::new();
    for event in Parser::new_ext(&text[..start], OPTIONS) {
        match event {
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                line.push_str(text.trim_end_matches('\n'));
            }
            // Marks inside of a line do not end it.
            Event::End(
                TagEnd::Emphasis
                | TagEnd::Strong
                | TagEnd::Strikethrough
                | TagEnd::Superscript
                | TagEnd::Subscript
                | TagEnd::Link
                | TagEnd::Image,
            ) => {}
            Event::SoftBreak | Event::HardBreak | Event::End(_) | Event::Rule if !line.trim().is_empty() => {
                break;
            }
            Event::SoftBreak
            | Event::HardBreak
            | Event::End(_)
            | Event::Rule
            | Event::Start(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_) => {}
        }
    }
    line.trim().to_owned()
}

/// One line of code in colours.
pub(crate) fn code_line(line: &Clean, code: &mut Highlighter, theme: Theme) -> Text {
    let mut text = Text::default();
    let mut start = 0;
    for (end, token) in code.line(line.as_str()) {
        let style = theme.token(token);
        text.append(Text::foreign(theme, &line.as_str()[start..end], style));
        start = end;
    }
    text
}

fn code_rows(line: &str, code: &mut Highlighter, layout: MarkdownLayout) -> Vec<Text> {
    let indent = layout.indent;
    let line = code_line(&Clean::line(line), code, layout.theme);
    let room = layout.width - indent;
    let rows = line.wrap(room.saturating_sub(layout.reserved), room, Wrap::Anywhere);
    rows.into_iter().map(|row| Text::own(" ".repeat(indent), Style::new()).and(row)).collect()
}

fn blocks(text: &str, number: Option<u64>, layout: MarkdownLayout, is_open: bool) -> Vec<Text> {
    let mut renderer = Renderer {
        layout,
        is_open,
        number,
        rows: Vec::new(),
        prefixes: Vec::new(),
        inline: Text::default(),
        styles: vec![Style::new()],
        lists: Vec::new(),
        needs_gap: false,
        table: None,
        code: None,
        links: Vec::new(),
    };
    let parser = Parser::new_ext(text, OPTIONS);
    let mut definitions: Vec<_> = parser
        .reference_definitions()
        .iter()
        .map(|(_, definition)| text[definition.span.clone()].to_owned())
        .collect();
    definitions.sort();
    parser.for_each(|event| renderer.event(event));
    renderer.flush();
    for definition in definitions {
        let style = layout.theme.style(Role::Dim);
        renderer.inline = Text::foreign(layout.theme, &definition, style);
        renderer.flush();
    }
    renderer.rows
}

/// The marks before the rows of a container.
#[derive(Debug)]
struct Prefix {
    /// Before its first row; `None` if that is written.
    first: Option<Text>,
    rest: Text,
}

struct Renderer {
    layout: MarkdownLayout,
    is_open: bool,
    /// The number of the first item, if it continues a list.
    number: Option<u64>,
    rows: Vec<Text>,
    prefixes: Vec<Prefix>,
    inline: Text,
    styles: Vec<Style>,
    lists: Vec<Option<u64>>,
    needs_gap: bool,
    table: Option<Table>,
    code: Option<(Highlighter, String)>,
    /// The open links and images: their address and the width of the text before them.
    links: Vec<(String, usize, bool)>,
}

impl Renderer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(text) => {
                let theme = self.layout.theme;
                let style = self.style().patch(theme.inline_code());
                let mark = if theme.colors == Colors::None { "`" } else { "" };
                self.inline
                    .append(Text::own(mark, style).with_foreign(theme, &text, style).with_own(mark, style));
            }
            Event::Html(text) | Event::InlineHtml(text) => {
                let dim = self.layout.theme.style(Role::Dim);
                for (index, line) in text.lines().enumerate() {
                    if index > 0 {
                        self.flush();
                    }
                    self.inline.append(Text::foreign(self.layout.theme, line, self.style().patch(dim)));
                }
                if text.ends_with('\n') {
                    self.flush();
                }
            }
            // Agents break lines where they want them broken.
            Event::SoftBreak | Event::HardBreak => self.flush(),
            Event::Rule => {
                self.gap();
                let width = self.prose_width().min(MAX_PROSE);
                let line = self.layout.theme.mark(Mark::Horizontal).repeat(width);
                self.inline = Text::own(line, self.layout.theme.style(Role::Dim));
                self.flush();
                self.needs_gap = true;
            }
            Event::TaskListMarker(is_done) => {
                let mark = if is_done { "[x] " } else { "[ ] " };
                self.inline.append(Text::own(mark, self.style()));
            }
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                let underline = if level as usize == 1 { Modifier::UNDERLINED } else { Modifier::empty() };
                self.push_style(Style::new().add_modifier(Modifier::BOLD | underline));
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.gap();
                let bar = format!("{} ", self.layout.theme.mark(Mark::Vertical));
                let bar = Text::own(bar, self.layout.theme.style(Role::Dim));
                self.prefixes.push(Prefix { first: None, rest: bar });
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.gap();
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => info.as_ref(),
                    CodeBlockKind::Indented => "",
                };
                self.code = Some((Highlighter::of_language(language), String::new()));
            }
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.gap();
                }
                let continued = if self.lists.is_empty() { self.number.take() } else { None };
                self.lists.push(first.map(|first| continued.unwrap_or(first)));
            }
            Tag::Item => self.start_item(),
            Tag::Table(alignments) => {
                self.gap();
                self.table =
                    Some(Table::new(alignments.iter().map(|side| *side == Alignment::Right).collect()));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.start_row();
                }
            }
            Tag::TableCell => self.inline = Text::default(),
            Tag::Emphasis => self.push_style(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.push_style(Style::new().add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.push_style(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.inline.plain().len(), false));
                self.push_style(Style::new().add_modifier(Modifier::UNDERLINED));
            }
            Tag::Image { dest_url, .. } => {
                self.inline.append(Text::own("[image ", self.layout.theme.style(Role::Dim)));
                self.links.push((dest_url.into_string(), self.inline.plain().len(), true));
            }
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn start_item(&mut self) {
        self.flush();
        if self.needs_gap {
            self.gap();
        }
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            Some(None) | None => format!("{} ", self.layout.theme.mark(Mark::Bullet)),
        };
        let rest = Text::own(" ".repeat(crate::text::width(&mark)), Style::new());
        let first = Text::own(mark, self.layout.theme.style(Role::Dim));
        self.prefixes.push(Prefix { first: Some(first), rest });
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.needs_gap = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.needs_gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.prefixes.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.needs_gap |= self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                if self.prefixes.last().is_some_and(|prefix| prefix.first.is_some()) {
                    // An item without text.
                    self.push_rows(vec![Text::default()]);
                }
                self.prefixes.pop();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(table) = &mut self.table {
                    table.push(cell);
                }
            }
            TagEnd::Table => {
                let room = self.room(usize::MAX).saturating_sub(self.layout.indent);
                let table = self.table.take();
                let rows = table.map(|table| table.rows(room, self.layout.theme)).unwrap_or_default();
                let indent = Text::own(" ".repeat(self.layout.indent), Style::new());
                self.push_rows(rows.into_iter().map(|row| indent.clone().and(row)).collect());
                self.needs_gap = true;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Shows the address of a link, unless it is the text of the link.
    fn end_link(&mut self) {
        let Some((address, start, is_image)) = self.links.pop() else { return };
        let dim = self.layout.theme.style(Role::Dim);
        if !is_image {
            self.styles.pop();
        }
        let label = self.inline.plain().get(start..).unwrap_or_default().to_owned();
        let shown = address.strip_prefix("mailto:").unwrap_or(&address);
        let is_same = label == Clean::line(shown).as_str() || label == Clean::line(&address).as_str();
        let theme = self.layout.theme;
        match (is_image, is_same || address.is_empty()) {
            (true, true) => self.inline.append(Text::own("]", dim)),
            (true, false) => {
                let gap = if label.is_empty() { "" } else { ": " };
                self.inline.append(Text::own(gap, dim).with_foreign(theme, &address, dim).with_own("]", dim));
            }
            (false, true) => {}
            (false, false) => {
                self.inline
                    .append(Text::own(" (", dim).with_foreign(theme, &address, dim).with_own(")", dim));
            }
        }
    }

    fn end_code(&mut self) {
        let Some((mut code, text)) = self.code.take() else { return };
        if self.is_open && text.len() > MAX_OPEN_CODE {
            code = Highlighter::of_language("");
        }
        let layout = MarkdownLayout { width: self.room(usize::MAX), reserved: 0, ..self.layout };
        let rows = text.lines().flat_map(|line| code_rows(line, &mut code, layout)).collect();
        self.push_rows(rows);
        self.needs_gap = true;
    }

    fn text(&mut self, text: &CowStr<'_>) {
        if let Some((_, code)) = &mut self.code {
            code.push_str(text);
            return;
        }
        let style = self.style();
        self.inline.append(Text::foreign(self.layout.theme, text, style));
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push_style(&mut self, style: Style) {
        self.styles.push(self.style().patch(style));
    }

    /// Columns beside the prefixes, at most `most`.
    fn room(&self, most: usize) -> usize {
        let prefixes: usize = self.prefixes.iter().map(|prefix| prefix.rest.width()).sum();
        let width = self.layout.width.min(most);
        width.saturating_sub(prefixes).max(width.min(8))
    }

    fn prose_width(&self) -> usize {
        self.room(self.layout.prose)
    }

    /// Writes the text that was collected as rows of prose.
    fn flush(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        self.links.iter_mut().for_each(|(_, start, _)| *start = 0);
        if inline.is_empty() {
            return;
        }
        let width = self.prose_width();
        let reserved = if self.rows.is_empty() { self.layout.reserved } else { 0 };
        let free = self.layout.width.saturating_sub(self.layout.prose);
        let first = width.saturating_sub(reserved.saturating_sub(free)).max(width.min(8));
        self.push_rows(inline.wrap(first, width, Wrap::Words));
    }

    /// Writes a blank row before a block that follows another one.
    fn gap(&mut self) {
        self.flush();
        if std::mem::take(&mut self.needs_gap) && !self.rows.is_empty() {
            let prefix = self.prefixes.iter().map(|prefix| prefix.rest.clone());
            let row = prefix.fold(Text::default(), Text::and);
            let is_blank = row.plain().trim().is_empty();
            self.rows.push(if is_blank { Text::default() } else { row });
        }
    }

    fn push_rows(&mut self, rows: Vec<Text>) {
        let most = self.layout.width - self.room(usize::MAX);
        for row in rows {
            let mut prefix = Text::default();
            for part in &mut self.prefixes {
                prefix.append(part.first.take().unwrap_or_else(|| part.rest.clone()));
            }
            let prefix = if prefix.width() > most { prefix.cut(most, self.layout.theme) } else { prefix };
            self.rows.push(prefix.and(row));
        }
    }
}
