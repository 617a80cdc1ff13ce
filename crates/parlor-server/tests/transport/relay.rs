use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parlor_server::transport::hello::{Agent, Hello, Welcome};
use parlor_server::transport::{Ended, ServerConnector, relay};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::{LONG, Server, in_time, request, response};

/// The editor's side of a relay.
struct Editor {
    stdin: DuplexStream,
    stdout: BufReader<DuplexStream>,
    relay: JoinHandle<std::io::Result<Ended>>,
    /// The attempts to connect, each with whether a server may be started for it.
    attempts: Arc<Mutex<Vec<bool>>>,
}

/// Connects to a socket, on which the test may listen again.
struct Socket {
    path: PathBuf,
    attempts: Arc<Mutex<Vec<bool>>>,
}

impl ServerConnector for Socket {
    async fn connect(&mut self, may_start: bool) -> Result<UnixStream, String> {
        self.attempts.lock().unwrap().push(may_start);
        UnixStream::connect(&self.path).await.map_err(|error| error.to_string())
    }

    fn notice(&mut self, _: &str) {}
}

fn editor(path: PathBuf, hello: Hello, timeout: Duration) -> Editor {
    let (stdin, theirs) = duplex(1 << 16);
    let (ours, stdout) = duplex(1 << 16);
    let attempts = Arc::default();
    let mut socket = Socket { path, attempts: Arc::clone(&attempts) };
    let relay = tokio::spawn(async move { relay(&mut socket, &hello, theirs, ours, timeout).await });
    Editor { stdin, stdout: BufReader::new(stdout), relay, attempts }
}

impl Editor {
    async fn read_line(&mut self) -> String {
        let mut line = String::new();
        in_time(self.stdout.read_line(&mut line)).await.unwrap();
        line
    }

    async fn read(&mut self) -> Value {
        serde_json::from_str(&self.read_line().await).unwrap()
    }

    async fn send(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Waits for the end of a relay whose server has ended it.
    async fn end(mut self) -> (Ended, String) {
        let mut rest = String::new();
        in_time(self.stdout.read_to_string(&mut rest)).await.unwrap();
        (in_time(self.relay).await.unwrap().unwrap(), rest)
    }

    /// Closes the editor's output, and waits for the end of the relay.
    async fn close(self) -> (Ended, String) {
        let Self { stdin, mut stdout, relay, .. } = self;
        drop(stdin);
        let mut rest = String::new();
        in_time(stdout.read_to_string(&mut rest)).await.unwrap();
        (in_time(relay).await.unwrap().unwrap(), rest)
    }
}

/// A socket on which the test plays one server after the other.
struct Servers {
    directory: TempDir,
    listener: Option<UnixListener>,
}

/// A server that the test plays, with an accepted client.
struct FakeServer {
    hello: String,
    from_editor: BufReader<OwnedReadHalf>,
    to_editor: OwnedWriteHalf,
}

impl Servers {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = Some(UnixListener::bind(directory.path().join("s")).unwrap());
        Self { directory, listener }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    async fn accept(&self, answer: &Welcome) -> FakeServer {
        let listener = self.listener.as_ref().unwrap();
        let (read, mut to_editor) = in_time(listener.accept()).await.unwrap().0.into_split();
        let mut from_editor = BufReader::new(read);
        let mut hello = String::new();
        in_time(from_editor.read_line(&mut hello)).await.unwrap();
        to_editor.write_all(answer.to_line().as_bytes()).await.unwrap();
        FakeServer { hello, from_editor, to_editor }
    }

    /// No server accepts connections from now on.
    fn stop(&mut self) {
        self.listener = None;
        std::fs::remove_file(self.path()).unwrap();
    }

    fn start(&mut self) {
        self.listener = Some(UnixListener::bind(self.path()).unwrap());
    }
}

impl FakeServer {
    async fn read_line(&mut self) -> String {
        let mut line = String::new();
        in_time(self.from_editor.read_line(&mut line)).await.unwrap();
        line
    }

    async fn read(&mut self) -> Value {
        serde_json::from_str(&self.read_line().await).unwrap()
    }

    async fn send(&mut self, message: &Value) {
        self.to_editor.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Reads a request, checks its method, and responds to it.
    async fn respond(&mut self, method: &str, result: Value) -> Value {
        let request = self.read().await;
        assert_eq!(request["method"], method, "{request}");
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
        request
    }
}

async fn accept(answer: &Welcome) -> (Servers, FakeServer, Editor) {
    let servers = Servers::new();
    let hello = Hello { agent: Some(Agent::Name("claude".into())), ..Hello::new() };
    let editor = editor(servers.path(), hello, LONG);
    let server = servers.accept(answer).await;
    (servers, server, editor)
}

fn welcome() -> Welcome {
    Welcome::accept("1", 7)
}

fn update(session: &str, text: &str, seq: Option<u64>) -> Value {
    let update =
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
    let mut params = json!({ "sessionId": session, "update": update });
    if let Some(seq) = seq {
        params["_meta"] = json!({ "parlor/seq": seq });
    }
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2}}"#;
const NEW: &str =
    r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/work","mcpServers":[]}}"#;
const PROMPT: &str =
    r#"{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#;

/// An editor that has initialized the connection and is attached to the session `s`, up to change 5.
async fn attached() -> (Servers, FakeServer, Editor) {
    let (servers, mut server, mut editor) = accept(&welcome()).await;
    editor.send(INITIALIZE).await;
    let initialize = server.respond("initialize", json!({ "protocolVersion": 2 })).await;
    assert_eq!(initialize["params"]["_meta"]["parlor/seq"], true, "numbers are requested");
    editor.send(NEW).await;
    let opened = json!({ "sessionId": "s", "_meta": { "parlor/seq": 1, "parlor/state": "idle" } });
    server.respond("session/new", opened).await;
    server.send(&update("s", "five", Some(5))).await;
    for _ in 0..3 {
        editor.read_line().await;
    }
    (servers, server, editor)
}

/// Plays a server to which the relay connects again: responds to `initialize`, and returns the request that resumes the session.
async fn reconnected(servers: &Servers) -> (FakeServer, Value) {
    let mut server = servers.accept(&welcome()).await;
    let initialize = server.respond("initialize", json!({ "protocolVersion": 2 })).await;
    assert_eq!(initialize["params"]["protocolVersion"], 2);
    assert_ne!(initialize["id"], 1, "the editor gets no second response");
    let resume = server.read().await;
    assert_eq!(resume["method"], "session/resume");
    (server, resume)
}

fn resumed(resume: &Value, seq: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": resume["id"], "result": { "_meta": { "parlor/seq": seq, "parlor/state": "idle" } } })
}

#[tokio::test]
async fn an_editor_sends_requests_to_a_server_and_disconnects() {
    let server = Server::start().await;
    let mut editor = editor(server.socket.clone(), Hello::new(), LONG);
    editor.send(&request(1)).await;
    assert!(editor.read_line().await.contains("\"id\":1"));
    editor.send(&format!("{}\n{}", request(2), response(2))).await;
    // The last request has no line end; it is answered although nothing follows.
    editor.stdin.write_all(request(3).as_bytes()).await.unwrap();
    let (ended, rest) = editor.close().await;
    assert_eq!(ended, Ended::ByEditor);
    assert!(rest.contains("\"id\":2") && rest.contains("\"id\":3"), "{rest}");
}

#[tokio::test]
async fn the_hello_comes_first_and_lines_are_relayed_unchanged() {
    let (_servers, mut server, mut editor) = accept(&welcome()).await;
    let hello = Hello::read(&server.hello).unwrap().unwrap();
    assert_eq!(hello.agent, Some(Agent::Name("claude".into())));
    let odd = "{ \"jsonrpc\" : \"2.0\", \"method\":\"x\", \"params\": 1.0e2 }\n";
    editor.stdin.write_all(odd.as_bytes()).await.unwrap();
    assert_eq!(server.read_line().await, odd);
    server.to_editor.write_all(odd.as_bytes()).await.unwrap();
    assert_eq!(editor.read_line().await, odd);
}

#[tokio::test]
async fn an_editor_is_attached_again_after_the_last_change_that_it_has() {
    let (servers, server, mut editor) = attached().await;
    drop(server);
    let (mut server, resume) = reconnected(&servers).await;
    let params = json!({
        "cwd": "/work", "mcpServers": [], "sessionId": "s", "replayFrom": { "type": "_parlor_after", "seq": 5 }
    });
    assert_eq!(resume["params"], params);
    server.send(&update("s", "missed", None)).await;
    server.send(&resumed(&resume, 7)).await;
    server.send(&update("s", "live", Some(8))).await;
    assert_eq!(editor.read().await, update("s", "missed", None));
    assert_eq!(editor.read().await, update("s", "live", Some(8)));
    editor.send(PROMPT).await;
    assert_eq!(server.read().await["id"], 3);
    drop(server);
    let (_server, resume) = reconnected(&servers).await;
    assert_eq!(resume["params"]["replayFrom"]["seq"], 8);
}

#[tokio::test]
async fn what_a_server_sent_that_was_lost_during_a_resume_is_not_sent_twice() {
    let (servers, server, mut editor) = attached().await;
    drop(server);
    let (mut server, _) = reconnected(&servers).await;
    server.send(&update("s", "missed", None)).await;
    server.send(&update("s", "", Some(7))).await;
    drop(server);
    let (mut server, resume) = reconnected(&servers).await;
    assert_eq!(resume["params"]["replayFrom"]["seq"], 5);
    server.send(&update("s", "missed", None)).await;
    server.send(&resumed(&resume, 7)).await;
    server.send(&update("s", "live", Some(8))).await;
    assert_eq!(editor.read().await, update("s", "missed", None));
    assert_eq!(editor.read().await, update("s", "live", Some(8)));
}

#[tokio::test]
async fn a_prompt_is_sent_again_with_its_key_and_other_requests_fail() {
    let (servers, mut server, mut editor) = attached().await;
    editor.send(PROMPT).await;
    let prompt = server.read().await;
    let key = &prompt["params"]["_meta"]["parlor/key"];
    assert!(key.is_string(), "{prompt}");
    editor.send(r#"{"jsonrpc":"2.0","id":4,"method":"session/set_mode","params":{"sessionId":"s"}}"#).await;
    editor.send(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#).await;
    assert_eq!(
        (server.read().await["id"].clone(), server.read().await["id"].clone()),
        (json!(4), json!(null))
    );
    server
        .send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "session/request_permission", "params": {} }))
        .await;
    assert_eq!(editor.read().await["id"], 9);
    drop(server);
    let cancelled = json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": 9 } });
    assert_eq!(editor.read().await, cancelled, "the agent's request is not open any more");
    let error = editor.read().await;
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(4), &json!(-32603)), "{error}");

    let (mut server, resume) = reconnected(&servers).await;
    server.send(&resumed(&resume, 5)).await;
    assert_eq!(server.read().await, prompt);
    assert_eq!(server.read().await["method"], "session/cancel");
    // The next server uses the same id for another request.
    server
        .send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "session/request_permission", "params": {} }))
        .await;
    let asked = editor.read().await;
    assert_ne!(asked["id"], 9, "{asked}");
    editor.send(r#"{"jsonrpc":"2.0","id":9,"result":{"late":true}}"#).await;
    editor.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": {} }).to_string()).await;
    assert_eq!(
        server.read().await,
        json!({ "jsonrpc": "2.0", "id": 9, "result": {} }),
        "the late answer is dropped"
    );
    server.send(&json!({ "jsonrpc": "2.0", "id": 3, "result": {} })).await;
    assert_eq!(editor.read().await["id"], 3);
}

#[tokio::test]
async fn a_prompt_that_no_server_survives_fails() {
    let (servers, mut server, mut editor) = attached().await;
    editor.send(PROMPT).await;
    server.read().await;
    drop(server);
    for _ in 0..3 {
        let (mut server, resume) = reconnected(&servers).await;
        server.send(&resumed(&resume, 5)).await;
        assert_eq!(server.read().await["id"], 3);
    }
    let error = editor.read().await;
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(3), &json!(-32603)), "{error}");
}

#[tokio::test]
async fn no_server_is_started_for_an_editor_that_waits_for_nothing() {
    let (mut servers, mut server, mut editor) = attached().await;
    servers.stop();
    drop(server);
    let looked_twice = async {
        while editor.attempts.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    in_time(looked_twice).await;
    assert!(!editor.attempts.lock().unwrap().contains(&true));
    servers.start();
    editor.send(PROMPT).await;
    let resume;
    (server, resume) = reconnected(&servers).await;
    server.send(&resumed(&resume, 5)).await;
    assert_eq!(server.read().await["id"], 3);
    let (ended, _) = editor.close().await;
    assert_eq!(ended, Ended::ByEditor);
}

#[tokio::test]
async fn without_another_server_requests_without_a_response_get_an_error() {
    let mut servers = Servers::new();
    let mut editor = editor(servers.path(), Hello::new(), Duration::from_millis(200));
    let mut server = servers.accept(&welcome()).await;
    editor.send(INITIALIZE).await;
    server.respond("initialize", json!({ "protocolVersion": 2 })).await;
    editor.read_line().await;
    editor.send(PROMPT).await;
    server.read().await;
    let half = &response(3)[..20];
    server.to_editor.write_all(half.as_bytes()).await.unwrap();
    servers.stop();
    drop(server);
    let (ended, rest) = editor.end().await;
    assert!(matches!(&ended, Ended::ByServer(reason) if reason.contains("No such file")), "{ended:?}");
    let error: Value = serde_json::from_str(&rest).expect("a line that broke off is not relayed");
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(3), &json!(-32603)), "{error}");
}

#[tokio::test]
async fn responses_are_relayed_after_the_editor_has_closed_its_input() {
    let (_servers, mut server, editor) = accept(&welcome()).await;
    let Editor { mut stdin, mut stdout, relay, .. } = editor;
    stdin.write_all(request(1).as_bytes()).await.unwrap();
    drop(stdin);
    assert_eq!(server.read_line().await, format!("{}\n", request(1)), "and then the end");
    assert_eq!(server.read_line().await, "");
    server.to_editor.write_all(format!("{}\n", response(1)).as_bytes()).await.unwrap();
    drop(server);
    let mut rest = String::new();
    in_time(stdout.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, format!("{}\n", response(1)));
    assert_eq!(in_time(relay).await.unwrap().unwrap(), Ended::ByEditor);
}

#[tokio::test]
async fn a_rejected_client_gets_the_reason() {
    let (_servers, _server, editor) = accept(&Welcome::reject("not today")).await;
    assert_eq!(editor.end().await, (Ended::Refused("not today".into()), String::new()));

    let (_servers, _server, editor) = accept(&Welcome { parlor: 2, ..welcome() }).await;
    let (ended, _) = editor.end().await;
    assert!(matches!(&ended, Ended::Refused(why) if why.contains('2')), "{ended:?}");
}

#[tokio::test]
async fn connecting_without_a_server_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let editor = editor(directory.path().join("none"), Hello::new(), LONG);
    in_time(editor.relay).await.unwrap().unwrap_err();
}

#[tokio::test]
async fn relaying_ends_when_the_editor_reads_no_more() {
    let (_servers, mut server, editor) = accept(&welcome()).await;
    let Editor { stdin, stdout, relay, .. } = editor;
    drop(stdout);
    server.to_editor.write_all(format!("{}\n", response(1)).as_bytes()).await.unwrap();
    assert_eq!(in_time(relay).await.unwrap().unwrap(), Ended::ByEditor);
    drop(stdin);
}
