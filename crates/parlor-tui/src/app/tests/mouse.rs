//! Clicks and the wheel.

use super::*;

/// The row of the screen that has a text, beginning at 0.
fn row_of(screen: &str, text: &str) -> u16 {
    let row = screen.lines().position(|row| row.contains(text));
    u16::try_from(row.unwrap_or_else(|| panic!("no {text}: {screen}"))).unwrap()
}

fn wheel(script: &mut Script, rows: isize, (column, row): (u16, u16)) {
    script.event(Event::Wheel { rows, column, row });
}

#[test]
fn a_click_opens_a_session_of_the_list() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    let screen = script.screen(120, 24);
    let effects = script.event(Event::Click(5, row_of(&screen, "Axum upgrade")));
    assert!(matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == "s2".into()), "{effects:?}");
}

#[test]
fn a_click_selects_an_entry_and_another_one_unfolds_it() {
    let lines = long(60);
    let mut script = Script::open(&refs(&lines));
    let screen = script.screen(80, 24);
    script.event(Event::Click(10, row_of(&screen, "message 58")));
    assert_eq!(script.app.focus, Focus::Messages);
    assert_eq!(script.app.conversation.as_ref().unwrap().selected_number(), Some(58));
    // A click into the input gives it the focus.
    script.event(Event::Click(10, 22));
    assert_eq!(script.app.focus, Focus::Input);
}

#[test]
fn the_wheel_scrolls_what_is_under_the_mouse() {
    let sessions: Vec<String> = (0..60)
        .map(|number| {
            format!(r#"{{"sessionId":"n{number}","cwd":"/home/dev","title":"number {number}","updatedAt":"2026-11-17T10:00:00Z"}}"#)
        })
        .collect();
    let lines = long(60);
    let mut script = Script::open(&refs(&lines));
    script.event(Event::ListChanged(rows(&refs(&sessions)), Vec::new()));
    let before = script.screen(120, 24);
    assert!(before.contains("Fix flaky port test claude") && before.contains("message 60"), "{before}");
    wheel(&mut script, 3, (5, 10));
    wheel(&mut script, 3, (5, 10));
    let after = script.screen(120, 24);
    assert!(!after.contains("Fix flaky port test claude") && after.contains("message 60"), "{after}");
    wheel(&mut script, -3, (60, 10));
    wheel(&mut script, -3, (60, 10));
    let after = script.screen(120, 24);
    assert!(!after.contains("Fix flaky port test claude") && !after.contains("message 60"), "{after}");
    // With the focus in the list its cursor moves, which stays on the screen.
    script.press("Tab Tab");
    let cursor = script.app.list_cursor.clone();
    wheel(&mut script, 3, (5, 10));
    assert_ne!(script.app.list_cursor, cursor);
}

#[test]
fn a_click_selects_and_chooses_in_a_picker() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Ctrl-O");
    let screen = script.screen(80, 24);
    let row = row_of(&screen, "Invoice rounding");
    assert_eq!(call(&script.event(Event::Click(10, row))), [&Call::Agents; 0]);
    assert!(
        script.screen(80, 24).lines().any(|row| row.starts_with('›') && row.contains("Invoice rounding"))
    );
    let effects = script.event(Event::Click(10, row));
    assert!(matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == "s6".into()), "{effects:?}");
    assert!(script.app.overlays.is_empty());
}

#[test]
fn a_click_in_the_inbox_selects_a_request_and_never_answers_it() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.event(Event::Requests(requests(&[EDIT_REQUEST, COMMAND_REQUEST]), Vec::new()));
    script.press("Esc Ctrl-T");
    let screen = script.screen(80, 24);
    let row = row_of(&screen, "Axum upgrade");
    for _ in 0..2 {
        assert_eq!(answers(&script.event(Event::Click(10, row))), [""; 0]);
    }
    assert!(answers(&script.press("y"))[0].starts_with("r2 "));
}
