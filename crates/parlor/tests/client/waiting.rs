//! Prompts that wait, and what is taken back.

use parlor_client::{Activity, Client, Hello, Object, Questions, Role, Session, Slot, Update, Words};

use parlor_testkit::server::Server;
use parlor_testkit::wait::within_timeout;

use crate::{AGENTS, HERE, connector, knows, reason, said, spawn, start_server, start_v1_server, turn};

/// Waits until as many prompts as this wait in a session.
async fn holds(session: &Session, count: usize) {
    let held = || {
        session.read(|transcript| {
            let held = transcript.slot(Slot::Info)?.meta.as_ref()?.get("parlor/queue")?.clone();
            held.elements().map(|held| held.len())
        })
    };
    let mut news = session.news();
    while held().unwrap_or(0) != count {
        within_timeout(news.next()).await.expect("the connection is there");
    }
}

async fn client(server: &Server) -> Client {
    within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap().0
}

/// A session whose turn waits for permission, and another client of it. Both would answer.
async fn blocked(server: &Server) -> (Session, Session, [Questions; 2]) {
    let (first, other) = (client(server).await, client(server).await);
    let asked = [first.questions(), other.questions()];
    let session = within_timeout(first.new_session(HERE.as_ref())).await.unwrap();
    let joined = within_timeout(other.load(session.id(), HERE.as_ref())).await.unwrap();
    within_timeout(session.prompt("ask Go on")).await.unwrap();
    (session, joined, asked)
}

/// Lets the turn go on, and looks at all that was asked.
async fn goes_on(session: &Session, asked: &mut Questions, prompts: &[&str]) {
    let question = within_timeout(asked.next()).await.unwrap();
    let choice = question.choices().remove(0);
    question.choose(&choice).await;
    within_timeout(session.prompt("say Last.")).await.unwrap();
    knows(session, |said| said.last().is_some_and(|line| line == "Agent: Last.")).await;
    let said = said(&session.transcript());
    let prompted: Vec<_> = said.iter().filter_map(|line| line.strip_prefix("User: ")).collect();
    assert_eq!(prompted, prompts);
}

#[tokio::test]
async fn a_prompt_that_is_dropped_is_taken_back() {
    for server in [start_server(), start_v1_server()] {
        let (session, other, mut asked) = blocked(&server).await;
        tokio::select! {
            turn = session.prompt("say Never.") => panic!("nobody lets it go on: {turn:?}"),
            () = holds(&other, 1) => {}
        }
        holds(&other, 0).await;
        goes_on(&session, &mut asked[0], &["ask Go on", "say Last."]).await;
    }
}

#[tokio::test]
async fn prompts_are_taken_back_and_say_so() {
    let server = start_v1_server();
    let (session, other, mut asked) = blocked(&server).await;
    let (never, kept, ()) = tokio::join!(
        within_timeout(session.prompt("say Never.")),
        within_timeout(other.prompt("say Kept.")),
        async {
            holds(&other, 2).await;
            session.take_back().await.unwrap();
            holds(&other, 1).await;
            goes_on(&session, &mut asked[0], &["ask Go on", "say Kept.", "say Last."]).await;
        }
    );
    assert_eq!(never.unwrap_err().code(), Some(-32800));
    assert_eq!(reason(&within_timeout(kept.unwrap().end()).await.unwrap()), "end_turn");
}

#[tokio::test]
async fn who_only_asks_starts_no_agent() {
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
    // What needs a beginning is refused, and nothing is lost by it.
    assert!(
        within_timeout(asking.call("session/list", &Object::default())).await.unwrap_err().code().is_some()
    );
    within_timeout(asking.call("_parlor/status", &Object::default())).await.unwrap();
}

#[tokio::test]
async fn who_joins_is_told_what_comes() {
    let server = start_server();
    let session = within_timeout(client(&server).await.new_session(HERE.as_ref())).await.unwrap();
    turn(&session, "say One.").await;
    let joined = within_timeout(client(&server).await.join(session.id(), HERE.as_ref())).await.unwrap();
    assert!(said(&joined.transcript()).is_empty());
    assert_eq!(joined.transcript().state().unwrap().activity, Activity::Idle);
    turn(&joined, "say Two.").await;
    assert_eq!(said(&joined.transcript()), ["User: say Two.", "Agent: Two."]);
    assert_eq!(joined.unread(), None);
}

#[tokio::test]
async fn the_news_of_a_turn_are_all_of_it_and_no_more() {
    for args in AGENTS {
        let session = within_timeout(spawn(args).await.new_session(HERE.as_ref())).await.unwrap();
        for n in 0..20 {
            let turn = within_timeout(session.prompt(format!("say {n}."))).await.unwrap();
            let mut news = turn.news();
            let mut text = String::new();
            loop {
                let update = within_timeout(news.next()).await.unwrap();
                if matches!(&update, Update::State(state) if state.activity == Activity::Idle) {
                    break;
                }
                let words = Words::of(&update).filter(|words| words.role == Role::Agent);
                text.extend(words.map(|words| words.text));
            }
            assert_eq!(text, format!("{n}."), "{args:?}");
        }
    }
}
