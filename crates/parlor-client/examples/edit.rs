//! Edits an earlier message: a fork continues from there, and the first session stays.
//!
//! ```text
//! cargo run -p parlor-client --example edit -- parlor acp
//! cargo run -p parlor-client --example edit -- --socket ~/.local/share/parlor/parlor.sock
//! ```
//!
//! The agent must be able to fork at a message. Any agent can behind `parlor acp`, and any that is made with
//! `parlor-agent`.

#![expect(clippy::print_stdout, reason = "it prints two transcripts")]

use std::env;
use std::error::Error;
use std::path::Path;

use parlor_client::{Client, Connector, EntryId, Hello, MessageId, Role, Session};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = connect(&env::args().skip(1).collect::<Vec<_>>()).await?;
    let cwd = env::current_dir()?;

    let session = client.new_session(&cwd).await?;
    session.prompt("say My name is Ada.").await?.await?;
    let turn = session.prompt("say Four, I think.").await?;
    turn.outcome().await?;
    print("as it was", &session);

    // A fork has everything up to a message, and that message. So a message is edited by a fork at the one before it. (The
    // first has none before it: that takes a new session.)
    let message = turn.message_id().ok_or("the agent gives no ids to messages")?;
    let fork = match before(&session, message) {
        Some(earlier) => session.fork(Some(&earlier), &cwd).await?,
        None => client.new_session(&cwd).await?,
    };
    fork.prompt("say Five, I am sure.").await?.await?;
    print("edited", &fork);
    Ok(())
}

async fn connect(args: &[String]) -> Result<Client, Box<dyn Error>> {
    let connector = Connector::new("edit", "0.1.0");
    Ok(match args {
        [flag, path] if flag == "--socket" => connector.socket(Path::new(path), &Hello::new()).await?.0,
        [program, args @ ..] => connector.spawn(program, args).await?,
        [] => return Err("usage: edit (--socket PATH | PROGRAM [ARGUMENT]...)".into()),
    })
}

/// The last message before the user's message of this id.
fn before(session: &Session, id: &MessageId) -> Option<MessageId> {
    let transcript = session.transcript();
    let ids = transcript.entries().iter().map(parlor_client::Entry::id);
    let earlier = ids.take_while(|entry| !matches!(entry, EntryId::Message(Role::User, it) if it == id));
    earlier
        .filter_map(|entry| if let EntryId::Message(_, id) = entry { Some(id.clone()) } else { None })
        .last()
}

/// Prints the messages of a session.
fn print(name: &str, session: &Session) {
    println!("{name}:");
    for entry in session.transcript().entries() {
        if let EntryId::Message(role, _) = entry.id() {
            println!("  {role:?}: {}", entry.body().content.to_text());
        }
    }
}
