//! Requests of agents, and peers that violate the protocol.

use std::time::Duration;

use parlor_client::{Client, Error, Hello, Object, Version};
use parlor_testkit::wait::within_timeout;
use tokio::io::AsyncWriteExt;

use crate::peer::{Peer, connecting, peer};
use crate::{AGENTS, CWD, connector, lines_of, spawn, start_server, turn};

#[tokio::test]
async fn a_request_that_another_client_answers_is_cancelled() {
    let server = start_server();
    let (one, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let (two, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(one.new_session(CWD.as_ref())).await.unwrap();
    let (mut at_one, mut at_two) = (one.requests(), two.requests());
    within_timeout(two.load(session.id(), CWD.as_ref())).await.unwrap();
    let turn = within_timeout(session.prompt("ask Delete it")).await.unwrap();
    let (request, mut other) = tokio::join!(within_timeout(at_one.next()), within_timeout(at_two.next()));
    let request = request.unwrap();
    let option = request.options().remove(0);
    request.select(&option).await;
    assert!(within_timeout(other.as_mut().unwrap().cancelled()).await);
    within_timeout(turn.outcome()).await.unwrap();

    within_timeout(session.prompt("ask Delete more")).await.unwrap();
    let mut request = within_timeout(at_two.next()).await.unwrap();
    two.disconnect().await;
    assert!(!within_timeout(request.cancelled()).await, "it is the connection that went");
}

/// Everything is in this process: paused time advances only when no task can run.
#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_requests_and_reads_nothing_is_throttled() {
    let (client, Peer { mut lines, mut write }) = peer().await;
    let mut requests = client.requests();
    let mut asked = 0;
    loop {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{asked},\"method\":\"x/y\",\"params\":{{}}}}\n");
        if tokio::time::timeout(Duration::from_secs(1), write.write_all(line.as_bytes())).await.is_err() {
            break;
        }
        asked += 1;
        assert!(asked < 20_000, "nothing is throttled");
    }
    // It is served once it reads.
    let first = within_timeout(lines.next_line()).await.unwrap().unwrap();
    assert!(first.contains("-32601"), "{first}");
    assert_eq!(within_timeout(requests.next()).await.unwrap().method(), "x/y");
}

#[tokio::test]
async fn a_list_with_endless_pages_is_an_error() {
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
async fn an_undecodable_update_is_counted_and_skipped() {
    let (client, Peer { lines: _lines, mut write }) = peer().await;
    let session = client.session(&"s".into());
    let mut updates = session.updates();
    for update in [
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"no id"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"One."}}"#,
    ] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":{update}}}}}\n"
        );
        write.write_all(line.as_bytes()).await.unwrap();
    }
    within_timeout(updates.next()).await.unwrap();
    assert_eq!(lines_of(&session.transcript()), ["Agent: One."]);
    let losses = session.losses();
    assert!(losses.count == 1 && losses.latest[0].contains("messageId"), "{losses:?}");
}

/// Sends a request.
async fn call(client: &Client) -> Result<Object, Error> {
    within_timeout(client.call("x/y", &Object::default())).await
}

/// Sends a request from the peer.
async fn send_request(peer: &mut Peer, id: u32) {
    peer.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"x/y\",\"params\":{{}}}}\n")).await;
}

/// Expects that the client declines a request.
async fn expect_declined(peer: &mut Peer, id: u32) {
    let answer = peer.receive().await;
    assert_eq!(answer.get("id").unwrap().as_str(), id.to_string());
    assert!(answer.get("error").unwrap().as_str().contains("-32601"), "{answer:?}");
}

#[tokio::test]
async fn requests_without_a_consumer_are_declined() {
    let (client, mut peer) = peer().await;
    send_request(&mut peer, 1).await;
    expect_declined(&mut peer, 1).await;
    // A consumer exists, and is dropped.
    let mut requests = client.requests();
    send_request(&mut peer, 2).await;
    let request = within_timeout(requests.next()).await.unwrap();
    send_request(&mut peer, 3).await;
    drop(requests);
    expect_declined(&mut peer, 3).await;
    send_request(&mut peer, 4).await;
    expect_declined(&mut peer, 4).await;
    // A request that was delivered can still be answered.
    request.respond(Object::default()).await;
    assert_eq!(peer.receive().await.get("id").unwrap().as_str(), "2");
}

#[tokio::test]
async fn a_cancelled_request_is_not_delivered() {
    let (client, mut peer) = peer().await;
    let mut requests = client.requests();
    send_request(&mut peer, 1).await;
    send_request(&mut peer, 2).await;
    peer.send("{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":1}}\n").await;
    // A request replaces the one with the same id.
    send_request(&mut peer, 2).await;
    send_request(&mut peer, 3).await;
    // This response arrives after all of them were handled.
    let (answer, ()) = tokio::join!(call(&client), async {
        let request = peer.expect_request("x/y").await;
        peer.respond(&request, "{}").await;
    });
    answer.unwrap();
    for id in ["2", "3"] {
        within_timeout(requests.next()).await.unwrap().respond(Object::default()).await;
        assert_eq!(peer.receive().await.get("id").unwrap().as_str(), id);
    }
    // A late response is not used for another request with the same id.
    send_request(&mut peer, 4).await;
    let mut late = within_timeout(requests.next()).await.unwrap();
    send_request(&mut peer, 4).await;
    assert!(within_timeout(late.cancelled()).await);
    let text = r#"{"is":"late"}"#;
    late.respond(Object::parse(parlor_client::Json::parse(text).unwrap().raw()).unwrap()).await;
    within_timeout(requests.next()).await.unwrap().respond(Object::default()).await;
    assert_eq!(peer.receive().await.get("result").unwrap().as_str(), "{}");

    send_request(&mut peer, 5).await;
    drop(peer);
    within_timeout(client.closed()).await;
    assert!(within_timeout(requests.next()).await.is_none());
}

#[tokio::test]
async fn a_request_stream_does_not_keep_the_connection_open() {
    let (client, mut peer) = peer().await;
    let mut requests = client.requests();
    let waiting = tokio::spawn(async move { requests.next().await.is_none() });
    drop(client);
    assert!(within_timeout(peer.lines.next_line()).await.unwrap().is_none());
    drop(peer);
    assert!(within_timeout(waiting).await.unwrap());
}

#[tokio::test]
async fn malformed_messages_are_counted() {
    let (client, mut peer) = peer().await;
    peer.send("{\n").await;
    peer.write.write_all(b"\xff\n").await.unwrap();
    peer.send("{\"jsonrpc\":\"2.0\",\"method\":\"x/unread\"}\n").await;
    let (answer, ()) = tokio::join!(call(&client), async {
        let request = peer.expect_request("x/y").await;
        peer.respond(&request, "[]").await;
    });
    assert!(matches!(answer, Err(Error::Protocol(_))), "{answer:?}");
    let losses = client.losses();
    assert_eq!(losses.count, 3, "{losses:?}");
    assert!(losses.latest[1].contains("not UTF-8") && losses.latest[2].contains("x/unread"), "{losses:?}");
}

#[tokio::test]
async fn translation_losses_are_counted() {
    let client = spawn(AGENTS[0]).await;
    assert_eq!(client.losses().count, 0, "{:?}", client.losses());
    within_timeout(client.call("terminal/cancel", &Object::default())).await.unwrap_err();
    assert_eq!(client.losses().count, 1, "{:?}", client.losses());
}

#[tokio::test]
async fn a_response_over_the_size_limit_is_an_error() {
    let (client, mut peer) = peer().await;
    let (answer, ()) = tokio::join!(call(&client), async {
        let request = peer.expect_request("x/y").await;
        peer.respond(&request, &format!("{{\"a\":\"{}\"}}", "x".repeat(64 << 20))).await;
    });
    assert!(matches!(answer, Err(Error::TooLong)), "{answer:?}");
    // The next one arrives.
    let (answer, ()) = tokio::join!(call(&client), async {
        let request = peer.expect_request("x/y").await;
        peer.respond(&request, "{}").await;
    });
    answer.unwrap();
}

#[tokio::test]
async fn a_refused_initialize_has_the_reason() {
    let (connecting, mut peer) = connecting(None);
    let hello = peer.expect_request("initialize").await;
    peer.respond_error(&hello, -32000).await;
    assert_eq!(within_timeout(connecting).await.unwrap().unwrap_err().code(), Some(-32000));
    let (connecting, mut peer) = crate::peer::connecting(None);
    let hello = peer.expect_request("initialize").await;
    peer.respond(&hello, r#"{"protocolVersion":1,"agentCapabilities":{}}"#).await;
    let refused = within_timeout(connecting).await.unwrap().unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("version 1")), "{refused}");
}

/// An agent that asks for permission.
struct Careful;

impl parlor_agent::Agent for Careful {
    async fn prompt(
        &self,
        turn: parlor_agent::Turn,
    ) -> Result<parlor_agent::StopReason, parlor_agent::TurnError> {
        let call = turn.tool_call("Read it").start().await;
        call.request_permission([parlor_agent::PermissionOption::allow_once()]).await?;
        Ok(parlor_agent::StopReason::EndTurn)
    }
}

#[tokio::test]
async fn a_turn_ends_if_the_client_handles_no_requests() {
    let server = parlor_agent::Server::builder(Careful).start().await.unwrap();
    for version in [Version::V1, Version::V2] {
        let (read, write) = tokio::io::split(server.connect());
        let client = within_timeout(connector().only(version).over(read, write)).await.unwrap();
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        turn(&session, "Read it.").await;
    }
}
