//! Updates and requests of an agent, in a turn and outside of turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parlor_agent::{
    Agent, EntryId, FormOutcome, Info, Json, Object, PermissionOption, Role, Server, Session, Setting,
    SettingCategory, StopReason, Transcript, Turn, TurnError,
};
use parlor_client::{Client, Connector, Slot, State, Version};
use parlor_testkit::wait::within_timeout;
use tokio::sync::Notify;

/// Executes the prompt.
#[derive(Clone, Default)]
struct Speaker {
    greets: bool,
    /// Lets background tasks continue.
    go: Arc<Notify>,
    /// How many turns got past a request.
    passed: Arc<AtomicUsize>,
    /// Notified when an extension request hangs, and when it is dropped.
    hangs: Arc<Notify>,
    dropped: Arc<Notify>,
}

struct TellDropped(Arc<Notify>);

impl Drop for TellDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Speaker {
    /// Starts a background task.
    async fn beside(&self, turn: &Turn, word: &str, rest: &str) {
        let (go, ended) = (Arc::clone(&self.go), Arc::clone(&self.dropped));
        match word {
            "background" => {
                turn.send_text("I will tell you.").await;
                let session = turn.session();
                tokio::spawn(async move {
                    go.notified().await;
                    let _call = session.tool_call("Never ends").start().await;
                    session.send_text("It is ").await;
                    session.send_text("built.").await;
                });
            }
            "late" => {
                let turn = turn.clone();
                tokio::spawn(async move {
                    go.notified().await;
                    turn.send_text("Late words.").await;
                    let _call = turn.tool_call("Late").start().await;
                    let _terminal = turn.create_terminal("late").await;
                });
                if rest == "and wait" {
                    std::future::pending::<()>().await;
                }
            }
            _ => {
                let session = turn.session();
                tokio::spawn(async move {
                    go.notified().await;
                    let gone = session.transcript().await.is_err();
                    let asked = session.request_form("Anybody?", &Json::parse("{}").unwrap()).await;
                    assert!(gone && asked.is_err());
                    ended.notify_one();
                });
            }
        }
    }
}

impl Agent for Speaker {
    fn info(&self) -> Info {
        Info::new("speaker", "1")
            .mcp_transport("stdio")
            .command("shout", "says it loudly", Some("what"))
            .command("hush", "says nothing", None)
            .setting(
                Setting::new("mode", "Mode")
                    .category(SettingCategory::Mode)
                    .value("ask", "Ask")
                    .value("code", "Code"),
            )
            .setting(
                Setting::new("model", "Model")
                    .category(SettingCategory::Model)
                    .value("s", "Small")
                    .value("l", "Large"),
            )
    }

    async fn session_started(&self, session: Session) {
        if self.greets {
            session.send_text("Welcome.").await;
            let entries = session.transcript().await.map_or(0, |transcript| transcript.entries().len());
            let schema = Json::parse(r#"{"type":"object","properties":{"name":{"type":"string"}}}"#).unwrap();
            if let Ok(FormOutcome::Accepted(filled)) = session.request_form("Who is there?", &schema).await {
                session.end_message();
                session.send_text(&format!("{entries}: {}", filled.to_json().as_str())).await;
            }
        }
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        let text = turn.prompt_text();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "replace" => {
                turn.send_thought("It is swordfish.").await;
                let thought = turn.current_message().ok_or_else(|| TurnError::new("nothing was said"))?;
                turn.send_text("The password is ").await;
                turn.send_text("swordfish.").await;
                let said = turn.current_message().ok_or_else(|| TurnError::new("nothing was said"))?;
                turn.replace_message(&thought, "").await;
                turn.replace_message(&said, "The password is safe.").await;
                turn.send_text(" Really.").await;
            }
            "settings" => {
                let value = |id| turn.setting(id).unwrap_or_else(|| "none".to_owned());
                turn.send_text(&format!("{} {} {}", value("mode"), value("model"), value("other"))).await;
            }
            "choose" => turn.set_setting("mode", rest).await?,
            "form" => {
                let schema =
                    Json::parse("{\n\"type\":\"object\",\n\"properties\":{\"n\":{\"type\":\"integer\"}}}")?;
                match turn.request_form("How many?", &schema).await? {
                    FormOutcome::Accepted(filled) => turn.send_text(filled.to_json().as_str()).await,
                    outcome @ (FormOutcome::Declined
                    | FormOutcome::Cancelled
                    | FormOutcome::Unanswered
                    | _) => {
                        turn.send_text(&format!("{outcome:?}")).await;
                    }
                }
            }
            "usage" => {
                turn.set_usage(1000, u64::MAX).await;
                turn.add_tokens(10, 1);
                turn.add_tokens(20, 2);
            }
            "servers" => turn.send_text(&format!("{:?}", turn.mcp_servers())).await,
            "lines" => {
                turn.send_content(Json::parse("{\n\"type\":\"text\",\r\n\"text\":\"in lines\"}")?).await;
                let update =
                    Json::parse("{\n\"sessionUpdate\":\"_weather\",\n\"rain\":12345678901234567890}")?;
                turn.send_update(&Object::parse(update.raw())?).await;
            }
            "background" | "late" | "outlive" => self.beside(&turn, word, rest).await,
            "ask" => {
                let call = turn.tool_call("Ask").start().await;
                let choice = call.request_permission([PermissionOption::allow_once()]).await;
                self.passed.fetch_add(1, Ordering::Relaxed);
                turn.send_text(&format!("{choice:?}")).await;
                choice?;
            }
            "impatient" => {
                let call = turn.tool_call("Ask").start().await;
                tokio::select! {
                    answer = call.request_permission([PermissionOption::allow_once()]) => panic!("nobody answers: {answer:?}"),
                    () = self.go.notified() => {}
                }
                turn.send_text("I do not wait.").await;
                self.go.notified().await;
            }
            "terminal" => {
                let terminal = turn.create_terminal("sleep").await;
                terminal.send_output(b"zzz").await;
                let _running = turn.create_terminal("forgotten").await;
                terminal.exit_by_signal("SIGKILL").await;
            }
            "transcript" => {
                for number in 1..=100 {
                    turn.send_thought(&format!("{number} ")).await;
                }
                turn.send_text("So.").await;
                let transcript = turn.transcript().await?;
                turn.end_message();
                turn.send_text(&said(&transcript).concat()).await;
            }
            "code" => return Err(TurnError::with_code(-32000, "log in first")),
            _ => turn.send_text(&text).await,
        }
        Ok(StopReason::EndTurn)
    }

    async fn extension_request(&self, method: &str, _params: &Object) -> Result<Json, TurnError> {
        match method {
            "_panic" => panic!("as asked"),
            "_hang" => {
                let _tell = TellDropped(Arc::clone(&self.dropped));
                self.hangs.notify_one();
                std::future::pending().await
            }
            _ => Ok(Json::parse("[1]")?),
        }
    }
}

const VERSIONS: [Version; 2] = [Version::V2, Version::V1];

async fn client(server: &Server, version: Version) -> Client {
    let (read, write) = tokio::io::split(server.connect());
    let connector = Connector::new("test", "1").only(version);
    let connector = connector.capability("elicitation", Json::parse(r#"{"form":{}}"#).unwrap());
    within_timeout(connector.over(read, write)).await.unwrap()
}

async fn begin(server: &Server, version: Version) -> (Client, parlor_client::Session) {
    let client = client(server, version).await;
    let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
    (client, session)
}

async fn turn(session: &parlor_client::Session, text: &str) -> State {
    let turn = within_timeout(session.prompt(text)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap().state
}

fn reason(state: &State) -> String {
    state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned()).unwrap_or_default()
}

/// The texts of the agent's messages.
fn said(transcript: &Transcript) -> Vec<String> {
    let messages = transcript
        .entries()
        .iter()
        .filter(|entry| matches!(entry.id(), EntryId::Message(Role::Agent | Role::Thought, _)));
    messages.map(|entry| entry.body().content.to_text()).collect()
}

/// Waits until a condition holds for the transcript.
async fn until(session: &parlor_client::Session, mut holds: impl FnMut(&Transcript) -> bool) {
    let mut news = session.updates();
    while !holds(&session.transcript()) {
        within_timeout(news.next()).await.expect("the session goes on");
    }
}

async fn says(session: &parlor_client::Session, text: &str) {
    until(session, |transcript| said(transcript).iter().any(|said| said == text)).await;
}

fn status(transcript: &Transcript, title: &str) -> Option<String> {
    let shown = format!("{title:?}");
    let call = transcript
        .entries()
        .iter()
        .rev()
        .find(|entry| entry.body().fields.get("title").is_some_and(|title| title.as_str() == shown))?;
    Some(call.body().fields.get("status")?.as_str().to_owned())
}

#[tokio::test]
async fn a_message_is_replaced_and_cleared() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "replace").await;
    assert_eq!(said(&session.transcript()), ["", "The password is safe. Really."]);
    // A client that attaches later never receives the cleared text.
    let other = client(&server, Version::V1).await;
    let loaded = within_timeout(other.load(session.id(), "/tmp".as_ref())).await.unwrap();
    let all: String = said(&loaded.transcript()).concat();
    assert_eq!(all, "The password is safe. Really.");
}

#[cfg(feature = "persist")]
#[tokio::test]
async fn settings_are_selected_by_people_and_the_agent_and_persist() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::builder(Speaker::default()).persist(&file).start().await.unwrap();
    for version in VERSIONS {
        let (client, session) = begin(&server, version).await;
        turn(&session, "settings").await;
        assert_eq!(said(&session.transcript()), ["ask s none"]);
        let choose = |id: &str, value: &str| {
            let mut params = Object::default();
            params.set("sessionId", session.id().as_json());
            params.set("configId", Json::parse(format!("{id:?}")).unwrap());
            params.set("type", Json::parse(r#""id""#).unwrap());
            params.set("value", Json::parse(format!("{value:?}")).unwrap());
            let client = client.clone();
            async move { within_timeout(client.call("session/set_config_option", &params)).await }
        };
        choose("model", "l").await.unwrap();
        assert!(choose("model", "xl").await.is_err() && choose("taste", "l").await.is_err());
        turn(&session, "choose code").await;
        assert_eq!(reason(&turn(&session, "choose nonsense").await), "error");
        turn(&session, "settings").await;
        assert_eq!(said(&session.transcript()).last().unwrap(), "code l none", "{version:?}");
        let options = session.transcript().slot(Slot::Options).unwrap().fields.get("configOptions").cloned();
        if version == Version::V2 {
            assert_eq!(options.unwrap().as_str().matches(r#""currentValue":"code""#).count(), 1);
        }
        let fork = within_timeout(session.fork(None, "/tmp".as_ref())).await.unwrap();
        turn(&fork, "settings").await;
        assert_eq!(said(&fork.transcript()).last().unwrap(), "code l none");
    }
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "choose code").await;
    server.stop().await;
    drop(server);

    // The file is free when the last clone of the server is dropped.
    let server = Server::builder(Speaker::default()).persist(&file).start().await.unwrap();
    let again = client(&server, Version::V2).await;
    let session = within_timeout(again.load(session.id(), "/tmp".as_ref())).await.unwrap();
    turn(&session, "settings").await;
    assert_eq!(said(&session.transcript()).last().unwrap(), "code s none");
}

#[cfg(feature = "persist")]
#[tokio::test]
async fn a_setting_can_be_selected_as_soon_as_a_session_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::builder(Speaker::default()).persist(&file).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "hello").await;
    server.stop().await;
    drop(server);
    let server = Server::builder(Speaker::default()).persist(&file).start().await.unwrap();
    let again = client(&server, Version::V2).await;
    let session = within_timeout(again.load(session.id(), "/tmp".as_ref())).await.unwrap();
    let params = format!(
        r#"{{"sessionId":{},"configId":"model","type":"id","value":"l"}}"#,
        session.id().as_json().as_literal()
    );
    let params = Object::parse(Json::parse(params).unwrap().raw()).unwrap();
    within_timeout(again.call("session/set_config_option", &params)).await.unwrap();
    turn(&session, "settings").await;
    assert_eq!(said(&session.transcript()).last().unwrap(), "ask l none");
}

#[tokio::test]
async fn commands_are_sent_to_clients_of_both_versions() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    for version in VERSIONS {
        let (_client, session) = begin(&server, version).await;
        until(&session, |transcript| {
            transcript.slot(Slot::Commands).is_some_and(|commands| {
                let list = commands.fields.get("availableCommands").map_or("", Json::as_str);
                list.contains(r#""name":"shout""#)
                    && list.contains(r#""hint":"what""#)
                    && list.contains("hush")
            })
        })
        .await;
    }
}

#[tokio::test]
async fn a_form_is_accepted_declined_or_unanswered() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    for version in VERSIONS {
        let (client, session) = begin(&server, version).await;
        let mut requests = client.requests();
        let prompt = within_timeout(session.prompt("form")).await.unwrap();
        let request = within_timeout(requests.next()).await.unwrap();
        let mut answer = Object::default();
        answer.set("action", Json::parse(r#""accept""#).unwrap());
        answer.set("content", Json::parse(r#"{"n":3}"#).unwrap());
        request.respond(answer).await;
        within_timeout(prompt.outcome()).await.unwrap();
        assert_eq!(said(&session.transcript()), [r#"{"n":3}"#], "{version:?}");

        let mut declined = Object::default();
        declined.set("action", Json::parse(r#""decline""#).unwrap());
        for (answer, outcome) in [(Some(declined), "Declined"), (None, "Unanswered")] {
            let prompt = within_timeout(session.prompt("form")).await.unwrap();
            let request = within_timeout(requests.next()).await.unwrap();
            match answer {
                Some(answer) => request.respond(answer).await,
                None => request.decline().await,
            }
            assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap().state), "end_turn");
            assert_eq!(said(&session.transcript()).last().unwrap(), outcome);
        }
    }
}

#[tokio::test]
async fn an_agent_can_send_and_request_before_the_first_turn() {
    let server = Server::builder(Speaker { greets: true, ..Speaker::default() }).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let mut requests = client.requests();
        let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
        says(&session, "Welcome.").await;
        // It can request forms and read the transcript as well.
        let mut answer = Object::default();
        answer.set("action", Json::parse(r#""accept""#).unwrap());
        answer.set("content", Json::parse(r#"{"name":"Ada"}"#).unwrap());
        within_timeout(requests.next()).await.unwrap().respond(answer).await;
        says(&session, r#"1: {"name":"Ada"}"#).await;
        turn(&session, "hello").await;
        assert_eq!(said(&session.transcript()), ["Welcome.", r#"1: {"name":"Ada"}"#, "hello"]);
        // A fork is not started like a new session.
        let fork = within_timeout(session.fork(None, "/tmp".as_ref())).await.unwrap();
        turn(&fork, "there").await;
        assert_eq!(said(&fork.transcript()).last().unwrap(), "there");
    }
}

#[tokio::test]
async fn updates_after_the_turn_are_delivered_and_open_tool_calls_fail() {
    let agent = Speaker::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    for version in VERSIONS {
        let (_client, session) = begin(&server, version).await;
        assert_eq!(reason(&turn(&session, "background").await), "end_turn");
        agent.go.notify_one();
        says(&session, "It is built.").await;
        // Nothing is left that could end the call.
        until(&session, |transcript| status(transcript, "Never ends").as_deref() == Some("\"failed\"")).await;
    }
}

#[tokio::test]
async fn updates_in_a_session_without_clients_are_stored() {
    let agent = Speaker::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "background").await;
    // The session releases the agent when the last client has closed it.
    within_timeout(session.clone().close()).await.unwrap();
    agent.go.notify_one();
    let other = client(&server, Version::V1).await;
    let again = within_timeout(other.load(session.id(), "/tmp".as_ref())).await.unwrap();
    says(&again, "It is built.").await;
}

#[tokio::test]
async fn late_updates_of_a_turn_are_delivered_and_those_of_a_cancelled_turn_are_dropped() {
    let agent = Speaker::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "late").await;
    agent.go.notify_one();
    says(&session, "Late words.").await;

    let prompt = within_timeout(session.prompt("late and wait")).await.unwrap();
    until(&session, |transcript| {
        transcript.state().is_some_and(|state| format!("{:?}", state.activity) == "Running")
    })
    .await;
    within_timeout(session.cancel()).await.unwrap();
    assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap().state), "cancelled");
    let before = session.transcript().entries().len();
    agent.go.notify_one();
    turn(&session, "after").await;
    assert_eq!(said(&session.transcript()), ["Late words.", "after"]);
    assert_eq!(
        session.transcript().entries().len(),
        before + 2,
        "tool calls and terminals are dropped as well"
    );
}

#[tokio::test]
async fn requests_fail_after_the_server_has_stopped() {
    let agent = Speaker::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "outlive").await;
    server.stop().await;
    drop(server);
    agent.go.notify_one();
    within_timeout(agent.dropped.notified()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_is_cancelled_during_a_request_sends_nothing_more() {
    let agent = Speaker::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    let (client, session) = begin(&server, Version::V2).await;
    let mut requests = client.requests();
    let rounds = 100;
    for _ in 0..rounds {
        let prompt = within_timeout(session.prompt("ask")).await.unwrap();
        let request = within_timeout(requests.next()).await.unwrap();
        within_timeout(session.cancel()).await.unwrap();
        assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap().state), "cancelled");
        drop(request);
    }
    assert_eq!(said(&session.transcript()), Vec::<String>::new());
    let transcript = session.transcript();
    let ended = transcript.entries().iter().filter(|entry| {
        entry.body().fields.get("status").is_some_and(|status| status.as_str() == r#""cancelled""#)
    });
    assert_eq!(ended.count(), rounds);
}

#[tokio::test]
async fn a_dropped_request_is_cancelled_and_the_turn_continues() {
    let agent = Speaker::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    let (client, session) = begin(&server, Version::V2).await;
    let mut requests = client.requests();
    let prompt = within_timeout(session.prompt("impatient")).await.unwrap();
    let mut request = within_timeout(requests.next()).await.unwrap();
    agent.go.notify_one();
    within_timeout(request.cancelled()).await;
    says(&session, "I do not wait.").await;
    let state = session.transcript().state().map(|state| format!("{:?}", state.activity));
    assert_eq!(state.as_deref(), Some("Running"));
    agent.go.notify_one();
    assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap().state), "end_turn");
}

#[tokio::test]
async fn a_permission_request_has_the_title_of_its_tool_call() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    for version in VERSIONS {
        let (client, session) = begin(&server, version).await;
        let mut requests = client.requests();
        let prompt = within_timeout(session.prompt("ask")).await.unwrap();
        let request = within_timeout(requests.next()).await.unwrap();
        assert!(request.params().to_json().as_str().contains(r#""title":"Ask""#), "{version:?}");
        let choice = request.options()[0].clone();
        request.select(&choice).await;
        within_timeout(prompt.outcome()).await.unwrap();
    }
}

#[tokio::test]
async fn terminals_end_with_the_turn() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "terminal").await;
    let transcript = session.transcript();
    let exits = transcript.entries().iter().filter(|entry| matches!(entry.id(), EntryId::Terminal(_)));
    let exits: Vec<_> = exits.map(|entry| entry.body().fields.get("exitStatus").map(Json::as_str)).collect();
    assert_eq!(exits, [Some(r#"{"signal":"SIGKILL"}"#), Some("{}")]);
}

#[tokio::test]
async fn usage_has_exact_numbers() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    let end = turn(&session, "usage").await;
    assert_eq!(
        end.fields.get("usage").map(Json::as_str),
        Some(r#"{"totalTokens":33,"inputTokens":30,"outputTokens":3}"#)
    );
    let usage = session.transcript().slot(Slot::Usage).unwrap().fields.clone();
    assert_eq!(usage.get("size").map(Json::as_str), Some("18446744073709551615"));
}

#[tokio::test]
async fn json_with_line_breaks_arrives_complete() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "lines").await;
    assert_eq!(said(&session.transcript()), ["in lines"]);
    let transcript = session.transcript();
    let note = transcript.entries().iter().find(|entry| matches!(entry.id(), EntryId::Note(_)));
    assert!(format!("{:?}", note.unwrap().body()).contains("12345678901234567890"));
}

#[tokio::test]
async fn mcp_servers_reach_the_agent_unchanged() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    let client = client(&server, Version::V2).await;
    let params = r#"{"cwd":"/tmp","mcpServers":[{"type":"stdio","name":"x","command":"/bin/x","args":[],"env":[],"n":1e2}]}"#;
    let params = Object::parse(Json::parse(params).unwrap().raw()).unwrap();
    let answer = within_timeout(client.call("session/new", &params)).await.unwrap();
    let id = parlor_client::JsonStr::from_raw(answer.get("sessionId").unwrap().raw()).unwrap();
    let session = client.session(&id.into());
    turn(&session, "servers").await;
    let said = said(&session.transcript()).concat();
    assert!(said.contains("/bin/x") && said.contains("1e2"), "{said}");
    let info = client.info().to_json();
    assert!(info.as_str().contains(r#""mcp":{"stdio":{}}"#), "{}", info.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_transcript_contains_what_the_turn_has_sent() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    for version in VERSIONS {
        let thoughts: String = (1..=100).map(|number| format!("{number} ")).collect();
        let client = client(&server, version).await;
        for _ in 0..20 {
            let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
            turn(&session, "transcript").await;
            assert_eq!(*said(&session.transcript()).last().unwrap(), format!("{thoughts}So."), "{version:?}");
        }
    }
}

#[tokio::test]
async fn an_error_keeps_its_code() {
    let server = Server::builder(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    let end = turn(&session, "code").await;
    assert_eq!(
        end.fields.get("error").map(Json::as_str),
        Some(r#"{"code":-32000,"message":"log in first"}"#)
    );
}

#[tokio::test]
async fn an_extension_request_is_answered_if_the_agent_panics_and_dropped_if_the_client_cancels() {
    let agent = Speaker::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    let (client, session) = begin(&server, Version::V2).await;
    let mut params = Object::default();
    params.set("sessionId", session.id().as_json());
    assert!(within_timeout(client.call("_panic", &params)).await.is_err());
    let call = client.call("_hang", &params);
    tokio::select! {
        answer = call => panic!("{answer:?}"),
        () = within_timeout(agent.hangs.notified()) => {}
    }
    within_timeout(agent.dropped.notified()).await;
}
