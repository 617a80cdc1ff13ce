//! Clients that close the session.

use parlor_dialect::Dialect::{V1, V2};
use parlor_engine::stored::StoredSession;
use parlor_engine::{AgentCall, AgentEpoch, AgentEvent, ClientCall, Event, QueueLimits, ReplayFrom};
use parlor_json::Json;
use parlor_session::session::{ClientId, PromptId};
use parlor_wire::{RequestId, RpcError, code};

use crate::stage::{Stage, attaches, calls, object, prompts, row};

#[test]
fn a_prompt_that_the_agent_accepts_after_the_last_client_closed_is_answered_before_the_close() {
    let mut stage = Stage::new(V2);
    stage.happens([attaches(1, V1, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V1, 2, "hi")]);
    assert_eq!(stage.prompts(), [1]);
    stage.take_sent(1);
    stage.happens([calls(1, V1, ClientCall::Close { id: RequestId::from(3) })]);
    let accepted = AgentEvent::Response(
        AgentCall::Prompt(PromptId(1)),
        Ok(Json::parse(r#"{"messageId":"u"}"#).unwrap()),
    );
    stage.happens([Event::Agent(AgentEpoch(1), accepted)]);
    assert_eq!(stage.responses(1), ["2", "3"]);
}

#[test]
fn calls_after_a_close_by_a_client_that_is_not_attached_are_answered() {
    let mut stage = Stage::new(V1);
    stage.happens([attaches(1, V1, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V1, 2, "hi")]);
    // The turn goes on without a client.
    stage.happens([Event::Disconnected(ClientId(1))]);
    let close = calls(2, V1, ClientCall::Close { id: RequestId::from(1) });
    let status = calls(2, V1, ClientCall::Status { id: RequestId::from(2) });
    stage.happens([close, status]);
    assert!(stage.responses(2).is_empty());
    let ended = Ok(Json::parse(r#"{"stopReason":"cancelled"}"#).unwrap());
    let ended = AgentEvent::Response(AgentCall::Prompt(PromptId(1)), ended);
    stage.happens([Event::Agent(AgentEpoch(1), ended)]);
    assert_eq!(stage.responses(2), ["1", "2"]);
}

#[test]
fn a_call_that_waits_for_the_agent_is_answered_also_if_its_client_closed_the_session() {
    let mut stage = Stage::stored(StoredSession::new(row()), QueueLimits::default());
    stage.happens([attaches(1, V2, 1, ReplayFrom::Start)]);
    let (id, method) = (Some(RequestId::from(2)), "_vendor/ask".to_owned());
    stage.happens([calls(1, V2, ClientCall::Forward { id, method, params: object("{}") })]);
    stage.happens([calls(1, V2, ClientCall::Close { id: RequestId::from(3) })]);
    let error = RpcError::new(code::INTERNAL_ERROR, "the agent cannot be started");
    stage.happens([Event::AgentReady(Err(error))]);
    assert_eq!(stage.responses(1), ["1", "3", "2"]);
}

#[test]
fn a_client_that_catches_up_and_closed_a_session_that_is_deleted_gets_its_response() {
    let mut stage = Stage::new(V2);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New), attaches(2, V2, 1, ReplayFrom::Now)]);
    stage.take_sent(1);
    stage.fills(1, true);
    let close = calls(1, V2, ClientCall::Close { id: RequestId::from(2) });
    let delete = calls(2, V2, ClientCall::Delete { id: RequestId::from(2) });
    stage.happens([close, delete]);
    stage.ends();
    assert_eq!(stage.responses(1), ["2"]);
}

#[test]
fn a_client_that_closes_the_session_before_it_caught_up_does_not_stay_in_it() {
    let mut stage = Stage::new(V1);
    stage.happens([attaches(1, V1, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V1, 2, "hi")]);
    stage.happens([Event::Disconnected(ClientId(1))]);
    // It closes the session while it is attached and the turn of another client runs.
    let close = calls(2, V2, ClientCall::Close { id: RequestId::from(2) });
    stage.happens([attaches(2, V2, 1, ReplayFrom::Start), close]);
    assert_eq!(stage.responses(2), ["1"]);
    let ended = Ok(Json::parse(r#"{"stopReason":"cancelled"}"#).unwrap());
    let ended = AgentEvent::Response(AgentCall::Prompt(PromptId(1)), ended);
    stage.happens([Event::Agent(AgentEpoch(1), ended)]);
    assert_eq!(stage.responses(2), ["2"]);
    assert!(stage.machine.session().has_no_clients());
}
