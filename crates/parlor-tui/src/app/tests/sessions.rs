//! The list of sessions, pickers, forks and removals.

use super::*;

#[test]
fn the_list_of_sessions_takes_a_narrow_screen() {
    let mut script = busy();
    script.press("Tab Tab");
    screen!(script, 44 x 20, "sessions-44");
    screen!(script, 80 x 24, "sessions-80");
}

#[test]
fn pickers_are_filtered_as_one_types() {
    let mut script = Script::open(&[PROMPT, ANSWER, OPTIONS, IDLE]);
    script.press("Ctrl-O");
    script.type_text("ax");
    screen!(script, 80 x 10, "open-session-80");
    let effects = script.press("Enter");
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s2")),
        "{effects:?}"
    );
    script.opened("s2", &[PROMPT, OPTIONS]);
    script.press("Shift-Tab");
    screen!(script, 80 x 24, "options-80");
}

#[test]
fn a_mode_that_asks_nothing_needs_a_second_enter() {
    let mut script = Script::open(&[PROMPT, OPTIONS, IDLE]);
    script.press("Shift-Tab Down");
    assert_eq!(script.press("Enter"), []);
    let effects = script.press("Enter");
    let Some(SessionCall::SetOption { value, .. }) = session_calls(&effects).first() else {
        panic!("{effects:?}")
    };
    assert_eq!(value.as_str(), "\"bypass\"");
    // The arrows change the value of an option at once.
    script.press("Shift-Tab");
    script.type_text("thinking");
    let effects = script.press("Left");
    let Some(SessionCall::SetOption { value, note, .. }) = session_calls(&effects).first() else {
        panic!("{effects:?}")
    };
    assert_eq!((value.as_str(), note.as_str()), ("\"low\"", "thinking: low"));
}

#[test]
fn the_fork_tree_shows_where_each_fork_was_made() {
    let own = r#"{"sessionUpdate":"user_message","messageId":"u2","content":[{"type":"text","text":"Now write it shorter."}]}"#;
    let start = Start::Session("s4".into(), "/home/dev/src/parlor".to_owned());
    let archived = SESSIONS[4].replace(r#""title""#, r#""archived":true,"title""#);
    let sessions = [&SESSIONS[..4], &[archived.as_str()]].concat();
    let mut script = Script::connected(start, &sessions);
    script.opened("s4", &[PROMPT, ANSWER, own, IDLE]);
    script.press("Tab F");
    screen!(script, 80 x 24, "forks-80");
    screen!(script, 40 x 20, "forks-40");
    // The other fork was made at the same message, and the tree has it although it is archived.
    script.press("j");
    let screen = script.screen(80, 24);
    assert!(screen.contains("for operators: differs after #2"), "{screen}");
    assert!(screen.contains("the open session continues with"), "{screen}");
    // Forks are folded and unfolded.
    script.press("h");
    let screen = script.screen(80, 24);
    assert!(screen.contains("1 session\n") && !screen.contains("shorter"), "{screen}");
    script.press("l");
    assert!(script.screen(80, 24).contains("3 sessions\n"));
    // A fork that is made meanwhile appears, and the cursor stays.
    script.press("G");
    let new = SESSIONS[3].replace("s4", "s8").replace("shorter", "longer");
    script.event(Event::ListChanged(rows(&[&new]), Vec::new()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("4 sessions\n") && screen.contains("for operators: differs"), "{screen}");
}

#[test]
fn a_session_is_archived_and_restored_in_the_fork_tree() {
    let start = Start::Session("s3".into(), "/home/dev/src/parlor".to_owned());
    let mut script = Script::connected(start, SESSIONS);
    script.opened("s3", &[PROMPT, ANSWER, IDLE]);
    script.press("Tab F j x");
    let screen = script.screen(80, 24);
    assert!(screen.contains("Archived \"shorter\".  u undo") && screen.contains("2 sessions"), "{screen}");
    script.press("u");
    assert!(script.screen(80, 24).contains("3 sessions"));
    script.press("g j x");
    assert_eq!(call(&script.wait(10_000)), [&Call::Archive("s4".into())]);
    let screen = script.screen(80, 24);
    assert!(screen.contains("3 sessions") && screen.contains("archived  1h"), "{screen}");
    let effects = script.press("g j x");
    assert!(matches!(call(&effects)[..], [Call::Restore { id, .. }] if *id == SessionId::from("s4")));
}

#[test]
fn archived_sessions_are_shown_on_demand_and_restored() {
    let archived = SESSIONS[5].replace(r#""title""#, r#""archived":true,"title""#);
    let sessions = [&SESSIONS[..2], &[archived.as_str()]].concat();
    let mut script = Script::connected(Start::Session("s1".into(), "/".to_owned()), &sessions);
    script.opened("s1", &[PROMPT, IDLE]);
    script.press("Tab Tab");
    let screen = script.screen(80, 24);
    assert!(screen.contains("Sessions 2\n") && screen.contains(" 1 archived"), "{screen}");
    assert!(screen.contains("A shows") && !screen.contains("Invoice rounding"), "{screen}");
    script.press("A G");
    screen!(script, 80 x 24, "archived-80");
    screen!(script, 40 x 12, "archived-40");
    let effects = script.press("x");
    assert!(
        matches!(call(&effects)[..], [Call::Restore { id, .. }] if *id == SessionId::from("s6")),
        "{effects:?}"
    );
    script.event(Event::ListChanged(rows(&[SESSIONS[5]]), Vec::new()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("Sessions 3\n") && !screen.contains("archived"), "{screen}");
    // The next one that is archived is below them at once, and back if the server refuses.
    script.press("x");
    assert_eq!(call(&script.wait(10_000)), [&Call::Archive("s6".into())]);
    assert!(script.screen(80, 24).contains(" 1 archived"));
    script.event(Event::RemovalFailed {
        id: "s6".into(),
        is_deletion: false,
        reason: "the disk is full".to_owned(),
    });
    assert!(script.screen(80, 24).contains("Sessions 3\n"));
    // Without any, the key says so.
    script.press("A A");
    assert!(script.screen(80, 24).contains("No sessions are archived"));
}

#[test]
fn a_session_that_is_archived_elsewhere_stays_open() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    let archived = SESSIONS[0].replace(r#""title""#, r#""archived":true,"title""#);
    script.event(Event::ListChanged(rows(&[&archived]), Vec::new()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("archived by another client. A prompt restores it."), "{screen}");
    assert!(screen.lines().next().unwrap().contains("archived"), "{screen}");
    assert!(script.app.conversation.is_some());
}

#[test]
fn a_session_that_is_deleted_in_the_fork_tree_leaves_it() {
    let mut script =
        Script::connected(Start::Session("s4".into(), "/home/dev/src/parlor".to_owned()), SESSIONS);
    script.opened("s4", &[PROMPT, ANSWER, IDLE]);
    script.press("Tab F j");
    let before = script
        .screen(80, 24)
        .lines()
        .filter(|line| line.contains("─ ") || line.contains("├") || line.contains("└"))
        .count();
    script.press("x");
    let after = script
        .screen(80, 24)
        .lines()
        .filter(|line| line.contains("─ ") || line.contains("├") || line.contains("└"))
        .count();
    assert_eq!(after + 1, before);
}

#[test]
fn a_session_is_deleted_after_ten_seconds_unless_it_is_taken_back() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Tab Tab j");
    let effects = script.press("D");
    assert_eq!(call(&effects), [&Call::Agents; 0]);
    let screen = script.screen(80, 24);
    assert!(
        screen.contains("Deleted \"Axum upgrade\".  u undo") && !screen.contains("! Axum upgrade"),
        "{screen}"
    );
    script.wait(9000);
    script.press("u");
    assert!(script.screen(80, 24).contains("Axum upgrade"));
    assert_eq!(call(&script.wait(20_000)), [&Call::Agents; 0]);
    script.press("D");
    let effects = script.wait(10_000);
    assert_eq!(call(&effects), [&Call::Delete("s2".into())]);
    // Detaching sends what waits.
    script.press("x");
    let effects = script.press("q");
    assert!(matches!(&effects[..], [Effect::Send(Call::Archive(_)), Effect::Quit]), "{effects:?}");
}

#[test]
fn undo_opens_the_session_that_was_open() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Tab Tab D");
    assert!(script.app.conversation.is_none());
    let effects = script.press("u");
    assert!(matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s1")));
    script.opened("s1", &[PROMPT, IDLE]);
    assert_eq!(script.app.focus, Focus::Sessions);
}

#[test]
fn drafts_are_kept_for_each_session() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.type_text("first draft");
    script.press("Ctrl-O");
    script.type_text("ax");
    script.press("Enter");
    script.opened("s2", &[PROMPT]);
    assert!(script.app.input.is_empty());
    script.type_text("second");
    script.press("Ctrl-O");
    script.type_text("fix");
    script.press("Enter");
    script.opened("s1", &[PROMPT, IDLE]);
    assert_eq!(script.app.input.text(), "first draft");
}

#[test]
fn a_session_that_is_deleted_elsewhere_keeps_the_draft() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.type_text("draft");
    script.event(Event::ListChanged(Vec::new(), vec!["s1".into()]));
    let screen = script.screen(80, 24);
    assert!(screen.contains("deleted by another client") && screen.contains("› draft█"), "{screen}");
}

#[test]
fn the_latest_session_of_the_directory_is_opened() {
    let mut script = Script::new(Start::Latest);
    script.event(Event::Connected);
    let effects = script.event(Event::List(rows(SESSIONS)));
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s1")),
        "{effects:?}"
    );
    let mut script = Script::new(Start::Named("axum".to_owned()));
    script.event(Event::Connected);
    let effects = script.event(Event::List(rows(SESSIONS)));
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s2")),
        "{effects:?}"
    );
}

#[test]
fn a_name_that_several_sessions_have_leaves_the_choice_to_the_person() {
    let twin = SESSIONS[1].replace("\"s2\"", "\"s2b\"");
    let start = |name: &str| {
        let mut script = Script::new(Start::Named(name.to_owned()));
        script.event(Event::Connected);
        let effects = script.event(Event::List(rows(&[SESSIONS[0], SESSIONS[1], &twin])));
        (script, effects)
    };
    let (mut script, effects) = start("axum");
    assert_eq!(call(&effects), [&Call::Agents; 0]);
    let screen = script.screen(100, 24);
    assert!(screen.contains("'axum' matches 2 sessions: choose one"), "{screen}");
    let effects = script.press("Enter");
    assert!(matches!(call(&effects)[..], [Call::Open { .. }]), "{effects:?}");
    let (mut script, effects) = start("nothing");
    assert_eq!(call(&effects), [&Call::Agents; 0]);
    assert!(script.screen(100, 24).contains("No session has an id or a title that starts with 'nothing'"));
}

#[test]
fn a_session_is_marked_as_seen_when_a_person_looks_at_it() {
    let unread = SESSIONS[0].replace(r#""state":"running""#, r#""state":"idle","unread":true"#);
    let mut script = Script::connected(Start::Session("s1".into(), "/".to_owned()), &[unread.as_str()]);
    script.event(Event::Focus(false));
    assert_eq!(call(&script.opened("s1", &[PROMPT, IDLE])), [&Call::Agents; 0]);
    assert_eq!(call(&script.event(Event::Focus(true))), [&Call::Seen("s1".into())]);
}

#[test]
fn messages_are_forked_edited_and_regenerated() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    let effects = script.press("Tab f");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Fork { at: Some(at), .. }] if at.to_string() == "a1"),
        "{effects:?}"
    );
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    let effects = script.press("Tab r");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Regenerate { message, .. }] if message.to_string() == "a1"),
        "{effects:?}"
    );
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab k e");
    assert!(script.app.input.text().starts_with("The port test"));
    script.type_text(" Now.");
    let effects = script.press("Enter");
    let [SessionCall::EditPrompt { message, text, .. }] = session_calls(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert!(message.to_string() == "u1" && text.ends_with("timeout. Now."));
    // The fork is opened, and Esc returns to the parent.
    let effects = script.forked("s9");
    assert!(matches!(call(&effects)[..], [Call::Open { .. }]));
    // Nothing says that it is there before it is open.
    assert!(!script.screen(80, 24).contains("Forked"));
    script.opened("s9", &[PROMPT]);
    assert!(script.screen(80, 24).contains("Forked"));
    let effects = script.press("Esc");
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s1")),
        "{effects:?}"
    );
}
