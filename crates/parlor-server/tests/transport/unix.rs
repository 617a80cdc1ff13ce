use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use parlor_server::data_dir::DataDir;
use parlor_server::hub::{ClientRole, ConnectOptions, TransportKind};
use parlor_server::transport::hello::{Hello, Welcome};
use parlor_server::transport::{Limits, ListenError, Listeners, streams};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::common::hub;
use super::{Server, id_of, in_time, request, response};

struct Client {
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

impl Client {
    async fn connect(socket: &Path) -> Self {
        let (read, write) = UnixStream::connect(socket).await.unwrap().into_split();
        Self { lines: BufReader::new(read).lines(), write }
    }

    async fn send(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
    }

    async fn read_line(&mut self) -> Option<String> {
        in_time(self.lines.next_line()).await.unwrap()
    }

    async fn hello(&mut self, hello: &str) -> Welcome {
        self.send(hello).await;
        serde_json::from_str(&self.read_line().await.unwrap()).unwrap()
    }
}

#[tokio::test]
async fn only_the_owner_can_use_the_socket() {
    let server = Server::start().await;
    assert_eq!(fs::metadata(&server.socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.socket, server.data.path().join("parlor.sock"));
    assert_eq!(server.data.socket(), server.socket);
}

#[tokio::test]
async fn messages_follow_the_answer_to_a_hello() {
    let server = Server::start().await;
    let mut client = Client::connect(&server.socket).await;
    // Sent in one write: the lines after the hello are not lost.
    let welcome = client.hello(&format!("{}{}\n", Hello::new().to_line(), request(5))).await;
    assert_eq!(welcome, Welcome::accept(env!("CARGO_PKG_VERSION"), std::process::id()));
    assert_eq!(id_of(&client.read_line().await.unwrap()), Some(5));
}

#[tokio::test]
async fn an_invalid_hello_is_rejected_with_a_reason() {
    let server = Server::start().await;
    for (hello, part) in [
        ("{\"parlor\":2}\n", "version 1"),
        ("{\"parlor\":1,\"agent\":[]}\n", "invalid handshake"),
        ("{\"parlor\":1,\"dialect\":\"v9\"}\n", "v9"),
    ] {
        let mut client = Client::connect(&server.socket).await;
        let error = client.hello(hello).await.error.unwrap();
        assert!(error.contains(part), "{error}");
        assert_eq!(client.read_line().await, None);
    }
}

#[tokio::test]
async fn a_client_may_start_without_a_hello() {
    let server = Server::start().await;
    let mut client = Client::connect(&server.socket).await;
    client.send(&format!("\n{}\n", request(1))).await;
    assert_eq!(id_of(&client.read_line().await.unwrap()), Some(1));
    client.send(&format!("{}\n", request(2))).await;
    assert_eq!(id_of(&client.read_line().await.unwrap()), Some(2));
}

#[tokio::test]
async fn many_lines_come_back_in_order() {
    let server = Server::start().await;
    let mut client = Client::connect(&server.socket).await;
    let all: String = (0..5000).map(|id| format!("{}\n", request(id))).collect();
    let mut write = client.write;
    let writing = tokio::spawn(async move {
        write.write_all(all.as_bytes()).await.unwrap();
        write
    });
    for id in 0..5000 {
        let line = in_time(client.lines.next_line()).await.unwrap().unwrap();
        assert_eq!(id_of(&line), Some(id));
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn a_client_that_closed_its_side_gets_pending_responses() {
    let server = Server::start().await;
    let mut client = Client::connect(&server.socket).await;
    // Both a server and an echo respond to this. The last line has no line end.
    client.send(&format!("{}\n{}", request(1), response(1))).await;
    client.write.shutdown().await.unwrap();
    assert_eq!(id_of(&client.read_line().await.unwrap()), Some(1));
    while client.read_line().await.is_some() {}
}

#[tokio::test]
async fn a_client_that_closed_its_side_is_disconnected_after_the_drain_timeout() {
    let limits = Limits { grace: Duration::from_millis(10), ..Limits::default() };
    let server = Server::with(limits, |_| {}).await;
    let mut client = Client::connect(&server.socket).await;
    client.send(&format!("{}\n", request(1))).await;
    client.write.shutdown().await.unwrap();
    while client.read_line().await.is_some() {}
}

#[tokio::test]
async fn clients_over_the_limit_are_rejected_with_a_reason() {
    let server = Server::with(Limits { local_connections: 1, ..Limits::default() }, |_| {}).await;
    let mut first = Client::connect(&server.socket).await;
    first.hello(&Hello::new().to_line()).await;
    let mut second = Client::connect(&server.socket).await;
    let line = second.read_line().await.unwrap();
    assert!(line.contains("too many connections"), "{line}");
    assert_eq!(second.read_line().await, None);
    drop(first);
    // The slot is free as soon as the server has noticed.
    in_time(async {
        loop {
            let mut third = Client::connect(&server.socket).await;
            // The server may reject it and close the socket before it has sent anything.
            let _ = third.write.write_all(Hello::new().to_line().as_bytes()).await;
            if let Ok(Some(line)) = third.lines.next_line().await
                && line.contains("version")
            {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_dead_servers_socket_is_replaced_and_other_files_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let lock = data.lock().unwrap();
    let tokens = data.tokens(&lock, None).unwrap();
    let socket = data.path().join("parlor.sock");
    let open = || Listeners::open(&data, &lock, tokens.clone(), None, Limits::default());

    // A socket that was bound and dropped stays in the file system, as when a server is killed.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let listeners = open().await.unwrap();
    assert_eq!(listeners.address(), None);
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(listeners.serve(hub().await, stopping));
    Client::connect(&socket).await.hello(&Hello::new().to_line()).await;
    drop(stop);
    in_time(running).await.unwrap();

    fs::write(&socket, "precious").unwrap();
    let http = super::loopback();
    let refused =
        Listeners::open(&data, &lock, tokens.clone(), Some(&http), Limits::default()).await.unwrap_err();
    assert!(matches!(refused, ListenError::Socket { .. }), "{refused}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    assert!(!data.port_file().exists());
}

#[tokio::test]
async fn a_client_that_finds_the_socket_finds_the_port() {
    // Whether a client connects between the two is a matter of time, so there are several attempts.
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        let lock = data.lock().unwrap();
        let tokens = data.tokens(&lock, None).unwrap();
        let (socket, port) = (data.path().join("parlor.sock"), data.port_file());
        let client = std::thread::spawn(move || {
            while std::os::unix::net::UnixStream::connect(&socket).is_err() {
                std::thread::yield_now();
            }
            fs::read_to_string(port)
        });
        let http = super::loopback();
        let listeners = Listeners::open(&data, &lock, tokens, Some(&http), Limits::default()).await.unwrap();
        let port = client.join().unwrap().expect("the port is written before the socket accepts connections");
        assert_eq!(port, format!("{}\n", listeners.address().unwrap().port()));
    }
}

#[tokio::test]
async fn a_server_in_a_deep_directory_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(&directory.path().join("x".repeat(120))).unwrap();
    let lock = data.lock().unwrap();
    let tokens = data.tokens(&lock, None).unwrap();
    let listeners = Listeners::open(&data, &lock, tokens, None, Limits::default()).await.unwrap();
    let socket = data.socket();
    assert_eq!(socket, listeners.socket());
    assert!(!socket.starts_with(data.path()));
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(listeners.serve(hub().await, stopping));
    Client::connect(&socket).await.hello(&Hello::new().to_line()).await;
    stop.send_replace(true);
    in_time(running).await.unwrap();
    assert!(!socket.exists() && !data.path().join("socket").exists());
}

#[tokio::test]
async fn a_server_that_stops_closes_connections_and_removes_its_files() {
    let server = Server::start().await;
    // It is accepted before the other, so it is connected when the other gets a response.
    let mut silent = Client::connect(&server.socket).await;
    let mut client = Client::connect(&server.socket).await;
    client.send(&format!("{}{}\n", Hello::new().to_line(), request(1))).await;
    client.read_line().await.unwrap();
    client.read_line().await.unwrap();
    let (socket, port) = (server.socket.clone(), server.data.port_file());
    assert_eq!(fs::read_to_string(&port).unwrap().trim(), server.address.port().to_string());
    let _kept = server.end().await;
    assert_eq!(client.read_line().await, None);
    assert_eq!(silent.read_line().await, None);
    assert!(!socket.exists() && !port.exists());
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_keep_a_server_from_stopping() {
    let limits = Limits { grace: Duration::from_millis(100), ..Limits::default() };
    let server = Server::with(limits, |_| {}).await;
    let mut client = Client::connect(&server.socket).await;
    client.send(&Hello::new().to_line()).await;
    client.read_line().await.unwrap();
    // More than the buffers of a socket can hold.
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(1 << 20));
    let mut write = client.write;
    let flood = tokio::spawn(async move {
        while write.write_all(line.as_bytes()).await.is_ok() && write.write_all(b"\n").await.is_ok() {}
    });
    client.lines.get_mut().read_exact(&mut [0; 1]).await.unwrap();
    let _kept = server.end().await;
    in_time(flood).await.unwrap();
}

#[tokio::test]
async fn streams_are_served_until_they_end() {
    let hub = hub().await;
    let options = ConnectOptions::new(TransportKind::Stdio, ClientRole::Driver);
    let (mut stdin, read) = tokio::io::duplex(1 << 16);
    let (write, mut stdout) = tokio::io::duplex(1 << 16);
    stdin.write_all(format!("{}\n{}\n", request(3), response(3)).as_bytes()).await.unwrap();
    drop(stdin);
    in_time(streams(&hub, options, read, write)).await.unwrap();
    let mut said = String::new();
    in_time(stdout.read_to_string(&mut said)).await.unwrap();
    assert_eq!(id_of(said.lines().next().unwrap()), Some(3));
}

/// Sends a hello to the server at a socket, and reads the response.
pub(crate) async fn is_let_in(socket: &Path) {
    Client::connect(socket).await.hello(&Hello::new().to_line()).await;
}
