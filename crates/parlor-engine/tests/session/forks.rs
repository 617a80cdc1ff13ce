//! Forks: the conversation of one moment in a new session.

use parlor_dialect::Dialect;
use parlor_engine::{ForkAgent, ForkKind, SessionData};

use crate::harness::{IDLE, RUNNING, Script, chunk};

fn with_a_turn() -> Script {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "answer"), IDLE]);
    script.sent(1);
    script
}

#[test]
fn a_fork_at_the_end_is_made_by_an_agent_that_can_fork() {
    let mut script = with_a_turn();
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s"}"#);
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkAgent::Native { .. }), "{:?}", start.agent);
    assert_eq!(start.row.parent.as_deref(), Some(r#""s""#));
    assert_eq!(script.sent(1), [""; 0], "it is answered when it is there");
}

#[test]
fn a_fork_at_a_message_gives_the_agent_the_transcript() {
    let mut script = with_a_turn();
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s","messageId":"u"}"#);
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkAgent::Transcript(None)), "{:?}", start.agent);
}

#[test]
fn an_edit_and_a_regeneration_prompt_the_fork() {
    let mut script = with_a_turn();
    let edited = r#"{"sessionId":"s","messageId":"u","prompt":[{"type":"text","text":"Else"}]}"#;
    script.fork(1, 2, ForkKind::Edit, edited);
    let start = script.forks.pop().expect("it is opened");
    assert!(start.prompt.expect("it is prompted").as_str().contains("Else"));
    script.fork(1, 3, ForkKind::Regenerate, r#"{"sessionId":"s","messageId":"a"}"#);
    let start = script.forks.pop().expect("it is opened");
    assert!(start.prompt.expect("it is prompted").as_str().contains("One"));
}

#[test]
fn an_unknown_message_and_one_that_is_being_written_are_rejected() {
    let mut script = with_a_turn();
    script.says(&[RUNNING, &chunk("b", "half")]);
    script.sent(1);
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s","messageId":"nowhere"}"#);
    script.fork(1, 3, ForkKind::Fork, r#"{"sessionId":"s","messageId":"b"}"#);
    assert!(script.forks.is_empty());
    let sent = script.sent(1);
    assert!(sent[0].starts_with("2 failed") && sent[1].starts_with("3 failed"), "{sent:?}");
}

#[test]
fn a_fork_that_cannot_be_stored_does_not_exist() {
    let mut script = with_a_turn();
    script.fails_next = true;
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s"}"#);
    assert!(script.forks.is_empty());
    let sent = script.sent(1);
    assert!(sent.iter().any(|line| line.starts_with("2 failed: the session cannot be stored")), "{sent:?}");
}

#[test]
fn a_native_fork_waits_for_the_agent_to_be_restored() {
    let mut script = with_a_turn();
    script.agent_ends();
    script.commands();
    let initialize = r#"{"capabilities":{"session":{"fork":{}}}}"#;
    script.fork_of_known_agent(1, 2, initialize);
    assert!(script.forks.is_empty());
    assert!(script.commands().iter().any(|command| command.contains("Start")));
    script.restores(false);
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkAgent::Native { .. }), "{:?}", start.agent);
}

/// An update that sets a mode.
const MODE: &str = r#"{"sessionUpdate":"config_option_update","configOptions":[{"configId":"m","name":"M","type":"select","category":"mode","currentValue":"a","options":[{"value":"a","name":"A"}]}]}"#;

#[test]
fn a_handoff_gives_another_agent_the_transcript_and_neither_session_nor_settings_of_the_old_one() {
    let mut script = with_a_turn();
    script.says(&[MODE]);
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s"}"#);
    let own = script.forks.pop().expect("it is opened");
    assert!(own.answer.to_json().as_str().contains(r#""configId":"m""#), "{:?}", own.answer);
    let mode = |data: &str| data.contains(r#""mode":"a""#);
    assert!(mode(&own.row.data), "{}", own.row.data);

    script.hand_over(1, 3, r#"{"sessionId":"s"}"#, "other");
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkAgent::Transcript(None)), "{:?}", start.agent);
    assert_eq!((start.row.agent.as_str(), &start.row.agent_session), ("other", &None));
    assert_eq!((start.row.parent.as_deref(), start.row.cwd.as_str()), (Some(r#""s""#), "/work"));
    assert_eq!(SessionData::of(&start.row).agent_dialect, Some(Dialect::V1));
    assert!(!mode(&start.row.data), "{}", start.row.data);
    let answer = start.answer.to_json();
    assert!(!answer.as_str().contains(r#""configId""#), "{}", answer.as_str());
    assert!(answer.as_str().contains(r#""parlor/fork":"transcript""#), "{}", answer.as_str());
}

#[test]
fn a_handoff_at_a_message_records_the_message() {
    let mut script = with_a_turn();
    script.hand_over(1, 2, r#"{"sessionId":"s","messageId":"u"}"#, "other");
    let start = script.forks.pop().expect("it is opened");
    let forked_at = SessionData::of(&start.row).forked_at.expect("the message is recorded");
    assert_eq!(forked_at.to_text(), "u");
    assert_eq!(start.row.agent, "other");
}

#[test]
fn a_handoff_to_the_sessions_own_agent_is_an_ordinary_fork() {
    let mut script = with_a_turn();
    script.hand_over(1, 2, r#"{"sessionId":"s"}"#, "agent");
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkAgent::Native { .. }), "{:?}", start.agent);
}
