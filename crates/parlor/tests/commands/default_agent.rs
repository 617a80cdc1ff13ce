//! Which agent is used if none is selected, and commands that are for other programs.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use parlor_testkit::output::CommandOutput;
use parlor_testkit::scenario::Scenario;

use crate::PARLOR;
use crate::terminal::Terminal;

const NOTICE: &str =
    "no agent is installed: using the demo agent (`parlor agents` lists agents to install)\n";

/// Installs an agent under the name of a preset's program: the demo agent, which is started by another name.
pub(crate) fn install(scenario: &Scenario, program: &str) {
    let directory = scenario.path().join("bin");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join(program);
    fs::write(&file, format!("#!/bin/sh\nexec {PARLOR} demo-agent\n")).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
}

/// The variable `PATH` with the installed agents first.
pub(crate) fn path(scenario: &Scenario) -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", scenario.path().join("bin").display())
}

/// Runs a command that finds the installed agents.
pub(crate) fn run(scenario: &Scenario, args: &[&str]) -> CommandOutput {
    scenario.command(args).env("PATH", path(scenario)).output().unwrap().into()
}

fn default_of(agents: &CommandOutput) -> Option<String> {
    let agents = agents.json();
    let default = agents.as_array().unwrap().iter().find(|agent| agent["default"] == true)?;
    Some(default["name"].as_str().unwrap().to_owned())
}

#[test]
fn the_demo_agent_is_used_with_a_notice_if_no_other_one_is_installed() {
    let mut scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["prompt", "--new", "say hello"]).success();
    assert_eq!(output.stdout, "hello\n");
    assert!(output.stderr.starts_with(NOTICE), "{output:#?}");
    let output = scenario.run(&["prompt", "--new", "--agent", "demo", "say hello"]).success();
    assert!(!output.stderr.contains("no agent is installed"), "it was asked for: {output:#?}");
    let output = scenario.run_with(&["acp"], "").success();
    assert_eq!(output.stderr, NOTICE);
    scenario.stop();
}

#[test]
fn the_only_installed_agent_is_the_default_one() {
    let mut scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    assert_eq!(default_of(&run(&scenario, &["agents", "--json"]).success()).as_deref(), Some("codex"));
    let output = run(&scenario, &["prompt", "--new", "say hello"]).success();
    assert_eq!(output.stdout, "hello\n");
    assert!(!output.stderr.contains("demo agent"), "{output:#?}");
    let sessions = scenario.run(&["ls", "--json"]).success().json();
    assert_eq!(sessions[0]["agent"], "codex");
    // With a server, and for an agent that was installed while it runs.
    assert_eq!(default_of(&run(&scenario, &["agents", "--json"]).success()).as_deref(), Some("codex"));
    let output = run(&scenario, &["doctor"]).success();
    assert!(
        output.stdout.contains("default agent   codex (Demo agent of parlor) answers initialize"),
        "{output:#?}"
    );
    install(&scenario, "goose");
    assert_eq!(default_of(&run(&scenario, &["agents", "--json"]).success()), None);
    scenario.stop();
}

#[test]
fn one_of_several_installed_agents_has_to_be_selected() {
    let mut scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    install(&scenario, "goose");
    let output = run(&scenario, &["prompt", "--new", "say hello"]).exit_code(2);
    assert!(
        output.stderr.starts_with(
            "parlor: default agent: several agents are installed and none is selected: codex, goose\n  hint: select one with \
             --agent codex, or with default_agent = \"codex\" in config.toml\n"
        ),
        "{output:#?}"
    );
    let output = run(&scenario, &["doctor"]).success();
    assert!(output.stdout.contains("warn  default agent   several agents are installed"), "{output:#?}");
    run(&scenario, &["prompt", "--new", "--agent", "goose", "say hello"]).success();
    // Commands for existing sessions need no default agent.
    run(&scenario, &["title", "latest", "Selected"]).success();
    assert_eq!(run(&scenario, &["prompt", "-s", "latest", "say again"]).success().stdout, "again\n");
    scenario.stop();
}

#[test]
fn the_agent_is_asked_for_on_a_terminal() {
    let mut scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    install(&scenario, "goose");
    let mut terminal =
        Terminal::with_env(&scenario, &["prompt", "--new", "say hello"], &[("PATH", &path(&scenario))]);
    terminal.wait_for("Agent of this session (1-2): ");
    terminal.type_text("3\n2\n");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("  1  codex") && seen.contains("  2  goose"), "{seen}");
    let sessions = scenario.run(&["ls", "--json"]).success().json();
    assert_eq!(sessions[0]["agent"], "goose");
    scenario.stop();
}

#[test]
fn serve_accepts_the_name_of_an_agent() {
    let mut scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    install(&scenario, "goose");
    scenario.serve(&["--agent", "goose"]);
    assert_eq!(default_of(&run(&scenario, &["agents", "--json"]).success()).as_deref(), Some("goose"));
    run(&scenario, &["prompt", "--new", "say hello"]).success();
    scenario.stop();
    let output = scenario.run(&["serve", "--agent", "nobody"]).exit_code(2);
    assert!(
        output.stderr.starts_with("parlor: --agent nobody: unknown agent 'nobody' (known: claude, "),
        "{output:#?}"
    );
    let output = scenario.run(&["serve", "--agent", "x=y", "--agent", "goose"]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: --agent goose has no effect: "), "{output:#?}");
}

#[test]
fn commands_for_other_programs_explain_themselves_on_a_terminal() {
    let mut scenario = Scenario::new(PARLOR);
    for command in ["acp", "demo-agent"] {
        let mut terminal = Terminal::new(&scenario, &[command]);
        terminal.wait_for(&format!("`parlor {command}` is for "));
        // The end of the input.
        terminal.type_text("\u{4}");
        assert_eq!(terminal.wait().0, Some(0), "{command}");
    }
    let output = scenario.run(&["demo-agent"]).success();
    assert_eq!(output.stderr, "", "in a pipe it says nothing");
    scenario.stop();
}

#[test]
fn an_option_without_effect_is_rejected() {
    let scenario = Scenario::new(PARLOR).with_server();
    fs::write(scenario.work().join("other.toml"), "").unwrap();
    for args in
        [&["acp", "--config", "other.toml"][..], &["prompt", "--config", "other.toml", "--new", "say hello"]]
    {
        let output = scenario.run(args).exit_code(2);
        assert!(output.stderr.starts_with("parlor: --config other.toml has no effect: "), "{output:#?}");
        assert!(output.stderr.contains("hint: `parlor stop` stops the server"), "{output:#?}");
    }
}

#[test]
fn the_agent_is_asked_for_on_the_terminal_if_standard_input_is_a_pipe() {
    let mut scenario = Scenario::new(PARLOR);
    install(&scenario, "codex-acp");
    install(&scenario, "goose");
    let mut device = crate::terminal::Device::open();
    let mut command = scenario.command(&["prompt", "--new", "say words"]);
    command.env("PATH", path(&scenario)).env("PARLOR_TTY", device.name());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"say from a pipe\n").unwrap();
    device.wait_for("Agent of this session (1-2): ");
    device.type_text("1\n");
    let output = CommandOutput::from(child.wait_with_output().unwrap()).success();
    assert_eq!(output.stdout, "words\n\nfrom a pipe\n");
    // The session is of codex, whose id in the registry is another name of it.
    run(&scenario, &["prompt", "--agent", "codex-acp", "say again"]).success();
    let output = run(&scenario, &["prompt", "--agent", "goose", "say again"]).exit_code(2);
    assert!(output.stderr.contains("--agent goose` continues it with that agent"), "{output:#?}");
    scenario.stop();
}
