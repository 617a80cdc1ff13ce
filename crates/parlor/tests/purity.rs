//! The core does no I/O and knows no clock, no randomness and no async: looked up in its sources, so that
//! nobody can forget it.

use std::fs;
use std::path::{Path, PathBuf};

const CORE: [&str; 4] = ["parlor-json", "parlor-wire", "parlor-session", "parlor-dialect"];

/// What the core may be built on. None of these does I/O by itself.
const DEPENDENCIES: [&str; 8] =
    ["base64", "memchr", "parlor-json", "parlor-session", "parlor-wire", "serde", "serde_json", "similar"];

const FORBIDDEN: [&str; 16] = [
    "std::time",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::thread",
    "std::process",
    "std::sync::mpsc",
    "SystemTime",
    "Instant",
    "async ",
    ".await",
    "tokio",
    "rand::",
    "println!",
    "unsafe",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn core_sources_name_no_clock_no_randomness_no_io_and_no_async() {
    for name in CORE {
        let sources = fs::read_dir(crates().join(name).join("src")).unwrap();
        for source in sources.map(|file| file.unwrap().path()) {
            let text = fs::read_to_string(&source).unwrap();
            for (number, line) in
                text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
            {
                for word in FORBIDDEN {
                    assert!(
                        !line.contains(word),
                        "{}:{}: `{word}` in the core",
                        source.display(),
                        number + 1
                    );
                }
            }
        }
    }
}

#[test]
fn core_crates_depend_on_nothing_that_could_bring_them_in() {
    for name in CORE {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for line in dependencies.lines().filter(|line| !line.is_empty()) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            assert!(DEPENDENCIES.contains(&dependency), "{name} depends on {dependency}");
        }
    }
}

#[test]
fn only_the_dialects_know_wire_names() {
    for name in ["parlor-json", "parlor-session"] {
        for source in fs::read_dir(crates().join(name).join("src")).unwrap().map(|file| file.unwrap().path())
        {
            let text = fs::read_to_string(&source).unwrap();
            for word in
                ["sessionUpdate", "messageId", "toolCallId", "stopReason", "_chunk\"", "\"state_", "session/"]
            {
                assert!(!text.contains(word), "{}: the wire name `{word}`", source.display());
            }
        }
    }
}
