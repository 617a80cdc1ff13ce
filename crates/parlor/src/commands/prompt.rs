use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_dialect::view;
use parlor_json::{Json, JsonStr, Object, string_literal};
use parlor_server::data_dir::DataDir;
use parlor_server::doors::hello::{Agent, Hello};
use parlor_session::{Activity, EntryId, Role, SessionId, State};
use parlor_wire::{RequestId, code};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ask::{Decider, Questions};
use crate::client::{self, Client, Event, Follower};
use crate::commands::acp;
use crate::failure::Failure;
use crate::library::Library;
use crate::output::{self, DIM, RED, YELLOW};
use crate::screen::{self, Screen};
use crate::setup::{self, Common};

/// Say something in a session, and print the answer as it comes
///
/// Joins the local server, and starts one if none runs. The answer goes to standard output; tool calls, questions and
/// everything else about the turn go to standard error. Ctrl-C cancels the turn; a second one leaves it alone.
///
/// The exit code is 0 if the agent came to the end of its turn, and 1 otherwise.
#[derive(Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of a command line")]
pub(crate) struct Prompt {
    #[command(flatten)]
    common: Common,
    /// The session: its id, the beginning of it, or `latest`; not with `--new`
    #[arg(value_name = "SESSION")]
    first: String,
    /// What to say; `-` reads it from standard input
    #[arg(value_name = "TEXT", conflicts_with = "new")]
    second: Option<String>,
    /// Begin a session
    #[arg(long)]
    new: bool,
    /// The agent of the new session [default: the server's]
    #[arg(long, value_name = "NAME", requires = "new")]
    agent: Option<String>,
    /// Where the new session works [default: here]
    #[arg(long, value_name = "DIR", requires = "new")]
    cwd: Option<PathBuf>,
    /// Allow what the agent asks permission for
    #[arg(long, conflicts_with = "no")]
    yes: bool,
    /// Reject what the agent asks permission for
    #[arg(long)]
    no: bool,
    /// Print one JSON object at the end, and no answer before
    #[arg(long)]
    json: bool,
}

const USAGE: &str = "parlor prompt [OPTIONS] <SESSION> <TEXT>
       parlor prompt [OPTIONS] --new <TEXT>";

const EXAMPLES: &str = "Examples:
  parlor prompt --new 'What is in this directory?'
  git diff | parlor prompt latest -";

/// What came of it, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done<'a> {
    session_id: String,
    message_id: Option<String>,
    stop_reason: Option<String>,
    error: Option<String>,
    /// What the agent said.
    text: String,
    /// All that happened, in the shape of `parlor fold`.
    turn: &'a RawValue,
}

/// A turn that is under way.
struct Turn {
    client: Client,
    session: SessionId,
    asked: RequestId,
    message: Option<String>,
    follower: Follower,
    questions: Questions,
    screen: Screen,
    interrupts: Signal,
    interrupted: bool,
}

impl Prompt {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (session, text) = match (&self.second, self.new) {
            (Some(text), _) => (Some(Library::open(&self.common)?.find_any(&self.first)?), text),
            (None, true) => (None, &self.first),
            (None, false) => {
                let failure = Failure::bad_input("it is not said in which session, or what");
                return Err(failure.hint("name a session (`parlor ls` lists them), say latest, or add --new"));
            }
        };
        let text = read(text)?;
        let id = session.map(|row| {
            SessionId::from(JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)))
        });
        let data = DataDir::open(&self.common.data_dir()?).map_err(Failure::failed)?;
        acp::ensure_server(&data, &self.common)?;
        let runtime = setup::runtime()?;
        let done = runtime.block_on(self.talk(&data, id, &text));
        runtime.shutdown_background();
        done
    }

    async fn talk(&self, data: &DataDir, id: Option<SessionId>, text: &str) -> Result<ExitCode, Failure> {
        let server = |error: client::Error| Failure::server(&error);
        let writing = |error: std::io::Error| Failure::writing(&error);
        let cwd = std::path::absolute(self.cwd.as_deref().unwrap_or_else(|| ".".as_ref()))
            .map_err(Failure::bad_input)?;
        if !cwd.is_dir() {
            return Err(Failure::bad_input(format_args!("{} is no directory", cwd.display())));
        }
        let hello = Hello {
            agent: self.agent.clone().map(Agent::Name),
            env: acp::environment(),
            cwd: Some(cwd.clone()),
            ..Hello::new()
        };
        let mut client = Client::connect(&data.socket(), &hello).await.map_err(server)?;
        client.initialize().await.map_err(server)?;
        let mut screen = Screen::new(!self.json);
        let session = match id {
            Some(id) => {
                let joined = client.call("session/resume", &place(Some(&id), &cwd)).await.map_err(server)?;
                if !is_idle(&joined) {
                    screen.note("a turn runs; this waits for its end", DIM).map_err(writing)?;
                }
                id
            }
            None => {
                let begun = client.call("session/new", &place(None, &cwd)).await.map_err(server)?;
                let id = begun.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw()));
                let id = id.ok_or_else(|| Failure::failed("the server began a session without an id"))?;
                screen.note(&format!("session {id}"), DIM).map_err(writing)?;
                SessionId::from(id)
            }
        };
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        let block = format!(r#"[{{"type":"text","text":{}}}]"#, string_literal(text));
        params.set("prompt", Json::parse(block).expect("it is made of JSON"));
        let asked = client.ask("session/prompt", &params).await.map_err(server)?;
        let interrupts = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
        let turn = Turn {
            client,
            follower: Follower::new(session.clone()),
            session,
            asked,
            message: None,
            questions: Questions::new(Decider::new(self.yes, self.no)),
            screen,
            interrupts,
            interrupted: false,
        };
        turn.run(self.json).await
    }
}

/// The text that is meant.
fn read(text: &str) -> Result<String, Failure> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failure::bad_input(format_args!("standard input cannot be read: {error}")))?;
    }
    if text.trim().is_empty() {
        return Err(Failure::bad_input("there is nothing to say"));
    }
    Ok(text)
}

impl Turn {
    async fn run(mut self, json: bool) -> Result<ExitCode, Failure> {
        let state = loop {
            tokio::select! {
                event = self.client.next() => {
                    if let Some(state) = self.event(event.map_err(|error| Failure::server(&error))?).await? {
                        break state;
                    }
                }
                _ = self.interrupts.recv() => self.interrupt().await?,
                answer = self.questions.answer() => {
                    let answer = answer.map_err(|error| Failure::writing(&error))?;
                    self.client.answer(&answer.id, &answer.result).await.map_err(|error| Failure::server(&error))?;
                }
            }
        };
        let writing = |error: std::io::Error| Failure::writing(&error);
        self.screen.rest(self.follower.transcript()).map_err(writing)?;
        self.screen.end().map_err(writing)?;
        let reason = state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned());
        let error = screen::error_of(&state);
        let is_done = reason.as_deref().is_none_or(|reason| reason == "end_turn");
        if json {
            output::print_json(&self.done(reason, error))?;
        } else if !is_done {
            let why = error.map(|error| format!(": {error}")).unwrap_or_default();
            let line = format!("the turn ended with {}{why}", reason.unwrap_or_default());
            self.screen.note(&line, RED).map_err(writing)?;
        }
        Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Takes an event; there is a state if it is the one in which the turn ended.
    async fn event(&mut self, event: Event) -> Result<Option<State>, Failure> {
        let server = |error: client::Error| Failure::server(&error);
        let writing = |error: std::io::Error| Failure::writing(&error);
        match event {
            // What was said before our prompt belongs to others.
            Event::Update(_) if self.message.is_none() => {}
            Event::Update(line) => {
                if let Err(problem) = self.follower.take(&line) {
                    self.screen
                        .note(&format!("an update cannot be read: {problem}"), YELLOW)
                        .map_err(writing)?;
                }
                let news = self.follower.news();
                self.screen.show(&news, self.follower.transcript()).map_err(writing)?;
                let state = self.follower.transcript().state();
                return Ok(state.filter(|state| state.activity == Activity::Idle).cloned());
            }
            Event::Answered { id, outcome } if id == self.asked => {
                let accepted = outcome.map_err(|error| {
                    let was_taken_back = error.code() == code::REQUEST_CANCELLED;
                    let failure = Failure::server(&client::Error::Rpc(error));
                    if was_taken_back {
                        Failure::failed("the prompt was taken back before its turn")
                    } else {
                        failure
                    }
                })?;
                let message = accepted.get("messageId").and_then(|id| JsonStr::from_raw(id.raw()));
                self.message = Some(message.map(|id| id.to_text().into_owned()).unwrap_or_default());
            }
            Event::Answered { .. } => {}
            Event::Asked { id, method, params } if method == "session/request_permission" => {
                self.screen.end().map_err(writing)?;
                if let Some(answer) = self.questions.asked(id, &params).map_err(writing)? {
                    if let Some(told) = &answer.told {
                        self.screen.note(told, YELLOW).map_err(writing)?;
                    }
                    self.client.answer(&answer.id, &answer.result).await.map_err(server)?;
                }
            }
            Event::Asked { id, .. } => self.client.decline(&id).await.map_err(server)?,
            Event::Unasked(id) => self.questions.unasked(&id).map_err(writing)?,
        }
        Ok(None)
    }

    async fn interrupt(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.interrupted, true) {
            let _ = self.screen.end();
            return Err(Failure::failed("left; the session goes on without this client"));
        }
        self.screen
            .note("cancelling; Ctrl-C again leaves at once", DIM)
            .map_err(|error| Failure::writing(&error))?;
        let cancelled = if self.message.is_some() {
            let mut params = Object::default();
            params.set("sessionId", self.session.as_json());
            self.client.notify("session/cancel", &params).await
        } else {
            self.client.unask(&self.asked).await
        };
        cancelled.map_err(|error| Failure::server(&error))
    }

    fn done(&self, stop_reason: Option<String>, error: Option<String>) -> impl Serialize {
        let transcript = self.follower.transcript();
        let said = transcript
            .entries()
            .iter()
            .filter(|entry| matches!(entry.id(), EntryId::Message(Role::Agent, _)));
        let texts: Vec<_> = said.map(|entry| screen::text(&entry.body().content)).collect();
        let turn = view::transcript(transcript);
        let done = Done {
            session_id: self.session.to_string(),
            message_id: self.message.clone().filter(|id| !id.is_empty()),
            stop_reason,
            error,
            text: texts.join("\n\n"),
            turn: turn.raw(),
        };
        RawValue::from_string(output::to_json(&done)).expect("it was just written")
    }
}

/// Where a session is and works.
fn place(session: Option<&SessionId>, cwd: &std::path::Path) -> Object {
    let mut params = Object::default();
    if let Some(session) = session {
        params.set("sessionId", session.as_json());
    }
    params.set("cwd", Json::from(&JsonStr::new(&cwd.to_string_lossy())));
    params.set("mcpServers", Json::parse("[]").expect("it is JSON"));
    params
}

/// Whether no turn runs in a session that was joined.
fn is_idle(joined: &Object) -> bool {
    let meta = joined.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok());
    let state =
        meta.and_then(|meta| meta.get("parlor/state").and_then(|state| JsonStr::from_raw(state.raw())));
    state.is_none_or(|state| state.inner() == "idle")
}
