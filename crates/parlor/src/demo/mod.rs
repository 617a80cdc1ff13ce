//! The demo agent: what a newcomer meets, and an example of an agent that is written with `parlor-agent`.
//!
//! What it does is said by the prompt, one command a line, so that it needs no model. Sessions with their history, ids,
//! states, prompts that wait, cancellation, forks and both versions of the protocol come with `parlor-agent`; what is
//! here is what this agent says and does.
//!
//! - `commands` has what a prompt may hold; a new command is a line of its table and an arm in `Demo::prompt`.
//! - `words` is talk, `tool` uses tools and asks, `terminal` runs programs, `session` is about the session itself,
//!   `later` about what is said when the turn is over.

pub(crate) mod commands;
mod later;
mod session;
mod terminal;
mod tool;
mod words;

use std::path::Path;

use parlor_agent::{
    Agent, ContentBlock, Info, PromptCapability, ServeError, Server, Setting, SettingCategory, StopReason,
    Turn, TurnError,
};

use crate::script::{self, Part};
use commands::{COMMANDS, Step};
use later::Later;

/// Serves the client at standard input and output. Sessions are kept in the file `state`, if there is one.
pub(crate) async fn serve(state: Option<&Path>) -> Result<(), ServeError> {
    let mut agent = Server::builder(Demo::default());
    if let Some(state) = state {
        agent = agent.persist(state);
    }
    agent.start().await?.stdio().await
}

#[derive(Default)]
struct Demo {
    later: Later,
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
        turn.add_tokens(words::count(&turn.prompt_text()), 0);
        let texts = turn.prompt_blocks().filter_map(|block| block.as_text().map(str::to_owned));
        let script: String = texts.filter(|text| !script::is_conversation(text)).collect();
        for part in script::parts(&script, COMMANDS) {
            // What each part says is a message of its own.
            turn.end_message();
            let step = match part {
                Part::Step(step) => step,
                Part::Chat(words) => {
                    words::chat(turn, &words).await;
                    continue;
                }
                Part::Misused(usage) => {
                    words::say(turn, &format!("It is used like this: {usage}")).await;
                    continue;
                }
            };
            match step {
                Step::Help => words::help(turn).await,
                Step::Say(text) => words::say(turn, &text).await,
                Step::Think(text) => words::think(turn, &text).await,
                Step::Two(text) => words::twice(turn, &text).await,
                Step::Redact { clear } => words::redact(turn, clear).await,
                Step::Image => turn.send_content(ContentBlock::image(words::IMAGE, "image/png")).await,
                Step::Link => turn.send_content(words::link()).await,
                Step::Stream(stream) => words::stream(turn, &stream).await,
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
                Step::Later { after, text } => self.later.say(turn, after, [text]).await,
                Step::Background(count) => self.later.background(turn, count).await,
                Step::Fail { code, text } => return Err(TurnError::with_code(code, text)),
                Step::Refuse => return Ok(StopReason::Refusal),
            }
        }
        Ok(StopReason::EndTurn)
    }
}
