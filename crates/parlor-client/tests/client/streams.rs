//! Turns, updates and notifications as streams, typed values, snapshots and tracing.

use std::io;
use std::sync::{Arc, Mutex};

use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt};
use parlor_client::{
    Client, EntryId, Error, Object, PeerRequest, PermissionOptionKind, Role, Session, StopReason, TextDelta,
    ToolCall, ToolCallStatus, ToolKind, Turn, TurnEvent, code,
};
use parlor_testkit::wait::within_timeout;

use crate::peer::{Peer, chunk, idle, peer, prompt, update};
use crate::{AGENTS, CWD, lines_of, spawn, wait_for_transcript};

/// A session of a peer that has accepted a prompt.
async fn accepted() -> (Session, Turn, Peer) {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let (turn, ()) = tokio::join!(within_timeout(session.prompt("Hello?")), async {
        let request = peer.expect_request("session/prompt").await;
        peer.respond(&request, r#"{"messageId":"u"}"#).await;
    });
    (session, turn.unwrap(), peer)
}

/// Waits until the client has handled everything that the peer sent.
async fn handled(client: &Client, peer: &mut Peer) {
    let params = Object::default();
    let (result, ()) = tokio::join!(within_timeout(client.call("x/y", &params)), async {
        let request = peer.expect_request("x/y").await;
        peer.respond(&request, "{}").await;
    });
    result.unwrap();
}

/// The agent's text in the events of a turn.
fn agent_text(events: &[TurnEvent]) -> String {
    let updates = events.iter().filter_map(|event| match event {
        TurnEvent::Update(update) => TextDelta::of(update),
        TurnEvent::Ended(_) => None,
    });
    updates.filter(|delta| delta.role == Role::Agent).map(|delta| delta.text).collect()
}

#[tokio::test]
async fn a_turn_is_a_stream_of_all_its_updates_that_ends_with_the_outcome() {
    for args in AGENTS {
        let session = within_timeout(spawn(args).await.new_session(CWD.as_ref())).await.unwrap();
        for n in 0..20 {
            let mut turn = within_timeout(session.prompt(format!("say {n}."))).await.unwrap();
            let events: Vec<_> = within_timeout((&mut turn).try_collect()).await.unwrap();
            assert_eq!(agent_text(&events), format!("{n}."), "{args:?}");
            let outcomes: Vec<_> =
                events.iter().filter(|event| matches!(event, TurnEvent::Ended(_))).collect();
            let Some(TurnEvent::Ended(outcome)) = events.last() else { panic!("{events:?}") };
            assert_eq!((outcomes.len(), outcome.stop_reason.as_ref()), (1, Some(&StopReason::EndTurn)));
            assert!(within_timeout(turn.next()).await.is_none());
        }
    }
}

#[tokio::test]
async fn awaiting_a_turn_returns_its_outcome() {
    let session = within_timeout(spawn(AGENTS[2]).await.new_session(CWD.as_ref())).await.unwrap();
    let outcome = within_timeout(async { session.prompt("refuse").await?.await }).await.unwrap();
    assert_eq!(outcome.stop_reason, Some(StopReason::Refusal));
}

#[tokio::test]
async fn the_stream_of_a_turn_leaves_out_what_follows_the_turn() {
    let (session, turn, mut peer) = accepted().await;
    let own = prompt("u", "Hello?", None) + &chunk("m", "Hello.", None) + &idle("_budget", None);
    let later = prompt("v", "More?", None) + &chunk("n", "More.", None) + &idle("end_turn", None);
    peer.send(&(own + &later)).await;
    handled(session.client(), &mut peer).await;
    let events: Vec<_> = within_timeout(turn.try_collect()).await.unwrap();
    assert_eq!(agent_text(&events), "Hello.");
    let Some(TurnEvent::Ended(outcome)) = events.last() else { panic!("{events:?}") };
    // A stop reason that the library does not know is kept.
    assert!(matches!(&outcome.stop_reason, Some(StopReason::Other(reason)) if reason.to_text() == "_budget"));
}

#[tokio::test]
async fn the_stream_of_a_turn_ends_with_an_error_when_the_connection_is_lost() {
    let (_session, mut turn, mut peer) = accepted().await;
    peer.send(&chunk("m", "Hel", None)).await;
    drop(peer);
    let event = within_timeout(turn.next()).await.unwrap().unwrap();
    assert_eq!(agent_text(&[event]), "Hel");
    let error = within_timeout(turn.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Disconnected), "{error}");
    assert!(within_timeout(turn.next()).await.is_none());
}

#[tokio::test]
async fn a_dropped_next_loses_no_event() {
    let (_session, mut turn, mut peer) = accepted().await;
    tokio::select! {
        biased;
        event = turn.next() => panic!("{event:?}"),
        () = std::future::ready(()) => {}
    }
    peer.send(&(prompt("u", "Hello?", None) + &chunk("m", "Hello.", None) + &idle("end_turn", None))).await;
    let events: Vec<_> = within_timeout(turn.try_collect()).await.unwrap();
    assert_eq!(agent_text(&events), "Hello.");
}

#[tokio::test]
async fn each_request_goes_to_one_of_the_streams() {
    fn is_stream(_: &impl Stream<Item = PeerRequest>) {}

    let (client, mut peer) = peer().await;
    let (mut one, mut two) = (client.requests(), client.requests());
    is_stream(&one);
    let collect = async |requests: &mut parlor_client::PeerRequests| {
        let mut count = 0;
        while let Some(request) = within_timeout(requests.next()).await {
            request.respond(Object::default()).await;
            count += 1;
        }
        count
    };
    let requests = async {
        for id in 0..100 {
            peer.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"x/y\",\"params\":{{}}}}\n"))
                .await;
            assert_eq!(peer.receive().await.get("id").unwrap().as_str(), id.to_string());
        }
        drop(peer);
    };
    let (one, two, ()) = tokio::join!(collect(&mut one), collect(&mut two), requests);
    assert_eq!(one + two, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_before_a_request_are_readable_when_it_is_delivered() {
    for _ in 0..100 {
        let (client, mut peer) = peer().await;
        let session = client.session(&"s".into());
        let (mut updates, mut requests) = (session.updates(), client.requests());
        // The stream waits already.
        assert!(updates.next().now_or_never().is_none());
        let request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x/y\",\"params\":{}}\n";
        let later = chunk("n", "More.", None).repeat(100);
        peer.send(&(chunk("m", "One.", None) + request + &later)).await;
        within_timeout(requests.next()).await.unwrap();
        let update = updates.next().now_or_never().flatten().expect("an update");
        assert_eq!(TextDelta::of(&update).unwrap().text, "One.");
    }
}

#[tokio::test]
async fn unknown_option_kinds_are_kept() {
    let (client, mut peer) = peer().await;
    let mut requests = client.requests();
    let options = r#"[{"optionId":"a","kind":"allow_once"},{"optionId":"b","kind":"allow_session"}]"#;
    let params =
        format!(r#"{{"sessionId":"s","toolCall":{{"toolCallId":"t","title":"Edit"}},"options":{options}}}"#);
    let method = "session/request_permission";
    peer.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}\n"))
        .await;
    let request = within_timeout(requests.next()).await.unwrap();
    assert_eq!((request.title().as_deref(), request.tool_call_id()), (Some("Edit"), Some("t".into())));
    let options = request.options();
    assert_eq!(options[0].kind, PermissionOptionKind::AllowOnce);
    assert_eq!(options[1].kind.to_string(), "allow_session");
    request.select(&options[1]).await;
    let response = peer.receive().await;
    assert!(response.get("result").unwrap().as_str().contains(r#""optionId":"b""#), "{response:?}");
}

#[tokio::test]
async fn a_tool_call_has_typed_values_and_keeps_its_json() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let mut updates = session.updates();
    let fields = r#""title":"Read","kind":"read","locations":[{"path":"/a","line":7}],"rawInput":{"n":1e400},"_own":1"#;
    let call = |rest: &str| {
        update(&format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"t"{rest}}}"#), None)
    };
    peer.send(&call(&format!(r#",{fields},"status":"pending""#))).await;
    within_timeout(updates.next()).await.unwrap();
    peer.send(&call(r#","status":"_paused""#)).await;
    let changed = within_timeout(updates.next()).await.unwrap();
    let changed = ToolCall::of_update(&changed).unwrap();
    assert_eq!(changed.status().unwrap().to_string(), "_paused");

    let transcript = session.transcript();
    let entry = transcript.get(&EntryId::ToolCall("t".into())).unwrap();
    let call = ToolCall::of_entry(entry).unwrap();
    assert_eq!((call.title().as_deref(), call.kind()), (Some("Read"), Some(ToolKind::Read)));
    assert!(matches!(call.status(), Some(ToolCallStatus::Other(_))));
    assert_eq!((call.locations()[0].path.as_str(), call.locations()[0].line), ("/a", Some(7)));
    assert_eq!(call.raw_input().unwrap().as_str(), r#"{"n":1e400}"#);
    assert_eq!(call.fields().get("_own").unwrap().as_str(), "1");
}

#[tokio::test]
async fn a_snapshot_blocks_nothing_and_stays_as_it_is() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    peer.send(&chunk("m", "One", None)).await;
    wait_for_transcript(&session, |lines| lines == ["Agent: One"]).await;
    let snapshot = session.transcript();
    peer.send(&chunk("m", ", two", None)).await;
    wait_for_transcript(&session, |lines| lines == ["Agent: One, two"]).await;
    assert_eq!(lines_of(&snapshot), ["Agent: One"]);
    assert_eq!(lines_of(&session.transcript()), ["Agent: One, two"]);
}

fn notification(n: u32) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"_x/progress\",\"params\":{{\"sessionId\":\"s\",\"n\":{n}}}}}\n"
    )
}

#[tokio::test]
async fn extension_notifications_are_delivered_to_all_streams() {
    let (client, mut peer) = peer().await;
    let mut streams = [client.notifications(), client.notifications()];
    peer.send(&(notification(1) + &notification(2))).await;
    for stream in &mut streams {
        for n in ["1", "2"] {
            let notification = within_timeout(stream.next()).await.unwrap();
            assert_eq!(
                (notification.method.as_str(), notification.session()),
                ("_x/progress", Some("s".into()))
            );
            assert!(notification.params.unwrap().as_str().ends_with(&format!("\"n\":{n}}}")));
        }
    }
    assert_eq!(client.losses().count, 0, "{:?}", client.losses());
    // The streams do not keep the connection open, and end with it.
    drop(client);
    drop(peer);
    let [one, two] = streams;
    assert!(within_timeout(one.collect::<Vec<_>>()).await.is_empty());
    drop(two);
}

#[tokio::test]
async fn a_slow_reader_of_notifications_loses_the_oldest_and_they_are_counted() {
    let (client, mut peer) = peer().await;
    let mut notifications = client.notifications();
    for n in 0..1030 {
        peer.send(&notification(n)).await;
    }
    handled(&client, &mut peer).await;
    let first = within_timeout(notifications.next()).await.unwrap();
    assert!(first.params.unwrap().as_str().contains("\"n\":6}"));
    assert!(client.losses().latest[0].starts_with("6 notifications"), "{:?}", client.losses());
    // After the connection is closed there are none.
    within_timeout(client.disconnect()).await;
    assert!(within_timeout(client.notifications().next()).await.is_none());
}

#[tokio::test]
async fn the_messages_of_a_batch_are_delivered() {
    let (client, mut peer) = peer().await;
    let session = client.session(&"s".into());
    let (mut requests, mut notifications) = (client.requests(), client.notifications());
    let params = Object::default();
    let (result, ()) = tokio::join!(within_timeout(client.call("x/y", &params)), async {
        let call = peer.expect_request("x/y").await;
        let messages = [
            chunk("m", "One.", None),
            notification(1),
            r#"{"jsonrpc":"2.0","id":9,"method":"x/z","params":{}}"#.to_owned(),
            format!("[{}]", notification(2).trim_end()),
            call.response(r#"{"is":"it"}"#),
        ];
        let batch: Vec<_> = messages.iter().map(|message| message.trim_end()).collect();
        peer.send(&format!("[{}]\n", batch.join(","))).await;
    });
    assert_eq!(result.unwrap().get("is").unwrap().as_str(), r#""it""#);
    assert_eq!(lines_of(&session.transcript()), ["Agent: One."]);
    assert_eq!(within_timeout(requests.next()).await.unwrap().method(), "x/z");
    assert!(within_timeout(notifications.next()).await.unwrap().params.unwrap().as_str().contains("\"n\":1"));
    // A batch in a batch is none.
    assert_eq!(client.losses().count, 1, "{:?}", client.losses());
}

#[tokio::test]
async fn errors_have_the_codes_of_the_protocol() {
    let (client, mut peer) = peer().await;
    let params = Object::default();
    let (result, ()) = tokio::join!(within_timeout(client.call("x/y", &params)), async {
        let call = peer.expect_request("x/y").await;
        peer.respond_error(&call, code::AUTH_REQUIRED).await;
    });
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Rpc(error) if error.code() == code::AUTH_REQUIRED));
    assert_eq!(error.to_string(), "No.", "the code is not for people");
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn connections_and_sessions_have_tracing_spans() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // While there is only one subscriber, `tracing` disables an event for all threads if a thread without a subscriber
    // reaches it first, as other tests do.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let _guard = tracing::subscriber::set_default(subscriber);
    let (session, turn, mut peer) = accepted().await;
    peer.send(&(prompt("u", "Hello?", None) + &idle("end_turn", None))).await;
    within_timeout(turn.outcome()).await.unwrap();
    within_timeout(session.client().disconnect()).await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let span = r#"connection{transport="stream" version=2}"#;
    for event in
        [format!("{span}: parlor_client::driver: opened"), format!("{span}: parlor_client::driver: closed")]
    {
        assert!(log.contains(&event), "{event} is not in {log}");
    }
    for event in ["prompt accepted", "update bytes=", "unsubscribed status=Disconnected"] {
        let is_in_session =
            |line: &str| line.contains(&format!("{span}:session{{id=s}}:")) && line.contains(event);
        assert!(log.lines().any(is_in_session), "{event} is not in {log}");
    }
}
