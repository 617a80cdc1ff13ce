//! `setup`, and the settings of editors.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;

use crate::PARLOR;
use crate::agents::fake_npm;
use crate::default_agent::{install, path, run};
use crate::terminal::Terminal;

const EDITORS: [&str; 5] = ["zed", "jetbrains", "neovim", "emacs", "vscode"];

/// The configuration file that is used without `--config`.
fn config_file(scenario: &Scenario) -> PathBuf {
    scenario.path().join("home/.config/parlor/config.toml")
}

fn write_config(scenario: &Scenario, text: &str) {
    fs::create_dir_all(config_file(scenario).parent().unwrap()).unwrap();
    fs::write(config_file(scenario), text).unwrap();
}

/// Installs an agent that requires a login, under the name of a preset's program.
fn install_with_login(scenario: &Scenario, program: &str) {
    install(scenario, program);
    let file = scenario.path().join("bin").join(program);
    let state = scenario.path().join("logged-in");
    let command = format!("{} --auth=terminal --login-file {}", programs::test_agent(), state.display());
    fs::write(&file, format!("#!/bin/sh\nexec {command} \"$@\"\n")).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn without_a_terminal_nothing_is_changed() {
    let scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    let output = run(&scenario, &["setup"]).success();
    assert!(output.stdout.contains("  1  codex     installed\n"), "{output:#?}");
    assert!(
        output.stdout.contains("     claude    not installed   parlor agents install claude\n"),
        "{output:#?}"
    );
    assert!(output.stdout.contains("Nothing was changed"), "{output:#?}");
    assert!(output.stdout.contains("ok  codex answers in "), "{output:#?}");
    assert!(output.stderr.contains("hint: `parlor setup --agent codex --yes`"), "{output:#?}");
    assert!(!config_file(&scenario).exists());
    install(&scenario, "goose");
    for args in [&["setup"][..], &["setup", "--yes"]] {
        let output = run(&scenario, args).exit_code(2);
        assert!(output.stderr.contains("several agents are installed and none is selected"), "{output:#?}");
    }
    assert!(!config_file(&scenario).exists());
}

#[test]
fn yes_writes_the_agent_and_keeps_the_rest_of_the_file() {
    let scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    install(&scenario, "goose");
    let output = run(&scenario, &["setup", "--agent", "goose", "--yes"]).success();
    assert!(
        output.stdout.contains("wrote default_agent = \"goose\" to ~/.config/parlor/config.toml"),
        "{output:#?}"
    );
    assert_eq!(fs::read_to_string(config_file(&scenario)).unwrap(), "default_agent = \"goose\"\n");
    write_config(&scenario, "# Mine\ndefault_agent = 'goose' # for now\n[server]\nidle_timeout = 60\n");
    fs::set_permissions(config_file(&scenario), Permissions::from_mode(0o600)).unwrap();
    run(&scenario, &["setup", "--agent", "codex", "--yes"]).success();
    assert_eq!(
        fs::read_to_string(config_file(&scenario)).unwrap(),
        "# Mine\ndefault_agent = \"codex\" # for now\n[server]\nidle_timeout = 60\n"
    );
    let mode = fs::metadata(config_file(&scenario)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the permissions stay");
    let output = run(&scenario, &["setup", "--yes"]).success();
    assert!(output.stdout.contains("has default_agent = \"codex\" already"), "{output:#?}");
    let other = scenario.work().join("linked.toml");
    fs::write(scenario.work().join("real.toml"), "").unwrap();
    std::os::unix::fs::symlink("real.toml", &other).unwrap();
    let named = other.to_str().unwrap();
    run(&scenario, &["setup", "--agent", "goose", "--yes", "--config", named]).success();
    assert!(fs::symlink_metadata(&other).unwrap().is_symlink(), "the link stays");
    assert_eq!(fs::read_to_string(scenario.work().join("real.toml")).unwrap(), "default_agent = \"goose\"\n");
}

#[test]
fn an_agent_that_cannot_be_used_is_rejected_and_the_file_stays() {
    let scenario = Scenario::new(PARLOR);
    let output = run(&scenario, &["setup", "--agent", "nobody", "--yes"]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: unknown agent 'nobody'\n"), "{output:#?}");
    let output = run(&scenario, &["setup", "--agent", "claude", "--yes"]).exit_code(2);
    assert!(
        output.stderr.starts_with(
            "parlor: agent 'claude' is not installed\n  hint: install it: parlor agents install"
        ),
        "{output:#?}"
    );
    let output = run(&scenario, &["setup"]).exit_code(1);
    assert!(output.stderr.starts_with("parlor: no agent is installed\n"), "{output:#?}");
    assert!(!config_file(&scenario).exists());
    install(&scenario, "codex-acp");
    write_config(&scenario, "default_agent = \n");
    let output = run(&scenario, &["setup", "--agent", "codex", "--yes"]).exit_code(2);
    assert!(output.stderr.contains("config.toml:1: "), "{output:#?}");
    assert_eq!(fs::read_to_string(config_file(&scenario)).unwrap(), "default_agent = \n");
}

#[test]
fn the_agent_and_a_login_are_asked_for_on_a_terminal() {
    for columns in [40, 120] {
        let mut scenario = Scenario::new(PARLOR);
        install_with_login(&scenario, "codex-acp");
        install(&scenario, "goose");
        let env = [("PATH", &*path(&scenario))];
        let mut terminal = Terminal::with(&scenario, &["setup"], &env, columns);
        terminal.wait_for("Default agent [1]: ");
        terminal.type_text("9\n");
        terminal.wait_for("there is no '9': type a number from 1 to 2, or codex, goose");
        terminal.type_text("1\n");
        terminal.wait_for("Log in to codex now? [y/N]: ");
        terminal.type_text("y\n");
        terminal.wait_for("Password: ");
        terminal.type_text("swordfish\r");
        let (code, seen) = terminal.wait();
        assert_eq!(code, Some(0), "{seen}");
        assert!(seen.contains("logged in to codex"), "{seen}");
        assert_eq!(fs::read_to_string(config_file(&scenario)).unwrap(), "default_agent = \"codex\"\n");
        let output = run(&scenario, &["setup", "--yes"]).success();
        assert!(output.stdout.contains("codex     installed, logged in"), "{output:#?}");
        scenario.stop();
    }
}

#[test]
fn an_agent_is_installed_on_a_terminal_if_there_is_none() {
    let scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "codex-acp", "");
    let env = [("PATH", &*path(&scenario))];
    let mut terminal = Terminal::with(&scenario, &["setup"], &env, 120);
    terminal.wait_for("Install an agent now (its name, or Enter for none): ");
    terminal.type_text("nobody\n");
    terminal.wait_for("parlor cannot install 'nobody': type one of claude, codex, ");
    terminal.type_text("codex-acp\n");
    terminal.wait_for("installed codex 2.6.0 (");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("codex answers in "), "{seen}");
    assert_eq!(fs::read_to_string(config_file(&scenario)).unwrap(), "default_agent = \"codex\"\n");

    let scenario = Scenario::new(PARLOR);
    let env = [("PATH", "/nowhere")];
    let mut terminal = Terminal::with(&scenario, &["setup"], &env, 120);
    terminal.wait_for("Install an agent now (its name, or Enter for none): ");
    terminal.type_text("\n");
    let (code, seen) = terminal.wait();
    // The person has declined, which is not an error.
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("No agent is installed: the demo agent is used until"), "{seen}");
    let output = scenario.command(&["setup"]).env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn the_end_of_the_input_changes_nothing() {
    let scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    let env = [("PATH", &*path(&scenario))];
    let mut terminal = Terminal::with_env(&scenario, &["setup"], &env);
    terminal.wait_for("Default agent [1]: ");
    terminal.type_text("\u{4}");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("no agent was selected; nothing was changed"), "{seen}");
    assert!(!config_file(&scenario).exists());
}

#[test]
fn the_settings_of_editors_are_those_of_the_documentation() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
    let page = fs::read_to_string(page).unwrap();
    let scenario = Scenario::new(PARLOR);
    for editor in EDITORS {
        let output = scenario.run(&["setup", "--editor", editor]).success();
        let snippet = output.stdout.replace(PARLOR, "/usr/local/bin/parlor");
        assert!(page.contains(&format!("\n{snippet}```\n")), "docs/agents.md lacks this:\n{snippet}");
        if snippet.starts_with('{') {
            serde_json::from_str::<serde_json::Value>(&snippet).unwrap();
        }
    }
    assert_eq!(scenario.run(&["setup", "--editor", "ed"]).exit_code(2).stdout, "");
}
