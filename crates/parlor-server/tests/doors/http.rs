use std::net::SocketAddr;
use std::time::Duration;

use parlor_server::data_dir::DataDir;
use parlor_server::doors::{DoorError, Doors, HttpOptions, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Server, in_time, loopback};

/// Sends a request with these headers and reads the answer to its end.
async fn get(at: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    in_time(stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn pages_say_what_this_is_to_those_who_call_it_by_its_name() {
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
    // Which of several names is meant nobody knows.
    assert_eq!(status(&get(at, "/", &format!("{host}{host}")).await), "403");
}

#[tokio::test]
async fn without_a_token_nobody_comes_in() {
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
    // With one, what is asked for has to be a WebSocket.
    let token = format!("{host}Authorization: Bearer {}\r\n", server.tokens.driver);
    assert!(status(&get(server.address, "/acp", &token).await).starts_with('4'));
    let answer = get(server.address, "/acp?dialect=v9", &token).await;
    assert_eq!((status(&answer), answer.contains("v9")), ("400", true));
}

#[tokio::test]
async fn slow_and_endless_headers_are_cut_off() {
    let limits = Limits { header_time: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(limits, |_| {}).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
    let mut answer = Vec::new();
    let _ = in_time(slow.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));

    let endless = format!("Host: {}\r\nX: {}\r\n", server.address, "x".repeat(100_000));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The server may hang up while this is being sent.
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\n{endless}\r\n").as_bytes()).await;
    let mut answer = Vec::new();
    let _ = in_time(stream.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_connection_too_many_is_turned_away() {
    let server = Server::with(Limits { connections: 1, ..Limits::default() }, |_| {}).await;
    let host = format!("Host: {}\r\n", server.address);
    let first = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(status(&get(server.address, "/health", &host).await), "503");
    drop(first);
    in_time(async { while status(&get(server.address, "/health", &host).await) != "200" {} }).await;
}

#[tokio::test]
async fn only_who_says_so_listens_to_other_machines() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let lock = data.lock().unwrap();
    let tokens = data.tokens(&lock, None).unwrap();
    let open = async |http: HttpOptions| {
        Doors::open(&data, &lock, tokens.clone(), Some(&http), Limits::default()).await
    };
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = open(HttpOptions { listen: listen.parse().unwrap(), ..loopback() }).await.unwrap_err();
        assert!(matches!(refused, DoorError::Remote(_)), "{refused}");
        assert!(refused.to_string().contains("--allow-remote"), "{refused}");
        assert!(!data.path().join("parlor.sock").exists());
    }
    let doors = open(HttpOptions { listen: "0.0.0.0:0".parse().unwrap(), allow_remote: true, ..loopback() })
        .await
        .unwrap();
    let taken = doors.address().unwrap();
    let again = open(HttpOptions { listen: taken, allow_remote: true, ..loopback() }).await.unwrap_err();
    assert!(matches!(again, DoorError::Listen { listen, .. } if listen == taken), "{again}");
}
