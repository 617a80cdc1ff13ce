//! One turn, watched from its prompt to its end.

use std::io;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt;
use parlor_client::{Error, Object, PeerRequest, Session, TurnEvent, Updates};
use parlor_dialect::view;
use parlor_session::{Activity, EntryId, ReplayCursor, Role, State, Target, Transcript, Update};
use parlor_wire::code;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command_error::CommandError;
use crate::output::{self, DIM, RED, YELLOW};
use crate::peer_requests::{ApprovalPolicy, Decision, RequestQueue};
use crate::turn_printer::{self, TurnPrinter};

/// How a turn is watched.
#[derive(Args)]
pub(crate) struct TurnOptions {
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
    asked: parlor_client::PeerRequests,
    /// Its updates, from when it began; none as long as its prompt waits.
    updates: Option<Source>,
    message: Option<String>,
    /// What happened in it, and nothing that happened before.
    transcript: Transcript,
    /// How many updates could not be read, as far as the person knows.
    unread: u64,
    questions: RequestQueue,
    /// Up to where the session was known when the prompt was sent, if it was idle then: what the agent asks before it says that
    /// it has taken the prompt is asked for it, as long as nobody else has prompted.
    idle_at: Option<u64>,
    /// The requests that were left to other clients and that nobody has decided yet, by tool call and title.
    undecided: Vec<(Option<String>, String)>,
    /// Where the session works.
    cwd: &'a str,
    printer: TurnPrinter,
    interrupts: Signal,
    interrupted: bool,
}

/// What a person is told before a turn.
pub(crate) struct TurnIntro<'a> {
    /// Something to know first.
    pub(crate) note: Option<&'a str>,
    /// The agent that may have to start, if its name is known.
    pub(crate) agent: Option<&'a str>,
}

/// How long an agent may take before a person is told that it is waited for.
pub(crate) const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// How an agent is called.
pub(crate) fn agent_name(agent: Option<&str>) -> String {
    agent.map_or_else(|| "the agent".to_owned(), |agent| format!("agent '{agent}'"))
}

/// What happens while a turn is watched.
enum Event {
    /// The agent took the prompt, or did not.
    Taken(Result<parlor_client::Turn, Error>),
    News(Update),
    Asked(PeerRequest),
    Decided(Decision),
    Interrupted,
    /// The agent has not taken the prompt for some time.
    Slow,
    Gone,
}

/// Where the updates of a turn come from.
enum Source {
    /// The turn of a prompt.
    Turn(parlor_client::Turn),
    /// A session that has just begun.
    Session(Updates),
}

/// Whether no turn runs in a session.
fn is_idle(transcript: &impl std::ops::Deref<Target = Transcript>) -> bool {
    transcript.state().is_none_or(|state| state.activity == Activity::Idle)
}

fn written<T>(done: io::Result<T>) -> Result<T, CommandError> {
    done.map_err(|error| CommandError::write(&error))
}

impl TurnOptions {
    /// Watches a turn to its end. It begins with a prompt; without one it has begun already. The person is told the note
    /// first, and about the agent should it take long. What the agent asks has to be listened to from before the session is joined.
    pub(crate) async fn watch(
        &self,
        session: &Session,
        asked: parlor_client::PeerRequests,
        told: TurnIntro<'_>,
        prompt: Option<&str>,
        cwd: &str,
    ) -> Result<ExitCode, CommandError> {
        let mut turn = Turn {
            session,
            asked,
            updates: prompt.is_none().then(|| Source::Session(session.updates_since(0))),
            message: None,
            transcript: Transcript::default(),
            unread: 0,
            questions: RequestQueue::new(ApprovalPolicy::new(self.yes, self.no)),
            idle_at: Some(session.transcript()).filter(is_idle).map(|transcript| transcript.seq()),
            undecided: Vec::new(),
            cwd,
            printer: TurnPrinter::new(!self.json),
            interrupts: signal(SignalKind::interrupt()).map_err(CommandError::failed)?,
            interrupted: false,
        };
        if let Some(note) = told.note {
            written(turn.printer.note(note, DIM))?;
        }
        turn.run(prompt, told.agent, self.json).await
    }
}

impl Turn<'_> {
    async fn run(
        mut self,
        prompt: Option<&str>,
        agent: Option<&str>,
        json: bool,
    ) -> Result<ExitCode, CommandError> {
        let state = self.watch(prompt, agent).await?;
        written(self.printer.rest(&self.transcript))?;
        written(self.printer.end())?;
        let reason = state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned());
        let error = turn_printer::error_of(&state);
        let is_done = reason.as_deref().is_none_or(|reason| reason == "end_turn");
        if json {
            output::print_json(&self.done(reason, error))?;
        } else if !is_done {
            let why = error.map(|error| format!(": {error}")).unwrap_or_default();
            let line = format!("the turn ended with {}{why}", reason.unwrap_or_default());
            written(self.printer.note(&line, RED))?;
        }
        for (_, title) in &self.undecided {
            let line = format!("{title}: nobody decided, so it was declined (--yes and --no decide)");
            written(self.printer.note(&line, RED))?;
        }
        Ok(if is_done && self.undecided.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Watches until the turn has ended: in which state.
    async fn watch(&mut self, prompt: Option<&str>, agent: Option<&str>) -> Result<State, CommandError> {
        let session = self.session;
        let mut prompting = pin!(async {
            match prompt {
                Some(text) => session.prompt(text).await,
                None => std::future::pending().await,
            }
        });
        let is_free = is_idle(&session.transcript());
        let mut slow = pin!(tokio::time::sleep(NOTICE_DELAY));
        let mut is_told = false;
        loop {
            let waits = self.updates.is_none();
            // In this order: what is to be taken back is asked first, and a question is shown after what was said before.
            let event = tokio::select! {
                biased;
                taken = &mut prompting, if waits => Event::Taken(taken),
                _ = self.interrupts.recv() => Event::Interrupted,
                update = next(&mut self.updates) => update.map_or(Event::Gone, Event::News),
                decision = self.questions.decided() => Event::Decided(written(decision)?),
                question = self.asked.next() => question.map_or(Event::Gone, Event::Asked),
                // Where a turn runs, it is known what the prompt waits for.
                () = &mut slow, if waits && is_free && !is_told => Event::Slow,
            };
            // The prompt may have been taken since it was looked at.
            if waits
                && matches!(event, Event::Asked(_) | Event::Gone)
                && let Some(taken) = prompting.as_mut().now_or_never()
            {
                self.taken(taken.map_err(|error| refused(&error))?);
            }
            let ended = match event {
                Event::Taken(taken) => {
                    self.taken(taken.map_err(|error| refused(&error))?);
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
                Event::Slow => {
                    is_told = true;
                    let line = format!("waiting for {} to accept the prompt ...", agent_name(agent));
                    written(self.printer.note(&line, DIM))?;
                    None
                }
                Event::Interrupted => {
                    self.interrupt().await?;
                    None
                }
                Event::Gone => {
                    Some(self.catch_up()?.ok_or_else(|| CommandError::client(&Error::Disconnected))?)
                }
            };
            if let Some(state) = ended {
                return Ok(state);
            }
        }
    }

    /// Whether the turn of the prompt is the next, so that what the agent asks is asked for it.
    fn is_next(&self) -> bool {
        let Some(seq) = self.idle_at else { return false };
        let is_prompt = |id: &EntryId| matches!(id, EntryId::Message(Role::User, _));
        let transcript = self.session.transcript();
        let mut later = transcript.entries().iter().rev().take_while(|entry| entry.created() > seq);
        !later.any(|entry| is_prompt(entry.id()))
    }

    /// The prompt was taken. What was said before belongs to others.
    fn taken(&mut self, turn: parlor_client::Turn) {
        self.message = turn.message_id().map(ToString::to_string);
        self.updates = Some(Source::Turn(turn));
        self.unread = self.session.losses().count;
    }

    /// Shows what is new; there is a state if it is the one in which the turn ended.
    fn show(&mut self, update: &Update) -> Result<Option<State>, CommandError> {
        let losses = self.session.losses();
        if losses.count > self.unread {
            self.unread = losses.count;
            let why = losses.latest.last().map_or("", String::as_str);
            written(self.printer.note(&format!("an update cannot be read: {why}"), YELLOW))?;
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
        if let Update::Upsert { target: Target::Entry(EntryId::Event(_)), upsert } = update {
            self.decided(&upsert.fields);
        }
        // What the session has taken is taken here.
        let _ = self.transcript.push(update.clone());
        written(self.printer.show(update, &self.transcript))?;
        Ok(ended)
    }

    /// Shows all that is new already.
    fn catch_up(&mut self) -> Result<Option<State>, CommandError> {
        while let Some(update) = next(&mut self.updates).now_or_never().flatten() {
            if let Some(state) = self.show(&update)? {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    async fn asked(&mut self, question: PeerRequest) -> Result<(), CommandError> {
        let is_ours = match &self.updates {
            Some(Source::Turn(turn)) => turn.owns(&question),
            None => self.is_next(),
            // Nobody else has prompted in a session that has just begun.
            Some(Source::Session(_)) => true,
        };
        if !is_ours {
            // It is for others to decide. They need not wait for who waits for them.
            question.decline().await;
            return Ok(());
        }
        written(self.printer.end())?;
        if let Some(decision) = written(self.questions.asked(question, &self.transcript, self.cwd))? {
            if let Some(told) = &decision.told {
                written(self.printer.note(told, YELLOW))?;
            }
            if let Some(question) = decision.left_to_others() {
                self.undecided.push(about(question));
            }
            decision.tell().await;
        }
        Ok(())
    }

    /// An event says that somebody decided something.
    fn decided(&mut self, event: &Object) {
        let text = |name: &str| parlor_json::text(event.get(name)?.raw()).map(std::borrow::Cow::into_owned);
        if text("type").as_deref() != Some("decision") {
            return;
        }
        let (call, title) = (text("toolCallId"), text("title"));
        let is_it = |(about, name): &(Option<String>, String)| *about == call && Some(name) == title.as_ref();
        if let Some(place) = self.undecided.iter().position(is_it) {
            self.undecided.remove(place);
        }
    }

    async fn interrupt(&mut self) -> Result<(), CommandError> {
        if std::mem::replace(&mut self.interrupted, true) {
            let _ = self.printer.end();
            return Err(CommandError::failed("left; the session goes on without this client"));
        }
        written(self.printer.note("cancelling; Ctrl-C again leaves at once", DIM))?;
        let cancelled = match &self.updates {
            None => self.session.withdraw_prompts().await,
            Some(_) => self.session.cancel_turn().await,
        };
        cancelled.map_err(|error| CommandError::client(&error))
    }

    fn done(&self, stop_reason: Option<String>, error: Option<String>) -> impl Serialize {
        let transcript = joined(&self.transcript);
        let said = transcript
            .entries()
            .iter()
            .filter(|entry| matches!(entry.id(), EntryId::Message(Role::Agent, _)));
        let texts: Vec<_> = said.map(|entry| turn_printer::text(&entry.body().content)).collect();
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

/// What a question is about, as the event of its decision names it: the tool call, and the title.
fn about(question: &PeerRequest) -> (Option<String>, String) {
    let member = |holder: &Object, name: &str| Object::parse(holder.get(name)?.raw()).ok();
    let text = |holder: &Object, name: &str| Some(parlor_json::text(holder.get(name)?.raw())?.into_owned());
    let params = question.params();
    let subject = member(params, "subject").unwrap_or_default();
    let call = member(params, "toolCall").or_else(|| member(&subject, "toolCall")).unwrap_or(subject);
    let title = question.title().or_else(|| text(params, "message"));
    (text(&call, "toolCallId"), title.unwrap_or_default())
}

/// The same transcript, however its text was cut into pieces on the way.
fn joined(transcript: &Transcript) -> Transcript {
    let mut joined = Transcript::default();
    let mut reading = ReplayCursor::new(0, transcript.seq());
    while let Some(update) = reading.next(transcript, usize::MAX) {
        // What was taken once is taken again.
        let _ = joined.push(update);
    }
    joined
}

/// The next update, once the turn has begun. The last one is the state in which it ended.
async fn next(updates: &mut Option<Source>) -> Option<Update> {
    match updates {
        Some(Source::Turn(turn)) => match turn.next().await?.ok()? {
            TurnEvent::Update(update) => Some(update),
            TurnEvent::Ended(outcome) => Some(Update::State(outcome.state)),
        },
        Some(Source::Session(updates)) => updates.next().await,
        None => std::future::pending().await,
    }
}

/// Why a prompt was not taken.
fn refused(error: &Error) -> CommandError {
    if error.code() == Some(code::REQUEST_CANCELLED) {
        return CommandError::failed("the prompt was taken back before its turn");
    }
    CommandError::client(error)
}
