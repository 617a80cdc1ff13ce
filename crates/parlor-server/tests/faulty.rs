//! A store that fails: nothing is acknowledged that is not stored, and clients get errors.

mod common;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::Dialect::{self, V1, V2};
use parlor_server::config::{AgentConfig, Agents, Config};
use parlor_server::hub::{ClientRole, Hub, HubOptions, LIVE_SESSIONS};
use parlor_store::{ErrorKind, FaultyStore, Filter, MemoryStore, Store};
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::shell;
use serde_json::{Value, json};

/// A v1 agent that answers each prompt with a word.
const AGENT: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{}}' ;;
    *'"session/new"'*) result='{"sessionId":"s"}' ;;
    *'"session/prompt"'*)
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"word"}}}}'
        result='{"stopReason":"end_turn"}' ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;

/// A v2 agent that answers a prompt with 4 MB in chunks of one message and then replaces all of it.
const REPLACING_AGENT: &str = r#"
update() {
    echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{'"$1"'}}}'
}
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *'"initialize"'*)
        result='{"protocolVersion":2,"info":{"name":"replacing","version":"1"},"capabilities":{}}' ;;
    *'"session/new"'*) result='{"sessionId":"s"}' ;;
    *'"session/prompt"'*)
        echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"messageId":"u"}}'
        update '"sessionUpdate":"state_update","state":"running"'
        text=$(printf '%65536s' '')
        for n in $(seq 64); do
            update '"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"'"$text"'"}'
        done
        update '"sessionUpdate":"agent_message","messageId":"a","content":[{"type":"text","text":"redacted"}]'
        update '"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"'
        continue ;;
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

/// A client of a hub in the same process.
async fn connect(hub: &Arc<Hub>, dialect: Dialect) -> AsyncClient {
    AsyncClient::over(common::connect(hub, ClientRole::Driver), dialect, json!({})).await
}

/// Sends a prompt and waits for the response.
async fn prompt(client: &mut AsyncClient, session: &Value, text: &str) -> Result<Value, Value> {
    let prompt = json!([{ "type": "text", "text": text }]);
    client.call("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await
}

/// Waits until the session is idle: the update.
async fn wait_for_idle(client: &mut AsyncClient) -> Value {
    let is_idle = |line: &Value| line["params"]["update"]["state"] == "idle";
    let mut idle = client.wait_for("the session is idle", is_idle).await;
    idle["params"]["update"].take()
}

async fn hub() -> (Arc<Hub>, Arc<FaultyStore<MemoryStore>>) {
    hub_with(AGENT, 1).await
}

async fn hub_with(script: &str, version: u16) -> (Arc<Hub>, Arc<FaultyStore<MemoryStore>>) {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    let mut agent = AgentConfig::new("words", ["sh", "-c", script].map(str::to_owned).to_vec());
    agent.version = Some(version);
    let options = HubOptions {
        store: Arc::clone(&store) as Arc<dyn Store>,
        agents: Agents::new(vec![agent], &Config::default()).unwrap(),
        config: None,
        reaper: shell::reaper(),
        idle: Duration::from_secs(60),
        live_sessions: LIVE_SESSIONS,
        private: Vec::new(),
    };
    (Hub::new(options).await.unwrap(), store)
}

fn new() -> Value {
    json!({ "cwd": "/", "mcpServers": [] })
}

fn is_about_the_store(error: &Value) {
    assert!(error["message"].as_str().unwrap().contains("cannot be stored"), "{error}");
}

/// Joins a session and returns the texts of its messages.
async fn join(client: &mut AsyncClient, session: &Value) -> Vec<String> {
    let from = json!({ "type": "start" });
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [], "replayFrom": from });
    client.call("session/resume", params).await.unwrap();
    let received = client.take_received();
    let updates = received.iter().map(|line| &line["params"]["update"]);
    let texts = updates.filter_map(|update| update["content"][0]["text"].as_str());
    texts.map(str::to_owned).collect()
}

/// The texts of the messages of a session, read by a new client.
async fn texts(hub: &Arc<Hub>, session: &Value) -> Vec<String> {
    join(&mut connect(hub, V2).await, session).await
}

#[tokio::test]
async fn a_prompt_that_cannot_be_stored_is_not_accepted() {
    let (hub, store) = hub().await;
    let (mut alice, mut bob) = (connect(&hub, V2).await, connect(&hub, V2).await);
    let session = alice.call("session/new", new()).await.unwrap()["sessionId"].clone();
    assert_eq!(join(&mut bob, &session).await, [""; 0]);
    prompt(&mut alice, &session, "one").await.unwrap();
    assert_eq!(wait_for_idle(&mut alice).await["stopReason"], "end_turn");
    assert_eq!(wait_for_idle(&mut bob).await["stopReason"], "end_turn");

    store.fail_next(1, ErrorKind::Full);
    is_about_the_store(&prompt(&mut alice, &session, "two").await.unwrap_err());
    for client in [&mut alice, &mut bob] {
        let idle = wait_for_idle(client).await;
        assert_eq!(idle["stopReason"], "error");
        is_about_the_store(&idle["error"]);
    }
    assert_eq!(texts(&hub, &session).await, ["one", "word"], "it is as it was last stored");

    prompt(&mut alice, &session, "three").await.unwrap();
    assert_eq!(wait_for_idle(&mut alice).await["stopReason"], "end_turn");
    assert_eq!(texts(&hub, &session).await, ["one", "word", "three", "word"]);
    hub.stop().await;
}

#[tokio::test]
async fn the_answer_of_an_agent_that_cannot_be_stored_ends_the_turn() {
    let (hub, store) = hub().await;
    let mut client = connect(&hub, V1).await;
    let session = client.call("session/new", new()).await.unwrap()["sessionId"].clone();
    prompt(&mut client, &session, "one").await.unwrap();
    // All writes fail, so that it does not matter how they are batched.
    store.fail_next(usize::MAX, ErrorKind::Io);
    is_about_the_store(&prompt(&mut client, &session, "two").await.unwrap_err());
    is_about_the_store(&prompt(&mut client, &session, "three").await.unwrap_err());
    client.call("_parlor/status", json!({})).await.unwrap();
    store.fail_next(0, ErrorKind::Io);
    prompt(&mut client, &session, "four").await.unwrap();
    assert_eq!(texts(&hub, &session).await, ["one", "word", "four", "word"]);
    hub.stop().await;
}

#[tokio::test]
async fn a_session_that_cannot_be_stored_is_not_created() {
    let (hub, store) = hub().await;
    let mut client = connect(&hub, V2).await;
    store.fail_next(usize::MAX, ErrorKind::Full);
    is_about_the_store(&client.call("session/new", new()).await.unwrap_err());
    assert_eq!(store.sessions(&Filter::default(), None, 10).unwrap(), []);
    store.fail_next(0, ErrorKind::Full);
    let session = client.call("session/new", new()).await.unwrap()["sessionId"].clone();
    prompt(&mut client, &session, "one").await.unwrap();
    assert_eq!(wait_for_idle(&mut client).await["stopReason"], "end_turn");
    hub.stop().await;
}

#[tokio::test]
async fn a_fork_that_cannot_be_stored_is_not_created() {
    let (hub, store) = hub().await;
    let mut client = connect(&hub, V2).await;
    let session = client.call("session/new", new()).await.unwrap()["sessionId"].clone();
    prompt(&mut client, &session, "one").await.unwrap();
    assert_eq!(wait_for_idle(&mut client).await["stopReason"], "end_turn");
    store.fail_next(1, ErrorKind::Full);
    let fork = json!({ "sessionId": session });
    is_about_the_store(&client.call("session/fork", fork.clone()).await.unwrap_err());
    assert_eq!(store.sessions(&Filter::default(), None, 10).unwrap().len(), 1);
    let forked = client.call("session/fork", fork).await.unwrap()["sessionId"].clone();
    assert_eq!(texts(&hub, &forked).await, ["one", "word"]);
    hub.stop().await;
}

#[tokio::test]
async fn a_title_that_cannot_be_stored_is_not_acknowledged_or_shown() {
    let (hub, store) = hub().await;
    let (mut alice, mut bob) = (connect(&hub, V2).await, connect(&hub, V1).await);
    let session = alice.call("session/new", new()).await.unwrap()["sessionId"].clone();
    prompt(&mut alice, &session, "one").await.unwrap();
    assert_eq!(wait_for_idle(&mut alice).await["stopReason"], "end_turn");
    let title = json!({ "sessionId": session, "title": "Mine" });
    // One client is attached to the session, and one is not.
    for client in [&mut alice, &mut bob] {
        for method in ["session/set_title", "session/archive"] {
            store.fail_next(usize::MAX, ErrorKind::Full);
            is_about_the_store(&client.call(method, title.clone()).await.unwrap_err());
            store.fail_next(0, ErrorKind::Full);
        }
        let listed = client.call("session/list", json!({ "archived": "include" })).await.unwrap();
        let listed = &listed["sessions"][0];
        assert_eq!((&listed["title"], &listed["archived"]), (&json!("one"), &json!(false)), "{listed}");
        assert!(client.received.iter().all(|line| line["params"]["update"]["title"] != "Mine"));
    }
    assert_eq!(bob.call("session/set_title", title).await.unwrap()["title"], "Mine");
    let listed = alice.call("session/list", json!({})).await.unwrap();
    assert_eq!(listed["sessions"][0]["title"], "Mine");
    hub.stop().await;
}

#[tokio::test]
async fn an_alias_that_cannot_be_stored_is_not_sent() {
    let (hub, store) = hub_with(REPLACING_AGENT, 2).await;
    let (mut alice, mut bob) = (connect(&hub, V2).await, connect(&hub, V1).await);
    let session = alice.call("session/new", new()).await.unwrap()["sessionId"].clone();
    let load = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    bob.call("session/load", load).await.unwrap();
    // Bob reads nothing, so that he has received a part of the message and is catching up.
    prompt(&mut alice, &session, "one").await.unwrap();
    assert_eq!(wait_for_idle(&mut alice).await["stopReason"], "end_turn");

    store.fail_next(1, ErrorKind::Full);
    bob.call("_parlor/status", json!({})).await.unwrap();
    let idle = wait_for_idle(&mut alice).await;
    assert_eq!(idle["stopReason"], "error");
    is_about_the_store(&idle["error"]);
    bob.call("_parlor/status", json!({})).await.unwrap();
    let chunks = bob.received.iter().filter(|line| line["params"]["update"]["content"]["text"].is_string());
    let texts: Vec<_> = chunks.map(|line| line["params"]["update"]["content"]["text"].as_str()).collect();
    assert!(texts.len() > 1, "he received a part of the message");
    assert!(!texts.contains(&Some("redacted")), "the text comes under an alias, which is not stored");
    hub.stop().await;
}
