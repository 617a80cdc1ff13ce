//! The client library with agents of every version, directly and behind a server.

mod closing;
mod peer;
mod processes;
mod prompts;
mod rejoining;
mod requests;
mod streams;

use std::path::Path;
use std::sync::LazyLock;

use futures_util::FutureExt;
use parlor_client::{
    Activity, Client, Connector, EntryId, Error, Hello, PermissionOptionKind, Prompt, Role, Session, Slot,
    TextDelta, Transcript, TurnOutcome, Update, Version,
};
use parlor_testkit::programs;
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::wait::{TIMEOUT, within_timeout};

/// The program of the server.
static PARLOR: LazyLock<String> = LazyLock::new(|| programs::find("parlor", "parlor").unwrap());

const CWD: &str = "/";

/// A server with the test agent.
fn start_server() -> Server {
    TestDir::new(&PARLOR).agent("test", programs::test_agent()).serve()
}

/// A server with the test agent in version 1, which accepts one prompt at a time.
fn start_v1_server() -> Server {
    TestDir::new(&PARLOR).agent("old", &format!("{} --version 1", programs::test_agent())).serve()
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

/// One line for each message and tool call of a transcript.
fn lines_of(transcript: &Transcript) -> Vec<String> {
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

/// Waits until the lines of a transcript are as expected.
async fn wait_for_transcript(session: &Session, is_so: impl Fn(&[String]) -> bool) {
    let mut updates = session.updates();
    let wait = async {
        while !is_so(&lines_of(&session.transcript())) {
            assert!(updates.next().await.is_some(), "the connection is closed");
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, wait).await;
    assert!(waited.is_ok(), "the transcript is: {:#?}", lines_of(&session.transcript()));
}

async fn turn(session: &Session, text: &str) -> TurnOutcome {
    let turn = within_timeout(session.prompt(text)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap()
}

fn stop_reason(outcome: &TurnOutcome) -> String {
    outcome.stop_reason.as_ref().map(ToString::to_string).unwrap_or_default()
}

#[tokio::test]
async fn transcripts_are_the_same_for_both_versions() {
    for args in AGENTS {
        let client = spawn(args).await;
        assert_eq!(client.version(), if args.contains(&"2") { Version::V2 } else { Version::V1 });
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        let end = turn(&session, "think Hm.\nsay One.\ntool Edit the notes\ntitle A title").await;
        assert_eq!(stop_reason(&end), "end_turn", "{args:?}");
        assert_eq!(stop_reason(&turn(&session, "say Two.").await), "end_turn");
        let transcript = session.transcript();
        assert_eq!(
            lines_of(&transcript),
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
        // Both are reported as in version 2.
        assert!(transcript.slot(Slot::Options).is_none_or(|slot| slot.fields.get("configOptions").is_some()));
    }
}

#[tokio::test]
async fn each_update_is_delivered_once() {
    for args in AGENTS {
        let client = spawn(args).await;
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        let mut updates = session.updates();
        let watching = tokio::spawn(async move {
            let mut text = String::new();
            loop {
                let update = within_timeout(updates.next()).await.unwrap();
                match TextDelta::of(&update).filter(|words| words.role == Role::Agent) {
                    Some(words) => {
                        // Only the first update has the whole text.
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
async fn permission_requests_are_answered_with_an_option() {
    for args in AGENTS {
        let client = spawn(args).await;
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        let mut requests = client.requests();
        for (kind, chosen) in [
            (PermissionOptionKind::AllowOnce, "allow-once"),
            (PermissionOptionKind::RejectOnce, "reject-once"),
        ] {
            let turn = session.prompt("ask Delete the notes");
            let (turn, request) = tokio::join!(within_timeout(turn), within_timeout(requests.next()));
            let request = request.unwrap();
            assert_eq!(request.method(), "session/request_permission");
            assert_eq!(request.session().as_ref(), Some(session.id()));
            assert_eq!(request.title().as_deref(), Some("Delete the notes"), "{:?}", request.params());
            let option = request.options().into_iter().find(|option| option.kind == kind).unwrap();
            request.select(&option).await;
            within_timeout(turn.unwrap().outcome()).await.unwrap();
            let last = lines_of(&session.transcript()).pop().unwrap();
            assert!(last.contains(chosen), "{args:?}: {last}");
        }
        // A dropped request is declined, and the turn goes on.
        let (turn, request) =
            tokio::join!(within_timeout(session.prompt("ask Again")), within_timeout(requests.next()));
        drop(request.unwrap());
        within_timeout(turn.unwrap().outcome()).await.unwrap();
    }
}

#[tokio::test]
async fn a_turn_is_cancelled() {
    for args in AGENTS {
        let client = spawn(args).await;
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        let prompt = within_timeout(session.prompt("say Well.\nsleep 60000")).await.unwrap();
        session.cancel().await.unwrap();
        assert_eq!(stop_reason(&within_timeout(prompt.outcome()).await.unwrap()), "cancelled", "{args:?}");
    }
}

#[tokio::test]
async fn errors_can_be_matched() {
    let missing = connector().spawn("/nowhere/no-agent", &[""; 0]).await.unwrap_err();
    assert!(matches!(missing, Error::Connect(_)), "{missing}");
    let silent = within_timeout(connector().spawn("true", &[""; 0])).await.unwrap_err();
    assert!(matches!(silent, Error::Disconnected), "{silent}");
    let client = spawn(AGENTS[2]).await;
    let unknown = within_timeout(client.load(&"nobody".into(), CWD.as_ref())).await.unwrap_err();
    assert!(matches!(&unknown, Error::Rpc(error) if error.code() == -32002), "{unknown}");
    let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
    let crash = within_timeout(session.prompt("crash")).await;
    if let Ok(turn) = crash {
        assert!(matches!(within_timeout(turn.outcome()).await, Err(Error::Disconnected)));
    }
    within_timeout(client.closed()).await;
    assert!(matches!(within_timeout(session.prompt("say Hello?")).await, Err(Error::Disconnected)));
    assert!(within_timeout(client.requests().next()).await.is_none());
}

#[tokio::test]
async fn a_connector_with_one_version_uses_no_other() {
    let v1 =
        within_timeout(connector().only(Version::V1).spawn(programs::test_agent(), &[""; 0])).await.unwrap();
    assert_eq!(v1.version(), Version::V1);
    let session = within_timeout(v1.new_session(CWD.as_ref())).await.unwrap();
    assert_eq!(stop_reason(&turn(&session, "say One.").await), "end_turn");
    let refused = within_timeout(connector().only(Version::V2).spawn(programs::test_agent(), AGENTS[0]))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
}

/// One client for each transport of a server.
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
async fn clients_on_all_transports_share_a_session() {
    let server = start_server();
    let clients = transports(&server).await;
    let first = within_timeout(clients[0].new_session(CWD.as_ref())).await.unwrap();
    turn(&first, "say One.").await;
    let mut sessions = vec![first.clone()];
    for client in &clients[1..] {
        sessions.push(within_timeout(client.load(first.id(), CWD.as_ref())).await.unwrap());
    }
    for (n, session) in sessions.iter().enumerate() {
        // A version 1 client cannot order its prompt among those that it has not received.
        wait_for_transcript(session, |said| said.len() == 2 + 2 * n).await;
        assert_eq!(stop_reason(&turn(session, &format!("say From {n}.")).await), "end_turn");
    }
    wait_for_transcript(&first, |said| said.len() == 8).await;
    let expected = lines_of(&first.transcript());
    for session in &sessions {
        wait_for_transcript(session, |said| said == expected).await;
    }
    let listed = within_timeout(clients[1].list(None)).await.unwrap();
    assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [first.id()]);
}

#[tokio::test]
async fn a_long_prompt_passes_every_transport() {
    let server = start_server();
    for client in transports(&server).await {
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        let text = "ä".repeat(200_000);
        turn(&session, &format!("say {text}")).await;
        assert!(lines_of(&session.transcript()) == [format!("User: say {text}"), format!("Agent: {text}")]);
    }
}

#[tokio::test]
async fn the_turn_of_another_client_is_visible_from_start_to_end() {
    let server = start_server();
    let clients = transports(&server).await;
    let first = within_timeout(clients[0].new_session(CWD.as_ref())).await.unwrap();
    turn(&first, "say One.").await;
    for client in &clients {
        let watching = within_timeout(client.load(first.id(), CWD.as_ref())).await.unwrap();
        let mut updates = watching.updates();
        let running = within_timeout(first.prompt("sleep 60000")).await.unwrap();
        while !matches!(within_timeout(updates.next()).await.unwrap(), Update::State(state) if state.activity == Activity::Running)
        {
        }
        // So it is for a client that loads the session meanwhile.
        let joining = within_timeout(client.load(first.id(), CWD.as_ref())).await.unwrap();
        assert_eq!(joining.transcript().state().unwrap().activity, Activity::Running);
        first.cancel().await.unwrap();
        within_timeout(running.outcome()).await.unwrap();
        within_timeout(watching.idle()).await.unwrap();
        // A turn of its own has its own outcome.
        assert_eq!(stop_reason(&turn(&watching, "refuse").await), "refusal");
    }
}

#[tokio::test]
async fn a_session_is_forked_at_a_message() {
    let server = start_server();
    for client in transports(&server).await {
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        turn(&session, "say One.").await;
        let second = within_timeout(session.prompt("say Two.")).await.unwrap();
        within_timeout(second.outcome()).await.unwrap();
        let fork = within_timeout(session.fork(second.message_id(), CWD.as_ref())).await.unwrap();
        assert_eq!(lines_of(&fork.transcript()), ["User: say One.", "Agent: One.", "User: say Two."]);
        let transcript = session.transcript();
        let EntryId::Message(Role::Agent, answer) = transcript.entries()[1].id() else {
            panic!("{transcript:?}")
        };
        let fork = within_timeout(session.fork(Some(answer), CWD.as_ref())).await.unwrap();
        assert_ne!(fork.id(), session.id());
        assert_eq!(lines_of(&fork.transcript()), ["User: say One.", "Agent: One."]);
        turn(&fork, "say Else.").await;
        assert_eq!(lines_of(&fork.transcript()).last().unwrap(), "Agent: Else.");
        assert_eq!(lines_of(&session.transcript()).len(), 4);
        within_timeout(fork.delete()).await.unwrap();
        within_timeout(session.close()).await.unwrap();
    }
}

#[tokio::test]
async fn rejoining_a_server_session_replays_only_what_was_missed() {
    let server = start_server();
    let (first, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let (other, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let session = within_timeout(first.new_session(CWD.as_ref())).await.unwrap();
    turn(&session, "say One.").await;
    let watched = within_timeout(other.load(session.id(), CWD.as_ref())).await.unwrap();
    let mut updates = session.updates();
    // The connection is lost in the middle of a message.
    let streaming = within_timeout(watched.prompt("stream 400 20 400")).await.unwrap();
    within_timeout(updates.next()).await.unwrap();
    let lost = session.clone();
    first.disconnect().await;
    while within_timeout(updates.next()).await.is_some() {}
    let had = lost.transcript();
    let mut missed = lost.updates();
    let (again, _) = within_timeout(connector().socket(&server.socket(), &Hello::new())).await.unwrap();
    let rejoined = within_timeout(again.rejoin(&lost, CWD.as_ref())).await.unwrap();
    within_timeout(streaming.outcome()).await.unwrap();
    within_timeout(rejoined.idle()).await.unwrap();
    let expected = lines_of(&watched.transcript());
    wait_for_transcript(&rejoined, |said| said == expected).await;
    assert!(lines_of(&had).len() >= 2 && lines_of(&had) != expected);
    // The old handle has the same transcript, and its stream only what it had missed.
    assert_eq!(lines_of(&lost.transcript()), expected);
    while let Some(update) = missed.next().now_or_never().flatten() {
        let Some(words) = TextDelta::of(&update).filter(|words| words.replaces) else { continue };
        assert!(had.get(&EntryId::Message(words.role, words.message)).is_none(), "{update:?}");
    }

    // A prompt with a key is accepted once.
    let prompt = Prompt::from("say Once.").key("k1");
    for _ in 0..2 {
        let turn = within_timeout(rejoined.prompt(prompt.clone())).await.unwrap();
        within_timeout(turn.outcome()).await.unwrap();
    }
    let once = lines_of(&rejoined.transcript()).iter().filter(|line| *line == "Agent: Once.").count();
    assert_eq!(once, 1);
}

/// Only a parlor server can replay a part of a session.
#[tokio::test]
async fn rejoining_an_agent_session_reloads_it() {
    for version in ["1", "2"] {
        let state = tempfile::tempdir().unwrap();
        let args = ["--version", version, "--state", state.path().to_str().unwrap()];
        let first = spawn(&args).await;
        let lost = within_timeout(first.new_session(CWD.as_ref())).await.unwrap();
        turn(&lost, "say One.").await;
        first.disconnect().await;
        assert!(matches!(within_timeout(first.rejoin(&lost, CWD.as_ref())).await, Err(Error::Disconnected)));
        let had = lines_of(&lost.transcript());
        let again = spawn(&args).await;
        let rejoined = within_timeout(again.rejoin(&lost, CWD.as_ref())).await.unwrap();
        assert_eq!(lines_of(&rejoined.transcript()), had, "version {version}");
        turn(&rejoined, "say Two.").await;
        assert_eq!(
            lines_of(&lost.transcript()),
            ["User: say One.", "Agent: One.", "User: say Two.", "Agent: Two."]
        );
    }
}

#[tokio::test]
async fn a_closed_session_can_be_loaded_again() {
    let server = start_server();
    for client in transports(&server).await {
        let left = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        turn(&left, "say One.").await;
        for _ in 0..20 {
            within_timeout(left.close()).await.unwrap();
            let session = within_timeout(client.load(left.id(), CWD.as_ref())).await.unwrap();
            assert_eq!(lines_of(&session.transcript()), ["User: say One.", "Agent: One."]);
        }
    }
}

#[tokio::test]
async fn a_wrong_token_and_a_missing_socket_are_different_errors() {
    let server = start_server();
    let refused = within_timeout(connector().url(&server.url(), Some("wrong"))).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    let nobody =
        within_timeout(connector().socket(Path::new("/nowhere.sock"), &Hello::new())).await.unwrap_err();
    assert!(matches!(nobody, Error::Connect(_)), "{nobody}");
}

#[tokio::test]
async fn the_outcome_of_a_turn_is_available_after_later_turns() {
    let server = start_server();
    for version in [Version::V1, Version::V2] {
        let connector = connector().only(version);
        let (client, _) = within_timeout(connector.socket(&server.socket(), &Hello::new())).await.unwrap();
        let session = within_timeout(client.new_session(CWD.as_ref())).await.unwrap();
        let prompt = |text| within_timeout(session.prompt(text));
        let (first, second, third) = tokio::join!(prompt("say One."), prompt("refuse"), prompt("say Three."));
        assert_eq!(
            stop_reason(&within_timeout(third.unwrap().outcome()).await.unwrap()),
            "end_turn",
            "{version:?}"
        );
        assert_eq!(
            stop_reason(&within_timeout(second.unwrap().outcome()).await.unwrap()),
            "refusal",
            "{version:?}"
        );
        assert_eq!(
            stop_reason(&within_timeout(first.unwrap().outcome()).await.unwrap()),
            "end_turn",
            "{version:?}"
        );
    }
}
