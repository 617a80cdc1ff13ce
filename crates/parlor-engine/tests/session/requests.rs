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
    assert!(script.sent(1).iter().any(|line| line.starts_with("cancel ")), "the other client is told");
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
