//! Clients that attach, fall behind and catch up.

use parlor_dialect::Dialect::{V1, V2};
use parlor_engine::stored::StoredSession;
use parlor_engine::{ClientCall, Event, QueueLimits, ReplayFrom};
use parlor_session::session::{ClientId, Scope};
use parlor_wire::RequestId;

use crate::stage::{Stage, attaches, calls, prompts, row, said};

#[test]
fn a_client_that_attaches_again_before_its_first_response_gets_both_responses() {
    for dialect in [V1, V2] {
        for again in [ReplayFrom::Now, ReplayFrom::Start] {
            let mut stage = Stage::new(V2);
            let first = attaches(1, dialect, 1, ReplayFrom::New);
            let second = attaches(1, dialect, 2, again);
            stage.happens([first, second]);
            assert_eq!(stage.responses(1), ["1", "2"]);
        }
    }
}

#[test]
fn a_live_client_that_attaches_again_is_sent_what_happened_right_before() {
    for dialect in [V1, V2] {
        let mut stage = Stage::new(V2);
        stage.happens([attaches(1, dialect, 1, ReplayFrom::New)]);
        stage.take_sent(1);
        let whole =
            r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"hi"}]}"#;
        stage.happens([said(1, &[whole]), attaches(1, dialect, 2, ReplayFrom::Now)]);
        let sent = stage.take_sent(1);
        assert!(sent[0].contains(r#""text":"hi""#), "{sent:?}");
        assert!(sent[1].contains(r#""id":2"#), "{sent:?}");
    }
}

#[test]
fn the_last_number_that_a_client_is_sent_when_it_caught_up_is_that_of_the_last_change() {
    let mut stage = Stage::new(V1);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V2, 2, "one")]);
    stage.fills(1, true);
    // The second prompt waits, which is sent to this client alone, after some changes and before others.
    let chunk =
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"hi"}}"#;
    stage.says(&[chunk]);
    stage.happens([prompts(1, V2, 3, "two")]);
    stage.says(&[chunk]);
    stage.take_sent(1);
    stage.fills(1, false);
    let numbers: Vec<_> = stage.take_sent(1).iter().filter_map(|line| seq_of(line)).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert_eq!(numbers.last(), Some(&stage.machine.transcript().seq()));
}

/// The number of the change in an update.
fn seq_of(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(r#""parlor/seq":"#)?;
    rest.trim_end_matches(['}', '\n']).parse().ok()
}

#[test]
fn a_driver_that_resumes_is_told_that_no_prompt_waits_any_more() {
    let mut stage = Stage::new(V1);
    stage.happens([attaches(1, V2, 1, ReplayFrom::New)]);
    stage.happens([prompts(1, V2, 2, "one"), prompts(1, V2, 3, "two")]);
    let seq = stage.machine.transcript().seq();
    let queues = |stage: &mut Stage, client| -> Vec<String> {
        stage.take_sent(client).into_iter().filter(|line| line.contains("parlor/queue")).collect()
    };
    assert!(queues(&mut stage, 1)[0].contains("two"));
    stage.happens([Event::Disconnected(ClientId(1))]);
    stage.happens([Event::CancelTurn { by: ClientId(9), scope: Scope::Session }]);
    stage.happens([attaches(2, V2, 1, ReplayFrom::After(seq))]);
    let received = queues(&mut stage, 2);
    assert!(received.len() == 1 && received[0].contains(r#""parlor/queue":[]"#), "{received:?}");
}

#[test]
fn a_client_for_which_too_much_waits_is_disconnected_also_if_it_attaches_again() {
    for from in [ReplayFrom::Now, ReplayFrom::Start] {
        let limits = QueueLimits { unsent_bytes: 10, ..QueueLimits::default() };
        let mut stage = Stage::stored(StoredSession::new(row()), limits);
        stage.happens([attaches(1, V2, 1, ReplayFrom::Start)]);
        stage.take_sent(1);
        stage.fills(1, true);
        let title = ClientCall::SetTitle { id: RequestId::from(2), title: Some("title".into()) };
        stage.happens([calls(1, V2, title), attaches(1, V2, 3, from)]);
        assert_eq!(stage.take_sent(1), ["disconnect"]);
    }
}
