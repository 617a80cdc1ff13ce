//! The mouse, keys of the panes, and what is written to the terminal beside the screen.

use std::fs;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;

use crate::{PARLOR, with_server};
use parlor_testkit::screen::{CTRL_C, ENTER, ESC, Screen, TAB};

/// The row of the screen with a text, beginning at 1 as the mouse counts.
#[track_caller]
fn row_of(screen: &Screen, text: &str) -> usize {
    let shown = screen.text();
    shown.lines().position(|row| row.contains(text)).unwrap_or_else(|| panic!("no {text}: {shown}")) + 1
}

/// A command inside of a script of the shell, as `"$@"`.
fn in_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(command.get_current_dir().expect("the tests have a directory"));
    shell
}

fn copied(text: &str) -> String {
    format!("\u{1b}]52;c;{}\u{7}", STANDARD.encode(text))
}

#[test]
fn a_click_opens_a_session_and_the_wheel_scrolls_what_is_under_it() {
    let scenario = with_server();
    scenario.new_session("say the first session");
    let lines: String = (1..60).map(|number| format!("say line {number}\n")).collect();
    scenario.new_session(&lines);
    let mut screen = Screen::with_size(&scenario, &["attach", "say line"], 120, 24);
    screen.wait_for("line 59");
    let row = row_of(&screen, "Sessions 2") + 2;
    // The list has two sessions: the wheel over it does not move the conversation.
    screen.press(&format!("\u{1b}[<64;5;{row}M"));
    screen.press("\u{1b}[<64;80;10M\u{1b}[<64;80;10M");
    screen.wait_for_no("line 59");
    screen.press("\u{1b}[<65;80;10M\u{1b}[<65;80;10M");
    screen.wait_for("line 59");
    let row = row_of(&screen, "say the first ses");
    screen.press(&format!("\u{1b}[<0;10;{row}M\u{1b}[<0;10;{row}m"));
    screen.wait_for("\n                                    │   the first session");
}

#[test]
fn the_pager_shows_an_entry() {
    let scenario = with_server();
    scenario.new_session("say something to view");
    let seen = scenario.path().join("seen.txt");
    let mut command = scenario.command(&["attach"]);
    command.env("PAGER", format!("cp \"$1\" {}; :", seen.display()));
    let mut screen = Screen::run(&command, 80, 24);
    screen.wait_for("something to view");
    screen.press(TAB);
    screen.wait_for("v view");
    screen.press("v");
    wait_until("the pager has the text", || {
        fs::read_to_string(&seen).is_ok_and(|text| text.contains("something to view"))
    });
    // Keys are read again when the client has the terminal back and has drawn.
    wait_until("the client has the terminal", || screen.written().matches("\u{1b}[?1049h").count() == 2);
    screen.wait_for("v view");
    screen.press("i");
    screen.wait_for("Enter send");
}

#[test]
fn a_prompt_of_the_history_and_a_command_are_found_by_name() {
    let scenario = with_server();
    scenario.new_session("say a needle");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("\n   a needle");
    screen.press("\u{12}");
    screen.wait_for("History");
    screen.press("needle");
    screen.wait_for("1 of 1");
    screen.press(ENTER);
    screen.wait_for("› say a needle");
    screen.press("\u{10}");
    screen.wait_for("All commands");
    screen.press("directory of new");
    screen.wait_for("1 of 18");
    screen.press(ENTER);
    screen.wait_for("Directory: ");
    screen.press(ESC);
    screen.wait_for("› say a needle");
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_until_it_continues_the_client() {
    let scenario = with_server();
    scenario.new_session("say still here");
    let command = scenario.command(&["attach"]);
    let script = "set -m; \"$@\"; echo the shell has it; read answer; fg >/dev/null";
    let mut screen = Screen::run(&in_shell(script, &command), 80, 24);
    screen.wait_for("still here");
    screen.wait_for("─ Idle");
    screen.press("\u{1a}");
    screen.wait_for("the shell has it");
    screen.press("\n");
    screen.wait_for("─ Idle");
    screen.press("and typed");
    screen.wait_for("› and typed");
    assert_eq!(screen.detach(), Some(0));
}

#[test]
fn another_agent_continues_the_session() {
    let mut scenario = Scenario::new(PARLOR);
    let other = format!("other={}", programs::test_agent());
    scenario.serve(&["--agent", "demo", "--agent", &other]);
    scenario.run(&["prompt", "--new", "--agent", "demo", "say hello"]).success();
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("\n   hello");
    screen.press(TAB);
    screen.wait_for("a other agent");
    screen.press("a");
    screen.wait_for("Continue with another agent");
    screen.press("other");
    screen.wait_for("›  other         installed");
    screen.press(ENTER);
    screen.wait_for("Continues with other. Esc returns to the parent.");
}

#[test]
fn markdown_is_copied_with_its_marks() {
    let scenario = with_server();
    scenario.new_session("say It is **bold**.");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("It is bold.");
    screen.press(TAB);
    screen.wait_for("y copy");
    screen.press("Y");
    screen.wait_for("Copied 1 line");
    wait_until("the terminal receives the text to copy", || {
        ["It is **bold**.", "It is **bold**.\n"].iter().any(|text| screen.written().contains(&copied(text)))
    });
}

#[test]
fn an_archived_session_is_taken_back() {
    let scenario = with_server();
    scenario.new_session("say keep me");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("keep me");
    screen.press("\t\t");
    screen.wait_for("x archive");
    screen.press("x");
    screen.wait_for("Archived \"say keep me\".  u undo");
    // The first Ctrl-C says what the second one does.
    screen.press(CTRL_C);
    screen.wait_for("Ctrl-C again detaches");
    screen.press("u");
    screen.wait_for("Kept \"say keep me\"");
    assert!(scenario.run(&["ls"]).success().stdout.contains("say keep me"));
}

#[test]
fn everything_is_unfolded_and_folded_again() {
    let scenario = with_server();
    scenario.new_session("think First thoughts\nsay Done");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("Done");
    screen.press(TAB);
    screen.wait_for("y copy");
    screen.press("z");
    screen.wait_for("▾");
    screen.press("z");
    screen.wait_for_no("▾");
}

#[test]
fn a_request_rings_while_the_window_has_no_focus() {
    let scenario = with_server();
    scenario.new_session("say hello");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("\n   hello");
    screen.press("\u{1b}[O");
    // A key after it shows that the report was read.
    screen.press("x");
    screen.wait_for("› x");
    scenario.run(&["prompt", "--new", "--no-wait", "ask Delete the notes"]).success();
    screen.wait_for("! 1 Ctrl-T");
    wait_until("it rings", || screen.written().contains("\u{7}\u{1b}]9;demo asks: "));
    // The end of a turn of another session rings as well.
    scenario.run(&["answer", "r1", "--deny"]).success();
    wait_until("it rings", || screen.written().contains("\u{1b}]9;Turn ended (ask Delete the notes)\u{7}"));
}

#[test]
fn without_colours_nothing_is_coloured() {
    let scenario = with_server();
    scenario.new_session("say `plain` text");
    let command = scenario.command(&["attach"]);
    let screen = Screen::run(&in_shell("NO_COLOR=1 exec \"$@\"", &command), 80, 24);
    // Marks tell what colours would.
    screen.wait_for("\n   `plain` text");
    screen.wait_for("─ Idle");
    let written = screen.written();
    for colour in ["\u{1b}[38;5", "\u{1b}[48;5", "\u{1b}[31m", "\u{1b}[36m"] {
        assert!(!written.contains(colour), "{written:?}");
    }
}

#[test]
fn ascii_uses_no_other_characters() {
    let mut scenario = Scenario::new(PARLOR);
    fs::write(scenario.work().join("ascii.toml"), "ascii = true\n").unwrap();
    scenario.serve(&["--agent", "demo", "--config", "ascii.toml"]);
    scenario.new_session("say plain text");
    let screen = Screen::with_size(&scenario, &["attach", "--config", "ascii.toml"], 120, 24);
    screen.wait_for("- Idle");
    screen.wait_for("plain text");
    assert!(screen.text().is_ascii(), "{}", screen.text());
}
