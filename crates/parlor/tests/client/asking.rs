//! Questions of agents that somebody else answers, or nobody.

use std::time::Duration;

use parlor_client::{Hello, Version};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::server::Server;
use crate::{HERE, connector, soon};

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
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(ours);
    let (their_read, mut their_write) = tokio::io::split(theirs);
    let connecting = tokio::spawn(async move { connector().only(Version::V2).over(read, write).await });
    let mut lines = BufReader::new(their_read).lines();
    soon(lines.next_line()).await.unwrap().unwrap();
    let welcome = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{}}}"#;
    their_write.write_all(format!("{welcome}\n").as_bytes()).await.unwrap();
    let client = soon(connecting).await.unwrap().unwrap();
    let mut asked = 0;
    let flood = async {
        while asked < 100_000 {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{asked},"method":"x/y","params":{{}}}}"#);
            their_write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            asked += 1;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(1), flood).await.is_err(), "all of it was taken");
    // Once it listens, it is heard.
    let first = soon(lines.next_line()).await.unwrap().unwrap();
    assert!(first.contains("-32601"), "{first}");
    assert_eq!(soon(client.question()).await.unwrap().method(), "x/y");
}
