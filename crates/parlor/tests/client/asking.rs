//! PeerRequests of agents that somebody else answers, and peers that do not behave.

use std::time::Duration;

use parlor_client::{Client, Error, Hello, Object, Version};
use parlor_testkit::wait::within_timeout;
use tokio::io::AsyncWriteExt;

use crate::peer::{Peer, connecting, peer};
use crate::{AGENTS, HERE, connector, said, spawn, start_server, turn};

#[tokio::test]
async fn a_question_that_somebody_else_answers_is_withdrawn() {
    let server = start_server();
    let (one, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let (two, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(one.new_session(HERE.as_ref())).await.unwrap();
    let (mut at_one, mut at_two) = (one.requests(), two.requests());
    within_timeout(two.load(session.id(), HERE.as_ref())).await.unwrap();
    let turn = within_timeout(session.prompt("ask Delete it")).await.unwrap();
    let (question, mut other) = tokio::join!(within_timeout(at_one.next()), within_timeout(at_two.next()));
    let question = question.unwrap();
    let choice = question.options().remove(0);
    question.select(&choice).await;
    assert!(within_timeout(other.as_mut().unwrap().cancelled()).await);
    within_timeout(turn.outcome()).await.unwrap();

    within_timeout(session.prompt("ask Delete more")).await.unwrap();
    let mut question = within_timeout(at_two.next()).await.unwrap();
    two.disconnect().await;
    assert!(!within_timeout(question.cancelled()).await, "it is the connection that went");
}

/// All is in this process: the clock moves on only when nobody can do anything more.
#[tokio::test(start_paused = true)]
async fn a_peer_that_asks_and_does_not_listen_has_to_wait() {
    let (client, Peer { mut lines, mut write }) = peer().await;
    let mut questions = client.requests();
    let mut asked = 0;
    loop {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{asked},\"method\":\"x/y\",\"params\":{{}}}}\n");
        if tokio::time::timeout(Duration::from_secs(1), write.write_all(line.as_bytes())).await.is_err() {
            break;
        }
        asked += 1;
        assert!(asked < 20_000, "all of it was taken");
    }
    // Once it listens, it is heard.
    let first = within_timeout(lines.next_line()).await.unwrap().unwrap();
    assert!(first.contains("-32601"), "{first}");
    assert_eq!(within_timeout(questions.next()).await.unwrap().method(), "x/y");
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
    assert!(matches!(within_timeout(client.list(None)).await, Err(Error::Protocol(_))));
}

#[tokio::test]
async fn what_cannot_be_read_is_counted() {
    let (client, Peer { lines: _lines, mut write }) = peer().await;
    let session = client.session(&"s".into());
    let mut news = session.updates();
    for update in [
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"no id"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"One."}}"#,
    ] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":{update}}}}}\n"
        );
        write.write_all(line.as_bytes()).await.unwrap();
    }
    within_timeout(news.next()).await.unwrap();
    assert_eq!(said(&session.transcript()), ["Agent: One."]);
    let (count, why) = session.unread().unwrap();
    assert!(count == 1 && why.contains("messageId"), "{why}");
}

/// Asks something.
async fn asked(client: &Client) -> Result<Object, Error> {
    within_timeout(client.call("x/y", &Object::default())).await
}

/// Has the peer ask something.
async fn asks(peer: &mut Peer, id: u32) {
    peer.says(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"x/y\",\"params\":{{}}}}\n")).await;
}

/// The peer is told that this cannot be answered.
async fn is_declined(peer: &mut Peer, id: u32) {
    let answer = peer.hears().await;
    assert_eq!(answer.get("id").unwrap().as_str(), id.to_string());
    assert!(answer.get("error").unwrap().as_str().contains("-32601"), "{answer:?}");
}

#[tokio::test]
async fn a_question_that_nobody_wants_is_declined() {
    let (client, mut peer) = peer().await;
    asks(&mut peer, 1).await;
    is_declined(&mut peer, 1).await;
    // Somebody wants to be asked, and then does not any more.
    let mut questions = client.requests();
    asks(&mut peer, 2).await;
    let question = within_timeout(questions.next()).await.unwrap();
    asks(&mut peer, 3).await;
    drop(questions);
    is_declined(&mut peer, 3).await;
    asks(&mut peer, 4).await;
    is_declined(&mut peer, 4).await;
    // What somebody has looked at is theirs.
    question.respond(Object::default()).await;
    assert_eq!(peer.hears().await.get("id").unwrap().as_str(), "2");
}

#[tokio::test]
async fn a_question_that_was_withdrawn_is_not_asked() {
    let (client, mut peer) = peer().await;
    let mut questions = client.requests();
    asks(&mut peer, 1).await;
    asks(&mut peer, 2).await;
    peer.says("{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":1}}\n").await;
    // One that takes the place of another that has its id.
    asks(&mut peer, 2).await;
    asks(&mut peer, 3).await;
    // All of it was heard when this is.
    let (answer, ()) = tokio::join!(asked(&client), async {
        let request = peer.asked("x/y").await;
        peer.answer(&request, "{}").await;
    });
    answer.unwrap();
    for id in ["2", "3"] {
        within_timeout(questions.next()).await.unwrap().respond(Object::default()).await;
        assert_eq!(peer.hears().await.get("id").unwrap().as_str(), id);
    }
    // What is answered too late is not the answer to another that has its id.
    asks(&mut peer, 4).await;
    let mut late = within_timeout(questions.next()).await.unwrap();
    asks(&mut peer, 4).await;
    assert!(within_timeout(late.cancelled()).await);
    let text = r#"{"is":"late"}"#;
    late.respond(Object::parse(parlor_client::Json::parse(text).unwrap().raw()).unwrap()).await;
    within_timeout(questions.next()).await.unwrap().respond(Object::default()).await;
    assert_eq!(peer.hears().await.get("result").unwrap().as_str(), "{}");

    asks(&mut peer, 5).await;
    drop(peer);
    within_timeout(client.closed()).await;
    assert!(within_timeout(questions.next()).await.is_none());
}

#[tokio::test]
async fn who_waits_for_questions_keeps_no_connection() {
    let (client, mut peer) = peer().await;
    let mut questions = client.requests();
    let waiting = tokio::spawn(async move { questions.next().await.is_none() });
    drop(client);
    assert!(within_timeout(peer.lines.next_line()).await.unwrap().is_none());
    drop(peer);
    assert!(within_timeout(waiting).await.unwrap());
}

#[tokio::test]
async fn what_makes_no_sense_is_counted() {
    let (client, mut peer) = peer().await;
    peer.says("{\n").await;
    peer.write.write_all(b"\xff\n").await.unwrap();
    peer.says("{\"jsonrpc\":\"2.0\",\"method\":\"x/unheard\"}\n").await;
    let (answer, ()) = tokio::join!(asked(&client), async {
        let request = peer.asked("x/y").await;
        peer.answer(&request, "[]").await;
    });
    assert!(matches!(answer, Err(Error::Protocol(_))), "{answer:?}");
    let losses = client.losses();
    assert_eq!(losses.count, 3, "{losses:?}");
    assert!(losses.latest[1].contains("no text") && losses.latest[2].contains("x/unheard"), "{losses:?}");
}

#[tokio::test]
async fn what_cannot_be_said_to_the_other_side_is_counted() {
    let client = spawn(AGENTS[0]).await;
    assert_eq!(client.losses().count, 0, "{:?}", client.losses());
    within_timeout(client.call("terminal/cancel", &Object::default())).await.unwrap_err();
    assert_eq!(client.losses().count, 1, "{:?}", client.losses());
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_an_error() {
    let (client, mut peer) = peer().await;
    let (answer, ()) = tokio::join!(asked(&client), async {
        let request = peer.asked("x/y").await;
        peer.answer(&request, &format!("{{\"a\":\"{}\"}}", "x".repeat(64 << 20))).await;
    });
    assert!(matches!(answer, Err(Error::TooLong)), "{answer:?}");
    // The next one is heard.
    let (answer, ()) = tokio::join!(asked(&client), async {
        let request = peer.asked("x/y").await;
        peer.answer(&request, "{}").await;
    });
    answer.unwrap();
}

#[tokio::test]
async fn who_refuses_says_why() {
    let (connecting, mut peer) = connecting(None);
    let hello = peer.asked("initialize").await;
    peer.refuse(&hello, -32000).await;
    assert_eq!(within_timeout(connecting).await.unwrap().unwrap_err().code(), Some(-32000));
    let (connecting, mut peer) = crate::peer::connecting(None);
    let hello = peer.asked("initialize").await;
    peer.answer(&hello, r#"{"protocolVersion":1,"agentCapabilities":{}}"#).await;
    let refused = within_timeout(connecting).await.unwrap().unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("version 1")), "{refused}");
}

/// An agent that does nothing without permission.
struct Careful;

impl parlor_agent::Agent for Careful {
    async fn prompt(&self, turn: parlor_agent::Turn) -> Result<parlor_agent::Stop, parlor_agent::Failure> {
        let call = turn.tool("Read it").start().await;
        call.ask(&[parlor_agent::Choice::AllowOnce]).await?;
        Ok(parlor_agent::Stop::EndTurn)
    }
}

#[tokio::test]
async fn the_turn_of_a_client_that_answers_nothing_ends() {
    let server = parlor_agent::Server::of(Careful).start().await.unwrap();
    for version in [Version::V1, Version::V2] {
        let (read, write) = tokio::io::split(server.connect());
        let client = within_timeout(connector().only(version).over(read, write)).await.unwrap();
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        turn(&session, "Read it.").await;
    }
}
