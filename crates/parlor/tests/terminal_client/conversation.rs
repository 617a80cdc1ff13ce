//! Prompts, the conversation, keys and sizes.

use std::fs;

use parlor_testkit::wait::wait_until;

use crate::{PARLOR, with_server};
use parlor_testkit::scenario::Scenario;
use parlor_testkit::screen::{CTRL_C, DARK, ENTER, ESC, LIGHT, Screen, TAB};

#[test]
fn a_first_prompt_starts_a_session_and_its_answer_is_rendered() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &[]);
    screen.wait_for("No sessions yet");
    screen.prompt("say It is **bold** and `code`.");
    screen.wait_for("It is bold and code.");
    screen.wait_for("─ Idle");
    let answer = || screen.text().lines().skip(3).collect::<String>();
    assert!(answer().contains("It is bold and code.") && !answer().contains("**"), "{}", screen.text());
    assert_eq!(screen.detach(), Some(0));
    // The session is there without the client, and the next start opens it.
    assert!(scenario.run(&["ls"]).success().stdout.contains("say It is"));
    let screen = Screen::open(&scenario, &[]);
    screen.wait_for("It is bold and code.");
}

#[test]
fn a_server_is_started_if_none_runs() {
    let scenario = Scenario::new(PARLOR);
    let mut screen = Screen::open(&scenario, &["new", "--agent", "demo"]);
    screen.wait_for("Enter start");
    screen.prompt("say hello from the demo");
    screen.wait_for("\n   hello from the demo");
    assert_eq!(screen.detach(), Some(0));
}

#[test]
fn the_turn_goes_on_after_the_client_detached() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.prompt("sleep 1000");
    screen.wait_for("Esc cancels");
    assert_eq!(screen.detach(), Some(0));
    wait_until("the turn ends", || !scenario.run(&["ls"]).success().stdout.contains("running"));
    assert!(!scenario.run(&["show", "latest"]).success().stdout.contains("cancelled"));
}

#[test]
fn escape_cancels_the_turn_and_a_split_arrow_key_does_not() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.prompt("sleep 60000");
    screen.wait_for("Esc cancels");
    // The parts of an arrow key, as a slow line delivers them.
    screen.press(ESC);
    screen.press("[");
    screen.press("A");
    screen.press("still here");
    screen.wait_for("still here");
    assert!(screen.text().contains("Esc cancels"), "{}", screen.text());
    screen.press(ESC);
    screen.wait_for("Turn cancelled");
    screen.wait_for("─ Idle");
    assert!(screen.text().contains("still here"), "the draft is kept: {}", screen.text());
}

#[test]
fn prompts_are_queued_shown_and_withdrawn() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.prompt("sleep 60000");
    screen.wait_for("Esc cancels");
    screen.prompt("say never");
    screen.wait_for("queued 1  say never");
    screen.press("\u{1b}[A");
    screen.wait_for("w withdraw");
    screen.press("w");
    screen.wait_for_no("queued 1");
    screen.press(ESC);
    screen.wait_for("─ Idle");
}

#[test]
fn every_width_draws_the_conversation_and_a_resize_keeps_it() {
    let scenario = with_server();
    scenario.new_session("say The quick brown fox jumps over the lazy dog, again and again and again.");
    let mut screen = Screen::with_size(&scenario, &["attach"], 200, 50);
    screen.wait_for("again and again and again.");
    screen.wait_for("Sessions 1");
    for (columns, rows) in [(40, 10), (80, 24), (100, 30), (200, 50), (44, 20)] {
        screen.resize(columns, rows);
        screen.wait_until("the last word is on the screen", |text| {
            text.contains("again.") && text.lines().last().is_some_and(|row| row.contains("Enter"))
        });
    }
    screen.resize(30, 5);
    screen.wait_for("40x10 at least");
    screen.resize(80, 24);
    screen.wait_for("again and again and again.");
}

#[test]
fn messages_are_selected_copied_and_folded() {
    let scenario = with_server();
    scenario.new_session("think Let me think\nsay An answer to copy");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("An answer to copy");
    screen.press(TAB);
    screen.wait_for("y copy");
    screen.press("y");
    screen.wait_for("Copied 1 line");
    // Over a connection without a display, the terminal itself copies.
    let copied = "\u{1b}]52;c;QW4gYW5zd2VyIHRvIGNvcHk=\u{7}";
    wait_until("the terminal receives the text to copy", || screen.written().contains(copied));
    screen.press("/");
    screen.press("think");
    screen.press(ENTER);
    screen.wait_until("the thought is selected", |text| text.contains("▌▸") || text.contains("▌"));
    screen.press("i");
    screen.wait_for("Enter send");
}

#[test]
fn a_prompt_is_edited_in_a_fork_and_escape_returns_to_the_parent() {
    let scenario = with_server();
    scenario.new_session("say first version");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("first version");
    screen.press(TAB);
    screen.press("[");
    screen.press("e");
    screen.wait_for("Editing a prompt");
    screen.press("\u{17}\u{17}second one");
    screen.wait_for("› say second one");
    screen.press(ENTER);
    // The note is shown for a few seconds.
    screen.wait_for("Forked with the edited prompt");
    screen.wait_for("\n   second one");
    screen.wait_for("─ Idle");
    screen.press(ESC);
    screen.wait_for("first version");
    screen.wait_for_no("second one");
    assert_eq!(scenario.run(&["ls", "--json"]).success().stdout.matches("sessionId").count(), 2);
}

#[test]
fn what_is_typed_while_a_fork_is_made_is_sent_to_the_fork() {
    let scenario = with_server();
    let parent = scenario.new_session("say the parent");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("the parent");
    screen.press(&format!("{TAB}fsay e and r typed ahead{ENTER}"));
    screen.wait_for("\n   e and r typed ahead");
    let output = scenario.run(&["show", &parent]).success().stdout;
    assert!(!output.contains("typed ahead"), "{output}");
}

#[test]
fn an_answer_is_regenerated_in_a_fork() {
    let scenario = with_server();
    scenario.new_session("say once more");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("once more");
    screen.press(TAB);
    screen.wait_for("r regenerate");
    screen.press("r");
    screen.wait_for("Regenerating in a fork");
    wait_until("there is a fork", || {
        scenario.run(&["ls", "--json"]).success().stdout.matches("sessionId").count() == 2
    });
}

#[test]
fn files_are_completed_without_ignored_ones() {
    let scenario = with_server();
    fs::write(scenario.work().join(".gitignore"), "secret.txt\n").unwrap();
    fs::write(scenario.work().join("secret.txt"), "").unwrap();
    fs::write(scenario.work().join("section.txt"), "").unwrap();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.press("see @sec");
    screen.wait_for("section.txt");
    assert!(!screen.text().contains("secret.txt"), "{}", screen.text());
    screen.press(TAB);
    screen.wait_for("› see @section.txt");
}

#[test]
fn a_paste_is_not_taken_for_keys() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.press("\u{1b}[200~first\nsecond\u{1b}[201~");
    screen.wait_for("second");
    assert!(screen.text().contains("› first"), "{}", screen.text());
    let lines: String = (0..30).map(|number| format!("line {number}\n")).collect();
    screen.press(&format!("\u{1b}[200~{lines}\u{1b}[201~"));
    screen.wait_for("[pasted 30 lines]");
}

#[test]
fn the_prompt_is_written_in_an_editor() {
    let scenario = with_server();
    let editor = scenario.path().join("editor.sh");
    fs::write(&editor, "#!/bin/sh\nprintf 'say from the editor' > \"$1\"\n").unwrap();
    let mut command = scenario.command(&["new"]);
    command.env("EDITOR", format!("sh {}", editor.display()));
    let mut screen = Screen::run(&command, 80, 24);
    screen.wait_for("Enter start");
    screen.press("\u{7}");
    screen.wait_for("› say from the editor");
    screen.press(ENTER);
    screen.wait_for("\n   from the editor");
}

#[test]
fn wide_characters_keep_columns_aligned() {
    let scenario = with_server();
    scenario.new_session("say 請求書の丸め誤差を直す 🚀 naïve");
    let mut screen = Screen::with_size(&scenario, &["attach"], 120, 30);
    screen.wait_for("請求書の丸め誤差を直す 🚀 naïve");
    let text = screen.text();
    // The line between the list and the conversation is in one column.
    let columns: Vec<_> = text
        .lines()
        .filter_map(|row| row.find('│').map(|place| unicode_width::UnicodeWidthStr::width(&row[..place])))
        .collect();
    assert!(columns.len() > 20 && columns.iter().all(|column| *column == 36), "{columns:?}\n{text}");
    screen.press("ログイン画面");
    screen.wait_for("› ログイン画面");
    let (_, column) = screen.cursor();
    assert_eq!(column, 37 + 3 + 12);
}

#[test]
fn the_terminal_is_given_back_when_the_client_ends() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.press(CTRL_C);
    screen.wait_for("Ctrl-C again");
    screen.press(CTRL_C);
    assert_eq!(screen.wait(), Some(0));
    wait_until("the modes are reset", || {
        let written = screen.written();
        ["\u{1b}[?1049l", "\u{1b}[?2004l", "\u{1b}[?1004l", "\u{1b}[?25h"]
            .iter()
            .all(|mode| written.ends_with(mode) || written.contains(mode))
    });
}

#[test]
fn frames_are_synchronized_and_nothing_is_drawn_when_nothing_changes() {
    let scenario = with_server();
    scenario.new_session("say hello");
    let screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("hello");
    screen.wait_for("─ Idle");
    assert!(screen.written().contains("\u{1b}[?2026h") && screen.written().contains("\u{1b}[?2026l"));
    // An idle session has no clock on the screen: the ages of the list are far from a change.
    let frames = |screen: &Screen| screen.written().matches("\u{1b}[?2026h").count();
    wait_until("the first frames are drawn", || {
        let before = frames(&screen);
        std::thread::sleep(std::time::Duration::from_millis(300));
        frames(&screen) == before
    });
    let before = frames(&screen);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(frames(&screen), before);
}

#[test]
fn hostile_text_cannot_change_the_terminal() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.press("\u{1b}[200~say before \u{202e}reversed\u{9b}2J \u{1b}[201~");
    screen.wait_for("‹U+202E›reversed");
    screen.press(ENTER);
    screen.wait_until("prompt and answer are shown", |text| text.matches("‹U+202E›reversed").count() > 2);
    screen.prompt("terminal printf '\\033]0;stolen\\007\\033[2J\\033[31mred\\n'");
    screen.wait_for("red");
    screen.wait_for("─ Idle");
    let written = screen.written();
    assert!(!written.contains("stolen\u{7}") && !written.contains('\u{202e}') && !written.contains('\u{9b}'));
    assert!(screen.text().contains("before"), "{}", screen.text());
}

const MAGENTA: &str = "38;5;5";
const YELLOW: &str = "38;5;3";

#[test]
fn colours_fit_the_background_of_the_terminal() {
    let mut scenario = Scenario::new(PARLOR);
    fs::write(scenario.work().join("colours.toml"), "").unwrap();
    scenario.serve(&["--agent", "demo", "--config", "colours.toml"]);
    scenario.run(&["prompt", "--new", "--no-wait", "ask Delete the notes"]).success();
    let drawn = |background, config: &str| {
        fs::write(scenario.work().join("colours.toml"), config).unwrap();
        let command = scenario.command(&["attach", "--config", "colours.toml"]);
        let screen = Screen::run_on(background, &command, 80, 24);
        screen.wait_for("demo asks: Delete the notes");
        let written = screen.written();
        assert_eq!(screen.detach(), Some(0));
        assert!(!written.contains("rgb:"), "the answer of the terminal is not typed: {written}");
        written
    };
    for (background, config, colour) in [
        (DARK, "", YELLOW),
        (LIGHT, "", MAGENTA),
        (DARK, "background = \"light\"", MAGENTA),
        (LIGHT, "background = \"dark\"", YELLOW),
    ] {
        let other = if colour == YELLOW { MAGENTA } else { YELLOW };
        let written = drawn(background, config);
        assert!(written.contains(colour) && !written.contains(other), "{background} {config}: {written:?}");
    }
}
