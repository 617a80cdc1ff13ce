//! Changes of files as tables.

use std::ops::Range;

use maud::{Markup, html};
use parlor_view::diff::{DiffLine, FileDiff, LineKind};
use parlor_view::highlight::Highlighter;

use super::code::{line_html, marked_line_html};
use super::text::{clean, clean_line};

/// Lines of one diff that are shown. The number of the others is shown as well.
const MAX_LINES: usize = 2_000;

/// A row of the table: a line with its numbers before and after the change.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    line: &'a DiffLine,
    old: Option<usize>,
    new: Option<usize>,
    /// Whether lines are left out before it.
    is_after_gap: bool,
}

/// The rows of a diff. A context line has one number; the other follows from the lines that were added and removed before it.
fn rows(diff: &FileDiff) -> Vec<Row<'_>> {
    let (mut added, mut removed) = (0, 0);
    let mut next_new = None;
    let mut rows = Vec::with_capacity(diff.lines.len());
    for line in &diff.lines {
        let (old, new) = match line.kind {
            LineKind::Context => {
                (line.number.and_then(|new| (new + removed).checked_sub(added)), line.number)
            }
            LineKind::Added => (None, line.number),
            LineKind::Removed => (line.number, None),
            LineKind::Note => (None, None),
        };
        // Where the line is, or would be, in the new file.
        let at = new.or_else(|| old.and_then(|old| (old + added).checked_sub(removed)));
        let is_after_gap = line.kind != LineKind::Note && at.is_some() && next_new != at;
        added += usize::from(line.kind == LineKind::Added);
        removed += usize::from(line.kind == LineKind::Removed);
        if let Some(at) = at {
            next_new = Some(at + usize::from(new.is_some()));
        }
        rows.push(Row { line, old, new, is_after_gap });
    }
    rows
}

/// A diff as a table, with a name for screen readers.
pub(crate) fn table(diff: &FileDiff) -> Markup {
    table_of(diff, MAX_LINES)
}

/// A diff as a table of at most this many lines.
pub(crate) fn table_of(diff: &FileDiff, max_lines: usize) -> Markup {
    let path = clean_line(&diff.path);
    let rows = rows(diff);
    let more = rows.len().saturating_sub(max_lines);
    let shown = &rows[..rows.len() - more];
    // Lines before and after the change are two texts, each with comments and strings of several lines.
    let (mut old, mut new) = (Highlighter::of_path(&diff.path), Highlighter::of_path(&diff.path));
    html! {
        div.diffbox tabindex="0" role="region" aria-label=(format!("Diff of {path}")) {
            table.diff {
                caption.sr { (path) ", old line, new line, text" }
                // Lines that replace each other are a group, so that they can be side by side.
                @for group in shown.chunk_by(|one, next| one.is_change() == next.is_change() && !next.is_after_gap) {
                    tbody.chg[group.first().is_some_and(Row::is_change)] {
                        @for (row, marked) in group.iter().zip(marks(group)) {
                            @if row.is_after_gap { (hunk(row)) }
                            (row.html(&marked, &mut old, &mut new))
                        }
                    }
                }
                @if more > 0 { tbody { tr.hunk { td colspan="3" { (more) " more lines" } } } }
            }
        }
    }
}

/// The changed words of each row, if each removed line of a group has an added one in its place.
fn marks(group: &[Row<'_>]) -> Vec<Range<usize>> {
    let mut marks = vec![0..0; group.len()];
    let of = |kind| (0..group.len()).filter(move |index| group[*index].line.kind == kind);
    if of(LineKind::Removed).count() == of(LineKind::Added).count() {
        for (old, new) in of(LineKind::Removed).zip(of(LineKind::Added)) {
            let changed = changed_words(&clean(&group[old].line.text), &clean(&group[new].line.text));
            if let Some((in_old, in_new)) = changed {
                (marks[old], marks[new]) = (in_old, in_new);
            }
        }
    }
    marks
}

/// The words between what two lines have in common at their beginnings and ends; `None` if that is little.
fn changed_words(old: &str, new: &str) -> Option<(Range<usize>, Range<usize>)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let same = old.chars().zip(new.chars()).take_while(|(old, new)| old == new);
    let mut start: usize = same.map(|(c, _)| c.len_utf8()).sum();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let same = old_rest.chars().rev().zip(new_rest.chars().rev()).take_while(|(old, new)| old == new);
    let mut end: usize = same.map(|(c, _)| c.len_utf8()).sum();
    // Whole words: both lines have the same text before and after.
    let splits_word = |text: &str, at: usize| {
        let (before, after) = text.split_at(at);
        before.chars().next_back().is_some_and(is_word) && after.chars().next().is_some_and(is_word)
    };
    while splits_word(old, start) || splits_word(new, start) {
        start -= old[..start].chars().next_back().map_or(0, char::len_utf8);
    }
    while end > 0 && (splits_word(old, old.len() - end) || splits_word(new, new.len() - end)) {
        end -= old[old.len() - end..].chars().next().map_or(0, char::len_utf8);
    }
    let common = old[..start].trim().len() + old[old.len() - end..].trim().len();
    let is_similar = common * 3 >= old.trim().len().max(new.trim().len());
    (is_similar && old != new).then_some((start..old.len() - end, start..new.len() - end))
}

/// The row before lines that do not follow those before them.
fn hunk(row: &Row<'_>) -> Markup {
    let line = row.new.or(row.old).unwrap_or_default();
    html! { tr.hunk { td colspan="3" { "Line " (line) } } }
}

impl Row<'_> {
    fn is_change(&self) -> bool {
        matches!(self.line.kind, LineKind::Added | LineKind::Removed)
    }

    fn html(&self, marked: &Range<usize>, old: &mut Highlighter, new: &mut Highlighter) -> Markup {
        let text = clean(&self.line.text);
        let (class, text) = match self.line.kind {
            LineKind::Context => {
                old.line(&text);
                ("ctx", line_html(&text, new))
            }
            LineKind::Added => ("add", marked_line_html(&text, new, marked)),
            LineKind::Removed => ("del", marked_line_html(&text, old, marked)),
            LineKind::Note => return html! { tr.hunk { td colspan="3" { (text) } } },
        };
        let number = |number: Option<usize>| number.map(|number| number.to_string()).unwrap_or_default();
        html! {
            tr class=(class) {
                td.no data-n=(number(self.old)) {}
                td.no data-n=(number(self.new)) {}
                td { (text) }
                // The other side, if the sides are beside each other.
                @if self.line.kind == LineKind::Context { td.side { (text) } }
            }
        }
    }
}

/// The button that shows all diffs side by side or unified.
pub(crate) fn layout_button() -> Markup {
    html! {
        button.btn.quiet.small.layout type="button" data-do="split" aria-pressed="false" { "Side by side" }
    }
}

/// Lines that are added and removed, as `+9 −1`.
pub(crate) fn counts((added, removed): (usize, usize)) -> Markup {
    html! { span.plus { "+" (added) } " " span.minus { "−" (removed) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(diff: &FileDiff) -> Vec<String> {
        let number = |number: Option<usize>| number.map(|number| number.to_string()).unwrap_or_default();
        let row = |row: &Row<'_>| {
            let gap = if row.is_after_gap { "@ " } else { "" };
            format!("{gap}{}/{} {}", number(row.old), number(row.new), row.line.text)
        };
        rows(diff).iter().map(row).collect()
    }

    #[test]
    fn lines_have_both_numbers_and_gaps_are_marked() {
        let old: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let new = old.replace("\n3\n", "\nthree\nand\n").replace("\n15\n", "\n");
        let diff = FileDiff::of_texts("a.rs".to_owned(), Some(&old), &new, 1);
        assert_eq!(
            shown(&diff),
            [
                "@ 1/1 1",
                "2/2 2",
                "3/ 3",
                "/3 three",
                "/4 and",
                "4/5 4",
                "5/6 5",
                "6/7 6",
                "@ 12/13 12",
                "13/14 13",
                "14/15 14",
                "15/ 15",
                "16/16 16",
                "17/17 17",
                "18/18 18"
            ]
        );
    }

    #[test]
    fn lines_that_replace_each_other_are_a_group_and_context_is_on_both_sides() {
        let diff = FileDiff::of_texts("a".to_owned(), Some("1\n2\n3\n4\n"), "1\ntwo\n3\n4\nfive\n", 1);
        let html = table(&diff).into_string();
        assert_eq!(html.matches("<tbody class=\"chg\">").count(), 2, "{html}");
        let first = html.split("<tbody class=\"chg\">").nth(1).unwrap().split("</tbody>").next().unwrap();
        assert_eq!(first.matches("<tr").count(), 2, "{first}");
        assert_eq!(html.matches("class=\"side\"").count(), html.matches("class=\"ctx\"").count());
    }

    #[test]
    fn the_words_that_differ_are_marked_in_lines_that_replace_each_other() {
        let marked = |old: &str, new: &str| {
            let changed = changed_words(old, new)?;
            Some((old[changed.0].to_owned(), new[changed.1].to_owned()))
        };
        let words = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(marked("let port = 80;", "let port = 8080;"), words("80", "8080"));
        assert_eq!(marked("call(one)", "call(one, two)"), words("", ", two"));
        assert_eq!(marked("état = réglé", "état = récent"), words("réglé", "récent"));
        assert_eq!(marked("aa aa", "aa aa aa"), words("", " aa"));
        assert_eq!(marked("return None", "let x = 1;"), None);
        assert_eq!(marked("same", "same"), None);
        let html =
            table(&FileDiff::of_texts("a.rs".to_owned(), Some("let a = 1;\n"), "let a = \"<2>\";\n", 1));
        let html = html.into_string();
        assert_eq!(html.matches("<mark>").count(), 2, "{html}");
        assert!(html.contains("<mark><span class=\"n\">1</span></mark>"), "{html}");
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let new: String = (0..3000).map(|line| format!("{line}\n")).collect();
        let html = table(&FileDiff::of_texts("a".to_owned(), None, &new, 1)).into_string();
        assert!(html.contains("1000 more lines"), "{}", html.len());
        assert_eq!(html.matches("class=\"add\"").count(), MAX_LINES);
    }
}
