//! Sessions that are closed and deleted, here and elsewhere: nobody waits for what cannot come.

use parlor_client::{Error, Hello, Session, Version};
use parlor_testkit::server::Server;
use parlor_testkit::wait::within_timeout;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::peer::{chunk, peer};
use crate::{HERE, connector, reason, said, start_server, turn};

#[tokio::test]
async fn who_waits_learns_that_the_session_was_left() {
    for method in ["session/close", "session/delete"] {
        let (client, mut peer) = peer().await;
        let session = client.session(&"s".into());
        let (turn, ()) = tokio::join!(within_timeout(session.prompt("Hello?")), async {
            let request = peer.asked("session/prompt").await;
            peer.answer(&request, r#"{"messageId":"u"}"#).await;
        });
        let turn = turn.unwrap();
        let mut news = session.updates();
        let leaving =
            async { if method == "session/close" { session.close().await } else { session.delete().await } };
        let (end, idle, update, left, ()) = tokio::join!(
            within_timeout(turn.outcome()),
            within_timeout(session.idle()),
            within_timeout(news.next()),
            within_timeout(leaving),
            async {
                let request = peer.asked(method).await;
                peer.answer(&request, "{}").await;
            }
        );
        left.unwrap();
        assert!(matches!(end, Err(Error::SessionClosed)), "{end:?}");
        assert!(matches!(idle, Err(Error::SessionClosed)), "{idle:?}");
        assert!(update.is_none());
    }
}

#[tokio::test]
async fn a_session_that_may_not_be_deleted_goes_on() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let (refused, ()) = tokio::join!(within_timeout(session.delete()), async {
        let request = peer.asked("session/delete").await;
        peer.refuse(&request, -32601).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(-32601));
    let mut news = session.updates();
    peer.says(&chunk("m", "Still here.", None)).await;
    within_timeout(news.next()).await.unwrap();
    assert_eq!(said(&session.transcript()), ["Agent: Still here."]);
}

#[tokio::test]
async fn what_comes_after_a_session_was_left_is_not_kept() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let (left, ()) = tokio::join!(within_timeout(session.close()), async {
        let request = peer.asked("session/close").await;
        peer.says(&(request.answer("{}") + &chunk("m", "Too late.", None))).await;
    });
    left.unwrap();
    let (joined, ()) = tokio::join!(within_timeout(client.join(session.id(), HERE.as_ref())), async {
        let request = peer.asked("session/resume").await;
        peer.says(&(chunk("n", "Two.", None) + &request.answer("{}"))).await;
    });
    assert_eq!(said(&joined.unwrap().transcript()), ["Agent: Two."]);
}

#[tokio::test]
async fn what_comes_before_a_session_is_named_is_kept() {
    let (client, mut peer) = peer().await;
    let params = parlor_client::Object::default();
    let (answer, ()) = tokio::join!(within_timeout(client.call("x/new", &params)), async {
        let request = peer.asked("x/new").await;
        let lines = chunk("m", "One", None) + &request.answer(r#"{"sessionId":"s"}"#);
        peer.says(&(lines + &chunk("m", ", two", None))).await;
    });
    answer.unwrap();
    let session = client.session(&"s".into());
    crate::knows(&session, |said| said == ["Agent: One, two"]).await;
    within_timeout(client.disconnect()).await;

    let (client, mut peer) = crate::peer::peer().await;
    let (session, ()) = tokio::join!(within_timeout(client.new_session(HERE.as_ref())), async {
        let request = peer.asked("session/new").await;
        peer.says(&(chunk("m", "One", None) + &request.answer(r#"{"sessionId":"s"}"#))).await;
    });
    assert_eq!(said(&session.unwrap().transcript()), ["Agent: One"]);
}

#[tokio::test]
async fn nobody_waits_for_a_session_of_a_connection_that_is_gone() {
    let (client, peer) = peer().await;
    drop(peer);
    within_timeout(client.closed()).await;
    let session = client.session(&"s".into());
    assert!(matches!(within_timeout(session.idle()).await, Err(Error::Disconnected)));
    assert!(within_timeout(session.updates().next()).await.is_none());
}

#[tokio::test]
async fn no_more_sessions_are_followed_than_somebody_can_have() {
    let (client, mut peer) = peer().await;
    let mut sessions: Vec<_> =
        (0..10_000).map(|number| client.session(&number.to_string().as_str().into())).collect();
    assert!(matches!(within_timeout(client.session(&"s".into()).idle()).await, Err(Error::NotSubscribed)));
    assert!(matches!(within_timeout(client.join(&"s".into(), HERE.as_ref())).await, Err(Error::Busy)));
    assert!(matches!(within_timeout(client.new_session(HERE.as_ref())).await, Err(Error::Busy)));
    // One that nobody has makes room.
    sessions.pop();
    let session = client.session(&"s".into());
    let mut news = session.updates();
    peer.says(&chunk("m", "One.", None)).await;
    within_timeout(news.next()).await.unwrap();
}

/// Two clients of one session, the second of this version.
async fn two(server: &Server, version: Version) -> (Session, Session) {
    let (first, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let connector = connector().only(version);
    let (second, _) = within_timeout(connector.socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(first.new_session(HERE.as_ref())).await.unwrap();
    let joined = within_timeout(second.load(session.id(), HERE.as_ref())).await.unwrap();
    (session, joined)
}

#[tokio::test]
async fn a_turn_ends_when_somebody_else_deletes_its_session() {
    for version in [Version::V1, Version::V2] {
        let server = start_server();
        let (session, other) = two(&server, version).await;
        let turn = within_timeout(other.prompt("say Well.\nsleep 60000")).await.unwrap();
        crate::knows(&session, |said| said.last().is_some_and(|line| line == "Agent: Well.")).await;
        within_timeout(session.delete()).await.unwrap();
        let end = within_timeout(turn.outcome()).await.unwrap();
        assert_eq!(reason(&end), "cancelled", "{version:?}: {end:?}");
        let refused = within_timeout(other.prompt("say More.")).await;
        let code = match refused {
            Err(error) => error.code(),
            // A prompt of version 1 is taken before it is answered.
            Ok(turn) => within_timeout(turn.outcome()).await.unwrap().fields.get("error").and_then(|error| {
                parlor_client::Object::parse(error.raw()).ok()?.get("code")?.as_str().parse().ok()
            }),
        };
        assert_eq!(code, Some(-32002), "{version:?}");
    }
}

#[tokio::test]
async fn who_was_not_told_all_of_a_session_learns_that_it_was_deleted() {
    let server = start_server();
    let (client, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
    turn(&session, "stream 4000 1000").await;

    let slow = UnixStream::connect(server.socket()).await.unwrap();
    let (read, mut write) = slow.into_split();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{}}}"#;
    let id = session.id().as_json().as_literal();
    let params = format!(r#"{{"sessionId":{id},"cwd":"/","mcpServers":[],"replayFrom":{{"type":"start"}}}}"#);
    let load = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{params}}}"#);
    write.write_all(format!("{}{hello}\n{load}\n", Hello::new().to_line()).as_bytes()).await.unwrap();
    let mut lines = BufReader::new(read).lines();
    // It has begun to be told, and reads on only when the session is gone.
    while !within_timeout(lines.next_line()).await.unwrap().unwrap().contains("session/update") {}
    within_timeout(session.delete()).await.unwrap();
    loop {
        let line = within_timeout(lines.next_line()).await.unwrap().unwrap();
        if line.contains(r#""id":2"#) {
            assert!(line.contains("-32002"), "{line}");
            break;
        }
    }
}
