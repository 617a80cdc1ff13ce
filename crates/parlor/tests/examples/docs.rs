//! The code in the guide and the README. The Rust code of the guide is compiled as documentation of `parlor-agent`; the
//! rest is tested here.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use parlor_testkit::programs::example;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The blocks of a document in a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(found) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            if found.split(',').next() == Some(language) {
                blocks.push(block.join("\n") + "\n");
            }
        }
    }
    blocks
}

/// Code without comments and empty lines, which differ between an example and its copy in the docs.
fn bare(code: &str) -> Vec<&str> {
    let lines = code.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"));
    lines.collect()
}

#[test]
fn the_echo_agent_in_readme_and_guide_is_the_example() {
    let example = read("crates/parlor-agent/examples/echo.rs");
    for path in ["README.md", "docs/guide.md"] {
        let blocks = blocks(&read(path), "rust");
        assert_eq!(bare(&blocks[0]), bare(&example), "{path}");
    }
}

#[test]
fn the_reader_agent_in_the_guide_is_the_example() {
    let blocks = blocks(&read("docs/guide.md"), "rust");
    assert_eq!(bare(&blocks[1]), bare(&read("crates/parlor-agent/examples/reader.rs")));
}

#[test]
fn the_client_in_the_guide_is_the_example() {
    let blocks = blocks(&read("docs/guide.md"), "rust");
    let shown = blocks.iter().find(|block| block.starts_with("use parlor_client")).unwrap();
    let example = read("crates/parlor-client/examples/hello.rs");
    assert_eq!(bare(shown), bare(&example[example.find("use parlor_client").unwrap()..]));
}

#[test]
fn the_first_lines_in_the_guide_get_the_documented_responses() {
    let console = blocks(&read("docs/guide.md"), "console").concat();
    let line = console.lines().find(|line| line.contains("initialize")).unwrap();
    let (messages, _) = line.split_once("echo '").unwrap().1.split_once('\'').unwrap();
    let mut agent =
        Command::new(example("echo")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(agent.stdin.take().unwrap(), "{messages}").unwrap();
    let answer = agent.wait_with_output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    assert_eq!(answer["result"]["agentInfo"]["name"], "echo");
}

#[test]
fn the_dependencies_in_the_guide_are_those_of_the_workspace() {
    let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
    let version = workspace["workspace"]["package"]["version"].as_str().unwrap();
    let manifests = blocks(&read("docs/guide.md"), "toml");
    assert_eq!(manifests.len(), 2, "one for the agent, one for the client");
    for manifest in manifests {
        let manifest: toml::Table = manifest.parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        let ours: Vec<_> = dependencies.iter().filter(|(name, _)| name.starts_with("parlor-")).collect();
        assert!(!ours.is_empty(), "{manifest:?}");
        for (name, wanted) in ours {
            assert!(workspace["workspace"]["dependencies"].get(name).is_some(), "there is no crate {name}");
            let wanted = wanted.as_str().unwrap();
            assert!(version.starts_with(&format!("{wanted}.")), "{name} {wanted} is not {version}");
        }
        assert!(dependencies["tokio"]["features"].as_array().is_some());
    }
}

#[test]
fn the_editor_settings_in_the_guide_have_a_program() {
    let settings = blocks(&read("docs/guide.md"), "json");
    assert!(!settings.is_empty());
    for settings in settings {
        let settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
        let servers = settings["agent_servers"].as_object().unwrap();
        for (name, server) in servers {
            assert!(server["command"].is_string(), "{name}");
            assert!(
                server["args"].as_array().is_none_or(|args| args.iter().all(serde_json::Value::is_string))
            );
        }
    }
}

#[test]
fn every_code_block_in_the_guide_is_compiled_or_tested() {
    let guide = read("docs/guide.md");
    let languages = guide.lines().filter_map(|line| line.strip_prefix("```")).filter(|name| !name.is_empty());
    for language in languages {
        assert!(["rust", "rust,no_run", "toml", "json", "console"].contains(&language), "{language}");
    }
}
