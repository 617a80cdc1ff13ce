//! Clients that attach, fall behind, catch up and leave.

use std::time::Duration;

use expect_test::expect;
use parlor_dialect::Dialect;
use parlor_engine::{AgentCall, AgentEvent, ClientCall, Event, ReplayFrom};
use parlor_json::Json;
use parlor_session::session::ClientId;
use parlor_wire::RequestId;

use crate::harness::{IDLE, RUNNING, Script, attach, chunk, lines, updates_of};

/// A session with one finished turn.
fn with_a_turn() -> Script {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 7, "Hello");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "one "), &chunk("a", "two"), IDLE]);
    script.sent(1);
    script
}

#[test]
fn a_client_that_attaches_is_sent_whole_messages_then_the_state_and_the_response() {
    let mut script = with_a_turn();
    script.attach_with(2, Dialect::V2, "{}", ReplayFrom::Start);
    expect![[r#"
        user_message {"messageId":"u","content":[{"type":"text","text":"Hello"}]}
        agent_message {"messageId":"a","content":[{"type":"text","text":"one two"}]}
        session_info_update {"title":"Hello","_meta":{"parlor/title":"made"}}
        state_update {"state":"idle","stopReason":"end_turn"}
        0 -> {"configOptions":[],"_meta":{"parlor/seq":6,"parlor/state":"idle"}}
    "#]]
    .assert_eq(&lines(&script.sent(2)));
    script.attach_with(3, Dialect::V1, "{}", ReplayFrom::Start);
    expect![[r#"
        user_message_chunk {"messageId":"u","content":{"type":"text","text":"Hello"}}
        agent_message_chunk {"messageId":"a","content":{"type":"text","text":"one two"}}
        session_info_update {"title":"Hello","_meta":{"parlor/title":"made"}}
        session_info_update {"_meta":{"parlor/state":"idle"}}
        0 -> {"_meta":{"parlor/seq":6,"parlor/state":"idle"}}
    "#]]
    .assert_eq(&lines(&script.sent(3)));
}

#[test]
fn a_client_that_resumes_after_a_seq_is_sent_only_the_text_that_it_lacks() {
    let mut script = with_a_turn();
    script.handle([Event::Disconnected(ClientId(1))]);
    script.says(&[RUNNING, &chunk("a", " three"), &chunk("b", "four"), IDLE]);
    script.attach_with(2, Dialect::V2, "{}", ReplayFrom::After(6));
    expect![[r#"
        agent_message_chunk {"messageId":"a","content":{"type":"text","text":" three"}}
        agent_message {"messageId":"b","content":[{"type":"text","text":"four"}]}
        state_update {"state":"idle","stopReason":"end_turn"}
        0 -> {"configOptions":[],"_meta":{"parlor/seq":10,"parlor/state":"idle"}}
        session_info_update {"_meta":{"parlor/queue":[]}}
    "#]]
    .assert_eq(&lines(&script.sent(2)));
}

#[test]
fn a_v1_client_that_resumes_after_a_seq_knows_what_it_received_before() {
    let call = r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"Edit","status":"pending"}"#;
    let done = r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}"#;
    let mut script = with_a_turn();
    script.says(&[RUNNING, call, &chunk("a", " three")]);
    let seq = script.machine.transcript().seq();
    script.says(&[done, &chunk("a", " four")]);
    script.attach_with(2, Dialect::V1, "{}", ReplayFrom::After(seq));
    script.says(&[done, &chunk("a", " five")]);
    expect![[r#"
        agent_message_chunk {"messageId":"a","content":{"type":"text","text":" four"}}
        tool_call_update {"toolCallId":"t","title":"Edit","status":"completed"}
        0 -> {"_meta":{"parlor/seq":11,"parlor/state":"running"}}
        session_info_update {"_meta":{"parlor/queue":[]}}
        tool_call_update {"toolCallId":"t","status":"completed"}
        agent_message_chunk {"messageId":"a","content":{"type":"text","text":" five"}}
    "#]]
    .assert_eq(&lines(&script.sent(2)));
}

#[test]
fn a_seq_above_the_counter_and_an_unknown_message_are_rejected() {
    let mut script = with_a_turn();
    script.attach_with(2, Dialect::V2, "{}", ReplayFrom::After(99));
    script.attach_with(2, Dialect::V2, "{}", ReplayFrom::Message("nowhere".into()));
    expect![[r#"
        0 failed: `seq` 99 is after the session's last change (6): load the session from the start
        0 failed: there is no such message in the session
    "#]]
    .assert_eq(&lines(&script.sent(2)));
}

#[test]
fn a_subscriber_that_falls_behind_catches_up_without_a_gap_or_a_duplicate() {
    let mut script = with_a_turn();
    script.attach(2, Dialect::V2);
    script.set_full(2, true);
    script.says(&[RUNNING, &chunk("b", "1 ")]);
    script.says(&[&chunk("b", "2 "), &chunk("b", "3")]);
    assert_eq!(script.sent(2), ["await drain"], "nothing is sent to a full queue, and one drain is awaited");
    // The others are not slowed down.
    assert_eq!(script.sent(1).len(), 4);
    script.set_full(2, false);
    expect![[r#"
        agent_message {"messageId":"b","content":[{"type":"text","text":"1 2 3"}]}
        state_update {"state":"running"}
    "#]]
    .assert_eq(&lines(&script.sent(2)));
    script.says(&[&chunk("b", " 4"), IDLE]);
    expect![[r#"
        agent_message_chunk {"messageId":"b","content":{"type":"text","text":" 4"}}
        state_update {"state":"idle","stopReason":"end_turn"}
    "#]]
    .assert_eq(&lines(&script.sent(2)));
}

#[test]
fn a_response_to_a_subscriber_that_catches_up_comes_after_the_changes_that_it_is_about() {
    let mut script = with_a_turn();
    script.attach(2, Dialect::V2);
    script.set_full(2, true);
    script.says(&[&chunk("b", "before")]);
    script.call(2, ClientCall::SetTitle { id: RequestId::from(9), title: Some("Named".into()) });
    assert_eq!(script.sent(2), ["await drain"]);
    script.set_full(2, false);
    let sent = script.sent(2);
    assert!(sent[0].contains("before"), "{sent:?}");
    assert_eq!(sent.last().unwrap(), r#"9 -> {"title":"Named"}"#);
}

#[test]
fn a_client_that_closes_the_session_in_a_turn_is_sent_its_end_before_the_response_and_nothing_after_it() {
    let mut script = with_a_turn();
    script.attach(2, Dialect::V2);
    script.says(&[RUNNING, &chunk("b", "one")]);
    script.sent(2);
    script.call(2, ClientCall::Close { id: RequestId::from(5) });
    expect![[r#"
        state_update {"state":"idle","stopReason":"cancelled"}
        5 -> {}
    "#]]
    .assert_eq(&lines(&script.sent(2)));
    script.says(&[&chunk("b", "two"), IDLE]);
    assert_eq!(script.sent(2), [""; 0], "the turn goes on for the other client only");
    assert!(script.sent(1).iter().any(|line| line.contains("two")));
}

#[test]
fn a_client_that_is_alone_and_closes_the_session_cancels_the_turn_and_releases_the_agent() {
    let mut script = with_a_turn();
    script.says(&[RUNNING]);
    script.commands();
    script.call(1, ClientCall::Close { id: RequestId::from(5) });
    assert_eq!(script.commands(), ["1: session/cancel"]);
    assert!(!script.sent(1).iter().any(|line| line.starts_with("5 ->")), "the turn has not ended yet");
    // What it calls meanwhile waits until it is detached.
    script.prompt(1, 6, "Again");
    assert_eq!(script.prompts.len(), 1);
    script.says(&[r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}"#]);
    let sent = script.sent(1);
    let close = sent.iter().position(|line| line == "5 -> {}").expect("the close is answered");
    assert!(sent[close - 1].contains("cancelled"), "{sent:?}");
    assert!(script.commands().iter().any(|command| command == "1: Release"));
}

#[test]
fn a_call_that_waited_for_a_close_does_not_attach_a_client_that_has_disconnected() {
    let mut script = with_a_turn();
    script.says(&[RUNNING]);
    script.handle([Event::Disconnected(ClientId(1))]);
    script.connect(2, Dialect::V2, "{}");
    // It need not be attached to close the session. The call after it waits for the response.
    script.call(2, ClientCall::Close { id: RequestId::from(5) });
    script.prompt(2, 6, "Again");
    let idle = r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}"#;
    let ended = Event::Agent(script.epoch, updates_of(&[idle]));
    script.handle([ended, Event::Disconnected(ClientId(2))]);
    assert_eq!(script.machine.subscribers().count(), 0);
    assert_eq!(script.machine.session().drivers().count(), 0);
}

#[test]
fn a_client_with_seqs_sees_them_grow() {
    let mut script = with_a_turn();
    script.attach_with(2, Dialect::V2, r#"{"_meta":{"parlor/seq":true}}"#, ReplayFrom::Now);
    script.says(&[RUNNING, &chunk("b", "x")]);
    expect![[r#"
        0 -> {"configOptions":[],"_meta":{"parlor/seq":6,"parlor/state":"idle"}}
        state_update {"state":"running"} seq 7
        agent_message_chunk {"messageId":"b","content":{"type":"text","text":"x"}} seq 8
    "#]]
    .assert_eq(&lines(&script.sent(2)));
}

/// A session of five messages, a title and an idle agent.
fn with_five_messages(dialect: Dialect) -> Script {
    let mut script = Script::new(dialect);
    script.says(&[r#"{"sessionUpdate":"session_info_update","title":"Five"}"#]);
    for n in 1..=5 {
        script.says(&[&format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"m{n}","content":{{"type":"text","text":"text {n}"}}}}"#
        )]);
    }
    script
}

fn older(id: u64, before: u64, entries: usize) -> ClientCall {
    ClientCall::Older { id: RequestId::from(id), before, entries }
}

/// The `updates` and the `before` of a response.
fn page(sent: &[String]) -> (Vec<String>, Option<u64>) {
    let [response] = sent else { panic!("{sent:?}") };
    let (_, result) = response.split_once("-> ").expect("a result");
    let result: serde_json::Value = serde_json::from_str(result).unwrap();
    let ids =
        result["updates"].as_array().unwrap().iter().map(|update| update["messageId"].as_str().unwrap());
    (ids.map(str::to_owned).collect(), result["before"].as_u64())
}

#[test]
fn a_client_that_asks_for_the_tail_is_sent_the_last_entries_and_all_other_state() {
    for agent in [Dialect::V1, Dialect::V2] {
        let mut script = with_five_messages(agent);
        script.attach_with(2, Dialect::V2, "{}", ReplayFrom::Tail(2));
        let sent = lines(&script.sent(2));
        assert!(!sent.contains("text 3") && sent.contains("text 4") && sent.contains("text 5"), "{sent}");
        assert!(sent.contains("Five"), "the title is sent: {sent}");
        assert!(sent.contains(r#""parlor/older":"#), "{sent}");
        assert!(sent.contains(r#""parlor/olderMessages":3"#), "{sent}");
        script.says(&[r#"{"sessionUpdate":"agent_message_chunk","messageId":"m6","content":{"type":"text","text":"six"}}"#]);
        assert!(lines(&script.sent(2)).contains("six"), "it is live");
    }
}

#[test]
fn a_tail_that_is_longer_than_the_session_is_all_of_it() {
    for entries in [5, 99] {
        let mut script = with_five_messages(Dialect::V2);
        script.attach_with(2, Dialect::V2, "{}", ReplayFrom::Tail(entries));
        let sent = lines(&script.sent(2));
        assert!(sent.contains("text 1") && !sent.contains("parlor/older"), "{sent}");
    }
}

#[test]
fn older_entries_are_returned_page_by_page_up_to_the_first() {
    let mut script = with_five_messages(Dialect::V2);
    script.attach_with(2, Dialect::V2, "{}", ReplayFrom::Tail(1));
    let sent = lines(&script.sent(2));
    let (_, cursor) = sent.split_once(r#""parlor/older":"#).expect("a cursor");
    let mut before = cursor.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let mut pages = Vec::new();
    while let Some(cursor) = before {
        script.call(2, older(7, cursor, 2));
        let (ids, next) = page(&script.sent(2));
        pages.push(ids);
        before = next;
    }
    assert_eq!(pages, [vec!["m3", "m4"], vec!["m1", "m2"]]);
}

#[test]
fn a_page_of_older_entries_keeps_its_last_entries_if_it_is_too_long() {
    let mut script = Script::new(Dialect::V2);
    let long = "x".repeat(400 << 10);
    for n in 1..=4 {
        script.says(&[&format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"m{n}","content":{{"type":"text","text":"{long}"}}}}"#
        )]);
    }
    script.connect(3, Dialect::V2, "{}");
    script.call(3, older(7, u64::MAX, 4));
    let (ids, before) = page(&script.sent(3));
    assert_eq!(ids, ["m3", "m4"], "half a megabyte is enough for one line");
    script.call(3, older(8, before.expect("there are more"), 4));
    assert_eq!(page(&script.sent(3)).0, ["m1", "m2"]);
}

#[test]
fn no_entries_are_before_the_first() {
    let mut script = with_five_messages(Dialect::V2);
    script.connect(3, Dialect::V2, "{}");
    for before in [0, 1, 2] {
        script.call(3, older(7, before, 10));
        assert_eq!(page(&script.sent(3)), (Vec::new(), None), "before {before}");
    }
}

#[test]
fn a_session_that_owes_the_response_to_a_close_is_not_evicted() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 7, "Hello");
    // After a restart nobody waits for the outcome of the prompt.
    script.reopen();
    script.attach(1, Dialect::V2);
    script.restores(false);
    script.handle([Event::Disconnected(ClientId(1))]);
    script.connect(2, Dialect::V2, "{}");
    script.call(2, ClientCall::Close { id: RequestId::from(3) });
    assert_eq!(script.sent(2), [""; 0], "the agent has not answered the prompt");
    let tick = || Event::Tick { idle: Duration::ZERO, idle_unrestorable: Duration::ZERO };
    script.handle([tick()]);
    assert!(script.machine.end().is_none(), "{:?}", script.machine.end());
    let call = AgentCall::Prompt(*script.prompts.last().expect("the agent has the prompt"));
    let cancelled = Json::parse(r#"{"code":-32800,"message":"cancelled"}"#).unwrap();
    script.handle([Event::Agent(script.epoch, AgentEvent::Response(call, Err(cancelled)))]);
    assert_eq!(script.sent(2), ["3 -> {}"]);
    script.handle([tick()]);
    assert!(script.machine.end().is_some(), "now nobody uses it");
}

#[test]
fn clients_that_want_to_know_are_sent_which_clients_are_attached() {
    const WANTS: &str = r#"{"info":{"name":"page"},"_meta":{"parlor/clients":true}}"#;
    let mut script = Script::new(Dialect::V2);
    script.attach_with(1, Dialect::V2, WANTS, ReplayFrom::Start);
    script.attach_with(2, Dialect::V1, r#"{"clientInfo":{"name":"zed"}}"#, ReplayFrom::Start);
    assert!(!lines(&script.sent(2)).contains("parlor/clients"), "it did not ask for them");
    script.handle([Event::Disconnected(ClientId(2))]);
    expect![[r#"
        0 -> {"configOptions":[],"_meta":{"parlor/seq":0,"parlor/state":"idle"}}
        session_info_update {"_meta":{"parlor/clients":[{"client":1,"role":"driver","name":"page"}],"parlor/moreClients":null}}
        session_info_update {"_meta":{"parlor/clients":[{"client":1,"role":"driver","name":"page"},{"client":2,"role":"driver","name":"zed"}],"parlor/moreClients":null}}
        session_info_update {"_meta":{"parlor/clients":[{"client":1,"role":"driver","name":"page"}],"parlor/moreClients":null}}
    "#]]
    .assert_eq(&lines(&script.sent(1)));
    // Updates of the session are not followed by the clients again.
    script.says(&[RUNNING, &chunk("a", "one "), IDLE]);
    assert!(!lines(&script.sent(1)).contains("parlor/clients"));
    // A client that attaches again has forgotten them.
    script.call(1, attach(3, ReplayFrom::Start));
    assert_eq!(lines(&script.sent(1)).matches("parlor/clients").count(), 1);
    script.attach(3, Dialect::V2);
    script.sent(1);
    script.call(3, ClientCall::Detach { id: RequestId::from(4) });
    assert_eq!(lines(&script.sent(1)).matches("parlor/clients").count(), 1);
    script.attach(3, Dialect::V2);
    script.sent(1);
    script.call(3, ClientCall::Close { id: RequestId::from(5) });
    assert_eq!(lines(&script.sent(1)).matches("parlor/clients").count(), 1);
}

#[test]
fn long_names_and_many_clients_are_cut() {
    const WANTS: &str = r#"{"_meta":{"parlor/clients":true}}"#;
    let mut script = Script::new(Dialect::V2);
    let long = format!(r#"{{"info":{{"name":"{}"}}}}"#, "x".repeat(5_000));
    for client in 2..=104 {
        script.attach_with(client, Dialect::V2, &long, ReplayFrom::Start);
    }
    script.attach_with(1, Dialect::V2, WANTS, ReplayFrom::Start);
    let sent = lines(&script.sent(1));
    assert_eq!(sent.matches(r#""client":"#).count(), 100);
    assert!(sent.contains(r#""parlor/moreClients":4"#) && sent.len() < 20_000, "{} bytes", sent.len());
}

#[test]
fn a_client_that_wants_times_is_sent_when_replayed_entries_were_created() {
    const WANTS: &str = r#"{"_meta":{"parlor/times":true}}"#;
    let mut script = with_a_turn();
    script.attach_with(2, Dialect::V2, WANTS, ReplayFrom::Start);
    let at = script.machine.transcript().entries()[0].created_at().unwrap().0;
    let sent = lines(&script.sent(2));
    let with_time = format!(r#""_meta":{{"parlor/at":{at}}}"#);
    assert_eq!(sent.matches(&with_time).count(), 2, "the prompt and the answer: {sent}");
    script.attach_with(3, Dialect::V2, WANTS, ReplayFrom::Tail(1));
    let sent = script.sent(3);
    let response = lines(&sent);
    let older = response.split(r#""parlor/older":"#).nth(1).unwrap().split([',', '}']).next().unwrap();
    let before = older.parse().unwrap();
    script.call(3, ClientCall::Older { id: RequestId::from(9), before, entries: 5 });
    assert!(lines(&script.sent(3)).contains(&with_time));
    // Version 1 has no place for it, and nobody else is sent it.
    script.attach_with(4, Dialect::V1, WANTS, ReplayFrom::Start);
    script.attach_with(5, Dialect::V2, "{}", ReplayFrom::Start);
    assert!(!lines(&script.sent(4)).contains("parlor/at") && !lines(&script.sent(5)).contains("parlor/at"));
}
