//! Answers that arrive late, keys that are pressed too early, and sessions that are switched meanwhile.

use parlor_client::Json;

use super::*;
use crate::overlay::Overlay;

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
fn late_answers_about_another_session_change_nothing() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.app.conversation.as_mut().unwrap().older = Some(Json::parse("5").unwrap());
    script.event(older_failed("s2", 5));
    assert!(script.app.conversation.as_ref().unwrap().older.is_some());
    script.type_text("go on");
    script.press("Enter");
    script.event(Event::PromptAccepted("s2".into()));
    assert_eq!(script.app.sending.0, 1);
    let fork = Event::Forked { parent: "s2".into(), id: "s9".into(), cwd: "/".to_owned(), ticket: 0 };
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

/// The prompts that are sent, with their sessions.
fn prompts(effects: &[Effect]) -> Vec<(String, String)> {
    let prompt = |call: &&Call| {
        let Call::InSession(id, SessionCall::Prompt { text, .. }) = call else { return None };
        Some((id.to_string(), text.clone()))
    };
    call(effects).iter().filter_map(prompt).collect()
}

fn sent(session: &str, text: &str) -> (String, String) {
    (session.to_owned(), text.to_owned())
}

#[test]
fn what_is_typed_while_a_fork_is_made_is_for_the_fork() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("draft of the parent");
    script.press("Tab f");
    // These would edit, regenerate and copy in the parent.
    assert_eq!(call(&script.type_text("er")), [&Call::Agents; 0]);
    script.event(Event::Paste("y".to_owned()));
    let screen = script.screen(80, 24);
    assert!(screen.contains("Opening the fork  0:00") && screen.contains("› ery█"), "{screen}");
    // What follows the first key that is not typed waits for the fork.
    assert_eq!(call(&script.press("Enter")), [&Call::Agents; 0]);
    script.forked("s9");
    script.type_text("mo");
    script.event(Event::Paste("re".to_owned()));
    let effects = script.opened("s9", &[PROMPT, ANSWER, IDLE]);
    assert_eq!(prompts(&effects), [sent("s9", "ery")]);
    assert_eq!(script.app.input.text(), "more");
    // The draft of the parent is kept for the parent.
    script.press("Ctrl-U");
    script.press("Esc");
    script.opened("s1", &[PROMPT, ANSWER, IDLE]);
    assert_eq!(script.app.input.text(), "draft of the parent");
}

#[test]
fn keys_before_the_fork_is_open_answer_no_request() {
    // Those that would open the inbox or the request do nothing.
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab f Ctrl-T Tab");
    script.type_text("y1");
    script.forked("s9");
    let request = COMMAND_REQUEST.replace("\"s1\"", "\"s9\"");
    script.event(Event::Requests(requests(&[&request]), Vec::new()));
    assert_eq!(answers(&script.opened("s9", &[PROMPT, RUNNING])), [""; 0]);
    assert!(script.app.overlays.is_empty());
    assert_eq!(script.app.input.text(), "y1");
    // Those after Enter wait for the input of the fork.
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab f Enter y");
    script.wait(5_000);
    script.forked("s9");
    let request = COMMAND_REQUEST.replace("\"s1\"", "\"s9\"");
    script.event(Event::Requests(requests(&[&request]), Vec::new()));
    assert_eq!(answers(&script.opened("s9", &[PROMPT, RUNNING])), [""; 0]);
    assert_eq!(script.app.input.text(), "y");
}

#[test]
fn a_request_of_the_parent_does_not_take_the_keys_for_a_fork() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.press("Tab f");
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    script.wait(5_000);
    assert_eq!(answers(&script.type_text("y1")), [""; 0]);
    assert_eq!(script.app.input.text(), "y1");
}

#[test]
fn a_fork_that_nobody_waits_for_any_more_does_not_get_the_text_of_the_next_one() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab f");
    let first = script.fork_ticket();
    script.press("Esc Tab f");
    script.type_text("for the second");
    let late = Event::Forked { parent: "s1".into(), id: "s8".into(), cwd: "/".to_owned(), ticket: first };
    assert_eq!(call(&script.event(late)), [&Call::Agents; 0]);
    assert!(
        matches!(call(&script.forked("s9"))[..], [Call::Open { id, .. }] if *id == SessionId::from("s9"))
    );
    script.opened("s9", &[PROMPT, IDLE]);
    assert_eq!(script.app.input.text(), "for the second");
}

#[test]
fn a_fork_that_fails_leaves_what_was_typed_in_the_parent_and_sends_nothing() {
    let fork_failed = |script: &Script| Event::ForkFailed {
        parent: "s1".into(),
        ticket: script.fork_ticket(),
        failure: failure("being written"),
    };
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("draft");
    script.press("Tab f");
    script.type_text("for the fork");
    script.press("Enter");
    script.type_text("more");
    let effects = script.event(fork_failed(&script));
    assert_eq!(call(&effects), [&Call::Agents; 0]);
    assert_eq!(script.app.input.text(), "draft\nfor the fork\nmore");
    assert!(script.screen(80, 24).contains("being written"));
    // An edited prompt is being edited again; what was written before and after it is the draft.
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("draft");
    script.press("Tab k e");
    script.type_text(" edited");
    let edited = script.app.input.text();
    script.press("Enter");
    script.type_text("next");
    script.event(fork_failed(&script));
    assert_eq!(script.app.input.text(), edited);
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::EditPrompt { text, .. }] if *text == edited));
    script.event(fork_failed(&script));
    script.press("Esc");
    assert_eq!(script.app.input.text(), "draft\nnext");
    // Nobody waits for it: what is being written stays, and the edited prompt is in the history.
    script.press("Tab k e");
    script.type_text(" again");
    let edited = script.app.input.text();
    script.press("Enter");
    let failed = fork_failed(&script);
    script.press("Esc");
    script.event(failed);
    assert_eq!(script.app.input.text(), "draft\nnext");
    assert_eq!(script.app.history[0].1, edited);
    // A fork that cannot be opened is not one to return from.
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab f");
    script.type_text("kept");
    script.forked("s9");
    let ticket = script.app.opening.as_ref().unwrap().ticket;
    script.event(Event::OpenFailed { ticket, failure: failure("gone") });
    assert_eq!(script.app.input.text(), "kept");
    assert_eq!(script.app.parents, []);
}

#[test]
fn escape_stays_in_the_parent_while_a_fork_is_made() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab f");
    script.type_text("kept");
    script.press("Esc");
    assert_eq!(call(&script.forked("s9")), [&Call::Agents; 0]);
    assert_eq!(script.app.input.text(), "kept");
    let effects = script.press("Enter");
    assert_eq!(prompts(&effects), [sent("s1", "kept")]);
    // The same if another session is opened with the mouse, or the connection is made again.
    script.press("Tab f");
    script.type_text("draft");
    script.press("Enter");
    disconnect(&mut script);
    connect(&mut script);
    assert_eq!(call(&script.forked("s9")), [&Call::Agents; 0]);
    let effects = script.opened("s1", &[PROMPT, ANSWER, IDLE]);
    assert_eq!(prompts(&effects), []);
    assert_eq!(script.app.input.text(), "draft");
}

#[test]
fn a_fork_that_is_never_made_holds_a_bounded_number_of_keys() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab f Enter");
    script.type_text(&"x".repeat(1000));
    assert_eq!(script.app.forking.as_ref().unwrap().held.len(), 256);
    assert!(script.screen(80, 24).contains("Too many keys"));
    assert_eq!(script.press("Ctrl-C Ctrl-C").last(), Some(&Effect::Quit));
}

#[test]
fn a_session_that_cannot_be_opened_keeps_the_draft_of_a_new_one() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Ctrl-N");
    script.type_text("a new one");
    open_other(&mut script);
    script.opened("s2", &[PROMPT, IDLE]);
    script.press("Ctrl-O");
    script.type_text("fix");
    script.press("Enter");
    let ticket = script.app.opening.as_ref().unwrap().ticket;
    script.event(Event::OpenFailed { ticket, failure: failure("gone") });
    script.press("Ctrl-N");
    assert_eq!(script.app.input.text(), "a new one");
}

#[test]
fn what_is_open_over_the_panes_stays_when_a_session_is_opened_late() {
    for (keys, text) in
        [("Ctrl-O a x", "Open a session"), ("Ctrl-T", "Inbox"), ("Ctrl-F", "Search"), ("F1", "Anywhere")]
    {
        let mut script = Script::connected(Start::Latest, SESSIONS);
        script.press(keys);
        script.opened("s1", &[PROMPT, OPTIONS, IDLE]);
        let screen = script.screen(80, 24);
        assert!(screen.contains(text), "{screen}");
        script.press("Esc");
        assert!(script.screen(80, 24).contains("The port test"));
    }
    // The options of another session would be set in this one.
    for keys in ["Shift-Tab", "Ctrl-P", "Tab /"] {
        let mut script = Script::open(&[PROMPT, OPTIONS, IDLE]);
        open_other(&mut script);
        script.press(keys);
        assert!(!script.app.overlays.is_empty());
        script.opened("s2", &[PROMPT, IDLE]);
        assert!(script.app.overlays.is_empty(), "{keys}");
    }
}

#[test]
fn a_fork_that_is_listed_late_appears_in_its_tree() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab f");
    script.forked("s9");
    script.opened("s9", &[PROMPT, ANSWER, IDLE]);
    script.press("Tab F");
    assert!(script.screen(80, 24).contains("0 sessions"));
    let fork = SESSIONS[3].replace("s4", "s9").replace("s3", "s1");
    script.event(Event::ListChanged(rows(&[&fork]), Vec::new()));
    assert!(script.screen(80, 24).contains("2 sessions"));
}
