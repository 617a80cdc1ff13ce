//! `parlor demo-agent` on standard input and output, and as the agent of a server without a configured agent.

mod common;

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use expect_test::expect;
use parlor_client::{
    Body, Client, Connector, Entry, EntryId, Hello, Json, Object, Prompt, Session, Slot, State, Transcript,
    Version,
};
use parlor_testkit::process::{is_alive, send_signal};
use parlor_testkit::server::TestDir;
use parlor_testkit::wait::{TIMEOUT, wait_until_async, within_timeout};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use common::{check, parlor};

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

const VERSIONS: [Version; 2] = [Version::V1, Version::V2];

/// The agent with a client that gives the same answer to every request.
struct Demo {
    process: Child,
    client: Client,
}

impl Demo {
    async fn start(version: Version, args: &[&str]) -> Self {
        let mut process = Command::new(PARLOR)
            .arg("demo-agent")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (read, write) = (process.stdout.take().unwrap(), process.stdin.take().unwrap());
        let connector = Connector::new("test", "1").capability("elicitation", json(r#"{"form":{}}"#));
        let client = within_timeout(connector.only(version).over(read, write)).await.unwrap();
        let mut requests = client.requests();
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                match request.options().first() {
                    Some(choice) => request.select(choice).await,
                    None => request.respond(object(r#"{"action":"accept","content":{"name":"Ada"}}"#)).await,
                }
            }
        });
        Self { process, client }
    }

    /// Closes the input and waits until the agent exits.
    async fn end(mut self) {
        self.client.disconnect().await;
        assert!(within_timeout(self.process.wait()).await.unwrap().success());
    }
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn object(text: &str) -> Object {
    Object::parse(json(text).raw()).unwrap()
}

async fn turn(session: &Session, prompt: impl Into<Prompt>) -> State {
    let turn = within_timeout(session.prompt(prompt)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap().state
}

/// Waits until the summary of a session is as expected.
async fn wait_for_transcript(session: &Session, is_expected: impl Fn(&[String]) -> bool) {
    let mut updates = session.updates();
    let wait = async {
        while !is_expected(&seen(session)) {
            assert!(updates.next().await.is_some(), "the connection is open");
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, wait).await;
    assert!(waited.is_ok(), "this is all that is seen: {:#?}", seen(session));
}

/// A summary of a session without its prompts: a line for each entry, and for changes of the session.
fn seen(session: &Session) -> Vec<String> {
    let transcript = session.transcript();
    let mut seen: Vec<_> = transcript.entries().iter().filter_map(entry).collect();
    let meta = transcript.slot(Slot::Info).and_then(|info| info.meta.clone());
    seen.extend(meta.and_then(|meta| Some(format!("meta {}", meta.get("a")?.as_str()))));
    seen.extend(chosen(&transcript, "mode").filter(|mode| mode != "ask").map(|mode| format!("mode {mode}")));
    let used = |usage: &Body| usage.fields.get("used").map(|used| format!("used {}", used.as_str()));
    seen.extend(transcript.slot(Slot::Usage).and_then(used));
    seen
}

fn title(session: &Session) -> String {
    let transcript = session.transcript();
    let title = transcript.slot(Slot::Info).and_then(|info| info.fields.get("title"));
    title.map(|title| title.as_str().to_owned()).unwrap_or_default()
}

fn entry(entry: &Entry) -> Option<String> {
    let body = entry.body();
    let field = |name: &str| body.fields.get(name).map_or("", |value| value.as_str());
    let text = body.content.to_text();
    Some(match entry.id() {
        EntryId::Message(parlor_client::Role::User, _) | EntryId::Event(_) => return None,
        EntryId::Message(role, _) if text.is_empty() => format!("{role:?} {}", kinds(body)),
        EntryId::Message(role, _) => format!("{role:?}: {text}"),
        EntryId::ToolCall(_) => format!("tool {} {} {}", field("title"), field("status"), kinds(body)),
        EntryId::Terminal(_) => {
            format!("terminal {:?} {}", String::from_utf8_lossy(&body.output), field("exitStatus"))
        }
        EntryId::Plan(_) if body.removed => "no plan".to_owned(),
        EntryId::Plan(_) => {
            let done = field("plan").matches(r#""status":"completed""#).count();
            format!("plan, {done} done")
        }
        EntryId::Compaction(_) | EntryId::Subagent(_) | EntryId::SessionMessage(_) | EntryId::Note(_) => {
            format!("{:?}", entry.id())
        }
    })
}

/// The kinds of content of an entry. A terminal that is sent as text is shown by its text.
fn kinds(body: &Body) -> String {
    let kind = |item: &str| {
        let item: serde_json::Value = serde_json::from_str(item).unwrap();
        let is_terminal = item["_meta"]["parlor/terminal"].is_string();
        let shown = if is_terminal { &item["content"]["text"] } else { &item["type"] };
        shown.as_str().unwrap().to_owned()
    };
    body.content.iter().map(|item| kind(item.json)).collect::<Vec<_>>().join(" ")
}

/// The value of a setting.
fn chosen(transcript: &Transcript, id: &str) -> Option<String> {
    let options = transcript.slot(Slot::Options)?.fields.get("configOptions")?.as_str().to_owned();
    let options: serde_json::Value = serde_json::from_str(&options).unwrap();
    let option = options.as_array()?.iter().find(|option| option["configId"] == id)?;
    option["currentValue"].as_str().map(str::to_owned)
}

/// The stop reason of a turn, with its error.
fn end_of(state: &State) -> String {
    let reason = state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned()).unwrap_or_default();
    state.fields.get("error").map_or(reason.clone(), |error| format!("{reason} {}", error.as_str()))
}

#[test]
fn the_help_of_demo_agent() {
    check(
        &["demo-agent", "--help"],
        "",
        0,
        &expect![[r#"
            Run the demo agent on standard input and output

            The agent speaks both versions of the Agent Client Protocol and executes the commands in the prompt,
            one per line; they are listed below. It needs no account, no network and no model.

            Usage: parlor demo-agent [OPTIONS]

            Options:
                  --state <FILE>
                      Store sessions in this file, which one process at a time can open [default: in memory]

                  --color <WHEN>
                      Print colours: auto (on a terminal), always or never

              -h, --help
                      Print help (see a summary with '-h')

            Commands of a prompt, one per line:
              help                       lists these commands
              say TEXT                   streams the words of TEXT
              think TEXT                 streams TEXT as a thought
              two TEXT                   sends TEXT in two messages
              redact [clear]             sends a message and replaces (or clears) it
              image                      sends an image
              link                       sends a link to a resource
              stream N SIZE [RATE]       sends N chunks of SIZE bytes, RATE per second
              tool [TITLE]               makes a tool call with a diff
              ask [TITLE]                makes a tool call that needs permission
              elicit                     sends a form to fill in
              terminal COMMAND           runs a shell command and streams its output
              plan A;B;C                 sends a plan and completes its steps
              unplan                     removes the plan
              title [TEXT]               sets the session's title, or clears it
              meta JSON                  patches the session's metadata; null removes a member
              mode NAME                  changes the mode: ask, code
              usage                      sends the usage of the context window
              whoami                     prints session, directory, mode, model and message count
              sleep MS                   waits
              later MS TEXT              sends TEXT after MS milliseconds, also after the turn
              background N               sends N updates in the background, five per second
              fail CODE TEXT             ends the turn with this error
              refuse                     ends the turn with the stop reason refusal

            Examples:
              parlor prompt --new --agent demo 'say hello'
              parlor demo-agent --state sessions.db < messages.jsonl
        "#]],
        &expect![""],
    );
}

/// The list of commands in the help.
fn list_in_help() -> String {
    let help = String::from_utf8(parlor(&["demo-agent", "--help"], b"").stdout).unwrap();
    let list = help.split_once("one per line:\n").unwrap().1.split_once("\n\n").unwrap().0;
    list.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A prompt, the summary of its turn, and the summary in version 1 if it differs.
type Seen = (&'static str, &'static [&'static str], Option<&'static [&'static str]>);

#[rustfmt::skip]
const SEEN: &[Seen] = &[
    ("say one  two", &["Agent: one  two"], None),
    ("say one\nsay two", &["Agent: one", "Agent: two"], None),
    ("think hm so", &["Thought: hm so"], None),
    ("two Again.", &["Agent: Again.", "Agent: Again."], None),
    ("redact", &["Agent: The password is [redacted]."],
        Some(&["Agent: The password is swordfish.", "Agent: The password is [redacted]."])),
    ("redact clear", &["Agent "], Some(&["Agent: The password is swordfish.", "Agent text"])),
    ("image", &["Agent image"], None),
    ("link", &["Agent resource_link"], None),
    ("stream 2 11", &["Agent: 00000000 ab00000001 ab"], None),
    ("stream 2 11 1000", &["Agent: 00000000 ab00000001 ab"], None),
    ("tool Polish", &[r#"tool "Polish" "completed" content diff"#], None),
    ("ask Delete it", &[r#"tool "Delete it" "completed" "#, "Agent: You allowed it this once."], None),
    ("elicit", &[r#"Agent: You filled in {"name":"Ada"}."#], None),
    ("terminal echo one; echo two >&2; exit 3",
        &[r#"tool "echo one; echo two >&2; exit 3" "failed" terminal"#, r#"terminal "one\ntwo\n" {"exitCode":3}"#],
        Some(&["tool \"echo one; echo two >&2; exit 3\" \"failed\" one\ntwo\n"])),
    ("terminal true", &[r#"tool "true" "completed" terminal"#, r#"terminal "" {"exitCode":0}"#],
        Some(&[r#"tool "true" "completed" "#])),
    ("terminal kill $$", &[r#"tool "kill $$" "failed" terminal"#, r#"terminal "" {"signal":"signal 15"}"#],
        Some(&[r#"tool "kill $$" "failed" "#])),
    ("plan look;do", &["plan, 2 done"], None),
    ("plan look\nunplan", &["no plan"], Some(&["plan, 1 done"])),
    (r#"meta {"a":12345678901234567890}"#, &["meta 12345678901234567890"], None),
    ("meta [1]", &["Agent: The metadata has to be a JSON object."], None),
    ("mode code", &["mode code"], None),
    ("mode fast", &["Agent: the setting 'mode' has no value 'fast'"], None),
    ("usage", &["used 1"], None),
    ("later 100 Now.", &["Agent: Now."], None),
    ("background 2", &["Agent: Background update 1 of 2.", "Agent: Background update 2 of 2."], None),
    ("sleep soon", &["Agent: Usage: sleep MS"], None),
];

#[tokio::test]
async fn commands_do_what_their_descriptions_say() {
    let dir = TempDir::new().unwrap();
    for version in VERSIONS {
        let demo = Demo::start(version, &[]).await;
        for (prompt, v2, v1) in SEEN {
            let session = within_timeout(demo.client.new_session(dir.path())).await.unwrap();
            assert_eq!(end_of(&turn(&session, *prompt).await), "end_turn", "{prompt}");
            let expected = if version == Version::V1 { v1.unwrap_or(v2) } else { v2 };
            // Messages after the turn arrive later.
            let is_late = ["later", "background"].iter().any(|late| prompt.starts_with(late));
            if is_late {
                wait_for_transcript(&session, |seen| seen.len() == expected.len()).await;
            }
            assert_eq!(seen(&session), *expected, "{version:?}: {prompt}");
        }
        demo.end().await;
    }
}

#[tokio::test]
async fn sleep_waits_for_the_given_time() {
    let demo = Demo::start(Version::V2, &[]).await;
    let session = within_timeout(demo.client.new_session("/".as_ref())).await.unwrap();
    let started = Instant::now();
    turn(&session, "sleep 100\nsay done").await;
    assert!(started.elapsed() >= Duration::from_millis(100));
    assert_eq!(seen(&session), ["Agent: done"]);
    demo.end().await;
}

#[tokio::test]
async fn at_most_a_hundred_background_tasks_run() {
    let demo = Demo::start(Version::V2, &[]).await;
    let session = within_timeout(demo.client.new_session("/".as_ref())).await.unwrap();
    turn(&session, "later 3600000 Later.\n".repeat(102)).await;
    assert_eq!(seen(&session), ["Agent: Too many background tasks are running."; 2]);
    demo.end().await;
}

#[tokio::test]
async fn turns_end_with_an_error_or_a_refusal() {
    for version in VERSIONS {
        let demo = Demo::start(version, &[]).await;
        let session = within_timeout(demo.client.new_session("/".as_ref())).await.unwrap();
        assert_eq!(end_of(&turn(&session, "say a\nrefuse\nsay b").await), "refusal");
        let failed = turn(&session, "fail -32001 No more paper.\nsay b").await;
        let end = end_of(&failed);
        assert!(end.starts_with(r#"error {"code":-32001,"message":"No more paper.""#), "{version:?}: {end}");
        assert_eq!(seen(&session), ["Agent: a"]);
        demo.end().await;
    }
}

#[tokio::test]
async fn every_command_is_in_the_help_and_in_the_advertised_commands() {
    let list = list_in_help();
    let names: Vec<_> = list.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    for version in VERSIONS {
        let demo = Demo::start(version, &[]).await;
        let session = within_timeout(demo.client.new_session("/".as_ref())).await.unwrap();
        turn(&session, "help").await;
        assert_eq!(seen(&session), [format!("Agent: One command per line:\n{list}")], "{version:?}");
        let transcript = session.transcript();
        let commands = transcript.slot(Slot::Commands).unwrap().fields.get("availableCommands").unwrap();
        let commands: serde_json::Value = serde_json::from_str(commands.as_str()).unwrap();
        let announced = commands.as_array().unwrap().iter().map(|command| command["name"].as_str().unwrap());
        assert_eq!(announced.collect::<Vec<_>>(), names, "{version:?}");
        demo.end().await;
    }
    // Each command is used by a test here.
    let elsewhere = ["help", "refuse", "fail", "title", "whoami", "sleep"];
    let tried: Vec<_> = SEEN.iter().flat_map(|(prompt, ..)| prompt.lines()).collect();
    for name in names.iter().filter(|name| !elsewhere.contains(name)) {
        assert!(tried.iter().any(|line| line.split(' ').next() == Some(name)), "{name} is not tried");
    }
}

#[tokio::test]
async fn text_that_is_not_a_command_gets_an_answer() {
    for version in VERSIONS {
        let demo = Demo::start(version, &[]).await;
        let session = within_timeout(demo.client.new_session("/".as_ref())).await.unwrap();
        let image = r#"{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}"#;
        let blocks = format!(r#"[{{"type":"text","text":"What is this?"}},{image},{image}]"#);
        turn(&session, Prompt::blocks(json(&blocks))).await;
        turn(&session, "/say With a slash.").await;
        let hello = r#"Agent: Hello! I am a demo agent. You said: "What is this?" (and attached 2). Say `help` to see what I can do."#;
        assert_eq!(seen(&session), [hello, "Agent: With a slash."], "{version:?}");
        demo.end().await;
    }
}

#[tokio::test]
async fn a_title_is_set_and_cleared_by_the_agent() {
    for version in VERSIONS {
        let demo = Demo::start(version, &[]).await;
        let session = within_timeout(demo.client.new_session("/".as_ref())).await.unwrap();
        for (prompt, shown) in
            [("say hello", "say hello"), ("title A name", "A name"), ("title", "say hello")]
        {
            turn(&session, prompt).await;
            assert_eq!(title(&session), format!("{shown:?}"), "{version:?}: {prompt}");
        }
        demo.end().await;
    }
}

#[tokio::test]
async fn options_that_the_client_sets_reach_the_agent() {
    let dir = TempDir::new().unwrap();
    for version in VERSIONS {
        let demo = Demo::start(version, &[]).await;
        let session = within_timeout(demo.client.new_session(dir.path())).await.unwrap();
        for (setting, value) in [("mode", "code"), ("model", "large")] {
            let choice = format!(
                r#"{{"sessionId":{},"configId":"{setting}","type":"id","value":"{value}"}}"#,
                session.id().as_json().as_literal()
            );
            within_timeout(demo.client.call("session/set_config_option", &object(&choice))).await.unwrap();
        }
        turn(&session, "think hm").await;
        turn(&session, "whoami").await;
        let (id, here) = (session.id(), dir.path().display());
        let whoami = format!("Agent: session {id} in {here}, mode code, model large, 3 messages");
        assert!(seen(&session).contains(&whoami), "{version:?}: {:#?}", seen(&session));
        demo.end().await;
    }
}

#[tokio::test]
async fn sessions_are_restored_from_the_file() {
    for (version, next) in [(Version::V1, Version::V2), (Version::V2, Version::V1)] {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("sessions.db");
        let args = ["--state", file.to_str().unwrap()];
        let first = Demo::start(version, &args).await;
        let session = within_timeout(first.client.new_session(dir.path())).await.unwrap();
        turn(&session, "say Remember me.\ntitle A name").await;
        first.end().await;

        let second = Demo::start(next, &args).await;
        let listed = within_timeout(second.client.list(None)).await.unwrap();
        assert_eq!(listed.len(), 1, "{version:?}");
        assert_eq!((&listed[0].id, listed[0].title.as_deref()), (session.id(), Some("A name")));
        let found = within_timeout(second.client.load(session.id(), dir.path())).await.unwrap();
        assert_eq!((seen(&found), title(&found)), (seen(&session), r#""A name""#.to_owned()), "{version:?}");
        turn(&found, "whoami").await;
        assert!(seen(&found).iter().any(|line| line.ends_with("3 messages")), "{:#?}", seen(&found));
        second.end().await;
    }
    // Without a file they are lost when the agent exits.
    let demo = Demo::start(Version::V2, &[]).await;
    assert_eq!(within_timeout(demo.client.list(None)).await.unwrap(), []);
    demo.end().await;
}

/// A command that prints its process id and that of a child process, and runs for a long time.
const LONG: &str = "terminal echo $$; sleep 1000 & echo $!; wait";

/// Waits until the long command has printed its process ids.
async fn processes(session: &Session) -> Vec<u32> {
    let output = || {
        let found = |body: &Body| String::from_utf8_lossy(&body.output).into_owned();
        session.transcript().entries().last().map(|entry| found(entry.body()))
    };
    wait_for_transcript(session, |_| output().is_some_and(|output| output.matches('\n').count() == 2)).await;
    let output = output().unwrap();
    output.lines().map(|line| line.parse().unwrap()).collect()
}

async fn wait_for_end(processes: &[u32]) {
    wait_until_async("the processes end", async || !processes.iter().any(|pid| is_alive(*pid))).await;
}

#[tokio::test]
async fn a_shell_command_runs_in_the_directory_of_the_session() {
    let dir = TempDir::new().unwrap();
    let demo = Demo::start(Version::V2, &[]).await;
    let session = within_timeout(demo.client.new_session(dir.path())).await.unwrap();
    turn(&session, "terminal echo here > made").await;
    assert_eq!(fs::read_to_string(dir.path().join("made")).unwrap(), "here\n");
    let nowhere = within_timeout(demo.client.new_session("/no/where".as_ref())).await.unwrap();
    turn(&nowhere, "terminal true").await;
    let seen = seen(&nowhere);
    assert_eq!(seen[0], r#"tool "true" "failed" "#);
    assert!(seen[1].starts_with("Agent: The command cannot be started: "), "{seen:#?}");
    demo.end().await;
}

#[tokio::test]
async fn cancelling_kills_a_shell_command_and_its_children() {
    let dir = TempDir::new().unwrap();
    let demo = Demo::start(Version::V2, &[]).await;
    let session = within_timeout(demo.client.new_session(dir.path())).await.unwrap();
    let turn = within_timeout(session.prompt(LONG)).await.unwrap();
    let processes = processes(&session).await;
    assert!(processes.iter().all(|pid| is_alive(*pid)));
    within_timeout(session.cancel()).await.unwrap();
    assert_eq!(end_of(&within_timeout(turn.outcome()).await.unwrap().state), "cancelled");
    wait_for_end(&processes).await;
    let call = &seen(&session)[0];
    assert!(call.contains(r#""cancelled""#), "{call}");
    demo.end().await;
}

#[tokio::test]
async fn a_shell_command_is_killed_when_the_agent_exits() {
    let dir = TempDir::new().unwrap();
    for is_asked_to in [false, true] {
        let mut demo = Demo::start(Version::V2, &[]).await;
        let session = within_timeout(demo.client.new_session(dir.path())).await.unwrap();
        within_timeout(session.prompt(LONG)).await.unwrap();
        let processes = processes(&session).await;
        if is_asked_to {
            send_signal(demo.process.id().expect("it runs"), Signal::TERM);
            assert!(within_timeout(demo.process.wait()).await.unwrap().success());
        } else {
            demo.end().await;
        }
        wait_for_end(&processes).await;
    }
}

#[tokio::test]
async fn a_shell_command_with_too_much_output_is_killed() {
    let dir = TempDir::new().unwrap();
    let demo = Demo::start(Version::V2, &[]).await;
    let session = within_timeout(demo.client.new_session(dir.path())).await.unwrap();
    assert_eq!(end_of(&turn(&session, "terminal yes").await), "end_turn");
    let output = session.transcript().entries().iter().map(|entry| entry.body().output.len()).max().unwrap();
    assert_eq!(output, 1 << 20);
    let seen = seen(&session);
    assert_eq!(seen[0], r#"tool "yes" "failed" terminal"#);
    assert!(seen[1].ends_with(r#"{"signal":"SIGKILL"}"#));
    assert_eq!(seen[2], "Agent: The command was killed, because its output exceeds 1 MiB.");
    demo.end().await;
}

#[tokio::test]
async fn a_server_without_configured_agents_uses_the_demo_agent() {
    let mut server = TestDir::new(PARLOR).serve();
    for version in VERSIONS {
        let connector = Connector::new("test", "1").only(version);
        let (client, _) = within_timeout(connector.socket(&server.socket(), &Hello::new())).await.unwrap();
        let session = within_timeout(client.new_session(server.dir().path())).await.unwrap();
        turn(&session, "hello").await;
        let seen = seen(&session);
        assert!(seen[0].starts_with("Agent: Hello! I am a demo agent."), "{version:?}: {seen:#?}");
    }
    assert!(server.stop().success());
}

#[test]
fn a_state_file_that_is_not_a_database_is_reported() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let output = parlor(&["demo-agent", "--state", state.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(state.to_str().unwrap()), "{stderr}");
}
