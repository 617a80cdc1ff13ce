//! Starts an agent, prompts it, and prints the turn as it happens.
//!
//! ```text
//! cargo run -p parlor-client --example watch -- "Hello!" my-agent --its-option
//! ```
//!
//! It works the same with agents of versions 1 and 2 of the protocol, whether they give ids to messages or not.

#![expect(clippy::print_stdout, reason = "it prints a transcript")]

use std::env;
use std::error::Error;
use std::io::Write;

use parlor_client::{
    Connector, EntryId, PeerRequests, PermissionOptionKind, Role, TextDelta, ToolCall, TurnEvent, Update,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(text), Some(program)) = (args.next(), args.next()) else {
        return Err("usage: watch TEXT PROGRAM [ARGUMENT]...".into());
    };
    let args: Vec<String> = args.collect();

    let client = Connector::new("watch", "0.1.0").spawn(program, &args).await?;
    let session = client.new_session(&env::current_dir()?).await?;
    tokio::spawn(allow(client.requests()));

    let mut screen = Screen::default();
    let mut turn = session.prompt(text).await?;
    while let Some(event) = turn.next().await {
        match event? {
            TurnEvent::Update(update) => screen.show(&update),
            TurnEvent::Ended(outcome) => {
                screen.begin("", None);
                println!("{}", outcome.stop_reason.map(|reason| reason.to_string()).unwrap_or_default());
            }
        }
    }
    Ok(())
}

/// Allows everything, once. A client for people asks them.
async fn allow(mut requests: PeerRequests) {
    while let Some(request) = requests.next().await {
        let mut options = request.options().into_iter();
        match options.find(|option| option.kind == PermissionOptionKind::AllowOnce) {
            Some(option) => request.select(&option).await,
            None => request.decline().await,
        }
    }
}

/// What was printed last.
#[derive(Default)]
struct Screen {
    open: Option<EntryId>,
}

impl Screen {
    fn show(&mut self, update: &Update) {
        if let Some(delta) = TextDelta::of(update) {
            let name = match delta.role {
                Role::User => "you",
                Role::Agent => "agent",
                Role::Thought => "thought",
            };
            // The text continues its message, or is a new message or a new version of one.
            let entry = EntryId::Message(delta.role, delta.message);
            if delta.replaces || self.open.as_ref() != Some(&entry) {
                self.begin(name, Some(entry));
            }
            print!("{}", delta.text);
        } else if let Some(call) = ToolCall::of_update(update) {
            let entry = EntryId::ToolCall(call.id().clone());
            if self.open.as_ref() != Some(&entry) {
                self.begin("tool", Some(entry));
            }
            call.title().iter().for_each(|title| print!("{title} "));
            call.status().iter().for_each(|status| print!("{status} "));
        }
        let _ = std::io::stdout().flush();
    }

    /// Begins an entry: an empty line and its heading.
    fn begin(&mut self, name: &str, entry: Option<EntryId>) {
        if self.open.is_some() {
            println!("\n");
        }
        if entry.is_some() {
            println!("{name}:");
        }
        self.open = entry;
    }
}
