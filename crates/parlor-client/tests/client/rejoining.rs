//! Sessions that are rejoined after a lost connection, or loaded again: nothing is applied twice, and nothing is missed.

use parlor_client::{Error, Hello, Session, TextDelta, TurnEvent, Version};
use parlor_testkit::wait::within_timeout;

use crate::peer::{Peer, Request, chunk, fill, idle, peer, prompt};
use crate::{CWD, connector, lines_of, start_server, stop_reason, turn, wait_for_transcript};

/// A session with these updates, and the peer of its connection.
async fn session_with(lines: &str) -> (Session, Peer) {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let mut updates = session.updates();
    peer.send(lines).await;
    within_timeout(updates.next()).await.unwrap();
    (session, peer)
}

#[tokio::test]
async fn a_session_without_sequence_numbers_is_reloaded_into_the_same_handle() {
    let (lost, old) = session_with(&chunk("m", "One.", None)).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    let (again, mut peer) = peer().await;
    let (rejoined, ()) = tokio::join!(within_timeout(again.rejoin(&lost, CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"start"}"#);
        peer.send(&(chunk("m", "One.", None) + &chunk("n", "Two.", None))).await;
        peer.respond(&request, "{}").await;
    });
    let rejoined = rejoined.unwrap();
    assert_eq!(lines_of(&rejoined.transcript()), ["Agent: One.", "Agent: Two."]);
    assert_eq!(lines_of(&lost.transcript()), ["Agent: One.", "Agent: Two."]);
    let (turn, ()) = tokio::join!(within_timeout(rejoined.prompt("Three?")), async {
        let request = peer.expect_request("session/prompt").await;
        let lines = request.response(r#"{"messageId":"u"}"#) + &prompt("u", "Three?", None);
        peer.send(&(lines + &idle("end_turn", None))).await;
    });
    assert_eq!(stop_reason(&within_timeout(turn.unwrap().outcome()).await.unwrap()), "end_turn");
}

#[tokio::test]
async fn a_version_1_client_rejoins_without_duplicates() {
    let server = start_server();
    let old = connector().only(Version::V1);
    let first = within_timeout(old.spawn_with(|| server.dir().command(&["acp"]).into())).await.unwrap();
    let session = within_timeout(first.new_session(CWD.as_ref())).await.unwrap();
    turn(&session, "say One.").await;
    within_timeout(first.disconnect()).await;
    let again = within_timeout(old.spawn_with(|| server.dir().command(&["acp"]).into())).await.unwrap();
    let rejoined = within_timeout(again.rejoin(&session, CWD.as_ref())).await.unwrap();
    wait_for_transcript(&rejoined, |said| said == ["User: say One.", "Agent: One."]).await;
    turn(&rejoined, "say Two.").await;
    let expected = ["User: say One.", "Agent: One.", "User: say Two.", "Agent: Two."];
    assert_eq!(lines_of(&rejoined.transcript()), expected);
}

#[tokio::test]
async fn updates_of_the_lost_connection_are_ignored_after_a_rejoin() {
    let (lost, mut old) = session_with(&chunk("m", "One.", None)).await;
    let (again, mut peer) = peer().await;
    let (rejoined, ()) = tokio::join!(within_timeout(again.rejoin(&lost, CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        peer.send(&chunk("m", "One.", None)).await;
        peer.respond(&request, "{}").await;
    });
    let rejoined = rejoined.unwrap();
    // The old connection was half open: it delivers more, and then it closes.
    old.send(&chunk("m", "One.", None)).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    peer.send(&(chunk("n", "Two.", None) + &idle("end_turn", None))).await;
    assert_eq!(stop_reason(&within_timeout(rejoined.idle()).await.unwrap().into()), "end_turn");
    assert_eq!(lines_of(&rejoined.transcript()), ["Agent: One.", "Agent: Two."]);
}

#[tokio::test]
async fn rejoining_a_subscribed_session_sends_nothing() {
    let (session, mut peer) = session_with(&chunk("m", "One.", Some(4))).await;
    let same = within_timeout(session.client().rejoin(&session, CWD.as_ref())).await.unwrap();
    peer.send(&idle("end_turn", Some(5))).await;
    within_timeout(same.idle()).await.unwrap();
    assert_eq!(lines_of(&session.transcript()), ["Agent: One."]);
}

#[tokio::test]
async fn a_rejoin_asks_for_the_changes_after_the_last_one() {
    let (client, mut old) = peer().await;
    let (lost, ()) = tokio::join!(within_timeout(client.new_session(CWD.as_ref())), async {
        let request = old.expect_request("session/new").await;
        // In one write, as a server sends what is ready.
        let answer = request.response(r#"{"sessionId":"s","_meta":{"parlor/seq":1}}"#);
        old.send(&(answer + &chunk("m", "One", Some(2)) + &chunk("m", ", two", Some(3)))).await;
    });
    let lost = lost.unwrap();
    wait_for_transcript(&lost, |said| said == ["Agent: One, two"]).await;
    drop(old);
    within_timeout(client.closed()).await;
    let (again, mut peer) = peer().await;
    let (rejoined, ()) = tokio::join!(within_timeout(again.rejoin(&lost, CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"_parlor_after","seq":3}"#);
        peer.send(&chunk("m", ", three.", None)).await;
        peer.respond(&request, r#"{"_meta":{"parlor/seq":4}}"#).await;
    });
    assert_eq!(lines_of(&rejoined.unwrap().transcript()), ["Agent: One, two, three."]);
}

#[tokio::test]
async fn a_refused_load_keeps_the_transcript_and_the_subscription() {
    let (session, mut peer) = session_with(&chunk("m", "One", Some(1))).await;
    let client = session.client().clone();
    let (refused, ()) = tokio::join!(within_timeout(client.load(session.id(), CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        peer.send(&chunk("m", ", two.", Some(2))).await;
        peer.respond_error(&request, -32603).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(-32603));
    assert_eq!(lines_of(&session.transcript()), ["Agent: One, two."]);
    peer.send(&chunk("n", "Three.", Some(3))).await;
    wait_for_transcript(&session, |said| said == ["Agent: One, two.", "Agent: Three."]).await;
}

#[tokio::test]
async fn updates_before_the_replay_are_not_applied_twice() {
    let (session, mut peer) = session_with(&chunk("n", "Two", Some(5))).await;
    let client = session.client().clone();
    let (loaded, ()) = tokio::join!(within_timeout(client.load(session.id(), CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        peer.send(&chunk("n", ", and more", Some(6))).await;
        peer.send(&(chunk("m", "One.", None) + &chunk("n", "Two, and more", None))).await;
        peer.respond(&request, r#"{"_meta":{"parlor/seq":6}}"#).await;
    });
    peer.send(&chunk("n", ".", Some(7))).await;
    wait_for_transcript(&loaded.unwrap(), |said| said == ["Agent: One.", "Agent: Two, and more."]).await;
    assert_eq!(lines_of(&session.transcript()), ["Agent: One.", "Agent: Two, and more."]);
}

#[tokio::test]
async fn a_second_load_of_a_session_is_busy() {
    let (session, mut peer) = session_with(&chunk("m", "One.", None)).await;
    let client = session.client().clone();
    let first = client.load(session.id(), CWD.as_ref());
    tokio::pin!(first);
    let request = tokio::select! {
        _ = &mut first => panic!("nobody answered"),
        request = peer.expect_request("session/resume") => request,
    };
    assert!(matches!(within_timeout(client.load(session.id(), CWD.as_ref())).await, Err(Error::Busy)));
    peer.send(&chunk("m", "One.", None)).await;
    peer.respond(&request, "{}").await;
    assert_eq!(lines_of(&within_timeout(first).await.unwrap().transcript()), ["Agent: One."]);
}

#[tokio::test]
async fn the_stream_of_a_turn_survives_a_reload() {
    let old = chunk("a", "1", None) + &chunk("b", "2", None) + &chunk("c", "3", None);
    let (session, mut peer) = session_with(&old).await;
    wait_for_transcript(&session, |said| said.len() == 3).await;
    let (turn, ()) = tokio::join!(within_timeout(session.prompt("Four?")), async {
        let request = peer.expect_request("session/prompt").await;
        peer.respond(&request, r#"{"messageId":"u"}"#).await;
    });
    let mut turn = turn.unwrap();
    let client = session.client().clone();
    let (loaded, ()) = tokio::join!(within_timeout(client.load(session.id(), CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        peer.send(&(chunk("a", "1", None) + &prompt("u", "Four?", None))).await;
        peer.respond(&request, "{}").await;
    });
    loaded.unwrap();
    peer.send(&(chunk("d", "4", None) + &idle("end_turn", None))).await;
    assert_eq!(stop_reason(&within_timeout(turn.outcome()).await.unwrap()), "end_turn");
    let mut text = Vec::new();
    while let Some(event) = within_timeout(turn.next()).await {
        if let TurnEvent::Update(update) = event.unwrap() {
            text.extend(TextDelta::of(&update).map(|delta| delta.text));
        }
    }
    assert_eq!(text, ["Four?", "4"]);
}

#[tokio::test]
async fn updates_that_will_be_replayed_are_not_applied_twice() {
    let (lost, old) = session_with(&chunk("m", "One", Some(3))).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    // The other connection is subscribed already.
    let (again, mut peer) = peer().await;
    let other = again.session(&"s".into());
    let (rejoined, ()) = tokio::join!(within_timeout(again.rejoin(&lost, CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"_parlor_after","seq":3}"#);
        peer.send(&chunk("m", ", two.", Some(4))).await;
        peer.send(&chunk("m", ", two.", None)).await;
        peer.respond(&request, r#"{"_meta":{"parlor/seq":4}}"#).await;
    });
    assert_eq!(lines_of(&rejoined.unwrap().transcript()), ["Agent: One, two."]);
    // Its own handle was replaced.
    assert!(matches!(within_timeout(other.idle()).await, Err(Error::NotSubscribed)));
}

#[tokio::test]
async fn a_rejoin_that_cannot_resume_reloads() {
    let (lost, old) = session_with(&chunk("m", "One", Some(3))).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    let (again, mut peer) = peer().await;
    let (rejoined, ()) = tokio::join!(within_timeout(again.rejoin(&lost, CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        peer.respond_error(&request, -32602).await;
        let request = peer.expect_request("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"start"}"#);
        peer.send(&chunk("n", "Another one", None)).await;
        peer.respond(&request, r#"{"_meta":{"parlor/seq":1}}"#).await;
    });
    assert_eq!(lines_of(&rejoined.unwrap().transcript()), ["Agent: Another one"]);
    assert_eq!(lines_of(&lost.transcript()), ["Agent: Another one"]);
}

#[tokio::test]
async fn a_refused_rejoin_keeps_the_transcript() {
    let (lost, old) = session_with(&chunk("m", "One", Some(3))).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    let (again, mut peer) = peer().await;
    let (refused, ()) = tokio::join!(within_timeout(again.rejoin(&lost, CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        peer.respond_error(&request, -32002).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(-32002));
    assert!(matches!(within_timeout(lost.idle()).await, Err(Error::NotSubscribed)));
    assert_eq!(lines_of(&lost.transcript()), ["Agent: One"]);
}

/// A turn that a version 1 connection began and another connection continues.
#[tokio::test]
async fn a_version_1_turn_ends_after_a_reload() {
    let server = start_server();
    let connect = async || {
        let old = connector().only(Version::V1);
        within_timeout(old.socket(&server.socket(), &Hello::new())).await.unwrap().0
    };
    for (text, is_over) in [("say One.", true), ("say Two.\nsleep 60000", false)] {
        let first = connect().await;
        let session = within_timeout(first.new_session(CWD.as_ref())).await.unwrap();
        let turn = within_timeout(session.prompt(text)).await.unwrap();
        wait_for_transcript(&session, |said| said.len() == 2).await;
        if is_over {
            within_timeout(turn.outcome()).await.unwrap();
        }
        within_timeout(first.disconnect()).await;
        let rejoined = within_timeout(connect().await.rejoin(&session, CWD.as_ref())).await.unwrap();
        if !is_over {
            rejoined.cancel().await.unwrap();
        }
        within_timeout(turn.outcome()).await.unwrap();
    }
}

/// A version 1 agent is started again, and does not know the turn.
#[tokio::test]
async fn a_turn_that_no_peer_reports_fails_with_disconnected() {
    let state = tempfile::tempdir().unwrap();
    let args = ["--version", "1", "--state", state.path().to_str().unwrap()];
    let first = crate::spawn(&args).await;
    let session = within_timeout(first.new_session(CWD.as_ref())).await.unwrap();
    let turn = within_timeout(session.prompt("say One.\nsleep 60000")).await.unwrap();
    wait_for_transcript(&session, |said| said.len() == 2).await;
    within_timeout(first.disconnect()).await;
    let _found = within_timeout(crate::spawn(&args).await.rejoin(&session, CWD.as_ref())).await.unwrap();
    assert!(matches!(within_timeout(turn.outcome()).await, Err(Error::Disconnected)));
}

#[tokio::test]
async fn a_version_1_turn_survives_a_reload() {
    let state = tempfile::tempdir().unwrap();
    let args = ["--version", "1", "--state", state.path().to_str().unwrap()];
    let client = crate::spawn(&args).await;
    let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
    let turn = within_timeout(session.prompt("say One.\nsleep 60000")).await.unwrap();
    wait_for_transcript(&session, |said| said.len() == 2).await;
    within_timeout(client.load(session.id(), CWD.as_ref())).await.unwrap();
    let (end, ()) = tokio::join!(within_timeout(turn.outcome()), async { session.cancel().await.unwrap() });
    assert_eq!(stop_reason(&end.unwrap()), "cancelled");
}

#[tokio::test]
async fn a_turn_ends_without_an_update_of_its_message() {
    let (session, mut peer) = session_with(&chunk("m", "One.", None)).await;
    for reason_given in ["end_turn", "refusal"] {
        let (turn, ()) = tokio::join!(within_timeout(session.prompt("Two?")), async {
            let request = peer.expect_request("session/prompt").await;
            peer.send(&(request.response(r#"{"messageId":"u"}"#) + &idle(reason_given, None))).await;
        });
        assert_eq!(stop_reason(&within_timeout(turn.unwrap().outcome()).await.unwrap()), reason_given);
    }
}

#[tokio::test]
async fn a_queued_turn_does_not_end_with_the_turn_before_it() {
    let (session, mut peer) = session_with(&chunk("m", "One.", None)).await;
    let prompt_of = |text| within_timeout(session.prompt(text));
    let (first, second, ()) = tokio::join!(prompt_of("Two?"), prompt_of("Three?"), async {
        for message in ["u", "v"] {
            let request = peer.expect_request("session/prompt").await;
            peer.respond(&request, &format!(r#"{{"messageId":"{message}"}}"#)).await;
        }
    });
    let (first, second) = (first.unwrap(), second.unwrap());
    peer.send(&(prompt("u", "Two?", None) + &idle("end_turn", None))).await;
    assert_eq!(stop_reason(&within_timeout(first.outcome()).await.unwrap()), "end_turn");
    let (end, ()) = tokio::join!(within_timeout(second.outcome()), async {
        peer.send(&(prompt("v", "Three?", None) + &idle("refusal", None))).await;
    });
    assert_eq!(stop_reason(&end.unwrap()), "refusal");
}

/// The lost connection is half open, and the new one has not sent its request yet.
#[tokio::test(start_paused = true)]
async fn late_updates_of_the_lost_connection_are_not_replayed() {
    let (lost, mut old) = session_with(&chunk("m", "One", Some(3))).await;
    let (again, mut peer) = peer().await;
    fill(&again).await;
    let (rejoined, ()) = tokio::join!(within_timeout(again.rejoin(&lost, CWD.as_ref())), async {
        old.send(&chunk("m", ", two", Some(4))).await;
        wait_for_transcript(&lost, |said| said == ["Agent: One, two"]).await;
        let resume = loop {
            let line = peer.receive().await;
            if line.get("id").is_some() {
                break Request::of(&line);
            }
        };
        assert_eq!(resume.replay_from().unwrap(), r#"{"type":"_parlor_after","seq":4}"#);
        peer.respond(&resume, r#"{"_meta":{"parlor/seq":4}}"#).await;
    });
    assert_eq!(lines_of(&rejoined.unwrap().transcript()), ["Agent: One, two"]);
}
