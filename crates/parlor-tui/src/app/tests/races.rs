//! Answers that arrive late, keys that are pressed too early, and sessions that are switched meanwhile.

use super::*;
use crate::overlay::Overlay;

fn disconnect(script: &mut Script) {
    script.event(Event::Disconnected {
        server: "/data/parlor.sock".to_owned(),
        reason: "connection refused".to_owned(),
        retry_at: script.now + SignedDuration::from_secs(1),
    });
}

fn connect(script: &mut Script) -> Vec<Effect> {
    script.event(Event::Connected { server: "/data/parlor.sock".to_owned() })
}

/// Opens another session of the list, whose answer has not arrived.
fn open_other(script: &mut Script) {
    script.press("Ctrl-O");
    script.type_text("axum");
    script.press("Enter");
    assert!(script.app.opening.is_some());
}

#[test]
fn a_prompt_goes_to_the_session_whose_input_it_was_written_in() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    open_other(&mut script);
    script.type_text("for the first");
    let effects = script.press("Enter");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Prompt { text, .. }] if text == "for the first"),
        "{effects:?}"
    );
    // The other session was opened before the prompt was sent: the text is a draft of the first one.
    let effects = script.opened("s2", &[PROMPT, IDLE]);
    assert_eq!(call(&effects), [&Call::Agents; 0]);
    script.event(Event::PromptFailed {
        session: "s1".into(),
        text: "for the first".to_owned(),
        failure: failure("another session was opened meanwhile"),
    });
    assert!(script.app.input.is_empty());
    assert_eq!(script.app.drafts[&Some("s1".into())], "for the first");
}

#[test]
fn a_draft_of_another_session_is_not_sent_when_it_is_opened() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.app.drafts.insert(Some("s2".into()), "not finished".to_owned());
    open_other(&mut script);
    script.app.is_send_pending = true;
    let effects = script.opened("s2", &[PROMPT, IDLE]);
    assert_eq!(call(&effects), [&Call::Agents; 0]);
    assert_eq!(script.app.input.text(), "not finished");
}

#[test]
fn what_is_typed_while_a_session_is_created_is_kept() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Ctrl-N");
    script.type_text("first");
    script.press("Enter");
    script.type_text("second");
    script.opened("s9", &[PROMPT, IDLE]);
    assert_eq!(script.app.input.text(), "second");
    // And if it could not be created, both come back.
    let mut script = Script::connected(Start::New, SESSIONS);
    script.type_text("first");
    script.press("Enter");
    script.type_text("second");
    script.event(Event::OpenFailed { ticket: 1, failure: failure("agent 'claude' ended") });
    assert_eq!(script.app.input.text(), "first\nsecond");
}

#[test]
fn what_is_typed_before_the_first_session_is_open_stays_in_the_input() {
    let mut script = Script::connected(Start::Latest, SESSIONS);
    script.type_text("early");
    script.opened("s1", &[PROMPT, IDLE]);
    assert_eq!(script.app.input.text(), "early");
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
fn late_answers_about_another_session_change_nothing() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.app.conversation.as_mut().unwrap().older = Some(Json::parse("5").unwrap());
    script.event(Event::OlderFailed("s2".into()));
    assert!(script.app.conversation.as_ref().unwrap().older.is_some());
    script.type_text("go on");
    script.press("Enter");
    script.event(Event::PromptAccepted("s2".into()));
    assert_eq!(script.app.sending.0, 1);
    let fork =
        Event::Forked { parent: "s2".into(), id: "s9".into(), cwd: "/".to_owned(), note: String::new() };
    assert_eq!(call(&script.event(fork)), [&Call::Agents; 0]);
}

#[test]
fn hits_of_an_earlier_search_are_not_shown_in_a_new_one() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Ctrl-F");
    script.type_text("one");
    script.wait(100);
    script.press("Esc");
    script.press("Ctrl-F");
    script.type_text("two");
    let effects = script.wait(100);
    let Some(Call::Search { generation, .. }) = call(&effects).first() else { panic!("{effects:?}") };
    assert_ne!(*generation, 1);
    script.event(Event::Hits { generation: 1, hits: Err("late".to_owned()), millis: 1 });
    let Some(Overlay::Search(search)) = script.app.overlays.last() else { panic!() };
    assert_eq!(search.problem, None);
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
    script.event(Event::RemovalFailed { id: "s1".into(), reason: "the disk is full".to_owned() });
    assert!(script.app.sessions.hidden.is_empty());
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
fn editing_a_prompt_keeps_what_was_being_written() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("half");
    script.press("Tab k e");
    assert!(script.app.input.text().starts_with("The port test"));
    script.press("Esc");
    assert_eq!(script.app.input.text(), "half");
}

#[test]
fn a_history_entry_replaces_what_is_written_but_does_not_lose_it() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("half");
    script.press("Ctrl-R");
    script.type_text("port");
    script.press("Enter");
    assert!(script.app.input.text().starts_with("The port test"));
    script.press("Ctrl-R");
    script.type_text("half");
    script.press("Enter");
    assert_eq!(script.app.input.text(), "half");
}

#[test]
fn a_login_that_is_required_is_offered_and_the_text_stays() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.type_text("go on");
    script.press("Enter");
    let failure = Failure { reason: "requires a login".to_owned(), needs_login: true };
    script.event(Event::PromptFailed { session: "s1".into(), text: "go on".to_owned(), failure });
    let screen = script.screen(80, 24);
    assert!(screen.contains("claude is not logged in") && screen.contains("Enter logs in"), "{screen}");
    assert_eq!(script.press("Enter"), [Effect::Login("claude".to_owned())]);
    script.event(Event::LoginEnded(Err("the login to claude did not succeed".to_owned())));
    assert_eq!(script.press("Enter"), [Effect::Login("claude".to_owned())]);
    let effects = script.event(Event::LoginEnded(Ok(())));
    assert_eq!(effects, [Effect::Send(Call::Agents)]);
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::Prompt { .. }]), "{effects:?}");
}

#[test]
fn a_hit_in_the_open_session_that_is_not_loaded_yet_is_selected_when_it_is() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.app.conversation.as_mut().unwrap().older = Some(Json::parse("5").unwrap());
    script.press("Ctrl-F");
    script.type_text("early");
    script.wait(100);
    let hit = Hit {
        session: "s1".into(),
        title: Clean::default(),
        agent: Clean::default(),
        cwd: String::new(),
        message: Some("early".into()),
        tool_call: None,
        role: Clean::line("user"),
        at: None,
        snippet: Clean::line("early"),
        matches: Vec::new(),
    };
    script.event(Event::Hits { generation: 1, hits: Ok(vec![hit]), millis: 1 });
    script.press("Enter");
    assert_eq!(script.app.focus, Focus::Input);
    let page = transcript(&[
        r#"{"sessionUpdate":"user_message","messageId":"early","content":[{"type":"text","text":"early"}]}"#,
    ]);
    script.event(Event::Older { session: "s1".into(), page: Box::new(page), before: None });
    assert_eq!(script.app.focus, Focus::Messages);
    assert_eq!(script.app.conversation.as_ref().unwrap().selected_prompt().unwrap().1, "early");
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
fn files_are_listed_again_for_each_name() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    let listings =
        |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::ListFiles(_))).count();
    assert_eq!(listings(&script.type_text("@m")), 1);
    script.event(Event::Files(vec!["src/main.rs".to_owned()]));
    assert!(script.app.completion.is_some());
    assert_eq!(listings(&script.press("Tab")), 0);
    assert_eq!(listings(&script.type_text("@n")), 1);
    script.event(Event::Files(vec!["src/main.rs".to_owned(), "new.rs".to_owned()]));
    assert_eq!(script.app.completion.as_ref().unwrap().items[0].insert, "@new.rs");
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
fn a_path_of_an_image_is_pasted_as_a_token_and_too_much_text_is_reported() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.event(Event::Paste("'/tmp/my shot.png' ".to_owned()));
    assert_eq!(script.app.input.text(), "[image my shot.png]");
    assert_eq!(script.app.input.full_text(), "@\"/tmp/my shot.png\"");
    script.event(Event::Paste("x".repeat(5 << 20)));
    assert!(script.screen(80, 24).contains("too large for a prompt"));
}

#[test]
fn the_idle_line_names_the_files_that_the_turn_changed() {
    let edit = |id: &str, path: &str| {
        format!(
            r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","title":"Edit","kind":"edit","status":"completed","content":[{{"type":"diff","changes":[{{"operation":"modify","path":"{path}"}}],"patch":{{"format":"git_patch","text":"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-old\n+new\n+newer\n"}}}}]}}"#
        )
    };
    let (one, two) = (edit("e1", "/home/dev/src/parlor/a.rs"), edit("e2", "/home/dev/src/parlor/b.rs"));
    let mut script = Script::open(&[PROMPT, &one, &two, IDLE]);
    let screen = script.screen(80, 24);
    assert!(screen.contains("2 files changed +4 -2"), "{screen}");
    let mut script = Script::open(&[PROMPT, &one, RUNNING]);
    assert!(!script.screen(80, 24).contains("changed"));
}

#[test]
fn a_thought_has_the_time_until_the_turn_went_on() {
    let thought = r#"{"sessionUpdate":"agent_thought","messageId":"th","content":[{"type":"text","text":"two tests"}],"_meta":{"parlor/at":1795000000000}}"#;
    let answer = r#"{"sessionUpdate":"agent_message","messageId":"an","content":[{"type":"text","text":"Done."}],"_meta":{"parlor/at":1795000006400}}"#;
    let mut script = Script::open(&[PROMPT, thought, answer, IDLE]);
    assert!(script.screen(80, 24).contains("Thought 6 s: two tests"), "{}", script.screen(80, 24));
    // A thought after which nothing came has no duration, also not up to the next prompt.
    let later = PROMPT.replace("\"messageId\":\"", "\"messageId\":\"later");
    let mut script = Script::open(&[PROMPT, thought, &later, IDLE]);
    assert!(script.screen(80, 24).contains("Thought: two tests"));
}
