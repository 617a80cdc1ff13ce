//! Sessions that this client or another one closes or deletes: no call waits forever.

use parlor_client::{Error, Hello, Session, Version};
use parlor_testkit::server::Server;
use parlor_testkit::wait::within_timeout;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::peer::{chunk, fill, peer};
use crate::{CWD, connector, lines_of, start_server, stop_reason, turn};

#[tokio::test]
async fn waiting_calls_fail_when_the_session_is_closed_or_deleted() {
    for method in ["session/close", "session/delete"] {
        let (client, mut peer) = peer().await;
        let session = client.session(&"s".into());
        let (turn, ()) = tokio::join!(within_timeout(session.prompt("Hello?")), async {
            let request = peer.expect_request("session/prompt").await;
            peer.respond(&request, r#"{"messageId":"u"}"#).await;
        });
        let turn = turn.unwrap();
        let mut updates = session.updates();
        let leaving =
            async { if method == "session/close" { session.close().await } else { session.delete().await } };
        let (end, idle, update, left, ()) = tokio::join!(
            within_timeout(turn.outcome()),
            within_timeout(session.idle()),
            within_timeout(updates.next()),
            within_timeout(leaving),
            async {
                let request = peer.expect_request(method).await;
                peer.respond(&request, "{}").await;
            }
        );
        left.unwrap();
        assert!(matches!(end, Err(Error::SessionClosed)), "{end:?}");
        assert!(matches!(idle, Err(Error::SessionClosed)), "{idle:?}");
        assert!(update.is_none());
    }
}

#[tokio::test]
async fn a_refused_delete_keeps_the_subscription() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let (refused, ()) = tokio::join!(within_timeout(session.delete()), async {
        let request = peer.expect_request("session/delete").await;
        peer.respond_error(&request, -32601).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(-32601));
    let mut updates = session.updates();
    peer.send(&chunk("m", "Still here.", None)).await;
    within_timeout(updates.next()).await.unwrap();
    assert_eq!(lines_of(&session.transcript()), ["Agent: Still here."]);
}

#[tokio::test]
async fn updates_after_a_close_are_dropped() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let (left, ()) = tokio::join!(within_timeout(session.close()), async {
        let request = peer.expect_request("session/close").await;
        peer.send(&(request.response("{}") + &chunk("m", "Too late.", None))).await;
    });
    left.unwrap();
    let (joined, ()) = tokio::join!(within_timeout(client.join(session.id(), CWD.as_ref())), async {
        let request = peer.expect_request("session/resume").await;
        peer.send(&(chunk("n", "Two.", None) + &request.response("{}"))).await;
    });
    assert_eq!(lines_of(&joined.unwrap().transcript()), ["Agent: Two."]);
}

#[tokio::test]
async fn early_updates_are_kept_until_a_response_names_their_session() {
    let (client, mut peer) = peer().await;
    let params = parlor_client::Object::default();
    let (answer, ()) = tokio::join!(within_timeout(client.call("x/new", &params)), async {
        let request = peer.expect_request("x/new").await;
        let lines = chunk("m", "One", None) + &request.response(r#"{"sessionId":"s"}"#);
        peer.send(&(lines + &chunk("m", ", two", None))).await;
    });
    answer.unwrap();
    let session = client.session(&"s".into());
    crate::wait_for_transcript(&session, |said| said == ["Agent: One, two"]).await;
    within_timeout(client.disconnect()).await;

    let (client, mut peer) = crate::peer::peer().await;
    let (session, ()) = tokio::join!(within_timeout(client.new_session(CWD.as_ref())), async {
        let request = peer.expect_request("session/new").await;
        peer.send(&(chunk("m", "One", None) + &request.response(r#"{"sessionId":"s"}"#))).await;
    });
    assert_eq!(lines_of(&session.unwrap().transcript()), ["Agent: One"]);
}

#[tokio::test]
async fn a_session_of_a_closed_connection_fails_at_once() {
    let (client, peer) = peer().await;
    drop(peer);
    within_timeout(client.closed()).await;
    let session = client.session(&"s".into());
    assert!(matches!(within_timeout(session.idle()).await, Err(Error::Disconnected)));
    assert!(within_timeout(session.updates().next()).await.is_none());
}

#[tokio::test]
async fn the_number_of_tracked_sessions_is_limited() {
    let (client, mut peer) = peer().await;
    let mut sessions: Vec<_> =
        (0..10_000).map(|number| client.session(&number.to_string().as_str().into())).collect();
    assert!(matches!(within_timeout(client.session(&"s".into()).idle()).await, Err(Error::NotSubscribed)));
    assert!(matches!(within_timeout(client.join(&"s".into(), CWD.as_ref())).await, Err(Error::Busy)));
    assert!(matches!(within_timeout(client.new_session(CWD.as_ref())).await, Err(Error::Busy)));
    // A session without a handle makes room.
    sessions.pop();
    let session = client.session(&"s".into());
    let mut updates = session.updates();
    peer.send(&chunk("m", "One.", None)).await;
    within_timeout(updates.next()).await.unwrap();
}

/// Two clients of one session, the second with this version.
async fn two(server: &Server, version: Version) -> (Session, Session) {
    let (first, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let connector = connector().only(version);
    let (second, _) = within_timeout(connector.socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(first.new_session(CWD.as_ref())).await.unwrap();
    let joined = within_timeout(second.load(session.id(), CWD.as_ref())).await.unwrap();
    (session, joined)
}

#[tokio::test]
async fn a_turn_ends_when_another_client_deletes_the_session() {
    for version in [Version::V1, Version::V2] {
        let server = start_server();
        let (session, other) = two(&server, version).await;
        let turn = within_timeout(other.prompt("say Well.\nsleep 60000")).await.unwrap();
        crate::wait_for_transcript(&session, |said| said.last().is_some_and(|line| line == "Agent: Well."))
            .await;
        within_timeout(session.delete()).await.unwrap();
        let end = within_timeout(turn.outcome()).await.unwrap();
        assert_eq!(stop_reason(&end), "cancelled", "{version:?}: {end:?}");
        let refused = within_timeout(other.prompt("say More.")).await;
        let code = match refused {
            Err(error) => error.code(),
            // A prompt of version 1 is accepted before its response.
            Ok(turn) => {
                within_timeout(turn.outcome()).await.unwrap().state.fields.get("error").and_then(|error| {
                    parlor_client::Object::parse(error.raw()).ok()?.get("code")?.as_str().parse().ok()
                })
            }
        };
        assert_eq!(code, Some(-32002), "{version:?}");
    }
}

#[tokio::test]
async fn a_load_fails_when_the_session_is_deleted_meanwhile() {
    let server = start_server();
    let (client, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
    turn(&session, "stream 4000 1000").await;

    let slow = UnixStream::connect(server.socket()).await.unwrap();
    let (read, mut write) = slow.into_split();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{}}}"#;
    let id = session.id().as_json().as_literal();
    let params = format!(r#"{{"sessionId":{id},"cwd":"/","mcpServers":[],"replayFrom":{{"type":"start"}}}}"#);
    let load = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{params}}}"#);
    write.write_all(format!("{}{hello}\n{load}\n", Hello::new().to_line()).as_bytes()).await.unwrap();
    let mut lines = BufReader::new(read).lines();
    // The replay has begun; the client reads on after the session was deleted.
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

#[tokio::test(start_paused = true)]
async fn a_client_disconnects_from_a_peer_that_does_not_read() {
    let (client, _peer) = peer().await;
    fill(&client).await;
    within_timeout(client.disconnect()).await;
}
