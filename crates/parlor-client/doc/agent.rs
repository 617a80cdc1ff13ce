// The agent of the documentation's examples, and a client of it. It echoes prompts, and asks for permission to delete.

pub use parlor_agent::Server;
use parlor_agent::{Agent, PermissionOption as Offer, StopReason, Turn, TurnError};

pub struct Example;

impl Agent for Example {
    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        if turn.prompt_text().starts_with("delete") {
            let call = turn.tool_call("Delete the notes").start().await;
            if !call.request_permission([Offer::allow_once(), Offer::reject_once()]).await?.is_allowed() {
                return Ok(StopReason::Refusal);
            }
            call.complete().await;
        }
        turn.send_text(&turn.prompt_text()).await;
        Ok(StopReason::EndTurn)
    }
}

/// The streams of a connection to the agent.
pub async fn streams() -> (impl tokio::io::AsyncRead + Send + Unpin, impl tokio::io::AsyncWrite + Send + Unpin) {
    // It runs as long as the example.
    let server = Box::leak(Box::new(Server::builder(Example).start().await.unwrap()));
    tokio::io::split(server.connect())
}

pub async fn connect() -> parlor_client::Client {
    let (read, write) = streams().await;
    parlor_client::Connector::new("example", "1.0").over(read, write).await.unwrap()
}

pub fn run(example: impl Future<Output = Result<(), parlor_client::Error>>) {
    tokio::runtime::Runtime::new().unwrap().block_on(example).unwrap();
}
