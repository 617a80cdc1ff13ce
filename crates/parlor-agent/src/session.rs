use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object, ObjectWriter};
use parlor_session::{MessageId, Role, SessionId, Transcript};
use parlor_wire::{code, write::one_line};

use crate::line::{Line, lock};
use crate::place::Place;
use crate::tool::{Terminal, ToolCallBuilder};
use crate::update::{array, text_block, update};
use crate::{Failure, Info};

/// A session, and the way to speak in it.
///
/// A [`Turn`](crate::Turn) has one, for what is said in the turn. [`Turn::session`](crate::Turn::session) gives another
/// one, by which an agent says something when the turn is over, and [`Agent::begun`](crate::Agent::begun) gets one before
/// there is any. Clones say the same message and end what was begun together.
#[derive(Clone)]
pub struct Session(Arc<Voice>);

/// Something that was said, and can be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    role: Role,
    id: MessageId,
}

/// One step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step<'a> {
    /// It is still to be done.
    Pending(&'a str),
    /// It is being worked on.
    InProgress(&'a str),
    /// It is done.
    Completed(&'a str),
}

struct Voice {
    line: Arc<Line>,
    info: Arc<Info>,
    place: Arc<Place>,
    state: Mutex<State>,
}

/// What was begun, and has to end.
#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// The message that is being said.
    open: Option<Said>,
    /// Tool calls that are not over.
    calls: BTreeSet<String>,
    /// Terminals in which something runs.
    terminals: BTreeSet<String>,
    /// How many questions have no answer yet.
    asking: usize,
    /// Whether clients were told that somebody has to act, and nobody has to any more.
    goes_on: bool,
    /// What the turn took and gave, in tokens.
    spent: Option<(u64, u64)>,
}

/// How what is said stands to a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// It is said in no turn.
    #[default]
    Apart,
    /// A turn goes on, whose state clients are told.
    InTurn,
    /// The turn was cancelled: nobody hears what is still said in it.
    Cancelled,
}

/// An id that nobody has.
pub(crate) fn fresh() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

impl Session {
    pub(crate) fn new(line: &Arc<Line>, info: &Arc<Info>, place: &Arc<Place>, in_turn: bool) -> Self {
        let phase = if in_turn { Phase::InTurn } else { Phase::Apart };
        let state = Mutex::new(State { phase, ..State::default() });
        Self(Arc::new(Voice {
            line: Arc::clone(line),
            info: Arc::clone(info),
            place: Arc::clone(place),
            state,
        }))
    }

    /// The same session, in which nothing was begun.
    pub(crate) fn apart(&self) -> Self {
        Self::new(&self.0.line, &self.0.info, &self.0.place, false)
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.0.place.id
    }

    /// Where it works.
    pub fn cwd(&self) -> &Path {
        &self.0.place.cwd
    }

    /// The MCP servers that the client wants to be used, as the protocol has them.
    pub fn mcp_servers(&self) -> &[Json] {
        &self.0.place.mcp_servers
    }

    /// What was said in it so far. Fails if it was deleted, or the server has ended.
    pub async fn transcript(&self) -> Result<Transcript, Failure> {
        self.transcript_with(None).await
    }

    pub(crate) async fn transcript_with(&self, message: Option<MessageId>) -> Result<Transcript, Failure> {
        // What was said before this is answered is in it.
        let _ = self.0.line.ask(live::SETTLED, self.about().finish()).await;
        let transcript = self.0.line.transcript(self.id(), message).await;
        transcript.ok_or_else(|| Failure::new("the session is not there any more"))
    }

    /// Says something, at the end of what was said last.
    pub async fn say(&self, text: &str) {
        self.speak(Role::Agent, &text_block(text)).await;
    }

    /// Thinks aloud.
    pub async fn think(&self, text: &str) {
        self.speak(Role::Thought, &text_block(text)).await;
    }

    /// Says a content block of any kind.
    pub async fn say_block(&self, block: &Json) {
        self.speak(Role::Agent, block.as_str()).await;
    }

    /// What is said next is a message of its own.
    pub fn end_message(&self) {
        self.state().open = None;
    }

    /// The message that is being said; `None` before the first word, and when it has ended.
    pub fn said(&self) -> Option<Said> {
        self.state().open.clone()
    }

    /// Says something else instead of what was said, from its beginning. No words at all take it back.
    ///
    /// ```
    /// # async fn example(turn: parlor_agent::Turn) {
    /// turn.say("The password is swordfish.").await;
    /// if let Some(said) = turn.said() {
    ///     turn.replace(&said, "The password is safe with me.").await;
    /// }
    /// # }
    /// ```
    pub async fn replace(&self, said: &Said, text: &str) {
        let kind = if said.role == Role::Thought { "agent_thought" } else { "agent_message" };
        let content = if text.is_empty() { Vec::new() } else { vec![text_block(text)] };
        let update = update(kind).raw("messageId", said.id.as_json().as_literal());
        self.tell(&update.raw("content", &array(&content)).finish()).await;
    }

    /// Begins to use a tool, which is shown by a title.
    pub fn tool(&self, title: impl Into<String>) -> ToolCallBuilder {
        ToolCallBuilder::new(self.clone(), title.into())
    }

    /// Shows what is going to be done. There is one plan in a session.
    pub async fn plan(&self, steps: &[Step<'_>]) {
        let steps: Vec<_> = steps
            .iter()
            .map(|step| {
                let (text, status) = match step {
                    Step::Pending(text) => (text, "pending"),
                    Step::InProgress(text) => (text, "in_progress"),
                    Step::Completed(text) => (text, "completed"),
                };
                ObjectWriter::new()
                    .str("content", text)
                    .str("priority", "medium")
                    .str("status", status)
                    .finish()
            })
            .collect();
        let plan = ObjectWriter::new()
            .str("type", "items")
            .str("planId", PLAN)
            .raw("entries", &array(&steps))
            .finish();
        self.tell(&update("plan_update").raw("plan", &plan).finish()).await;
    }

    /// Takes the plan away. Clients of version 1 go on to show it.
    pub async fn end_plan(&self) {
        self.tell(&update("plan_removed").str("planId", PLAN).finish()).await;
    }

    /// Opens a terminal that shows a command.
    pub async fn terminal(&self, command: &str) -> Terminal {
        let id = fresh();
        let cwd = self.cwd().to_string_lossy();
        let shown = update("terminal_update").str("terminalId", &id).str("command", command);
        self.tell(&shown.str("cwd", &cwd).finish()).await;
        self.begin(|state| &mut state.terminals, &id);
        Terminal::new(self.clone(), id)
    }

    /// Names the session; an empty title is none. A person's own title stays.
    pub async fn title(&self, title: &str) {
        let update = update("session_info_update");
        let update = if title.is_empty() { update.raw("title", "null") } else { update.str("title", title) };
        self.tell(&update.finish()).await;
    }

    /// Changes the session's metadata, by top-level key; a null removes one.
    pub async fn meta(&self, patch: &Object) {
        let update = update("session_info_update").raw("_meta", patch.to_json().as_str());
        self.tell(&update.finish()).await;
    }

    /// Tells how full the context window is, in tokens.
    pub async fn usage(&self, used: u64, size: u64) {
        let update = update("usage_update").raw("used", &used.to_string());
        self.tell(&update.raw("size", &size.to_string()).finish()).await;
    }

    /// What is chosen of a [setting](crate::Setting); `None` if the agent has no such setting.
    pub fn setting(&self, id: &str) -> Option<String> {
        let chosen = lock(&self.0.place.chosen);
        self.0.info.value(&chosen, id).map(str::to_owned)
    }

    /// Chooses by itself, which clients are told. Fails if there is no such setting or value.
    pub async fn choose(&self, id: &str, value: &str) -> Result<(), Failure> {
        let update = {
            let mut chosen = lock(&self.0.place.chosen);
            self.0.info.choose(&mut chosen, id, value)?;
            self.0.info.with_settings(update("config_option_update"), &chosen).finish()
        };
        self.tell(&update).await;
        Ok(())
    }

    /// Has a person fill in a form, which is a JSON schema of an object with plain fields. `None` if nobody did, or no
    /// client that shows forms is there.
    ///
    /// ```
    /// # use parlor_agent::{Failure, Json, Turn};
    /// # async fn example(turn: Turn) -> Result<(), Failure> {
    /// let schema = Json::parse(r#"{"type":"object","properties":{"name":{"type":"string"}}}"#)?;
    /// if let Some(filled_in) = turn.form("Who are you?", &schema).await? {
    ///     turn.say(&format!("You are {:?}.", filled_in.get("name"))).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn form(&self, message: &str, schema: &Json) -> Result<Option<Object>, Failure> {
        let params = self.about().str("mode", "form").str("message", message);
        let params = params.raw("requestedSchema", schema.as_str());
        let Some(answer) = self.ask("elicitation/create", params).await? else { return Ok(None) };
        let action = answer.get("action").and_then(|action| JsonStr::from_raw(action.raw()));
        let accepted = action.is_some_and(|action| action.to_text() == "accept");
        let content = answer.get("content").and_then(|content| Object::parse(content.raw()).ok());
        Ok(accepted.then(|| content.unwrap_or_default()))
    }

    /// Says anything about the session, as an update of version 2 of the protocol: its `sessionUpdate` says what it is.
    ///
    /// ```
    /// # use parlor_agent::{Failure, Json, Object, Turn};
    /// # async fn example(turn: Turn) -> Result<(), Failure> {
    /// let update = Json::parse(r#"{"sessionUpdate":"_weather","rain":true}"#)?;
    /// turn.update(&Object::parse(update.raw())?).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn update(&self, update: &Object) {
        self.tell(update.to_json().as_str()).await;
    }

    /// Says an update, unless nobody is to hear it.
    pub(crate) async fn tell(&self, update: &str) {
        let goes_on = {
            let mut state = self.state();
            if state.phase == Phase::Cancelled {
                return;
            }
            std::mem::take(&mut state.goes_on)
        };
        if goes_on {
            self.send(&state("running")).await;
        }
        self.send(update).await;
    }

    async fn send(&self, update: &str) {
        self.0.line.say(live::update_line(self.id(), &one_line(update), None)).await;
    }

    async fn speak(&self, role: Role, block: &str) {
        let id = {
            let mut state = self.state();
            match &state.open {
                Some(open) if open.role == role => open.id.clone(),
                Some(_) | None => {
                    let id = MessageId::from(fresh().as_str());
                    state.open = Some(Said { role, id: id.clone() });
                    id
                }
            }
        };
        let kind = if role == Role::Thought { "agent_thought_chunk" } else { "agent_message_chunk" };
        let chunk = update(kind).raw("messageId", id.as_json().as_literal());
        self.tell(&chunk.raw("content", block).finish()).await;
    }

    /// Params about this session, to be continued.
    pub(crate) fn about(&self) -> ObjectWriter {
        ObjectWriter::new().raw("sessionId", self.id().as_json().as_literal())
    }

    /// Asks the clients. `None` if none of them can be asked this. What is not waited for any more is taken back.
    pub(crate) async fn ask(&self, method: &str, params: ObjectWriter) -> Result<Option<Object>, Failure> {
        let cancelled = || Failure::with_code(code::REQUEST_CANCELLED, "the turn was cancelled");
        let asking = Asking::begin(self).ok_or_else(cancelled)?;
        if asking.tells_state {
            self.send(&state("requires_action")).await;
            // The turn may have ended meanwhile, which is what holds.
            if self.state().phase == Phase::Apart {
                self.send(&state("idle")).await;
            }
        }
        let answer = self.0.line.ask(method, params.finish()).await;
        // A turn that is cancelled has its questions answered, which is nothing to go on with.
        if self.state().phase == Phase::Cancelled {
            return Err(cancelled());
        }
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.code() == code::METHOD_NOT_FOUND => Ok(None),
            Err(error) => Err(Failure(error)),
        }
    }

    /// A tool call was shown. One that is not over is ended with the turn, or when nobody can end it any more.
    pub(crate) fn begin_call(&self, id: &str) {
        self.begin(|state| &mut state.calls, id);
    }

    fn begin(&self, begun: impl FnOnce(&mut State) -> &mut BTreeSet<String>, id: &str) {
        let mut state = self.state();
        // What nobody saw begin need not end.
        if state.phase != Phase::Cancelled {
            begun(&mut state).insert(id.to_owned());
        }
    }

    pub(crate) fn end_call(&self, id: &str) {
        self.state().calls.remove(id);
    }

    pub(crate) fn end_terminal(&self, id: &str) {
        self.state().terminals.remove(id);
    }

    pub(crate) fn spend(&self, input: u64, output: u64) {
        let spent = &mut self.state().spent;
        let (before_in, before_out) = spent.unwrap_or_default();
        *spent = Some((before_in.saturating_add(input), before_out.saturating_add(output)));
    }

    /// The turn is cancelled: from now on nobody hears what is said in it.
    pub(crate) fn cancel(&self) {
        self.state().phase = Phase::Cancelled;
    }

    /// The turn is over, and with it what was begun in it. `idle` says why.
    pub(crate) async fn end(&self, idle: ObjectWriter, status: &str) {
        let (rest, spent) = {
            let mut state = self.state();
            state.open = None;
            state.goes_on = false;
            if state.phase == Phase::InTurn {
                state.phase = Phase::Apart;
            }
            (state.rest(status), state.spent)
        };
        for update in rest {
            self.send(&update).await;
        }
        let idle = match spent {
            Some((input, output)) => {
                let total = input.saturating_add(output).to_string();
                let usage =
                    ObjectWriter::new().raw("totalTokens", &total).raw("inputTokens", &input.to_string());
                idle.raw("usage", &usage.raw("outputTokens", &output.to_string()).finish())
            }
            None => idle,
        };
        self.send(&idle.finish()).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

/// The plan of a session.
const PLAN: &str = "plan";

/// The update that tells of a state.
pub(crate) fn state(state: &str) -> String {
    update("state_update").str("state", state).finish()
}

impl State {
    /// Updates that end what was begun.
    fn rest(&mut self, status: &str) -> Vec<String> {
        let terminals = std::mem::take(&mut self.terminals).into_iter();
        // How they ended nobody knows.
        let terminals = terminals
            .map(|id| update("terminal_update").str("terminalId", &id).raw("exitStatus", "{}").finish());
        let calls = std::mem::take(&mut self.calls).into_iter();
        let calls =
            calls.map(|id| update("tool_call_update").str("toolCallId", &id).str("status", status).finish());
        terminals.chain(calls).collect()
    }
}

/// A question that is being asked.
struct Asking {
    session: Session,
    tells_state: bool,
}

impl Asking {
    /// Begins to ask, unless the turn is cancelled.
    fn begin(session: &Session) -> Option<Self> {
        let mut state = session.state();
        if state.phase == Phase::Cancelled {
            return None;
        }
        state.asking += 1;
        state.goes_on = false;
        let tells_state = state.phase == Phase::InTurn;
        Some(Self { session: session.clone(), tells_state })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.session.state();
        state.asking -= 1;
        // It is told with what comes next: a turn that has nothing more to say ends with a state of its own.
        state.goes_on = state.phase == Phase::InTurn && state.asking == 0;
    }
}

/// Nobody is left who could end what was begun out of turn.
impl Drop for Voice {
    fn drop(&mut self) {
        let rest = lock(&self.state).rest("failed");
        let runtime = tokio::runtime::Handle::try_current();
        let Some(runtime) = runtime.ok().filter(|_| !rest.is_empty()) else { return };
        let session = Session::new(&self.line, &self.info, &self.place, false);
        runtime.spawn(async move {
            for update in rest {
                session.tell(&update).await;
            }
        });
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", self.id()).finish_non_exhaustive()
    }
}
