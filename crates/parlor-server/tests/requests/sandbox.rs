//! Agents in a wrapper, with other paths than the server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use parlor_dialect::{Dialect, PathMap};
use parlor_server::config::{AgentConfig, Sandbox};
use serde_json::{Value, json};

use crate::agent::Server;

/// A directory that the agent sees as `/work`, and a wrapper that records its arguments, one line per start.
struct Folder {
    dir: tempfile::TempDir,
    wrapper: PathBuf,
    record: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (wrapper, record) = (root.join("wrapper"), root.join("record"));
        fs::create_dir(root.join("src")).unwrap();
        fs::write(root.join("src/a b.txt"), "content").unwrap();
        // It runs the command after its own first argument.
        let script = format!("#!/bin/sh\necho \"$PWD: $*\" >> '{}'\nshift\nexec \"$@\"\n", record.display());
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o700)).unwrap();
        Self { dir, wrapper, record }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn src(&self) -> String {
        self.root().join("src").to_str().unwrap().to_owned()
    }

    fn configure(&self, agent: &mut AgentConfig) {
        let wrap = vec![self.wrapper.to_str().unwrap().to_owned(), "--dir={cwd}".to_owned()];
        let paths = PathMap::new([(self.src(), "/work".to_owned())]).unwrap();
        agent.sandbox = Sandbox { wrap, paths };
    }

    /// The recorded starts.
    fn starts(&self) -> Vec<String> {
        fs::read_to_string(&self.record).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Waits until the file has this many lines.
async fn wait_for_starts(folder: &Folder, count: usize) -> Vec<String> {
    parlor_testkit::wait::wait_until_async("the wrapper starts", async || {
        Path::new(&folder.record).exists() && folder.starts().len() >= count
    })
    .await;
    folder.starts()
}

#[tokio::test]
async fn the_wrapper_starts_the_agent_and_its_terminals_and_paths_are_mapped_in_both_directions() {
    let folder = Folder::new();
    let src = folder.src();
    let server = Server::with(Dialect::V1, |agent| folder.configure(agent)).await;
    let (mut client, mut agent) = server.both(Dialect::V1, json!({})).await;

    let params = json!({ "cwd": src, "additionalDirectories": [format!("{src}/more"), "/elsewhere"], "mcpServers": [] });
    let request = client.send("session/new", params);
    let new = agent.asked("session/new").await;
    assert_eq!(new["params"]["cwd"], "/work");
    assert_eq!(new["params"]["additionalDirectories"], json!(["/work/more", "/elsewhere"]));
    agent.answer(&new, json!({ "sessionId": "s" })).await;
    let session = client.response(request).await.unwrap()["sessionId"].as_str().unwrap().to_owned();

    let link = json!([{ "type": "resource_link", "name": "a", "uri": format!("file://{src}/a%20b.txt") },
        { "type": "text", "text": format!("{src}/a b.txt") }]);
    let prompted = client.prompt(&session, link);
    let prompt = agent.asked("session/prompt").await;
    assert_eq!(prompt["params"]["prompt"][0]["uri"], "file:///work/a%20b.txt");
    assert_eq!(prompt["params"]["prompt"][1]["text"], format!("{src}/a b.txt"), "text is not changed");

    agent.asks("read", "fs/read_text_file", json!({ "sessionId": "s", "path": "/work/a b.txt" })).await;
    assert_eq!(agent.answered("read").await["result"]["content"], "content");
    let params = json!({ "sessionId": "s", "path": "/work/new.txt", "content": "/work" });
    agent.asks("write", "fs/write_text_file", params).await;
    assert!(agent.answered("write").await.get("error").is_none());
    assert_eq!(fs::read_to_string(format!("{src}/new.txt")).unwrap(), "/work");
    agent.asks("outside", "fs/read_text_file", json!({ "sessionId": "s", "path": "/work/../record" })).await;
    let outside = agent.answered("outside").await;
    assert_eq!(outside["error"]["code"], json!(-32602), "not in the workspace: {outside}");

    let run = |env: Value, cwd: &str| json!({ "sessionId": "s", "command": "sh", "args": ["-c", "echo $VALUE; pwd"], "env": env, "cwd": cwd });
    let env = json!([{ "name": "VALUE", "value": "of the agent" }]);
    for (number, (cwd, place)) in [("/work", &src), ("/only/there", &src)].into_iter().enumerate() {
        agent.asks("create", "terminal/create", run(env.clone(), cwd)).await;
        let terminal = agent.answered("create").await["result"]["terminalId"].clone();
        let params = json!({ "sessionId": "s", "terminalId": terminal });
        agent.asks("exit", "terminal/wait_for_exit", params.clone()).await;
        assert_eq!(agent.answered("exit").await["result"]["exitCode"], 0);
        agent.asks("output", "terminal/output", params).await;
        assert_eq!(agent.answered("output").await["result"]["output"], format!("of the agent\n{place}\n"));
        let starts = wait_for_starts(&folder, number + 2).await;
        let args = format!("{place}: --dir={cwd} env VALUE=of the agent sh -c echo $VALUE; pwd");
        assert_eq!(starts[number + 1], args);
    }
    let agents = &folder.starts()[0];
    assert!(agents.contains("--dir=/") && agents.contains("as_agent"), "{agents}");

    let tool = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "/work/new.txt", "kind": "edit",
        "status": "completed", "locations": [{ "path": "/work/new.txt", "line": 1 }],
        "content": [{ "type": "diff", "path": "/work/new.txt", "oldText": "", "newText": "/work" }],
        "rawInput": { "path": "/work/new.txt" } });
    agent.updates("s", tool).await;
    agent.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    let seen = client.wait_for("the tool call", |line| line["params"]["update"]["toolCallId"] == "t").await;
    let update = &seen["params"]["update"];
    assert_eq!(update["locations"][0]["path"], format!("{src}/new.txt"), "{update}");
    assert_eq!(update["content"][0]["path"], format!("{src}/new.txt"), "{update}");
    assert_eq!(update["content"][0]["newText"], "/work", "{update}");
    assert_eq!(
        (&update["title"], &update["rawInput"]["path"]),
        (&json!("/work/new.txt"), &json!("/work/new.txt"))
    );
    client.response(prompted).await.unwrap();
}

#[tokio::test]
async fn a_wrapper_that_does_not_exist_is_named_in_the_error() {
    let server = Server::with(Dialect::V1, |agent| {
        agent.sandbox.wrap = vec!["/no/such/wrapper".to_owned()];
    })
    .await;
    let mut client = server.client(Dialect::V1).await;
    let error = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).await.unwrap_err();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`wrap`") && message.contains("/no/such/wrapper"), "{error}");
    assert!(error["data"]["hint"].as_str().unwrap().contains("[agents.played]"), "{error}");
}
