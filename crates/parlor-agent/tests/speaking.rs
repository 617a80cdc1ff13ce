//! What an agent can say, in a turn and apart from one, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parlor_agent::{
    Agent, Choice, EntryId, Failure, Info, Json, Object, Role, Server, Session, Setting, Stop, Transcript,
    Turn,
};
use parlor_client::{Client, Connector, Slot, State, Version};
use parlor_testkit::wait::within_timeout;
use tokio::sync::Notify;

/// Does what the prompt says.
#[derive(Clone, Default)]
struct Speaker {
    greets: bool,
    /// Lets what goes on in the background go on.
    go: Arc<Notify>,
    /// How many turns got past a question.
    passed: Arc<AtomicUsize>,
    /// Told when a method of the agent's own hangs, and when it is dropped.
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
    /// Goes on beside the turn.
    async fn beside(&self, turn: &Turn, word: &str, rest: &str) {
        let (go, ended) = (Arc::clone(&self.go), Arc::clone(&self.dropped));
        match word {
            "background" => {
                turn.say("I will tell you.").await;
                let session = turn.session();
                tokio::spawn(async move {
                    go.notified().await;
                    let _call = session.tool("Never ends").start().await;
                    session.say("It is ").await;
                    session.say("built.").await;
                });
            }
            "late" => {
                let turn = turn.clone();
                tokio::spawn(async move {
                    go.notified().await;
                    turn.say("Late words.").await;
                    let _call = turn.tool("Late").start().await;
                    let _terminal = turn.terminal("late").await;
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
                    let asked = session.form("Anybody?", &Json::parse("{}").unwrap()).await;
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
            .mcp("stdio")
            .command("shout", "says it loudly", Some("what"))
            .command("hush", "says nothing", None)
            .setting(Setting::new("mode", "Mode").category("mode").value("ask", "Ask").value("code", "Code"))
            .setting(Setting::new("model", "Model").category("model").value("s", "Small").value("l", "Large"))
    }

    async fn begun(&self, session: Session) {
        if self.greets {
            session.say("Welcome.").await;
            let entries = session.transcript().await.map_or(0, |transcript| transcript.entries().len());
            let schema = Json::parse(r#"{"type":"object","properties":{"name":{"type":"string"}}}"#).unwrap();
            if let Ok(Some(filled)) = session.form("Who is there?", &schema).await {
                session.end_message();
                session.say(&format!("{entries}: {}", filled.to_json().as_str())).await;
            }
        }
    }

    async fn prompt(&self, turn: Turn) -> Result<Stop, Failure> {
        let text = turn.text();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "replace" => {
                turn.think("It is swordfish.").await;
                let thought = turn.said().ok_or_else(|| Failure::new("nothing was said"))?;
                turn.say("The password is ").await;
                turn.say("swordfish.").await;
                let said = turn.said().ok_or_else(|| Failure::new("nothing was said"))?;
                turn.replace(&thought, "").await;
                turn.replace(&said, "The password is safe.").await;
                turn.say(" Really.").await;
            }
            "settings" => {
                let value = |id| turn.setting(id).unwrap_or_else(|| "none".to_owned());
                turn.say(&format!("{} {} {}", value("mode"), value("model"), value("other"))).await;
            }
            "choose" => turn.choose("mode", rest).await?,
            "form" => {
                let schema =
                    Json::parse("{\n\"type\":\"object\",\n\"properties\":{\"n\":{\"type\":\"integer\"}}}")?;
                match turn.form("How many?", &schema).await? {
                    Some(filled) => turn.say(filled.to_json().as_str()).await,
                    None => turn.say("Nobody says.").await,
                }
            }
            "usage" => {
                turn.usage(1000, u64::MAX).await;
                turn.spent(10, 1);
                turn.spent(20, 2);
            }
            "servers" => turn.say(&format!("{:?}", turn.mcp_servers())).await,
            "lines" => {
                turn.say_block(&Json::parse("{\n\"type\":\"text\",\r\n\"text\":\"in lines\"}")?).await;
                let update =
                    Json::parse("{\n\"sessionUpdate\":\"_weather\",\n\"rain\":12345678901234567890}")?;
                turn.update(&Object::parse(update.raw())?).await;
            }
            "background" | "late" | "outlive" => self.beside(&turn, word, rest).await,
            "ask" => {
                let call = turn.tool("Ask").start().await;
                let choice = call.ask(&[Choice::AllowOnce]).await;
                self.passed.fetch_add(1, Ordering::Relaxed);
                turn.say(&format!("{choice:?}")).await;
                choice?;
            }
            "impatient" => {
                let call = turn.tool("Ask").start().await;
                tokio::select! {
                    answer = call.ask(&[Choice::AllowOnce]) => panic!("nobody answers: {answer:?}"),
                    () = self.go.notified() => {}
                }
                turn.say("I do not wait.").await;
                self.go.notified().await;
            }
            "terminal" => {
                let terminal = turn.terminal("sleep").await;
                terminal.output(b"zzz").await;
                let _running = turn.terminal("forgotten").await;
                terminal.killed("SIGKILL").await;
            }
            "transcript" => {
                for number in 1..=100 {
                    turn.think(&format!("{number} ")).await;
                }
                turn.say("So.").await;
                let transcript = turn.transcript().await?;
                turn.end_message();
                turn.say(&said(&transcript).concat()).await;
            }
            "code" => return Err(Failure::with_code(-32000, "log in first")),
            _ => turn.say(&text).await,
        }
        Ok(Stop::EndTurn)
    }

    async fn other(&self, method: &str, _params: &Object) -> Result<Json, Failure> {
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

/// What the agent said, message by message.
fn said(transcript: &Transcript) -> Vec<String> {
    let messages = transcript
        .entries()
        .iter()
        .filter(|entry| matches!(entry.id(), EntryId::Message(Role::Agent | Role::Thought, _)));
    messages.map(|entry| entry.body().content.to_text()).collect()
}

/// Waits until a session looks like this.
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
async fn what_was_said_is_replaced_and_taken_back() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "replace").await;
    assert_eq!(said(&session.transcript()), ["", "The password is safe. Really."]);
    // Who comes later is never told what was taken back.
    let other = client(&server, Version::V1).await;
    let loaded = within_timeout(other.load(session.id(), "/tmp".as_ref())).await.unwrap();
    let all: String = said(&loaded.transcript()).concat();
    assert_eq!(all, "The password is safe. Really.");
}

#[tokio::test]
async fn settings_are_chosen_by_people_and_by_the_agent_and_stay_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::of(Speaker::default()).store(&file).start().await.unwrap();
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

    // The file is free when the last who had it is gone.
    let server = Server::of(Speaker::default()).store(&file).start().await.unwrap();
    let again = client(&server, Version::V2).await;
    let session = within_timeout(again.load(session.id(), "/tmp".as_ref())).await.unwrap();
    turn(&session, "settings").await;
    assert_eq!(said(&session.transcript()).last().unwrap(), "code s none");
}

#[tokio::test]
async fn a_setting_can_be_chosen_as_soon_as_a_session_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::of(Speaker::default()).store(&file).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "hello").await;
    server.stop().await;
    drop(server);
    let server = Server::of(Speaker::default()).store(&file).start().await.unwrap();
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
async fn commands_are_announced_to_clients_of_both_versions() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
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
async fn a_form_is_filled_in_or_not() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
    for version in VERSIONS {
        let (client, session) = begin(&server, version).await;
        let mut questions = client.requests();
        let prompt = within_timeout(session.prompt("form")).await.unwrap();
        let question = within_timeout(questions.next()).await.unwrap();
        let mut answer = Object::default();
        answer.set("action", Json::parse(r#""accept""#).unwrap());
        answer.set("content", Json::parse(r#"{"n":3}"#).unwrap());
        question.respond(answer).await;
        within_timeout(prompt.outcome()).await.unwrap();
        assert_eq!(said(&session.transcript()), [r#"{"n":3}"#], "{version:?}");

        let mut declined = Object::default();
        declined.set("action", Json::parse(r#""decline""#).unwrap());
        for answer in [Some(declined), None] {
            let prompt = within_timeout(session.prompt("form")).await.unwrap();
            let question = within_timeout(questions.next()).await.unwrap();
            match answer {
                Some(answer) => question.respond(answer).await,
                None => question.decline().await,
            }
            assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap().state), "end_turn");
            assert_eq!(said(&session.transcript()).last().unwrap(), "Nobody says.");
        }
    }
}

#[tokio::test]
async fn an_agent_may_speak_first() {
    let server = Server::of(Speaker { greets: true, ..Speaker::default() }).start().await.unwrap();
    for version in VERSIONS {
        let client = client(&server, version).await;
        let mut questions = client.requests();
        let session = within_timeout(client.new_session("/tmp".as_ref())).await.unwrap();
        says(&session, "Welcome.").await;
        // It may ask as well, and know what was said.
        let mut answer = Object::default();
        answer.set("action", Json::parse(r#""accept""#).unwrap());
        answer.set("content", Json::parse(r#"{"name":"Ada"}"#).unwrap());
        within_timeout(questions.next()).await.unwrap().respond(answer).await;
        says(&session, r#"1: {"name":"Ada"}"#).await;
        turn(&session, "hello").await;
        assert_eq!(said(&session.transcript()), ["Welcome.", r#"1: {"name":"Ada"}"#, "hello"]);
        // A fork is nothing new.
        let fork = within_timeout(session.fork(None, "/tmp".as_ref())).await.unwrap();
        turn(&fork, "there").await;
        assert_eq!(said(&fork.transcript()).last().unwrap(), "there");
    }
}

#[tokio::test]
async fn an_agent_goes_on_when_the_turn_is_over() {
    let agent = Speaker::default();
    let server = Server::of(agent.clone()).start().await.unwrap();
    for version in VERSIONS {
        let (_client, session) = begin(&server, version).await;
        assert_eq!(reason(&turn(&session, "background").await), "end_turn");
        agent.go.notify_one();
        says(&session, "It is built.").await;
        // Nobody can end the call any more.
        until(&session, |transcript| status(transcript, "Never ends").as_deref() == Some("\"failed\"")).await;
    }
}

#[tokio::test]
async fn what_is_said_in_a_session_that_everybody_left_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let agent = Speaker::default();
    let server = Server::of(agent.clone()).store(&file).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "background").await;
    // The last to close lets the agent go.
    within_timeout(session.clone().close()).await.unwrap();
    agent.go.notify_one();
    let other = client(&server, Version::V1).await;
    let again = within_timeout(other.load(session.id(), "/tmp".as_ref())).await.unwrap();
    says(&again, "It is built.").await;
}

#[tokio::test]
async fn words_of_a_turn_that_is_over_are_said_and_those_of_a_cancelled_one_are_not() {
    let agent = Speaker::default();
    let server = Server::of(agent.clone()).start().await.unwrap();
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
        "nobody hears of tools and terminals either"
    );
}

#[tokio::test]
async fn what_outlives_its_server_is_told_so() {
    let agent = Speaker::default();
    let server = Server::of(agent.clone()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "outlive").await;
    server.stop().await;
    drop(server);
    agent.go.notify_one();
    within_timeout(agent.dropped.notified()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_is_cancelled_while_it_asks_says_nothing_more() {
    let agent = Speaker::default();
    let server = Server::of(agent.clone()).start().await.unwrap();
    let (client, session) = begin(&server, Version::V2).await;
    let mut questions = client.requests();
    let rounds = 100;
    for _ in 0..rounds {
        let prompt = within_timeout(session.prompt("ask")).await.unwrap();
        let question = within_timeout(questions.next()).await.unwrap();
        within_timeout(session.cancel()).await.unwrap();
        assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap().state), "cancelled");
        drop(question);
    }
    assert_eq!(said(&session.transcript()), Vec::<String>::new());
    let transcript = session.transcript();
    let ended = transcript.entries().iter().filter(|entry| {
        entry.body().fields.get("status").is_some_and(|status| status.as_str() == r#""cancelled""#)
    });
    assert_eq!(ended.count(), rounds);
}

#[tokio::test]
async fn a_question_that_is_not_waited_for_is_taken_back_and_the_turn_goes_on() {
    let agent = Speaker::default();
    let server = Server::of(agent.clone()).start().await.unwrap();
    let (client, session) = begin(&server, Version::V2).await;
    let mut questions = client.requests();
    let prompt = within_timeout(session.prompt("impatient")).await.unwrap();
    let mut question = within_timeout(questions.next()).await.unwrap();
    agent.go.notify_one();
    within_timeout(question.cancelled()).await;
    says(&session, "I do not wait.").await;
    let state = session.transcript().state().map(|state| format!("{:?}", state.activity));
    assert_eq!(state.as_deref(), Some("Running"));
    agent.go.notify_one();
    assert_eq!(reason(&within_timeout(prompt.outcome()).await.unwrap().state), "end_turn");
}

#[tokio::test]
async fn a_question_names_the_tool_that_it_is_about() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
    for version in VERSIONS {
        let (client, session) = begin(&server, version).await;
        let mut questions = client.requests();
        let prompt = within_timeout(session.prompt("ask")).await.unwrap();
        let question = within_timeout(questions.next()).await.unwrap();
        assert!(question.params().to_json().as_str().contains(r#""title":"Ask""#), "{version:?}");
        let choice = question.options()[0].clone();
        question.select(&choice).await;
        within_timeout(prompt.outcome()).await.unwrap();
    }
}

#[tokio::test]
async fn terminals_end_with_the_turn_at_the_latest() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "terminal").await;
    let transcript = session.transcript();
    let exits = transcript.entries().iter().filter(|entry| matches!(entry.id(), EntryId::Terminal(_)));
    let exits: Vec<_> = exits.map(|entry| entry.body().fields.get("exitStatus").map(Json::as_str)).collect();
    assert_eq!(exits, [Some(r#"{"signal":"SIGKILL"}"#), Some("{}")]);
}

#[tokio::test]
async fn usage_is_told_with_its_numbers() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
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
async fn json_that_has_line_breaks_arrives_whole() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    turn(&session, "lines").await;
    assert_eq!(said(&session.transcript()), ["in lines"]);
    let transcript = session.transcript();
    let note = transcript.entries().iter().find(|entry| matches!(entry.id(), EntryId::Note(_)));
    assert!(format!("{:?}", note.unwrap().body()).contains("12345678901234567890"));
}

#[tokio::test]
async fn the_servers_of_a_client_reach_the_agent_as_they_came() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
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
async fn the_transcript_has_what_the_turn_said_just_now() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
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
async fn a_failure_keeps_its_code() {
    let server = Server::of(Speaker::default()).start().await.unwrap();
    let (_client, session) = begin(&server, Version::V2).await;
    let end = turn(&session, "code").await;
    assert_eq!(
        end.fields.get("error").map(Json::as_str),
        Some(r#"{"code":-32000,"message":"log in first"}"#)
    );
}

#[tokio::test]
async fn a_method_of_the_agents_own_is_answered_also_if_it_panics_and_dropped_if_nobody_waits() {
    let agent = Speaker::default();
    let server = Server::of(agent.clone()).start().await.unwrap();
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
