use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::wire_text::{array, update};
use parlor_dialect::live;
use parlor_json::{Json, Object, ObjectWriter};
use parlor_session::{MessageId, Role, SessionId, Transcript};
use parlor_wire::write::one_line;

use crate::connection::{AgentConnection, lock};
use crate::session_state::SessionState;
use crate::{
    ClientServices, ContentBlock, FormOutcome, Info, PlanEntry, RequestError, Terminal, ToolCallBuilder,
    TurnError,
};

/// A session: sends updates to all clients that are attached to it, and requests things of them.
///
/// A [`Turn`](crate::Turn) has one, for what belongs to the turn. [`Turn::session`](crate::Turn::session) returns one for what the
/// agent sends after the turn, and [`Agent::session_started`](crate::Agent::session_started) gets one before the first turn. Clones
/// continue the same message, and what was started with one is ended with all.
///
/// Sending waits while 256 updates wait to be stored. What a cancelled turn sends is dropped.
#[derive(Clone)]
pub struct Session(Arc<SessionInner>);

/// A message that was sent, and can be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    role: Role,
    id: MessageId,
}

struct SessionInner {
    connection: Arc<AgentConnection>,
    info: Arc<Info>,
    state: Arc<SessionState>,
    open: Mutex<OpenItems>,
}

/// What was started and has not ended.
#[derive(Debug, Default)]
struct OpenItems {
    phase: Phase,
    /// The message that the next text continues.
    message: Option<SentMessage>,
    tool_calls: BTreeSet<String>,
    terminals: BTreeSet<String>,
    /// How many requests to people have no response.
    requests: usize,
    /// Whether clients were sent the state `requires_action`, and the turn goes on.
    resumes: bool,
    /// The tokens that the turn used: input, output.
    tokens: Option<(u64, u64)>,
}

/// Whether a turn runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Updates belong to no turn.
    #[default]
    OutsideTurn,
    /// The turn runs.
    InTurn,
    /// The turn was cancelled: its updates are dropped.
    Cancelled,
}

/// The id of the plan of a session.
const PLAN: &str = "plan";

/// Returns a new id.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

impl Session {
    pub(crate) fn new(
        connection: &Arc<AgentConnection>,
        info: &Arc<Info>,
        state: &Arc<SessionState>,
        is_in_turn: bool,
    ) -> Self {
        let phase = if is_in_turn { Phase::InTurn } else { Phase::OutsideTurn };
        Self(Arc::new(SessionInner {
            connection: Arc::clone(connection),
            info: Arc::clone(info),
            state: Arc::clone(state),
            open: Mutex::new(OpenItems { phase, ..OpenItems::default() }),
        }))
    }

    /// The same session, outside of any turn.
    pub(crate) fn outside_turn(&self) -> Self {
        Self::new(&self.0.connection, &self.0.info, &self.0.state, false)
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.0.state.id
    }

    /// Its working directory.
    pub fn cwd(&self) -> &Path {
        self.0.state.request.cwd()
    }

    /// The MCP servers that the client wants the agent to use, as the protocol has them.
    pub fn mcp_servers(&self) -> &[Json] {
        self.0.state.request.mcp_servers()
    }

    /// The transcript of the session, which has everything that was sent before this call.
    pub async fn transcript(&self) -> Result<Transcript, RequestError> {
        self.transcript_with(None).await
    }

    pub(crate) async fn transcript_with(
        &self,
        message: Option<MessageId>,
    ) -> Result<Transcript, RequestError> {
        // The response comes when all earlier updates are applied.
        let _ = self.0.connection.request(live::SETTLED, self.params().finish()).await;
        let transcript = self.0.connection.transcript(self.id(), message).await;
        transcript.ok_or(RequestError::SessionClosed)
    }

    /// Sends text, which continues the agent's current message or starts one.
    pub async fn send_text(&self, text: &str) {
        self.send_chunk(Role::Agent, text_block(text).as_str()).await;
    }

    /// Sends a thought, which continues the current thought or starts one.
    pub async fn send_thought(&self, text: &str) {
        self.send_chunk(Role::Thought, text_block(text).as_str()).await;
    }

    /// Sends content of any type as part of the agent's current message.
    ///
    /// ```
    /// # use parlor_agent::{ContentBlock, Turn};
    /// # async fn example(turn: Turn) {
    /// turn.send_content(ContentBlock::resource_link("Manual", "https://example.com/manual")).await;
    /// # }
    /// ```
    pub async fn send_content(&self, block: impl Into<ContentBlock>) {
        self.send_chunk(Role::Agent, block.into().to_json().as_str()).await;
    }

    /// Ends the current message: what is sent next starts another one.
    pub fn end_message(&self) {
        self.open().message = None;
    }

    /// The message that is being sent; `None` before its first part, and when it has ended.
    pub fn current_message(&self) -> Option<SentMessage> {
        self.open().message.clone()
    }

    /// Replaces the content of a message by a text; an empty text clears it.
    ///
    /// ```
    /// # async fn example(turn: parlor_agent::Turn) {
    /// turn.send_text("The password is swordfish.").await;
    /// if let Some(message) = turn.current_message() {
    ///     turn.replace_message(&message, "The password is stored.").await;
    /// }
    /// # }
    /// ```
    pub async fn replace_message(&self, message: &SentMessage, text: &str) {
        let kind = if message.role == Role::Thought { "agent_thought" } else { "agent_message" };
        let content = if text.is_empty() { None } else { Some(text_block(text)) };
        let update = update(kind).raw("messageId", message.id.as_json().as_literal());
        self.send_raw_update(&update.raw("content", &array(content)).finish()).await;
    }

    /// Creates a tool call with a title for people. Clients see it when it [starts](ToolCallBuilder::start).
    pub fn tool_call(&self, title: impl Into<String>) -> ToolCallBuilder {
        ToolCallBuilder::new(self.clone(), title.into())
    }

    /// Sets the plan of the session.
    pub async fn set_plan(&self, entries: impl IntoIterator<Item = PlanEntry>) {
        let entries = array(entries.into_iter().map(|entry| entry.to_json().as_str().to_owned()));
        let plan =
            ObjectWriter::new().str("type", "items").str("planId", PLAN).raw("entries", &entries).finish();
        self.send_raw_update(&update("plan_update").raw("plan", &plan).finish()).await;
    }

    /// Removes the plan. Clients of version 1 continue to show it.
    pub async fn remove_plan(&self) {
        self.send_raw_update(&update("plan_removed").str("planId", PLAN).finish()).await;
    }

    /// Creates a terminal that shows a command which the agent itself runs.
    pub async fn create_terminal(&self, command: &str) -> Terminal {
        let id = new_id();
        let cwd = self.cwd().to_string_lossy();
        let update = update("terminal_update").str("terminalId", &id).str("command", command);
        self.send_raw_update(&update.str("cwd", &cwd).finish()).await;
        self.start_item(|open| &mut open.terminals, &id);
        Terminal::new(self.clone(), id)
    }

    /// Sets the title of the session; an empty one clears it. A title that a person has set stays.
    pub async fn set_title(&self, title: &str) {
        let update = update("session_info_update");
        let update = if title.is_empty() { update.raw("title", "null") } else { update.str("title", title) };
        self.send_raw_update(&update.finish()).await;
    }

    /// Changes the metadata of the session, by top-level key; null removes a key.
    pub async fn patch_meta(&self, patch: &Object) {
        let update = update("session_info_update").raw("_meta", patch.to_json().as_str());
        self.send_raw_update(&update.finish()).await;
    }

    /// Reports how many tokens of the context window are used, and its size.
    pub async fn set_usage(&self, used: u64, size: u64) {
        let update = update("usage_update").u64("used", used).u64("size", size);
        self.send_raw_update(&update.finish()).await;
    }

    /// The value of a [setting](crate::Setting); `None` if the agent has no such setting.
    pub fn setting(&self, id: &str) -> Option<String> {
        let values = lock(&self.0.state.settings);
        self.0.info.setting_value(&values, id).map(str::to_owned)
    }

    /// Sets the value of a setting, as a person can. Fails if there is no such setting or value.
    pub async fn set_setting(&self, id: &str, value: &str) -> Result<(), TurnError> {
        let update = {
            let mut values = lock(&self.0.state.settings);
            self.0.info.set_setting(&mut values, id, value)?;
            self.0.info.write_settings(update("config_option_update"), &values).finish()
        };
        self.send_raw_update(&update).await;
        Ok(())
    }

    /// Asks people to fill in a form: the JSON schema of an object whose members are not objects.
    ///
    /// ```
    /// # use parlor_agent::{FormOutcome, Json, Turn, TurnError};
    /// # async fn example(turn: Turn) -> Result<(), TurnError> {
    /// let schema = Json::parse(r#"{"type":"object","properties":{"name":{"type":"string"}}}"#)?;
    /// match turn.request_form("What is the project called?", &schema).await? {
    ///     FormOutcome::Accepted(values) => turn.send_text(&format!("{:?}", values.get("name"))).await,
    ///     FormOutcome::Unanswered => turn.send_text("Tell me the name of the project.").await,
    ///     _ => turn.send_text("The project has no name.").await,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request_form(&self, message: &str, schema: &Json) -> Result<FormOutcome, RequestError> {
        let params = self.params().str("mode", "form").str("message", message);
        let params = params.raw("requestedSchema", schema.as_str());
        let result = self.request_people("elicitation/create", params).await?;
        Ok(result.map_or(FormOutcome::Unanswered, |result| FormOutcome::read(&result)))
    }

    /// The services of the client: its files and terminals.
    pub fn client(&self) -> ClientServices<'_> {
        ClientServices::new(self)
    }

    /// Sends any update, as version 2 of the protocol has it.
    ///
    /// ```
    /// # use parlor_agent::{Json, Object, Turn, TurnError};
    /// # async fn example(turn: Turn) -> Result<(), TurnError> {
    /// let update = Json::parse(r#"{"sessionUpdate":"_weather","rain":true}"#)?;
    /// turn.send_update(&Object::parse(update.raw())?).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_update(&self, update: &Object) {
        self.send_raw_update(update.to_json().as_str()).await;
    }

    /// Sends an update, unless the turn was cancelled.
    pub(crate) async fn send_raw_update(&self, update: &str) {
        let resumes = {
            let mut open = self.open();
            if open.phase == Phase::Cancelled {
                return;
            }
            std::mem::take(&mut open.resumes)
        };
        if resumes {
            self.send(&state_update("running")).await;
        }
        self.send(update).await;
    }

    async fn send(&self, update: &str) {
        self.0.connection.send_line(live::update_line(self.id(), &one_line(update), None)).await;
    }

    async fn send_chunk(&self, role: Role, block: &str) {
        let id = {
            let mut open = self.open();
            match &open.message {
                Some(message) if message.role == role => message.id.clone(),
                Some(_) | None => {
                    let id = MessageId::from(new_id().as_str());
                    open.message = Some(SentMessage { role, id: id.clone() });
                    id
                }
            }
        };
        let kind = if role == Role::Thought { "agent_thought_chunk" } else { "agent_message_chunk" };
        let chunk = update(kind).raw("messageId", id.as_json().as_literal());
        self.send_raw_update(&chunk.raw("content", block).finish()).await;
    }

    /// The beginning of params with the id of the session.
    pub(crate) fn params(&self) -> ObjectWriter {
        ObjectWriter::new().raw("sessionId", self.id().as_json().as_literal())
    }

    /// Sends a request to the client, without a change of the session's state.
    pub(crate) async fn request(&self, method: &str, params: ObjectWriter) -> Result<Object, RequestError> {
        if self.open().phase == Phase::Cancelled {
            return Err(RequestError::Cancelled);
        }
        self.request_regardless(method, params).await
    }

    /// Sends a request to the client, also if the turn was cancelled.
    pub(crate) async fn request_regardless(
        &self,
        method: &str,
        params: ObjectWriter,
    ) -> Result<Object, RequestError> {
        self.0.connection.request(method, params.finish()).await
    }

    /// Sends a request to all people at the clients, and shows that the turn waits for them. `None` if no client can answer.
    pub(crate) async fn request_people(
        &self,
        method: &str,
        params: ObjectWriter,
    ) -> Result<Option<Object>, RequestError> {
        let guard = PeopleRequest::start(self).ok_or(RequestError::Cancelled)?;
        if guard.changes_state {
            self.send(&state_update("requires_action")).await;
            // The turn may have ended meanwhile.
            if self.open().phase == Phase::OutsideTurn {
                self.send(&state_update("idle")).await;
            }
        }
        let result = self.request_regardless(method, params).await;
        // The requests of a cancelled turn are answered as cancelled.
        if self.open().phase == Phase::Cancelled {
            return Err(RequestError::Cancelled);
        }
        match result {
            Ok(result) => Ok(Some(result)),
            Err(RequestError::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers a tool call that has started. It ends with the turn, or when nothing is left that could end it.
    pub(crate) fn start_tool_call(&self, id: &str) {
        self.start_item(|open| &mut open.tool_calls, id);
    }

    fn start_item(&self, items: impl FnOnce(&mut OpenItems) -> &mut BTreeSet<String>, id: &str) {
        let mut open = self.open();
        // The start of what a cancelled turn starts was dropped.
        if open.phase != Phase::Cancelled {
            items(&mut open).insert(id.to_owned());
        }
    }

    pub(crate) fn end_tool_call(&self, id: &str) {
        self.open().tool_calls.remove(id);
    }

    pub(crate) fn end_terminal(&self, id: &str) {
        self.open().terminals.remove(id);
    }

    pub(crate) fn add_tokens(&self, input: u64, output: u64) {
        let tokens = &mut self.open().tokens;
        let (input_before, output_before) = tokens.unwrap_or_default();
        *tokens = Some((input_before.saturating_add(input), output_before.saturating_add(output)));
    }

    /// Drops what the turn sends from now on.
    pub(crate) fn cancel(&self) {
        self.open().phase = Phase::Cancelled;
    }

    /// Ends the turn and what was started in it. `idle` is the beginning of the update with the reason.
    pub(crate) async fn end_turn(&self, idle: ObjectWriter, status: &str) {
        let (updates, tokens) = {
            let mut open = self.open();
            open.message = None;
            open.resumes = false;
            if open.phase == Phase::InTurn {
                open.phase = Phase::OutsideTurn;
            }
            (open.end_all(status), open.tokens)
        };
        for update in updates {
            self.send(&update).await;
        }
        let idle = match tokens {
            Some((input, output)) => {
                let usage = ObjectWriter::new()
                    .u64("totalTokens", input.saturating_add(output))
                    .u64("inputTokens", input)
                    .u64("outputTokens", output);
                idle.raw("usage", &usage.finish())
            }
            None => idle,
        };
        self.send(&idle.finish()).await;
    }

    fn open(&self) -> MutexGuard<'_, OpenItems> {
        lock(&self.0.open)
    }
}

/// The update with a state of the session.
pub(crate) fn state_update(state: &str) -> String {
    update("state_update").str("state", state).finish()
}

/// A content block with text.
pub(crate) fn text_block(text: &str) -> String {
    ObjectWriter::new().str("type", "text").str("text", text).finish()
}

impl OpenItems {
    /// The updates that end what was started.
    fn end_all(&mut self, status: &str) -> Vec<String> {
        let terminals = std::mem::take(&mut self.terminals).into_iter();
        // The exit status is unknown.
        let terminals = terminals
            .map(|id| update("terminal_update").str("terminalId", &id).raw("exitStatus", "{}").finish());
        let tool_calls = std::mem::take(&mut self.tool_calls).into_iter();
        let tool_calls = tool_calls
            .map(|id| update("tool_call_update").str("toolCallId", &id).str("status", status).finish());
        terminals.chain(tool_calls).collect()
    }
}

/// A request to people without a response.
struct PeopleRequest {
    session: Session,
    changes_state: bool,
}

impl PeopleRequest {
    /// Starts a request, unless the turn was cancelled.
    fn start(session: &Session) -> Option<Self> {
        let mut open = session.open();
        if open.phase == Phase::Cancelled {
            return None;
        }
        open.requests += 1;
        open.resumes = false;
        let changes_state = open.phase == Phase::InTurn;
        Some(Self { session: session.clone(), changes_state })
    }
}

impl Drop for PeopleRequest {
    fn drop(&mut self) {
        let mut open = self.session.open();
        open.requests -= 1;
        // The state is sent with the next update: a turn that sends no more ends with a state of its own.
        open.resumes = open.phase == Phase::InTurn && open.requests == 0;
    }
}

/// Ends what was started outside of a turn, because nothing is left that could end it.
impl Drop for SessionInner {
    fn drop(&mut self) {
        let updates = lock(&self.open).end_all("failed");
        let runtime = tokio::runtime::Handle::try_current();
        let Some(runtime) = runtime.ok().filter(|_| !updates.is_empty()) else { return };
        let session = Session::new(&self.connection, &self.info, &self.state, false);
        runtime.spawn(async move {
            for update in updates {
                session.send_raw_update(&update).await;
            }
        });
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", self.id()).finish_non_exhaustive()
    }
}
