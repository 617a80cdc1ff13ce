//! One turn, watched from its prompt to its end.

use std::io;
use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use futures_util::FutureExt;
use parlor_client::{Error, News, Question, Session};
use parlor_dialect::view;
use parlor_session::{Activity, EntryId, Reading, Role, State, Transcript, Update};
use parlor_wire::code;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ask::{Decider, Decision, Questions};
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
struct Turn<'a> {
    session: &'a Session,
    /// What the agent wants to know.
    asked: parlor_client::Questions,
    /// What is new in it, from when it began; none as long as its prompt waits.
    news: Option<News>,
    message: Option<String>,
    /// What happened in it, and nothing that happened before.
    transcript: Transcript,
    /// How many updates could not be read, as far as the person knows.
    unread: u64,
    questions: Questions,
    screen: Screen,
    interrupts: Signal,
    interrupted: bool,
}

/// What happens while a turn is watched.
enum Event {
    /// The agent took the prompt, or did not.
    Taken(Result<parlor_client::Turn, Error>),
    News(Update),
    Asked(Question),
    Decided(Decision),
    Interrupted,
    Gone,
}

fn written<T>(done: io::Result<T>) -> Result<T, Failure> {
    done.map_err(|error| Failure::writing(&error))
}

impl Watching {
    /// Watches a turn to its end. It begins with a prompt; without one it has begun already. The person is told the note
    /// first. What the agent asks has to be listened to from before the session is joined.
    pub(crate) async fn watch(
        &self,
        session: &Session,
        asked: parlor_client::Questions,
        note: Option<&str>,
        prompt: Option<&str>,
    ) -> Result<ExitCode, Failure> {
        let mut turn = Turn {
            session,
            asked,
            news: prompt.is_none().then(|| session.news_since(0)),
            message: None,
            transcript: Transcript::default(),
            unread: 0,
            questions: Questions::new(Decider::new(self.yes, self.no)),
            screen: Screen::new(!self.json),
            interrupts: signal(SignalKind::interrupt()).map_err(Failure::failed)?,
            interrupted: false,
        };
        if let Some(note) = note {
            written(turn.screen.note(note, DIM))?;
        }
        turn.run(prompt, self.json).await
    }
}

impl Turn<'_> {
    async fn run(mut self, prompt: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
        let state = self.watch(prompt).await?;
        written(self.screen.rest(&self.transcript))?;
        written(self.screen.end())?;
        let reason = state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned());
        let error = screen::error_of(&state);
        let is_done = reason.as_deref().is_none_or(|reason| reason == "end_turn");
        if json {
            output::print_json(&self.done(reason, error))?;
        } else if !is_done {
            let why = error.map(|error| format!(": {error}")).unwrap_or_default();
            let line = format!("the turn ended with {}{why}", reason.unwrap_or_default());
            written(self.screen.note(&line, RED))?;
        }
        Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Watches until the turn has ended: in which state.
    async fn watch(&mut self, prompt: Option<&str>) -> Result<State, Failure> {
        let session = self.session;
        let mut prompting = pin!(async {
            match prompt {
                Some(text) => session.prompt(text).await,
                None => std::future::pending().await,
            }
        });
        loop {
            let waits = self.news.is_none();
            // In this order: what is to be taken back is asked first, and a question is shown after what was said before.
            let event = tokio::select! {
                biased;
                taken = &mut prompting, if waits => Event::Taken(taken),
                _ = self.interrupts.recv() => Event::Interrupted,
                update = next(&mut self.news) => update.map_or(Event::Gone, Event::News),
                decision = self.questions.decided() => Event::Decided(written(decision)?),
                question = self.asked.next() => question.map_or(Event::Gone, Event::Asked),
            };
            // What was said before a question may have come since it was looked for.
            if waits
                && matches!(event, Event::Asked(_) | Event::Gone)
                && let Some(taken) = prompting.as_mut().now_or_never()
            {
                self.taken(&taken.map_err(|error| refused(&error))?);
            }
            let ended = match event {
                Event::Taken(taken) => {
                    self.taken(&taken.map_err(|error| refused(&error))?);
                    None
                }
                Event::News(update) => self.show(&update)?,
                Event::Asked(question) => {
                    let ended = self.catch_up()?;
                    self.asked(question).await?;
                    ended
                }
                Event::Decided(decision) => {
                    decision.tell().await;
                    None
                }
                Event::Interrupted => {
                    self.interrupt().await?;
                    None
                }
                Event::Gone => Some(self.catch_up()?.ok_or_else(|| Failure::server(&Error::Gone))?),
            };
            if let Some(state) = ended {
                return Ok(state);
            }
        }
    }

    /// The prompt was taken. What was said before belongs to others.
    fn taken(&mut self, turn: &parlor_client::Turn) {
        self.news = Some(turn.news());
        self.message = turn.message().map(ToString::to_string);
        self.unread = self.session.unread().map_or(0, |(count, _)| count);
    }

    /// Shows what is new; there is a state if it is the one in which the turn ended.
    fn show(&mut self, update: &Update) -> Result<Option<State>, Failure> {
        if let Some((count, why)) = self.session.unread()
            && count > self.unread
        {
            self.unread = count;
            written(self.screen.note(&format!("an update cannot be read: {why}"), YELLOW))?;
        }
        let ended = match update {
            Update::State(state) if state.activity == Activity::Idle => Some(state.clone()),
            Update::State(_)
            | Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. } => None,
        };
        // What the session has taken is taken here.
        let _ = self.transcript.push(update.clone());
        written(self.screen.show(update, &self.transcript))?;
        Ok(ended)
    }

    /// Shows all that is new already.
    fn catch_up(&mut self) -> Result<Option<State>, Failure> {
        while let Some(update) = self.news.as_mut().and_then(News::ready) {
            if let Some(state) = self.show(&update)? {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    async fn asked(&mut self, question: Question) -> Result<(), Failure> {
        if question.method() != "session/request_permission" {
            question.decline().await;
            return Ok(());
        }
        written(self.screen.end())?;
        if let Some(decision) = written(self.questions.asked(question))? {
            if let Some(told) = &decision.told {
                written(self.screen.note(told, YELLOW))?;
            }
            decision.tell().await;
        }
        Ok(())
    }

    async fn interrupt(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.interrupted, true) {
            let _ = self.screen.end();
            return Err(Failure::failed("left; the session goes on without this client"));
        }
        written(self.screen.note("cancelling; Ctrl-C again leaves at once", DIM))?;
        let cancelled = match &self.news {
            None => self.session.take_back().await,
            Some(_) => self.session.cancel().await,
        };
        cancelled.map_err(|error| Failure::server(&error))
    }

    fn done(&self, stop_reason: Option<String>, error: Option<String>) -> impl Serialize {
        let transcript = joined(&self.transcript);
        let said = transcript
            .entries()
            .iter()
            .filter(|entry| matches!(entry.id(), EntryId::Message(Role::Agent, _)));
        let texts: Vec<_> = said.map(|entry| screen::text(&entry.body().content)).collect();
        let turn = view::transcript(&transcript);
        let done = Done {
            session_id: self.session.id().to_string(),
            message_id: self.message.clone(),
            stop_reason,
            error,
            text: texts.join("\n\n"),
            turn: turn.raw(),
        };
        RawValue::from_string(output::to_json(&done)).expect("it was just written")
    }
}

/// The same transcript, however its text was cut into pieces on the way.
fn joined(transcript: &Transcript) -> Transcript {
    let mut joined = Transcript::default();
    let mut reading = Reading::new(0, transcript.seq());
    while let Some(update) = reading.next(transcript, usize::MAX) {
        // What was taken once is taken again.
        let _ = joined.push(update);
    }
    joined
}

/// The next piece of news, once there are any.
async fn next(news: &mut Option<News>) -> Option<Update> {
    match news {
        Some(news) => news.next().await,
        None => std::future::pending().await,
    }
}

/// Why a prompt was not taken.
fn refused(error: &Error) -> Failure {
    if error.code() == Some(code::REQUEST_CANCELLED) {
        return Failure::failed("the prompt was taken back before its turn");
    }
    Failure::server(error)
}
