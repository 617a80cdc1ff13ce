//! A store that refuses a batch, and a server that is killed.

use expect_test::expect;
use parlor_dialect::Dialect;
use parlor_engine::ReplayFrom;

use crate::harness::{RUNNING, Script, chunk, lines};

#[test]
fn nothing_of_a_batch_that_was_not_stored_is_sent() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "stored")]);
    script.sent(1);
    script.fails_next = true;
    script.says(&[&chunk("a", " lost")]);
    let sent = script.sent(1);
    assert!(!sent.iter().any(|line| line.contains("lost")), "{sent:?}");
    assert!(script.has_failed());
    let stored = script.texts().0;
    assert!(stored[1].ends_with("stored"), "{stored:?}");
}

#[test]
fn a_prompt_that_cannot_be_stored_is_answered_with_an_error_and_not_sent_to_the_agent() {
    let mut script = Script::new(Dialect::V1);
    script.attach(1, Dialect::V2);
    script.fails_next = true;
    script.prompt(1, 1, "One");
    expect![[r#"
        1 failed: the session cannot be stored: the disk is full
        state_update {"state":"idle","stopReason":"error","error":{"code":-32603,"message":"the session cannot be stored: the disk is full","data":{"reason":"session_closed"}}}
    "#]]
    .assert_eq(&lines(&script.sent(1)));
    assert_eq!(script.prompts.len(), 0);
}

#[test]
fn a_session_that_was_killed_in_a_turn_ends_the_turn_and_keeps_its_queue() {
    let mut script = Script::new(Dialect::V1);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.prompt(1, 2, "Two");
    script.says(&[r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half"}}"#]);
    let before = script.stored_texts();
    script.reopen();
    let after = script.stored_texts();
    assert_eq!(after[..before.len()], before[..]);
    // Queued prompts wait until a driver attaches.
    assert_eq!(script.commands(), [""; 0]);
    script.attach_with(2, Dialect::V2, "{}", ReplayFrom::Now);
    let commands = script.commands();
    assert!(commands.iter().any(|command| command.contains("Start")), "{commands:?}");
    script.restores(false);
    let commands = script.commands();
    assert!(commands.last().unwrap().contains("Two"), "{commands:?}");
}

#[test]
fn a_client_that_resumes_after_the_kill_gets_only_what_it_lacks() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "one "), &chunk("a", "two")]);
    let seq = script.machine.transcript().seq();
    script.reopen();
    script.attach_with(1, Dialect::V2, "{}", ReplayFrom::After(seq));
    let sent = script.sent(1);
    assert!(!sent.iter().any(|line| line.contains("one") || line.contains("two")), "{sent:?}");
    assert!(sent.iter().any(|line| line.starts_with("state_update") && line.contains("idle")), "{sent:?}");
}
