//! Starts an agent, prompts it, and prints what happens while it happens.
//!
//! ```text
//! cargo run -p parlor-client --example watch -- "Hello!" my-agent --its-option
//! ```
//!
//! It works the same with agents of version 1 and 2 of the protocol, whether they give their messages ids or not.

#![expect(clippy::print_stdout, reason = "it prints a transcript")]

use std::env;
use std::error::Error;
use std::io::Write;

use parlor_client::{Connector, EntryId, JsonStr, PeerRequests, Role, Target, TextDelta, Update};

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

    // From here on everything is told once.
    let mut news = session.updates();
    let mut screen = Screen::default();
    let turn = session.prompt(text).await?;
    let end = loop {
        tokio::select! {
            Some(update) = news.next() => screen.show(&update),
            end = turn.outcome() => break end?,
        }
    };
    // What came together with the end.
    while let Some(update) = news.ready() {
        screen.show(&update);
    }
    screen.begin("", None);
    println!("{}", end.stop_reason.map(|reason| reason.to_text().into_owned()).unwrap_or_default());
    Ok(())
}

/// Allows everything that is asked, once. A client for people asks them.
async fn allow(mut questions: PeerRequests) {
    while let Some(question) = questions.next().await {
        let choice = question.options().into_iter().find(|choice| choice.kind == "allow_once");
        match choice {
            Some(choice) => question.select(&choice).await,
            None => question.decline().await,
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
        if let Some(words) = TextDelta::of(update) {
            let name = match words.role {
                Role::User => "you",
                Role::Agent => "agent",
                Role::Thought => "thought",
            };
            // TextDelta go on with their message, or begin it, or say it anew.
            let entry = EntryId::Message(words.role, words.message);
            if words.replaces || self.open.as_ref() != Some(&entry) {
                self.begin(name, Some(entry));
            }
            print!("{}", words.text);
        } else if let Update::Upsert { target: Target::Entry(entry @ EntryId::ToolCall(_)), upsert } = update
        {
            if self.open.as_ref() != Some(entry) {
                self.begin("tool", Some(entry.clone()));
            }
            for value in ["title", "status"].iter().filter_map(|name| upsert.fields.get(name)) {
                let text = JsonStr::from_raw(value.raw());
                print!("{} ", text.as_ref().map(JsonStr::to_text).unwrap_or_default());
            }
        }
        let _ = std::io::stdout().flush();
    }

    /// Something else comes now: a line between, and who it is from.
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
