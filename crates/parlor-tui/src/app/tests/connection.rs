//! Lost connections.

use super::*;

#[test]
fn a_lost_connection_is_shown_and_keeps_what_is_written() {
    let mut script = Script::open(&[PROMPT, ANSWER, TOOL, RUNNING]);
    script.type_text("Also check");
    let retry_at = script.now + SignedDuration::from_secs(4);
    let lost = || Event::Disconnected {
        server: "ws://build-box:7667".to_owned(),
        reason: "connection refused".to_owned(),
        is_down: true,
        retry_at,
    };
    script.event(lost());
    screen!(script, 80 x 24, "offline-80");
    script.app.serve = None;
    assert!(script.screen(80, 24).contains("`parlor serve` on that machine starts the server."));
    // Enter retries at once, and nothing is sent by itself.
    assert_eq!(script.press("Enter"), [Effect::Reconnect]);
    script.wait(38_000);
    script.event(lost());
    let effects = script.event(Event::Connected);
    assert!(matches!(call(&effects)[..], [Call::Open { .. }]), "{effects:?}");
    script.opened("s1", &[PROMPT, ANSWER, TOOL, RUNNING]);
    let screen = script.screen(80, 24);
    assert!(screen.contains("Connected again after 0:38.") && screen.contains("› Also check█"), "{screen}");
}

#[test]
fn a_server_that_refuses_the_client_ends_it() {
    let mut script = Script::new(Start::Latest);
    let refused = Event::Refused {
        server: "ws://build-box:7667/acp".to_owned(),
        reason: "401 Unauthorized".to_owned(),
    };
    let error = "cannot use the server ws://build-box:7667/acp: 401 Unauthorized".to_owned();
    assert_eq!(script.event(refused), [Effect::Fail(error)]);
}

#[test]
fn a_form_keeps_what_was_filled_in_when_the_connection_is_lost() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.event(Event::AllRequests(requests(&[FORM_REQUEST])));
    script.wait(2_000);
    script.press("Tab Shift-Tab");
    script.type_text("x");
    disconnect(&mut script);
    connect(&mut script);
    script.event(Event::AllRequests(requests(&[FORM_REQUEST])));
    assert_eq!((script.app.focus, script.app.form.text.text()), (Focus::Request, "shopx"));
    // After a restart of the server the id stands for another request.
    disconnect(&mut script);
    connect(&mut script);
    let other = FORM_REQUEST.replace("13:52:50", "14:05:30");
    script.event(Event::AllRequests(requests(&[&other])));
    assert_eq!(script.app.form.text.text(), "shop");
    assert!(script.app.ignore_keys_until.is_some());
}

#[test]
fn a_request_that_was_answered_while_the_connection_was_lost_is_gone() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.event(Event::AllRequests(requests(&[COMMAND_REQUEST, EDIT_REQUEST])));
    disconnect(&mut script);
    connect(&mut script);
    script.event(Event::AllRequests(requests(&[EDIT_REQUEST])));
    assert_eq!(script.app.inbox_ids(), ["r2"]);
    assert_eq!(script.app.focus, Focus::Input);
}

#[test]
fn a_picker_stays_open_while_the_client_connects_again() {
    let mut script = Script::open(&[PROMPT, IDLE, OPTIONS]);
    script.press("Shift-Tab");
    script.type_text("opus");
    disconnect(&mut script);
    connect(&mut script);
    script.opened("s1", &[PROMPT, IDLE, OPTIONS]);
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::SetOption { .. }]), "{effects:?}");
}

#[test]
fn a_session_whose_own_connection_is_lost_is_opened_again() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    let ticket = script.app.opened_with;
    script.event(Event::SessionLost { ticket: ticket + 1 });
    assert_eq!(call(&script.wait(600)), [&Call::Agents; 0], "that of another session");
    script.event(Event::SessionLost { ticket });
    script.type_text("kept");
    assert_eq!(call(&script.wait(100)), [&Call::Agents; 0]);
    let effects = script.wait(500);
    let [Call::Open { ticket, .. }] = call(&effects)[..] else { panic!("{effects:?}") };
    script.event(Event::OpenFailed { ticket: *ticket, failure: failure("connection refused") });
    let screen = script.screen(80, 24);
    assert!(screen.contains("No connection to this session") && screen.contains("› kept█"), "{screen}");
    // Enter tries at once, and sends nothing.
    let effects = script.press("Enter");
    assert!(matches!(call(&effects)[..], [Call::Open { .. }]), "{effects:?}");
    script.opened("s1", &[PROMPT, IDLE]);
    assert!(!script.screen(80, 24).contains("No connection"));
    assert_eq!(script.app.input.text(), "kept");
}

#[test]
fn a_prompt_that_is_sent_while_the_session_is_opened_again_is_not_lost() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.event(Event::SessionLost { ticket: script.app.opened_with });
    disconnect(&mut script);
    connect(&mut script);
    script.type_text("go on");
    assert_eq!(call(&script.press("Enter")), [&Call::Agents; 0]);
    let effects = script.opened("s1", &[PROMPT, IDLE]);
    assert!(matches!(session_calls(&effects)[..], [SessionCall::Prompt { .. }]), "{effects:?}");
}

#[test]
fn an_agent_without_a_server_that_ends_is_reported() {
    let mut script = Script::new(Start::Direct);
    connect(&mut script);
    script.app.opening = Some(Opening { ticket: 0, session: None, note: None });
    script.opened("d1", &[PROMPT, RUNNING]);
    script.event(Event::SessionLost { ticket: 0 });
    script.type_text("more");
    script.press("Enter");
    let screen = script.screen(80, 24);
    assert!(screen.contains("✗ The agent ended") && screen.contains("› more█"), "{screen}");
}

#[test]
fn a_prompt_that_is_sent_too_early_waits_for_the_connection() {
    let mut script = Script::new(Start::New);
    script.type_text("hello");
    assert_eq!(script.press("Enter"), []);
    script.event(Event::Connected);
    let effects = script.event(Event::List(Vec::new()));
    assert!(matches!(call(&effects)[..], [Call::New { prompt, .. }] if prompt == "hello"), "{effects:?}");
}

#[test]
fn an_enter_right_after_the_connection_is_back_sends_nothing() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.type_text("draft");
    disconnect(&mut script);
    connect(&mut script);
    script.opened("s1", &[PROMPT, IDLE]);
    script.wait(300);
    assert_eq!(call(&script.press("Enter")), [&Call::Agents; 0]);
    assert_eq!(script.app.input.text(), "draft");
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::Prompt { .. }]), "{effects:?}");
    // Whoever writes has seen that the connection is back.
    script.type_text("other");
    disconnect(&mut script);
    connect(&mut script);
    script.opened("s1", &[PROMPT, IDLE]);
    script.type_text(" words");
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::Prompt { .. }]), "{effects:?}");
}

#[test]
fn a_deletion_waits_for_the_connection_and_a_failed_one_shows_the_session_again() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Tab Tab D");
    disconnect(&mut script);
    assert_eq!(call(&script.wait(20_000)), [&Call::Agents; 0]);
    let effects = connect(&mut script);
    assert!(call(&effects).contains(&&Call::Delete("s1".into())), "{effects:?}");
    assert!(script.app.sessions.hidden.contains(&"s1".into()));
    script.event(Event::RemovalFailed {
        id: "s1".into(),
        is_deletion: true,
        reason: "the disk is full".to_owned(),
    });
    assert!(script.app.sessions.hidden.is_empty());
}
