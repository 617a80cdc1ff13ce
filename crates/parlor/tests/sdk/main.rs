//! The official SDK as the peer: its clients and its agents, with the server between them.
//!
//! It is an independent implementation of the protocol.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enums of the protocol are open, and most of it is not looked at"
)]

mod agent;
mod client_view;
mod sdk_client;

use parlor_testkit::programs;
use parlor_testkit::server::{Server, TestDir};

use agent::{V1, V2};
use sdk_client::{SdkClient, Transport, Version};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the test agent and the SDK's agents, in both versions.
fn start_server() -> Server {
    let this = std::env::current_exe().unwrap();
    let mut dir = TestDir::new(PARLOR);
    for version in ["1", "2"] {
        let command = format!("{} --version {version}", programs::test_agent());
        dir = dir.agent(&format!("test-v{version}"), &command);
    }
    for name in [V1, V2] {
        dir = dir.agent(name, &agent::command(&this, name));
    }
    dir.serve()
}

/// The agents that each client uses.
const AGENTS: [&str; 4] = ["test-v1", "test-v2", V1, V2];

/// A prompt whose turn ends only when it is cancelled.
const WAIT: &str = "say Waiting.\nsleep 600000";

/// Runs an SDK client of one version with every agent, on one transport; a client of the other version, on the other
/// transport, follows the session.
async fn story(version: Version, transport: Transport) {
    let server = start_server();
    for agent in AGENTS {
        one_story(&server, agent, version, transport).await;
    }
}

async fn one_story(server: &Server, agent: &str, version: Version, transport: Transport) {
    let mut alice = SdkClient::connect(server, agent, version, transport).await;
    let session = alice.new_session().await;

    assert_eq!(alice.turn(&session, "stream 20 12").await, "end_turn", "{agent}");
    let text = alice.view().text();
    let numbers: Vec<_> =
        text.split_inclusive(' ').map(|piece| &piece[piece.len().saturating_sub(9)..]).collect();
    let wanted: Vec<_> = (0..20).map(|number| format!("{number:08} ")).collect();
    assert_eq!(numbers[..20], wanted, "{agent}: {text}");
    assert_eq!(text.len(), 20 * 12, "{agent}: {text}");

    assert_eq!(alice.turn(&session, "ask Delete it").await, "end_turn", "{agent}");
    assert!(alice.view().text().ends_with("You chose allow-once."), "{agent}: {}", alice.view().text());
    assert_eq!(alice.view().requests, 1, "{agent}");

    let turn = alice.begin_turn(&session, WAIT).await;
    alice.until(|view| view.text().ends_with("Waiting.")).await;
    alice.cancel(&session).await;
    assert_eq!(alice.end_turn(turn).await, "cancelled", "{agent}");

    assert!(alice.list().await.contains(&session), "{agent}");

    // Another client gets the same text as a replay, and then live updates.
    let mut bob = SdkClient::connect(server, agent, version.other(), transport.other()).await;
    bob.join(&session).await;
    bob.until(|view| view.text() == alice.view().text()).await;
    let prompts = ["stream 20 12", "ask Delete it", WAIT];
    assert_eq!(bob.view().texts("user"), prompts, "{agent}");
    assert_eq!(alice.turn(&session, "say hello both").await, "end_turn", "{agent}");
    bob.until(|view| view.text().ends_with("hello both")).await;
    assert_eq!(bob.view().texts("user").last().map(String::as_str), Some("say hello both"), "{agent}");
    assert_eq!(bob.turn(&session, "say hello from bob").await, "end_turn", "{agent}");
    alice.until(|view| view.text().ends_with("hello from bob")).await;
    assert_eq!(alice.view().texts("user").last().map(String::as_str), Some("say hello from bob"), "{agent}");
    assert_eq!(alice.view().texts("agent"), bob.view().texts("agent"), "{agent}");

    // Both attach again and get the same. (A v1 client does not get its own prompts while it is attached.)
    let answers = bob.view().texts("agent");
    alice.leave().await;
    bob.leave().await;
    let mut alice = SdkClient::connect(server, agent, version, transport).await;
    let mut bob = SdkClient::connect(server, agent, version.other(), transport.other()).await;
    for client in [&mut alice, &mut bob] {
        client.join(&session).await;
        client.until(|view| view.texts("agent") == answers).await;
        let prompts = ["stream 20 12", "ask Delete it", WAIT, "say hello both", "say hello from bob"];
        assert_eq!(client.view().texts("user"), prompts, "{agent}");
    }
    assert_eq!(alice.view().ids(), bob.view().ids(), "{agent}: messages have the same ids for all");
    alice.leave().await;
    bob.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_v1_client_on_stdio() {
    story(Version::One, Transport::Stdio).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_v2_client_on_stdio() {
    story(Version::Two, Transport::Stdio).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_v1_client_on_a_websocket() {
    story(Version::One, Transport::WebSocket).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_v2_client_on_a_websocket() {
    story(Version::Two, Transport::WebSocket).await;
}
