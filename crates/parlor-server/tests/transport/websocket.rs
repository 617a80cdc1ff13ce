use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parlor_server::transport::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{Server, id_of, in_time, request};

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn connect(
    server: &Server,
    headers: &[(&'static str, String)],
) -> Result<(Client, Response), StatusCode> {
    let uri = format!("ws://{}/acp?agent=any&dialect=draft", server.address);
    let mut request = uri.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
    }
    in_time(Box::pin(connect_async(request))).await.map_err(|error| {
        let Error::Http(response) = error else { panic!("{error}") };
        response.status()
    })
}

async fn driver(server: &Server) -> Client {
    connect(server, &[("authorization", format!("Bearer {}", server.tokens.driver))]).await.unwrap().0
}

/// Reads the next message.
async fn read_message(client: &mut Client) -> String {
    loop {
        let frame = in_time(client.next()).await.unwrap().unwrap();
        if let Message::Text(text) = &frame {
            return text.to_string();
        }
        assert!(frame.is_ping() || frame.is_pong(), "{frame:?}");
    }
}

/// The code with which the server closed the connection.
async fn close_code(client: &mut Client) -> Option<u16> {
    loop {
        match in_time(client.next()).await {
            Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

#[tokio::test]
async fn a_token_is_accepted_in_a_header() {
    let server = Server::start().await;
    let (driver, observer) = (&server.tokens.driver, server.tokens.observer.as_deref().unwrap());
    for token in [driver, observer] {
        let header = ("authorization", format!("Bearer {token}"));
        let (mut client, response) = connect(&server, &[header]).await.unwrap();
        let id = response.headers()["acp-connection-id"].to_str().unwrap();
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
        client.send(Message::text(request(1))).await.unwrap();
        assert_eq!(id_of(&read_message(&mut client).await), Some(1));
    }
    assert_eq!(connect(&server, &[]).await.unwrap_err(), StatusCode::UNAUTHORIZED);
    let protocol = ("sec-websocket-protocol", format!("parlor.token.{driver}"));
    assert_eq!(connect(&server, &[protocol]).await.unwrap_err(), StatusCode::UNAUTHORIZED);
    let wrong = ("authorization", format!("Bearer {}", driver.to_uppercase() + "0"));
    assert_eq!(connect(&server, &[wrong]).await.unwrap_err(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn pages_of_other_origins_are_rejected_unless_listed() {
    let server =
        Server::with(Limits::default(), |http| http.origins.push("https://page.example".into())).await;
    let token = ("authorization", format!("Bearer {}", server.tokens.driver));
    for (origin, lets_in) in [
        (format!("http://{}", server.address), true),
        (format!("http://localhost:{}", server.address.port()), true),
        ("https://page.example".to_owned(), true),
        ("https://evil.example".to_owned(), false),
        ("http://localhost:1".to_owned(), false),
        ("null".to_owned(), false),
    ] {
        let connected = connect(&server, &[token.clone(), ("origin", origin.clone())]).await;
        assert_eq!(connected.err(), (!lets_in).then_some(StatusCode::FORBIDDEN), "{origin}");
    }
    let rebound = connect(&server, &[token, ("host", "evil.example".into())]).await;
    assert_eq!(rebound.unwrap_err(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_message_may_be_binary_or_have_line_ends() {
    let server = Server::start().await;
    let mut client = driver(&server).await;
    client.send(Message::text("{\n\"jsonrpc\":\"2.0\",\r\n\"id\":1,\n\"method\":\"a\"}\n")).await.unwrap();
    let heard = read_message(&mut client).await;
    assert_eq!(id_of(&heard), Some(1));
    assert!(!heard.contains('\n'));
    client.send(Message::binary(request(2).into_bytes())).await.unwrap();
    assert_eq!(id_of(&read_message(&mut client).await), Some(2));
    client.send(Message::binary(vec![0xff, 0xfe])).await.unwrap();
    assert_eq!(close_code(&mut client).await, Some(1003));
}

#[tokio::test]
async fn responses_to_many_messages_come_in_order_one_per_message() {
    let server = Server::start().await;
    let (mut sink, mut stream) = driver(&server).await.split();
    let writing = tokio::spawn(async move {
        for id in 0..2000 {
            sink.feed(Message::text(request(id))).await.unwrap();
        }
        sink.flush().await.unwrap();
        sink
    });
    for id in 0..2000 {
        let frame = in_time(stream.next()).await.unwrap().unwrap();
        assert_eq!(id_of(frame.to_text().unwrap()), Some(id));
    }
    drop(writing.await.unwrap());
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_connection() {
    let limits = Limits { message_bytes: 1000, ..Limits::default() };
    let server = Server::with(limits, |_| {}).await;
    let mut client = driver(&server).await;
    let head = request(1);
    client.send(Message::text(format!("{head:<1000}"))).await.unwrap();
    assert_eq!(id_of(&read_message(&mut client).await), Some(1));
    client.send(Message::text(format!("{head:<1001}"))).await.unwrap();
    assert_eq!(close_code(&mut client).await, Some(1009));
}

/// A request whose response has at least as many bytes as its id.
fn request_of(bytes: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"test/none"}}"#, "x".repeat(bytes))
}

#[tokio::test]
async fn messages_of_every_length_come_whole_in_both_directions() {
    let server = Server::start().await;
    let mut client = driver(&server).await;
    for bytes in (0..300).chain([65_300, 65_400, 65_535, 65_536, 300_000, 5 << 20]) {
        client.send(Message::text(request_of(bytes))).await.unwrap();
        let response: serde_json::Value = serde_json::from_str(&read_message(&mut client).await).unwrap();
        assert_eq!(response["id"].as_str().map(str::len), Some(bytes));
    }
}

#[tokio::test]
async fn a_client_that_reads_late_gets_everything_in_order() {
    let server = Server::start().await;
    let (mut sink, mut stream) = driver(&server).await.split();
    // Together more than the buffers of both sockets can hold.
    for n in 0..40 {
        sink.send(Message::text(request_of((1 << 20) + n))).await.unwrap();
    }
    for n in 0..40 {
        let frame = in_time(stream.next()).await.unwrap().unwrap();
        let response: serde_json::Value = serde_json::from_str(frame.to_text().unwrap()).unwrap();
        assert_eq!(response["id"].as_str().map(str::len), Some((1 << 20) + n));
    }
}

#[tokio::test]
async fn the_responses_to_a_batch_are_one_message() {
    let server = Server::start().await;
    let mut client = driver(&server).await;
    client.send(Message::text(format!("[{},{}]", request(1), request(2)))).await.unwrap();
    let responses: Vec<serde_json::Value> = serde_json::from_str(&read_message(&mut client).await).unwrap();
    assert_eq!(responses.iter().map(|response| response["id"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_ping_is_answered_between_the_parts_of_a_message() {
    let server = Server::start().await;
    let mut client = driver(&server).await;
    let message = request(1);
    let (first, rest) = message.split_at(10);
    let part = |text: &str, kind, is_last| {
        Message::Frame(Frame::message(text.to_owned(), OpCode::Data(kind), is_last))
    };
    client.send(part(first, Data::Text, false)).await.unwrap();
    client.send(Message::Ping("are you there".into())).await.unwrap();
    assert_eq!(in_time(client.next()).await.unwrap().unwrap(), Message::Pong("are you there".into()));
    client.send(part(rest, Data::Continue, true)).await.unwrap();
    assert_eq!(id_of(&read_message(&mut client).await), Some(1));
}

#[tokio::test]
async fn a_client_that_violates_the_protocol_gets_the_close_code() {
    let server = Server::start().await;
    let text = |bytes: &'static [u8]| Frame::message(bytes, OpCode::Data(Data::Text), true);
    let mut reserved = text(b"x");
    reserved.header_mut().rsv1 = true;
    let orphan = Frame::message("x", OpCode::Data(Data::Continue), true);
    for (frame, code) in [(text(&[0xff, 0xfe]), 1007), (reserved, 1002), (orphan, 1002)] {
        let mut client = driver(&server).await;
        client.send(Message::Frame(frame)).await.unwrap();
        assert_eq!(close_code(&mut client).await, Some(code));
        assert!(in_time(client.next()).await.is_none(), "the connection ends");
    }
}

#[tokio::test]
async fn a_message_sent_together_with_the_handshake_is_read() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The masked frame `1`, with a mask of zeros, which is not a message.
    let mut bytes = handshake(&server).into_bytes();
    bytes.extend([0x81, 0x81, 0, 0, 0, 0, b'1']);
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    in_time(async {
        while !String::from_utf8_lossy(&answer).contains("jsonrpc") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
    })
    .await;
    assert!(answer.starts_with(b"HTTP/1.1 101"));
}

fn handshake(server: &Server) -> String {
    format!(
        "GET /acp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.address, server.tokens.driver
    )
}

#[tokio::test]
async fn a_client_that_does_not_answer_pings_is_disconnected() {
    let limits = Limits {
        ping_every: Duration::from_millis(100),
        silence: Duration::from_secs(1),
        ..Limits::default()
    };
    let server = Server::with(limits, |_| {}).await;

    let mut deaf = TcpStream::connect(server.address).await.unwrap();
    deaf.write_all(handshake(&server).as_bytes()).await.unwrap();
    let hearing = tokio::spawn(async move {
        let mut heard = Vec::new();
        in_time(deaf.read_to_end(&mut heard)).await.unwrap();
        heard
    });

    let mut client = driver(&server).await;
    // Together these pings take longer than the limit of silence.
    let mut pings = 0;
    while pings < 15 {
        if let Message::Ping(_) = in_time(client.next()).await.unwrap().unwrap() {
            pings += 1;
        }
    }
    client.send(Message::text(request(1))).await.unwrap();
    assert_eq!(id_of(&read_message(&mut client).await), Some(1));

    let heard = hearing.await.unwrap();
    assert!(heard.starts_with(b"HTTP/1.1 101"));
    assert!(heard.windows(2).any(|frame| frame == [0x89, 0]), "it was pinged");
}

#[tokio::test]
async fn both_sides_close_with_a_close_frame() {
    let server = Server::start().await;
    let mut leaves = driver(&server).await;
    leaves.close(None).await.unwrap();
    assert!(matches!(in_time(leaves.next()).await, Some(Ok(Message::Close(_)))));
    assert!(in_time(leaves.next()).await.is_none());

    let mut stays = driver(&server).await;
    stays.send(Message::text(request(1))).await.unwrap();
    read_message(&mut stays).await;
    let (code, _kept) = tokio::join!(close_code(&mut stays), server.end());
    assert_eq!(code, Some(1001));
}
