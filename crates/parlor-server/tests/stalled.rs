//! A disk that hangs: a read or write that does not return blocks no worker of the runtime.

use std::sync::Arc;
use std::time::Duration;

use parlor_server::config::{AgentConfig, Agents, Config};
use parlor_server::hub::{ClientRole, ConnectOptions, Hub, HubOptions, LIVE_SESSIONS, TransportKind};
use parlor_server::transport::streams;
use parlor_store::{FaultyStore, Hold, MemoryStore, Store};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::runtime::Handle;

use parlor_testkit::shell;
use parlor_testkit::wait::within_timeout;

/// A v1 agent that answers each prompt with a word.
const AGENT: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{}}' ;;
    *'"session/new"'*) sessions=$((sessions + 1)); result='{"sessionId":"s'$sessions'"}' ;;
    *'"session/prompt"'*) result='{"stopReason":"end_turn"}' ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;

#[test]
#[ignore = "runs the reaper process of these tests"]
fn as_reaper() {
    shell::run_reaper();
}

/// A server whose disk can hang, with sessions that are stored and not live.
struct StalledServer {
    server: Server,
    store: Arc<FaultyStore<MemoryStore>>,
    sessions: Vec<Value>,
}

/// A hub in a runtime of its own, so that the runtime of the clients is not affected.
#[derive(Clone)]
struct Server {
    runtime: Handle,
    hub: Arc<Hub>,
}

impl Server {
    async fn start(runtime: &Handle, store: &Arc<FaultyStore<MemoryStore>>) -> Self {
        let mut agent = AgentConfig::new("words", ["sh", "-c", AGENT].map(str::to_owned).to_vec());
        agent.version = Some(1);
        let store = Arc::clone(store) as Arc<dyn Store>;
        let starting = runtime.spawn(async {
            let options = HubOptions {
                store,
                agents: Agents::new(vec![agent], &Config::default()).unwrap(),
                config: None,
                reaper: shell::reaper(),
                idle: Duration::from_secs(60),
                live_sessions: LIVE_SESSIONS,
                private: Vec::new(),
            };
            Hub::new(options).await.unwrap()
        });
        Self { runtime: runtime.clone(), hub: starting.await.unwrap() }
    }

    async fn stop(self) {
        let stopping = self.runtime.spawn(async move { self.hub.stop().await });
        within_timeout(stopping).await.unwrap();
    }
}

/// How many sessions there are.
const SESSIONS: usize = 6;

impl StalledServer {
    async fn new(runtime: &Handle) -> Self {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        let server = Server::start(runtime, &store).await;
        let mut client = Client::connect(&server).await;
        let mut sessions = Vec::new();
        for n in 0..SESSIONS {
            let made = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).await.unwrap();
            let session = made["sessionId"].clone();
            client.prompt(&session, &format!("word{n}")).await.unwrap();
            sessions.push(session);
        }
        server.stop().await;
        Self { server: Server::start(runtime, &store).await, store, sessions }
    }

    /// Connects a client before the disk hangs.
    async fn client(&self) -> Client {
        Client::connect(&self.server).await
    }

    /// Waits until all calls of a hold hang.
    async fn hangs(hold: Hold) -> Hold {
        let waiting = tokio::task::spawn_blocking(move || {
            hold.wait();
            hold
        });
        within_timeout(waiting).await.unwrap()
    }

    /// Checks that the server serves a connected client and a new one.
    async fn works(&self, client: &mut Client) {
        let mut other = self.client().await;
        for client in [client, &mut other] {
            client.call("_parlor/status", json!({})).await.unwrap();
            let listed = client.call("session/list", json!({})).await.unwrap();
            assert_eq!(listed["sessions"].as_array().unwrap().len(), SESSIONS, "{listed}");
            let found = client.call("_parlor/search", json!({ "query": "word3" })).await.unwrap();
            assert_eq!(found["hits"].as_array().map(Vec::len), Some(1), "{found}");
        }
        // Each worker is free, whichever runs a task.
        for _ in 0..100 {
            within_timeout(self.server.runtime.spawn(tokio::task::yield_now())).await.unwrap();
        }
    }
}

/// A client of a hub in the same process.
struct Client {
    write: WriteHalf<DuplexStream>,
    read: Lines<BufReader<ReadHalf<DuplexStream>>>,
    next: u64,
}

impl Client {
    async fn connect(server: &Server) -> Self {
        let (here, there) = tokio::io::duplex(1 << 20);
        let options = ConnectOptions::new(TransportKind::Unix, ClientRole::Driver);
        let hub = Arc::clone(&server.hub);
        server.runtime.spawn(async move {
            let (read, write) = tokio::io::split(there);
            let _ = streams(&hub, options, read, write).await;
        });
        let (read, write) = tokio::io::split(here);
        let mut client = Self { write, read: BufReader::new(read).lines(), next: 0 };
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        client.call("initialize", params).await.unwrap();
        client
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, &params).await;
        self.answer(id).await
    }

    async fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.write.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        self.next
    }

    async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let line = within_timeout(self.read.next_line()).await.unwrap().expect("the hub goes on");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["method"].is_null() && line["id"] == id {
                let error = line.get("error").cloned();
                return error.map_or_else(|| Ok(line["result"].clone()), Err);
            }
        }
    }

    async fn prompt(&mut self, session: &Value, text: &str) -> Result<Value, Value> {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.call("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await
    }
}

fn load(session: &Value) -> Value {
    json!({ "sessionId": session, "cwd": "/", "mcpServers": [] })
}

/// Runs a test with a server that has one worker, and with one that has two.
fn with_few_workers(test: &impl AsyncFn(&Handle, usize)) {
    for workers in 1..=2 {
        let mut server = tokio::runtime::Builder::new_multi_thread();
        let server = server.worker_threads(workers).enable_all().build().unwrap();
        let clients = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        clients.block_on(test(server.handle(), workers));
    }
}

#[test]
fn reads_that_hang_delay_only_their_callers() {
    with_few_workers(&async |runtime, workers| {
        let place = StalledServer::new(runtime).await;
        let mut client = place.client().await;
        // More than there are workers.
        let hold = place.store.hold_reads(workers + 1);
        let mut hanging = Vec::new();
        for session in &place.sessions[..=workers] {
            // Connecting reads nothing: the agent's information is cached.
            let mut reader = place.client().await;
            let id = reader.send("session/load", &load(session)).await;
            hanging.push((reader, id));
        }
        let hold = StalledServer::hangs(hold).await;
        place.works(&mut client).await;
        // Another session is read, changed and stored.
        let other = place.sessions.last().unwrap();
        client.call("session/load", load(other)).await.unwrap();
        client.prompt(other, "more").await.unwrap();
        drop(hold);
        for (mut reader, id) in hanging {
            reader.answer(id).await.unwrap();
        }
        place.server.stop().await;
    });
}

#[test]
fn a_write_outside_of_sessions_that_hangs_delays_no_client() {
    with_few_workers(&async |runtime, _| {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        let server = Server::start(runtime, &store).await;
        // The server stores the response to `initialize` when the agent starts.
        let hold = store.hold_writes(1);
        let mut first = Client::connect(&server).await;
        let hold = StalledServer::hangs(hold).await;
        for client in [&mut first, &mut Client::connect(&server).await] {
            client.call("_parlor/status", json!({})).await.unwrap();
            client.call("session/list", json!({})).await.unwrap();
            let made = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).await.unwrap();
            client.prompt(&made["sessionId"], "hello").await.unwrap();
        }
        drop(hold);
        server.stop().await;
    });
}

#[test]
fn a_write_of_a_session_that_hangs_delays_only_sessions() {
    with_few_workers(&async |runtime, _| {
        let place = StalledServer::new(runtime).await;
        let mut client = place.client().await;
        let mut writer = place.client().await;
        writer.call("session/load", load(&place.sessions[0])).await.unwrap();
        let hold = place.store.hold_writes(1);
        let prompt = json!([{ "type": "text", "text": "hello" }]);
        let params = json!({ "sessionId": place.sessions[0], "prompt": prompt });
        let id = writer.send("session/prompt", &params).await;
        let hold = StalledServer::hangs(hold).await;
        place.works(&mut client).await;
        // The connection of the session's client is read as well.
        writer.call("_parlor/status", json!({})).await.unwrap();
        drop(hold);
        assert_eq!(writer.answer(id).await.unwrap()["stopReason"], "end_turn");
        place.server.stop().await;
    });
}
