//! Sessions that are closed and deleted, here and elsewhere: nobody waits for what cannot come.

use parlor_client::{Error, Hello, Session, Version};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::peer::{chunk, peer};
use crate::server::Server;
use crate::{HERE, connector, reason, said, soon, turn};

#[tokio::test]
async fn who_waits_learns_that_the_session_was_left() {
    for method in ["session/close", "session/delete"] {
        let (client, mut peer) = peer().await;
        let session = client.session(&"s".into());
        let (turn, ()) = tokio::join!(soon(session.prompt("Hello?")), async {
            let request = peer.asked("session/prompt").await;
            peer.answer(&request, r#"{"messageId":"u"}"#).await;
        });
        let turn = turn.unwrap();
        let mut news = session.news();
        let leaving =
            async { if method == "session/close" { session.close().await } else { session.delete().await } };
        let (end, idle, update, left, ()) =
            tokio::join!(soon(turn.end()), soon(session.idle()), soon(news.next()), soon(leaving), async {
                let request = peer.asked(method).await;
                peer.answer(&request, "{}").await;
            });
        left.unwrap();
        assert!(matches!(end, Err(Error::Left)), "{end:?}");
        assert!(matches!(idle, Err(Error::Left)), "{idle:?}");
        assert!(update.is_none());
    }
}

#[tokio::test]
async fn a_session_that_may_not_be_deleted_goes_on() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let (refused, ()) = tokio::join!(soon(session.delete()), async {
        let request = peer.asked("session/delete").await;
        peer.refuse(&request, -32601).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(-32601));
    let mut news = session.news();
    peer.says(&chunk("m", "Still here.", None)).await;
    soon(news.next()).await.unwrap();
    assert_eq!(said(&session.transcript()), ["Agent: Still here."]);
}

/// Two clients of one session, the second of this version.
async fn two(server: &Server, version: Version) -> (Session, Session) {
    let (first, _) = soon(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let connector = connector().only(version);
    let (second, _) = soon(connector.socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = soon(first.new_session(HERE.as_ref())).await.unwrap();
    let joined = soon(second.load(session.id(), HERE.as_ref())).await.unwrap();
    (session, joined)
}

#[tokio::test]
async fn a_turn_ends_when_somebody_else_deletes_its_session() {
    for version in [Version::V1, Version::V2] {
        let server = Server::start();
        let (session, other) = two(&server, version).await;
        let turn = soon(other.prompt("say Well.\nsleep 60000")).await.unwrap();
        crate::knows(&session, |said| said.last().is_some_and(|line| line == "Agent: Well.")).await;
        soon(session.delete()).await.unwrap();
        let end = soon(turn.end()).await.unwrap();
        assert_eq!(reason(&end), "cancelled", "{version:?}: {end:?}");
        let refused = soon(other.prompt("say More.")).await;
        let code = match refused {
            Err(error) => error.code(),
            // A prompt of version 1 is taken before it is answered.
            Ok(turn) => soon(turn.end()).await.unwrap().fields.get("error").and_then(|error| {
                parlor_client::Object::parse(error.raw()).ok()?.get("code")?.as_str().parse().ok()
            }),
        };
        assert_eq!(code, Some(-32002), "{version:?}");
    }
}

#[tokio::test]
async fn who_was_not_told_all_of_a_session_learns_that_it_was_deleted() {
    let server = Server::start();
    let (client, _) = soon(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = soon(client.new_session(HERE.as_ref())).await.unwrap();
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
    while !soon(lines.next_line()).await.unwrap().unwrap().contains("session/update") {}
    soon(session.delete()).await.unwrap();
    loop {
        let line = soon(lines.next_line()).await.unwrap().unwrap();
        if line.contains(r#""id":2"#) {
            assert!(line.contains("-32002"), "{line}");
            break;
        }
    }
}
