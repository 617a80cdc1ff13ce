//! Prompts that a client sends into the running turn.

use expect_test::expect;
use parlor_dialect::Dialect;
use parlor_engine::{AgentCall, AgentEvent, ClientCall, Event};
use parlor_json::Json;
use parlor_session::session::{ClientId, Scope};
use parlor_wire::RequestId;

use crate::harness::{Script, chunk, lines};

const STEERING: &str = r#"{"_meta":{"steering":{"supported":true}}}"#;

/// A session with a running turn of an agent of version 1.
fn running(initialize: &str) -> Script {
    let mut script = Script::with_agent(Dialect::V1, initialize);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.says(&[&chunk("a", "first")]);
    script.sent(1);
    script.commands();
    script
}

fn steer(script: &mut Script, id: u64, value: &str) {
    let params = format!(
        r#"{{"sessionId":"s","prompt":[{{"type":"text","text":"Now"}}],"_meta":{{"parlor/steer":{value}}}}}"#
    );
    let params = Json::parse(params).unwrap().to_object().unwrap();
    script.call(1, ClientCall::Prompt { id: RequestId::from(id), params });
}

/// The agent's response to the last request to steer.
fn answers(script: &mut Script, reply: Result<&str, &str>) {
    let json = |text: &str| Json::parse(text).unwrap();
    let prompt = parlor_session::session::PromptId(2);
    let response = AgentEvent::Response(AgentCall::Steer(prompt), reply.map(json).map_err(json));
    script.handle([Event::Agent(script.epoch, response)]);
}

#[test]
fn the_agent_is_asked_to_take_the_prompt_into_its_turn() {
    let mut script = running(STEERING);
    steer(&mut script, 2, "true");
    expect![[r#"
        1: _session/steering {"sessionId":"theirs","prompt":[{"type":"text","text":"Now"}],"_meta":{"steering":{"idleBehavior":"promptRequired"}}}
    "#]]
    .assert_eq(&lines(&script.commands()));
    assert!(script.sent(1).is_empty(), "it is answered when the agent has the prompt");
    answers(&mut script, Ok(r#"{"outcome":"injected"}"#));
    script.says(&[&chunk("b", "second")]);
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    expect![[r##"
        2 -> {"messageId":"#002"}
        user_message {"messageId":"#002","content":[{"type":"text","text":"Now"}],"_meta":{"parlor/steer":true}}
        agent_message_chunk {"messageId":"b","content":{"type":"text","text":"second"}}
        state_update {"state":"idle","stopReason":"end_turn"}
    "##]].assert_eq(&lines(&script.sent(1)));
    assert_eq!(script.stored_texts().len(), 4);
    assert!(script.stored_heads()[2].contains(r#""parlor/steer":true"#), "{:?}", script.stored_heads());
}

#[test]
fn a_prompt_that_the_agent_did_not_take_is_sent_after_the_turn() {
    let mut script = running(STEERING);
    steer(&mut script, 2, "true");
    script.commands();
    answers(&mut script, Ok(r#"{"outcome":"promptRequired","reason":"noRunningTurn"}"#));
    assert_eq!(script.commands(), [""; 0], "the turn is still running");
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    expect![[r#"
        1: session/prompt {"sessionId":"theirs","prompt":[{"type":"text","text":"Now"}]}
    "#]]
    .assert_eq(&lines(&script.commands()));
    assert!(!script.stored_heads()[2].contains("parlor/steer"), "{:?}", script.stored_heads());
}

#[test]
fn a_prompt_that_the_agent_rejects_leaves_no_trace() {
    for reply in [Ok(r#"{"outcome":"failed"}"#), Err(r#"{"code":-32603,"message":"no images"}"#)] {
        let mut script = running(STEERING);
        steer(&mut script, 2, "true");
        answers(&mut script, reply);
        let sent = script.sent(1);
        assert!(sent.iter().any(|line| line.starts_with("2 failed: ")), "{sent:?}");
        assert_eq!(script.stored_texts().len(), 2);
    }
}

#[test]
fn a_prompt_whose_agent_is_lost_before_it_answers_is_sent_to_the_next_one() {
    let mut script = running(STEERING);
    steer(&mut script, 2, "true");
    script.agent_ends();
    script.commands();
    script.restores(false);
    let commands = script.commands();
    assert!(commands.iter().any(|command| command.starts_with("2: session/prompt")), "{commands:?}");
}

#[test]
fn an_agent_that_does_not_offer_it_is_not_asked() {
    let mut script = running("{}");
    steer(&mut script, 2, "true");
    expect![[r#"
        2 failed: agent 'agent' accepts no prompts while it works: queue the prompt, or cancel the turn and send it
    "#]].assert_eq(&lines(&script.sent(1)));
    assert_eq!(script.commands(), [""; 0]);
    steer(&mut script, 3, r#""cancel""#);
    expect![[r#"
        1: session/cancel
    "#]]
    .assert_eq(&lines(&script.commands()));
    script.responds(0, r#"{"stopReason":"cancelled"}"#);
    expect![[r#"
        1: session/prompt {"sessionId":"theirs","prompt":[{"type":"text","text":"Now"}]}
    "#]]
    .assert_eq(&lines(&script.commands()));
    steer(&mut script, 4, "7");
    let sent = script.sent(1);
    assert!(sent.iter().any(|line| line.starts_with("4 failed: `parlor/steer` must be")), "{sent:?}");
}

/// A `_session/steering` of a client.
fn steering(script: &mut Script, client: u64, id: u64, idle: &str) {
    let meta = format!(r#"{{"steering":{{"idleBehavior":"{idle}"}}}}"#);
    let params = format!(r#"{{"sessionId":"s","prompt":[{{"type":"text","text":"Now"}}],"_meta":{meta}}}"#);
    let params = Json::parse(params).unwrap().to_object().unwrap();
    script.call(client, ClientCall::Steer { id: RequestId::from(id), params });
}

#[test]
fn a_client_that_knows_the_agents_method_can_use_it() {
    let mut script = running(STEERING);
    script.attach(2, Dialect::V1);
    steering(&mut script, 2, 7, "promptRequired");
    assert_eq!(script.sent(2), [""; 0]);
    answers(&mut script, Ok(r#"{"outcome":"injected"}"#));
    assert_eq!(script.sent(2), [r#"7 -> {"outcome":"injected"}"#]);
    assert!(script.stored_heads()[2].contains("parlor/steer"), "{:?}", script.stored_heads());
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    script.commands();

    // Without a turn.
    script.sent(2);
    steering(&mut script, 2, 8, "promptRequired");
    assert_eq!(script.sent(2), [r#"8 -> {"outcome":"promptRequired"}"#]);
    assert_eq!(script.commands(), [""; 0]);
    steering(&mut script, 2, 9, "");
    assert_eq!(script.sent(2)[0], r#"9 -> {"outcome":"startedNewTurn"}"#);
    assert!(script.commands()[0].starts_with("1: session/prompt"));
}

#[test]
fn a_client_keeps_a_prompt_that_came_too_late_if_it_asked_for_that() {
    for (idle, outcome, is_kept) in
        [("promptRequired", "promptRequired", true), ("", "startedNewTurn", false)]
    {
        let mut script = running(STEERING);
        steering(&mut script, 1, 7, idle);
        script.commands();
        answers(&mut script, Ok(r#"{"outcome":"promptRequired"}"#));
        assert!(script.is_durable || !is_kept, "a power cut does not queue it again");
        let sent = script.sent(1);
        assert!(sent.contains(&format!(r#"7 -> {{"outcome":"{outcome}"}}"#)), "{sent:?}");
        assert_eq!(sent.iter().filter(|line| line.starts_with("7 ")).count(), 1, "{sent:?}");
        script.responds(0, r#"{"stopReason":"end_turn"}"#);
        let is_sent = script.commands().iter().any(|command| command.contains("session/prompt"));
        assert_eq!(is_sent, !is_kept);
    }
}

#[test]
fn a_prompt_is_not_given_back_to_a_slow_client_while_the_store_still_has_it() {
    let mut script = running(STEERING);
    script.attach(2, Dialect::V2);
    steering(&mut script, 2, 7, "promptRequired");
    script.set_full(2, true);
    script.says(&[&chunk("a", " second")]);
    script.sent(2);
    // The queue changes, and no sequence number.
    script.fails_next = true;
    answers(&mut script, Ok(r#"{"outcome":"promptRequired"}"#));
    let sent = script.sent(2);
    assert_eq!(sent[0], "7 failed: the session cannot be stored: the disk is full");
    assert_eq!(sent.iter().filter(|line| line.starts_with("7 ")).count(), 1, "{sent:?}");
}

#[test]
fn a_slow_client_is_answered_about_what_was_stored_before_the_store_failed() {
    let mut script = running(STEERING);
    script.attach(2, Dialect::V2);
    steering(&mut script, 2, 7, "promptRequired");
    script.set_full(2, true);
    script.says(&[&chunk("a", " second")]);
    answers(&mut script, Ok(r#"{"outcome":"promptRequired"}"#));
    script.sent(2);
    script.fails_next = true;
    script.says(&[&chunk("a", " third")]);
    assert_eq!(script.sent(2)[0], r#"7 -> {"outcome":"promptRequired"}"#);
}

#[test]
fn a_client_gets_the_agents_error_and_agents_without_steering_have_no_such_method() {
    let mut script = running(STEERING);
    steering(&mut script, 1, 7, "");
    answers(&mut script, Err(r#"{"code":-32603,"message":"no images"}"#));
    assert_eq!(script.sent(1), ["7 failed: no images"]);
    let mut script = running("{}");
    steering(&mut script, 1, 7, "");
    let sent = script.sent(1);
    assert!(sent[0].starts_with("7 failed: agent 'agent' accepts no prompts while it works"), "{sent:?}");
}

#[test]
fn a_client_keeps_a_prompt_whose_agent_is_lost_if_it_asked_for_that() {
    for (idle, outcome, is_kept) in
        [("promptRequired", "promptRequired", true), ("", "startedNewTurn", false)]
    {
        let mut script = running(STEERING);
        steering(&mut script, 1, 7, idle);
        script.agent_ends();
        script.restores(false);
        let sent = script.sent(1);
        assert!(sent.contains(&format!(r#"7 -> {{"outcome":"{outcome}"}}"#)), "{sent:?}");
        assert_eq!(sent.iter().filter(|line| line.starts_with("7 ")).count(), 1, "{sent:?}");
        let is_sent = script.commands().iter().any(|command| command.starts_with("2: session/prompt"));
        assert_eq!(is_sent, !is_kept, "{idle}");
    }
}

#[test]
fn a_prompt_that_the_agent_drops_with_a_turn_of_another_client_is_the_next_one() {
    let dropped = r#"{"code":-32800,"message":"cancelled"}"#;
    for (scope, is_sent) in [(Scope::Turn, true), (Scope::Session, false)] {
        let mut script = running(STEERING);
        script.attach(2, Dialect::V2);
        steer(&mut script, 2, "true");
        script.handle([Event::CancelTurn { by: ClientId(2), scope }]);
        answers(&mut script, Err(dropped));
        script.commands();
        script.responds(0, r#"{"stopReason":"cancelled"}"#);
        let commands = script.commands();
        let is_next = commands.iter().any(|command| command.starts_with("1: session/prompt"));
        assert_eq!(is_next, is_sent, "{scope:?}: {commands:?}");
    }
}

#[test]
fn a_cancelled_turn_leaves_queued_prompts_and_the_same_key_does_not_cancel_again() {
    let mut script = running("{}");
    script.attach(2, Dialect::V2);
    script.prompt(2, 1, "Queued");
    let keyed = |script: &mut Script, id: u64| {
        let meta = r#"{"parlor/steer":"cancel","parlor/key":"k"}"#;
        let params =
            format!(r#"{{"sessionId":"s","prompt":[{{"type":"text","text":"Now"}}],"_meta":{meta}}}"#);
        let params = Json::parse(params).unwrap().to_object().unwrap();
        script.call(1, ClientCall::Prompt { id: RequestId::from(id), params });
    };
    keyed(&mut script, 2);
    assert_eq!(script.commands(), ["1: session/cancel"]);
    script.responds(0, r#"{"stopReason":"cancelled"}"#);
    assert!(script.commands()[0].contains("Now"));
    keyed(&mut script, 3);
    assert_eq!(script.commands(), [""; 0], "the prompt is running");
    script.responds(1, r#"{"stopReason":"end_turn"}"#);
    assert!(script.commands()[0].contains("Queued"));
}

#[test]
fn a_request_between_turns_is_not_a_turn_for_a_prompt() {
    let mut script = running(STEERING);
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    script.asks(1, "session/request_permission", r#"{"sessionId":"theirs","options":[]}"#);
    script.sent(1);
    script.commands();
    steering(&mut script, 1, 7, "promptRequired");
    assert_eq!(script.sent(1), [r#"7 -> {"outcome":"promptRequired"}"#]);
    assert_eq!(script.commands(), [""; 0]);
}

#[test]
fn a_prompt_that_the_agent_repeats_without_an_id_ends_the_message_before_it() {
    let text = |kind: &str, text: &str| {
        format!(r#"{{"sessionUpdate":"{kind}_message_chunk","content":{{"type":"text","text":"{text}"}}}}"#)
    };
    let mut script = running(STEERING);
    script.says(&[&text("agent", "before")]);
    steer(&mut script, 2, "true");
    script.says(&[&text("user", "Now"), &text("agent", "after")]);
    answers(&mut script, Ok(r#"{"outcome":"injected"}"#));
    let texts = script.stored_texts();
    let texts: Vec<_> = texts.iter().filter_map(|text| text.rsplit(": ").next()).collect();
    assert_eq!(texts, ["One", "first", "before", "Now", "after"]);
}
