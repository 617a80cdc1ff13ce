//! A disk that hangs: a read or write that does not return blocks no worker of the runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parlor_server::config::{AgentConfig, Agents, Config};
use parlor_server::hub::{ClientRole, ConnectOptions, Hub, HubOptions, LIVE_SESSIONS, TransportKind};
use parlor_server::transport::streams;
use parlor_store::{FaultyStore, Gate, Hold, MemoryStore, SqliteOptions, SqliteStore, Store};
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
struct StalledServer<S> {
    server: Server,
    store: Arc<S>,
    sessions: Vec<Value>,
}

/// A hub in a runtime of its own, so that the runtime of the clients is not affected.
#[derive(Clone)]
struct Server {
    runtime: Handle,
    hub: Arc<Hub>,
}

impl Server {
    async fn start<S: Store>(runtime: &Handle, store: &Arc<S>) -> Self {
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

impl StalledServer<FaultyStore<MemoryStore>> {
    async fn in_memory(runtime: &Handle) -> Self {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        Self::new(runtime, || Arc::clone(&store)).await
    }
}

impl<S: Store> StalledServer<S> {
    /// Opens the store for a first server, and again for the one that is tested.
    async fn new(runtime: &Handle, open: impl Fn() -> Arc<S>) -> Self {
        let server = Server::start(runtime, &open()).await;
        let mut client = Client::connect(&server).await;
        let mut sessions = Vec::new();
        for n in 0..SESSIONS {
            let made = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).await.unwrap();
            let session = made["sessionId"].clone();
            client.prompt(&session, &format!("word{n}")).await.unwrap();
            sessions.push(session);
        }
        server.stop().await;
        let store = open();
        Self { server: Server::start(runtime, &store).await, store, sessions }
    }

    /// Connects a client before the disk hangs.
    async fn client(&self) -> Client {
        Client::connect(&self.server).await
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

/// Waits until all calls of a hold hang.
async fn hangs(hold: Hold) -> Hold {
    let waiting = tokio::task::spawn_blocking(move || {
        hold.wait();
        hold
    });
    within_timeout(waiting).await.unwrap()
}

/// A client of a hub in the same process.
struct Client {
    write: WriteHalf<DuplexStream>,
    read: Lines<BufReader<ReadHalf<DuplexStream>>>,
    next: u64,
    /// Answers to requests that were read while waiting for the answer to another one.
    early: HashMap<u64, Result<Value, Value>>,
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
        let mut client = Self { write, read: BufReader::new(read).lines(), next: 0, early: HashMap::new() };
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
            if let Some(answer) = self.early.remove(&id) {
                return answer;
            }
            let line = within_timeout(self.read.next_line()).await.unwrap().expect("the hub goes on");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["method"].is_null() {
                let answer =
                    line.get("error").map_or_else(|| Ok(line["result"].clone()), |error| Err(error.clone()));
                self.early.insert(line["id"].as_u64().unwrap(), answer);
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
        let place = StalledServer::in_memory(runtime).await;
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
        let hold = hangs(hold).await;
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
        let hold = hangs(hold).await;
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
        let place = StalledServer::in_memory(runtime).await;
        let mut client = place.client().await;
        let mut writer = place.client().await;
        writer.call("session/load", load(&place.sessions[0])).await.unwrap();
        let hold = place.store.hold_writes(1);
        let prompt = json!([{ "type": "text", "text": "hello" }]);
        let params = json!({ "sessionId": place.sessions[0], "prompt": prompt });
        let id = writer.send("session/prompt", &params).await;
        let hold = hangs(hold).await;
        place.works(&mut client).await;
        // The connection of the session's client is read as well.
        writer.call("_parlor/status", json!({})).await.unwrap();
        drop(hold);
        assert_eq!(writer.answer(id).await.unwrap()["stopReason"], "end_turn");
        place.server.stop().await;
    });
}

/// Writes to a session in a database while calls at a place of it hang.
fn check_database_that_hangs(place_of: fn(&SqliteOptions) -> &Arc<Gate>) {
    with_few_workers(&async |runtime, _| {
        let dir = tempfile::tempdir().unwrap();
        let options = SqliteOptions::default();
        let open = || Arc::new(SqliteStore::open_with(&dir.path().join("db"), &options).unwrap());
        let place = StalledServer::new(runtime, open).await;
        let mut client = place.client().await;
        let mut writer = place.client().await;
        let session = &place.sessions[0];
        writer.call("session/load", load(session)).await.unwrap();
        writer.prompt(session, "stored").await.unwrap();
        let hold = place_of(&options).hold(1);
        let prompt = json!([{ "type": "text", "text": "hanging" }]);
        let id = writer.send("session/prompt", &json!({ "sessionId": session, "prompt": prompt })).await;
        let hold = hangs(hold).await;
        place.works(&mut client).await;
        let found = client.call("_parlor/search", json!({ "query": "stored" })).await.unwrap();
        assert_eq!(found["hits"].as_array().map(Vec::len), Some(1), "{found}");
        writer.call("_parlor/status", json!({})).await.unwrap();
        // Loading a session may wait.
        let loading = client.send("session/load", &load(&place.sessions[1])).await;
        drop(hold);
        assert_eq!(writer.answer(id).await.unwrap()["stopReason"], "end_turn");
        client.answer(loading).await.unwrap();
        place.server.stop().await;
    });
}

#[test]
fn a_write_to_the_journal_that_hangs_delays_only_sessions() {
    check_database_that_hangs(|options| &options.journal_gate);
}

#[test]
fn a_write_to_the_database_that_hangs_delays_only_sessions() {
    check_database_that_hangs(|options| &options.database_gate);
}
