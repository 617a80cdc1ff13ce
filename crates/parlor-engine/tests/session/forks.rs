//! Forks: the conversation of one moment in a new session.

use parlor_dialect::Dialect;
use parlor_engine::{ForkContext, ForkKind, SessionData};

use crate::harness::{IDLE, RUNNING, Script, chunk};

fn with_a_turn() -> Script {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "answer"), IDLE]);
    script.sent(1);
    script
}

#[test]
fn a_fork_at_the_end_is_made_by_an_agent_that_can_fork() {
    let mut script = with_a_turn();
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s"}"#);
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkContext::Native { .. }), "{:?}", start.agent);
    assert_eq!(start.row.parent.as_deref(), Some(r#""s""#));
    assert_eq!(script.sent(1), [""; 0], "it is answered when it is there");
}

#[test]
fn a_fork_at_a_message_gives_the_agent_the_transcript() {
    let mut script = with_a_turn();
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s","messageId":"u"}"#);
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkContext::Transcript(None)), "{:?}", start.agent);
}

#[test]
fn an_edit_and_a_regeneration_prompt_the_fork() {
    let mut script = with_a_turn();
    let edited = r#"{"sessionId":"s","messageId":"u","prompt":[{"type":"text","text":"Else"}]}"#;
    script.fork(1, 2, ForkKind::Edit, edited);
    let start = script.forks.pop().expect("it is opened");
    assert!(start.prompt.expect("it is prompted").as_str().contains("Else"));
    script.fork(1, 3, ForkKind::Regenerate, r#"{"sessionId":"s","messageId":"a"}"#);
    let start = script.forks.pop().expect("it is opened");
    assert!(start.prompt.expect("it is prompted").as_str().contains("One"));
}

#[test]
fn an_unknown_message_and_one_that_is_being_written_are_rejected() {
    let mut script = with_a_turn();
    script.says(&[RUNNING, &chunk("b", "half")]);
    script.sent(1);
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s","messageId":"nowhere"}"#);
    script.fork(1, 3, ForkKind::Fork, r#"{"sessionId":"s","messageId":"b"}"#);
    assert!(script.forks.is_empty());
    let sent = script.sent(1);
    assert!(sent[0].starts_with("2 failed") && sent[1].starts_with("3 failed"), "{sent:?}");
}

#[test]
fn a_fork_that_cannot_be_stored_does_not_exist() {
    let mut script = with_a_turn();
    script.fails_next = true;
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s"}"#);
    assert!(script.forks.is_empty());
    let sent = script.sent(1);
    assert!(sent.iter().any(|line| line.starts_with("2 failed: the session cannot be stored")), "{sent:?}");
}

#[test]
fn a_native_fork_waits_for_the_agent_to_be_restored() {
    let mut script = with_a_turn();
    script.agent_ends();
    script.commands();
    let initialize = r#"{"capabilities":{"session":{"fork":{}}}}"#;
    script.fork_of_known_agent(1, 2, initialize);
    assert!(script.forks.is_empty());
    assert!(script.commands().iter().any(|command| command.contains("Start")));
    script.restores(false);
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkContext::Native { .. }), "{:?}", start.agent);
}

/// An update that sets a mode.
const MODE: &str = r#"{"sessionUpdate":"config_option_update","configOptions":[{"configId":"m","name":"M","type":"select","category":"mode","currentValue":"a","options":[{"value":"a","name":"A"}]}]}"#;

#[test]
fn a_handoff_gives_another_agent_the_transcript_and_neither_session_nor_settings_of_the_old_one() {
    let mut script = with_a_turn();
    script.says(&[MODE]);
    script.fork(1, 2, ForkKind::Fork, r#"{"sessionId":"s"}"#);
    let own = script.forks.pop().expect("it is opened");
    assert!(own.answer.to_json().as_str().contains(r#""configId":"m""#), "{:?}", own.answer);
    let mode = |data: &str| data.contains(r#""mode":"a""#);
    assert!(mode(&own.row.data), "{}", own.row.data);

    script.hand_over(1, 3, r#"{"sessionId":"s"}"#, "other");
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkContext::Transcript(None)), "{:?}", start.agent);
    assert_eq!((start.row.agent.as_str(), &start.row.agent_session), ("other", &None));
    assert_eq!((start.row.parent.as_deref(), start.row.cwd.as_str()), (Some(r#""s""#), "/work"));
    assert_eq!(SessionData::of(&start.row).agent_dialect, Some(Dialect::V1));
    assert!(!mode(&start.row.data), "{}", start.row.data);
    let answer = start.answer.to_json();
    assert!(!answer.as_str().contains(r#""configId""#), "{}", answer.as_str());
    assert!(answer.as_str().contains(r#""parlor/fork":"transcript""#), "{}", answer.as_str());
}

#[test]
fn a_handoff_at_a_message_records_the_message() {
    let mut script = with_a_turn();
    script.hand_over(1, 2, r#"{"sessionId":"s","messageId":"u"}"#, "other");
    let start = script.forks.pop().expect("it is opened");
    let forked_at = SessionData::of(&start.row).forked_at.expect("the message is recorded");
    assert_eq!(forked_at.to_text(), "u");
    assert_eq!(start.row.agent, "other");
}

#[test]
fn a_handoff_to_the_sessions_own_agent_is_an_ordinary_fork() {
    let mut script = with_a_turn();
    script.hand_over(1, 2, r#"{"sessionId":"s"}"#, "agent");
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkContext::Native { .. }), "{:?}", start.agent);
}

/// The responses to `initialize` of agents that fork at the message in `_meta.jetbrains.air.fork`.
fn claude(dialect: Dialect) -> String {
    recognised(dialect, "@agentclientprotocol/claude-agent-acp", "0.99.1")
}

fn codex(dialect: Dialect) -> String {
    recognised(dialect, "@agentclientprotocol/codex-acp", "2.6.0")
}

fn recognised(dialect: Dialect, name: &str, version: &str) -> String {
    let info = format!(r#"{{"name":"{name}","version":"{version}"}}"#);
    match dialect {
        Dialect::V1 => {
            format!(r#"{{"agentInfo":{info},"agentCapabilities":{{"sessionCapabilities":{{"fork":{{}}}}}}}}"#)
        }
        Dialect::V2 | Dialect::Draft => {
            format!(r#"{{"info":{info},"capabilities":{{"session":{{"fork":{{}}}}}}}}"#)
        }
    }
}

const TOOL: &str = r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"T","status":"completed"}"#;

fn thought(id: &str) -> String {
    format!(
        r#"{{"sessionUpdate":"agent_thought_chunk","messageId":"{id}","content":{{"type":"text","text":"Hm"}}}}"#
    )
}

/// A session with an agent of version 1 that has two turns; the first has these updates.
fn two_turns(initialize: &str, first: &[&str]) -> Script {
    let mut script = Script::with_agent(Dialect::V1, initialize);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.says(first);
    script.responds(0, r#"{"stopReason":"end_turn"}"#);
    script.prompt(1, 2, "Two");
    script.says(&[&chunk("last", "answer")]);
    script.responds(1, r#"{"stopReason":"end_turn"}"#);
    script.sent(1);
    script
}

/// The params with which the agent is asked to fork at a message; `None` if it gets the transcript.
fn native_params(script: &mut Script, message: &str) -> Option<String> {
    let params = format!(r#"{{"sessionId":"s","messageId":"{message}"}}"#);
    script.fork(1, 9, ForkKind::Fork, &params);
    match script.forks.pop().expect("it is opened").agent {
        ForkContext::Native { params, .. } => Some(params.to_json().as_str().to_owned()),
        ForkContext::Transcript(error) => {
            assert!(error.is_none(), "{error:?}");
            None
        }
    }
}

#[test]
fn a_recognised_agent_is_asked_to_fork_at_its_message() {
    for initialize in [claude(Dialect::V1), codex(Dialect::V1)] {
        let mut script = two_turns(&initialize, &[&chunk("a", "answer")]);
        expect_test::expect![[
            r#"{"sessionId":"theirs","cwd":"/work","mcpServers":[],"_meta":{"jetbrains":{"air":{"fork":{"version":1,"messageId":"a"}}}}}"#
        ]]
        .assert_eq(&native_params(&mut script, "a").expect("it is a native fork"));
        // An edit of the second prompt is a fork at the same point.
        let prompt = script.machine.transcript().entries()[2].id().clone();
        let parlor_session::EntryId::Message(_, prompt) = prompt else { panic!("it is a message") };
        let edit = format!(
            r#"{{"sessionId":"s","messageId":{},"prompt":[{{"type":"text","text":"Else"}}]}}"#,
            prompt.as_json().as_literal()
        );
        script.fork(1, 3, ForkKind::Edit, &edit);
        let start = script.forks.pop().expect("it is opened");
        let ForkContext::Native { params, .. } = start.agent else { panic!("it is a native fork") };
        assert!(params.to_json().as_str().contains(r#""messageId":"a""#));
    }
}

#[test]
fn an_agent_of_version_2_is_asked_to_fork_at_its_message_as_well() {
    let mut script = Script::with_agent(Dialect::V2, &claude(Dialect::V2));
    script.attach(1, Dialect::V2);
    for (nth, (prompt, message, answer)) in [("One", "u", "a"), ("Two", "v", "b")].into_iter().enumerate() {
        script.prompt(1, nth as u64 + 1, prompt);
        script.responds(nth, &format!(r#"{{"messageId":"{message}"}}"#));
        script.says(&[RUNNING, &chunk(answer, "answer"), IDLE]);
    }
    let params = native_params(&mut script, "a").expect("it is a native fork");
    assert!(params.contains(r#"{"air":{"fork":{"version":1,"messageId":"a"}}}"#), "{params}");
    assert_eq!(native_params(&mut script, "u"), None, "a prompt is not named");
}

#[test]
fn an_agent_that_is_not_recognised_or_cannot_fork_gets_the_transcript() {
    let old = recognised(Dialect::V1, "@agentclientprotocol/claude-agent-acp", "0.60.0");
    let other = recognised(Dialect::V1, "other", "9.0.0");
    let without_fork = claude(Dialect::V1).replace(r#""fork":{}"#, r#""list":{}"#);
    for initialize in [old, other, without_fork] {
        let mut script = two_turns(&initialize, &[&chunk("a", "answer")]);
        assert_eq!(native_params(&mut script, "a"), None, "{initialize}");
    }
}

#[test]
fn a_fork_inside_a_turn_is_native_only_at_an_agent_that_cuts_there() {
    let turn = [chunk("a", "first"), chunk("b", "second")];
    let turn = turn.each_ref().map(String::as_str);
    let mut script = two_turns(&claude(Dialect::V1), &turn);
    assert!(native_params(&mut script, "a").is_some() && native_params(&mut script, "b").is_some());
    let mut script = two_turns(&codex(Dialect::V1), &turn);
    assert!(native_params(&mut script, "a").is_none() && native_params(&mut script, "b").is_some());
    // A tool call can be part of the message before it.
    for initialize in [claude(Dialect::V1), codex(Dialect::V1)] {
        let turn = [&chunk("a", "first"), TOOL, &chunk("b", "second")];
        let mut script = two_turns(&initialize, &turn);
        assert!(native_params(&mut script, "a").is_none() && native_params(&mut script, "b").is_some());
    }
}

#[test]
fn a_message_that_shares_its_id_with_a_thought_is_no_native_fork_point() {
    let at_message = r#"{"agentCapabilities":{"sessionCapabilities":{"fork":{"atMessageId":true}}}}"#;
    for initialize in [claude(Dialect::V1), at_message.to_owned()] {
        let turn = [thought("a"), chunk("a", "answer")];
        let turn = turn.each_ref().map(String::as_str);
        let mut script = two_turns(&initialize, &turn);
        let ids: Vec<_> =
            script.machine.transcript().entries().iter().map(|entry| entry.id().clone()).collect();
        let ids = ids.iter().filter_map(|id| {
            let parlor_session::EntryId::Message(role, id) = id else { return None };
            (*role != parlor_session::Role::User).then_some(id)
        });
        let ids: Vec<String> = ids.map(|id| id.as_json().to_text().into_owned()).collect();
        assert_eq!(ids.len(), 3, "{ids:?}");
        assert_ne!(ids[0], ids[1], "clients see two ids");
        assert_eq!(native_params(&mut script, &ids[0]), None, "{initialize}");
        assert_eq!(native_params(&mut script, &ids[1]), None, "{initialize}");
    }
}

#[test]
fn a_client_may_name_the_message_as_these_agents_accept_it() {
    let mut script = two_turns(&claude(Dialect::V1), &[&chunk("a", "answer")]);
    let meta = r#"{"jetbrains":{"air":{"fork":{"version":1,"messageId":"a"},"x":1}},"parlor/agent":"agent"}"#;
    script.fork(1, 3, ForkKind::Fork, &format!(r#"{{"sessionId":"s","_meta":{meta}}}"#));
    let start = script.forks.pop().expect("it is opened");
    assert_eq!(SessionData::of(&start.row).forked_at.expect("it is at a message").to_text(), "a");
    let ForkContext::Native { params, .. } = start.agent else { panic!("it is a native fork") };
    let params = params.get("_meta").expect("it has metadata").as_str().to_owned();
    assert_eq!(params, r#"{"jetbrains":{"air":{"x":1,"fork":{"version":1,"messageId":"a"}}}}"#);
    // An agent that is not recognised does not get the message.
    let other = recognised(Dialect::V1, "other", "1.0.0");
    let mut script = two_turns(&other, &[&chunk("a", "answer")]);
    script.fork(1, 3, ForkKind::Fork, &format!(r#"{{"sessionId":"s","_meta":{meta}}}"#));
    let start = script.forks.pop().expect("it is opened");
    assert!(matches!(start.agent, ForkContext::Transcript(None)), "{:?}", start.agent);
}
