//! An agent that repeats every prompt.
//!
//! Build it with `cargo build -p parlor-agent --example echo`, and configure the program as an agent in any client.

use parlor_agent::{Agent, Info, ServeError, Server, StopReason, Turn, TurnError};

struct Echo;

impl Agent for Echo {
    fn info(&self) -> Info {
        Info::new("echo", "0.1.0").title("Echo")
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        turn.send_text(&turn.prompt_text()).await;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    // Standard output belongs to the protocol: logs go to standard error.
    Server::builder(Echo).start().await?.stdio().await
}
