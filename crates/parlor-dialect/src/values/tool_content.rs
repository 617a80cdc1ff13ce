//! The content of tool calls, and the names of their states and kinds.
//!
//! A v1 diff is two texts; a v2 diff names changed files and shows them by a git patch. What v1 says is kept in
//! the v2 diff beside that, and a terminal's id in the metadata of the text that stands for it, so that both
//! come back as they were.

mod cap;
mod diff;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use parlor_json::{Json, JsonStr, Members, Object, Type, elements, text};
use serde_json::value::RawValue;

pub(crate) use cap::{CAP, cap};
use diff::Section;

use crate::{LossKind, Losses};

/// The metadata of a text that stands for a terminal: the terminal's id.
const TERMINAL: &str = "parlor/terminal";

/// An item of tool content as v2 spells it.
pub(crate) fn item_to_v2(item: &Object) -> Object {
    let changed = match string(item, "type").as_deref() {
        Some("diff") => diff_to_v2(item),
        Some("content") => terminal_of(item),
        _ => None,
    };
    changed.unwrap_or_else(|| item.clone())
}

/// An item of tool content as v1 spells it: none, one, or one for each file of a diff.
///
/// `terminal_text` gives what a terminal shows if v1 cannot show it by itself, and `None` for a terminal that
/// belongs to a v1 client.
pub(crate) fn item_to_v1(
    item: &Object,
    losses: &mut Losses,
    terminal_text: &dyn Fn(&str) -> Option<String>,
) -> Vec<Object> {
    match string(item, "type").as_deref() {
        Some("content") if item.get("content").is_some_and(|block| block_fits_v1(block.raw())) => {
            vec![item.clone()]
        }
        Some("content") => {
            losses.add(LossKind::ContentBlockType);
            Vec::new()
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

/// Whether v1 knows the type of a content block.
pub(crate) fn block_fits_v1(block: &RawValue) -> bool {
    let members = Members::of(block).unwrap_or_default();
    let type_ = members.get("type").and_then(text);
    matches!(type_.as_deref(), Some("text" | "image" | "audio" | "resource_link" | "resource"))
}

/// The status of a tool call that v1 knows and that is nearest, and whether it is another one.
pub(crate) fn status_to_v1(status: &str) -> (&'static str, bool) {
    match status {
        "pending" => ("pending", false),
        "in_progress" => ("in_progress", false),
        "completed" => ("completed", false),
        "failed" => ("failed", false),
        "cancelled" => ("failed", true),
        // `paused`, and what v2 says to treat as still in progress.
        _ => ("in_progress", true),
    }
}

/// The kind of a tool call that v1 knows, and whether it is another one.
pub(crate) fn kind_to_v1(kind: &str) -> (&'static str, bool) {
    const KINDS: [&str; 10] =
        ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];
    match KINDS.iter().find(|&&known| known == kind) {
        Some(known) => (known, false),
        None => ("other", true),
    }
}

/// The locations of a tool call as v2 spells them: lines are counted from one, so the line 0 is none.
pub(crate) fn locations_to_v2(locations: &Json) -> Json {
    let is_line_0 = |place: &RawValue| {
        Members::of(place).is_ok_and(|place| place.get("line").is_some_and(|line| line.get() == "0"))
    };
    let places = elements(locations.raw()).unwrap_or_default();
    if !places.iter().any(|place| is_line_0(place)) {
        return locations.clone();
    }
    array(places.into_iter().map(|place| match Object::parse(place) {
        Ok(mut changed) if is_line_0(place) => {
            changed.remove("line");
            changed.to_json()
        }
        _ => Json::from(place),
    }))
}

/// `None` if it is a v2 diff already, or no diff that can be read.
fn diff_to_v2(item: &Object) -> Option<Object> {
    if item.get("changes").is_some_and(|changes| changes.type_of() == Type::Array) {
        return None;
    }
    let (path, new) = (string(item, "path")?, string(item, "newText")?);
    let old = string(item, "oldText");

    let mut change = Object::default();
    change.set("operation", &JsonStr::new(if old.is_some() { "modify" } else { "add" }));
    change.set("path", item.get("path")?.clone());
    let mut diff = item.clone();
    diff.set("changes", array([change.to_json()]));
    if diff.get("patch").is_none()
        && let Some(text) = diff::make(&path, old.as_deref(), &new)
    {
        let mut patch = Object::default();
        patch.set("format", &JsonStr::new("git_patch"));
        patch.set("text", &JsonStr::new(&text));
        diff.set("patch", patch.to_json());
    }
    Some(diff)
}

fn diff_to_v1(item: &Object, losses: &mut Losses) -> Vec<Object> {
    let mut rest = item.clone();
    rest.remove("changes");
    let patch = item.get("patch").and_then(|patch| Object::parse(patch.raw()).ok());
    // Another `patch` than v2 means is a field of its own.
    let patch = patch.filter(|patch| patch.get("format").is_some());
    if patch.is_some() {
        rest.remove("patch");
    }
    if string(item, "path").is_some() && string(item, "newText").is_some() {
        return vec![rest];
    }

    let changes = changes_of(item);
    let patch = patch.filter(|patch| string(patch, "format").as_deref() == Some("git_patch"));
    let patch = patch.as_ref().and_then(|patch| string(patch, "text"));
    let sections = patch.map_or_else(Vec::new, |patch| diff::parse(&patch));

    let mut diffs = Vec::new();
    let mut named = Vec::new();
    let (mut is_partial, mut is_other) = (false, false);
    for (change, section) in changes.iter().zip(sections_of(&changes, &sections)) {
        let Some((path, shown)) =
            change.path.as_ref().zip(section.and_then(|section| change.shown_by(section)))
        else {
            named.push(change.to_string());
            continue;
        };
        is_partial |= shown.is_partial;
        is_other |= !matches!(&*change.operation, "add" | "delete" | "modify");
        let mut diff = rest.clone();
        diff.set("path", path);
        match shown.old {
            Some(old) => diff.set("oldText", &JsonStr::new(old)),
            None => {
                diff.remove("oldText");
            }
        }
        diff.set("newText", &JsonStr::new(shown.new));
        diffs.push(diff);
    }

    if is_partial {
        losses.add(LossKind::DiffPartial);
    }
    if is_other {
        losses.add(LossKind::DiffOperation);
    }
    if !named.is_empty() || diffs.is_empty() {
        losses.add(LossKind::DiffWithoutPatch);
    }
    if !named.is_empty() {
        rest.set("type", &JsonStr::new("content"));
        rest.set("content", block_of_text(&JsonStr::new(&named.join("\n"))));
        diffs.push(rest);
    }
    diffs
}

/// One of the changes that a v2 diff lists.
struct Change {
    operation: String,
    path: Option<JsonStr>,
    old_path: Option<JsonStr>,
}

/// What v1 shows of a change.
struct Shown<'a> {
    old: Option<&'a str>,
    new: &'a str,
    is_partial: bool,
}

impl Change {
    /// `None` if the patch has no lines of this change.
    fn shown_by<'a>(&self, section: &'a Section) -> Option<Shown<'a>> {
        let Section { old, new, has_hunks, is_binary, .. } = section;
        let is_text = *has_hunks || !is_binary;
        // The patch of a file that is all new or all gone has all of it; that of an empty one has no hunk.
        match &*self.operation {
            "add" if is_text && old.is_empty() => Some(Shown { old: None, new, is_partial: false }),
            "delete" if is_text && new.is_empty() => Some(Shown { old: Some(old), new, is_partial: false }),
            _ => has_hunks.then_some(Shown { old: Some(old), new, is_partial: true }),
        }
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
    let changes = item.get("changes").and_then(|changes| elements(changes.raw())).unwrap_or_default();
    let change = |raw| {
        let members = Members::of(raw).ok()?;
        let string = |name| members.get(name).and_then(JsonStr::from_raw);
        let operation = string("operation")?.to_text().into_owned();
        Some(Change { operation, path: string("path"), old_path: string("oldPath") })
    };
    changes.into_iter().filter_map(change).collect()
}

/// Which section of the patch is about each change.
///
/// A patch should name the same absolute paths. One that was made by git itself has `a/` and `b/` before them,
/// or names files from the root of a repository that nobody told us.
fn sections_of<'a>(changes: &[Change], sections: &'a [Section]) -> Vec<Option<&'a Section>> {
    /// Deeper than any repository lies; no path can make us look for more than this.
    const MAX_PARENTS: usize = 64;

    let slashes = |path: &str| path.replace('\\', "/");
    let mut by_path: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, path) in sections.iter().enumerate().rev().filter_map(|(at, one)| Some((at, one.path()?))) {
        let path = slashes(path);
        if let Some((prefix, bare)) = path.split_once('/')
            && prefix.len() == 1
        {
            by_path.entry(format!("/{bare}")).or_default().push(place);
            by_path.entry(bare.to_owned()).or_default().push(place);
        }
        by_path.entry(path).or_default().push(place);
    }

    let mut is_free = vec![true; sections.len()];
    let mut take = |path: &str| {
        let places = by_path.get_mut(path)?;
        std::iter::from_fn(|| places.pop()).find(|&place| std::mem::replace(&mut is_free[place], false))
    };
    let paths: Vec<String> = changes.iter().map(|change| slashes(&change.path_text())).collect();
    let mut found: Vec<_> = paths.iter().map(|path| take(path)).collect();
    for (path, found) in paths.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
        let ends = path.match_indices('/').map(|(place, _)| &path[place + 1..]);
        *found = ends.filter(|end| !end.is_empty()).take(MAX_PARENTS).find_map(&mut take);
    }
    if let ([_], [None]) = (sections, &found[..]) {
        found[0] = Some(0);
    }
    found.into_iter().map(|place| sections.get(place?)).collect()
}

/// The text that a v1 client sees in place of a terminal, if it cannot see the terminal.
fn terminal_as_text(item: &Object, terminal_text: &dyn Fn(&str) -> Option<String>) -> Option<Object> {
    let id = item.get("terminalId")?;
    let shown = JsonStr::new(&terminal_text(&text(id.raw())?)?);
    let mut meta = item.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok()).unwrap_or_default();
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

/// The terminal that a text stands for, if it stands for one.
fn terminal_of(item: &Object) -> Option<Object> {
    let mut meta = Object::parse(item.get("_meta")?.raw()).ok()?;
    let id = meta.remove(TERMINAL).filter(|id| id.type_of() == Type::String)?;
    let mut terminal: Object = item
        .iter()
        .map(|(name, value)| match &*name.to_text() {
            "type" => (name.clone(), Json::from(&JsonStr::new("terminal"))),
            "content" => (JsonStr::new("terminalId"), id.clone()),
            "_meta" => (name.clone(), meta.to_json()),
            _ => (name.clone(), value.clone()),
        })
        .collect();
    if meta.is_empty() {
        terminal.remove("_meta");
    }
    Some(terminal)
}

/// The member called `name`, if it is a string.
fn string<'a>(object: &'a Object, name: &str) -> Option<Cow<'a, str>> {
    text(object.get(name)?.raw())
}

/// The block of an item that is a text.
fn text_block(item: &Object) -> Option<Members<'_>> {
    if string(item, "type")? != "content" {
        return None;
    }
    let block = Members::of(item.get("content")?.raw()).ok()?;
    (block.get("type").and_then(text)? == "text").then_some(block)
}

/// An item that is a text and nothing else.
fn text_item(text: &JsonStr) -> Object {
    let mut item = Object::default();
    item.set("type", &JsonStr::new("content"));
    item.set("content", block_of_text(text));
    item
}

fn block_of_text(text: &JsonStr) -> Json {
    let mut block = Object::default();
    block.set("type", &JsonStr::new("text"));
    block.set("text", text);
    block.to_json()
}

fn array(values: impl IntoIterator<Item = Json>) -> Json {
    let values: Vec<Json> = values.into_iter().collect();
    let texts: Vec<&str> = values.iter().map(Json::as_str).collect();
    Json::parse(format!("[{}]", texts.join(","))).expect("values between commas are an array")
}
