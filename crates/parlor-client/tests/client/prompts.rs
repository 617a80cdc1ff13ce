//! Queued prompts, and those that are withdrawn.

use parlor_client::{Activity, Client, Hello, Object, PeerRequests, Session, Slot};
use parlor_testkit::server::Server;
use parlor_testkit::wait::within_timeout;

use crate::{
    CWD, connector, lines_of, start_server, start_v1_server, stop_reason, turn, wait_for_transcript,
};

/// Waits until a session has this many queued prompts.
async fn wait_for_queued(session: &Session, count: usize) {
    let queued = || {
        let transcript = session.transcript();
        let queued = transcript.slot(Slot::Info)?.meta.as_ref()?.get("parlor/queue")?;
        queued.elements().map(|queued| queued.len())
    };
    let mut updates = session.updates();
    while queued().unwrap_or(0) != count {
        within_timeout(updates.next()).await.expect("the connection is there");
    }
}

async fn client(server: &Server) -> Client {
    within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap().0
}

/// A session whose turn waits for permission, another client of it, and the request streams of both.
async fn session_with_request(server: &Server) -> (Session, Session, [PeerRequests; 2]) {
    let (first, other) = (client(server).await, client(server).await);
    let asked = [first.requests(), other.requests()];
    let session = within_timeout(first.new_session(CWD.as_ref())).await.unwrap();
    let joined = within_timeout(other.load(session.id(), CWD.as_ref())).await.unwrap();
    within_timeout(session.prompt("ask Go on")).await.unwrap();
    (session, joined, asked)
}

/// Grants the permission, and compares the prompts of the session.
async fn finish_turn(session: &Session, asked: &mut PeerRequests, prompts: &[&str]) {
    let request = within_timeout(asked.next()).await.unwrap();
    let option = request.options().remove(0);
    request.select(&option).await;
    within_timeout(session.prompt("say Last.")).await.unwrap();
    wait_for_transcript(session, |said| said.last().is_some_and(|line| line == "Agent: Last.")).await;
    let said = lines_of(&session.transcript());
    let prompted: Vec<_> = said.iter().filter_map(|line| line.strip_prefix("User: ")).collect();
    assert_eq!(prompted, prompts);
}

#[tokio::test]
async fn dropping_a_prompt_withdraws_it() {
    for server in [start_server(), start_v1_server()] {
        let (session, other, mut asked) = session_with_request(&server).await;
        tokio::select! {
            turn = session.prompt("say Never.") => panic!("the turn before it has not ended: {turn:?}"),
            () = wait_for_queued(&other, 1) => {}
        }
        wait_for_queued(&other, 0).await;
        finish_turn(&session, &mut asked[0], &["ask Go on", "say Last."]).await;
    }
}

#[tokio::test]
async fn withdrawn_prompts_fail_with_request_cancelled() {
    let server = start_v1_server();
    let (session, other, mut asked) = session_with_request(&server).await;
    let (never, kept, ()) = tokio::join!(
        within_timeout(session.prompt("say Never.")),
        within_timeout(other.prompt("say Kept.")),
        async {
            wait_for_queued(&other, 2).await;
            session.withdraw_prompts().await.unwrap();
            wait_for_queued(&other, 1).await;
            finish_turn(&session, &mut asked[0], &["ask Go on", "say Kept.", "say Last."]).await;
        }
    );
    assert_eq!(never.unwrap_err().code(), Some(-32800));
    assert_eq!(stop_reason(&within_timeout(kept.unwrap().outcome()).await.unwrap()), "end_turn");
}

#[tokio::test]
async fn a_connection_without_initialization_starts_no_agent() {
    let server = start_server();
    let (asking, welcome) =
        within_timeout(parlor_client::Connection::socket(&server.socket(), &Hello::new())).await.unwrap();
    assert_eq!(welcome.pid, Some(server.pid()));
    let mut search = Object::default();
    search.set("query", parlor_client::JsonStr::new("word"));
    within_timeout(asking.call("_parlor/search", &search)).await.unwrap();
    within_timeout(asking.call("_parlor/agents", &Object::default())).await.unwrap();
    let status = within_timeout(asking.call("_parlor/status", &Object::default())).await.unwrap();
    assert_eq!(status.get("agents").unwrap().as_str(), "[]");
    // Calls that need initialization fail, and the connection stays open.
    assert!(
        within_timeout(asking.call("session/list", &Object::default())).await.unwrap_err().code().is_some()
    );
    within_timeout(asking.call("_parlor/status", &Object::default())).await.unwrap();
}

#[tokio::test]
async fn joining_without_history_delivers_only_new_updates() {
    let server = start_server();
    let session = within_timeout(client(&server).await.new_session(CWD.as_ref())).await.unwrap();
    turn(&session, "say One.").await;
    let joined = within_timeout(client(&server).await.join(session.id(), CWD.as_ref())).await.unwrap();
    assert!(lines_of(&joined.transcript()).is_empty());
    assert_eq!(joined.transcript().state().unwrap().activity, Activity::Idle);
    turn(&joined, "say Two.").await;
    assert_eq!(lines_of(&joined.transcript()), ["User: say Two.", "Agent: Two."]);
    assert_eq!(joined.losses().count, 0);
}
