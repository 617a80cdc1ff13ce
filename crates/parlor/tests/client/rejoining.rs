//! Connections that are lost and made up for, and sessions that are loaded again: nothing is doubled, and nothing is lost.

use parlor_client::{Error, Hello, Session, Version};
use parlor_testkit::wait::within_timeout;

use crate::ending::fill;
use crate::peer::{Peer, Request, chunk, idle, peer, prompt};
use crate::{HERE, connector, knows, reason, said, start_server, turn};

/// A session in which something was said, and the other side of its connection.
async fn begun(lines: &str) -> (Session, Peer) {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let mut news = session.updates();
    peer.says(lines).await;
    within_timeout(news.next()).await.unwrap();
    (session, peer)
}

#[tokio::test]
async fn a_session_without_numbers_is_told_anew_and_is_still_the_same() {
    let (lost, old) = begun(&chunk("m", "One.", None)).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    let (again, mut peer) = peer().await;
    let (found, ()) = tokio::join!(within_timeout(again.rejoin(&lost, HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"start"}"#);
        peer.says(&(chunk("m", "One.", None) + &chunk("n", "Two.", None))).await;
        peer.answer(&request, "{}").await;
    });
    let found = found.unwrap();
    assert_eq!(said(&found.transcript()), ["Agent: One.", "Agent: Two."]);
    assert_eq!(said(&lost.transcript()), ["Agent: One.", "Agent: Two."]);
    let (turn, ()) = tokio::join!(within_timeout(found.prompt("Three?")), async {
        let request = peer.asked("session/prompt").await;
        let lines = request.answer(r#"{"messageId":"u"}"#) + &prompt("u", "Three?", None);
        peer.says(&(lines + &idle("end_turn", None))).await;
    });
    assert_eq!(reason(&within_timeout(turn.unwrap().outcome()).await.unwrap()), "end_turn");
}

#[tokio::test]
async fn a_client_of_version_1_goes_on_without_doubling() {
    let server = start_server();
    let old = connector().only(Version::V1);
    let first = within_timeout(old.spawn_with(|| server.dir().command(&["acp"]).into())).await.unwrap();
    let session = within_timeout(first.new_session(HERE.as_ref())).await.unwrap();
    turn(&session, "say One.").await;
    within_timeout(first.disconnect()).await;
    let again = within_timeout(old.spawn_with(|| server.dir().command(&["acp"]).into())).await.unwrap();
    let found = within_timeout(again.rejoin(&session, HERE.as_ref())).await.unwrap();
    knows(&found, |said| said == ["User: say One.", "Agent: One."]).await;
    turn(&found, "say Two.").await;
    let expected = ["User: say One.", "Agent: One.", "User: say Two.", "Agent: Two."];
    assert_eq!(said(&found.transcript()), expected);
}

#[tokio::test]
async fn a_connection_that_is_not_followed_any_more_says_nothing() {
    let (lost, mut old) = begun(&chunk("m", "One.", None)).await;
    let (again, mut peer) = peer().await;
    let (found, ()) = tokio::join!(within_timeout(again.rejoin(&lost, HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        peer.says(&chunk("m", "One.", None)).await;
        peer.answer(&request, "{}").await;
    });
    let found = found.unwrap();
    // The old connection was half open: it comes to life again, and then it ends.
    old.says(&chunk("m", "One.", None)).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    peer.says(&(chunk("n", "Two.", None) + &idle("end_turn", None))).await;
    assert_eq!(reason(&within_timeout(found.idle()).await.unwrap()), "end_turn");
    assert_eq!(said(&found.transcript()), ["Agent: One.", "Agent: Two."]);
}

#[tokio::test]
async fn a_session_that_is_followed_needs_no_joining() {
    let (session, mut peer) = begun(&chunk("m", "One.", Some(4))).await;
    let same = within_timeout(session.client().rejoin(&session, HERE.as_ref())).await.unwrap();
    peer.says(&idle("end_turn", Some(5))).await;
    within_timeout(same.idle()).await.unwrap();
    assert_eq!(said(&session.transcript()), ["Agent: One."]);
}

#[tokio::test]
async fn it_goes_on_after_the_last_change_that_was_told() {
    let (client, mut old) = peer().await;
    let (lost, ()) = tokio::join!(within_timeout(client.new_session(HERE.as_ref())), async {
        let request = old.asked("session/new").await;
        // All in one go, as a server that has it ready says it.
        let answer = request.answer(r#"{"sessionId":"s","_meta":{"parlor/seq":1}}"#);
        old.says(&(answer + &chunk("m", "One", Some(2)) + &chunk("m", ", two", Some(3)))).await;
    });
    let lost = lost.unwrap();
    knows(&lost, |said| said == ["Agent: One, two"]).await;
    drop(old);
    within_timeout(client.closed()).await;
    let (again, mut peer) = peer().await;
    let (found, ()) = tokio::join!(within_timeout(again.rejoin(&lost, HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"_parlor_after","seq":3}"#);
        peer.says(&chunk("m", ", three.", None)).await;
        peer.answer(&request, r#"{"_meta":{"parlor/seq":4}}"#).await;
    });
    assert_eq!(said(&found.unwrap().transcript()), ["Agent: One, two, three."]);
}

#[tokio::test]
async fn what_was_known_stays_when_it_cannot_be_told_again() {
    let (session, mut peer) = begun(&chunk("m", "One", Some(1))).await;
    let client = session.client().clone();
    let (refused, ()) = tokio::join!(within_timeout(client.load(session.id(), HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        peer.says(&chunk("m", ", two.", Some(2))).await;
        peer.refuse(&request, -32603).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(-32603));
    assert_eq!(said(&session.transcript()), ["Agent: One, two."]);
    peer.says(&chunk("n", "Three.", Some(3))).await;
    knows(&session, |said| said == ["Agent: One, two.", "Agent: Three."]).await;
}

#[tokio::test]
async fn what_came_before_it_is_told_again_is_not_part_of_it() {
    let (session, mut peer) = begun(&chunk("n", "Two", Some(5))).await;
    let client = session.client().clone();
    let (loaded, ()) = tokio::join!(within_timeout(client.load(session.id(), HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        peer.says(&chunk("n", ", and more", Some(6))).await;
        peer.says(&(chunk("m", "One.", None) + &chunk("n", "Two, and more", None))).await;
        peer.answer(&request, r#"{"_meta":{"parlor/seq":6}}"#).await;
    });
    peer.says(&chunk("n", ".", Some(7))).await;
    knows(&loaded.unwrap(), |said| said == ["Agent: One.", "Agent: Two, and more."]).await;
    assert_eq!(said(&session.transcript()), ["Agent: One.", "Agent: Two, and more."]);
}

#[tokio::test]
async fn one_load_of_a_session_at_a_time() {
    let (session, mut peer) = begun(&chunk("m", "One.", None)).await;
    let client = session.client().clone();
    let first = client.load(session.id(), HERE.as_ref());
    tokio::pin!(first);
    let request = tokio::select! {
        _ = &mut first => panic!("nobody answered"),
        request = peer.asked("session/resume") => request,
    };
    assert!(matches!(within_timeout(client.load(session.id(), HERE.as_ref())).await, Err(Error::Busy)));
    peer.says(&chunk("m", "One.", None)).await;
    peer.answer(&request, "{}").await;
    assert_eq!(said(&within_timeout(first).await.unwrap().transcript()), ["Agent: One."]);
}

#[tokio::test]
async fn the_news_of_a_turn_are_its_news_after_it_was_told_anew() {
    let old = chunk("a", "1", None) + &chunk("b", "2", None) + &chunk("c", "3", None);
    let (session, mut peer) = begun(&old).await;
    knows(&session, |said| said.len() == 3).await;
    let (turn, ()) = tokio::join!(within_timeout(session.prompt("Four?")), async {
        let request = peer.asked("session/prompt").await;
        peer.answer(&request, r#"{"messageId":"u"}"#).await;
    });
    let turn = turn.unwrap();
    let client = session.client().clone();
    let (loaded, ()) = tokio::join!(within_timeout(client.load(session.id(), HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        peer.says(&(chunk("a", "1", None) + &prompt("u", "Four?", None))).await;
        peer.answer(&request, "{}").await;
    });
    loaded.unwrap();
    peer.says(&(chunk("d", "4", None) + &idle("end_turn", None))).await;
    assert_eq!(reason(&within_timeout(turn.outcome()).await.unwrap()), "end_turn");
    let mut news = turn.updates();
    let words =
        std::iter::from_fn(|| news.ready()).filter_map(|update| parlor_client::TextDelta::of(&update));
    assert_eq!(words.map(|words| words.text).collect::<Vec<_>>(), ["Four?", "4"]);
}

#[tokio::test]
async fn what_happens_before_it_goes_on_is_told_once() {
    let (lost, old) = begun(&chunk("m", "One", Some(3))).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    // The other connection takes part already.
    let (again, mut peer) = peer().await;
    let other = again.session(&"s".into());
    let (found, ()) = tokio::join!(within_timeout(again.rejoin(&lost, HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"_parlor_after","seq":3}"#);
        peer.says(&chunk("m", ", two.", Some(4))).await;
        peer.says(&chunk("m", ", two.", None)).await;
        peer.answer(&request, r#"{"_meta":{"parlor/seq":4}}"#).await;
    });
    assert_eq!(said(&found.unwrap().transcript()), ["Agent: One, two."]);
    // What it knew itself is not told of any more.
    assert!(matches!(within_timeout(other.idle()).await, Err(Error::NotSubscribed)));
}

#[tokio::test]
async fn where_it_cannot_go_on_all_is_told_anew() {
    let (lost, old) = begun(&chunk("m", "One", Some(3))).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    let (again, mut peer) = peer().await;
    let (found, ()) = tokio::join!(within_timeout(again.rejoin(&lost, HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        peer.refuse(&request, -32602).await;
        let request = peer.asked("session/resume").await;
        assert_eq!(request.replay_from().unwrap(), r#"{"type":"start"}"#);
        peer.says(&chunk("n", "Another one", None)).await;
        peer.answer(&request, r#"{"_meta":{"parlor/seq":1}}"#).await;
    });
    assert_eq!(said(&found.unwrap().transcript()), ["Agent: Another one"]);
    assert_eq!(said(&lost.transcript()), ["Agent: Another one"]);
}

#[tokio::test]
async fn a_session_that_cannot_be_joined_again_is_lost_and_known() {
    let (lost, old) = begun(&chunk("m", "One", Some(3))).await;
    drop(old);
    within_timeout(lost.client().closed()).await;
    let (again, mut peer) = peer().await;
    let (refused, ()) = tokio::join!(within_timeout(again.rejoin(&lost, HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        peer.refuse(&request, -32002).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(-32002));
    assert!(matches!(within_timeout(lost.idle()).await, Err(Error::NotSubscribed)));
    assert_eq!(said(&lost.transcript()), ["Agent: One"]);
}

/// A turn that was taken in version 1, and its session after another connection goes on with it.
#[tokio::test]
async fn a_turn_of_version_1_ends_after_it_was_told_anew() {
    let server = start_server();
    let connect = async || {
        let old = connector().only(Version::V1);
        within_timeout(old.socket(&server.socket(), &Hello::new())).await.unwrap().0
    };
    for (text, is_over) in [("say One.", true), ("say Two.\nsleep 60000", false)] {
        let first = connect().await;
        let session = within_timeout(first.new_session(HERE.as_ref())).await.unwrap();
        let turn = within_timeout(session.prompt(text)).await.unwrap();
        knows(&session, |said| said.len() == 2).await;
        if is_over {
            within_timeout(turn.outcome()).await.unwrap();
        }
        within_timeout(first.disconnect()).await;
        let found = within_timeout(connect().await.rejoin(&session, HERE.as_ref())).await.unwrap();
        if !is_over {
            found.cancel().await.unwrap();
        }
        within_timeout(turn.outcome()).await.unwrap();
    }
}

/// An agent of version 1 is started anew, and knows nothing of the turn.
#[tokio::test]
async fn the_end_of_a_turn_that_nobody_knows_of_is_not_waited_for() {
    let state = tempfile::tempdir().unwrap();
    let args = ["--version", "1", "--state", state.path().to_str().unwrap()];
    let first = crate::spawn(&args).await;
    let session = within_timeout(first.new_session(HERE.as_ref())).await.unwrap();
    let turn = within_timeout(session.prompt("say One.\nsleep 60000")).await.unwrap();
    knows(&session, |said| said.len() == 2).await;
    within_timeout(first.disconnect()).await;
    let _found = within_timeout(crate::spawn(&args).await.rejoin(&session, HERE.as_ref())).await.unwrap();
    assert!(matches!(within_timeout(turn.outcome()).await, Err(Error::Disconnected)));
}

#[tokio::test]
async fn a_turn_of_version_1_goes_on_while_its_session_is_told_anew() {
    let state = tempfile::tempdir().unwrap();
    let args = ["--version", "1", "--state", state.path().to_str().unwrap()];
    let client = crate::spawn(&args).await;
    let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
    let turn = within_timeout(session.prompt("say One.\nsleep 60000")).await.unwrap();
    knows(&session, |said| said.len() == 2).await;
    within_timeout(client.load(session.id(), HERE.as_ref())).await.unwrap();
    let (end, ()) = tokio::join!(within_timeout(turn.outcome()), async { session.cancel().await.unwrap() });
    assert_eq!(reason(&end.unwrap()), "cancelled");
}

#[tokio::test]
async fn a_turn_ends_also_if_its_message_is_never_told() {
    let (session, mut peer) = begun(&chunk("m", "One.", None)).await;
    for reason_given in ["end_turn", "refusal"] {
        let (turn, ()) = tokio::join!(within_timeout(session.prompt("Two?")), async {
            let request = peer.asked("session/prompt").await;
            peer.says(&(request.answer(r#"{"messageId":"u"}"#) + &idle(reason_given, None))).await;
        });
        assert_eq!(reason(&within_timeout(turn.unwrap().outcome()).await.unwrap()), reason_given);
    }
}

#[tokio::test]
async fn a_turn_that_waits_for_another_does_not_end_with_it() {
    let (session, mut peer) = begun(&chunk("m", "One.", None)).await;
    let prompt_of = |text| within_timeout(session.prompt(text));
    let (first, second, ()) = tokio::join!(prompt_of("Two?"), prompt_of("Three?"), async {
        for message in ["u", "v"] {
            let request = peer.asked("session/prompt").await;
            peer.answer(&request, &format!(r#"{{"messageId":"{message}"}}"#)).await;
        }
    });
    let (first, second) = (first.unwrap(), second.unwrap());
    peer.says(&(prompt("u", "Two?", None) + &idle("end_turn", None))).await;
    assert_eq!(reason(&within_timeout(first.outcome()).await.unwrap()), "end_turn");
    let (end, ()) = tokio::join!(within_timeout(second.outcome()), async {
        peer.says(&(prompt("v", "Three?", None) + &idle("refusal", None))).await;
    });
    assert_eq!(reason(&end.unwrap()), "refusal");
}

/// The lost connection is half open, and the other one has yet to say that it goes on with the session.
#[tokio::test]
async fn what_the_lost_connection_tells_at_last_is_not_told_again() {
    let (lost, mut old) = begun(&chunk("m", "One", Some(3))).await;
    let (again, mut peer) = peer().await;
    fill(&again).await;
    let (found, ()) = tokio::join!(within_timeout(again.rejoin(&lost, HERE.as_ref())), async {
        old.says(&chunk("m", ", two", Some(4))).await;
        knows(&lost, |said| said == ["Agent: One, two"]).await;
        let resume = loop {
            let line = peer.hears().await;
            if line.get("id").is_some() {
                break Request::of(&line);
            }
        };
        assert_eq!(resume.replay_from().unwrap(), r#"{"type":"_parlor_after","seq":4}"#);
        peer.answer(&resume, r#"{"_meta":{"parlor/seq":4}}"#).await;
    });
    assert_eq!(said(&found.unwrap().transcript()), ["Agent: One, two"]);
}
