//! Batches that cannot be stored.

use parlor_dialect::Dialect::V2;
use parlor_engine::stored::StoredSession;
use parlor_engine::{ClientCall, QueueLimits, ReplayFrom};
use parlor_wire::RequestId;

use crate::stage::{Stage, attaches, calls, object, row, said};

#[test]
fn a_call_for_the_agent_in_a_batch_that_cannot_be_stored_is_answered_with_an_error() {
    let mut stage = Stage::new(V2);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
    stage.take_sent(1);
    let chunk =
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"hi"}}"#;
    let (id, method) = (Some(RequestId::from(2)), "_vendor/ask".to_owned());
    let forward = calls(1, V2, ClientCall::Forward { id, method, params: object("{}") });
    stage.fails([said(1, &[chunk]), forward]);
    assert_eq!(stage.responses(1), ["2"]);
}

#[test]
fn a_client_for_which_too_much_waits_is_disconnected_also_if_the_batch_cannot_be_stored() {
    let limits = QueueLimits { unsent_bytes: 10, ..QueueLimits::default() };
    let mut stage = Stage::stored(StoredSession::new(row()), limits);
    stage.happens([attaches(1, V2, 1, ReplayFrom::Start)]);
    stage.take_sent(1);
    stage.fills(1, true);
    let title = Some("title".into());
    stage.fails([calls(1, V2, ClientCall::SetTitle { id: RequestId::from(2), title })]);
    assert!(stage.take_sent(1).contains(&"disconnect".to_owned()));
}
