//! What lists of all sessions show of one, and requests that are answered from there.

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, ForkKind, SessionData};
use parlor_json::Json;
use parlor_session::session::PeerRequestId;
use parlor_wire::RequestId;

use crate::harness::{IDLE, RUNNING, Script};

const ASKED: &str = r#"{"sessionId":"theirs","title":"Run?","subject":{"type":"tool_call","toolCall":{"toolCallId":"c"}},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}"#;
const YES: &str = r#"{"outcome":{"outcome":"selected","optionId":"yes"}}"#;
const CALL: &str = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"Run","kind":"execute","rawInput":{"command":"rm -r x"}}"#;

fn answer(id: u64, request: u64) -> ClientCall {
    let peer_request = PeerRequestId(request);
    ClientCall::AnswerRequest { id: RequestId::from(id), peer_request, result: Json::parse(YES).unwrap() }
}

/// A session whose agent asks for permission to run a command.
fn with_a_request() -> Script {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, CALL]);
    script.wall += 5;
    script.asks(4, "session/request_permission", ASKED);
    script
}

#[test]
fn the_times_of_the_last_prompt_and_turn_end_are_stored() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.wall = 2_000_000;
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    let summary = script.stored_summary();
    assert_eq!((summary.last_prompt_at, summary.last_turn_ended_at), (Some(2_000_000), None));
    script.wall = 3_000_000;
    script.says(&[r#"{"sessionUpdate":"usage_update","used":10,"size":100}"#, IDLE]);
    let summary = script.stored_summary();
    assert_eq!((summary.last_prompt_at, summary.last_turn_ended_at), (Some(2_000_000), Some(3_000_000)));
    assert!(!summary.has_failed);
    let usage = summary.usage.expect("the usage is stored with the end of the turn");
    assert_eq!(usage.get("used").map(|used| used.as_str().to_owned()).as_deref(), Some("10"));
}

#[test]
fn a_session_is_unread_from_the_end_of_a_turn_until_a_person_has_seen_it() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    assert!(!script.stored_summary().is_unread(), "no turn has ended");
    script.says(&[IDLE]);
    assert!(script.stored_summary().is_unread());
    let seen = |id: u64, seq: u64| ClientCall::Seen { id: RequestId::from(id), seq };
    script.call(1, seen(2, 1));
    assert!(script.stored_summary().is_unread(), "it saw only the beginning");
    script.call(1, seen(3, u64::MAX));
    assert!(!script.stored_summary().is_unread());
    script.call(1, seen(4, 1));
    assert!(!script.stored_summary().is_unread(), "what was seen stays seen");
    script.prompt(1, 5, "Two");
    script.responds(1, r#"{"messageId":"v"}"#);
    script.says(&[RUNNING, IDLE]);
    assert!(script.stored_summary().is_unread(), "a later turn");
}

#[test]
fn a_session_has_failed_from_a_failed_turn_to_the_next_prompt() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    script.agent_ends();
    assert!(script.stored_summary().has_failed);
    script.reopen();
    assert!(script.stored_summary().has_failed, "after a restart as well");
    script.attach(1, Dialect::V2);
    script.prompt(1, 2, "Two");
    script.restores(false);
    script.responds(1, r#"{"messageId":"v"}"#);
    script.says(&[RUNNING]);
    assert!(!script.stored_summary().has_failed);
}

#[test]
fn the_mode_and_the_model_in_force_are_stored() {
    let mut script = Script::new(Dialect::V1);
    script.says(&[r#"{"sessionUpdate":"current_mode_update","currentModeId":"ask"}"#]);
    assert_eq!(script.stored_summary().mode, Some("ask".into()));
    let mut script = Script::new(Dialect::V2);
    let option = |category: &str, value: &str| {
        format!(
            r#"{{"id":"{category}","name":"x","category":"{category}","type":"select","currentValue":"{value}","options":[{{"value":"{value}","name":"x"}}]}}"#
        )
    };
    let options = [option("model", "big"), option("mode", "code")].join(",");
    script.says(&[&format!(r#"{{"sessionUpdate":"config_option_update","configOptions":[{options}]}}"#)]);
    let summary = script.stored_summary();
    assert_eq!((summary.mode, summary.model), (Some("code".into()), Some("big".into())));
}

#[test]
fn a_fork_has_the_settings_and_no_turn_of_its_own() {
    let mut script = Script::new(Dialect::V1);
    script.says(&[r#"{"sessionUpdate":"current_mode_update","currentModeId":"ask"}"#]);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s","cwd":"/work"}"#);
    let summary = SessionData::of(&script.forks[0].row).summary;
    assert_eq!((summary.mode, summary.last_prompt_at), (Some("ask".into()), None));
}

#[test]
fn open_requests_are_reported_with_the_whole_tool_call_until_they_are_answered() {
    let mut script = with_a_request();
    let [request] = &script.open_requests[..] else { panic!("{:?}", script.open_requests) };
    assert_eq!((request.method.as_str(), request.opened_at), ("session/request_permission", 1_000_005));
    assert!(request.params.to_json().as_str().contains(r#""sessionId":"s""#), "{request:?}");
    let call = request.tool_call.as_ref().expect("the request is about a tool call").to_json();
    assert!(call.as_str().contains("rm -r x"), "{call:?}");
    script.answers(1, YES);
    assert_eq!(script.open_requests, []);
}

#[test]
fn a_client_that_is_not_attached_answers_once_and_its_name_is_recorded() {
    let mut script = with_a_request();
    script.connect(7, Dialect::V2, r#"{"info":{"name":"phone","version":"1"}}"#);
    script.commands();
    script.call(7, answer(3, 0));
    assert_eq!(script.sent(7), ["3 -> {}"]);
    let commands = script.commands();
    assert_eq!(commands.iter().filter(|command| command.contains("respond")).count(), 1, "{commands:?}");
    assert!(
        script.sent(1).iter().any(|line| line.starts_with("cancel ")),
        "the attached client gets a cancellation"
    );
    let heads = script.stored_heads();
    assert!(heads.iter().any(|head| head.contains("phone")), "{heads:?}");
    script.call(7, answer(4, 0));
    let sent = script.sent(7);
    assert_eq!(sent, ["4 failed: the request is not open: it was answered or cancelled"]);
    assert!(!script.commands().iter().any(|command| command.contains("respond")));
}

#[test]
fn an_answer_that_cannot_be_stored_does_not_reach_the_agent() {
    let mut script = with_a_request();
    script.connect(7, Dialect::V2, "{}");
    script.commands();
    script.fails_next = true;
    script.call(7, answer(3, 0));
    assert!(script.has_failed());
    assert!(!script.commands().iter().any(|command| command.contains("respond")));
    assert!(
        script.sent(7)[0].starts_with("3 failed: the session cannot be stored"),
        "the client gets an error"
    );
}

#[test]
fn open_requests_end_with_the_agent() {
    let mut script = with_a_request();
    script.agent_ends();
    assert_eq!(script.open_requests, []);
}

#[test]
fn prompts_that_wait_behind_another_one_are_counted() {
    let mut script = Script::new(Dialect::V1);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    assert_eq!(script.stored_summary().queued, 0, "it runs at once");
    script.prompt(1, 2, "Two");
    script.prompt(1, 3, "Three");
    assert_eq!(script.stored_summary().queued, 2);
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    assert_eq!(script.stored_summary().queued, 1, "the second one runs");
    script.responds(1, r#"{"stopReason":"end_turn"}"#);
    assert_eq!(script.stored_summary().queued, 0);

    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    assert_eq!(script.stored_summary().queued, 0, "it is with the agent");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    script.prompt(1, 2, "Two");
    assert_eq!(script.stored_summary().queued, 1, "the agent has queued it");
    script.responds(1, r#"{"messageId":"v"}"#);
    assert_eq!(script.stored_summary().queued, 0);
}
