//! The content of tool calls, and the names of their states and kinds.
//!
//! A v1 diff is two texts; a v2 diff has the paths of changed files and a git patch. The v2 diff keeps the v1
//! members, and the text that replaces a terminal keeps the terminal's id in its metadata, so that both can be
//! converted back.

mod cap;
mod diff;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use parlor_json::{Json, JsonRef, JsonStr, Members, Object, Type};

pub(crate) use cap::{CAP, cap};
use diff::Section;

use crate::values::blocks::{self, ForV1};
use crate::{LossKind, Losses};

/// The metadata key for the id of a terminal that a text replaces.
const TERMINAL: &str = "parlor/terminal";

/// Whether an item of tool content has the required members of its type, in either version.
pub(crate) fn is_tool_item(item: JsonRef<'_>) -> bool {
    let Ok(item) = Members::of(item) else { return false };
    let is = |name: &str, type_: Type| item.get(name).is_some_and(|value| value.type_of() == type_);
    match item.get_str("type").as_deref() {
        Some("content") => item.get("content").is_some_and(blocks::is_block),
        Some("diff") => {
            is("changes", Type::Array) || (is("path", Type::String) && is("newText", Type::String))
        }
        Some("terminal") => is("terminalId", Type::String),
        Some(_) => true,
        None => false,
    }
}

/// Converts an item of tool content to v2.
pub(crate) fn item_to_v2(item: &Object) -> Object {
    let changed = match item.get_str("type").as_deref() {
        Some("diff") => diff_to_v2(item),
        _ => None,
    };
    changed.unwrap_or_else(|| item.clone())
}

/// Converts an item of tool content to v1: none, one, or one for each file of a diff.
///
/// `terminal_text` returns the text of a terminal that v1 cannot show, and `None` for a terminal of a v1 client.
pub(crate) fn item_to_v1(
    item: &Object,
    losses: &mut Losses,
    terminal_text: &dyn Fn(&str) -> Option<String>,
) -> Vec<Object> {
    match item.get_str("type").as_deref() {
        Some("content") => {
            let block =
                item.get("content").and_then(|block| Members::of(block.raw()).ok()).unwrap_or_default();
            match blocks::for_v1(&block, losses) {
                ForV1::Same => vec![item.clone()],
                ForV1::Changed(block) => {
                    let mut item = item.clone();
                    item.set("content", block);
                    vec![item]
                }
                ForV1::Unknown => {
                    losses.add(LossKind::ContentBlockType);
                    Vec::new()
                }
            }
        }
        Some("diff") => diff_to_v1(item, losses),
        Some("terminal") => match terminal_as_text(item, terminal_text) {
            Some(shown) => {
                losses.add(LossKind::TerminalAsText);
                vec![shown]
            }
            None => vec![item.clone()],
        },
        _ => {
            losses.add(LossKind::ToolContentType);
            Vec::new()
        }
    }
}

/// The nearest v1 status of a tool call, and whether it differs.
pub(crate) fn status_to_v1(status: &str) -> (&'static str, bool) {
    match status {
        "pending" => ("pending", false),
        "in_progress" => ("in_progress", false),
        "completed" => ("completed", false),
        "failed" => ("failed", false),
        "cancelled" => ("failed", true),
        // `paused`, and every status that v2 defines as still in progress.
        _ => ("in_progress", true),
    }
}

/// The v1 kind of a tool call, and whether it differs.
pub(crate) fn kind_to_v1(kind: &str) -> (&'static str, bool) {
    const KINDS: [&str; 10] =
        ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];
    match KINDS.iter().find(|&&known| known == kind) {
        Some(known) => (known, false),
        None => ("other", true),
    }
}

/// Converts the locations of a tool call to v2: lines are counted from one, so that line 0 is dropped.
pub(crate) fn locations_to_v2(list: &Json) -> Json {
    let is_line_0 = |location: JsonRef<'_>| {
        Members::of(location)
            .is_ok_and(|location| location.get("line").is_some_and(|line| line.as_str() == "0"))
    };
    let locations = list.elements().unwrap_or_default();
    if !locations.iter().any(|location| is_line_0(*location)) {
        return list.clone();
    }
    let locations: Vec<_> = locations
        .into_iter()
        .map(|location| match Object::parse(location) {
            Ok(mut changed) if is_line_0(location) => {
                changed.remove("line");
                changed.to_json()
            }
            _ => Json::from(location),
        })
        .collect();
    Json::array(&locations)
}

/// `None` if it is a v2 diff already, or an invalid diff.
fn diff_to_v2(item: &Object) -> Option<Object> {
    if item.get("changes").is_some_and(|changes| changes.type_of() == Type::Array) {
        return None;
    }
    let (path, new) = (item.get_str("path")?, item.get_str("newText")?);
    let old = item.get_str("oldText");

    let mut change = Object::default();
    change.set("operation", if old.is_some() { "modify" } else { "add" });
    change.set("path", item.get("path")?.clone());
    let mut diff = item.clone();
    diff.set("changes", Json::array(&[change.to_json()]));
    if diff.get("patch").is_none()
        && let Some(text) = diff::make(&path, old.as_deref(), &new)
    {
        let mut patch = Object::default();
        patch.set("format", "git_patch");
        patch.set("text", &text);
        diff.set("patch", patch.to_json());
    }
    Some(diff)
}

/// Only the first item carries the other fields: repeating them for each file could take any amount of memory.
fn diff_to_v1(item: &Object, losses: &mut Losses) -> Vec<Object> {
    let mut rest = item.clone();
    rest.remove("changes");
    let patch = item.get_object("patch");
    let patch = patch.filter(|patch| patch.get("format").is_some());
    if item.get_str("path").is_some() && item.get_str("newText").is_some() {
        // All v1 members are present. A `patch` with another meaning than in v2 is an unknown field.
        if patch.is_some() {
            rest.remove("patch");
        }
        return vec![rest];
    }
    rest.remove("patch");

    let changes = changes_of(item);
    let patch = patch.filter(|patch| patch.get_str("format").as_deref() == Some("git_patch"));
    let patch = patch.as_ref().and_then(|patch| patch.get_str("text"));
    let sections = patch.map_or_else(Vec::new, |patch| diff::parse(&patch));

    let mut items = Vec::new();
    let mut named = Vec::new();
    let (mut is_partial, mut is_other) = (false, false);
    for (change, section) in changes.iter().zip(sections_of(&changes, &sections)) {
        let shown = section.and_then(|section| change.shown_by(section));
        let Some((path, shown)) = change.path.as_ref().zip(shown) else {
            named.push(change.to_string());
            continue;
        };
        is_partial |= shown.is_partial;
        is_other |= change.says_more || !matches!(&*change.operation, "add" | "modify");
        let mut diff = std::mem::take(&mut rest);
        diff.set("type", "diff");
        diff.set("path", path);
        match shown.old {
            Some(old) => diff.set("oldText", old),
            None => drop(diff.remove("oldText")),
        }
        diff.set("newText", shown.new);
        items.push(diff);
    }

    if is_partial {
        losses.add(LossKind::DiffPartial);
    }
    if is_other {
        losses.add(LossKind::DiffOperation);
    }
    if !named.is_empty() || items.is_empty() {
        losses.add(LossKind::DiffWithoutPatch);
    }
    if !named.is_empty() {
        rest.set("type", "content");
        rest.set("content", block_of_text(&JsonStr::new(&named.join("\n"))));
        items.push(rest);
    }
    items
}

/// One of the changes of a v2 diff.
struct Change {
    operation: String,
    path: Option<JsonStr>,
    old_path: Option<JsonStr>,
    /// Whether it has fields that v1 lacks, such as the type of the file.
    says_more: bool,
}

/// The v1 form of a change.
struct Shown<'a> {
    old: Option<&'a str>,
    new: &'a str,
    is_partial: bool,
}

impl Change {
    /// `None` if the patch has no lines of this change.
    fn shown_by<'a>(&self, section: &'a Section) -> Option<Shown<'a>> {
        let Section { old, new, has_hunks, is_opaque, .. } = section;
        // The patch of a file that is added or deleted has all of it; that of an empty file has no hunk.
        let is_whole = match &*self.operation {
            "add" => !is_opaque && old.is_empty(),
            "delete" => !is_opaque && new.is_empty(),
            _ => false,
        };
        let old = (self.operation != "add" || !old.is_empty()).then_some(&**old);
        (is_whole || *has_hunks).then_some(Shown { old, new, is_partial: !is_whole })
    }

    fn path_text(&self) -> Cow<'_, str> {
        self.path.as_ref().map_or(Cow::Borrowed(""), JsonStr::to_text)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operation)?;
        match (&self.old_path, &self.path) {
            (Some(old), Some(path)) => write!(f, " {old} -> {path}"),
            (Some(path), None) | (None, Some(path)) => write!(f, " {path}"),
            (None, None) => Ok(()),
        }
    }
}

fn changes_of(item: &Object) -> Vec<Change> {
    let changes = item.get_array("changes").unwrap_or_default();
    let change = |raw| {
        let members = Members::of(raw).ok()?;
        let string = |name| members.get(name).and_then(JsonStr::from_raw);
        let operation = string("operation")?.to_text().into_owned();
        let known = ["operation", "path", "oldPath"];
        let says_more = members.iter().any(|(name, _)| !known.iter().any(|known| name == **known));
        Some(Change { operation, path: string("path"), old_path: string("oldPath"), says_more })
    };
    changes.into_iter().filter_map(change).collect()
}

/// The section of the patch for each change.
///
/// A patch should have the same absolute paths. One that git itself made has the prefixes `a/` and `b/`, or paths
/// relative to an unknown repository root.
fn sections_of<'a>(changes: &[Change], sections: &'a [Section]) -> Vec<Option<&'a Section>> {
    /// Limits the search: no repository is deeper.
    const MAX_PARENTS: usize = 64;

    let slashes = |path: &str| path.replace('\\', "/");
    let mut by_path: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, path) in sections.iter().enumerate().rev().filter_map(|(at, one)| Some((at, one.path()?))) {
        let path = slashes(path);
        if let Some((prefix, bare)) = path.split_once('/')
            && prefix.len() == 1
        {
            by_path.entry(format!("/{bare}")).or_default().push(index);
            by_path.entry(bare.to_owned()).or_default().push(index);
        }
        by_path.entry(path).or_default().push(index);
    }

    let mut is_free = vec![true; sections.len()];
    let mut take = |path: &str| {
        let indexes = by_path.get_mut(path)?;
        std::iter::from_fn(|| indexes.pop()).find(|&index| std::mem::replace(&mut is_free[index], false))
    };
    let paths: Vec<String> = changes.iter().map(|change| slashes(&change.path_text())).collect();
    let mut found: Vec<_> = paths.iter().map(|path| take(path)).collect();
    for (path, found) in paths.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
        let ends = path.match_indices('/').map(|(index, _)| &path[index + 1..]);
        *found = ends.filter(|end| !end.is_empty()).take(MAX_PARENTS).find_map(&mut take);
    }
    if let ([_], [None]) = (sections, &found[..]) {
        found[0] = Some(0);
    }
    found.into_iter().map(|index| sections.get(index?)).collect()
}

/// The text that replaces a terminal for a v1 client that cannot show it.
fn terminal_as_text(item: &Object, terminal_text: &dyn Fn(&str) -> Option<String>) -> Option<Object> {
    let id = item.get("terminalId")?;
    let shown = JsonStr::new(&terminal_text(&id.to_text()?)?);
    let mut meta = item.get_object("_meta").unwrap_or_default();
    meta.set(TERMINAL, id.clone());

    let mut shown: Object = item
        .iter()
        .filter(|(name, _)| **name != *"content")
        .map(|(name, value)| match &*name.to_text() {
            "type" => (name.clone(), Json::from(&JsonStr::new("content"))),
            "terminalId" => (JsonStr::new("content"), block_of_text(&shown)),
            _ => (name.clone(), value.clone()),
        })
        .collect();
    shown.set("_meta", meta.to_json());
    Some(shown)
}

/// The block of a text item.
fn text_block(item: &Object) -> Option<Members<'_>> {
    if item.get_str("type")? != "content" {
        return None;
    }
    let block = Members::of(item.get("content")?.raw()).ok()?;
    (block.get_str("type")? == "text").then_some(block)
}

/// An item with only a text.
fn text_item(text: &JsonStr) -> Object {
    let mut item = Object::default();
    item.set("type", "content");
    item.set("content", block_of_text(text));
    item
}

fn block_of_text(text: &JsonStr) -> Json {
    let mut block = Object::default();
    block.set("type", "text");
    block.set("text", text);
    block.to_json()
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::values::check::{object, parses};

    /// The names of the members that are not in `known`, in order.
    fn other_members(item: &Object, known: &[&str]) -> Vec<String> {
        let mut names: Vec<String> = item.iter().map(|(name, _)| name.to_text().into_owned()).collect();
        names.retain(|name| !known.contains(&name.as_str()));
        names.sort();
        names
    }

    /// Checks that the item is valid in v1 and that all known members are parsed.
    fn parses_as_v1(item: &Object) {
        let mut known = vec!["type", "content", "terminalId", "path", "newText", "_meta"];
        known.extend(item.get_str("oldText").map(|_| "oldText"));
        let unknown = other_members(item, &known);
        parses::<v1::ToolCallContent>(
            &item.to_json(),
            &unknown.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }

    /// Checks that the item is valid in v2 and that all known members are parsed.
    fn parses_as_v2(item: &Object) {
        let mut known = vec!["type", "content", "terminalId", "changes", "_meta"];
        known.extend(item.get("patch").filter(|patch| patch.type_of() == Type::Object).map(|_| "patch"));
        let unknown = other_members(item, &known);
        parses::<v2::ToolCallContent>(
            &item.to_json(),
            &unknown.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }

    fn shown(items: &[Object], losses: &Losses) -> String {
        let losses = losses.as_slice().iter().map(|loss| format!("lost: {}\n", loss.kind));
        items.iter().map(|item| format!("{item:?}\n")).chain(losses).collect()
    }

    /// The text of the terminal `t1`; all others belong to a v1 client.
    fn terminal_text(id: &str) -> Option<String> {
        (id == "t1").then(|| "$ ls\nfile\n".to_owned())
    }

    fn to_v1(item: &Object) -> (Vec<Object>, Losses) {
        let mut losses = Losses::default();
        let items = item_to_v1(item, &mut losses, &terminal_text);
        (items, losses)
    }

    /// Converts a v1 item to v2, checks that it is valid there, and that it converts back unchanged.
    fn check_to_v2(item: &str, expected: &Expect) {
        let item = object(item);
        let there = item_to_v2(&item);
        expected.assert_eq(&shown(std::slice::from_ref(&there), &Losses::default()));
        parses_as_v1(&item);
        parses_as_v2(&there);
        assert_eq!(item_to_v2(&there), there, "already v2");
        assert_eq!(to_v1(&there), (vec![item.clone()], Losses::default()));
        assert_eq!(to_v1(&item), (vec![item], Losses::default()), "already v1");
    }

    /// Converts a v2 item to v1 and checks that it is valid there.
    fn check_to_v1(item: &str, expected: &Expect) {
        let item = object(item);
        parses_as_v2(&item);
        let (items, losses) = to_v1(&item);
        expected.assert_eq(&shown(&items, &losses));
        for item in items {
            parses_as_v1(&item);
            assert_eq!(to_v1(&item), (vec![item], Losses::default()), "already v1");
        }
    }

    #[test]
    fn values_that_are_valid_in_both_versions_are_unchanged() {
        for item in [
            r#"{"type":"content","content":{"type":"text","text":"\u0061"},"x":1.50}"#,
            r#"{"content":{"data":"","mimeType":"image/png","type":"image"},"_meta":{"a":1},"type":"content"}"#,
            r#"{"type":"terminal","terminalId":"client's","x":184467440737095516160}"#,
        ] {
            let item = object(item);
            assert_eq!(item_to_v2(&item), item);
            assert_eq!(to_v1(&item), (vec![item.clone()], Losses::default()));
            parses_as_v1(&item);
            parses_as_v2(&item);
        }
    }

    #[test]
    fn a_v1_diff_gets_changes_and_a_patch() {
        check_to_v2(
            r#"{"type":"diff","path":"/a/b.txt","oldText":"one\ntwo\n","newText":"one\n2\n","_meta":{"x":1.0}}"#,
            &expect![[r#"
                {"type":"diff","path":"/a/b.txt","oldText":"one\ntwo\n","newText":"one\n2\n","_meta":{"x":1.0},"changes":[{"operation":"modify","path":"/a/b.txt"}],"patch":{"format":"git_patch","text":"diff --git /a/b.txt /a/b.txt\n--- /a/b.txt\n+++ /a/b.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"}}
            "#]],
        );
        check_to_v2(
            r#"{"newText":"one","oldText":null,"path":"/a/\u00e9","type":"diff","unknown":[1]}"#,
            &expect![[r#"
                {"newText":"one","oldText":null,"path":"/a/\u00e9","type":"diff","unknown":[1],"changes":[{"operation":"add","path":"/a/\u00e9"}],"patch":{"format":"git_patch","text":"diff --git \"/a/\\303\\251\" \"/a/\\303\\251\"\nnew file mode 100644\n--- /dev/null\n+++ \"/a/\\303\\251\"\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n"}}
            "#]],
        );
        // Nothing changed, so that there is no patch; a field that v1 does not know is not overwritten.
        check_to_v2(
            r#"{"type":"diff","path":"/a","oldText":"x","newText":"x"}"#,
            &expect![[r#"
                {"type":"diff","path":"/a","oldText":"x","newText":"x","changes":[{"operation":"modify","path":"/a"}]}
            "#]],
        );
        check_to_v2(
            r#"{"type":"diff","path":"/a","newText":"x","patch":"mine"}"#,
            &expect![[r#"
                {"type":"diff","path":"/a","newText":"x","patch":"mine","changes":[{"operation":"add","path":"/a"}]}
            "#]],
        );
    }

    #[test]
    fn texts_with_an_unpaired_surrogate_survive_a_round_trip() {
        let item = object(r#"{"type":"diff","path":"/a","oldText":"\ud83d","newText":"\ude00\n"}"#);
        let there = item_to_v2(&item);
        assert!(there.get("patch").unwrap().as_str().contains("-\u{fffd}\\n\\\\ No newline"));
        assert_eq!(to_v1(&there).0, [item]);
    }

    #[test]
    fn long_texts_get_no_patch() {
        let item = object(&format!(
            r#"{{"type":"diff","path":"/a","newText":"{}"}}"#,
            "x".repeat(diff::MAX_TEXT + 1)
        ));
        let there = item_to_v2(&item);
        assert_eq!(there.get("changes").unwrap().as_str(), r#"[{"operation":"add","path":"/a"}]"#);
        assert_eq!(there.get("patch"), None);
        assert_eq!(to_v1(&there).0, [item]);
    }

    #[test]
    fn a_diff_that_cannot_be_read_stays() {
        for item in
            [r#"{"type":"diff"}"#, r#"{"type":"diff","path":"/a","newText":null}"#, "{}", r#"{"type":1}"#]
        {
            assert_eq!(item_to_v2(&object(item)), object(item));
        }
    }

    #[test]
    fn a_v2_diff_becomes_one_for_each_file_that_the_patch_shows() {
        check_to_v1(
            r#"{"type":"diff","changes":[{"operation":"modify","path":"/a/b","fileType":"text"}],"patch":{"format":"git_patch","text":"diff --git /a/b /a/b\n--- /a/b\n+++ /a/b\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -9 +9 @@\n-nine\n+9\n"},"_meta":{"x":1},"y":2}"#,
            &expect![[r#"
                {"type":"diff","_meta":{"x":1},"y":2,"path":"/a/b","oldText":"one\ntwo\nnine\n","newText":"one\n2\n9\n"}
                lost: diff_partial
                lost: diff_operation
            "#]],
        );
        // The content of an added or deleted file is known, even if it is empty.
        check_to_v1(
            r#"{"type":"diff","changes":[{"operation":"add","path":"/a"},{"operation":"delete","path":"/b"},{"operation":"add","path":"/c"},{"operation":"delete","path":"/d"}],"patch":{"format":"git_patch","text":"diff --git /a /a\nnew file mode 100644\n--- /dev/null\n+++ /a\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\ndiff --git /b /b\ndeleted file mode 100644\n--- /b\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\ndiff --git /c /c\nnew file mode 100644\ndiff --git /d /d\ndeleted file mode 100644\n"}}"#,
            &expect![[r#"
                {"type":"diff","path":"/a","newText":"x"}
                {"type":"diff","path":"/b","oldText":"y\n","newText":""}
                {"type":"diff","path":"/c","newText":""}
                {"type":"diff","path":"/d","oldText":"","newText":""}
                lost: diff_operation
            "#]],
        );
        // A truncated patch does not have all of it. The first item carries the other fields.
        check_to_v1(
            r#"{"type":"diff","changes":[{"operation":"add","path":"/a"},{"operation":"add","path":"/b"}],"patch":{"format":"git_patch","text":"--- /dev/null\n+++ /a\n@@ -0,0 +1,2 @@\n+x\n--- /dev/null\n+++ /b\n@@ -0,0 +1 @@\n+y\n"},"z":1}"#,
            &expect![[r#"
                {"type":"diff","z":1,"path":"/a","newText":"x\n"}
                {"type":"diff","path":"/b","newText":"y\n"}
                lost: diff_partial
            "#]],
        );
        // Moves, and unknown operations.
        check_to_v1(
            r#"{"type":"diff","changes":[{"operation":"move","oldPath":"/a","path":"/b"},{"operation":"_swap","path":"/c"}],"patch":{"format":"git_patch","text":"diff --git /a /b\nsimilarity index 50%\nrename from /a\nrename to /b\n--- /a\n+++ /b\n@@ -1 +1 @@\n-x\n+y\ndiff --git /c /c\n--- /c\n+++ /c\n@@ -1 +1 @@\n-v\n+w\n"}}"#,
            &expect![[r#"
                {"type":"diff","path":"/b","oldText":"x\n","newText":"y\n"}
                {"type":"diff","path":"/c","oldText":"v\n","newText":"w\n"}
                lost: diff_partial
                lost: diff_operation
            "#]],
        );
    }

    #[test]
    fn changes_without_a_patch_are_listed() {
        let changes = r#""changes":[{"operation":"modify","path":"/a/b"},{"operation":"move","oldPath":"/a","path":"/b"},{"operation":"_odd","on":1},"junk"]"#;
        for patch in [
            "",
            r#","patch":null"#,
            r#","patch":{"format":"_mine","text":"diff --git /a/b /a/b\n--- /a/b\n+++ /a/b\n@@ -1 +1 @@\n-x\n+y\n"}"#,
            r#","patch":{"format":"git_patch","text":"what?"}"#,
            r#","patch":{"format":"git_patch","text":"diff --git /a/b /a/b\nBinary files /a/b and /a/b differ\ndiff --git /a /b\nsimilarity index 100%\nrename from /a\nrename to /b\n"}"#,
        ] {
            let item = object(&format!(r#"{{"type":"diff",{changes}{patch},"_meta":{{}}}}"#));
            let (items, losses) = to_v1(&item);
            expect![[r#"
                {"type":"content","_meta":{},"content":{"type":"text","text":"modify /a/b\nmove /a -> /b\n_odd"}}
                lost: diff_without_patch
            "#]]
            .assert_eq(&shown(&items, &losses));
        }
        check_to_v1(
            r#"{"type":"diff","changes":[{"operation":"add","path":"/a.png","fileType":"binary"},{"operation":"modify","path":"/b"}],"patch":{"format":"git_patch","text":"diff --git /a.png /a.png\nnew file mode 100644\nBinary files /dev/null and /a.png differ\ndiff --git /b /b\n--- /b\n+++ /b\n@@ -1 +1 @@\n-x\n+y\n"}}"#,
            &expect![[r#"
                {"type":"diff","path":"/b","oldText":"x\n","newText":"y\n"}
                {"type":"content","content":{"type":"text","text":"add /a.png"}}
                lost: diff_partial
                lost: diff_without_patch
            "#]],
        );
        check_to_v1(
            r#"{"type":"diff","changes":[]}"#,
            &expect![[r#"
                lost: diff_without_patch
            "#]],
        );
    }

    #[test]
    fn sections_are_found_however_the_patch_spells_their_paths() {
        let change = |path: &str| Change {
            operation: "modify".to_owned(),
            path: Some(JsonStr::new(path)),
            old_path: None,
            says_more: false,
        };
        for (changes, sections, expected) in [
            (&["/w/a", "/w/b"][..], &["/w/b", "/w/a"][..], &[Some(1), Some(0)][..]),
            // Git's prefixes before an absolute path, and before a path in the repository.
            (&["/w/a", "/w/b"], &["b/w/b", "b/w/a"], &[Some(1), Some(0)]),
            (&["/w/src/a", "/w/src/b"], &["b/src/b", "src/a"], &[Some(1), Some(0)]),
            (&["C:\\w\\a", "C:\\w\\b"], &["C:\\w\\b", "b/w/a"], &[Some(1), Some(0)]),
            // The same file twice; the nearer path first; an absolute path matches that file only.
            (&["/a", "/a", "/a"], &["/a", "/a"], &[Some(0), Some(1), None]),
            (&["/w/x/a", "/w/a"], &["a", "x/a"], &[Some(1), Some(0)]),
            (&["/w/a", "/w/b"], &["/a", "/b"], &[None, None]),
            // A single change and a single section match each other.
            (&["/w/a"], &["/elsewhere"], &[Some(0)]),
            (&[], &["/a"], &[]),
            (&["/a", "", "/"], &[], &[None, None, None]),
        ] {
            let changes: Vec<Change> = changes.iter().map(|path| change(path)).collect();
            let sections: Vec<Section> = sections
                .iter()
                .map(|path| Section { new_path: Some((*path).to_owned()), ..Section::default() })
                .collect();
            let found: Vec<Option<usize>> = sections_of(&changes, &sections)
                .into_iter()
                .map(|found| found.and_then(|one| sections.iter().position(|other| std::ptr::eq(one, other))))
                .collect();
            assert_eq!(found, expected, "{sections:?}");
        }
    }

    #[test]
    fn a_display_terminal_becomes_text_and_stays_text() {
        for (item, text) in [
            (
                r#"{"type":"terminal","terminalId":"t1"}"#,
                r#"{"type":"content","content":{"type":"text","text":"$ ls\nfile\n"},"_meta":{"parlor/terminal":"t1"}}"#,
            ),
            (
                r#"{"_meta":{"a":1.0},"terminalId":"\u00741","x":2,"type":"terminal"}"#,
                r#"{"_meta":{"a":1.0,"parlor/terminal":"\u00741"},"content":{"type":"text","text":"$ ls\nfile\n"},"x":2,"type":"content"}"#,
            ),
        ] {
            let item = object(item);
            let (items, losses) = to_v1(&item);
            assert_eq!(shown(&items, &losses), format!("{text}\nlost: terminal_as_text\n"));
            parses_as_v1(&items[0]);
            parses_as_v2(&item);
            // The text is not elsewhere.
            assert_eq!(item_to_v2(&items[0]), items[0]);
        }
    }

    #[test]
    fn values_that_v1_cannot_parse_are_left_out() {
        for (item, loss) in [
            (r#"{"type":"content","content":{"type":"_chart"}}"#, LossKind::ContentBlockType),
            (r#"{"type":"content","content":{"text":"no type"}}"#, LossKind::ContentBlockType),
            (r#"{"type":"content","content":"no block"}"#, LossKind::ContentBlockType),
            (r#"{"type":"content"}"#, LossKind::ContentBlockType),
            (r#"{"type":"_table","rows":[]}"#, LossKind::ToolContentType),
            (r#"{"type":null}"#, LossKind::ToolContentType),
            ("{}", LossKind::ToolContentType),
        ] {
            let mut expected = Losses::default();
            expected.add(loss);
            assert_eq!(to_v1(&object(item)), (Vec::new(), expected), "{item}");
        }
    }

    #[test]
    fn statuses_and_kinds_are_the_ones_v1_parses() {
        for (status, expected) in [
            ("pending", ("pending", false)),
            ("in_progress", ("in_progress", false)),
            ("completed", ("completed", false)),
            ("failed", ("failed", false)),
            ("paused", ("in_progress", true)),
            ("cancelled", ("failed", true)),
            ("_waiting", ("in_progress", true)),
            ("", ("in_progress", true)),
        ] {
            assert_eq!(status_to_v1(status), expected);
            serde_json::from_value::<v1::ToolCallStatus>(expected.0.into()).unwrap();
        }
        for kind in
            ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]
        {
            assert_eq!(kind_to_v1(kind), (kind, false));
            let parsed: v1::ToolKind = serde_json::from_value(kind.into()).unwrap();
            assert_eq!(serde_json::to_value(parsed).unwrap(), kind);
        }
        assert_eq!(kind_to_v1("_dance"), ("other", true));
    }

    #[test]
    fn line_0_is_no_line() {
        for (v1, v2) in [
            (
                r#"[{"path":"/a","line":0,"x":1.0},{"path":"/b","line":1}]"#,
                r#"[{"path":"/a","x":1.0},{"path":"/b","line":1}]"#,
            ),
            (r#"[ {"path":"/a", "line":10}]"#, r#"[ {"path":"/a", "line":10}]"#),
            (r#"[{"line":0},"junk",null]"#, r#"[{},"junk",null]"#),
            ("[]", "[]"),
            ("null", "null"),
            ("0", "0"),
        ] {
            let converted = locations_to_v2(&Json::parse(v1).unwrap());
            assert_eq!(converted.as_str(), v2);
            assert_eq!(locations_to_v2(&converted), converted);
        }
    }

    proptest! {
        #[test]
        fn every_v1_diff_survives_a_round_trip(path in "/\\PC{0,12}", old in prop::option::of("(\\PC{0,4}\n?){0,6}"), new in "(\\PC{0,4}\n?){0,6}") {
            let mut item = object(r#"{"type":"diff"}"#);
            item.set("path", &path);
            if let Some(old) = &old {
                item.set("oldText", old);
            }
            item.set("newText", &new);
            let there = item_to_v2(&item);
            parses_as_v2(&there);
            prop_assert_eq!(to_v1(&there), (vec![item], Losses::default()));

            // Without the v1 members, the patch of a new file has the same content.
            let mut alone = there.clone();
            for name in ["path", "oldText", "newText"] {
                alone.remove(name);
            }
            let (items, _) = to_v1(&alone);
            items.iter().for_each(parses_as_v1);
            if old.is_none() {
                prop_assert_eq!(items[0].get_str("newText").unwrap(), new);
            }
        }
    }
}
