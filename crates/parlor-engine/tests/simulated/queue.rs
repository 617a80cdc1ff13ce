//! Prompts that wait, as drivers see them.

use parlor_dialect::Dialect::{V1, V2};
use parlor_engine::stored::StoredSession;
use parlor_engine::{ClientCall, Event, QueueLimits, ReplayFrom};
use parlor_session::session::{ClientId, PromptId, Scope};
use parlor_wire::RequestId;

use crate::stage::{Stage, attaches, calls, prompts, row};

#[test]
fn a_driver_that_attaches_while_prompts_come_and_go_is_told_the_queue_as_it_is_then() {
    let mut stage = Stage::new(V1);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V2, 2, "one")]);
    let withdraw = ClientCall::WithdrawPrompt { id: RequestId::from(4), prompt: PromptId(2) };
    stage.happens([prompts(1, V2, 3, "two"), calls(2, V2, ClientCall::Follow), calls(1, V2, withdraw)]);
    stage.happens([Event::Drained(ClientId(2))]);
    let queues: Vec<_> =
        stage.take_sent(2).into_iter().filter(|line| line.contains("parlor/queue")).collect();
    assert!(queues.last().is_none_or(|queue| queue.contains(r#""parlor/queue":[]"#)), "{queues:?}");
}

#[test]
fn a_prompt_gets_no_id_that_another_one_had_before_the_session_was_opened_again() {
    let mut stage = Stage::new(V1);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V2, 2, "one"), prompts(1, V2, 3, "two")]);
    stage.happens([Event::CancelTurn { by: ClientId(1), scope: Scope::Session }]);
    let mut stored = StoredSession::new(row());
    stored.side_state = Some(stage.machine.session().side_state());
    let mut again = Stage::stored(stored, QueueLimits::default());
    again.happens([prompts(1, V2, 1, "three")]);
    assert_eq!(again.machine.session().queued_prompts()[0].id, PromptId(3));
}
