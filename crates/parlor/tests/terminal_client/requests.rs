//! Permission requests, forms and the inbox.

use crate::{go_to_request, with_server};
use parlor_testkit::screen::{CTRL_C, ENTER, ESC, Screen, TAB};

#[test]
fn a_request_is_answered_with_a_key() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("No sessions yet");
    go_to_request(&mut screen, "ask Delete the notes");
    screen.wait_for("1 y  Allow once");
    assert!(screen.text().contains("Delete the notes"), "{}", screen.text());
    screen.press("y");
    screen.wait_for("You allowed it this once.");
    screen.wait_for("─ Idle");
}

#[test]
fn escape_leaves_a_request_open_and_the_inbox_answers_it() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("No sessions yet");
    go_to_request(&mut screen, "ask Delete the notes");
    screen.press(ESC);
    screen.wait_for("Tab answers");
    assert_eq!(scenario.run(&["inbox", "--json"]).success().stdout.matches("requestId").count(), 1);
    screen.press("\u{14}");
    screen.wait_for("1 request waits for you");
    screen.press("3");
    screen.wait_for("Nothing waits for you.");
    screen.press(ESC);
    screen.wait_for("You did not allow it.");
}

#[test]
fn escape_twice_puts_a_request_off_and_does_not_cancel_the_turn() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("No sessions yet");
    go_to_request(&mut screen, "ask Delete the notes");
    screen.press(ESC);
    screen.wait_for("Tab answers · Esc Esc cancels");
    // In the next half second it would be ignored: the clock of the tool call tells when that is over.
    let waited = |text: &str| {
        let row = text.lines().find(|row| row.starts_with(" ! Delete the notes"))?;
        row.rsplit(':').next()?.trim().parse::<u64>().ok()
    };
    screen.wait_until("the clock is there", |text| waited(text).is_some());
    let before = waited(&screen.text()).expect("the clock stays");
    screen.wait_until("a second has passed", |text| waited(text) > Some(before + 1));
    screen.press(ESC);
    screen.wait_for("Esc again cancels the turn");
    screen.press(TAB);
    screen.wait_for("Esc not now");
    screen.press("y");
    screen.wait_for("You allowed it this once.");
}

#[test]
fn a_request_that_another_client_answered_disappears_with_a_note() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("No sessions yet");
    go_to_request(&mut screen, "ask Delete the notes");
    scenario.run(&["answer", "r1", "--allow"]).success();
    screen.wait_for("Request answered: Allow once on the command line");
    screen.wait_for("You allowed it this once.");
}

#[test]
fn a_form_in_a_fork_stays_open_when_the_client_detaches() {
    let scenario = with_server();
    scenario.new_session("say hello");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("hello");
    screen.press(TAB);
    screen.press("[");
    screen.press("f");
    screen.wait_for("Forked");
    screen.prompt("elicit");
    screen.wait_for("[ Submit ]");
    screen.press(ESC);
    screen.wait_for("Tab answers");
    screen.press(CTRL_C);
    screen.wait_for("Ctrl-C again");
    screen.press(CTRL_C);
    assert_eq!(screen.wait(), Some(0));
    assert_eq!(scenario.run(&["inbox", "--json"]).success().stdout.matches("requestId").count(), 1);
    scenario.run(&["answer", "r1", "--deny"]).success();
}

#[test]
fn a_form_is_filled_in() {
    let scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("No sessions yet");
    go_to_request(&mut screen, "elicit");
    screen.wait_for("[ Submit ]");
    // A required field.
    screen.press("\t\t");
    screen.press(ENTER);
    screen.wait_for("✗");
    screen.press("Ada");
    screen.press(ENTER);
    screen.press(" ");
    screen.wait_for("[x]");
    screen.press(ENTER);
    screen.press(ENTER);
    screen.wait_for("Ada");
    screen.wait_for("─ Idle");
}

#[test]
fn a_request_in_another_session_is_counted_and_opened_from_the_inbox() {
    let scenario = with_server();
    scenario.new_session("say the first session");
    scenario.run(&["prompt", "--new", "--no-wait", "ask Delete the notes"]).success();
    let mut screen = Screen::open(&scenario, &["attach", "say the first"]);
    screen.wait_for("! 1 Ctrl-T");
    screen.press("\u{14}");
    screen.wait_for("ask Delete the notes");
    screen.press(ENTER);
    screen.wait_for("Esc not now");
    screen.press("y");
    screen.wait_for("You allowed it this once.");
}
