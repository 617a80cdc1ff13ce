//! The demo agent, for trying out parlor, and an example of an agent with `parlor-agent`.
//!
//! It executes the commands in the prompt, one per line, and needs no model. `parlor-agent` does the protocol; these files have
//! what this agent does.
//!
//! - `commands` lists the commands; a new command is a line of its table and an arm in `Demo::prompt`.
//! - `text` sends messages, `tool` uses tools and asks people, `terminal` runs programs, `session` changes and reads the session,
//!   `background` sends messages after the turn.

mod background;
pub(crate) mod commands;
mod session;
mod terminal;
mod text;
mod tool;

use std::path::Path;

use parlor_agent::{
    Agent, ContentBlock, Info, PromptCapability, ServeError, Server, Setting, SettingCategory, StopReason,
    Turn, TurnError,
};

use crate::script::{self, Part};
use background::Background;
use commands::{COMMANDS, Step};

/// Serves the client at standard input and output. Sessions are persisted in the file `state`, if there is one.
pub(crate) async fn serve(state: Option<&Path>) -> Result<(), ServeError> {
    let mut agent = Server::builder(Demo::default());
    if let Some(state) = state {
        agent = agent.persist(state);
    }
    agent.start().await?.stdio().await
}

#[derive(Default)]
struct Demo {
    background: Background,
}

impl Agent for Demo {
    fn info(&self) -> Info {
        let mode = Setting::new("mode", "Mode").category(SettingCategory::Mode);
        let model = Setting::new("model", "Model").category(SettingCategory::Model);
        let info = Info::new("parlor-demo", env!("CARGO_PKG_VERSION"))
            .title("Demo agent of parlor")
            .accepts(PromptCapability::Image)
            .accepts(PromptCapability::Audio)
            .accepts(PromptCapability::EmbeddedContext)
            .setting(mode.value("ask", "Ask first").value("code", "Write code"))
            .setting(model.value("small", "Small").value("large", "Large"));
        COMMANDS.iter().fold(info, |info, command| {
            let hint = Some(command.input).filter(|input| !input.is_empty());
            info.command(command.name, command.about, hint)
        })
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        let turn = &turn;
        turn.add_tokens(text::count(&turn.prompt_text()), 0);
        let texts = turn.prompt_blocks().filter_map(|block| block.as_text().map(str::to_owned));
        let script: String = texts.filter(|text| !script::is_conversation(text)).collect();
        for part in script::parts(&script, COMMANDS) {
            // Each command sends messages of its own.
            turn.end_message();
            let step = match part {
                Part::Step(step) => step,
                Part::Chat(chat) => {
                    text::chat(turn, &chat).await;
                    continue;
                }
                Part::Misused(usage) => {
                    text::say(turn, &format!("Usage: {usage}")).await;
                    continue;
                }
            };
            match step {
                Step::Help => text::help(turn).await,
                Step::Say(text) => text::say(turn, &text).await,
                Step::Think(text) => text::think(turn, &text).await,
                Step::Two(text) => text::twice(turn, &text).await,
                Step::Redact { clear } => text::redact(turn, clear).await,
                Step::Image => turn.send_content(ContentBlock::image(text::IMAGE, "image/png")).await,
                Step::Link => turn.send_content(text::link()).await,
                Step::Stream(stream) => text::stream(turn, &stream).await,
                Step::Tool(title) => tool::edit(turn, &title).await,
                Step::Ask(title) => tool::ask(turn, &title).await?,
                Step::Elicit => tool::form(turn).await?,
                Step::Terminal(command) => terminal::run(turn, &command).await?,
                Step::Plan(steps) => session::plan(turn, &steps).await,
                Step::Unplan => turn.remove_plan().await,
                Step::Title(title) => turn.set_title(&title).await,
                Step::Meta(patch) => session::meta(turn, &patch).await,
                Step::Mode(mode) => session::mode(turn, &mode).await,
                Step::Usage => session::usage(turn).await?,
                Step::Whoami => session::whoami(turn).await?,
                Step::Sleep(time) => tokio::time::sleep(time).await,
                Step::Later { after, text } => self.background.send_later(turn, after, [text]).await,
                Step::Background(count) => self.background.send_progress(turn, count).await,
                Step::Fail { code, text } => return Err(TurnError::with_code(code, text)),
                Step::Refuse => return Ok(StopReason::Refusal),
            }
        }
        Ok(StopReason::EndTurn)
    }
}
