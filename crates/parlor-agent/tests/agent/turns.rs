//! Turns of an agent, with clients of both versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parlor_agent::{
    Agent, Info, Json, PermissionOption, PlanEntry, PromptCapability, Server, SessionRequest,
    SessionRequestKind, StopReason, ToolKind, Turn, TurnError,
};
use parlor_client::{
    Client, Connector, EntryId, MessageId, Object, PermissionOptionKind, Session, Slot, State, Transcript,
    Version,
};
use parlor_testkit::wait::within_timeout;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

/// Executes the first word of the prompt.
#[derive(Default)]
struct Worker {
    /// Ends the turns that wait for it.
    release: Arc<Notify>,
    /// How many sessions were resumed: a server that cannot cancel a turn starts the agent again.
    resumed: Arc<AtomicUsize>,
}

impl Agent for Worker {
    fn info(&self) -> Info {
        Info::new("worker", "1.2").title("Worker").accepts(PromptCapability::Image)
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        let text = turn.prompt_text();
        match text.split(' ').next().unwrap_or_default() {
            "count" => {
                let transcript = turn.transcript().await?;
                turn.send_text(&format!(
                    "{} entries in {}",
                    transcript.entries().len(),
                    turn.cwd().display()
                ))
                .await;
            }
            "work" => {
                turn.send_thought("Hm.").await;
                turn.set_plan([
                    PlanEntry::completed("look"),
                    PlanEntry::in_progress("edit"),
                    PlanEntry::pending("rest"),
                ])
                .await;
                turn.send_text("I will ").await;
                turn.send_text("edit.").await;
                let input = Json::parse(r#"{"n":12345678901234567890}"#)?;
                let call = turn
                    .tool_call("Edit notes")
                    .kind(ToolKind::Edit)
                    .location("/notes", None)
                    .raw_input(input)
                    .start()
                    .await;
                let options = [PermissionOption::allow_once(), PermissionOption::reject_once()];
                if call.request_permission(options).await?.is_allowed() {
                    call.send_diff("/notes", Some("a\n"), "b\n").await;
                    call.complete().await;
                } else {
                    call.fail().await;
                }
                let terminal = turn.create_terminal("ls").await;
                terminal.send_output(b"notes\n").await;
                terminal.exit(0).await;
                turn.set_title("Notes").await;
                turn.send_text("Done.").await;
            }
            "messages" => {
                turn.send_thought("Hm.").await;
                turn.send_text("One ").await;
                turn.send_text("message.").await;
                turn.end_message();
                turn.send_text("Another.").await;
            }
            "two" => {
                turn.send_text("One.").await;
                turn.end_message();
                turn.send_text("Two.").await;
            }
            "wait" => {
                let _call = turn.tool_call("Waiting").start().await;
                turn.send_text("Waiting.").await;
                std::future::pending::<()>().await;
            }
            "slow" => {
                self.release.notified().await;
                turn.send_text("Slow.").await;
            }
            "stream" => {
                for number in 0..STREAMED {
                    turn.send_text(&format!("{number:08} ")).await;
                }
            }
            "panic" => panic!("as asked"),
            "fail" => return Err(TurnError::new("no model answers")),
            "refuse" => return Ok(StopReason::Refusal),
            _ => turn.send_text(&text).await,
        }
        Ok(StopReason::EndTurn)
    }

    async fn open_session(&self, request: &SessionRequest) -> Result<(), TurnError> {
        if request.kind() == SessionRequestKind::Resume {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn extension_request(
        &self,
        method: &str,
        _params: &parlor_agent::Object,
    ) -> Result<Json, TurnError> {
        if method == "_worker/ping" {
            Ok(Json::parse(r#"{"pong":1}"#)?)
        } else {
            Err(TurnError::new("what?"))
        }
    }
}

/// More chunks than the queue of a slow client holds.
const STREAMED: usize = 30_000;

async fn client(server: &Server, version: Version) -> Client {
    let (read, write) = tokio::io::split(server.connect());
    within_timeout(Connector::new("test", "1").only(version).over(read, write)).await.unwrap()
}

async fn turn(session: &Session, text: &str) -> State {
    let turn = within_timeout(session.prompt(text)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap().state
}

fn reason(state: &State) -> String {
    state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned()).unwrap_or_default()
}

fn said(transcript: &Transcript) -> Vec<String> {
    let is_event = |entry: &&parlor_session::Entry| matches!(entry.id(), EntryId::Event(_));
    let lines = transcript.entries().iter().filter(|entry| !is_event(entry)).map(|entry| {
        let body = entry.body();
        let field =
            |name: &str| body.fields.get(name).map_or(String::new(), |value| value.as_str().to_owned());
        match entry.id() {
            EntryId::Message(role, _) => format!("{role:?}: {}", body.content.to_text()),
            EntryId::ToolCall(_) => format!("tool {} {}", field("title"), field("status")),
            EntryId::Terminal(_) => format!("terminal: {}", String::from_utf8_lossy(&body.output)),
            EntryId::Plan(_) => "plan".to_owned(),
            EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => "?".to_owned(),
        }
    });
    lines.collect()
}

const VERSIONS: [Version; 2] = [Version::V2, Version::V1];

#[tokio::test]
async fn clients_receive_the_name_title_and_version_of_the_agent() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let info = client.info().get("info").unwrap().as_str();
        for part in [r#""name":"worker""#, r#""title":"Worker""#, r#""version":"1.2""#] {
            assert!(info.contains(part), "{version:?}: {info}");
        }
    }
}

#[tokio::test]
async fn all_updates_reach_clients_of_both_versions() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
        let mut requests = client.requests();
        let (worked, ()) = tokio::join!(turn(&session, "work now"), async {
            let request = within_timeout(requests.next()).await.unwrap();
            let choice = request.options()[0].clone();
            assert_eq!(choice.kind, PermissionOptionKind::AllowOnce);
            request.select(&choice).await;
        });
        assert_eq!(reason(&worked), "end_turn");
        let transcript = session.transcript();
        let shown = said(&transcript);
        for line in [
            "User: work now",
            "Thought: Hm.",
            "Agent: I will edit.",
            "tool \"Edit notes\" \"completed\"",
            "Agent: Done.",
        ] {
            assert!(shown.iter().any(|other| other == line), "{version:?} {line}: {shown:#?}");
        }
        assert!(shown.contains(&"plan".to_owned()), "{shown:#?}");
        let title = transcript.slot(Slot::Info).unwrap().fields.get("title").unwrap();
        assert_eq!(title.as_str(), r#""Notes""#);
        let input =
            transcript.entries().iter().find_map(|entry| entry.body().fields.get("rawInput").cloned());
        assert_eq!(input.unwrap().as_str(), r#"{"n":12345678901234567890}"#);
    }
    within_timeout(server.stop()).await;
}

#[tokio::test]
async fn a_turn_ends_with_a_stop_reason_or_an_error() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
        assert_eq!(reason(&turn(&session, "two").await), "end_turn");
        assert_eq!(said(&session.transcript())[1..], ["Agent: One.", "Agent: Two."]);
        assert_eq!(reason(&turn(&session, "refuse").await), "refusal");
        for (prompt, why) in [("fail", "no model answers"), ("panic", "the agent panicked")] {
            // A client of version 1 receives it as the response to its prompt.
            let end = turn(&session, prompt).await;
            assert_eq!(reason(&end), "error");
            assert!(end.fields.get("error").unwrap().as_str().contains(why), "{end:?}");
        }
        assert_eq!(reason(&turn(&session, "hello").await), "end_turn");
    }
}

#[tokio::test]
async fn a_cancelled_turn_is_dropped_and_its_tool_calls_end() {
    let worker = Worker::default();
    let resumed = Arc::clone(&worker.resumed);
    let server = Server::builder(worker).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
        let waiting = within_timeout(session.prompt("wait")).await.unwrap();
        let mut news = session.updates_since(0);
        while !said(&session.transcript()).contains(&"Agent: Waiting.".to_owned()) {
            within_timeout(news.next()).await.unwrap();
        }
        session.cancel().await.unwrap();
        assert_eq!(reason(&within_timeout(waiting.outcome()).await.unwrap().state), "cancelled");
        let shown = said(&session.transcript());
        let call = shown.iter().find(|line| line.starts_with("tool")).unwrap();
        assert!(call.ends_with("\"cancelled\"") || call.ends_with("\"failed\""), "{call}");
        assert_eq!(reason(&turn(&session, "hello").await), "end_turn");
        assert_eq!(resumed.load(Ordering::Relaxed), 0, "the agent itself ended the turn");
    }
}

#[tokio::test]
async fn prompts_are_queued_in_order() {
    let worker = Worker::default();
    let release = Arc::clone(&worker.release);
    let server = Server::builder(worker).start().await.unwrap();
    let client = client(&server, Version::V2).await;
    let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
    // A session handles requests in order: with the response to this one it has all prompts.
    let all_prompts_arrived = async {
        let mut params = Object::default();
        params.set("sessionId", Json::parse(format!("{:?}", session.id().to_string())).unwrap());
        client.call("_parlor/losses", &params).await.unwrap();
        release.notify_one();
    };
    let (first, second, third, ()) = tokio::join!(
        within_timeout(session.prompt("slow")),
        within_timeout(session.prompt("hello")),
        within_timeout(session.prompt("again")),
        within_timeout(all_prompts_arrived)
    );
    for turn in [first, second, third] {
        assert_eq!(reason(&within_timeout(turn.unwrap().outcome()).await.unwrap().state), "end_turn");
    }
    assert_eq!(
        said(&session.transcript()),
        ["User: slow", "Agent: Slow.", "User: hello", "Agent: hello", "User: again", "Agent: again"]
    );
}

#[cfg(feature = "persist")]
#[tokio::test]
async fn sessions_are_persisted_listed_forked_and_available_to_the_agent() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("sessions.db");
    let server = Server::builder(Worker::default()).persist(&store).start().await.unwrap();
    let first = client(&server, Version::V2).await;
    assert_eq!(first.info().get("info").map(|info| info.as_str().contains("worker")), Some(true));
    let session = within_timeout(first.new_session("/tmp".as_ref())).await.unwrap();
    turn(&session, "one").await;
    turn(&session, "count").await;
    assert_eq!(said(&session.transcript()).last().unwrap(), "Agent: 3 entries in /tmp");
    let answer = |transcript: &Transcript| -> MessageId {
        let EntryId::Message(parlor_client::Role::Agent, id) = transcript.entries()[1].id() else {
            panic!("{transcript:?}")
        };
        id.clone()
    };
    let at = answer(&session.transcript());
    let fork = within_timeout(session.fork(Some(&at), "/tmp".as_ref())).await.unwrap();
    assert_eq!(said(&fork.transcript()), ["User: one", "Agent: one"]);
    turn(&fork, "count").await;
    assert_eq!(said(&fork.transcript()).last().unwrap(), "Agent: 3 entries in /tmp");
    let truth = said(&session.transcript());
    within_timeout(server.stop()).await;
    drop(server);

    let server = Server::builder(Worker::default()).persist(&store).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        assert_eq!(within_timeout(client.list(None)).await.unwrap().len(), 2);
        let again = within_timeout(client.load(session.id(), "/tmp".as_ref())).await.unwrap();
        assert_eq!(said(&again.transcript())[..truth.len()], truth);
        assert_eq!(answer(&again.transcript()), at, "ids last");
        turn(&again, "count").await;
        let last = said(&again.transcript()).pop().unwrap();
        assert_eq!(last, format!("Agent: {} entries in /tmp", again.transcript().entries().len() - 1));
    }
    let client = client(&server, Version::V2).await;
    within_timeout(within_timeout(client.load(fork.id(), "/tmp".as_ref())).await.unwrap().delete())
        .await
        .unwrap();
    assert_eq!(within_timeout(client.list(None)).await.unwrap().len(), 1);
}

/// Agents must not start a turn after a fork, and must reject an unknown message id.
#[tokio::test]
async fn a_fork_starts_no_turn_and_an_unknown_message_cannot_be_forked_at() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
        turn(&session, "one").await;
        let unknown = within_timeout(session.fork(Some(&MessageId::from("nobody's")), "/tmp".as_ref())).await;
        assert_eq!(unknown.unwrap_err().code(), Some(-32602), "{version:?}");
        let fork = within_timeout(session.fork(None, "/tmp".as_ref())).await.unwrap();
        turn(&session, "two").await;
        assert_eq!(said(&fork.transcript()), ["User: one", "Agent: one"], "{version:?}");
    }
}

/// In version 2 every chunk of a message must have an id, a string; in version 1 agents should give it too. Chunks of one
/// message share it, and no other message has it.
#[tokio::test]
async fn every_chunk_has_the_id_of_its_message() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    for version in [1, 2] {
        let (read, mut write) = tokio::io::split(server.connect());
        let mut lines = BufReader::new(read).lines();
        let mut ids: Vec<String> = Vec::new();
        let mut until = async |what: &str| loop {
            let line = within_timeout(lines.next_line()).await.unwrap().unwrap();
            let found = line.contains(what);
            if line.contains("_chunk") && !line.contains("tool_call") {
                let (_, id) = line.split_once(r#""messageId":""#).unwrap_or_else(|| panic!("{line}"));
                ids.push(id.split('"').next().unwrap().to_owned());
            }
            if found {
                return (line, std::mem::take(&mut ids));
            }
        };
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":{version},"info":{{"name":"t","version":"1"}},"capabilities":{{}}}}}}"#
        );
        let new =
            r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}"#;
        write.write_all(format!("{initialize}\n{new}\n").as_bytes()).await.unwrap();
        let (answer, _) = until(r#""id":2"#).await;
        let id = answer.split_once(r#""sessionId":""#).unwrap().1.split('"').next().unwrap();
        let prompt = format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{{"sessionId":"{id}","prompt":[{{"type":"text","text":"messages"}}]}}}}"#
        );
        write.write_all(format!("{prompt}\n").as_bytes()).await.unwrap();
        let (_, ids) = until(r#""end_turn""#).await;
        let [thought, first, same, second] = &ids[..] else { panic!("{ids:?}") };
        assert_eq!(first, same, "version {version}");
        assert!(thought != first && first != second && thought != second, "version {version}: {ids:?}");
    }
}

#[tokio::test]
async fn two_clients_attach_to_one_session() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    let (one, two) = (client(&server, Version::V1).await, client(&server, Version::V2).await);
    let session = within_timeout(one.new_session("/tmp".as_ref())).await.unwrap();
    let joined = within_timeout(two.load(session.id(), "/tmp".as_ref())).await.unwrap();
    turn(&session, "hello").await;
    let mut news = joined.updates_since(0);
    while said(&joined.transcript()) != ["User: hello", "Agent: hello"] {
        within_timeout(news.next()).await.unwrap();
    }
}

#[tokio::test]
async fn a_long_stream_arrives_complete_and_in_order() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    let whole: String = (0..STREAMED).map(|number| format!("{number:08} ")).collect();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
        assert_eq!(reason(&turn(&session, "stream").await), "end_turn");
        let text = session.transcript().entries()[1].body().content.to_text();
        assert!(text == whole, "{version:?}: {} of {} bytes", text.len(), whole.len());
    }
}

#[tokio::test]
async fn extension_requests_are_answered_by_the_agent() {
    let server = Server::builder(Worker::default()).start().await.unwrap();
    let client = client(&server, Version::V2).await;
    let pong = within_timeout(client.call("_worker/ping", &parlor_agent::Object::default())).await.unwrap();
    assert_eq!(pong.get("pong").unwrap().as_str(), "1");
    assert!(within_timeout(client.call("_worker/pong", &parlor_agent::Object::default())).await.is_err());
}

/// Works for ever, and says when it does no more.
struct Endless(tokio::sync::watch::Sender<bool>);

/// A turn that runs.
struct Running(tokio::sync::watch::Sender<bool>);

impl Agent for Endless {
    async fn prompt(&self, _turn: Turn) -> Result<StopReason, TurnError> {
        let _running = Running(self.0.clone());
        std::future::pending().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

#[tokio::test]
async fn a_turn_is_dropped_when_the_server_stops() {
    let (sender, mut gone) = tokio::sync::watch::channel(false);
    let server = Server::builder(Endless(sender)).start().await.unwrap();
    let client = client(&server, Version::V2).await;
    let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
    let _turn = within_timeout(session.prompt("work for ever")).await.unwrap();
    within_timeout(server.stop()).await;
    within_timeout(gone.wait_for(|gone| *gone)).await.unwrap();
}
