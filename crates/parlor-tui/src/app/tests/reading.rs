//! Scrolling, finding, copying and searching.

use std::sync::Arc;

use parlor_client::Json;

use super::*;
use crate::conversation::Replica;
use crate::event::{Hit, Opened};

#[test]
fn a_search_is_sent_after_a_pause_and_opens_at_the_message() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Ctrl-F");
    assert_eq!(call(&script.type_text("flaky port")), [&Call::Agents; 0]);
    let effects = script.wait(60);
    assert!(
        matches!(call(&effects)[..], [Call::Search { generation: 1, query, .. }] if query == "flaky port"),
        "{effects:?}"
    );
    let hit = |session: &str, message: &str, snippet: &str| Hit {
        session: session.into(),
        title: Clean::line("Fix flaky port test"),
        agent: Clean::line("claude"),
        cwd: "/home/dev/src/parlor".to_owned(),
        message: Some(message.into()),
        tool_call: None,
        role: Clean::line("agent"),
        at: Some(noon() - SignedDuration::from_mins(2)),
        snippet: Clean::line(snippet),
        matches: vec![(0, 5)],
    };
    let hits =
        vec![hit("s1", "a1", "flaky when two tests get the same port"), hit("s6", "x", "flaky numbers")];
    script.event(Event::Hits { generation: 1, hits: Ok(hits), millis: 6 });
    screen!(script, 80 x 24, "search-80");
    script.press("Enter");
    let screen = script.screen(80, 24);
    assert!(screen.contains("▌") && screen.contains("#2"), "{screen}");
    // Esc returns to the results.
    script.wait(1000);
    script.press("Esc");
    assert!(script.screen(80, 24).contains("2 hits in 2 sessions"));
    // The answer to an earlier search is ignored.
    script.event(Event::Hits { generation: 0, hits: Ok(Vec::new()), millis: 1 });
    assert!(script.screen(80, 24).contains("2 hits in 2 sessions"));
}

#[test]
fn a_message_is_copied_and_viewed() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab");
    let effects = script.press("y");
    assert!(matches!(&effects[..], [Effect::Copy(text)] if text.starts_with("free_port()")), "{effects:?}");
    assert!(matches!(&script.press("v")[..], [Effect::Page(_)]));
}

#[test]
fn new_output_never_moves_what_is_read() {
    let mut lines = long(100);
    let mut script = Script::open(&refs(&lines));
    script.screen(80, 24);
    assert!(script.screen(80, 24).contains("message 100"));
    script.press("PgUp");
    let before = script.screen(80, 24);
    assert!(!before.contains("message 100") && before.contains("message 8"), "{before}");
    lines.extend(long(140).split_off(100));
    script.changed(&refs(&lines));
    let after = script.screen(80, 24);
    let body = |screen: &str| screen.lines().skip(2).take(17).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&before), body(&after));
    assert!(after.contains("40 new messages below"), "{after}");
    // A resize keeps the first entry.
    let first = |screen: &str| {
        let row = body(screen).into_iter().find(|row| row.contains("message")).unwrap();
        row.split_whitespace().skip_while(|word| *word != "message").take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(first(&script.screen(60, 20)), first(&after));
    script.press("Tab G");
    assert!(script.screen(80, 24).contains("message 140"));
}

#[test]
fn scrolling_down_to_the_end_follows_again() {
    let lines = long(60);
    let mut script = Script::open(&refs(&lines));
    script.screen(80, 24);
    script.press("PgUp PgUp");
    assert!(!script.app.conversation.as_ref().unwrap().is_following);
    script.press("PgDn PgDn PgDn");
    assert!(script.app.conversation.as_ref().unwrap().is_following);
    // Scrolling up stops at the first entry.
    script.press(&["PgUp"; 30].join(" "));
    let screen = script.screen(80, 24);
    assert!(screen.contains("message 1\n") || screen.contains("message 1 "), "{screen}");
}

#[test]
fn earlier_messages_are_loaded_when_the_view_comes_near() {
    let all = long(40);
    let mut script = Script::connected(Start::Session("s1".into(), "/".to_owned()), SESSIONS);
    let ticket = script.app.opening.as_ref().unwrap().ticket;
    let cursor = Json::parse("20").unwrap();
    script.event(Event::Opened(Box::new(Opened {
        ticket,
        id: "s1".into(),
        cwd: "/".to_owned(),
        replica: Replica::Fixed(Arc::new(transcript(&refs(&all[20..])))),
        older: Some(cursor.clone()),
        older_messages: 20,
        is_reloaded: false,
    })));
    script.screen(80, 24);
    let effects = script.press("PgUp PgUp PgUp");
    assert_eq!(session_calls(&effects), [&SessionCall::Older(cursor.clone())], "requested once");
    let before = script.screen(80, 24);
    assert!(before.contains("#21"), "the 20 messages that are not loaded count: {before}");
    let page = Box::new(transcript(&refs(&all[..20])));
    script.event(Event::Older { session: "s1".into(), cursor, page, before: None });
    let after = script.screen(80, 24);
    let first = |screen: &str| screen.lines().skip(2).find(|row| row.contains("message")).unwrap().to_owned();
    assert_eq!(
        first(&before).split_whitespace().take(2).collect::<Vec<_>>(),
        first(&after).split_whitespace().take(2).collect::<Vec<_>>()
    );
    script.press("PgUp PgUp PgUp PgUp");
    assert!(script.screen(80, 24).contains("message 1"));
}

#[test]
fn find_marks_words_and_goes_from_hit_to_hit() {
    let lines = long(60);
    let mut script = Script::open(&refs(&lines));
    script.screen(80, 24);
    script.press("Tab /");
    script.type_text("message 1");
    script.press("Enter");
    let screen = script.screen(80, 24);
    assert!(screen.contains("message 51"), "the hit before the last entry: {screen}");
    script.press("N");
    let selected = |script: &Script| script.app.conversation.as_ref().unwrap().selected_number();
    assert_eq!(selected(&script), Some(41));
    script.press("n");
    assert_eq!(selected(&script), Some(51));
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
    script.event(older_page(page, 5, None));
    assert_eq!(script.app.focus, Focus::Messages);
    assert_eq!(script.app.conversation.as_ref().unwrap().selected_prompt().unwrap().1, "early");
}

/// A client whose session has 40 messages, of which the last 20 are loaded.
fn half_loaded() -> (Script, Vec<String>) {
    let all = long(40);
    let mut script = Script::connected(Start::Session("s1".into(), "/".to_owned()), SESSIONS);
    let ticket = script.app.opening.as_ref().unwrap().ticket;
    script.event(Event::Opened(Box::new(Opened {
        ticket,
        id: "s1".into(),
        cwd: "/".to_owned(),
        replica: Replica::Fixed(Arc::new(transcript(&refs(&all[20..])))),
        older: Some(Json::parse("20").unwrap()),
        older_messages: 20,
        is_reloaded: false,
    })));
    script.screen(80, 24);
    (script, all)
}

#[test]
fn earlier_messages_that_could_not_be_loaded_are_requested_again() {
    let (mut script, all) = half_loaded();
    let asks = |effects: &[Effect]| matches!(session_calls(effects)[..], [SessionCall::Older(_)]);
    assert!(asks(&script.press("PgUp PgUp PgUp")));
    assert!(!asks(&script.event(older_failed("s1", 20))), "not at once");
    assert!(script.screen(80, 24).contains("Cannot load earlier messages: the disk is full"));
    assert!(asks(&script.wait(1_000)));
    // Neither does a lost connection make them unreachable.
    disconnect(&mut script);
    script.event(older_failed("s1", 20));
    connect(&mut script);
    let effects = script.opened("s1", &refs(&all[20..]));
    assert!(asks(&effects), "{effects:?}");
    script.event(older_page(transcript(&refs(&all[..20])), 20, None));
    // A page that arrives twice is not added again.
    script.event(older_page(transcript(&refs(&all[..20])), 20, None));
    assert_eq!(script.app.conversation.as_ref().unwrap().messages(), 40);
}

#[test]
fn find_goes_on_in_messages_that_are_not_loaded_yet() {
    let (mut script, all) = half_loaded();
    script.press("Tab /");
    script.type_text("message 17");
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::Older(_)]), "{effects:?}");
    assert!(script.screen(80, 24).contains("Searching in earlier messages"));
    script.event(older_page(transcript(&refs(&all[10..20])), 20, Some(10)));
    assert_eq!(script.app.conversation.as_ref().unwrap().selected_number(), Some(17));
    // What is nowhere is not searched before all is loaded.
    script.press("/");
    script.type_text("nowhere");
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::Older(_)]), "{effects:?}");
    script.event(older_page(transcript(&refs(&all[..10])), 10, None));
    assert!(script.screen(80, 24).contains("No hits in this session"));
}

#[test]
fn a_hit_in_a_folded_entry_is_on_the_screen() {
    let output: String = (1..=60).map(|number| format!("line {number} of the output\\n")).collect();
    let tool = TOOL.replace("in_progress", "completed").replace(
        r#""rawInput""#,
        &format!(
            r#""content":[{{"type":"content","content":{{"type":"text","text":"{output}"}}}}],"rawInput""#
        ),
    );
    let mut script = Script::open(&[PROMPT, &tool, ANSWER, IDLE]);
    assert!(!script.screen(80, 24).contains("line 47"), "it is folded");
    script.press("Tab /");
    script.type_text("47 output");
    script.press("Enter");
    assert!(script.screen(80, 24).contains("line 47 of"), "{}", script.screen(80, 24));
    // So is one that the search of all sessions has found.
    let mut script = Script::open(&[PROMPT, &tool, ANSWER, IDLE]);
    script.screen(80, 24);
    script.app.open_at = Some(OpenAt::ToolCall("t1".to_owned(), vec!["47".to_owned()]));
    script.app.select_opened();
    assert!(script.screen(80, 24).contains("line 47 of"), "{}", script.screen(80, 24));
}

#[test]
fn find_reads_the_input_of_a_tool() {
    let tool = TOOL.replace(r#"{"command":"#, r#"{"timeout":86399,"query":"#);
    let mut script = Script::open(&[PROMPT, &tool, ANSWER, IDLE]);
    script.screen(80, 24);
    script.press("Tab /");
    script.type_text("86399");
    script.press("Enter");
    assert!(script.screen(80, 24).contains("86399"), "{}", script.screen(80, 24));
}

#[test]
fn a_tool_call_that_was_left_open_does_not_count_after_the_turn() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.changed(&[PROMPT, RUNNING, TOOL]);
    script.wait(5_000);
    let row = |script: &mut Script| {
        let screen = script.screen(80, 24);
        screen.lines().find(|row| row.contains("Run cargo test")).unwrap().to_owned()
    };
    assert!(row(&mut script).ends_with("0:05"));
    script.changed(&[PROMPT, RUNNING, TOOL, IDLE]);
    script.wait(5_000);
    assert!(row(&mut script).ends_with("parlor-server port"), "{}", row(&mut script));
}

#[test]
fn folding_leaves_no_blank_rows_while_something_is_hidden_above() {
    let lines = long(12);
    let output: String = (1..=60).map(|number| format!("line {number}\\n")).collect();
    let tool = TOOL.replace("in_progress", "completed").replace(
        r#""rawInput""#,
        &format!(
            r#""content":[{{"type":"content","content":{{"type":"text","text":"{output}"}}}}],"rawInput""#
        ),
    );
    let mut updates = refs(&lines);
    updates.push(&tool);
    let mut script = Script::open(&updates);
    script.screen(80, 24);
    script.press("Tab z Ctrl-U");
    assert!(script.screen(80, 24).contains("line 40"), "{}", script.screen(80, 24));
    script.press("z");
    let screen = script.screen(80, 24);
    let blank = screen.lines().skip(2).take(17).collect::<Vec<_>>().join("\n");
    assert!(blank.contains("message 12") && blank.contains("message 6"), "{screen}");
}
