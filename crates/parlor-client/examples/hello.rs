//! A client that starts an agent, prompts it, and prints the words as they come: the one of the guide.

#![expect(clippy::print_stdout, reason = "it prints what the agent says")]

use parlor_client::{Connector, Error, Role, TextDelta, Update};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // The agent is named on the command line, with its arguments.
    let mut args = std::env::args().skip(1);
    let program = args.next().unwrap_or("my-agent".to_owned());
    // Version 2 of the protocol is tried first. An agent of version 1 is translated.
    let client = Connector::new("my-client", "0.1.0").spawn(program, &args.collect::<Vec<_>>()).await?;
    let session = client.new_session(&std::env::temp_dir()).await?;

    let mut news = session.updates();
    let turn = session.prompt("Hello!").await?;
    let end = loop {
        tokio::select! {
            Some(update) = news.next() => show(&update),
            end = turn.outcome() => break end?,
        }
    };
    // What came together with the end.
    while let Some(update) = news.ready() {
        show(&update);
    }
    println!("\nended: {:?}", end.stop_reason);

    // The session always knows all that was said, in order, each message under its id.
    session.read(|transcript| println!("{} entries", transcript.entries().len()));
    Ok(())
}

/// Prints what the agent says.
fn show(update: &Update) {
    if let Some(words) = TextDelta::of(update).filter(|words| words.role == Role::Agent) {
        print!("{}", words.text);
    }
}
