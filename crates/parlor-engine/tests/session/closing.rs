//! Clients that close the session.

use parlor_dialect::Dialect::{V1, V2};
use parlor_engine::{AgentCall, AgentEpoch, AgentEvent, ClientCall, Event, ReplayFrom, json};
use parlor_session::session::PromptId;
use parlor_wire::RequestId;

use crate::stage::{Stage, attaches, calls, prompts};

#[test]
fn a_prompt_that_the_agent_accepts_after_the_last_client_closed_is_answered_before_the_close() {
    let mut stage = Stage::new(V2);
    stage.happens([attaches(1, V1, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V1, 2, "hi")]);
    assert_eq!(stage.prompts(), [1]);
    stage.take_sent(1);
    stage.happens([calls(1, V1, ClientCall::Close { id: RequestId::from(3) })]);
    let accepted =
        AgentEvent::Response(AgentCall::Prompt(PromptId(1)), Ok(json::json(r#"{"messageId":"u"}"#)));
    stage.happens([Event::Agent(AgentEpoch(1), accepted)]);
    assert_eq!(stage.responses(1), ["2", "3"]);
}
