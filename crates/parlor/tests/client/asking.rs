//! Questions of agents that somebody else answers, and peers that do not behave.

use std::time::Duration;

use parlor_client::{Error, Hello};
use tokio::io::AsyncWriteExt;

use crate::peer::{Peer, peer};
use crate::server::Server;
use crate::{HERE, connector, said, soon};

#[tokio::test]
async fn a_question_that_somebody_else_answers_is_withdrawn() {
    let server = Server::start();
    let (one, _) = soon(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let (two, _) = soon(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = soon(one.new_session(HERE.as_ref())).await.unwrap();
    soon(two.load(session.id(), HERE.as_ref())).await.unwrap();
    let turn = soon(session.prompt("ask Delete it")).await.unwrap();
    let (question, mut other) = tokio::join!(soon(one.question()), soon(two.question()));
    let question = question.unwrap();
    let choice = question.choices().remove(0);
    question.choose(&choice).await;
    assert!(soon(other.as_mut().unwrap().withdrawn()).await);
    soon(turn.end()).await.unwrap();

    soon(session.prompt("ask Delete more")).await.unwrap();
    let mut question = soon(two.question()).await.unwrap();
    two.disconnect().await;
    assert!(!soon(question.withdrawn()).await, "it is the connection that went");
}

#[tokio::test]
async fn a_peer_that_asks_and_does_not_listen_has_to_wait() {
    let (client, Peer { mut lines, mut write }) = peer().await;
    let mut asked = 0;
    loop {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{asked},\"method\":\"x/y\",\"params\":{{}}}}\n");
        // However slow the machine is, a line that is taken is taken by then.
        if tokio::time::timeout(Duration::from_secs(1), write.write_all(line.as_bytes())).await.is_err() {
            break;
        }
        asked += 1;
        assert!(asked < 20_000, "all of it was taken");
    }
    // Once it listens, it is heard.
    let first = soon(lines.next_line()).await.unwrap().unwrap();
    assert!(first.contains("-32601"), "{first}");
    assert_eq!(soon(client.question()).await.unwrap().method(), "x/y");
}

#[tokio::test]
async fn a_list_without_end_is_not_read_for_ever() {
    let (client, Peer { mut lines, mut write }) = peer().await;
    tokio::spawn(async move {
        let mut id = 1;
        while let Ok(Some(_)) = lines.next_line().await {
            let page = r#"{"sessions":[],"nextCursor":"more"}"#;
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{page}}}\n");
            write.write_all(line.as_bytes()).await.unwrap();
            id += 1;
        }
    });
    assert!(matches!(soon(client.list(None)).await, Err(Error::Odd(_))));
}

#[tokio::test]
async fn what_cannot_be_read_is_counted() {
    let (client, Peer { lines: _lines, mut write }) = peer().await;
    let session = client.session(&"s".into());
    let mut news = session.news();
    for update in [
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"no id"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"One."}}"#,
    ] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":{update}}}}}\n"
        );
        write.write_all(line.as_bytes()).await.unwrap();
    }
    soon(news.next()).await.unwrap();
    assert_eq!(said(&session.transcript()), ["Agent: One."]);
    let (count, why) = session.unread().unwrap();
    assert!(count == 1 && why.contains("messageId"), "{why}");
}
