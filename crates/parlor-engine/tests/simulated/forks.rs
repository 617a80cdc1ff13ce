//! Forks on their way.

use parlor_dialect::Dialect::V2;
use parlor_engine::stored::StoredSession;
use parlor_engine::{CachedAgentInfo, ClientCall, ForkKind, ForkRequest, QueueLimits};
use parlor_session::{EntryId, Role};
use parlor_wire::RequestId;

use crate::stage::{Stage, calls, object, row};

#[test]
fn no_more_forks_wait_for_the_agent_than_the_limit_also_if_they_are_asked_for_together() {
    let mut stored = StoredSession::new(row());
    stored.row.agent_session = Some("\"theirs\"".to_owned());
    let item = parlor_json::Json::parse(r#"{"type":"text","text":"hi"}"#).unwrap();
    let entry = EntryId::Message(Role::User, "m".into());
    stored.transcript.push(parlor_session::Update::Append { entry, item, extra: None }).unwrap();
    let limits = QueueLimits { waiting_forks: 2, ..QueueLimits::default() };
    let mut stage = Stage::stored(stored, limits);
    let fork = |id: u64| {
        let known_agent = CachedAgentInfo {
            dialect: V2,
            initialize: object(r#"{"capabilities":{"session":{"fork":{}}}}"#),
        };
        let request = ForkRequest {
            id: RequestId::from(id),
            params: object("{}"),
            kind: ForkKind::Fork,
            known_agent: Some(known_agent),
            handoff: None,
        };
        calls(1, V2, ClientCall::Fork(Box::new(request)))
    };
    stage.happens((1..=4).map(fork));
    assert_eq!(stage.machine.queues().waiting_forks, 2);
    assert_eq!(stage.forks, 2, "the others go without the agent");
}
