//! An agent that reads a file, and asks before it does: the one of the guide.

use parlor_agent::{Agent, Choice, Failure, ServeError, Server, Stop, Turn};

struct Reader;

impl Agent for Reader {
    async fn prompt(&self, turn: Turn) -> Result<Stop, Failure> {
        let path = turn.cwd().join(turn.text().trim());
        let shown = path.display().to_string();
        turn.title(&format!("About {shown}")).await;

        // Pieces of one message, as they come.
        turn.say("I will ").await;
        turn.say("have a look.").await;

        // A tool call is shown while it works. One that is not over when the turn ends has failed.
        let call = turn.tool(format!("Read {shown}")).kind("read").file(&shown).start().await;
        let choice = call.ask(&[Choice::AllowOnce, Choice::RejectOnce]).await?;
        if !choice.is_some_and(Choice::allows) {
            call.fail().await;
            return Ok(Stop::Refusal);
        }
        // An error of any kind ends the turn, and is told to the person.
        let text = std::fs::read_to_string(&path)?;
        call.say(&text).await;
        call.complete().await;

        turn.say(&format!("It has {} lines.", text.lines().count())).await;
        Ok(Stop::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    // With a file, sessions are there again after a restart.
    let file = std::env::args_os().nth(1).unwrap_or("sessions.db".into());
    Server::of(Reader).store(file).start().await?.stdio().await;
    Ok(())
}
