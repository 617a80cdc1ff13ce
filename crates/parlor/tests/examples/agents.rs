//! The example agents, with clients made with the SDK.

use std::fs;
use std::process::Stdio;

use parlor_testkit::programs::example;
use parlor_testkit::wait::within_timeout;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::sdk_client::{SdkClientRun, VERSIONS, Version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_echo_agent_sends_the_prompt_back() {
    let dir = TempDir::new().unwrap();
    let agent = [example("echo")];
    for version in VERSIONS {
        let client_run =
            SdkClientRun { agent: &agent, cwd: dir.path(), session: None, prompts: &["One.", "Two."] };
        let (_, view) = client_run.by(version).await;
        let messages = [("user", "One."), ("agent", "One."), ("user", "Two."), ("agent", "Two.")];
        assert_eq!(view.messages(), messages, "{version:?}");
        assert!(view.messages.iter().filter(|it| it.role == "agent").all(|it| it.id.is_some()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_agent_requests_permission_writes_a_file_and_restores_sessions() {
    for version in VERSIONS {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("sessions.db");
        let agent = [example("worker"), file.to_str().unwrap().to_owned()];
        let client_run =
            SdkClientRun { agent: &agent, cwd: dir.path(), session: None, prompts: &["Buy milk"] };
        let (session, first) = client_run.by(version).await;
        assert_eq!(
            first.messages(),
            [
                ("user", "Buy milk"),
                ("thought", "That is worth a note."),
                ("agent", "I will write that down."),
                ("agent", "That was note 1.")
            ],
            "{version:?}"
        );
        assert_eq!(first.tools, [("Write notes.txt".to_owned(), "completed".to_owned())], "{version:?}");
        assert_eq!(first.title.as_deref(), Some("Notes: Buy milk"), "{version:?}");

        // Another process, and a client of the other version.
        let other = if version == Version::One { Version::Two } else { Version::One };
        let again = SdkClientRun { session: Some(&session), prompts: &["Sell eggs"], ..client_run };
        let (_, second) = again.by(other).await;
        assert_eq!(second.messages()[..4], first.messages(), "{version:?}");
        assert_eq!(second.messages().last(), Some(&("agent", "That was note 2.")), "{version:?}");
        assert_eq!(second.title.as_deref(), Some("Notes: Buy milk"), "{version:?}");
        assert_eq!(fs::read_to_string(dir.path().join("notes.txt")).unwrap(), "Buy milk\nSell eggs\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reader_agent_of_the_guide_reads_allowed_files() {
    for version in VERSIONS {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("poem.txt"), "one\ntwo\n").unwrap();
        let agent = [example("reader"), dir.path().join("sessions.db").to_str().unwrap().to_owned()];
        let client_run =
            SdkClientRun { agent: &agent, cwd: dir.path(), session: None, prompts: &["poem.txt"] };
        let (_, view) = client_run.by(version).await;
        let messages = [("user", "poem.txt"), ("agent", "I will read it."), ("agent", "It has 2 lines.")];
        assert_eq!(view.messages(), messages, "{version:?}");
        let shown = format!("Read {}", dir.path().join("poem.txt").display());
        assert_eq!(view.tools, [(shown, "completed".to_owned())], "{version:?}");
    }
}

/// An editor that crashes closes both pipes, even if the agent waits for a response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_an_open_request_exits_when_the_client_disconnects() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("sessions.db");
    let mut agent = Command::new(example("worker"))
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut write, read) = (agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
    let mut lines = BufReader::new(read).lines();
    let mut say = async |line: &str| write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    let mut until = async |what: &str| loop {
        let line = within_timeout(lines.next_line()).await.unwrap().unwrap();
        if line.contains(what) {
            return line;
        }
    };
    say(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#).await;
    until(r#""id":1"#).await;
    let cwd = dir.path().display();
    say(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"session/new","params":{{"cwd":"{cwd}","mcpServers":[]}}}}"#
    ))
    .await;
    let answer = until(r#""id":2"#).await;
    let (_, id) = answer.split_once(r#""sessionId":""#).unwrap();
    let (id, _) = id.split_once('"').unwrap();
    say(&format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{{"sessionId":"{id}","prompt":[{{"type":"text","text":"x"}}]}}}}"#
    ))
    .await;
    until("session/request_permission").await;
    drop(write);
    let status = within_timeout(agent.wait()).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_client_does_not_read_exits_with_the_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut agent = Command::new(example("echo"))
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    drop(reader);
    let mut stdin = agent.stdin.take().unwrap();
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    let output = within_timeout(agent.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("Connection(") && stderr.contains("BrokenPipe"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_login_agent_requires_a_login() {
    for (key, code) in [(Some("x"), None), (None, Some("-32000"))] {
        let mut command = Command::new(example("login"));
        command.env_remove("EXAMPLE_API_KEY").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        if let Some(key) = key {
            command.env("EXAMPLE_API_KEY", key);
        }
        let mut agent = command.spawn().unwrap();
        let (mut write, read) = (agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
        let mut lines = BufReader::new(read).lines();
        let mut responses = Vec::new();
        let new = r#""session/new","params":{"cwd":"/","mcpServers":[]}"#;
        for (id, request) in [
            r#""initialize","params":{"protocolVersion":1}"#,
            new,
            r#""authenticate","params":{"methodId":"key"}"#,
            new,
        ]
        .into_iter()
        .enumerate()
        {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{request}}}\n");
            write.write_all(line.as_bytes()).await.unwrap();
            responses.push(within_timeout(lines.next_line()).await.unwrap().unwrap());
        }
        assert!(responses[0].contains(r#""authMethods":[{"id":"key""#), "{}", responses[0]);
        assert!(responses[1].contains("-32000"), "{}", responses[1]);
        for response in &responses[2..] {
            match code {
                Some(code) => assert!(response.contains(code), "{response}"),
                None => assert!(response.contains("result"), "{response}"),
            }
        }
        drop(write);
        assert!(within_timeout(agent.wait()).await.unwrap().success());
    }
}
