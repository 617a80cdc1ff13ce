//! The demo agent, which is also an example for `parlor-agent`.
//!
//! It executes the commands in the prompt, one per line, and needs no model. `parlor-agent` implements sessions with their
//! history, ids and states, the prompt queue, cancellation, forks and both versions of the protocol; this module implements
//! the commands.
//!
//! - `commands` has the table of commands; a new command is a row of it and an arm in `Demo::prompt`.
//! - `messages` sends messages, `tool` makes tool calls and sends requests, `terminal` runs programs, `session` changes the
//!   session itself, `background` sends messages after the turn.

mod background;
pub(crate) mod commands;
mod messages;
mod session;
mod terminal;
mod tool;

use std::path::Path;

use parlor_agent::{Agent, Failure, Info, Json, ServeError, Server, Setting, Stop, Turn};

use crate::script::{self, Part};
use background::BackgroundTasks;
use commands::{COMMANDS, Step};

/// Serves the client on standard input and output. Sessions are stored in the file `state`, if it is given.
pub(crate) async fn serve(state: Option<&Path>) -> Result<(), ServeError> {
    let mut agent = Server::of(Demo::default());
    if let Some(state) = state {
        agent = agent.store(state);
    }
    agent.start().await?.stdio().await;
    Ok(())
}

#[derive(Default)]
struct Demo {
    background: BackgroundTasks,
}

impl Agent for Demo {
    fn info(&self) -> Info {
        let mode = Setting::new("mode", "Mode").category("mode");
        let model = Setting::new("model", "Model").category("model");
        let info = Info::new("parlor-demo", env!("CARGO_PKG_VERSION"))
            .title("Demo agent of parlor")
            .takes("image")
            .takes("audio")
            .takes("embeddedContext")
            .setting(mode.value("ask", "Ask first").value("code", "Write code"))
            .setting(model.value("small", "Small").value("large", "Large"));
        COMMANDS.iter().fold(info, |info, command| {
            let hint = Some(command.input).filter(|input| !input.is_empty());
            info.command(command.name, command.about, hint)
        })
    }

    async fn prompt(&self, turn: Turn) -> Result<Stop, Failure> {
        let turn = &turn;
        turn.spent(messages::count(&turn.text()), 0);
        let texts = turn.content().iter().filter_map(|item| parlor_session::text_of(item.json));
        let script: String = texts.filter(|text| !script::is_conversation(text)).collect();
        for part in script::parts(&script, COMMANDS) {
            // Each part is a separate message.
            turn.end_message();
            let step = match part {
                Part::Step(step) => step,
                Part::Chat(text) => {
                    messages::chat(turn, &text).await;
                    continue;
                }
                Part::Misused(usage) => {
                    messages::say(turn, &format!("Usage: {usage}")).await;
                    continue;
                }
            };
            match step {
                Step::Help => messages::help(turn).await,
                Step::Say(text) => messages::say(turn, &text).await,
                Step::Think(text) => messages::think(turn, &text).await,
                Step::Two(text) => messages::twice(turn, &text).await,
                Step::Redact { clear } => messages::redact(turn, clear).await,
                Step::Image => turn.say_block(&Json::parse(messages::IMAGE)?).await,
                Step::Link => turn.say_block(&Json::parse(messages::LINK)?).await,
                Step::Stream(stream) => messages::stream(turn, &stream).await,
                Step::Tool(title) => tool::edit(turn, &title).await,
                Step::Ask(title) => tool::ask(turn, &title).await?,
                Step::Elicit => tool::form(turn).await?,
                Step::Terminal(command) => terminal::run(turn, &command).await?,
                Step::Plan(steps) => session::plan(turn, &steps).await,
                Step::Unplan => turn.end_plan().await,
                Step::Title(title) => turn.title(&title).await,
                Step::Meta(patch) => session::meta(turn, &patch).await,
                Step::Mode(mode) => session::mode(turn, &mode).await,
                Step::Usage => session::usage(turn).await?,
                Step::Whoami => session::whoami(turn).await?,
                Step::Sleep(time) => tokio::time::sleep(time).await,
                Step::Later { after, text } => self.background.say(turn, after, [text]).await,
                Step::Background(count) => self.background.background(turn, count).await,
                Step::Fail { code, text } => return Err(Failure::with_code(code, text)),
                Step::Refuse => return Ok(Stop::Refusal),
            }
        }
        Ok(Stop::EndTurn)
    }
}
