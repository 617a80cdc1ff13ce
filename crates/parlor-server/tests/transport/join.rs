use std::path::PathBuf;

use parlor_server::transport::hello::{Agent, Hello, Welcome};
use parlor_server::transport::{Ended, join};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

use super::{Server, in_time, request, response};

/// The editor's side of a joined connection.
struct Editor {
    stdin: DuplexStream,
    stdout: BufReader<DuplexStream>,
    joined: JoinHandle<std::io::Result<Ended>>,
}

fn editor(socket: PathBuf, hello: Hello) -> Editor {
    let (stdin, theirs) = duplex(1 << 16);
    let (ours, stdout) = duplex(1 << 16);
    let joined = tokio::spawn(async move { join(&socket, hello, theirs, ours).await });
    Editor { stdin, stdout: BufReader::new(stdout), joined }
}

impl Editor {
    async fn read_line(&mut self) -> String {
        let mut line = String::new();
        in_time(self.stdout.read_line(&mut line)).await.unwrap();
        line
    }

    async fn end(mut self) -> (Ended, String) {
        let mut rest = String::new();
        in_time(self.stdout.read_to_string(&mut rest)).await.unwrap();
        (in_time(self.joined).await.unwrap().unwrap(), rest)
    }
}

/// A server that the test controls, with an accepted client.
struct FakeServer {
    _directory: TempDir,
    hello: String,
    from_editor: BufReader<OwnedReadHalf>,
    to_editor: OwnedWriteHalf,
}

async fn accept(answer: &Welcome) -> (FakeServer, Editor) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let hello = Hello { agent: Some(Agent::Name("claude".into())), ..Hello::new() };
    let editor = editor(socket, hello);
    let (read, mut to_editor) = in_time(listener.accept()).await.unwrap().0.into_split();
    let mut from_editor = BufReader::new(read);
    let mut hello = String::new();
    in_time(from_editor.read_line(&mut hello)).await.unwrap();
    to_editor.write_all(answer.to_line().as_bytes()).await.unwrap();
    (FakeServer { _directory: directory, hello, from_editor, to_editor }, editor)
}

impl FakeServer {
    async fn read_line(&mut self) -> String {
        let mut line = String::new();
        in_time(self.from_editor.read_line(&mut line)).await.unwrap();
        line
    }
}

#[tokio::test]
async fn an_editor_sends_requests_to_a_server_and_disconnects() {
    let server = Server::start().await;
    let mut editor = editor(server.socket.clone(), Hello::new());
    editor.stdin.write_all(format!("{}\n", request(1)).as_bytes()).await.unwrap();
    assert!(editor.read_line().await.contains("\"id\":1"));
    editor.stdin.write_all(format!("{}\n{}\n", request(2), response(2)).as_bytes()).await.unwrap();
    // The last request has no line end; it is answered although nothing follows.
    editor.stdin.write_all(response(1).as_bytes()).await.unwrap();
    let Editor { stdin, stdout, joined } = editor;
    drop(stdin);
    let (ended, rest) = Editor { stdin: duplex(1).0, stdout, joined }.end().await;
    assert_eq!(ended, Ended::ByEditor);
    assert!(rest.contains("\"id\":2"), "{rest}");
}

#[tokio::test]
async fn the_hello_comes_first_and_lines_are_copied_unchanged() {
    let (mut played, mut editor) = accept(&Welcome::accept("1", 7)).await;
    let hello = Hello::read(&played.hello).unwrap().unwrap();
    assert_eq!(hello.agent, Some(Agent::Name("claude".into())));
    let odd = "{ \"jsonrpc\" : \"2.0\", \"method\":\"x\", \"params\": 1.0e2 }\r\n";
    editor.stdin.write_all(odd.as_bytes()).await.unwrap();
    assert_eq!(played.read_line().await, odd);
    played.to_editor.write_all(odd.as_bytes()).await.unwrap();
    assert_eq!(editor.read_line().await, odd);
}

#[tokio::test]
async fn when_the_server_dies_requests_without_a_response_get_an_error() {
    let (mut played, mut editor) = accept(&Welcome::accept("1", 7)).await;
    for id in 1..=4 {
        editor.stdin.write_all(format!("{}\n", request(id)).as_bytes()).await.unwrap();
        played.read_line().await;
    }
    editor.stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notify\"}\n").await.unwrap();
    played.read_line().await;
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"id":3,"result":{}}}"#;
    let asked = r#"{"jsonrpc":"2.0","id":4,"method":"session/request_permission"}"#;
    let half = &response(1)[..20];
    let said = format!("{}\n{update}\n{asked}\n{}\n{half}", response(2), response(9));
    played.to_editor.write_all(said.as_bytes()).await.unwrap();
    drop(played);
    let (ended, rest) = editor.end().await;
    assert_eq!(ended, Ended::ByServer);
    let (before, after) = rest.split_at(said.len());
    assert_eq!(before, said);
    let answers: Vec<serde_json::Value> =
        after.trim_start().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_u64()).collect();
    assert_eq!(ids, [Some(1), Some(3), Some(4)]);
    assert!(answers.iter().all(|answer| answer["error"]["code"] == -32603));
    assert!(after.starts_with('\n'), "the line that broke off is ended first");
}

#[tokio::test]
async fn responses_are_copied_after_the_editor_has_closed_its_input() {
    let (mut played, editor) = accept(&Welcome::accept("1", 7)).await;
    let Editor { mut stdin, stdout, joined } = editor;
    stdin.write_all(request(1).as_bytes()).await.unwrap();
    drop(stdin);
    assert_eq!(played.read_line().await, request(1), "and then the end");
    assert_eq!(played.read_line().await, "");
    played.to_editor.write_all(format!("{}\n", response(1)).as_bytes()).await.unwrap();
    drop(played);
    let (ended, rest) = Editor { stdin: duplex(1).0, stdout, joined }.end().await;
    assert_eq!((ended, rest), (Ended::ByEditor, format!("{}\n", response(1))));
}

#[tokio::test]
async fn a_rejected_client_gets_the_reason() {
    let (_played, editor) = accept(&Welcome::reject("not today")).await;
    assert_eq!(editor.end().await, (Ended::Refused("not today".into()), String::new()));

    let (_played, editor) = accept(&Welcome { parlor: 2, ..Welcome::accept("1", 7) }).await;
    let (ended, _) = editor.end().await;
    assert!(matches!(&ended, Ended::Refused(why) if why.contains('2')), "{ended:?}");
}

#[tokio::test]
async fn connecting_without_a_server_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let editor = editor(directory.path().join("none"), Hello::new());
    let error = in_time(editor.joined).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn copying_ends_when_the_editor_reads_no_more() {
    let (mut played, editor) = accept(&Welcome::accept("1", 7)).await;
    let Editor { stdin, stdout, joined } = editor;
    drop(stdout);
    played.to_editor.write_all(format!("{}\n", response(1)).as_bytes()).await.unwrap();
    assert_eq!(in_time(joined).await.unwrap().unwrap(), Ended::ByEditor);
    drop(stdin);
}
