//! Makes any agent of version 1 one of version 2: `relay PROGRAM [ARGUMENT]...` is used in its place.
//!
//! What the other version cannot express is reported on standard error. Lines have no size limit here; `parlor_wire::LineDecoder`
//! has one.

#![expect(clippy::print_stderr, reason = "losses are reported there")]

use std::{env, io, process::Stdio};

use parlor_dialect::{Dialect, Side, Translator};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout};

#[tokio::main]
async fn main() -> io::Result<()> {
    // The agent, and a pipe in each direction on each side.
    let mut agent = tokio::process::Command::new(env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?);
    let mut agent =
        agent.args(env::args_os().skip(2)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut to_agent, mut to_client) = (agent.stdin.take().unwrap(), stdout());
    let mut from_agent = BufReader::new(agent.stdout.take().unwrap()).lines();
    let mut from_client = BufReader::new(stdin()).lines();

    let mut translator = Translator::relay(Dialect::V1, Dialect::V2);
    while let (side, Some(line)) = tokio::select! {
        line = from_client.next_line() => (Side::Client, line?),
        line = from_agent.next_line() => (Side::Agent, line?),
    } {
        // One line may become several, also ones for the side that it came from.
        let Ok(translation) = translator.line(side, &line) else { continue };
        translation.losses.iter().for_each(|loss| eprintln!("lost: {}", loss.kind.meaning().trim()));
        for said in translation.lines {
            let line = format!("{}\n", said.text);
            match said.by {
                Side::Client => to_agent.write_all(line.as_bytes()).await?,
                Side::Agent => to_client.write_all(line.as_bytes()).await?,
            }
        }
        to_client.flush().await?;
    }
    // The agent is not waited for.
    std::process::exit(0)
}
