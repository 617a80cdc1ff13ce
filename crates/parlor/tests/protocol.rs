//! Checks that `docs/protocol.md` lists the names that the sources add to the protocol, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names in the first cells of the tables. A name without a row of its own is not listed.
fn listed() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let first_cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned);
    names.collect()
}

/// The names in the sources of the crates that are shipped.
fn in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in fs::read_dir(root().join("crates")).unwrap().map(|folder| folder.unwrap().path()) {
        let name = folder.file_name().unwrap();
        if name != "parlor-testkit" && name != "parlor-peers" {
            collect(&folder.join("src"), &mut names);
        }
    }
    names
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for path in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap();
            names.extend(literals(code).filter(|literal| is_name(literal)).map(str::to_owned));
        }
    }
}

/// What stands between two quotes of a line, also between the end of one literal and the start of the next.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    lines.flat_map(|line| line.split('"').skip(1))
}

/// Whether a literal is a method, a kind of update, a cursor or a metadata key of parlor.
fn is_name(literal: &str) -> bool {
    ["_parlor/", "_parlor_", "parlor/"].iter().any(|prefix| {
        literal.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphabetic() || c == '_' || c == '/')
        })
    })
}

#[test]
fn every_name_in_the_sources_is_in_the_tables() {
    let (listed, used) = (listed(), in_sources());
    assert!(used.len() > 50, "{} names", used.len());
    let missing: Vec<_> = used.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/protocol.md: {missing:#?}");
}

#[test]
fn every_name_in_the_tables_is_in_the_sources() {
    let (listed, used) = (listed(), in_sources());
    let unknown: Vec<_> = listed.difference(&used).collect();
    assert!(unknown.is_empty(), "in docs/protocol.md, but in no source: {unknown:#?}");
}

#[test]
fn names_are_recognised_in_code_and_not_in_comments() {
    let code = r#"
        /// "parlor/comment"
        object.set_nested("_meta", "parlor/seq", 1).with("_parlor_tail", "parlor/x.toml");
        "_parlor/list/update" | "session/list" => method.starts_with("_parlor/"),
        format!("parlor/{name}")
    "#;
    let found: Vec<_> = literals(code).filter(|literal| is_name(literal)).collect();
    assert_eq!(found, ["parlor/seq", "_parlor_tail", "_parlor/list/update"]);
}
