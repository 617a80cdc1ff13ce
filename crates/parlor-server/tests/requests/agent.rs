//! An agent that is controlled by the test: its process connects its streams with the test.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as Stream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_server::config::{
    AgentConfig, Agents, Config, ConfigError, ConfigSource, InstalledAgent, LoadedConfig,
};
use parlor_server::hub::{ClientRole, Hub, HubOptions, LIVE_SESSIONS};
use parlor_store::{MemoryStore, Store};
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::shell;
use parlor_testkit::wait::within_timeout;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::client::connect;

/// The argument of the agent's process before the path of the socket.
const SOCKET: &str = "socket=";

/// Runs the agent's process, which connects its streams with the test's socket.
pub(crate) fn bridge() {
    let Some(path) = std::env::args().find_map(|arg| arg.strip_prefix(SOCKET).map(str::to_owned)) else {
        return;
    };
    let mut socket = Stream::connect(path).unwrap();
    let mut answers = socket.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = answers.read(&mut buffer) {
            let mut stdout = std::io::stdout().lock();
            if stdout.write_all(&buffer[..count]).is_err() || stdout.flush().is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    let mut buffer = [0; 8192];
    let mut stdin = std::io::stdin().lock();
    while let Ok(count @ 1..) = stdin.read(&mut buffer) {
        if socket.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
}

/// A server with one agent.
pub(crate) struct Server {
    pub(crate) hub: Arc<Hub>,
    dialect: Dialect,
    listener: UnixListener,
    _folder: tempfile::TempDir,
}

/// The text of `config.toml`, which the test may change.
#[derive(Clone, Default)]
pub(crate) struct TestConfig(Arc<Mutex<String>>);

impl TestConfig {
    pub(crate) fn set(&self, text: &str) {
        text.clone_into(&mut self.0.lock().unwrap());
    }
}

/// The agent of the tests, and the rest of the configuration.
struct Source {
    file: TestConfig,
    agent: AgentConfig,
}

impl ConfigSource for Source {
    fn path(&self) -> &Path {
        Path::new("config.toml")
    }

    fn read(&self) -> Result<Option<String>, ConfigError> {
        Ok(Some(self.file.0.lock().unwrap().clone()))
    }

    fn parse(&self, text: Option<&str>, _: Vec<InstalledAgent>) -> Result<LoadedConfig, ConfigError> {
        let config = Config::parse(text.unwrap_or_default(), self.path())?;
        let agents = Agents::new(vec![self.agent.clone()], &config)?;
        Ok(LoadedConfig { agents, notify: Vec::new(), needs_restart: Vec::new() })
    }
}

/// The agent, while its process runs.
pub(crate) struct Agent {
    dialect: Dialect,
    read: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
    /// The sessions that it lists.
    pub(crate) listed: Value,
}

impl Server {
    pub(crate) async fn start(dialect: Dialect) -> Self {
        Self::with(dialect, |_| {}).await
    }

    pub(crate) async fn with(dialect: Dialect, configure: impl FnOnce(&mut AgentConfig)) -> Self {
        Self::with_file(dialect, configure, TestConfig::default()).await
    }

    /// Starts a server with a configuration that the test may change.
    pub(crate) async fn with_file(
        dialect: Dialect,
        configure: impl FnOnce(&mut AgentConfig),
        file: TestConfig,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        let options = ["--exact", "as_agent", "--ignored", "--nocapture", "--test-threads", "2"];
        let mut command = vec![program];
        command.extend(options.map(str::to_owned));
        command.push(format!("{SOCKET}{}", path.display()));
        let mut agent = AgentConfig::new("played", command);
        match dialect {
            Dialect::V1 => agent.version = Some(1),
            Dialect::V2 => agent.version = Some(2),
            Dialect::Draft => agent.dialect = Some(Dialect::Draft),
        }
        configure(&mut agent);
        let source = Source { file, agent };
        let text = source.read().unwrap();
        let options = HubOptions {
            store: Arc::new(MemoryStore::default()) as Arc<dyn Store>,
            agents: source.parse(text.as_deref(), Vec::new()).unwrap().agents,
            config: Some((Box::new(source), text)),
            reaper: shell::reaper(),
            idle: Duration::from_secs(600),
            live_sessions: LIVE_SESSIONS,
            private: Vec::new(),
        };
        Self { hub: Hub::new(options).await.unwrap(), dialect, listener, _folder: folder }
    }

    /// Waits for the agent's next process and answers `initialize` with these capabilities.
    pub(crate) async fn agent(&self, capabilities: &Value) -> Agent {
        let (stream, _) = within_timeout(self.listener.accept()).await.unwrap();
        let (read, write) = stream.into_split();
        let read = BufReader::new(read).lines();
        let mut agent = Agent { dialect: self.dialect, read, write, listed: json!([]) };
        let hello = agent.asked("initialize").await;
        let result = match self.dialect {
            Dialect::V1 => json!({ "protocolVersion": 1, "agentCapabilities": capabilities }),
            Dialect::V2 | Dialect::Draft => {
                json!({ "protocolVersion": 2, "info": { "name": "played", "version": "1" }, "capabilities": capabilities })
            }
        };
        agent.answer(&hello, result).await;
        agent
    }

    /// Connects a client, and waits for the agent that is started for it.
    pub(crate) async fn both(&self, client: Dialect, capabilities: Value) -> (AsyncClient, Agent) {
        tokio::join!(self.client(client), self.agent(&capabilities))
    }

    pub(crate) async fn client(&self, dialect: Dialect) -> AsyncClient {
        connect(&self.hub, dialect, ClientRole::Driver).await
    }

    pub(crate) async fn observer(&self, dialect: Dialect) -> AsyncClient {
        connect(&self.hub, dialect, ClientRole::Observer).await
    }
}

impl Agent {
    /// Reads the agent's next line. Answers `session/list`, which the server sends in the background.
    pub(crate) async fn hears(&mut self) -> Value {
        loop {
            let line = within_timeout(self.read.next_line()).await;
            let line: Value = serde_json::from_str(&line.unwrap().expect("the server goes on")).unwrap();
            if line["method"] != "session/list" {
                return line;
            }
            let sessions = self.listed.clone();
            self.answer(&line, json!({ "sessions": sessions })).await;
        }
    }

    /// Reads the next line, which has this method.
    pub(crate) async fn asked(&mut self, method: &str) -> Value {
        let line = self.hears().await;
        assert_eq!(line["method"], method, "{line}");
        line
    }

    /// Reads the next line, which is the response to the agent's request.
    pub(crate) async fn answered(&mut self, id: &str) -> Value {
        let line = self.hears().await;
        assert!(line.get("method").is_none() && line["id"] == id, "{line}");
        line
    }

    async fn write(&mut self, line: &Value) {
        self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
    }

    pub(crate) async fn refuse(&mut self, request: &Value, code: i64) {
        let error = json!({ "code": code, "message": "No." });
        self.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error })).await;
    }

    pub(crate) async fn asks(&mut self, id: &str, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    pub(crate) async fn notifies(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    pub(crate) async fn updates(&mut self, session: &str, update: Value) {
        self.notifies("session/update", json!({ "sessionId": session, "update": update })).await;
    }

    /// Sends a chunk of a message of the agent.
    pub(crate) async fn chunk(&mut self, session: &str, text: &str) {
        let content = json!({ "type": "text", "text": text });
        let chunk = json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content });
        self.updates(session, chunk).await;
    }

    /// Answers the client's `session/new`, which is the next line, and returns the session's id for the client.
    pub(crate) async fn begins(&mut self, client: &mut AsyncClient, session: &str, servers: Value) -> String {
        let asked = client.send("session/new", json!({ "cwd": "/", "mcpServers": servers }));
        let new = self.asked("session/new").await;
        self.answer(&new, json!({ "sessionId": session })).await;
        client.response(asked).await.unwrap()["sessionId"].as_str().unwrap().to_owned()
    }

    /// The method with which a client logs in.
    pub(crate) fn login(&self) -> &'static str {
        if self.dialect == Dialect::V1 { "authenticate" } else { "auth/login" }
    }
}
