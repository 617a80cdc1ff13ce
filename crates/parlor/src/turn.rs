//! One turn, watched from its prompt to its end.

use std::process::ExitCode;

use clap::Args;
use parlor_dialect::view;
use parlor_json::{JsonStr, Object};
use parlor_session::{Activity, EntryId, Role, SessionId, State};
use parlor_wire::{RequestId, code};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ask::{Decider, Questions};
use crate::client::{self, Client, Event, Follower};
use crate::failure::Failure;
use crate::output::{self, DIM, RED, YELLOW};
use crate::screen::{self, Screen};

/// How a turn is watched.
#[derive(Args)]
pub(crate) struct Watching {
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
    /// The prompt, until it is taken; none if the turn began otherwise.
    asked: Option<RequestId>,
    message: Option<String>,
    follower: Follower,
    questions: Questions,
    screen: Screen,
    interrupts: Signal,
    interrupted: bool,
}

impl Watching {
    pub(crate) fn screen(&self) -> Screen {
        Screen::new(!self.json)
    }

    /// Watches a turn to its end. `asked` is the prompt that begins it; without one it has begun already.
    pub(crate) async fn watch(
        &self,
        client: Client,
        session: SessionId,
        screen: Screen,
        asked: Option<RequestId>,
    ) -> Result<ExitCode, Failure> {
        let turn = Turn {
            client,
            follower: Follower::new(session.clone()),
            session,
            message: asked.is_none().then(String::new),
            asked,
            questions: Questions::new(Decider::new(self.yes, self.no)),
            screen,
            interrupts: signal(SignalKind::interrupt()).map_err(Failure::failed)?,
            interrupted: false,
        };
        turn.run(self.json).await
    }
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
            Event::Answered { id, outcome } if Some(&id) == self.asked.as_ref() => {
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
        let cancelled = match &self.asked {
            Some(asked) if self.message.is_none() => self.client.unask(asked).await,
            Some(_) | None => {
                let mut params = Object::default();
                params.set("sessionId", self.session.as_json());
                self.client.notify("session/cancel", &params).await
            }
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
