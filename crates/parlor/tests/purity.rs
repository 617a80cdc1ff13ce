//! Checks in the sources that the core does no I/O and uses no clock, randomness or async, and that the test agent shares
//! no code with the server that it tests.

use std::fs;
use std::path::{Path, PathBuf};

const CORE: [&str; 6] =
    ["parlor-json", "parlor-wire", "parlor-session", "parlor-dialect", "parlor-engine", "parlor-view"];

/// The allowed dependencies of the core. None of these does I/O; `tracing` only if the program installs a subscriber.
const DEPENDENCIES: [&str; 16] = [
    "anstyle-parse",
    "base64",
    "bytes",
    "jiff",
    "memchr",
    "parlor-dialect",
    "parlor-json",
    "parlor-session",
    "parlor-wire",
    "pulldown-cmark",
    "serde",
    "serde_json",
    "similar",
    "tracing",
    "thiserror",
    "unicode-width",
];

const FORBIDDEN: [&str; 18] = [
    "::now",
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
    "async fn",
    "async move",
    "async {",
    ".await",
    "tokio",
    "rand::",
    "println!",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every source file of a crate with its text.
fn sources(name: &str) -> Vec<(PathBuf, String)> {
    let mut folders = vec![crates().join(name).join("src")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path, text));
            }
        }
    }
    sources
}

/// The lines of a source that are neither comments nor tests: tests may read files.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]");
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn core_sources_use_no_clock_randomness_io_or_async() {
    for name in CORE {
        for (path, text) in sources(name) {
            for (number, line) in code(&text) {
                for word in FORBIDDEN {
                    assert!(!line.contains(word), "{}:{}: `{word}` in the core", path.display(), number + 1);
                }
            }
        }
    }
}

#[test]
fn core_crates_have_only_allowed_dependencies() {
    for name in CORE {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for line in dependencies.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            assert!(DEPENDENCIES.contains(&dependency), "{name} depends on {dependency}");
        }
    }
}

/// With a version, a crate whose tests use a dependent crate could not be published before that crate.
#[test]
fn dev_dependencies_on_workspace_crates_have_no_version() {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap().parse::<toml::Table>().unwrap();
    let workspace = read(crates().join("../Cargo.toml"));
    let shared = &workspace["workspace"]["dependencies"];
    for folder in fs::read_dir(crates()).unwrap().map(|folder| folder.unwrap().path()) {
        let manifest = read(folder.join("Cargo.toml"));
        let dependencies = manifest.get("dev-dependencies").and_then(toml::Value::as_table);
        for (name, dependency) in dependencies.into_iter().flatten() {
            let is_shared = dependency.get("workspace").is_some();
            let dependency = if is_shared { &shared[name] } else { dependency };
            let is_ours = dependency.get("path").is_some();
            assert!(!is_ours || dependency.get("version").is_none(), "{}: {name}", folder.display());
        }
    }
}

#[test]
fn the_test_agent_shares_no_code_with_the_server() {
    let agent =
        |(path, _): &(PathBuf, String)| path.components().any(|part| part.as_os_str() == "test_agent");
    let sources: Vec<_> = sources("parlor-testkit").into_iter().filter(agent).collect();
    assert!(!sources.is_empty());
    for (path, text) in sources {
        for word in ["parlor_agent", "parlor_client", "parlor_server", "parlor_session", "parlor_store"] {
            assert!(!text.contains(word), "{}: `{word}` in the test agent", path.display());
        }
    }
}

#[test]
fn the_json_and_the_session_crate_have_no_names_of_updates_ids_and_methods() {
    for name in ["parlor-json", "parlor-session"] {
        for (path, text) in sources(name) {
            for word in
                ["sessionUpdate", "messageId", "toolCallId", "stopReason", "_chunk\"", "\"state_", "session/"]
            {
                assert!(!text.contains(word), "{}: the wire name `{word}`", path.display());
            }
        }
    }
}
