//! The library for clients, with agents of every version, directly and behind a server.

mod asking;
mod ending;
mod leaving;
mod peer;
mod rejoining;
mod waiting;

use std::path::Path;

use parlor_client::{
    Activity, Client, Connector, EntryId, Error, Hello, Prompt, Role, Session, Slot, State, TextDelta,
    Transcript, Update, Version,
};
use parlor_testkit::programs;
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::wait::{TIMEOUT, within_timeout};

/// The program that is tested.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

const HERE: &str = "/";

/// A server with the test agent.
fn start_server() -> Server {
    TestDir::new(PARLOR).agent("test", programs::test_agent()).serve()
}

/// A server with the test agent in version 1, which takes one prompt at a time.
fn start_v1_server() -> Server {
    TestDir::new(PARLOR).agent("old", &format!("{} --version 1", programs::test_agent())).serve()
}

/// Arguments of the test agent: version 1, version 1 without ids, version 2.
const AGENTS: [&[&str]; 3] =
    [&["--version", "1"], &["--version", "1", "--no-message-ids"], &["--version", "2"]];

fn connector() -> Connector {
    Connector::new("test", "1")
}

/// A client of a test agent with these arguments.
async fn spawn(args: &[&str]) -> Client {
    within_timeout(connector().spawn(programs::test_agent(), args)).await.unwrap()
}

/// What was said, one line for each message and tool call.
fn said(transcript: &Transcript) -> Vec<String> {
    let lines = transcript.entries().iter().filter_map(|entry| {
        let body = entry.body();
        if let EntryId::Message(role, _) = entry.id() {
            return Some(format!("{role:?}: {}", body.content.to_text()));
        }
        let title = body.fields.get("title").map_or("", |title| title.as_str());
        matches!(entry.id(), EntryId::ToolCall(_)).then(|| format!("tool: {title}"))
    });
    lines.collect()
}

/// Waits until a session is known to be so.
async fn knows(session: &Session, is_so: impl Fn(&[String]) -> bool) {
    let mut news = session.updates();
    let wait = async {
        while !is_so(&said(&session.transcript())) {
            assert!(news.next().await.is_some(), "the connection is gone");
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, wait).await;
    assert!(waited.is_ok(), "this is all that is known: {:#?}", said(&session.transcript()));
}

async fn turn(session: &Session, text: &str) -> State {
    let turn = within_timeout(session.prompt(text)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap()
}

fn reason(state: &State) -> String {
    state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned()).unwrap_or_default()
}

#[tokio::test]
async fn a_session_is_the_same_with_agents_of_either_version() {
    for args in AGENTS {
        let client = spawn(args).await;
        assert_eq!(client.version(), if args.contains(&"2") { 2 } else { 1 });
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        let end = turn(&session, "think Hm.\nsay One.\ntool Edit the notes\ntitle A title").await;
        assert_eq!(reason(&end), "end_turn", "{args:?}");
        assert_eq!(reason(&turn(&session, "say Two.").await), "end_turn");
        let transcript = session.transcript();
        assert_eq!(
            said(&transcript),
            [
                "User: think Hm.\nsay One.\ntool Edit the notes\ntitle A title",
                "Thought: Hm.",
                "Agent: One.",
                "tool: \"Edit the notes\"",
                "User: say Two.",
                "Agent: Two."
            ],
            "{args:?}"
        );
        assert_eq!(transcript.state().unwrap().activity, Activity::Idle);
        assert!(transcript.slot(Slot::Info).unwrap().fields.get("title").is_some());
        // In the words of version 2 with both.
        assert!(transcript.slot(Slot::Options).is_none_or(|slot| slot.fields.get("configOptions").is_some()));
    }
}

#[tokio::test]
async fn news_come_once_and_make_up_the_transcript() {
    for args in AGENTS {
        let client = spawn(args).await;
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        let mut news = session.updates();
        let watching = tokio::spawn(async move {
            let mut text = String::new();
            loop {
                let update = within_timeout(news.next()).await.unwrap();
                match TextDelta::of(&update).filter(|words| words.role == Role::Agent) {
                    Some(words) => {
                        // What is all of a message is so once, when it begins.
                        assert!(!words.replaces || text.is_empty());
                        text.push_str(&words.text);
                    }
                    None => {
                        if matches!(update, Update::State(state) if state.activity == Activity::Idle) {
                            return text;
                        }
                    }
                }
            }
        });
        turn(&session, "stream 500 20").await;
        let text = within_timeout(watching).await.unwrap();
        let numbers: Vec<usize> = text
            .as_bytes()
            .chunks(20)
            .map(|chunk| std::str::from_utf8(&chunk[..8]).unwrap().parse().unwrap())
            .collect();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>(), "{args:?}");
    }
}

#[tokio::test]
async fn permissions_are_asked_for_and_given() {
    for args in AGENTS {
        let client = spawn(args).await;
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        let mut questions = client.requests();
        for (kind, chosen) in [("allow_once", "allow-once"), ("reject_once", "reject-once")] {
            let turn = session.prompt("ask Delete the notes");
            let (turn, question) = tokio::join!(within_timeout(turn), within_timeout(questions.next()));
            let question = question.unwrap();
            assert_eq!(question.method(), "session/request_permission");
            assert_eq!(question.session().as_ref(), Some(session.id()));
            assert_eq!(question.title().as_deref(), Some("Delete the notes"), "{:?}", question.params());
            let choice = question.options().into_iter().find(|choice| choice.kind == kind).unwrap();
            question.select(&choice).await;
            within_timeout(turn.unwrap().outcome()).await.unwrap();
            let last = said(&session.transcript()).pop().unwrap();
            assert!(last.contains(chosen), "{args:?}: {last}");
        }
        // One that nobody answers is declined, and the turn goes on.
        let (turn, question) =
            tokio::join!(within_timeout(session.prompt("ask Again")), within_timeout(questions.next()));
        drop(question.unwrap());
        within_timeout(turn.unwrap().outcome()).await.unwrap();
    }
}

#[tokio::test]
async fn a_turn_is_cancelled() {
    for args in AGENTS {
        let client = spawn(args).await;
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        let prompt = within_timeout(session.prompt("say Well.\nsleep 60000")).await.unwrap();
        session.cancel().await.unwrap();
        assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap()), "cancelled", "{args:?}");
    }
}

#[tokio::test]
async fn errors_are_told_apart() {
    let missing = connector().spawn("/nowhere/no-agent", &[""; 0]).await.unwrap_err();
    assert!(matches!(missing, Error::Connect(_)), "{missing}");
    let silent = within_timeout(connector().spawn("true", &[""; 0])).await.unwrap_err();
    assert!(matches!(silent, Error::Disconnected), "{silent}");
    let client = spawn(AGENTS[2]).await;
    let unknown = within_timeout(client.load(&"nobody".into(), HERE.as_ref())).await.unwrap_err();
    assert!(matches!(&unknown, Error::Rpc(error) if error.code() == -32002), "{unknown}");
    let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
    let crash = within_timeout(session.prompt("crash")).await;
    if let Ok(turn) = crash {
        assert!(matches!(within_timeout(turn.outcome()).await, Err(Error::Disconnected)));
    }
    within_timeout(client.closed()).await;
    assert!(matches!(within_timeout(session.prompt("say Hello?")).await, Err(Error::Disconnected)));
    assert!(within_timeout(client.requests().next()).await.is_none());
}

#[tokio::test]
async fn only_the_version_that_was_asked_for_is_spoken() {
    let v1 =
        within_timeout(connector().only(Version::V1).spawn(programs::test_agent(), &[""; 0])).await.unwrap();
    assert_eq!(v1.version(), 1);
    let session = within_timeout(v1.new_session(HERE.as_ref())).await.unwrap();
    assert_eq!(reason(&turn(&session, "say One.").await), "end_turn");
    let refused = within_timeout(connector().only(Version::V2).spawn(programs::test_agent(), AGENTS[0]))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
}

/// Every way into a server.
async fn transports(server: &Server) -> Vec<Client> {
    let (socket, welcome) =
        within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    assert_eq!(welcome.pid, Some(server.pid()));
    let web = within_timeout(connector().url(&server.url(), Some(&server.token()))).await.unwrap();
    let old = connector().only(Version::V1);
    let acp = within_timeout(old.spawn_with(|| server.dir().command(&["acp"]).into())).await.unwrap();
    vec![socket, web, acp]
}

#[tokio::test]
async fn all_transports_lead_to_the_same_session() {
    let server = start_server();
    let clients = transports(&server).await;
    let first = within_timeout(clients[0].new_session(HERE.as_ref())).await.unwrap();
    turn(&first, "say One.").await;
    let mut sessions = vec![first.clone()];
    for client in &clients[1..] {
        sessions.push(within_timeout(client.load(first.id(), HERE.as_ref())).await.unwrap());
    }
    for (n, session) in sessions.iter().enumerate() {
        // A client of version 1 cannot know where its prompt comes to stand if it has yet to hear of others.
        knows(session, |said| said.len() == 2 + 2 * n).await;
        assert_eq!(reason(&turn(session, &format!("say From {n}.")).await), "end_turn");
    }
    knows(&first, |said| said.len() == 8).await;
    let expected = said(&first.transcript());
    for session in &sessions {
        knows(session, |said| said == expected).await;
    }
    let listed = within_timeout(clients[1].list(None)).await.unwrap();
    assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [first.id()]);
}

#[tokio::test]
async fn a_long_prompt_comes_through_every_door() {
    let server = start_server();
    for client in transports(&server).await {
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        let text = "ä".repeat(200_000);
        turn(&session, &format!("say {text}")).await;
        assert!(said(&session.transcript()) == [format!("User: say {text}"), format!("Agent: {text}")]);
    }
}

#[tokio::test]
async fn the_turn_of_another_is_seen_to_begin_and_to_end() {
    let server = start_server();
    let clients = transports(&server).await;
    let first = within_timeout(clients[0].new_session(HERE.as_ref())).await.unwrap();
    turn(&first, "say One.").await;
    for client in &clients {
        let watching = within_timeout(client.load(first.id(), HERE.as_ref())).await.unwrap();
        let mut news = watching.updates();
        let running = within_timeout(first.prompt("sleep 60000")).await.unwrap();
        while !matches!(within_timeout(news.next()).await.unwrap(), Update::State(state) if state.activity == Activity::Running)
        {
        }
        // Who joins in the middle knows it as well.
        let joining = within_timeout(client.load(first.id(), HERE.as_ref())).await.unwrap();
        assert_eq!(joining.transcript().state().unwrap().activity, Activity::Running);
        first.cancel().await.unwrap();
        within_timeout(running.outcome()).await.unwrap();
        within_timeout(watching.idle()).await.unwrap();
        // A turn of its own ends when it does, and as it did.
        assert_eq!(reason(&turn(&watching, "refuse").await), "refusal");
    }
}

#[tokio::test]
async fn a_session_is_forked_at_a_message() {
    let server = start_server();
    for client in transports(&server).await {
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        turn(&session, "say One.").await;
        let second = within_timeout(session.prompt("say Two.")).await.unwrap();
        within_timeout(second.outcome()).await.unwrap();
        let fork = within_timeout(session.fork(second.message(), HERE.as_ref())).await.unwrap();
        assert_eq!(said(&fork.transcript()), ["User: say One.", "Agent: One.", "User: say Two."]);
        let answer = session.read(|transcript| {
            let entry = transcript
                .entries()
                .iter()
                .find(|entry| matches!(entry.id(), EntryId::Message(Role::Agent, _)));
            let EntryId::Message(_, id) = entry.unwrap().id() else { unreachable!() };
            id.clone()
        });
        let fork = within_timeout(session.fork(Some(&answer), HERE.as_ref())).await.unwrap();
        assert_ne!(fork.id(), session.id());
        assert_eq!(said(&fork.transcript()), ["User: say One.", "Agent: One."]);
        turn(&fork, "say Else.").await;
        assert_eq!(said(&fork.transcript()).last().unwrap(), "Agent: Else.");
        assert_eq!(said(&session.transcript()).len(), 4);
        within_timeout(fork.delete()).await.unwrap();
        within_timeout(session.close()).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_connection_is_made_up_for_without_doubling() {
    let server = start_server();
    let (first, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let (other, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(first.new_session(HERE.as_ref())).await.unwrap();
    turn(&session, "say One.").await;
    let watched = within_timeout(other.load(session.id(), HERE.as_ref())).await.unwrap();
    let mut news = session.updates();
    // Lost in the middle of a message.
    let streaming = within_timeout(watched.prompt("stream 400 20 400")).await.unwrap();
    within_timeout(news.next()).await.unwrap();
    let lost = session.clone();
    first.disconnect().await;
    while within_timeout(news.next()).await.is_some() {}
    let had = lost.transcript();
    let mut missed = lost.updates();
    let (again, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let found = within_timeout(again.rejoin(&lost, HERE.as_ref())).await.unwrap();
    within_timeout(streaming.outcome()).await.unwrap();
    within_timeout(found.idle()).await.unwrap();
    let expected = said(&watched.transcript());
    knows(&found, |said| said == expected).await;
    assert!(said(&had).len() >= 2 && said(&had) != expected);
    // The old handle knows it too, and was told what it had missed and nothing else.
    assert_eq!(said(&lost.transcript()), expected);
    while let Some(update) = missed.ready() {
        let Some(words) = TextDelta::of(&update).filter(|words| words.replaces) else { continue };
        assert!(had.get(&EntryId::Message(words.role, words.message)).is_none(), "{update:?}");
    }

    // A prompt with a key is taken once.
    let prompt = Prompt::from("say Once.").key("k1");
    for _ in 0..2 {
        let turn = within_timeout(found.prompt(prompt.clone())).await.unwrap();
        within_timeout(turn.outcome()).await.unwrap();
    }
    let once = said(&found.transcript()).iter().filter(|line| *line == "Agent: Once.").count();
    assert_eq!(once, 1);
}

/// Only a server of parlor's knows what came meanwhile; an agent tells all of it anew.
#[tokio::test]
async fn a_lost_connection_to_an_agent_is_made_up_for_too() {
    for version in ["1", "2"] {
        let state = tempfile::tempdir().unwrap();
        let args = ["--version", version, "--state", state.path().to_str().unwrap()];
        let first = spawn(&args).await;
        let lost = within_timeout(first.new_session(HERE.as_ref())).await.unwrap();
        turn(&lost, "say One.").await;
        first.disconnect().await;
        assert!(matches!(within_timeout(first.rejoin(&lost, HERE.as_ref())).await, Err(Error::Disconnected)));
        let had = said(&lost.transcript());
        let again = spawn(&args).await;
        let found = within_timeout(again.rejoin(&lost, HERE.as_ref())).await.unwrap();
        assert_eq!(said(&found.transcript()), had, "version {version}");
        turn(&found, "say Two.").await;
        assert_eq!(
            said(&lost.transcript()),
            ["User: say One.", "Agent: One.", "User: say Two.", "Agent: Two."]
        );
    }
}

#[tokio::test]
async fn a_session_is_left_and_joined_again() {
    let server = start_server();
    for client in transports(&server).await {
        let left = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        turn(&left, "say One.").await;
        for _ in 0..20 {
            within_timeout(left.close()).await.unwrap();
            let session = within_timeout(client.load(left.id(), HERE.as_ref())).await.unwrap();
            assert_eq!(said(&session.transcript()), ["User: say One.", "Agent: One."]);
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_want_the_client_says_so() {
    let server = start_server();
    let refused = within_timeout(connector().url(&server.url(), Some("wrong"))).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    let nobody =
        within_timeout(connector().socket(Path::new("/nowhere.sock"), &Hello::new())).await.unwrap_err();
    assert!(matches!(nobody, Error::Connect(_)), "{nobody}");
}

#[tokio::test]
async fn a_turn_ends_as_it_did_however_late_one_looks() {
    let server = start_server();
    for version in [Version::V1, Version::V2] {
        let connector = connector().only(version);
        let (client, _) = within_timeout(connector.socket(&server.socket(), &Hello::new())).await.unwrap();
        let session = within_timeout(client.new_session(HERE.as_ref())).await.unwrap();
        let prompt = |text| within_timeout(session.prompt(text));
        let (first, second, third) = tokio::join!(prompt("say One."), prompt("refuse"), prompt("say Three."));
        assert_eq!(
            reason(&within_timeout(third.unwrap().outcome()).await.unwrap()),
            "end_turn",
            "{version:?}"
        );
        assert_eq!(
            reason(&within_timeout(second.unwrap().outcome()).await.unwrap()),
            "refusal",
            "{version:?}"
        );
        assert_eq!(
            reason(&within_timeout(first.unwrap().outcome()).await.unwrap()),
            "end_turn",
            "{version:?}"
        );
    }
}
