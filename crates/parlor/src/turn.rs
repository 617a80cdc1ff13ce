//! Follows one turn from its prompt to its end.

use parlor_json::JsonRef;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt;
use parlor_client::{
    Error, MetaPatch, Object, OpenRequest, PeerRequest, PeerRequests, Prompt, Session, Slot, TurnEvent,
    Updates,
};
use parlor_dialect::view;
use parlor_session::{Activity, Entry, EntryId, ReplayCursor, Role, State, Target, Transcript, Update};
use parlor_wire::code;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::command_error::{AGENT_UNAVAILABLE_CODE, CommandError};
use crate::event_lines::EventLines;
use crate::offline_sessions::OfflineSessions;
use crate::open_request;
use crate::output::{self, DIM, RED, YELLOW};
use crate::path_options::PathOptions;
use crate::peer_requests::{Decision, RequestQueue};
use crate::table::terminal_width;
use crate::turn_printer::{self, TurnPrinter};
use crate::turn_summary::{self, Cost};

/// The options of commands that follow a turn.
#[derive(Args)]
pub(crate) struct TurnOptions {
    /// Allow all permission requests of the agent
    #[arg(long, conflicts_with = "no")]
    yes: bool,
    /// Reject all permission requests of the agent
    #[arg(long)]
    no: bool,
    /// Print one session update per line as JSON, and at the end one object with the result
    #[arg(long)]
    json: bool,
}

/// The output with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TurnOutput<'a> {
    session_id: String,
    message_id: Option<String>,
    /// `ended`, or the kind of the error because of which the turn is not followed any more.
    outcome: &'static str,
    stop_reason: Option<String>,
    error: Option<String>,
    /// The messages of the agent.
    text: String,
    /// The transcript of the turn, in the format of `parlor fold`.
    turn: JsonRef<'a>,
}

/// Follows a turn.
struct TurnFollower<'a> {
    session: &'a Session,
    /// The requests of the agent.
    requests: PeerRequests,
    /// The updates of the turn; `None` until the prompt is accepted.
    updates: Option<UpdateSource>,
    /// The id of the prompt's message.
    message: Option<String>,
    /// The entries of this turn only.
    transcript: Transcript,
    /// How many losses of the session were reported.
    reported_losses: u64,
    queue: RequestQueue,
    /// The sequence number when the prompt was sent, if the session was idle. Requests that arrive before the agent has accepted
    /// the prompt belong to its turn, unless another client has sent a prompt.
    idle_at: Option<u64>,
    /// The requests that this client declined and that no other client has decided yet, by tool call and title.
    undecided: Vec<(Option<String>, String)>,
    /// When requests of this turn that were left open for other clients are looked at, while some may be open.
    check_left_open_at: Option<Instant>,
    /// The notices about such requests that are to be printed if other clients can answer them.
    left_open_notices: Vec<String>,
    /// The working directory of the session.
    cwd: &'a str,
    /// The id of the session in messages: short on a terminal.
    id: String,
    started: Instant,
    /// The cost of the session before the turn.
    cost_before: Option<Cost>,
    printer: TurnPrinter,
    /// Prints updates as JSON.
    events: Option<EventLines>,
    interrupts: Signal,
    is_interrupted: bool,
}

/// What is printed before a turn.
pub(crate) struct TurnIntro<'a> {
    /// The id of the session in messages.
    pub(crate) id: String,
    pub(crate) notice: Option<&'a str>,
    /// The name of the agent, for the notice that it is slow.
    pub(crate) agent: Option<&'a str>,
    /// How long the turn is followed.
    pub(crate) timeout: Option<Duration>,
}

/// How long an agent may take to start or to accept a prompt before a notice is printed.
pub(crate) const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// How often a request that was left open is looked at: the clients that can answer it may leave.
const LEFT_OPEN_INTERVAL: Duration = Duration::from_millis(200);

/// The name of an agent in a sentence.
pub(crate) fn agent_name(agent: Option<&str>) -> String {
    agent.map_or_else(|| "the agent".to_owned(), |agent| format!("agent '{agent}'"))
}

/// The id of a session in messages: short for a person at a terminal, whole for programs and logs.
pub(crate) fn id_in_messages(paths: &PathOptions, session: &Session) -> String {
    let id = session.id().to_string();
    let sessions = io::stderr().is_terminal().then(|| OfflineSessions::open(paths)).and_then(Result::ok);
    sessions.map_or_else(|| id.clone(), |sessions| sessions.short_id(&id))
}

/// What happens during a turn.
enum Event {
    /// The prompt was accepted or rejected.
    Prompted(Result<parlor_client::Turn, Error>),
    Update(Update),
    Request(PeerRequest),
    Decision(Decision),
    Interrupt,
    /// The agent has not accepted the prompt for `NOTICE_DELAY`.
    Slow,
    /// Requests that were left open have to be looked at.
    CheckLeftOpen,
    /// The spinner of a terminal moves on.
    Tick,
    Disconnected,
}

/// The source of a turn's updates.
enum UpdateSource {
    /// The turn of a prompt.
    Turn(parlor_client::Turn),
    /// A session whose first turn is already running.
    Session(Updates),
}

/// Whether no turn is running in a session.
fn is_idle(transcript: &impl std::ops::Deref<Target = Transcript>) -> bool {
    transcript.state().is_none_or(|state| state.activity == Activity::Idle)
}

fn check_write<T>(result: io::Result<T>) -> Result<T, CommandError> {
    result.map_err(|error| CommandError::write(&error))
}

/// How long the server has to confirm that a person has seen the turn.
const SEEN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports that a person has seen the end of the turn: it is neither unread nor notified. A failure changes nothing here.
async fn mark_seen(session: &Session) {
    // A number after the last change counts as the last one.
    let params = Object::new().with("sessionId", session.id().as_json()).with("seq", u64::from(u32::MAX));
    let _ = tokio::time::timeout(SEEN_TIMEOUT, session.client().call("_parlor/seen", &params)).await;
}

impl TurnOptions {
    /// Sends the prompt, if there is one, and follows the turn to its end. Without a prompt the turn is already running.
    /// `requests` has to exist before the client attaches to the session, so that no request is missed.
    pub(crate) async fn follow(
        &self,
        session: &Session,
        requests: PeerRequests,
        intro: TurnIntro<'_>,
        prompt: Option<Prompt>,
        cwd: &str,
    ) -> Result<ExitCode, CommandError> {
        let mut turn = TurnFollower {
            session,
            requests,
            updates: prompt.is_none().then(|| UpdateSource::Session(session.updates_since(0))),
            message: None,
            transcript: Transcript::default(),
            reported_losses: 0,
            queue: RequestQueue::new(self.yes, self.no).with_later(),
            idle_at: Some(session.transcript()).filter(is_idle).map(|transcript| transcript.seq()),
            undecided: Vec::new(),
            check_left_open_at: None,
            left_open_notices: Vec::new(),
            cwd,
            id: intro.id,
            started: Instant::now(),
            cost_before: Cost::of(&session.transcript()),
            printer: TurnPrinter::of_turn(!self.json, cwd),
            events: self.json.then(EventLines::new),
            interrupts: signal(SignalKind::interrupt()).map_err(CommandError::failed)?,
            is_interrupted: false,
        };
        if let Some(notice) = intro.notice {
            for line in notice.lines() {
                check_write(turn.printer.notice(line, DIM))?;
            }
        }
        let deadline = intro.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ended = {
            let mut running = pin!(turn.run(prompt, intro.agent));
            tokio::select! {
                biased;
                ended = &mut running => Some(ended),
                () = sleep_until(deadline) => {
                    // Dropping the request of a queued prompt on an open connection would withdraw the prompt.
                    session.client().disconnect().await;
                    None
                }
            }
        };
        let ended = ended.unwrap_or_else(|| Err(turn.timeout_error(intro.timeout.unwrap_or_default())));
        match ended {
            Ok(state) => {
                let reported = turn.report(&state, self.json);
                if io::stdout().is_terminal() {
                    mark_seen(session).await;
                }
                reported
            }
            Err(error) => {
                // Requests that are open stay open for other clients: they are not declined.
                session.client().disconnect().await;
                let _ = turn.printer.end(&turn.transcript);
                if self.json {
                    output::print_json(&turn.output(error.kind(), None, Some(error.to_string())))?;
                }
                Err(error)
            }
        }
    }

    /// Sends a prompt, and returns when the server has accepted or queued it.
    pub(crate) async fn send(&self, session: &Session, prompt: Prompt) -> Result<ExitCode, CommandError> {
        // A prompt to an idle session may be in the queue for a moment before it is accepted.
        let was_idle = is_idle(&session.transcript());
        let mut prompting = pin!(session.prompt(prompt));
        let mut updates = session.updates();
        let message = loop {
            tokio::select! {
                biased;
                prompted = &mut prompting => {
                    let turn = prompted.map_err(|error| prompt_error(&error))?;
                    break turn.message_id().map(ToString::to_string);
                }
                update = updates.next() => match update {
                    Some(update) if !was_idle && is_queued(&update) => break None,
                    Some(_) => {}
                    None => return Err(CommandError::client(&Error::Disconnected)),
                },
            }
        };
        // The queue may be that of another prompt: the server has received this one when it responds to a later request.
        let params = Object::new().with("sessionId", session.id().as_json());
        let received = session.client().call("session/status", &params).await;
        received.map_err(|error| CommandError::client(&error))?;
        // Dropping the request would withdraw the prompt, and dropping requests of the agent would decline them.
        session.client().disconnect().await;
        if self.json {
            let id = session.id().to_string();
            let queued = message.is_none();
            output::print_json(
                &serde_json::json!({ "sessionId": id, "messageId": message, "queued": queued }),
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits until a time; forever without one.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whether an update lists queued prompts.
fn is_queued(update: &Update) -> bool {
    let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = update else { return false };
    let queue = match &upsert.meta {
        MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta) | MetaPatch::Replace(meta) => {
            meta.get_array("parlor/queue").map(|queue| queue.len())
        }
        MetaPatch::Keep | MetaPatch::Clear => None,
    };
    queue.is_some_and(|queued| queued > 0)
}

impl TurnFollower<'_> {
    /// The error that `--timeout` elapsed.
    fn timeout_error(&self, timeout: Duration) -> CommandError {
        let (id, time) = (&self.id, output::span(timeout.as_secs()));
        if self.updates.is_none() && self.idle_at.is_none() {
            return CommandError::timed_out(format_args!(
                "the prompt is still queued after {time}; it runs when the present turn has ended"
            ))
            .hint(format_args!(
                "`parlor watch {id}` follows the session, `parlor cancel {id} --queued` cancels the turn and withdraws the prompt"
            ));
        }
        CommandError::timed_out(format_args!(
            "the turn did not end within {time}; it continues in session {id}"
        ))
        .hint(format_args!("`parlor watch {id}` follows it, `parlor cancel {id}` cancels it"))
    }

    /// Prints the end of the turn and returns the exit code.
    fn report(mut self, state: &State, json: bool) -> Result<ExitCode, CommandError> {
        check_write(self.printer.print_unfinished(&self.transcript))?;
        check_write(self.printer.end(&self.transcript))?;
        let reason = state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned());
        let error = turn_printer::error_of(state);
        let is_completed = reason.as_deref().is_none_or(|reason| reason == "end_turn");
        let has_failed = reason.as_deref() == Some("error");
        let is_login_required = has_failed && turn_printer::is_login_required(state);
        if json {
            output::print_json(&self.output("ended", reason, error))?;
        } else if has_failed && !self.is_interrupted {
            return Err(self.turn_error(error.as_deref(), is_login_required));
        } else if !is_completed {
            let line = turn_printer::end_line(&reason.unwrap_or_default(), error.as_deref());
            check_write(self.printer.notice(&line, RED))?;
        }
        if self.printer.is_live() {
            let cost = Cost::of(&self.session.transcript());
            let costs = (self.cost_before.as_ref(), cost.as_ref());
            let facts = turn_summary::facts(&self.transcript, self.cwd, self.started.elapsed(), costs);
            let command = format!("parlor attach {}", self.id);
            check_write(self.printer.notice("", DIM))?;
            // The command stays whole, so that it can be copied.
            let line = format!("{facts} · {command}");
            let fits = terminal_width().is_none_or(|width| line.chars().count() < width);
            for line in if fits { vec![line] } else { vec![facts, command] } {
                check_write(self.printer.notice(&line, DIM))?;
            }
        }
        for (_, title) in &self.undecided {
            let line = format!("{title}: declined, because no client answered (use --yes or --no)");
            check_write(self.printer.notice(&line, RED))?;
        }
        Ok(match (is_completed && self.undecided.is_empty(), self.is_interrupted) {
            (true, _) => ExitCode::SUCCESS,
            (false, true) => ExitCode::from(130),
            (false, false) if is_login_required => ExitCode::from(AGENT_UNAVAILABLE_CODE),
            (false, false) => ExitCode::FAILURE,
        })
    }

    /// The error of a turn that failed. The message of an agent that requires a login names the command.
    fn turn_error(&self, error: Option<&str>, is_login_required: bool) -> CommandError {
        let line = turn_printer::end_line("error", error);
        if is_login_required {
            return CommandError::agent_unavailable(line);
        }
        let id = &self.id;
        CommandError::failed(line)
            .hint(format_args!("`parlor regenerate {id}` sends the prompt again, in a fork"))
    }

    /// Handles events until the turn ends, and returns its last state.
    async fn run(&mut self, prompt: Option<Prompt>, agent: Option<&str>) -> Result<State, CommandError> {
        let session = self.session;
        let mut prompting = pin!(async {
            match prompt {
                Some(prompt) => session.prompt(prompt).await,
                None => std::future::pending().await,
            }
        });
        let was_idle = is_idle(&session.transcript());
        let mut slow = pin!(tokio::time::sleep(NOTICE_DELAY));
        let mut is_notice_printed = false;
        loop {
            let is_waiting = self.updates.is_none();
            let tick = self.next_tick();
            // The order matters: an interrupt comes before output, and a request is shown after the updates that precede it.
            let event = tokio::select! {
                biased;
                prompted = &mut prompting, if is_waiting => Event::Prompted(prompted),
                _ = self.interrupts.recv() => Event::Interrupt,
                update = next_update(&mut self.updates) => update.map_or(Event::Disconnected, Event::Update),
                decision = self.queue.next_decision() => Event::Decision(check_write(decision)?),
                request = self.requests.next() => request.map_or(Event::Disconnected, Event::Request),
                // If another turn is running, a notice about the queue was printed before.
                () = &mut slow, if is_waiting && was_idle && !is_notice_printed => Event::Slow,
                () = sleep_until(self.check_left_open_at) => Event::CheckLeftOpen,
                () = sleep_until(tick) => Event::Tick,
            };
            // The prompt may have been accepted after `prompting` was polled.
            if is_waiting
                && matches!(event, Event::Request(_) | Event::Disconnected)
                && let Some(prompted) = prompting.as_mut().now_or_never()
            {
                self.on_prompted(prompted)?;
            }
            is_notice_printed |= matches!(event, Event::Slow);
            if let Some(state) = self.on_event(event, agent).await? {
                return Ok(state);
            }
        }
    }

    /// Handles an event, and returns the last state if the turn has ended.
    async fn on_event(&mut self, event: Event, agent: Option<&str>) -> Result<Option<State>, CommandError> {
        match event {
            Event::Prompted(prompted) => self.on_prompted(prompted)?,
            Event::Update(update) => return self.on_update(&update),
            Event::Request(request) => {
                let last_state = self.drain_updates()?;
                self.on_request(request).await?;
                return Ok(last_state);
            }
            Event::Decision(decision) => {
                let is_left_open = decision.is_left_open();
                decision.send().await;
                if is_left_open && let Some(request) = self.open_requests().await?.first() {
                    return Err(self.open_request_error(request, ""));
                }
            }
            Event::Slow => {
                let line = format!("waiting for {} to accept the prompt ...", agent_name(agent));
                check_write(self.printer.notice(&line, DIM))?;
            }
            Event::CheckLeftOpen => self.check_left_open().await?,
            Event::Tick => check_write(self.printer.tick(&self.transcript))?,
            Event::Interrupt => self.on_interrupt().await?,
            Event::Disconnected => {
                let last_state = self.drain_updates()?;
                return last_state.map(Some).ok_or_else(|| CommandError::client(&Error::Disconnected));
            }
        }
        Ok(None)
    }

    /// Whether the prompt's turn is the next one, so that new requests belong to it.
    fn is_next(&self) -> bool {
        let Some(seq) = self.idle_at else { return false };
        let is_prompt = |id: &EntryId| matches!(id, EntryId::Message(Role::User, _));
        let transcript = self.session.transcript();
        let mut later = transcript.entries().iter().rev().take_while(|entry| entry.created() > seq);
        !later.any(|entry| is_prompt(entry.id()))
    }

    /// Starts to follow the turn of an accepted prompt. Earlier updates and losses belong to other turns.
    fn on_prompted(&mut self, prompted: Result<parlor_client::Turn, Error>) -> Result<(), CommandError> {
        let turn = prompted.map_err(|error| match error.code() {
            Some(code::REQUEST_CANCELLED) if self.is_interrupted => CommandError::interrupted(WITHDRAWN),
            _ => prompt_error(&error),
        })?;
        self.message = turn.message_id().map(ToString::to_string);
        self.updates = Some(UpdateSource::Turn(turn));
        self.reported_losses = self.session.losses().count;
        Ok(())
    }

    /// Applies and prints an update, and returns the state if it ends the turn.
    fn on_update(&mut self, update: &Update) -> Result<Option<State>, CommandError> {
        let losses = self.session.losses();
        if losses.count > self.reported_losses {
            self.reported_losses = losses.count;
            let reason = losses.latest.last().map_or("", String::as_str);
            check_write(self.printer.notice(&format!("cannot decode an update: {reason}"), YELLOW))?;
        }
        let last_state = match update {
            Update::State(state) if state.activity == Activity::Idle => Some(state.clone()),
            Update::State(_)
            | Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. } => None,
        };
        if let Update::Upsert { target: Target::Entry(EntryId::Event(_)), upsert } = update {
            self.on_event_entry(&upsert.fields);
        }
        // The session has already applied the update, so it is valid.
        let _ = self.transcript.push(update.clone());
        if let Some(events) = &mut self.events {
            events.print(update, &self.transcript)?;
        }
        // What happens while a request is asked on the terminal is printed there afterwards.
        if self.printer.next_tick().is_none() || !self.queue.is_asking() {
            check_write(self.printer.print(update, &self.transcript))?;
        }
        Ok(last_state)
    }

    /// When the spinner moves on.
    fn next_tick(&self) -> Option<Instant> {
        let tick = self.printer.next_tick().filter(|_| !self.queue.is_asking());
        tick.map(Instant::from_std)
    }

    /// Handles the updates that have already arrived.
    fn drain_updates(&mut self) -> Result<Option<State>, CommandError> {
        while let Some(update) = next_update(&mut self.updates).now_or_never().flatten() {
            if let Some(state) = self.on_update(&update)? {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    async fn on_request(&mut self, request: PeerRequest) -> Result<(), CommandError> {
        let is_ours = match &self.updates {
            Some(UpdateSource::Turn(turn)) => turn.owns(&request),
            None => self.is_next(),
            // No other client has sent a prompt to a session that was just created.
            Some(UpdateSource::Session(_)) => true,
        };
        if !is_ours {
            // Other clients decide it, attached ones or those that read the inbox.
            request.leave_open().await;
            return Ok(());
        }
        check_write(self.printer.pause(&self.transcript))?;
        if let Some(mut decision) = check_write(self.queue.on_request(request, &self.transcript, self.cwd))? {
            let notice = decision.notice.take();
            if decision.is_left_open() {
                self.check_left_open_at = Some(Instant::now() + LEFT_OPEN_INTERVAL);
                self.left_open_notices.extend(notice);
            } else if let Some(notice) = &notice {
                check_write(self.printer.notice(notice, YELLOW))?;
            }
            if let Some(request) = decision.declined() {
                self.undecided.push(subject_of(request));
            }
            decision.send().await;
        }
        Ok(())
    }

    /// The open requests of the session.
    async fn open_requests(&self) -> Result<Vec<OpenRequest>, CommandError> {
        let mut listed =
            self.session.client().open_requests().await.map_err(|error| CommandError::client(&error))?;
        listed.retain(|request| request.session == *self.session.id());
        Ok(listed)
    }

    /// The error that a request waits for a person.
    fn open_request_error(&self, request: &OpenRequest, reason: &str) -> CommandError {
        let OpenRequest { id, method, .. } = request;
        let hint = if method == "elicitation/create" {
            format!(
                "`parlor answer {id}` fills it in on a terminal, `parlor answer {id} --field NAME=VALUE` anywhere \
                 (`parlor inbox {id}` lists the fields), --deny declines it"
            )
        } else {
            format!(
                "`parlor answer {id} --allow`; `parlor inbox {id}` shows it, --yes or --no decide in advance"
            )
        };
        let about = open_request::summary(request);
        CommandError::request_open(format_args!("session {} waits for an answer{reason}", self.id))
            .details(vec![format!("request {id}: {about} (in {})", output::short_path(&request.cwd))])
            .hint(hint)
    }

    /// Looks at the requests that were left open: it is an error if no attached client can answer one of them.
    async fn check_left_open(&mut self) -> Result<(), CommandError> {
        let ours = self.open_requests().await?;
        if let Some(request) = ours.iter().find(|request| request.fields.get_u64("clients") == Some(0)) {
            return Err(self.open_request_error(request, " and there is no terminal to ask"));
        }
        for notice in std::mem::take(&mut self.left_open_notices) {
            check_write(self.printer.notice(&notice, YELLOW))?;
        }
        self.check_left_open_at = (!ours.is_empty()).then(|| Instant::now() + LEFT_OPEN_INTERVAL);
        Ok(())
    }

    /// Removes a request from `undecided` if an event entry says that another client decided it.
    fn on_event_entry(&mut self, event: &Object) {
        let text = |name: &str| event.get_string(name);
        if text("type").as_deref() != Some("decision") {
            return;
        }
        let (call, title) = (text("toolCallId"), text("title"));
        let is_it = |(about, name): &(Option<String>, String)| *about == call && Some(name) == title.as_ref();
        if let Some(index) = self.undecided.iter().position(is_it) {
            self.undecided.remove(index);
        }
    }

    async fn on_interrupt(&mut self) -> Result<(), CommandError> {
        if std::mem::replace(&mut self.is_interrupted, true) {
            let _ = self.printer.end(&self.transcript);
            return Err(CommandError::interrupted("detached; the turn continues")
                .hint(format_args!("`parlor watch {}` follows it", self.id)));
        }
        check_write(self.printer.status("cancelling; Ctrl-C again detaches", &self.transcript))?;
        let cancelled = match &self.updates {
            None => self.session.withdraw_prompts().await,
            Some(_) => self.session.cancel_turn().await,
        };
        cancelled.map_err(|error| CommandError::client(&error))
    }

    fn output(
        &self,
        outcome: &'static str,
        stop_reason: Option<String>,
        error: Option<String>,
    ) -> impl Serialize {
        let transcript = joined(&self.transcript);
        let is_of_agent = |entry: &&Entry| matches!(entry.id(), EntryId::Message(Role::Agent, _));
        let messages = transcript.entries().iter().filter(is_of_agent);
        let texts: Vec<_> = messages.map(|entry| turn_printer::text(&entry.body().content)).collect();
        // The response to `_parlor/edit` and `_parlor/regenerate` does not name the prompt, which is the first one of the turn.
        let prompt = transcript.entries().iter().find_map(|entry| {
            if let EntryId::Message(Role::User, id) = entry.id() { Some(id.to_string()) } else { None }
        });
        let turn = view::transcript(&transcript);
        let output = TurnOutput {
            session_id: self.session.id().to_string(),
            message_id: self.message.clone().or(prompt),
            outcome,
            stop_reason,
            error,
            text: texts.join("\n\n"),
            turn: turn.raw(),
        };
        RawValue::from_string(output::to_json(&output)).expect("it was just encoded")
    }
}

/// The tool call and the title of a request, as the event of its decision names them.
fn subject_of(request: &PeerRequest) -> (Option<String>, String) {
    let params = request.params();
    let subject = params.get_object("subject").unwrap_or_default();
    let call = params.get_object("toolCall").or_else(|| subject.get_object("toolCall")).unwrap_or(subject);
    let title = request.title().or_else(|| params.get_string("message"));
    (call.get_string("toolCallId"), title.unwrap_or_default())
}

/// The transcript with adjacent chunks of text joined, so that the output does not depend on how they were sent.
fn joined(transcript: &Transcript) -> Transcript {
    let mut joined = Transcript::default();
    let mut cursor = ReplayCursor::new(0, transcript.seq());
    while let Some(update) = cursor.next(transcript, usize::MAX) {
        // The transcript has already applied the update, so it is valid.
        let _ = joined.push(update);
    }
    joined
}

/// The next update of the turn; the last one is its final state. Waits forever if the turn has not started.
async fn next_update(updates: &mut Option<UpdateSource>) -> Option<Update> {
    match updates {
        Some(UpdateSource::Turn(turn)) => match turn.next().await?.ok()? {
            TurnEvent::Update(update) => Some(update),
            TurnEvent::Ended(outcome) => Some(Update::State(outcome.state)),
        },
        Some(UpdateSource::Session(updates)) => updates.next().await,
        None => std::future::pending().await,
    }
}

const WITHDRAWN: &str = "the prompt was withdrawn before its turn started";

/// Why a prompt was rejected.
fn prompt_error(error: &Error) -> CommandError {
    if error.code() == Some(code::REQUEST_CANCELLED) {
        return CommandError::failed(WITHDRAWN);
    }
    let failure = CommandError::client(error);
    let Error::Rpc(rpc) = error else { return failure };
    let data = rpc.data().and_then(parlor_client::Json::to_object).unwrap_or_default();
    if data.get_str("reason").as_deref() == Some("no_steering") {
        return failure
            .hint("without --now the prompt is queued; --now=cancel cancels the turn and sends it");
    }
    failure
}
