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
