//! Styled text that is wrapped and cut by columns.
//!
//! Foreign text gets in only through [`Clean`].

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;

use crate::clean::Clean;
use crate::theme::{Mark, Role, Theme};

/// One line of text with styles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text {
    spans: Vec<(String, Style)>,
}

/// The places at which a line may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrap {
    /// At spaces and beside wide characters, or anywhere in a word that is longer than a row.
    Words,
    /// At any cluster; spaces are kept.
    Anywhere,
}

/// One grapheme cluster of a text.
struct Cluster<'a> {
    text: &'a str,
    width: usize,
    span: usize,
}

impl Cluster<'_> {
    fn is_space(&self) -> bool {
        self.text == " "
    }
}

impl Text {
    /// Text of this program.
    pub(crate) fn own(text: impl Into<String>, style: Style) -> Self {
        Self::default().with_own(text, style)
    }

    /// One line of foreign text; characters that would not be visible are shown in role warning.
    pub(crate) fn foreign(theme: Theme, text: &str, style: Style) -> Self {
        Self::default().with_foreign(theme, text, style)
    }

    /// Appends text of this program.
    #[must_use]
    pub(crate) fn with_own(mut self, text: impl Into<String>, style: Style) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.spans.push((text, style));
        }
        self
    }

    /// Appends one line of foreign text.
    #[must_use]
    pub(crate) fn with_foreign(mut self, theme: Theme, text: &str, style: Style) -> Self {
        self.push_clean(theme, &Clean::line(text), style);
        self
    }

    /// Appends clean text.
    pub(crate) fn push_clean(&mut self, theme: Theme, text: &Clean, style: Style) {
        for (part, is_hidden) in text.parts() {
            let style = if is_hidden { style.patch(theme.style(Role::Warning)) } else { style };
            self.spans.push((part.to_owned(), style));
        }
    }

    /// Appends another text.
    pub(crate) fn append(&mut self, other: Self) {
        self.spans.extend(other.spans);
    }

    /// Appends another text.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.append(other);
        self
    }

    /// Adds a style below the styles of the spans.
    #[must_use]
    pub(crate) fn over(mut self, style: Style) -> Self {
        self.spans.iter_mut().for_each(|(_, own)| *own = style.patch(*own));
        self
    }

    pub(crate) fn width(&self) -> usize {
        self.spans.iter().map(|(text, _)| crate::text::width(text)).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.iter().all(|(text, _)| text.is_empty())
    }

    /// The text without styles.
    pub(crate) fn plain(&self) -> String {
        self.spans.iter().map(|(text, _)| text.as_str()).collect()
    }

    /// Cuts the text to at most `columns`.
    #[must_use]
    pub(crate) fn cut(self, columns: usize, theme: Theme) -> Self {
        if self.width() <= columns {
            return self;
        }
        let ellipsis = theme.mark(Mark::Ellipsis);
        let room = columns.saturating_sub(crate::text::width(ellipsis));
        let mut cut = Self::default();
        let mut used = 0;
        for (text, style) in self.spans {
            let (kept, is_whole) = crate::text::prefix(&text, room - used);
            used += crate::text::width(kept);
            cut.spans.push((kept.to_owned(), style));
            if !is_whole {
                break;
            }
        }
        let style = cut.spans.last().map(|(_, style)| *style).unwrap_or_default();
        let mut mark = ellipsis.to_owned();
        if used < room {
            // In place of a wide character.
            mark.push(' ');
        }
        cut.spans.push((crate::text::prefix(&mark, columns).0.to_owned(), style));
        cut
    }

    /// Breaks the text into rows of at most `first` and then `rest` columns. An empty text is one empty row.
    pub(crate) fn wrap(&self, first: usize, rest: usize, wrap: Wrap) -> Vec<Self> {
        if self.width() <= first {
            return vec![self.clone()];
        }
        let clusters = self.clusters();
        let mut rows = Vec::new();
        let mut start = 0;
        while start < clusters.len() {
            let limit = if rows.is_empty() { first } else { rest }.max(1);
            let mut end = row_end(&clusters, start, limit, wrap);
            let next = end;
            if wrap == Wrap::Words {
                while end > start && clusters[end - 1].is_space() {
                    end -= 1;
                }
            }
            rows.push(self.part(&clusters[start..end]));
            start = next;
            while wrap == Wrap::Words && start < clusters.len() && clusters[start].is_space() {
                start += 1;
            }
        }
        rows
    }

    fn clusters(&self) -> Vec<Cluster<'_>> {
        let spans = self.spans.iter().enumerate();
        spans
            .flat_map(|(span, (text, _))| {
                text.graphemes(true).map(move |text| Cluster { text, width: crate::text::width(text), span })
            })
            .collect()
    }

    fn part(&self, clusters: &[Cluster<'_>]) -> Self {
        let mut part = Self::default();
        let mut last = None;
        for cluster in clusters {
            if last != Some(cluster.span) {
                part.spans.push((String::new(), self.spans[cluster.span].1));
                last = Some(cluster.span);
            }
            if let Some((text, _)) = part.spans.last_mut() {
                text.push_str(cluster.text);
            }
        }
        part
    }

    /// The text with `right` at the right edge, if both fit into `columns` with two columns between them.
    pub(crate) fn with_right(self, right: Self, columns: usize) -> Result<Self, Self> {
        let used = self.width() + right.width();
        if right.is_empty() || used + 2 > columns {
            return Err(self);
        }
        let gap = " ".repeat(columns - used);
        Ok(self.with_own(gap, Style::new()).and(right))
    }

    /// The line to draw, at most `columns` wide.
    pub(crate) fn into_line(self, columns: usize, theme: Theme) -> Line<'static> {
        let spans = self.cut(columns, theme).spans;
        Line::from(spans.into_iter().map(|(text, style)| Span::styled(text, style)).collect::<Vec<_>>())
    }
}

/// The end of the row that begins at `start`.
fn row_end(clusters: &[Cluster<'_>], start: usize, limit: usize, wrap: Wrap) -> usize {
    let mut used = 0;
    let mut end = start;
    let mut after_space = None;
    while end < clusters.len() {
        used += clusters[end].width;
        if used > limit && end > start {
            break;
        }
        end += 1;
        if clusters[end - 1].is_space() {
            after_space = Some(end);
        }
    }
    let is_wide = |at: usize| clusters[at].width > 1;
    if end == clusters.len() || wrap == Wrap::Anywhere || clusters[end].is_space() {
        return end;
    }
    if is_wide(end) || is_wide(end - 1) {
        return end;
    }
    after_space.unwrap_or(end)
}

/// Marks the words that are searched for; they are in lower case.
pub(crate) fn mark_matches(line: &mut Line<'static>, words: &[String], theme: Theme) {
    if words.is_empty() {
        return;
    }
    let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
    // Lower case with the byte of the text that each of its bytes stands for.
    let mut lower = String::new();
    let mut origins = Vec::new();
    for (at, character) in text.char_indices() {
        for small in character.to_lowercase() {
            lower.push(small);
            origins.resize(lower.len(), at..at + character.len_utf8());
        }
    }
    let mut is_hit = vec![false; text.len()];
    for word in words.iter().filter(|word| !word.is_empty()) {
        for (at, _) in lower.match_indices(word.as_str()) {
            let bytes = origins[at].start..origins[at + word.len() - 1].end;
            is_hit[bytes].fill(true);
        }
    }
    if !is_hit.contains(&true) {
        return;
    }
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut offset = 0;
    for span in std::mem::take(&mut line.spans) {
        let mut last = None;
        for (at, character) in span.content.char_indices() {
            let hit = is_hit[offset + at];
            if last != Some(hit) {
                let style = if hit { span.style.patch(theme.style(Role::Match)) } else { span.style };
                spans.push(Span::styled(String::new(), style));
                last = Some(hit);
            }
            if let Some(part) = spans.last_mut() {
                part.content.to_mut().push(character);
            }
        }
        offset += span.content.len();
    }
    line.spans = spans;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::theme::Colors;

    const THEME: Theme = Theme { colors: Colors::Ansi, is_light: false, is_ascii: false };

    fn rows(text: &str, first: usize, rest: usize, wrap: Wrap) -> Vec<String> {
        let rows = Text::foreign(THEME, text, Style::new()).wrap(first, rest, wrap);
        rows.iter().map(Text::plain).collect()
    }

    #[test]
    fn lines_break_at_spaces_beside_wide_characters_and_in_words_that_are_too_long() {
        assert_eq!(rows("one two three", 7, 7, Wrap::Words), ["one two", "three"]);
        assert_eq!(rows("one two three", 3, 9, Wrap::Words), ["one", "two three"]);
        assert_eq!(rows("漢字かなカナ", 5, 5, Wrap::Words), ["漢字", "かな", "カナ"]);
        assert_eq!(rows("a/very/long/path", 6, 6, Wrap::Words), ["a/very", "/long/", "path"]);
        assert_eq!(rows("  let x;  y", 7, 7, Wrap::Anywhere), ["  let x", ";  y"]);
        assert_eq!(rows("", 5, 5, Wrap::Words), [""]);
    }

    #[test]
    fn a_search_hit_is_marked_across_spans_and_in_any_case() {
        let mut line = Line::from(vec![Span::raw("A PO"), Span::raw("rt İ port")]);
        mark_matches(&mut line, &["port".to_owned()], THEME);
        let hits: String = line
            .spans
            .iter()
            .filter(|span| span.style == THEME.style(Role::Match))
            .map(|span| format!("{}|", span.content))
            .collect();
        assert_eq!(hits, "PO|rt|port|");
        assert_eq!(line.to_string(), "A POrt İ port");
    }

    #[test]
    fn a_cluster_that_is_wider_than_the_row_has_a_row_of_its_own() {
        // A space with two vowel signs is one cluster of three columns.
        assert_eq!(rows("0 \u{1930}\u{d82}", 2, 2, Wrap::Words), ["0", " \u{1930}\u{d82}"]);
    }

    proptest! {
        #[test]
        fn wrapped_rows_fit_and_lose_nothing_but_spaces(text: String, first in 2_usize..30, rest in 2_usize..30) {
            let without_spaces = |text: &str| text.replace(' ', "");
            let clean = Clean::line(&text);
            for wrap in [Wrap::Words, Wrap::Anywhere] {
                let rows = rows(&text, first, rest, wrap);
                for (at, row) in rows.iter().enumerate() {
                    let limit = if at == 0 { first } else { rest };
                    // A cluster that is wider than the row has a row of its own.
                    prop_assert!(crate::text::width(row) <= limit || row.graphemes(true).count() == 1, "{row:?}");
                }
                prop_assert_eq!(without_spaces(&rows.concat()), without_spaces(clean.as_str()));
            }
        }
    }
}
