//! Sessions of subagents, from the side of their owners and from their own.

use parlor_dialect::Dialect;
use parlor_engine::{
    AgentEpoch, ClientCall, Event, Follow, ForkKind, MAX_SUBAGENTS, OwnerEvent, ReplayFrom, SessionData,
    SessionEnd, SubagentInfo,
};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Answer, ClientId, Scope};
use parlor_wire::{RequestId, RpcError, code};

use super::harness::{IDLE, RUNNING, Script, attach, chunk, lines, prompt};

/// The agent announces or describes its subagent `theirs`.
fn subagent(theirs: &str, fields: &str) -> String {
    format!(r#"{{"sessionUpdate":"subagent_update","sessionId":"{theirs}"{fields}}}"#)
}

/// The id of the first subagent's session, as it is shown.
fn id_of(script: &Script, index: usize) -> String {
    let id = JsonStr::from_literal(&script.other_rows[index].id).unwrap();
    id.to_text().into_owned()
}

#[test]
fn an_announced_subagent_gets_a_session_that_is_stored_with_its_entry() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[&subagent("child", r#","title":"Look","cwd":"/work/sub""#)]);
    let [row] = &script.other_rows[..] else { panic!("one row: {:?}", script.other_rows) };
    assert_eq!(row.owner.as_deref(), Some(r#""s""#));
    assert_eq!((row.agent.as_str(), row.cwd.as_str()), ("agent", "/work/sub"));
    assert_eq!(row.agent_session.as_deref(), Some(r#""child""#));
    assert_eq!(row.title.as_deref(), Some(r#""Look""#));
    assert_eq!(SessionData::of(row).agent_dialect, Some(Dialect::V2));
    let id = id_of(&script, 0);
    let sent = script.sent(1);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].contains("\"title\":\"Look\"") && !sent[0].contains("child"), "{sent:?}");
    let short = id.trim_start_matches(['0', '-']);
    assert_eq!(
        script.subagents(),
        [
            format!("{short}: bind child of 1"),
            format!("{short}: Some(\"Look\") Some(\"/work/sub\") can_cancel=false None"),
            format!("{short}: client 1 follows from_start=true"),
        ]
    );
    // It is announced once; what changes is passed on. Version 2 reports the state in the session itself.
    script.says(&[&subagent("child", r#","capabilities":{"cancel":{}},"state":{"state":"running"}"#)]);
    assert_eq!(
        script.subagents(),
        [format!("{short}: Some(\"Look\") Some(\"/work/sub\") can_cancel=true None")]
    );
    script.says(&[&subagent("child", r#","capabilities":{}"#)]);
    assert_eq!(
        script.subagents(),
        [format!("{short}: Some(\"Look\") Some(\"/work/sub\") can_cancel=false None")]
    );
    assert_eq!(script.other_rows.len(), 1);
    assert_eq!(script.stored_heads().len(), 1);
    assert!(script.stored_heads()[0].contains(&id), "{:?}", script.stored_heads());
}

#[test]
fn messages_between_sessions_name_the_sessions_of_subagents() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[
        &subagent("child", ""),
        r#"{"sessionUpdate":"session_message","messageId":"m","senderSessionId":"theirs","recipientSessionId":"child"}"#,
    ]);
    let id = id_of(&script, 0);
    let sent = lines(&script.sent(1));
    assert!(sent.contains(&format!(r#""recipientSessionId":"{id}""#)), "{sent}");
}

#[test]
fn an_announcement_that_is_not_stored_starts_no_session() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.fails_next = true;
    script.says(&[&subagent("child", "")]);
    assert!(script.has_failed());
    assert_eq!(script.subagents(), [""; 0]);
}

#[test]
fn the_agents_own_session_is_no_subagent() {
    let mut script = Script::new(Dialect::V2);
    script.says(&[&subagent("theirs", r#","title":"Me""#)]);
    assert!(script.other_rows.is_empty() && script.subagents().is_empty());
}

#[test]
fn clients_follow_subagents_by_what_they_declared() {
    let mut script = Script::new(Dialect::V2);
    script.says(&[&subagent("child", "")]);
    script.subagents();
    let id = id_of(&script, 0);
    let short = id.trim_start_matches(['0', '-']).to_owned();
    let follows = |script: &mut Script, client, dialect, initialize: &str, from| {
        script.attach_with(client, dialect, initialize, from);
        lines(&script.subagents())
    };
    // A client that is sent the announcement is sent all of the session; others are sent what follows.
    let all = follows(&mut script, 1, Dialect::V2, "{}", ReplayFrom::Start);
    assert_eq!(all, format!("{short}: client 1 follows from_start=true\n"));
    let rest = follows(&mut script, 2, Dialect::V2, "{}", ReplayFrom::Now);
    assert_eq!(rest, format!("{short}: client 2 follows from_start=false\n"));
    let v1 = r#"{"clientCapabilities":{"subagents":{}}}"#;
    let declared = follows(&mut script, 3, Dialect::V1, v1, ReplayFrom::Start);
    assert_eq!(declared, format!("{short}: client 3 follows from_start=true\n"));
    // Others are asked in the session that they know.
    let undeclared = follows(&mut script, 4, Dialect::V1, "{}", ReplayFrom::Start);
    assert_eq!(undeclared, format!("{short}: client 4 is asked in s\n"));
    let own = r#"{"_meta":{"parlor/subagents":false}}"#;
    let opted_out = follows(&mut script, 5, Dialect::V2, own, ReplayFrom::Start);
    assert_eq!(opted_out, format!("{short}: client 5 is asked in s\n"));
    // A client that leaves the owner leaves its subagents.
    script.call(1, ClientCall::Detach { id: RequestId::from(9) });
    assert_eq!(script.subagents(), [format!("{short}: client 1 leaves")]);
    script.call(3, attach(10, ReplayFrom::Start));
    assert_eq!(script.subagents(), [""; 0], "it follows already");
}

#[test]
fn a_client_that_is_behind_follows_when_it_has_the_announcement() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.set_full(1, true);
    script.says(&[&subagent("child", "")]);
    assert!(!lines(&script.subagents()).contains("follows"));
    script.set_full(1, false);
    assert!(lines(&script.sent(1)).contains("subagent_update"));
    assert!(lines(&script.subagents()).contains("client 1 follows from_start=true"));
}

#[test]
fn subagents_beyond_the_limit_are_refused() {
    let mut script = Script::new(Dialect::V2);
    for n in 0..=MAX_SUBAGENTS {
        script.says(&[&subagent(&format!("child {n}"), "")]);
    }
    assert_eq!(script.other_rows.len(), MAX_SUBAGENTS);
    assert_eq!(script.machine.transcript().entries().len(), MAX_SUBAGENTS);
}

#[test]
fn subagents_are_bound_for_as_long_as_their_owner() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[&subagent("child", ""), &subagent("other", "")]);
    script.subagents();
    let short = |script: &Script, index| id_of(script, index).trim_start_matches(['0', '-']).to_owned();
    let (child, other) = (short(&script, 0), short(&script, 1));
    script.agent_ends();
    assert_eq!(
        script.subagents(),
        [format!("{child}: unbind: agent 'agent' ended"), format!("{other}: unbind: agent 'agent' ended")]
    );
    // The same sessions, also after a restart of the server.
    script.reopen();
    script.restores(false);
    let bound = lines(&script.subagents());
    assert!(bound.contains(&format!("{child}: bind child of 2 again")), "{bound}");
    assert!(bound.contains(&format!("{other}: bind other of 2 again")), "{bound}");
    // An agent without the history has them when it announces them.
    script.agent_ends();
    script.subagents();
    script.restores(true);
    assert_eq!(script.subagents(), [""; 0]);
    script.says(&[&subagent("other", "")]);
    let bound = lines(&script.subagents());
    assert!(bound.contains(&format!("{other}: bind other of 3 again")), "{bound}");
    assert!(!bound.contains(&format!("{child}: bind")), "{bound}");
    assert_eq!(script.other_rows.len(), 2);
}

#[test]
fn subagents_are_unbound_although_the_end_of_their_owners_turn_is_not_stored() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[RUNNING, &subagent("child", "")]);
    script.subagents();
    script.fails_next = true;
    script.agent_ends();
    assert!(script.has_failed());
    let done = lines(&script.subagents());
    assert!(done.contains("unbind: agent 'agent' ended"), "{done}");
}

#[test]
fn a_replayed_announcement_of_an_adopted_session_is_bound_with_it() {
    let mut script = Script::new(Dialect::V2);
    script.epoch = parlor_engine::AgentEpoch(2);
    let agent = Box::new(script.opened_agent(false));
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"theirs\",\"update\":{}}}}}\n",
        subagent("child", "")
    );
    script.handle([Event::Started { agent, replay: Some(vec![line]) }]);
    assert!(lines(&script.subagents()).contains("bind child of 2\n"));
}

#[test]
fn a_closed_owner_releases_its_subagents() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[&subagent("child", "")]);
    script.subagents();
    script.call(1, ClientCall::Close { id: RequestId::from(1) });
    let done = lines(&script.subagents());
    assert!(done.contains("unbind: the session that owns the subagent was closed"), "{done}");
}

#[test]
fn a_subagent_takes_no_prompts_and_is_not_changed_by_clients() {
    let mut script = Script::of_subagent(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[&chunk("m", "hello")]);
    script.sent(1);
    let id = || RequestId::from(7);
    let forward = |method: &str| ClientCall::Forward {
        id: Some(id()),
        method: method.to_owned(),
        params: Object::default(),
    };
    for (call, expected) in [
        (prompt(7, "hi"), "takes no prompts"),
        (ClientCall::Steer { id: id(), params: Object::default() }, "takes no prompts"),
        (ClientCall::SetTitle { id: id(), title: None }, "gets its title from its agent"),
        (ClientCall::Archive { id: id(), archived: true }, "is archived and deleted with its owner"),
        (ClientCall::Delete { id: id() }, "is archived and deleted with its owner"),
        (forward("session/set_mode"), "cannot be changed"),
        (forward("tool_call/cancel"), "cannot be changed"),
    ] {
        script.call(1, call);
        let sent = script.sent(1);
        assert_eq!(sent, [format!("7 failed: the session of a subagent {expected}: use its owner owner")]);
    }
    script.fork(1, 7, ForkKind::Fork, "{}");
    assert!(lines(&script.sent(1)).contains("cannot be forked"));
    assert_eq!(script.commands(), [""; 0]);
    assert!(script.machine.end().is_none());
    // Closing it detaches the client, and the agent keeps it.
    script.call(1, ClientCall::Close { id: id() });
    assert_eq!(script.sent(1), ["7 -> {}"]);
    assert_eq!(script.commands(), [""; 0]);
    assert!(script.machine.agent().is_some());
}

fn described(title: Option<&str>, can_cancel: bool, state: Option<&str>) -> Event {
    let info = SubagentInfo {
        title: title.map(JsonStr::new),
        cwd: None,
        can_cancel,
        state: state.map(|state| Json::parse(state).unwrap()),
    };
    Event::Owner(OwnerEvent::Described(Box::new(info)))
}

#[test]
fn a_subagent_is_cancelled_only_if_the_agent_permits_it() {
    let cancel = || Event::CancelTurn { by: ClientId(1), scope: Scope::Session };
    for dialect in [Dialect::V1, Dialect::V2] {
        let mut script = Script::of_subagent(dialect);
        script.attach(1, Dialect::V2);
        if dialect == Dialect::V1 {
            script.handle([described(None, false, Some(r#"{"state":"running"}"#))]);
        } else {
            script.says(&[RUNNING]);
        }
        script.sent(1);
        script.handle([cancel()]);
        script.call(1, ClientCall::Cancel { id: RequestId::from(4), scope: Scope::Session });
        let refused = "the agent does not permit to cancel this subagent: cancel its owner";
        let notice = format!(r#"notice {{"severity":"warning","title":"{refused}"}}"#);
        let mut sent = script.sent(1);
        sent.sort();
        assert_eq!(sent, [format!("4 failed: {refused}"), notice]);
        assert_eq!(script.commands(), [""; 0], "{dialect}");
        script.handle([described(None, true, None), cancel()]);
        assert_eq!(script.commands(), ["1: session/cancel"], "{dialect}");
        assert!(script.timers.is_empty(), "the process of the owner is not given up");
    }
}

#[test]
fn the_owner_describes_a_subagent() {
    let mut script = Script::of_subagent(Dialect::V1);
    script.attach(1, Dialect::V2);
    script.handle([described(Some("Look"), false, Some(r#"{"state":"running"}"#))]);
    assert_eq!(script.machine.row().title.as_deref(), Some(r#""Look""#));
    assert!(script.machine.row().busy);
    script.says(&[&chunk("m", "found it")]);
    script.handle([described(Some("Look"), false, Some(r#"{"state":"idle","stopReason":"end_turn"}"#))]);
    assert!(!script.machine.row().busy);
    let sent = script.sent(1);
    let kinds: Vec<_> = sent.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(
        kinds,
        ["session_info_update", "state_update", "agent_message_chunk", "state_update"],
        "{sent:?}"
    );
}

#[test]
fn a_subagent_whose_agent_is_lost_fails_and_is_never_restored_by_itself() {
    let mut script = Script::of_subagent(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[RUNNING, &chunk("m", "half")]);
    script.sent(1);
    let error = RpcError::new(code::INTERNAL_ERROR, "agent 'agent' ended");
    script.handle([Event::Owner(OwnerEvent::Unbound(error))]);
    let sent = lines(&script.sent(1));
    assert!(sent.contains(r#""state":"idle""#) && sent.contains(r#""stopReason":"error""#), "{sent}");
    assert!(script.machine.agent().is_none());
    script.call(1, prompt(8, "more"));
    script.call(1, attach(9, ReplayFrom::Start));
    assert!(!script.commands().iter().any(|command| command.contains("Start")));
    // The owner binds it again.
    script.restores(false);
    script.says(&[RUNNING, &chunk("m2", "more"), IDLE]);
    assert_eq!(script.stored_texts().len(), 3, "{:?}", script.stored_texts());
}

#[test]
fn a_client_of_the_owner_is_sent_a_subagent_from_its_start() {
    let mut script = Script::of_subagent(Dialect::V2);
    script.says(&[RUNNING, &chunk("m", "one")]);
    script.connect(1, Dialect::V2, "{}");
    script.call(1, ClientCall::FollowOwner(Follow::Updates { from_start: true }));
    script.says(&[&chunk("m", " two")]);
    let sent = lines(&script.sent(1));
    assert!(sent.contains("one") && sent.contains(" two") && sent.contains("running"), "{sent}");
    // It leaves with the owner, unless it has attached by itself.
    script.call(1, ClientCall::LeaveOwner);
    script.says(&[&chunk("m", " three")]);
    assert_eq!(script.sent(1), [""; 0]);
    script.call(1, ClientCall::FollowOwner(Follow::Updates { from_start: false }));
    script.call(1, attach(3, ReplayFrom::Start));
    script.call(1, ClientCall::LeaveOwner);
    script.sent(1);
    script.says(&[&chunk("m", " four")]);
    assert!(lines(&script.sent(1)).contains(" four"));
}

#[test]
fn a_client_that_does_not_know_subagents_is_asked_in_the_session_that_it_knows() {
    let mut script = Script::of_subagent(Dialect::V1);
    script.connect(1, Dialect::V1, "{}");
    script.call(1, ClientCall::FollowOwner(Follow::Requests { shown_in: "owner".into() }));
    script.says(&[&chunk("m", "not for it")]);
    assert_eq!(script.sent(1), [""; 0]);
    let params = r#"{"sessionId":"theirs","toolCall":{"toolCallId":"t","title":"rm"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}"#;
    script.asks(5, "session/request_permission", params);
    let sent = lines(&script.sent(1));
    assert!(sent.starts_with("request session/request_permission"), "{sent}");
    assert!(sent.contains(r#""sessionId":"owner""#), "{sent}");
    assert_eq!(script.open_requests.len(), 1);
    script.answers(1, r#"{"outcome":{"outcome":"selected","optionId":"y"}}"#);
    assert_eq!(script.commands(), [r#"1: respond {"outcome":{"outcome":"selected","optionId":"y"}}"#]);
    assert_eq!(script.sent(1), [""; 0]);
    // It is sent everything once it attaches by itself, and stays attached without the owner.
    script.call(1, attach(6, ReplayFrom::Now));
    script.call(1, ClientCall::LeaveOwner);
    script.sent(1);
    script.says(&[&chunk("m", "for it")]);
    assert!(lines(&script.sent(1)).contains("for it"));
}

#[test]
fn a_subagent_owns_its_own_subagents() {
    let mut script = Script::of_subagent(Dialect::V2);
    script.connect(1, Dialect::V1, "{}");
    script.call(1, ClientCall::FollowOwner(Follow::Requests { shown_in: "owner".into() }));
    script.says(&[&subagent("grandchild", "")]);
    assert_eq!(script.other_rows[0].owner.as_deref(), Some(r#""s""#));
    let done = lines(&script.subagents());
    assert!(done.contains("bind grandchild of 1") && done.contains("client 1 is asked in owner"), "{done}");
}

#[test]
fn a_subagent_is_deleted_with_its_owner() {
    let mut script = Script::of_subagent(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[RUNNING]);
    script.sent(1);
    script.handle([Event::Owner(OwnerEvent::Deleted)]);
    assert!(matches!(script.machine.end(), Some(SessionEnd::Deleted)));
    assert!(lines(&script.sent(1)).contains(r#""stopReason":"cancelled""#));
    assert_eq!(script.commands(), [""; 0]);
    // If its owner cannot be deleted, it is still there, without a running turn.
    assert_eq!(script.deleted, [r#"deleted "theirs""#]);
    assert!(!script.stored_row().busy);
}

#[test]
fn an_answer_goes_to_the_agent_process_that_asked_although_the_next_one_is_bound_in_the_same_batch() {
    let mut script = Script::of_subagent(Dialect::V2);
    script.attach(1, Dialect::V2);
    let info = SubagentInfo { can_cancel: true, ..SubagentInfo::default() };
    script.handle([Event::Owner(OwnerEvent::Described(Box::new(info)))]);
    script.says(&[RUNNING]);
    script.asks(5, "session/request_permission", r#"{"sessionId":"theirs","options":[]}"#);
    script.commands();
    let (_, request) = script.peer_requests[0];
    script.epoch = AgentEpoch(2);
    let answer = Answer::Result(Json::parse(r#"{"outcome":{"outcome":"cancelled"}}"#).unwrap());
    let error = RpcError::new(code::INTERNAL_ERROR, "agent 'agent' ended");
    script.handle([
        Event::Answered { request, by: ClientId(1), answer },
        Event::CancelTurn { by: ClientId(1), scope: Scope::Session },
        Event::Owner(OwnerEvent::Unbound(error)),
        Event::AgentReady(Ok(Box::new(script.opened_agent(false)))),
    ]);
    let respond = r#"1: respond {"outcome":{"outcome":"cancelled"}}"#;
    assert_eq!(script.commands(), [respond, "1: session/cancel", "1: DropSession"]);
}

#[test]
fn the_agent_sessions_of_subagents_are_marked_as_deleted_with_their_owner() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.says(&[&subagent("child", "")]);
    script.call(1, ClientCall::Delete { id: RequestId::from(9) });
    let subagent = &script.other_rows[0].id;
    assert_eq!(script.deleted, [subagent, r#""s""#, r#"deleted "theirs""#, r#"deleted "child""#]);
}
