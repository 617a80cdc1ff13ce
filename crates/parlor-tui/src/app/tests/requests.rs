//! Permission requests, forms and the inbox.

use super::*;

#[test]
fn a_permission_request_shows_everything_that_it_permits() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    screen!(script, 80 x 24, "request-80");
    screen!(script, 44 x 20, "request-44");
}

#[test]
fn a_form_is_filled_in_on_the_screen() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[FORM_REQUEST]), Vec::new()));
    script.wait(600);
    script.type_text("-db");
    screen!(script, 80 x 24, "form-80");
    // Enter goes from field to field; Submit rejects what is missing and shows where.
    let effects = script.press("Enter Enter Enter Enter Enter");
    assert_eq!(answers(&effects), [""; 0]);
    screen!(script, 80 x 24, "form-problem-80");
    let effects = script.press("Space Tab 5 Tab Space Right Right Space Tab Enter");
    let content = r#"{"name":"shop-db","schema":"one","pool":205,"extensions":["pg_trgm","citext"]}"#;
    assert_eq!(answers(&effects), [""; 0], "{content}");
    let effects = script.press("Backspace Tab Tab Enter");
    let content = content.replace("205", "20");
    assert_eq!(answers(&effects), [format!(r#"r3 {{"action":"accept","content":{content}}}"#)]);
}

#[test]
fn a_form_can_be_declined() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[FORM_REQUEST]), Vec::new()));
    script.wait(600);
    let effects = script.press("Tab Tab Tab Tab Tab Enter");
    assert_eq!(answers(&effects), [r#"r3 {"action":"decline"}"#]);
}

#[test]
fn the_inbox_shows_and_answers_requests_of_all_sessions() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.event(Event::Requests(requests(&[EDIT_REQUEST, COMMAND_REQUEST]), Vec::new()));
    script.press("Esc Ctrl-T");
    screen!(script, 80 x 24, "inbox-80");
    let effects = script.press("j y");
    assert_eq!(answers(&effects), [r#"r2 {"outcome":{"outcome":"selected","optionId":"y"}}"#]);
    let effects = script.press("k 4");
    assert_eq!(answers(&effects), [r#"r1 {"outcome":{"outcome":"selected","optionId":"N"}}"#]);
    script.event(Event::Requests(Vec::new(), vec!["r1".to_owned(), "r2".to_owned()]));
    screen!(script, 80 x 24, "inbox-answered-80");
}

#[test]
fn a_request_never_takes_keys_that_were_meant_for_the_input() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.type_text("yes");
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert_eq!(answers(&script.type_text(" y1")), [""; 0]);
    assert_eq!(script.app.input.text(), "yes y1");
    assert!(script.screen(80, 24).contains("Tab answers"));
    // With Tab they are for the request; the draft is kept.
    let effects = script.press("Tab y");
    assert_eq!(answers(&effects), [r#"r1 {"outcome":{"outcome":"selected","optionId":"y"}}"#]);
    script.event(Event::Requests(Vec::new(), vec!["r1".to_owned()]));
    // A key right after the request vanished is ignored.
    script.press("n");
    assert_eq!(script.app.input.text(), "yes y1");
    script.wait(600);
    script.press("z");
    assert_eq!(script.app.input.text(), "yes y1z");
}

#[test]
fn a_request_gets_the_focus_when_the_person_has_stopped_typing() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.type_text("x");
    script.press("Backspace");
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert_eq!(script.app.focus, Focus::Input);
    script.wait(1100);
    assert_eq!(script.app.focus, Focus::Request);
    // Tab was announced, and is pressed just after the focus has moved.
    script.press("Tab");
    assert_eq!(script.app.focus, Focus::Request);
    // A person who leaves it is left alone.
    script.press("Tab");
    script.wait(5000);
    assert_eq!(script.app.focus, Focus::Input);
}

#[test]
fn escape_puts_a_request_off_and_never_rejects_it() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert_eq!(script.app.focus, Focus::Request);
    assert_eq!(script.press("Esc"), []);
    assert_eq!(script.app.focus, Focus::Input);
    script.event(Event::Changed);
    assert_eq!(script.app.focus, Focus::Input, "it stays put off");
    script.press("Tab");
    assert_eq!(script.app.focus, Focus::Request);
}

#[test]
fn escape_does_not_cancel_a_turn_that_waits_for_an_answer_by_surprise() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    script.press("Esc");
    script.wait(600);
    assert_eq!(script.press("Esc"), [], "the second one only announces it");
    let screen = script.screen(80, 24);
    assert!(screen.contains("Esc again cancels the turn") && screen.contains("Esc Esc cancels"), "{screen}");
    script.wait(300);
    assert_eq!(script.press("Esc"), [], "too soon to be deliberate");
    // Another key means something else, and so does an Esc much later.
    script.press("x Backspace");
    script.wait(600);
    assert_eq!(script.press("Esc"), []);
    script.wait(2100);
    assert!(!script.screen(80, 24).contains("Esc again"));
    assert_eq!(script.press("Esc"), []);
    script.wait(600);
    assert_eq!(session_calls(&script.press("Esc")), [&SessionCall::Cancel]);
}

#[test]
fn an_answer_of_another_client_is_noted() {
    let decision = r#"{"sessionUpdate":"_parlor_event","eventId":"e1","type":"decision","at":"2026-11-17T14:05:28Z","request":"session/request_permission","toolCallId":"t9","outcome":"selected","option":{"optionId":"y","name":"Allow once","kind":"allow_once"},"by":{"client":9,"name":"zed"}}"#;
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    script.changed(&[PROMPT, RUNNING, decision]);
    script.event(Event::Requests(Vec::new(), vec!["r1".to_owned()]));
    let screen = script.screen(80, 24);
    assert!(screen.contains("Request answered: Allow once by zed"), "{screen}");
    assert_eq!(script.app.focus, Focus::Input);
}

#[test]
fn a_request_without_focus_of_the_window_notifies() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.event(Event::Focus(false));
    let effects = script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    let text = "claude asks: run a command (Fix flaky port test)";
    assert!(effects.contains(&Effect::Notify(text.to_owned())), "{effects:?}");
    script.wait(10_000);
    let effects = script.changed(&[PROMPT, ANSWER, IDLE]);
    assert!(
        matches!(&effects[..], [Effect::Notify(text), ..] if text.starts_with("Turn ended after")),
        "{effects:?}"
    );
}

#[test]
fn the_selected_request_of_a_long_inbox_is_on_the_screen() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    let many: Vec<String> =
        (10..40).map(|number| EDIT_REQUEST.replace("r2", &format!("r{number}"))).collect();
    script.event(Event::Requests(requests(&refs(&many)), Vec::new()));
    script.press("Ctrl-T");
    for _ in 0..30 {
        script.press("j");
        for (width, height) in [(80, 24), (40, 10)] {
            let screen = script.screen(width, height);
            assert!(screen.contains("›!") && screen.contains("1 y  Yes"), "{screen}");
        }
    }
}

#[test]
fn the_texts_of_options_are_never_cut() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    let long = format!("Allow once{}and always everything else", " ".repeat(90));
    script.event(Event::Requests(requests(&[&COMMAND_REQUEST.replace("Allow once", &long)]), Vec::new()));
    for width in [40, 80, 120] {
        let screen = script.screen(width, 36);
        assert!(screen.contains("and always"), "{screen}");
    }
    script.press("Ctrl-T");
    assert!(script.screen(80, 24).contains("and always"), "{}", script.screen(80, 24));
}

#[test]
fn the_address_of_a_link_is_shown_above_a_text_that_would_hide_it() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    let params =
        r#""params":{"mode":"url","url":"https://evil.example/login","elicitationId":"e","message":"TEXT"}"#;
    let start = FORM_REQUEST.find(r#""params""#).unwrap();
    let request = format!("{}{}}}", &FORM_REQUEST[..start], params.replace("TEXT", &"words ".repeat(900)));
    script.event(Event::Requests(requests(&[&request]), Vec::new()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("https://evil.example/login"), "{screen}");
}

#[test]
fn a_key_right_after_a_request_took_the_focus_is_typed_and_answers_nothing() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert_eq!(script.app.focus, Focus::Request);
    script.wait(300);
    assert_eq!(answers(&script.press("Enter")), [""; 0]);
    assert_eq!(answers(&script.type_text("yes")), [""; 0]);
    assert_eq!((script.app.focus, script.app.input.text().as_str()), (Focus::Input, "yes"));
    // Later the same key answers.
    script.press("Ctrl-U");
    script.wait(2_000);
    assert_eq!(script.app.focus, Focus::Request);
    script.wait(600);
    assert_eq!(answers(&script.press("y")).len(), 1);
    assert_eq!(answers(&script.press("n")), [""; 0], "the first answer counts");
}

#[test]
fn an_answer_that_was_not_delivered_can_be_given_again() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    script.wait(2_000);
    assert_eq!(answers(&script.press("y")).len(), 1);
    script.event(Event::AnswerFailed { id: "r1".to_owned(), reason: "the connection was lost".to_owned() });
    assert_eq!(answers(&script.press("y")).len(), 1);
}

#[test]
fn the_inbox_answers_the_request_that_was_selected_and_not_one_that_took_its_place() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.event(Event::Requests(requests(&[EDIT_REQUEST]), Vec::new()));
    script.press("Ctrl-T");
    // A newer one is above it now.
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    let effects = script.press("y");
    assert!(answers(&effects)[0].starts_with("r2 "), "{effects:?}");
    // The selected one is gone: the next key was meant for it.
    script.event(Event::Requests(Vec::new(), vec!["r2".to_owned()]));
    assert_eq!(answers(&script.press("y")), [""; 0]);
    script.wait(600);
    assert!(answers(&script.press("y"))[0].starts_with("r1 "));
}

/// A request of the open session about a tool call without a command, a diff and an input.
fn titled(title: &str, kind: &str) -> String {
    let start = COMMAND_REQUEST.find(r#""params""#).unwrap();
    let options = r#"[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]"#;
    let call = format!(r#"{{"toolCallId":"t9","title":"{title}","kind":"{kind}"}}"#);
    format!(r#"{}"params":{{"options":{options}}},"toolCall":{call}}}"#, &COMMAND_REQUEST[..start])
}

/// The words of a screen, also of texts that are broken into rows.
fn words(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_title_of_a_request_is_shown_whole_where_it_can_be_answered() {
    const TITLE: &str = "Delete the production database prod-eu-1 and all of its backups in every region without asking anyone again";
    for (title, kind) in [
        (TITLE, "delete"),
        ("Delete: /etc/passwd (and the backups)", "delete"),
        (TITLE, "other"),
        (TITLE, "edit"),
    ] {
        let mut script = Script::open(&[PROMPT, RUNNING]);
        script.wait(5_000);
        script.event(Event::Requests(requests(&[&titled(title, kind)]), Vec::new()));
        for width in [40, 80, 99] {
            let screen = script.screen(width, 24);
            assert!(words(&screen).contains(title), "{screen}");
            assert!(kind != "other" || screen.contains("other"), "the kind: {screen}");
        }
        script.press("Ctrl-T");
        for width in [40, 80, 99] {
            let screen = script.screen(width, 24);
            assert!(words(&screen).contains(title), "{screen}");
        }
    }
}

#[test]
fn a_title_that_names_a_file_and_more_is_shown_whole() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    let request =
        EDIT_REQUEST.replace("s2", "s1").replace("Edit http.rs", "Edit http.rs and drop all tables");
    script.event(Event::Requests(requests(&[&request]), Vec::new()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("Edit http.rs and drop all tables"), "{screen}");
}

#[test]
fn a_directory_without_a_command_is_shown() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    let request = titled("Clean up", "other")
        .replace(r#""kind":"other"}"#, r#""kind":"other","rawInput":{"cwd":"/etc"}}"#);
    script.event(Event::Requests(requests(&[&request]), Vec::new()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("/etc"), "{screen}");
}

#[test]
fn a_title_with_another_verb_than_the_kind_is_shown() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    let request = EDIT_REQUEST.replace("s2", "s1").replace("Edit http.rs", "Delete http.rs");
    script.event(Event::Requests(requests(&[&request]), Vec::new()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("Delete http.rs"), "{screen}");
}

#[test]
fn an_answer_on_its_way_is_shown() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    script.wait(2_000);
    script.press("y");
    assert!(script.screen(80, 24).contains("sending the answer"), "{}", script.screen(80, 24));
    script.press("Ctrl-T");
    let screen = script.screen(80, 24);
    assert!(screen.contains("sending the answer") && !screen.contains("write what to do"), "{screen}");
}

#[test]
fn everything_of_a_form_is_on_the_screen() {
    const TITLE: &str = "Which of the extensions may the program install on every machine of the cluster";
    const OPTION: &str =
        "everything that the vendor offers, also what is not tested and costs money each month";
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    let many: Vec<String> = (1..=12).map(|number| format!(r#""extension number {number}""#)).collect();
    let request = FORM_REQUEST
        .replace(r#""title":"Extensions""#, &format!(r#""title":"{TITLE}""#))
        .replace("Database name", &format!("{TITLE}, by name"))
        .replace(r#""pg_trgm","postgis","citext""#, &many.join(","))
        .replace("one schema for all tenants", OPTION);
    script.event(Event::Requests(requests(&[&request]), Vec::new()));
    script.wait(600);
    for width in [40, 80] {
        let screen = words(&script.screen(width, 80));
        for text in [TITLE, &format!("{TITLE}, by name *"), OPTION, "extension number 12"] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
    }
    // The option under the cursor is on a small screen as well.
    script.press("Tab Tab Tab");
    for number in 1..=12 {
        let option = format!("[ ] extension number {number}");
        assert!(script.screen(40, 10).contains(&option), "{}", script.screen(40, 10));
        script.press("Down");
    }
}

#[test]
fn a_text_that_is_longer_than_its_field_scrolls_with_the_cursor() {
    let long = "a long text of many words that does not fit into the field of a form, up to its end";
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5_000);
    script.event(Event::Requests(requests(&[FORM_REQUEST]), Vec::new()));
    script.wait(600);
    script.type_text(long);
    for width in [40, 80] {
        assert!(script.screen(width, 30).contains("up to its end█"), "{}", script.screen(width, 30));
    }
    script.press("Ctrl-A");
    assert!(script.screen(40, 30).contains("█hopa long"), "{}", script.screen(40, 30));
    // So do the filter of the sessions and the text of a picker.
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Tab Tab /");
    script.type_text(long);
    assert!(script.screen(40, 30).contains("up to its end█"), "{}", script.screen(40, 30));
    script.press("Esc Ctrl-O");
    script.type_text(long);
    assert!(script.screen(40, 30).contains("up to its end█"), "{}", script.screen(40, 30));
}

#[test]
fn a_terminal_that_may_not_report_its_focus_notifies() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.event(Event::FocusUnknown);
    let notifies = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Notify(_)));
    assert!(notifies(&script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()))));
    // It reports the focus after all.
    script.event(Event::Focus(true));
    assert!(!notifies(&script.event(Event::Requests(requests(&[EDIT_REQUEST]), Vec::new()))));
}

#[test]
fn the_end_of_a_turn_in_another_session_notifies() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    let ended = SESSIONS[1].replace(
        r#""state":"needs_you","openRequests":1"#,
        r#""state":"failed","lastTurnEndedAt":"2026-11-17T14:05:29Z""#,
    );
    assert_eq!(script.event(Event::ListChanged(rows(&[&ended]), Vec::new())), [], "the person sees it");
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.event(Event::Focus(false));
    let effects = script.event(Event::ListChanged(rows(&[&ended]), Vec::new()));
    assert_eq!(effects, [Effect::Notify("Turn failed (Axum upgrade)".to_owned())]);
    // The same end is not reported again.
    assert_eq!(script.event(Event::ListChanged(rows(&[&ended]), Vec::new())), []);
}

#[test]
fn a_form_that_another_client_answered_is_noted() {
    let decision = r#"{"sessionUpdate":"_parlor_event","eventId":"e1","type":"decision","at":"2026-11-17T14:05:28Z","request":"elicitation/create","title":"How should the database be set up?","outcome":"decline","by":{"client":9,"name":"zed"}}"#;
    for (updates, note) in [
        (vec![PROMPT, RUNNING, decision], "Form answered: declined by zed"),
        (vec![PROMPT, RUNNING], "Form answered elsewhere or withdrawn"),
    ] {
        let mut script = Script::open(&[PROMPT, RUNNING]);
        script.event(Event::Requests(requests(&[FORM_REQUEST]), Vec::new()));
        script.changed(&updates);
        script.event(Event::Requests(Vec::new(), vec!["r3".to_owned()]));
        let screen = script.screen(80, 24);
        assert!(screen.contains(note), "{screen}");
    }
}

#[test]
fn the_inbox_says_only_what_is_known_of_an_answer() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.event(Event::Requests(requests(&[EDIT_REQUEST, COMMAND_REQUEST]), Vec::new()));
    script.press("Esc Ctrl-T");
    script.press("n");
    script.event(Event::Requests(Vec::new(), vec!["r1".to_owned(), "r2".to_owned()]));
    let screen = script.screen(80, 24);
    let row = |title: &str| screen.lines().find(|row| row.contains(title)).unwrap().to_owned();
    assert!(row("Fix flaky").contains("✗") && row("Fix flaky").contains("Reject (here)"), "{screen}");
    // That of another session may have been rejected elsewhere.
    assert!(row("Axum").starts_with("     Axum"), "{screen}");
    assert!(row("Axum").contains("answered elsewhere"), "{screen}");
}
