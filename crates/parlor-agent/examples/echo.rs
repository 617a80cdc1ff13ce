//! An agent that says what it is told.
//!
//! Build it with `cargo build -p parlor-agent --example echo`, and name the program to any client as its agent.

use parlor_agent::{Agent, Failure, Info, ServeError, Server, Stop, Turn};

struct Echo;

impl Agent for Echo {
    /// Who this is.
    fn info(&self) -> Info {
        Info::new("echo", "0.1.0").title("Echo")
    }

    /// One prompt, from beginning to end.
    async fn prompt(&self, turn: Turn) -> Result<Stop, Failure> {
        turn.say(&turn.text()).await;
        Ok(Stop::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    // Standard output belongs to the protocol: what else there is to say goes to standard error.
    Server::of(Echo).start().await?.stdio().await;
    Ok(())
}
