//! Clients over `WebSocket`.

use parlor_agent::{Agent, ServeError, Server, StopReason, Turn, TurnError};
use parlor_client::{Client, Connector, Session, Version};
use parlor_testkit::wait::within_timeout;

/// Repeats prompts.
struct Echo;

impl Agent for Echo {
    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        turn.send_text(&turn.prompt_text()).await;
        Ok(StopReason::EndTurn)
    }
}

async fn client(server: &Server) -> Client {
    let (read, write) = tokio::io::split(server.connect());
    within_timeout(Connector::new("test", "1").over(read, write)).await.unwrap()
}

async fn turn(session: &Session, text: &str) {
    let turn = within_timeout(session.prompt(text)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap();
}

fn last(session: &Session) -> String {
    session.transcript().entries().last().unwrap().body().content.to_text()
}

#[tokio::test]
async fn clients_connect_over_websocket_with_the_token() {
    let server = Server::builder(Echo).start().await.unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), "secret").await.unwrap();
    let url = format!("ws://{address}/acp");
    let connector = Connector::new("test", "1");
    for token in [None, Some("secrets"), Some("")] {
        assert!(within_timeout(connector.url(&url, token)).await.is_err(), "{token:?}");
    }
    let here = client(&server).await;
    let session = within_timeout(here.new_session("/tmp".as_ref())).await.unwrap();
    for version in [Version::V1, Version::V2] {
        let client = within_timeout(connector.clone().only(version).url(&url, Some("secret"))).await.unwrap();
        let same = within_timeout(client.load(session.id(), "/tmp".as_ref())).await.unwrap();
        turn(&same, "over there").await;
        assert_eq!(last(&same), "over there");
    }
    // Other agents cannot be requested.
    let other = within_timeout(connector.url(&format!("{url}?agent=claude"), Some("secret"))).await;
    assert!(other.is_err(), "there is one agent");

    let taken = server.listen(address, "secret").await.unwrap_err();
    assert!(matches!(&taken, ServeError::Listen { address: at, .. } if *at == address), "{taken:?}");
    let invalid = server.listen("127.0.0.1:0".parse().unwrap(), "no token").await.unwrap_err();
    assert!(matches!(invalid, ServeError::InvalidToken), "{invalid:?}");
    let remote = server.listen("0.0.0.0:0".parse().unwrap(), "secret").await.unwrap_err();
    assert!(matches!(remote, ServeError::RemoteAddress { .. }), "{remote:?}");
    assert!(remote.to_string().contains("other machines"), "{remote}");

    server.stop().await;
    assert!(within_timeout(connector.url(&url, Some("secret"))).await.is_err());
}
