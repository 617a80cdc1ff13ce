//! Draws a form in place of the input. Everything of it is shown whole: what does not fit wraps.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::{App, HEADER_ROWS};
use crate::clean::Clean;
use crate::conversation::margin;
use crate::form::{Field, FieldValue, Form};
use crate::request::{Request, Subject};
use crate::text::{pad, width, window, wrap};
use crate::theme::{Mark, Role};

/// The row of the cursor, and its column in a text.
type FormCursor = (usize, Option<usize>);

/// How far a value is indented below a title that is above it.
const ABOVE: usize = 2;

/// The columns of the parts of a form.
#[derive(Clone, Copy)]
struct FormLayout {
    columns: usize,
    lead: usize,
    /// The columns of the titles before the values.
    titles: usize,
}

impl FormLayout {
    fn blank(self) -> String {
        " ".repeat(self.lead + self.titles)
    }

    /// The columns of a value.
    fn room(self) -> usize {
        self.columns.saturating_sub(self.lead + self.titles).max(1)
    }
}

impl App {
    pub(super) fn draw_form(&mut self, request: &Request, area: Rect, buf: &mut Buffer) -> Option<Position> {
        let Subject::Form(form) = &request.subject else { return None };
        let (lines, cursor) = self.form_lines(form, area.width);
        let body = area.height.saturating_sub(HEADER_ROWS);
        let wanted = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(1);
        let panel = wanted.min(body);
        let view = Rect { y: area.y + HEADER_ROWS, height: body - panel, ..area };
        if view.height > 0 {
            self.draw_conversation(view, buf);
        }
        buf.set_line(area.x, view.bottom(), &self.request_rule(request, area.width), area.width);
        let top = view.bottom() + 1;
        let room = usize::from(area.bottom().saturating_sub(top));
        // The row of the cursor stays on the screen.
        let first = (cursor.0 + 2).saturating_sub(room).min(lines.len().saturating_sub(room));
        for (y, line) in (top..area.bottom()).zip(lines.iter().skip(first)) {
            buf.set_line(area.x, y, line, area.width);
        }
        let column = cursor.1?;
        let y = top + u16::try_from(cursor.0.checked_sub(first)?).ok()?;
        Some(Position::new(
            (area.x + u16::try_from(column).ok()?).min(area.right() - 1),
            y.min(area.bottom() - 1),
        ))
    }

    /// The lines of a form and its cursor.
    fn form_lines(&self, form: &Form, columns: u16) -> (Vec<Line<'static>>, FormCursor) {
        let lead = if margin(columns) == 0 { 0 } else { 3 };
        let columns_of_line = usize::from(columns);
        let indent = " ".repeat(lead);
        if let Some(url) = form.url() {
            // The address is above the agent's text, so that a long text does not hide it.
            let mut lines = link_lines(url, &indent, columns_of_line - lead);
            lines.push(Line::default());
            lines.extend(self.wrapped(form.message(), columns, Role::Text));
            return (lines, (0, None));
        }
        let mut cursor = (0, None);
        let mut lines = self.wrapped(form.message(), columns, Role::Text);
        lines.push(Line::default());
        // Titles that are too long are above their values.
        let titles = form.fields.iter().map(|field| width(&title_of(field)) + 2);
        let titles = titles.filter(|columns| *columns <= columns_of_line / 3).max().unwrap_or(0);
        let layout = FormLayout { columns: columns_of_line, lead, titles };
        for (index, field) in form.fields.iter().enumerate() {
            let is_current = self.form.cursor == index;
            if is_current {
                cursor.0 = lines.len();
            }
            let role = if is_current { Role::Accent } else { Role::Text };
            let title = title_of(field);
            let is_beside = width(&title) + 2 <= titles;
            let layout = if is_beside { layout } else { FormLayout { titles: ABOVE, ..layout } };
            let (values, value_cursor) = self.value_lines(field, is_current, layout);
            if !is_beside {
                for row in wrap(&title, columns_of_line - lead) {
                    lines.push(Line::from(vec![Span::raw(indent.clone()), self.span(row, role)]));
                }
            }
            if let Some((row, column)) = value_cursor {
                cursor = (lines.len() + row, column);
            }
            for (row, value) in values.into_iter().enumerate() {
                let mut spans = if row == 0 && is_beside {
                    vec![Span::raw(indent.clone()), self.span(pad(&title, titles, ""), role)]
                } else {
                    vec![Span::raw(layout.blank())]
                };
                spans.extend(value);
                lines.push(Line::from(spans));
            }
            let about = [field.description.as_ref().map(ToString::to_string), field.limits()];
            let about: Vec<String> = about.into_iter().flatten().collect();
            if !about.is_empty() {
                for row in wrap(&about.join("; "), layout.room()) {
                    lines.push(Line::from(vec![Span::raw(layout.blank()), self.span(row, Role::Dim)]));
                }
            }
            lines.push(Line::default());
        }
        if let Some(problem) = &self.form.problem {
            let text = format!("{} {problem}", self.mark(Mark::Failed));
            for row in wrap(&text, columns_of_line - lead) {
                lines.push(Line::from(vec![Span::raw(indent.clone()), self.span(row, Role::Error)]));
            }
            lines.push(Line::default());
        }
        let button = |text: &'static str, index: usize| {
            let role = if self.form.cursor == index { Role::Selected } else { Role::Text };
            self.span(text, role)
        };
        let fields = form.fields.len();
        if self.form.cursor >= fields {
            cursor = (lines.len(), None);
        }
        lines.push(Line::from(vec![
            Span::raw(indent),
            button("[ Submit ]", fields),
            Span::raw("   "),
            button("[ Decline ]", fields + 1),
        ]));
        (lines, cursor)
    }

    /// The rows of a value, and the cursor among them if the field has it.
    fn value_lines(
        &self,
        field: &Field,
        is_current: bool,
        layout: FormLayout,
    ) -> (Vec<Vec<Span<'static>>>, Option<FormCursor>) {
        let room = layout.room();
        match &field.value {
            FieldValue::Text(text) => {
                let mask = if self.look.theme.is_ascii { "*" } else { "•" };
                let shown = |text: &str| {
                    if field.is_secret() {
                        mask.repeat(text.chars().count())
                    } else {
                        Clean::line(text).to_string()
                    }
                };
                let typed = shown(if is_current { self.form.text.text() } else { text });
                let before = if is_current { shown(self.form.text.before_cursor()) } else { String::new() };
                let (part, column) = window(&typed, width(&before), room, self.mark(Mark::Ellipsis));
                let cursor = is_current.then(|| (0, Some(layout.lead + layout.titles + column)));
                (vec![vec![Span::raw(part)]], cursor)
            }
            FieldValue::Boolean(value) => {
                let role = if is_current { Role::Accent } else { Role::Text };
                let mark = if *value { "[x]" } else { "[ ]" };
                (vec![vec![self.span(mark, role)]], None)
            }
            FieldValue::One { options, chosen } => {
                let radio = self.mark(Mark::Radio);
                let mark = |index| {
                    if *chosen == Some(index) { format!("({radio}) ") } else { "( ) ".to_owned() }
                };
                let options = options.iter().enumerate().map(|(index, (_, name))| {
                    (mark(index), name.as_str(), Style::new(), *chosen == Some(index))
                });
                option_lines(options, room, is_current)
            }
            FieldValue::Many { options, chosen, cursor } => {
                let mark = |index| if chosen.get(index) == Some(&true) { "[x] " } else { "[ ] " }.to_owned();
                let options = options.iter().enumerate().map(|(index, (_, name))| {
                    let is_selected = is_current && *cursor == index;
                    let style = if is_selected { self.style(Role::Selected) } else { Style::new() };
                    (mark(index), name.as_str(), style, is_selected)
                });
                let all: Vec<_> =
                    options.clone().map(|(mark, name, style, _)| (format!("{mark}{name}"), style)).collect();
                let used: usize = all.iter().map(|(text, _)| width(text) + 3).sum();
                if used <= room + 3 {
                    let spans = all
                        .into_iter()
                        .flat_map(|(text, style)| [Span::styled(text, style), Span::raw("   ")]);
                    return (vec![spans.collect()], None);
                }
                option_lines(options, room, is_current)
            }
        }
    }
}

/// Options below each other, each with its mark, its style and whether the cursor is on it.
fn option_lines<'a>(
    options: impl Iterator<Item = (String, &'a str, Style, bool)>,
    room: usize,
    is_current: bool,
) -> (Vec<Vec<Span<'static>>>, Option<FormCursor>) {
    let mut lines = Vec::new();
    let mut cursor = None;
    for (mark, name, style, is_selected) in options {
        let indent = " ".repeat(width(&mark));
        for (row, text) in wrap(name, room.saturating_sub(width(&mark)).max(1)).into_iter().enumerate() {
            let before = if row == 0 { mark.clone() } else { indent.clone() };
            lines.push(vec![Span::styled(before, style), Span::styled(text, style)]);
        }
        if is_selected && is_current {
            cursor = Some((lines.len() - 1, None));
        }
    }
    (lines, cursor)
}

/// A title with a star if a value is required.
fn title_of(field: &Field) -> String {
    let star = if field.is_required() { " *" } else { "" };
    format!("{}{star}", field.title)
}

/// The rows of an address, with its host in bold.
fn link_lines(url: &str, indent: &str, columns: usize) -> Vec<Line<'static>> {
    let host = url.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next());
    let host = Clean::line(host.unwrap_or_default()).to_string();
    let rows = wrap(Clean::line(url).as_str(), columns).into_iter().map(|row| {
        let mut spans = vec![Span::raw(indent.to_owned())];
        match row.split_once(host.as_str()).filter(|_| !host.is_empty()) {
            Some((before, after)) => spans.extend([
                Span::raw(before.to_owned()),
                Span::styled(host.clone(), Style::new().add_modifier(Modifier::BOLD)),
                Span::raw(after.to_owned()),
            ]),
            None => spans.push(Span::raw(row)),
        }
        Line::from(spans)
    });
    rows.collect()
}
