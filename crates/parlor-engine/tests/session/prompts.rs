//! Prompts: queued, accepted, cancelled, withdrawn.

use expect_test::expect;
use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Event};
use parlor_json::Json;
use parlor_session::session::{ClientId, PromptId, Scope};
use parlor_wire::RequestId;

use crate::harness::{IDLE, RUNNING, Script, chunk, lines};

#[test]
fn a_v2_client_is_answered_when_the_prompt_is_in_the_history_and_a_v1_client_when_the_turn_ends() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.attach(2, Dialect::V1);
    script.prompt(1, 7, "Hello");
    script.sent(1);
    script.responds(0, r#"{"messageId":"u"}"#);
    assert_eq!(script.sent(1)[0], r#"7 -> {"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "Hi"), IDLE]);
    script.sent(2);
    script.prompt(2, 8, "More");
    script.responds(1, r#"{"messageId":"v"}"#);
    assert!(!script.sent(2).iter().any(|line| line.starts_with("8 ->")), "the turn has not ended");
    script.says(&[RUNNING, &chunk("b", "Yes"), IDLE]);
    assert_eq!(script.sent(2).last().unwrap(), r#"8 -> {"stopReason":"end_turn"}"#);
    let texts = script.stored_texts();
    assert_eq!(texts.len(), 4, "{texts:?}");
}

#[test]
fn a_v1_agent_gets_one_prompt_at_a_time_and_the_others_are_queued() {
    let mut script = Script::new(Dialect::V1);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.prompt(1, 2, "Two");
    assert_eq!(script.prompts.len(), 1);
    let sent = script.sent(1);
    assert!(sent.iter().any(|line| line.starts_with("1 ->")), "{sent:?}");
    assert!(
        !sent.iter().any(|line| line.starts_with("2 ->")),
        "it is answered when it is inserted: {sent:?}"
    );
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    assert_eq!(script.prompts.len(), 2);
    assert!(script.sent(1).iter().any(|line| line.starts_with("2 ->")));
}

#[test]
fn a_queued_prompt_is_withdrawn_by_its_sender_and_by_any_driver() {
    let mut script = Script::new(Dialect::V1);
    script.attach(1, Dialect::V2);
    script.attach(2, Dialect::V2);
    script.prompt(1, 1, "One");
    script.prompt(1, 2, "Two");
    script.prompt(1, 3, "Three");
    script.sent(1);
    script.handle([Event::CancelRequest { client: ClientId(1), id: RequestId::from(2) }]);
    script.call(2, ClientCall::WithdrawPrompt { id: RequestId::from(9), prompt: PromptId(3) });
    let failed: Vec<_> = script.sent(1).into_iter().filter(|line| line.contains("failed")).collect();
    expect![[r#"
        2 failed: the prompt was withdrawn
        3 failed: the prompt was withdrawn by another client
    "#]]
    .assert_eq(&lines(&failed));
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    assert_eq!(script.prompts.len(), 1, "the agent was sent neither of them");
}

#[test]
fn keys_of_the_server_are_not_sent_to_the_agent_with_a_prompt() {
    for (meta, sent) in [
        (r#"{"parlor/key":"k","x":1,"parlor/steer":false}"#, r#","_meta":{"x":1}}"#),
        (r#"{"parlor/key":"k"}"#, "}]}"),
        ("{}", "}]}"),
    ] {
        let mut script = Script::new(Dialect::V2);
        script.attach(1, Dialect::V2);
        let params =
            format!(r#"{{"sessionId":"s","prompt":[{{"type":"text","text":"Hi"}}],"_meta":{meta}}}"#);
        let params = Json::parse(params).unwrap().to_object().unwrap();
        script.call(1, ClientCall::Prompt { id: RequestId::from(1_u64), params });
        let commands = script.commands();
        assert!(commands.last().is_some_and(|command| command.ends_with(sent)), "{commands:?}");
    }
}

#[test]
fn a_cancel_of_the_turn_keeps_the_prompts_of_others_and_one_of_the_session_does_not() {
    for (scope, left) in [(Scope::Turn, 1), (Scope::Session, 0)] {
        let mut script = Script::new(Dialect::V1);
        script.attach(1, Dialect::V2);
        script.attach(2, Dialect::V2);
        script.prompt(1, 1, "One");
        script.prompt(1, 2, "Mine");
        script.prompt(2, 3, "Yours");
        script.handle([Event::CancelTurn { by: ClientId(1), scope }]);
        script.responds(0, r#"{"stopReason":"cancelled"}"#);
        assert_eq!(script.prompts.len(), 1 + left, "{scope:?}");
    }
}

#[test]
fn a_cancel_that_the_agent_ignores_ends_the_turn_after_the_timeout() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    script.handle([Event::CancelTurn { by: ClientId(1), scope: Scope::Session }]);
    let (_, timer) = script.timers.pop().expect("a cancel timeout is armed");
    script.sent(1);
    script.handle([Event::Timer(timer)]);
    assert_eq!(script.sent(1).last().unwrap(), r#"state_update {"state":"idle","stopReason":"cancelled"}"#);
    assert!(script.commands().iter().any(|command| command == "1: Retire"));
    // Later updates of the agent belong to an epoch that has ended.
    let seq = script.machine.transcript().seq();
    script.says(&[&chunk("a", "late")]);
    assert_eq!(script.machine.transcript().seq(), seq);
}

const CANCELLED: &str = r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}"#;

/// An agent that was sent two prompts and runs the turn of the first one, with clients of this dialect.
fn two_prompts(dialect: Dialect) -> Script {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, dialect);
    script.attach(2, dialect);
    script.prompt(1, 1, "First");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    script.prompt(2, 2, "Second");
    assert_eq!(script.prompts.len(), 2, "the agent has its own queue");
    script
}

#[test]
fn the_cancel_timeout_of_a_turn_does_not_end_the_turn_of_the_next_prompt() {
    for dialect in Dialect::ALL {
        let mut script = two_prompts(dialect);
        script.handle([Event::CancelTurn { by: ClientId(1), scope: Scope::Turn }]);
        script.says(&[CANCELLED]);
        // The agent starts with the second prompt, and responds to it late.
        script.says(&[RUNNING, &chunk("a", "Second.")]);
        let (_, timer) = script.timers.pop().expect("a cancel timeout is armed");
        script.sent(2);
        script.commands();
        script.handle([Event::Timer(timer)]);
        assert_eq!(script.sent(2), Vec::<String>::new(), "{dialect}");
        assert_eq!(script.commands(), Vec::<String>::new(), "{dialect}");
        script.responds(1, r#"{"messageId":"v"}"#);
        script.says(&[IDLE]);
        let sent = script.sent(2);
        let end = sent.iter().find(|line| line.contains("end_turn"));
        assert!(end.is_some(), "{dialect}: {sent:?}");
    }
}

#[test]
fn a_withdrawn_prompt_without_a_response_does_not_affect_the_running_turn() {
    for dialect in Dialect::ALL {
        let mut script = two_prompts(dialect);
        script.handle([Event::CancelRequest { client: ClientId(2), id: RequestId::from(2) }]);
        script.sent(1);
        let (_, timer) = script.timers.pop().expect("a cancel timeout is armed");
        script.handle([Event::Timer(timer)]);
        let sent = script.sent(1);
        assert!(!sent.iter().any(|line| line.contains("idle")), "{dialect}: {sent:?}");
        script.says(&[IDLE]);
        let sent = script.sent(1);
        assert!(sent.iter().any(|line| line.contains("idle")), "{dialect}: {sent:?}");
        // The agent is idle and has not responded to the withdrawn prompt: the server does after the next timeout.
        let (_, timer) = script.timers.pop().expect("the cancel timeout is armed again");
        script.sent(2);
        script.handle([Event::Timer(timer)]);
        let sent = script.sent(2);
        let response =
            if dialect == Dialect::V1 { r#"2 -> {"stopReason":"cancelled""# } else { "2 failed: " };
        assert!(sent.iter().any(|line| line.starts_with(response)), "{dialect}: {sent:?}");
    }
}

#[test]
fn the_same_key_is_the_same_prompt() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    let keyed = |id: u64| {
        let params =
            r#"{"sessionId":"s","prompt":[{"type":"text","text":"Once"}],"_meta":{"parlor/key":"k"}}"#;
        let params = Json::parse(params).unwrap().to_object().unwrap_or_default();
        ClientCall::Prompt { id: RequestId::from(id), params }
    };
    script.call(1, keyed(1));
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, IDLE]);
    script.call(1, keyed(2));
    assert_eq!(script.prompts.len(), 1, "the agent was sent it once");
    let commands = script.commands().join("\n");
    assert!(
        commands.contains("Once") && !commands.contains("parlor/key"),
        "the key is not for the agent: {commands}"
    );
    let sent = script.sent(1);
    assert!(sent.iter().any(|line| line == r#"2 -> {"messageId":"u"}"#), "{sent:?}");
}
