//! The lengths of the examples, compared with the same with the SDK.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Lines that are neither empty, nor a comment, nor about lints.
fn code(path: &str) -> usize {
    let text = read(path);
    let lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty());
    lines.filter(|line| !line.starts_with("//") && !line.starts_with("#![")).count()
}

const ECHO: &str = "crates/parlor-agent/examples/echo.rs";
const WATCH: &str = "crates/parlor-client/examples/watch.rs";
const RELAY: &str = "crates/parlor-client/examples/relay.rs";
const SDK: &str = "crates/parlor/tests/examples/sdk_versions";

#[test]
fn the_short_examples_stay_below_their_line_limits() {
    let lines = read(ECHO).lines().count();
    assert!(lines < 60, "{ECHO} has {lines} lines, comments included");
    assert!(code(RELAY) < 30, "{RELAY} has {} lines of code", code(RELAY));
}

#[test]
fn the_line_counts_in_the_docs_are_correct() {
    let rows = [("an agent that echoes", ECHO, "echo"), ("a client that prints a turn", WATCH, "watch")];
    let document = read("docs/libraries.md");
    for (what, ours, theirs) in rows {
        let [v1, v2] = ["v1", "v2"].map(|version| code(&format!("{SDK}/{theirs}_{version}.rs")));
        let row = format!("| {what} | {} | {v1} | {v2} |", code(ours));
        assert!(document.contains(&row), "docs/libraries.md should have this row: {row}");
    }
}
