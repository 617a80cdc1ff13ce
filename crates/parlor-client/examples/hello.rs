//! A client that starts an agent, prompts it, and prints the text as it arrives: the one of the guide.

#![expect(clippy::print_stdout, reason = "it prints the agent's text")]

use parlor_client::{Connector, Error, Role, TextDelta, TurnEvent};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // The agent is named on the command line, with its arguments.
    let mut args = std::env::args().skip(1);
    let program = args.next().unwrap_or("my-agent".to_owned());
    // Version 2 of the protocol is tried first. An agent of version 1 is translated.
    let client = Connector::new("my-client", "0.1.0").spawn(program, &args.collect::<Vec<_>>()).await?;
    let session = client.new_session(&std::env::temp_dir()).await?;

    let mut turn = session.prompt("Hello!").await?;
    while let Some(event) = turn.next().await {
        match event? {
            TurnEvent::Update(update) => {
                if let Some(delta) = TextDelta::of(&update).filter(|delta| delta.role == Role::Agent) {
                    print!("{}", delta.text);
                }
            }
            TurnEvent::Ended(outcome) => println!("\nended: {:?}", outcome.stop_reason),
        }
    }

    // The transcript has everything, in order, each message under its id.
    println!("{} entries", session.transcript().entries().len());
    Ok(())
}
