use std::net::SocketAddr;
use std::time::Duration;

use parlor_server::data_dir::DataDir;
use parlor_server::transport::{HttpOptions, Limits, ListenError, Listeners};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Server, in_time, loopback};

/// Sends a request with these headers and reads the answer to its end.
async fn get(at: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    // The server may respond and close before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = in_time(stream.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn pages_are_served_to_accepted_hosts_and_origins() {
    let server = Server::with(Limits::default(), |http| http.hosts.push("parlor.example".into())).await;
    let at = server.address;
    let host = format!("Host: {at}\r\n");
    let front = get(at, "/", &host).await;
    assert_eq!(status(&front), "200");
    assert!(front.contains(env!("CARGO_PKG_VERSION")) && front.contains("/acp"), "{front}");
    let health = get(at, "/health", &format!("Host: localhost:{}\r\n", at.port())).await;
    assert_eq!((status(&health), health.ends_with("ok")), ("200", true));
    assert_eq!(status(&get(at, "/nothing", &host).await), "404");
    assert_eq!(status(&get(at, "/health", "Host: parlor.example\r\n").await), "200");

    for path in ["/", "/health", "/acp", "/nothing"] {
        let rebound = get(at, path, &format!("Host: evil.example:{}\r\n", at.port())).await;
        assert_eq!(status(&rebound), "403", "{path}");
        let foreign = get(at, path, &format!("{host}Origin: https://evil.example\r\n")).await;
        assert_eq!(status(&foreign), "403", "{path}");
    }
    // Several host headers are ambiguous.
    assert_eq!(status(&get(at, "/", &format!("{host}{host}")).await), "403");
}

#[tokio::test]
async fn requests_without_a_token_are_rejected() {
    let server = Server::start().await;
    let host = format!("Host: {}\r\n", server.address);
    for headers in [
        host.clone(),
        format!("{host}Authorization: Bearer {}x\r\n", server.tokens.driver),
        format!("{host}Sec-WebSocket-Protocol: parlor.token.x\r\n"),
    ] {
        let answer = get(server.address, "/acp", &headers).await;
        assert_eq!(status(&answer), "401", "{headers}");
        assert!(answer.contains("Authorization: Bearer TOKEN"), "{answer}");
        assert!(
            !answer.contains(&server.tokens.driver)
                && !answer.contains(server.tokens.observer.as_deref().unwrap())
        );
    }
    // A request with a token must be one for a WebSocket.
    let token = format!("{host}Authorization: Bearer {}\r\n", server.tokens.driver);
    assert!(status(&get(server.address, "/acp", &token).await).starts_with('4'));
    let answer = get(server.address, "/acp?dialect=v9", &token).await;
    assert_eq!((status(&answer), answer.contains("v9")), ("400", true));
}

#[tokio::test]
async fn slow_and_endless_headers_end_the_connection() {
    let limits = Limits { header_time: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(limits, |_| {}).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
    let mut answer = Vec::new();
    let _ = in_time(slow.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));

    let endless = format!("Host: {}\r\nX: {}\r\n", server.address, "x".repeat(100_000));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The server may close the connection while this is being sent.
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\n{endless}\r\n").as_bytes()).await;
    let mut answer = Vec::new();
    let _ = in_time(stream.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

/// Sends a request for a WebSocket with a token and reads the first line of the answer, without closing.
async fn upgrade(server: &Server) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "GET /acp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.address, server.tokens.driver
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    in_time(stream.read_exact(&mut answer)).await.unwrap();
    (stream, String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn connections_over_the_limit_are_rejected() {
    let server = Server::with(Limits { connections: 2, ..Limits::default() }, |_| {}).await;
    let (first, answer) = upgrade(&server).await;
    assert_eq!(status(&answer), "101");
    let (_second, answer) = upgrade(&server).await;
    assert_eq!(status(&answer), "101");
    let (_third, answer) = upgrade(&server).await;
    assert_eq!(status(&answer), "503");
    drop(first);
    in_time(async { while status(&upgrade(&server).await.1) != "101" {} }).await;
}

#[tokio::test]
async fn connections_without_a_token_do_not_use_up_other_limits() {
    let limits = Limits { unauthenticated_connections: 4, connections: 2, ..Limits::default() };
    let server = Server::with(limits, |_| {}).await;
    // More connections than the limit, none of which sends anything.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let (_client, answer) = upgrade(&server).await;
    assert_eq!(status(&answer), "101");
    let host = format!("Host: {}\r\n", server.address);
    assert_eq!(status(&get(server.address, "/health", &host).await), "200");
    super::unix::is_let_in(&server.socket).await;
    // The oldest connections were closed, the latest are open.
    let mut rest = Vec::new();
    in_time(silent[0].read_to_end(&mut rest)).await.unwrap();
    let last = silent.last_mut().unwrap();
    last.write_all(format!("GET /health HTTP/1.1\r\nConnection: close\r\n{host}\r\n").as_bytes())
        .await
        .unwrap();
    in_time(last.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn the_unix_socket_has_a_limit_of_its_own() {
    let limits =
        Limits { connections: 1, unauthenticated_connections: 1, local_connections: 1, ..Limits::default() };
    let server = Server::with(limits, |_| {}).await;
    let (_client, answer) = upgrade(&server).await;
    assert_eq!(status(&answer), "101");
    let _silent = TcpStream::connect(server.address).await.unwrap();
    super::unix::is_let_in(&server.socket).await;
}

#[tokio::test]
async fn headers_longer_than_32_kib_are_rejected() {
    let server = Server::start().await;
    let host = format!("Host: {}\r\n", server.address);
    for (length, expected) in [(31 << 10, "200"), (33 << 10, "431"), (60 << 10, "431")] {
        let one = format!("{host}X: {}\r\n", "x".repeat(length));
        assert_eq!(status(&get(server.address, "/health", &one).await), expected, "one of {length} bytes");
        let many: String = (0..length / 1024).map(|n| format!("X{n}: {}\r\n", "x".repeat(1016))).collect();
        let many = get(server.address, "/health", &(host.clone() + &many)).await;
        assert_eq!(status(&many), expected, "several of {length} bytes");
    }
}

#[tokio::test]
async fn a_remote_address_must_be_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let lock = data.lock().unwrap();
    let tokens = data.tokens(&lock, None).unwrap();
    let open = async |http: HttpOptions| {
        Listeners::open(&data, &lock, tokens.clone(), Some(&http), Limits::default()).await
    };
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = open(HttpOptions { listen: listen.parse().unwrap(), ..loopback() }).await.unwrap_err();
        assert!(matches!(refused, ListenError::Remote(_)), "{refused}");
        assert!(refused.to_string().contains("--allow-remote"), "{refused}");
        assert!(!data.path().join("parlor.sock").exists());
    }
    let listeners =
        open(HttpOptions { listen: "0.0.0.0:0".parse().unwrap(), allow_remote: true, ..loopback() })
            .await
            .unwrap();
    let taken = listeners.address().unwrap();
    let again = open(HttpOptions { listen: taken, allow_remote: true, ..loopback() }).await.unwrap_err();
    assert!(matches!(again, ListenError::Listen { listen, .. } if listen == taken), "{again}");
}
