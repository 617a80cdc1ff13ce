//! Git patches: made from two texts, and read back into them.
//!
//! v2 wants git's `--patch` text with one change: every path is the absolute path of the file, without git's
//! `a/` and `b/`. `git apply` takes that too, because the one component it strips is then the root.
//!
//! The lines are compared by `similar`, which has no dependencies and whose Myers gives up on the shortest
//! script where git does. Its `std` feature is off, and with it the clock and the random hash keys. It gives
//! only the edit script: the text is written here, because `similar` ends lines at `\r` too and knows nothing of
//! git's headers. `diffy` was the other candidate. It reads patches of many files, but none of one that it does
//! not understand in part; it writes no headers of git either; and it took 95 seconds for two texts of 128 KiB
//! that have no line in common, where `similar` takes milliseconds.

use std::fmt::{self, Write};

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

/// Texts longer than this are not compared.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// Where more lines than this lie between the first and the last change, all of them are said to be replaced.
/// Comparing the worst of two longer texts took `similar` 8 seconds; this takes a tenth of a second.
const MAX_COMPARED: usize = 1 << 16;

const CONTEXT: usize = 3;
const NOWHERE: &str = "/dev/null";
const NO_NEWLINE: &str = "\\ No newline at end of file\n";

/// What a patch says about one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// The file before, as the patch spells it.
    pub(crate) old_path: Option<String>,
    /// The file after, as the patch spells it.
    pub(crate) new_path: Option<String>,
    /// The old side of all hunks, one after the other.
    pub(crate) old: String,
    /// The new side of all hunks, one after the other.
    pub(crate) new: String,
    /// Whether there is a hunk.
    pub(crate) has_hunks: bool,
    /// Whether the file is said to be binary.
    pub(crate) is_binary: bool,
}

/// The patch that makes `new` of `old`, or that adds the file if there is no `old`.
///
/// `None` if nothing changes or if a text is longer than [`MAX_TEXT`].
pub(crate) fn make(path: &str, old: Option<&str>, new: &str) -> Option<String> {
    if old == Some(new) || old.is_some_and(|old| old.len() > MAX_TEXT) || new.len() > MAX_TEXT {
        return None;
    }
    let mut patch = String::new();
    write_patch(&mut patch, path, old, new).expect("writing to a string cannot fail");
    Some(patch)
}

fn write_patch(patch: &mut String, path: &str, old: Option<&str>, new: &str) -> fmt::Result {
    let name = quoted(path);
    // Git marks the end of a name with spaces, which other readers would take for a date.
    let end = if path.contains(' ') { "\t" } else { "" };
    writeln!(patch, "diff --git {name} {name}")?;
    match old {
        Some(_) => writeln!(patch, "--- {name}{end}")?,
        None => writeln!(patch, "new file mode 100644\n--- {NOWHERE}")?,
    }
    writeln!(patch, "+++ {name}{end}")?;

    let before: Vec<&str> = old.unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    for group in group_diff_ops(edits(&before, &after), CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old = Range { start: first.old_range().start, end: last.old_range().end };
        let new = Range { start: first.new_range().start, end: last.new_range().end };
        writeln!(patch, "@@ -{old} +{new} @@")?;
        for op in group {
            if matches!(op, DiffOp::Equal { .. }) {
                write_lines(patch, ' ', &before[op.old_range()]);
            } else {
                write_lines(patch, '-', &before[op.old_range()]);
                write_lines(patch, '+', &after[op.new_range()]);
            }
        }
    }
    Ok(())
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

fn write_lines(patch: &mut String, mark: char, lines: &[&str]) {
    for line in lines {
        patch.push(mark);
        patch.push_str(line);
        if !line.ends_with('\n') {
            patch.push('\n');
            patch.push_str(NO_NEWLINE);
        }
    }
}

/// A range of lines, shown as hunk headers do: counted from one, but an empty range by the line before it.
struct Range {
    start: usize,
    end: usize,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end - self.start {
            0 => write!(f, "{},0", self.start),
            1 => write!(f, "{}", self.start + 1),
            count => write!(f, "{},{count}", self.start + 1),
        }
    }
}

/// The path as git writes it: in quotes where a byte of it is unusual.
fn quoted(path: &str) -> String {
    let is_plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if path.bytes().all(is_plain) {
        return path.to_owned();
    }
    let mut quoted = String::from('"');
    for byte in path.bytes() {
        match byte {
            0x07 => quoted.push_str("\\a"),
            0x08 => quoted.push_str("\\b"),
            b'\t' => quoted.push_str("\\t"),
            b'\n' => quoted.push_str("\\n"),
            0x0b => quoted.push_str("\\v"),
            0x0c => quoted.push_str("\\f"),
            b'\r' => quoted.push_str("\\r"),
            b'"' => quoted.push_str("\\\""),
            b'\\' => quoted.push_str("\\\\"),
            byte if is_plain(byte) => quoted.push(char::from(byte)),
            byte => write!(quoted, "\\{byte:03o}").expect("writing to a string cannot fail"),
        }
    }
    quoted.push('"');
    quoted
}

/// Reads a patch of any number of files. What it does not understand it passes over.
pub(crate) fn parse(patch: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    // Whether the last section has its `---` line, so that the next one starts another section.
    let mut is_named = true;
    let mut lines = Lines(patch);
    while let Some(line) = lines.next() {
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some(names) = line.strip_prefix("diff --git ") {
            let (old_path, new_path) = both_names(names).unzip();
            sections.push(Section { old_path, new_path, ..Section::default() });
            is_named = false;
            continue;
        }
        if line.starts_with("--- ") && lines.0.starts_with("+++ ") && is_named {
            sections.push(Section::default());
        }
        let counts = line.strip_prefix("@@ -").and_then(hunk_counts);
        if counts.is_some() && sections.is_empty() {
            sections.push(Section::default());
        }
        let Some(section) = sections.last_mut() else { continue };
        if let Some(counts) = counts {
            section.read_hunk(counts, &mut lines);
            is_named = true;
        } else if !section.has_hunks {
            is_named |= line.starts_with("--- ");
            section.read_header(line);
        }
    }
    sections
}

impl Section {
    /// The file that this is about: where it is now, or where it was.
    pub(crate) fn path(&self) -> Option<&str> {
        self.new_path.as_deref().or(self.old_path.as_deref())
    }

    fn read_header(&mut self, line: &str) {
        let after = |start| line.strip_prefix(start);
        if let Some(name) = after("--- ").or(after("rename from ")).or(after("copy from ")) {
            self.old_path = unquoted(name);
        } else if let Some(name) = after("+++ ").or(after("rename to ")).or(after("copy to ")) {
            self.new_path = unquoted(name);
        } else if after("new file mode ").is_some() {
            self.old_path = None;
        } else if after("deleted file mode ").is_some() {
            self.new_path = None;
        } else if after("Binary files ").is_some() || line == "GIT binary patch" {
            self.is_binary = true;
        }
    }

    /// Reads as many lines as the header counted, or fewer where something else begins.
    fn read_hunk(&mut self, (mut old, mut new): (u64, u64), lines: &mut Lines<'_>) {
        self.has_hunks = true;
        let mut last = None;
        loop {
            let ahead = lines.0.as_bytes().first();
            if ahead == Some(&b'\\') {
                lines.next();
                self.end_without_newline(last.take());
                continue;
            }
            // Editors cut the space off an empty line of context.
            let is_bare = matches!(ahead, Some(b'\n')) || lines.0.starts_with("\r\n");
            let side = match ahead {
                Some(b' ') if old > 0 && new > 0 => Side::Both,
                Some(_) if is_bare && old > 0 && new > 0 => Side::Both,
                Some(b'-') if old > 0 => Side::Old,
                Some(b'+') if new > 0 => Side::New,
                _ => return,
            };
            let Some(line) = lines.next() else { return };
            let line = if is_bare { line } else { &line[1..] };
            let line = line.strip_suffix('\n').unwrap_or(line);
            if side != Side::New {
                self.old.push_str(line);
                self.old.push('\n');
                old -= 1;
            }
            if side != Side::Old {
                self.new.push_str(line);
                self.new.push('\n');
                new -= 1;
            }
            last = Some(side);
        }
    }

    fn end_without_newline(&mut self, side: Option<Side>) {
        let Some(side) = side else { return };
        if side != Side::New {
            self.old.pop();
        }
        if side != Side::Old {
            self.new.pop();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Old,
    New,
    Both,
}

/// The lines that are still to be read, each with its newline.
struct Lines<'a>(&'a str);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let line = self.0.split_inclusive('\n').next()?;
        self.0 = &self.0[line.len()..];
        Some(line)
    }
}

/// The counts of `1,2 +3,4 @@`; a count that is not there is one.
fn hunk_counts(header: &str) -> Option<(u64, u64)> {
    let (old, rest) = header.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |range: &str| match range.split_once(',') {
        Some((start, count)) => start.parse::<u64>().and(count.parse()).ok(),
        None => range.parse::<u64>().and(Ok(1)).ok(),
    };
    Some((count(old)?, count(new)?))
}

/// A name at the end of a header line, or `None` if it says that there is no file.
fn unquoted(name: &str) -> Option<String> {
    let name = match name.strip_prefix('"') {
        Some(rest) => unescaped(rest).0,
        None => name.split('\t').next().unwrap_or_default().to_owned(),
    };
    (name != NOWHERE).then_some(name)
}

/// The names in a `diff --git` line. Unquoted names with spaces can be told apart only if they are the same.
fn both_names(names: &str) -> Option<(String, String)> {
    if let Some(rest) = names.strip_prefix('"') {
        let (old, rest) = unescaped(rest);
        return Some((old, unquoted(rest.strip_prefix(' ')?)?));
    }
    if let Some((old, new)) = names.split_once(" \"") {
        return Some((old.to_owned(), unescaped(new).0));
    }
    let (old, new) = (names.get(..names.len() / 2)?, names.get(names.len() / 2..)?.strip_prefix(' ')?);
    let bare = |name: &str| name.split_once('/').map(|(_, rest)| rest.to_owned());
    (old == new || bare(old).is_some() && bare(old) == bare(new)).then(|| (old.to_owned(), new.to_owned()))
}

/// What stands before the closing quote, and what after it.
fn unescaped(quoted: &str) -> (String, &str) {
    let mut bytes = Vec::with_capacity(quoted.len());
    let mut rest = quoted.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'"' {
            break;
        }
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else { break };
        rest = after;
        bytes.push(match escape {
            b'a' => 0x07,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'r' => b'\r',
            b'0'..=b'7' => {
                let mut value = escape - b'0';
                for _ in 0..2 {
                    let Some((&digit @ b'0'..=b'7', after)) = rest.split_first() else { break };
                    value = value.wrapping_mul(8).wrapping_add(digit - b'0');
                    rest = after;
                }
                value
            }
            other => other,
        });
    }
    // The rest starts right after an ASCII quote or is empty, so it is text.
    let rest = quoted.get(quoted.len() - rest.len()..).unwrap_or_default();
    (String::from_utf8_lossy(&bytes).into_owned(), rest)
}
