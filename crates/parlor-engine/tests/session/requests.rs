//! Peer requests: every driver is asked, the first result counts.

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Event};
use parlor_json::Json;
use parlor_session::session::{Answer, ClientId};
use parlor_wire::RequestId;

use crate::harness::{RUNNING, Script};

const ASKED: &str = r#"{"sessionId":"theirs","toolCall":{"toolCallId":"c","title":"Run"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}"#;
const YES: &str = r#"{"outcome":{"outcome":"selected","optionId":"yes"}}"#;

fn with_a_request() -> Script {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.attach(2, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    script.asks(4, "session/request_permission", ASKED);
    script
}

#[test]
fn every_driver_is_asked_and_the_first_result_reaches_the_agent_once() {
    let mut script = with_a_request();
    assert_eq!(script.peer_requests.len(), 2);
    script.sent(1);
    script.commands();
    script.answers(2, YES);
    script.answers(1, YES);
    let answers: Vec<_> =
        script.commands().into_iter().filter(|command| command.contains("respond")).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(
        script.sent(1).iter().any(|line| line.starts_with("cancel ")),
        "the other client gets a cancellation"
    );
}

#[test]
fn a_request_is_cancelled_at_a_client_that_detaches_and_stays_open_for_others() {
    let mut script = with_a_request();
    script.sent(1);
    script.sent(2);
    script.commands();
    script.call(1, ClientCall::Detach { id: RequestId::from(5) });
    assert!(script.sent(1).iter().any(|line| line.starts_with("cancel ")));
    assert!(!script.sent(2).iter().any(|line| line.starts_with("cancel ")));
    script.answers(1, YES);
    assert!(
        !script.commands().iter().any(|command| command.contains("respond")),
        "its answer comes too late"
    );
    script.answers(2, YES);
    assert!(script.commands().iter().any(|command| command.contains("respond")));
}

#[test]
fn the_decision_is_stored_before_the_agent_gets_it() {
    let mut script = with_a_request();
    script.commands();
    script.fails_next = true;
    script.answers(1, YES);
    assert!(script.has_failed());
    let commands = script.commands();
    assert!(!commands.iter().any(|command| command.contains("respond")), "{commands:?}");
}

#[test]
fn a_client_that_attaches_later_is_asked_after_its_response() {
    let mut script = with_a_request();
    script.attach_with(3, Dialect::V2, "{}", parlor_engine::ReplayFrom::Start);
    let sent = script.sent(3);
    let response = sent.iter().position(|line| line.starts_with("0 ->")).unwrap();
    let request = sent.iter().position(|line| line.starts_with("request session/request_permission"));
    assert!(request.is_some_and(|request| request > response), "{sent:?}");
}

#[test]
fn a_request_that_is_left_open_is_listed_with_the_clients_that_can_answer_it() {
    let mut script = with_a_request();
    script.commands();
    assert_eq!(script.open_requests[0].clients, 2);
    let (_, request) = *script.peer_requests.iter().find(|(client, _)| *client == 1).unwrap();
    let left_open = r#"{"code":-32601,"message":"no terminal","data":{"reason":"left_open"}}"#;
    let answer = Answer::Error(Json::parse(left_open).unwrap());
    script.handle([Event::Answered { request, by: ClientId(1), answer }]);
    assert_eq!(script.open_requests[0].clients, 1);
    script.handle([Event::Disconnected(ClientId(2))]);
    assert_eq!(script.open_requests[0].clients, 0);
    assert_eq!(script.commands(), [""; 0]);
}

#[test]
fn the_request_waits_while_no_driver_is_attached() {
    let mut script = with_a_request();
    script.commands();
    script.handle([Event::Disconnected(ClientId(1)), Event::Disconnected(ClientId(2))]);
    assert_eq!(script.commands(), [""; 0]);
    script.attach(3, Dialect::V2);
    script.answers(3, YES);
    assert!(script.commands().iter().any(|command| command.contains("respond")));
}

#[test]
fn the_agent_gets_an_error_when_every_driver_has_returned_one() {
    let mut script = with_a_request();
    script.commands();
    let error = || Answer::Error(Json::parse(r#"{"code":-32603,"message":"no"}"#).unwrap());
    let asked = script.peer_requests.clone();
    for (client, request) in asked {
        assert_eq!(script.commands(), [""; 0], "a client that can decide is left");
        script.handle([Event::Answered { request, by: ClientId(client), answer: error() }]);
    }
    let commands = script.commands();
    assert!(commands.iter().any(|command| command.starts_with("1: error ")), "{commands:?}");
}

#[test]
fn an_answer_to_a_cancelled_request_does_not_answer_the_request_that_was_sent_again() {
    let mut script = with_a_request();
    let (_, first) = *script.peer_requests.iter().find(|(client, _)| *client == 2).unwrap();
    script.call(2, ClientCall::Close { id: RequestId::from(8) });
    script.attach(2, Dialect::V2);
    let (_, second) = *script.peer_requests.last().unwrap();
    assert_eq!(first.peer_request, second.peer_request);
    script.commands();
    let yes = || Answer::Result(Json::parse(YES).unwrap());
    for (request, responses) in [(first, 0), (second, 1)] {
        script.handle([Event::Answered { request, by: ClientId(2), answer: yes() }]);
        let commands = script.commands();
        assert_eq!(commands.iter().filter(|command| command.contains("respond")).count(), responses);
    }
}

const SERVES: &str = r#"{"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true}}"#;

/// A session whose turn runs for a client.
fn with_a_turn_of(client: u64) -> Script {
    let mut script = Script::new(Dialect::V2);
    script.attach_with(1, Dialect::V1, SERVES, parlor_engine::ReplayFrom::Start);
    script.attach(2, Dialect::V2);
    script.prompt(client, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    script.sent(1);
    script.sent(2);
    script.commands();
    script
}

#[test]
fn a_service_of_a_client_is_requested_from_the_client_whose_prompt_runs_and_never_served_by_the_server() {
    let mut script = with_a_turn_of(1);
    script.asks(4, "_parlor/client/fs/read_text_file", r#"{"sessionId":"theirs","path":"/a"}"#);
    assert!(script.sent(1)[0].starts_with("request fs/read_text_file"));
    script.answers(1, r#"{"content":"x"}"#);
    let commands = script.commands();
    assert!(commands.len() == 1 && commands[0].contains(r#"{"content":"x"}"#), "{commands:?}");

    // The client does not declare that it writes files, and the other one declares nothing.
    script.asks(5, "_parlor/client/fs/write_text_file", r#"{"sessionId":"theirs","path":"/a"}"#);
    let commands = script.commands();
    assert!(commands.len() == 1 && commands[0].contains("-32601"), "{commands:?}");
    let mut script = with_a_turn_of(2);
    script.asks(4, "_parlor/client/terminal/create", r#"{"sessionId":"theirs","command":"ls"}"#);
    let commands = script.commands();
    assert!(commands.len() == 1 && commands[0].contains("-32601"), "{commands:?}");
    assert_eq!(script.sent(1), [""; 0], "the turn is not of this client");
}

#[test]
fn a_request_for_a_service_of_a_client_fails_when_the_client_disconnects() {
    let mut script = with_a_turn_of(1);
    script.asks(4, "_parlor/client/fs/read_text_file", r#"{"sessionId":"theirs","path":"/a"}"#);
    script.handle([Event::Disconnected(ClientId(1))]);
    let commands = script.commands();
    assert!(commands.iter().any(|command| command.contains(r#""reason":"client_gone""#)), "{commands:?}");
}
