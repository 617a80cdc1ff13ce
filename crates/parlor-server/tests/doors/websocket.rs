use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parlor_server::doors::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
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
    in_time(connect_async(request)).await.map_err(|error| {
        let Error::Http(response) = error else { panic!("{error}") };
        response.status()
    })
}

async fn driver(server: &Server) -> Client {
    connect(server, &[("authorization", format!("Bearer {}", server.tokens.driver))]).await.unwrap().0
}

/// The next frame with a message in it.
async fn hear(client: &mut Client) -> String {
    loop {
        let frame = in_time(client.next()).await.unwrap().unwrap();
        if let Message::Text(text) = &frame {
            return text.to_string();
        }
        assert!(frame.is_ping() || frame.is_pong(), "{frame:?}");
    }
}

/// How the server ended the connection.
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
async fn a_token_lets_in_by_header_or_subprotocol() {
    let server = Server::start().await;
    let (driver, observer) = (&server.tokens.driver, server.tokens.observer.as_deref().unwrap());
    for (headers, protocol) in [
        (("authorization", format!("Bearer {driver}")), None),
        (("authorization", format!("Bearer {observer}")), None),
        (
            ("sec-websocket-protocol", format!("parlor.token.{driver}")),
            Some(format!("parlor.token.{driver}")),
        ),
        (
            ("sec-websocket-protocol", format!("parlor.token.{observer}, parlor.acp")),
            Some("parlor.acp".into()),
        ),
    ] {
        let (mut client, response) = connect(&server, &[headers]).await.unwrap();
        let chosen = response.headers().get("sec-websocket-protocol").map(|value| value.to_str().unwrap());
        assert_eq!(chosen, protocol.as_deref());
        let id = response.headers()["acp-connection-id"].to_str().unwrap();
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
        client.send(Message::text(request(1))).await.unwrap();
        assert_eq!(id_of(&hear(&mut client).await), Some(1));
    }
    assert_eq!(connect(&server, &[]).await.unwrap_err(), StatusCode::UNAUTHORIZED);
    let wrong = ("authorization", format!("Bearer {}", driver.to_uppercase() + "0"));
    assert_eq!(connect(&server, &[wrong]).await.unwrap_err(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn pages_connect_only_if_they_are_ours_or_listed() {
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
async fn a_frame_is_a_message_however_it_is_written() {
    let server = Server::start().await;
    let mut client = driver(&server).await;
    client.send(Message::text("{\n\"jsonrpc\":\"2.0\",\r\n\"id\":1,\n\"method\":\"a\"}\n")).await.unwrap();
    let heard = hear(&mut client).await;
    assert_eq!(id_of(&heard), Some(1));
    assert!(!heard.contains('\n'));
    client.send(Message::binary(request(2).into_bytes())).await.unwrap();
    assert_eq!(id_of(&hear(&mut client).await), Some(2));
    client.send(Message::binary(vec![0xff, 0xfe])).await.unwrap();
    assert_eq!(close_code(&mut client).await, Some(1003));
}

#[tokio::test]
async fn many_messages_in_one_go_come_back_in_order_one_a_frame() {
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
    assert_eq!(id_of(&hear(&mut client).await), Some(1));
    client.send(Message::text(format!("{head:<1001}"))).await.unwrap();
    assert_eq!(close_code(&mut client).await, Some(1009));
}

#[tokio::test]
async fn who_answers_pings_stays_and_who_does_not_is_dropped() {
    let limits = Limits {
        ping_every: Duration::from_millis(100),
        silence: Duration::from_secs(1),
        ..Limits::default()
    };
    let server = Server::with(limits, |_| {}).await;

    let mut deaf = TcpStream::connect(server.address).await.unwrap();
    let upgrade = format!(
        "GET /acp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.address, server.tokens.driver
    );
    deaf.write_all(upgrade.as_bytes()).await.unwrap();
    let hearing = tokio::spawn(async move {
        let mut heard = Vec::new();
        in_time(deaf.read_to_end(&mut heard)).await.unwrap();
        heard
    });

    let mut client = driver(&server).await;
    // Together these pings take longer than one may be silent.
    let mut pings = 0;
    while pings < 15 {
        if let Message::Ping(_) = in_time(client.next()).await.unwrap().unwrap() {
            pings += 1;
        }
    }
    client.send(Message::text(request(1))).await.unwrap();
    assert_eq!(id_of(&hear(&mut client).await), Some(1));

    let heard = hearing.await.unwrap();
    assert!(heard.starts_with(b"HTTP/1.1 101"));
    assert!(heard.windows(2).any(|frame| frame == [0x89, 0]), "it was pinged");
}

#[tokio::test]
async fn goodbyes_are_said_by_whoever_leaves() {
    let server = Server::start().await;
    let mut leaves = driver(&server).await;
    leaves.close(None).await.unwrap();
    assert!(matches!(in_time(leaves.next()).await, Some(Ok(Message::Close(_)))));
    assert!(in_time(leaves.next()).await.is_none());

    let mut stays = driver(&server).await;
    stays.send(Message::text(request(1))).await.unwrap();
    hear(&mut stays).await;
    let (code, _kept) = tokio::join!(close_code(&mut stays), server.end());
    assert_eq!(code, Some(1001));
}
