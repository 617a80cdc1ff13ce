//! Writes git patches from two texts, and reads them back.
//!
//! v2 requires git's `--patch` text with one change: every path is the absolute path of the file, without git's
//! `a/` and `b/`. `git apply` accepts that too, because the one component it strips is then the root.
//!
//! The lines are compared by `similar`, which has no dependencies and whose Myers gives up on the shortest
//! script where git does. Its `std` feature is off, and with it the clock and the random hash keys. It gives
//! only the edit script: the text is written here, because `similar` ends lines at `\r` too and knows nothing of
//! git's headers. `diffy` was the other candidate. It reads patches of many files, but a wrong count is an error
//! where the lines can still be shown; it writes no headers of git either; and it took 95 seconds for two texts
//! of 128 KiB that have no line in common, where `similar` takes milliseconds.

use std::fmt::{self, Write};

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

/// Longer texts are not compared.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// With more lines than this between the first and the last change, all of them count as replaced. Comparing two
/// texts of a mebibyte took `similar` up to 8 seconds, this at most a fifth of one.
const MAX_COMPARED: usize = 1 << 16;

const CONTEXT: usize = 3;
const NOWHERE: &str = "/dev/null";
const NO_NEWLINE: &str = "\\ No newline at end of file\n";

/// The part of a patch for one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// The path before the change, as in the patch.
    pub(crate) old_path: Option<String>,
    /// The path after the change, as in the patch.
    pub(crate) new_path: Option<String>,
    /// The old side of all hunks, concatenated.
    pub(crate) old: String,
    /// The new side of all hunks, concatenated.
    pub(crate) new: String,
    /// Whether there is a hunk.
    pub(crate) has_hunks: bool,
    /// Whether a part cannot be shown: binary content, or an invalid hunk.
    pub(crate) is_opaque: bool,
}

/// The patch from `old` to `new`, or that adds the file if there is no `old`.
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
    // Git ends a name with spaces by a tab, because readers expect a date after it.
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

/// A range of lines in the form of hunk headers: counted from one, an empty range by the line before it.
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

/// The path as git writes it: quoted if it has an unusual byte.
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

/// Reads a patch of any number of files and skips what it does not understand.
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
        } else if line.starts_with("@@") {
            section.is_opaque = true;
        } else if !section.has_hunks {
            is_named |= line.starts_with("--- ");
            section.read_header(line);
        }
    }
    sections
}

impl Section {
    /// The path of the file after the change, or before it.
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
            self.is_opaque = true;
        }
    }

    /// Reads as many lines as the header counted, or fewer if another section begins.
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
            // Editors strip the space of an empty context line.
            let is_bare = matches!(ahead, Some(b'\n')) || lines.0.starts_with("\r\n");
            let side = match ahead {
                Some(b' ') if old > 0 && new > 0 => Side::Both,
                Some(_) if is_bare && old > 0 && new > 0 => Side::Both,
                Some(b'-') if old > 0 => Side::Old,
                Some(b'+') if new > 0 => Side::New,
                _ => break,
            };
            let Some(line) = lines.next() else { break };
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
        self.is_opaque |= old > 0 || new > 0;
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

/// The lines that are not read yet, each with its line break.
struct Lines<'a>(&'a str);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let line = self.0.split_inclusive('\n').next()?;
        self.0 = &self.0[line.len()..];
        Some(line)
    }
}

/// The counts of `1,2 +3,4 @@`; a missing count is one.
fn hunk_counts(header: &str) -> Option<(u64, u64)> {
    let (old, rest) = header.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |range: &str| match range.split_once(',') {
        Some((start, count)) => start.parse::<u64>().and(count.parse()).ok(),
        None => range.parse::<u64>().and(Ok(1)).ok(),
    };
    Some((count(old)?, count(new)?))
}

/// A name at the end of a header line; `None` if there is no file.
fn unquoted(name: &str) -> Option<String> {
    let name = match name.strip_prefix('"') {
        Some(rest) => unescaped(rest).0,
        None => name.split('\t').next().unwrap_or_default().to_owned(),
    };
    (name != NOWHERE).then_some(name)
}

/// The names in a `diff --git` line. Unquoted names with spaces can be separated only if they are equal.
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

/// The text before the closing quote, and the rest after it.
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
    // The rest starts right after an ASCII quote or is empty, so it is valid UTF-8.
    let rest = quoted.get(quoted.len() - rest.len()..).unwrap_or_default();
    (String::from_utf8_lossy(&bytes).into_owned(), rest)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check_patch(path: &str, old: Option<&str>, new: &str, expected: &Expect) {
        expected.assert_eq(&make(path, old, new).unwrap_or_default());
    }

    #[test]
    fn patches_read_as_git_writes_them_but_for_the_prefixes() {
        check_patch(
            "/w/src/lib.rs",
            Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n"),
            "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n11\n12\n13",
            &expect![[r#"
                diff --git /w/src/lib.rs /w/src/lib.rs
                --- /w/src/lib.rs
                +++ /w/src/lib.rs
                @@ -2,7 +2,7 @@
                 2
                 3
                 4
                -5
                +five
                 6
                 7
                 8
                @@ -10,4 +10,4 @@
                 10
                 11
                 12
                -13
                +13
                \ No newline at end of file
            "#]],
        );
        check_patch(
            "/w/new",
            None,
            "one\ntwo\n",
            &expect![[r#"
                diff --git /w/new /w/new
                new file mode 100644
                --- /dev/null
                +++ /w/new
                @@ -0,0 +1,2 @@
                +one
                +two
            "#]],
        );
        check_patch(
            "C:\\w\\naïve \"x\".txt",
            Some("one\n"),
            "",
            &expect![[r#"
                diff --git "C:\\w\\na\303\257ve \"x\".txt" "C:\\w\\na\303\257ve \"x\".txt"
                --- "C:\\w\\na\303\257ve \"x\".txt"	
                +++ "C:\\w\\na\303\257ve \"x\".txt"	
                @@ -1 +0,0 @@
                -one
            "#]],
        );
        check_patch("/w/same", Some("one\n"), "one\n", &expect![[""]]);
        check_patch("/w/long", Some("one\n"), &"x".repeat(MAX_TEXT + 1), &expect![[""]]);
    }

    /// Applies a patch with `root` as the root of the absolute paths.
    fn git_apply(root: &Path, patch: &str) -> Result<(), String> {
        let mut git = Command::new("git")
            .args(["-c", "core.autocrlf=false", "apply", "-"])
            .current_dir(root)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CEILING_DIRECTORIES", root.parent().unwrap())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("git is installed");
        git.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
        let output = git.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(errors)
    }

    #[test]
    fn git_applies_the_patches() {
        let numbers = |range: std::ops::Range<u32>| range.map(|n| format!("{n}\n")).collect::<String>();
        let many = numbers(0..5_000);
        let edited: String = many
            .split_inclusive('\n')
            .enumerate()
            .map(|(n, line)| if n % 97 == 5 { format!("edited {line}\nand more\n") } else { line.to_owned() })
            .collect();
        let cases: &[(&str, Option<&str>, &str)] = &[
            ("/w/a.txt", Some("1\n2\n3\n"), "1\ntwo\n3\n"),
            ("/w/dir/no newline before", Some("1\n2"), "1\n2\n"),
            ("/w/dir/no newline after", Some("1\n2\n"), "1\n2"),
            ("/w/dir/no newline at all", Some("1\n2"), "1\n3"),
            ("/w/dir/no newline unchanged", Some("1\n2\n3"), "one\n2\n3"),
            ("/w/add", None, "1\n2\n"),
            ("/w/add no newline", None, "1"),
            ("/w/add empty", None, ""),
            ("/w/empty before", Some(""), "1\n"),
            ("/w/empty after", Some("1\n"), ""),
            ("/w/crlf", Some("1\r\n2\r\n3\r\n"), "1\r\n2\n3\r\n"),
            ("/w/cr", Some("1\r2\r3"), "1\r2\r\r\n"),
            ("/w/looks like a patch", Some("--- a\n+++ b\n@@ -1 +1 @@\n"), "-- a\n\\ No newline\n\n \n"),
            ("/w/ünïcödé/日本 語.txt", Some("ä\n"), "ö\n"),
            ("/w/\"quoted\"\t\\back.txt", Some("1\n"), "2\n"),
            ("/w/\u{1}\u{7f}\n", None, "1\n"),
            ("/w/ b/w/x b", Some("1\n"), "2\n"),
            ("/root", Some("1\n"), "2\n"),
            ("/w/many", Some(&many), &edited),
            ("/w/back", Some(&edited), &many),
            ("/w/too many", Some(&numbers(0..40_000)), &numbers(1..40_001).replace("39999\n", "x\n")),
        ];
        let root = std::env::temp_dir().join(format!("parlor-git-apply-{}", std::process::id()));
        for &(path, old, new) in cases {
            let file = root.join(&path[1..]);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            if let Some(old) = old {
                fs::write(&file, old).unwrap();
            }
            let patch = make(path, old, new).unwrap();
            assert_eq!(git_apply(&root, &patch), Ok(()), "{path}\n{patch}");
            assert_eq!(fs::read_to_string(&file).unwrap(), new, "{path}\n{patch}");

            let sections = parse(&patch);
            let [section] = &sections[..] else { panic!("{path}: {sections:?}") };
            assert_eq!(section.new_path.as_deref(), Some(path));
            assert_eq!(section.old_path.as_deref(), old.map(|_| path));
        }
        fs::remove_dir_all(root).unwrap();
    }

    fn check_parse(patch: &str, expected: &Expect) {
        let shown = parse(patch).into_iter().map(|section| {
            let Section { old_path, new_path, old, new, has_hunks, is_opaque } = section;
            let path = |path: Option<String>| path.unwrap_or_else(|| "-".to_owned());
            let flags = [(has_hunks, "hunks"), (is_opaque, "opaque")];
            let flags: Vec<_> = flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            format!("{} => {} [{}] {old:?} {new:?}\n", path(old_path), path(new_path), flags.join(" "))
        });
        expected.assert_eq(&shown.collect::<String>());
    }

    #[test]
    fn patches_of_many_files_are_read() {
        check_parse(
            concat!(
                "From 0123 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] x\n---\n a | 2 +-\n\n",
                "diff --git a/mod b/mod\nindex 1234567..89abcde 100644\n--- a/mod\n+++ b/mod\n",
                "@@ -1,2 +1,2 @@ fn main() {\n one\n-two\n+2\n@@ -8 +8,2 @@\n eight\n+nine\n\\ No newline at end of file\n",
                "diff --git a/old name b/new name\nsimilarity index 100%\nrename from old name\nrename to new name\n",
                "diff --git a/from b/to\nsimilarity index 90%\ncopy from from\ncopy to to\n--- a/from\n+++ b/to\n@@ -1 +1 @@\n-x\n+y\n",
                "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
                "diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n",
                "diff --git a/mode only b/mode only\nold mode 100644\nnew mode 100755\n",
                "diff --git a/a.png b/a.png\nnew file mode 100644\nBinary files /dev/null and b/a.png differ\n",
                "diff --git a/b.png b/b.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZQzU|?Vb00aO5\n\nliteral 0\nHcmV?d00001\n\n",
                "diff --git \"a/\\303\\251\" \"b/\\303\\251\"\n--- \"a/\\303\\251\"\n+++ \"b/\\303\\251\"\n@@ -1 +1 @@\n-x\n+y\n",
                "-- \n2.47.3\n",
            ),
            &expect![[r#"
                a/mod => b/mod [hunks] "one\ntwo\neight\n" "one\n2\neight\nnine"
                old name => new name [] "" ""
                a/from => b/to [hunks] "x\n" "y\n"
                a/gone => - [hunks] "x\n" ""
                - => b/empty [] "" ""
                a/mode only => b/mode only [] "" ""
                - => b/a.png [opaque] "" ""
                a/b.png => b/b.png [opaque] "" ""
                a/é => b/é [hunks] "x\n" "y\n"
            "#]],
        );
    }

    #[test]
    fn patches_that_git_did_not_write_are_read_as_far_as_they_go() {
        // Without git's headers, with dates, and without the space of an empty line or the last line break.
        check_parse(
            "--- x\t2026-01-01\n+++ x\t2026-01-02\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n--- y\n+++ y\n@@ -1 +1 @@\n-d\n+e",
            &expect![[r#"
                x => x [hunks] "a\n\nb\n" "a\n\nc\n"
                y => y [hunks] "d\n" "e\n"
            "#]],
        );
        // Only hunks; a count that is too high; one that is too low; one that is not a number.
        check_parse(
            "@@ -1,9 +1,9 @@\n-a\n+b\n@@ -5 +5 @@\n-c\n-d\n+e\n@@ ... @@\n-f\n",
            &expect![[r#"
                - => - [hunks opaque] "a\nc\n" "b\n"
            "#]],
        );
        check_parse(
            "diff --git /a\r\n--- /a\r\n+++ /a\r\n@@ -1 +1 @@\r\n-b\r\n+c\r\n",
            &expect![[r#"
                /a => /a [hunks] "b\r\n" "c\r\n"
            "#]],
        );
        check_parse("", &expect![[""]]);
        check_parse("nothing like a patch\n@@@ -1 -1 +1 @@@\n", &expect![[""]]);
        check_parse(
            "\\\n@@ -0,0 +1 @@\n\\\n+a\n\\\n\\\n",
            &expect![[r#"
            - => - [hunks] "" "a"
        "#]],
        );
    }

    #[test]
    fn patches_of_the_longest_texts_are_written_and_read_in_linear_time() {
        let (old, new) = ("\n".repeat(MAX_TEXT), "a\n".repeat(MAX_TEXT / 2));
        let sections = parse(&make("/a", Some(&old), &new).unwrap());
        assert!(sections[0].old == old && sections[0].new == new);
    }

    /// Lines that look like parts of a patch, some of them equal.
    fn some_text(max_lines: usize) -> impl Strategy<Value = String> {
        let line = prop::sample::select(vec![
            "a",
            "a",
            "b",
            "",
            "\r",
            " ",
            "-",
            "+",
            "\\",
            "--- a",
            "+++ b",
            "@@ -1 +1 @@",
            "diff --git a b",
            "é😀",
        ]);
        (prop::collection::vec(line, 0..=max_lines), any::<bool>())
            .prop_map(|(lines, ends)| lines.join("\n") + if ends && !lines.is_empty() { "\n" } else { "" })
    }

    proptest! {
        #[test]
        fn a_patch_of_a_small_file_has_all_of_it(old in some_text(3), new in some_text(3), path in "/[ -~é\t\n]{1,8}") {
            let Some(patch) = make(&path, Some(&old), &new) else {
                prop_assert_eq!(old, new);
                return Ok(());
            };
            let read = parse(&patch);
            let path = Some(path);
            let expected = Section { old_path: path.clone(), new_path: path, old, new, has_hunks: true, is_opaque: false };
            prop_assert_eq!(read, [expected], "{}", patch);
        }

        #[test]
        fn a_patch_of_a_new_file_has_all_of_it(new in some_text(40)) {
            let read = parse(&make("/a", None, &new).unwrap());
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(&read[0].new, &new);
            prop_assert_eq!(read[0].old_path.as_deref(), None);
        }

        #[test]
        fn no_patch_is_too_odd_to_read(lines in prop::collection::vec(prop::sample::select(vec![
            "diff --git ", "a/x b/x", "\"a/\\3\\", "\"", "--- ", "+++ ", "@@ -1,2 +1,3 @@", "@@ -1 +99999999999999999999 @@",
            "@@ -0 +18446744073709551615,18446744073709551615 @@", "\\", "+é", "-", " ", "\n", "\r\n", "\n", "\t", "/dev/null",
            "GIT binary patch", "rename from ", "é", "new file mode ",
        ]), 0..40), noise in "\\PC{0,20}") {
            parse(&lines.concat());
            parse(&noise);
            parse(&format!("diff --git {noise}\n--- {noise}\n+++ \"{noise}\n@@ -{noise}\n{noise}"));
        }
    }
}
