//! Agents that come and go.

use parlor_dialect::Dialect::V2;
use parlor_engine::{AgentCommand, AgentEpoch, AgentEvent, ClientCall, Event, ReplayFrom};
use parlor_wire::RequestId;

use crate::stage::{Stage, attaches, calls, object, opened, prompts};

#[test]
fn a_request_of_an_agent_that_was_released_is_put_to_nobody() {
    let mut stage = Stage::new(V2);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
    stage.happens([calls(1, V2, ClientCall::Close { id: RequestId::from(2) })]);
    assert!(stage.machine.agent().is_none());
    // It was made before the agent learned that the session is closed.
    let request = AgentEvent::Request {
        id: RequestId::from(1),
        method: "session/request_permission".to_owned(),
        params: object(r#"{"sessionId":"theirs","options":[]}"#),
    };
    stage.happens([prompts(1, V2, 3, "go on"), Event::Agent(AgentEpoch(1), request)]);
    stage.happens([Event::AgentReady(Ok(Box::new(opened(V2, 2))))]);
    assert!(stage.take_sent(1).iter().all(|line| !line.contains("session/request_permission")));
    let answers = stage.commands.iter().filter_map(|(epoch, command)| {
        let AgentCommand::Respond { reply, .. } = command else { return None };
        Some((epoch.0, reply.is_err()))
    });
    assert_eq!(answers.collect::<Vec<_>>(), [(1, true)]);
}

#[test]
fn an_agent_that_was_released_cannot_make_the_session_busy() {
    let mut stage = Stage::new(V2);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
    stage.happens([calls(1, V2, ClientCall::Close { id: RequestId::from(2) })]);
    stage.says(&[r#"{"sessionUpdate":"state_update","state":"running"}"#]);
    assert!(!stage.machine.session().is_busy());
    stage.take_sent(1);
    stage.happens([calls(1, V2, ClientCall::Close { id: RequestId::from(3) })]);
    assert_eq!(stage.responses(1), ["3"]);
}

#[test]
fn a_settled_request_of_a_released_agent_is_answered_only_in_the_same_epoch() {
    for (epoch, answers) in [(1, 1), (2, 0)] {
        let mut stage = Stage::new(V2);
        stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
        stage.happens([calls(1, V2, ClientCall::Close { id: RequestId::from(2) })]);
        let (id, params) = (RequestId::from(1), object(r#"{"sessionId":"theirs"}"#));
        let request = AgentEvent::Request { id, method: "_parlor/settled".to_owned(), params };
        stage.happens([prompts(1, V2, 3, "go on"), Event::Agent(AgentEpoch(1), request)]);
        stage.happens([Event::AgentReady(Ok(Box::new(opened(V2, epoch))))]);
        let is_answer =
            |(_, command): &&(AgentEpoch, AgentCommand)| matches!(command, AgentCommand::Respond { .. });
        assert_eq!(stage.commands.iter().filter(is_answer).count(), answers);
    }
}
