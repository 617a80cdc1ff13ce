//! Spans: what the server logs belongs to a connection, a session or an agent process.

mod common;

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use parlor_dialect::Dialect::V2;
use parlor_server::config::{AgentConfig, Agents, Config};
use parlor_server::hub::{ClientRole, ConnectOptions, Hub, HubOptions, LIVE_SESSIONS, TransportKind};
use parlor_server::transport::streams;
use parlor_store::MemoryStore;
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::{shell, wait};
use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// An agent of version 2 that sends a chunk without a message id and writes to its standard error.
const AGENT: &str = r#"
echo 'from the agent' >&2
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *'"initialize"'*)
        result='{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{}}' ;;
    *'"session/new"'*)
        echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"sessionId":"s"}}'
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}'
        continue ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;

/// The log of this test program.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Sessions have a thread of their own, so the subscriber is that of the program.
    fn of_program() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            tracing_subscriber::fmt()
                .with_max_level(Level::DEBUG)
                .with_writer(log.clone())
                .with_ansi(false)
                .init();
            log
        })
    }

    /// Waits for a line with a text: what comes before the text.
    async fn before(&self, text: &str) -> String {
        let mut found = None;
        let find = async || {
            let log = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
            let before =
                log.lines().find_map(|line| line.split_once(text)).map(|(before, _)| before.to_owned());
            found = before;
            found.is_some()
        };
        wait::wait_until_async(&format!("the log has {text}"), find).await;
        found.unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// An input that cannot be read.
struct Broken;

impl AsyncRead for Broken {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::Error::other("as requested")))
    }
}

#[test]
#[ignore = "runs the reaper process of these tests"]
fn as_reaper() {
    shell::run_reaper();
}

#[tokio::test]
async fn the_log_says_which_connection_failed() {
    let log = Log::of_program();
    let hub = common::hub().await;
    for (client, transport, name) in
        [(1, TransportKind::Stdio, "stdio"), (2, TransportKind::WebSocket, "websocket")]
    {
        let options = ConnectOptions::new(transport, ClientRole::Driver);
        streams(&hub, options, Broken, tokio::io::sink()).await.unwrap_err();
        let span = format!(r#"connection{{client={client} transport="{name}"}}"#);
        let before = log.before(&format!("{span}: ")).await;
        assert!(before.trim_end().ends_with("DEBUG"), "{span} is in no other span: {before}");
    }
}

#[tokio::test]
async fn the_log_says_which_session_and_which_agent_a_line_is_about() {
    let log = Log::of_program();
    let agent = AgentConfig::new("test", ["sh", "-c", AGENT].map(str::to_owned).to_vec());
    let options = HubOptions {
        store: Arc::new(MemoryStore::default()),
        agents: Agents::new(vec![agent], &Config::default()).unwrap(),
        config: None,
        reaper: shell::reaper(),
        idle: Duration::from_secs(60),
        live_sessions: LIVE_SESSIONS,
        private: Vec::new(),
    };
    let hub = Hub::new(options).await.unwrap();
    let stream = common::connect(&hub, ClientRole::Driver);
    let mut client = AsyncClient::over(stream, V2, json!({})).await;
    let created = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).await.unwrap();
    let session = created["sessionId"].as_str().unwrap();
    let before = log.before("loss=").await;
    let span = format!(r#"session{{session={session} agent="test"}}: "#);
    assert!(before.contains(&format!("INFO {span}")), "{before}");
    let before = log.before("from the agent").await;
    assert!(before.contains(r#"INFO process{agent="test"}: "#), "{before}");
    hub.stop().await;
}
