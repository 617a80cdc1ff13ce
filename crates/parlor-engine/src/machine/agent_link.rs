//! The agent's side of a session: its updates, the calls to it, and how it is bound and lost.

use parlor_dialect::live::{self, AgentLine, AgentUpdate, ParamsExtra, Stream};
use parlor_dialect::settings::Setting;
use parlor_dialect::{Decoded, Decoder, Dialect, LossKind};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{
    Cancelled, ClientId, Effect, Envelope, Input, Prompt, PromptId, PromptMode, Reply,
};
use parlor_session::{Entry, EntryId, EventKind, Role, Slot, State, Target, Update, Upsert};
use parlor_wire::{Outcome, RequestId, RpcError, code};

use super::subscriber::Subscriber;
use super::{Pending, SessionMachine, params_for};
use crate::opening::RefusedSettings;
use crate::{
    AgentCall, AgentCommand, AgentEpoch, AgentEvent, AgentLink, Event, OpenedAgent, TerminalEvent, Timer,
    context, fields,
};

/// How many bytes of the agent's response to opening a session are kept.
const MAX_OPENED: usize = 256 << 10;

impl SessionMachine {
    /// A new session has its agent.
    pub(super) fn on_begun(&mut self, opened: OpenedAgent, replay: Option<Vec<String>>) {
        let OpenedAgent { link, result, settings, refused, mut early, .. } = opened;
        self.dirty.row = true;
        self.dirty.durable = true;
        self.epoch = link.epoch;
        self.decoder = Decoder::new(link.agent.dialect);
        if let Some(replay) = replay {
            // The agent replayed an adopted session.
            self.is_adopting = true;
            replay.iter().for_each(|lines| self.on_updates(lines));
            std::mem::take(&mut early).into_iter().for_each(|event| self.on_agent_event(event));
            self.is_adopting = false;
            self.flush_info();
            self.decoder.on_turn_boundary();
        }
        self.apply_reported_settings(&result);
        self.keep_open_result(&result);
        for update in settings.updates(self.session.transcript()) {
            self.step(Input::ServerUpdate(update));
        }
        self.set_refused(refused);
        self.bind(link, false, early);
    }

    /// The agent's session is restored, or cannot be.
    pub(super) fn on_agent_ready(&mut self, restored: Result<OpenedAgent, RpcError>) {
        let since = self.starting.take();
        let millis = since.map_or(0, |since| self.now.monotonic.saturating_sub(since).as_millis());
        tracing::debug!(session = %self.id, ok = restored.is_ok(), millis, "the agent's session is restored");
        match restored {
            Ok(restored) => self.on_agent_restored(restored),
            Err(error) => {
                self.resume_forks(Some(&error));
                self.resume_calls(Some(&error));
                self.reject_queued(&error);
            }
        }
    }

    fn on_agent_restored(&mut self, restored: OpenedAgent) {
        let OpenedAgent { link, without_history, lost, result, settings, mut refused, early } = restored;
        self.epoch = link.epoch;
        if !self.session.queued_prompts().is_empty()
            && let Some(reported) = refused.take()
        {
            self.reject_queued(&reported.error);
            refused = reported.after_report();
        }
        self.decoder = Decoder::new(link.agent.dialect);
        self.apply_reported_settings(&result);
        self.keep_open_result(&result);
        for update in settings.updates(self.session.transcript()) {
            self.step(Input::ServerUpdate(update));
        }
        self.set_refused(refused);
        if let Some(reason) = lost.filter(|_| !self.session.transcript().entries().is_empty()) {
            self.step(Input::EventOccurred(EventKind::MemoryRebuilt { reason }));
        }
        self.bind(link, without_history, early);
        self.resume_calls(None);
        for (epoch, id) in std::mem::take(&mut self.settled_requests) {
            // The agent session of an earlier epoch sent the request; this one must not get the answer.
            if epoch == self.epoch {
                self.on_settled_request(&id);
            }
        }
    }

    /// Binds the session to an agent session. `early` are its messages from before.
    fn bind(&mut self, link: AgentLink, without_history: bool, early: Vec<AgentEvent>) {
        self.flush_info();
        let dialect = link.agent.dialect;
        self.decoder = Decoder::new(dialect);
        self.stream = None;
        let mode = if dialect == Dialect::V1 { PromptMode::Serial } else { PromptMode::Queued };
        self.data.agent_dialect = Some(dialect);
        if without_history {
            self.data.context_entries = None;
        }
        let without_history = without_history && !self.session.transcript().entries().is_empty();
        // An agent without the history may be restored before it was given the conversation.
        self.needs_context = without_history || self.data.needs_context;
        if self.needs_context {
            self.data.needs_context = true;
            let id = self.ids.new_id().as_json().to_text().into_owned();
            self.step(Input::ContextHandedOver(Envelope::new(id)));
        }
        self.context_sent_with = None;
        self.on_data_changed();
        self.row.agent_session = Some(link.session.as_json().as_literal().to_owned());
        self.agent = Some(link);
        let clients: Vec<_> = self.subscribers.keys().copied().collect();
        clients.into_iter().for_each(|client| self.command(AgentCommand::AddClient(client)));
        self.step(Input::AgentRestored { mode, without_history });
        early.into_iter().for_each(|event| self.on_agent_event(event));
        self.step(Input::EarlyUpdatesApplied);
        self.resume_forks(None);
    }

    /// Updates of the agent, one a line.
    pub(super) fn on_updates(&mut self, lines: &str) {
        // What subscribers are sent is about as long.
        self.buffers.reserve(lines.len());
        for line in lines.split_terminator('\n') {
            self.on_update_line(line);
        }
    }

    fn on_update_line(&mut self, line: &str) {
        if let Some(stream) = self.stream.take()
            && let Some(decoded) = stream.read(line)
        {
            let line = AgentLine::of_stream(line, &stream, &decoded);
            self.on_update(decoded, &line);
            self.stream = Some(stream);
            return;
        }
        let read = AgentUpdate::read(line);
        let spans = read.as_ref().and_then(|read| read.spans(line));
        let (decoded, params_extra) = match read {
            Some(read) => {
                let params_extra = read.params_extra();
                let ids = &mut self.ids;
                (read.decode(&self.decoder, &mut || ids.new_id()), params_extra)
            }
            None => {
                let Ok(message) = Json::parse(line) else { return };
                let params = message.to_object().unwrap_or_default().get("params").cloned();
                let Ok((_, update)) = live::update_of(params.as_ref().map(Json::raw)) else { return };
                let params_extra =
                    ParamsExtra::of_params(&params.as_ref().and_then(Json::to_object).unwrap_or_default());
                let ids = &mut self.ids;
                (self.decoder.decode(update, &mut || ids.new_id()), params_extra)
            }
        };
        match decoded {
            Ok(decoded) => {
                self.stream = spans
                    .as_ref()
                    .and_then(|spans| Stream::after(line, spans, &params_extra, &decoded))
                    .map(Box::new);
                let line = AgentLine::new(line, spans.as_ref(), params_extra, &decoded);
                self.on_update(decoded, &line);
            }
            Err(bad) => {
                self.losses.add(LossKind::UpdateRefused);
                tracing::warn!(session = %self.id, "an update of the agent is refused: {bad}");
            }
        }
    }

    /// Applies one decoded update of the agent.
    fn on_update(&mut self, mut decoded: Decoded, line: &AgentLine<'_>) {
        for ignored in &decoded.ignored {
            self.losses.add(LossKind::UpdatePart);
            tracing::debug!(session = %self.id, "part of an update is ignored: {ignored}");
        }
        // An agent that is built with parlor marks the titles that it makes.
        live::drop_generated_title(&mut decoded.update);
        if live::drop_reserved(&mut decoded.update) || line.params_extra().was_reserved() {
            self.losses.add(LossKind::ReservedMeta);
        }
        if let Some(link) = &self.agent {
            live::map_sessions(&mut decoded.update, |theirs| link.sessions.find(theirs));
        }
        match decoded.update {
            Update::Upsert { target: Target::Slot(Slot::Info), upsert } => {
                return self.on_info(upsert, line);
            }
            update if live::is_notice(&update) => return self.broadcast_unstored(update, Some(line)),
            Update::State(state) if self.is_released() && state.activity.is_busy() => {
                // Nothing would end a turn of an agent that is not bound to the session.
                self.losses.add(LossKind::UpdateRefused);
                return;
            }
            Update::State(_) => self.flush_info(),
            Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. } => {}
        }
        self.step_update(decoded.update, decoded.id_source, Some(line));
    }

    /// Whether an event of the agent comes after the session released it.
    fn is_released(&self) -> bool {
        self.agent.is_none() && !self.is_adopting
    }

    /// Decides the effects of the steps of this batch.
    pub(super) fn decide_effects(&mut self) {
        self.send_title();
        let mut cancels = false;
        loop {
            let effects = std::mem::take(&mut self.effects);
            if effects.is_empty() && !self.release() {
                break;
            }
            for effect in effects {
                cancels |= self.decide_effect(effect);
            }
        }
        if cancels {
            self.arm_cancel_timeout(self.session.cancelled());
        }
    }

    /// Performs one effect. Returns whether it cancels something.
    fn decide_effect(&mut self, effect: Effect) -> bool {
        let mut cancels = false;
        match effect {
            Effect::SendPrompt(prompt) => self.send_prompt(&prompt),
            Effect::Steer(prompt) => self.steer(&prompt),
            Effect::CancelPrompt(prompt) => {
                cancels = true;
                self.command(AgentCommand::CancelPrompt(prompt));
            }
            Effect::CancelTurn => {
                self.notify_agent("session/cancel");
                cancels = true;
            }
            Effect::RespondRequest(peer_request, reply) => {
                let Some(request) = self.requests.remove(&peer_request) else { return cancels };
                let reply = match reply {
                    Reply::Result(result) => Ok(result),
                    // If no client can show the form, the agent gets the answer for a cancelled form.
                    Reply::Error(error) if request.is_unasked_form(&error) => {
                        Ok(live::cancelled_answer(&request.method))
                    }
                    Reply::Error(error) => Err(error),
                    Reply::Cancelled => Ok(live::cancelled_answer(&request.method)),
                    Reply::CancelledByAgent => {
                        let error = RpcError::new(code::REQUEST_CANCELLED, "the agent cancelled the request");
                        Err(error.to_json())
                    }
                    Reply::AgentLost => return cancels,
                };
                self.respond_to_agent(request.id, reply);
            }
            Effect::StartAgent => self.start_agent(),
            Effect::RespondPrompt { .. }
            | Effect::SendRequest(..)
            | Effect::CancelClientRequest(..)
            | Effect::RecordDecision { .. }
            | Effect::QueueChanged => {}
        }
        cancels
    }

    /// Releases the agent of a closed or archived session whose turn has ended. Returns whether it did.
    fn release(&mut self) -> bool {
        if !self.closing.releases || self.session.is_cancelling() {
            return false;
        }
        self.closing.releases = false;
        let is_unwanted = self.session.has_no_clients() || self.row.archived;
        if is_unwanted && !self.session.is_busy() && self.agent.is_some() {
            self.cancel_forwarded();
            self.command(AgentCommand::Release);
            self.agent = None;
            self.step(Input::AgentReleased);
            return true;
        }
        false
    }

    fn send_prompt(&mut self, prompt: &Prompt) {
        let Some(AgentLink { agent, session, .. }) = self.agent.clone() else { return };
        let mut content = live::prompt_to_agent(&prompt.content, agent.dialect, &mut self.losses);
        if self.needs_context && !context::is_command(&prompt.content) {
            self.needs_context = false;
            self.context_sent_with = Some(prompt.id);
            content = self.with_context(&content);
        }
        let mut params = params_for(&session);
        let is_empty = content.as_str() == "[]";
        params.set("prompt", content);
        params.add_missing(&prompt.extra);
        self.decoder.on_turn_boundary();
        // The agent may have spoken another version when the prompt was accepted.
        if is_empty {
            let message = "the agent's protocol version supports none of the prompt's content: send text";
            let error = RpcError::new(code::INVALID_PARAMS, message).to_json();
            let failed = AgentEvent::Response(AgentCall::Prompt(prompt.id), Err(error));
            return self.pending.push_back(Pending::Event(Event::Agent(self.epoch, failed)));
        }
        let (call, method) = (AgentCall::Prompt(prompt.id), "session/prompt".to_owned());
        self.command(AgentCommand::Call { call, method, params });
    }

    /// Puts the transcript in front of a prompt, for an agent that does not have it. The prompt itself may already be in the
    /// transcript.
    fn with_context(&mut self, content: &Json) -> Json {
        let transcript = self.session.transcript();
        let entries = transcript.entries();
        let is_prompt = |entry: &Entry| matches!(entry.id(), EntryId::Message(Role::User, _));
        let end = match self.session.agent() {
            Some(PromptMode::Serial) => entries.iter().rposition(is_prompt).unwrap_or(entries.len()),
            Some(PromptMode::Queued) | None => entries.len(),
        };
        let Some(envelope) = self.session.envelope() else { return content.clone() };
        let with = context::in_front_of(content, &context::of(transcript, &entries[..end]), envelope);
        self.data.context_entries = Some(end);
        self.on_data_changed();
        with
    }

    /// Whether a title of the agent consists only of words of the transcript that the server sent it.
    pub(super) fn is_title_of_context(&self, title: &JsonStr) -> bool {
        let Some(count) = self.data.context_entries else { return false };
        let transcript = self.session.transcript();
        let entries = transcript.entries();
        let text = context::of(transcript, &entries[..entries.len().min(count)]);
        self.session
            .envelope()
            .is_some_and(|envelope| context::is_title_of(&title.to_text(), &text, envelope))
    }

    /// The agent answered a request of the session's.
    pub(super) fn on_agent_response(&mut self, call: AgentCall, reply: Result<Json, Json>) {
        match call {
            AgentCall::Forwarded(call) => self.on_forwarded_response(&call, reply),
            AgentCall::Prompt(prompt) => self.on_prompt_response(prompt, reply),
            AgentCall::Steer(prompt) => self.on_steer_response(prompt, reply),
            AgentCall::SetTitle => {
                if let Err(error) = reply {
                    let error = error.as_str();
                    tracing::warn!(session = %self.id, error, "the agent rejected the title");
                }
            }
        }
    }

    fn on_prompt_response(&mut self, prompt: PromptId, reply: Result<Json, Json>) {
        self.flush_info();
        let input = match (self.session.agent(), reply) {
            (Some(PromptMode::Queued), Ok(result)) => {
                let mut fields = result.to_object().unwrap_or_default();
                let message = fields.get_json_str("messageId").map(Into::into);
                fields.remove("messageId");
                Input::Accepted { prompt, message, fields }
            }
            (Some(PromptMode::Queued), Err(error)) => {
                self.on_turn_ended(prompt, false);
                if RpcError::from_raw(error.raw()).code() == code::REQUEST_CANCELLED {
                    Input::Dropped { prompt, error }
                } else {
                    Input::Rejected { prompt, error }
                }
            }
            (Some(PromptMode::Serial) | None, reply) => {
                self.decoder.on_turn_boundary();
                let state = match &reply {
                    Ok(result) => live::state_after(Outcome::Result(result.raw())),
                    Err(error) => live::state_after(Outcome::Error(error.raw())),
                };
                Input::Ended { prompt, state }
            }
        };
        self.step(input);
    }

    /// Handles the end of a prompt's turn. If the prompt contained the transcript and the turn was completed, the agent has the
    /// transcript; else the next prompt contains it again.
    pub(super) fn on_turn_ended(&mut self, prompt: PromptId, is_completed: bool) {
        if self.context_sent_with.take_if(|handed| *handed == prompt).is_none() {
            return;
        }
        self.needs_context = !is_completed;
        if is_completed {
            self.data.needs_context = false;
            self.on_data_changed();
        }
    }

    /// Whether the agent knows all of the conversation.
    pub(super) fn knows_conversation(&self) -> bool {
        !self.needs_context && self.context_sent_with.is_none()
    }

    /// Starts to restore the agent session, unless that is already in progress.
    pub(super) fn start_agent(&mut self) {
        if self.starting.is_some() || self.agent.is_some() {
            return;
        }
        self.starting = Some(self.now.monotonic);
        self.output.agent.push((self.epoch, AgentCommand::Start));
    }

    /// Answers all prompts that wait with an error.
    fn reject_queued(&mut self, error: &RpcError) {
        for held in self.session.queued_prompts() {
            self.step(Input::Rejected { prompt: held.id, error: error.to_json() });
        }
    }

    /// Takes the error for a prompt that is not sent because the agent refused settings. A setting that the agent no longer has
    /// is reported once: sending the prompt again accepts that. One that it has must be set by a client first.
    pub(super) fn take_refusal(&mut self) -> Option<RpcError> {
        let refused = self.refused_settings.take()?;
        let error = refused.error.clone();
        self.set_refused(refused.after_report());
        Some(error)
    }

    /// Stores the refused settings, so that they are applied again at the next restore.
    pub(super) fn set_refused(&mut self, refused: Option<RefusedSettings>) {
        let before = self.data.refused_settings.take();
        self.data.set_refused(refused.as_ref());
        self.refused_settings = refused;
        if self.data.refused_settings != before {
            self.on_data_changed();
        }
    }

    /// Removes a setting from the refused ones: a client has set it, or the agent reports it.
    pub(super) fn on_setting_chosen(&mut self, setting: &Setting) {
        let Some(mut refused) = self.refused_settings.take() else { return };
        refused.settings.retain(|one| one.setting != *setting);
        self.set_refused(Some(refused).filter(|refused| !refused.settings.is_empty()));
    }

    /// Keeps the agent's response to opening the session for all clients that open it.
    pub(super) fn keep_open_result(&mut self, result: &Object) {
        let mut opened = self.open_result.clone();
        for (name, value) in result.iter() {
            match name.inner() {
                "sessionId" | "modes" | "models" | "configOptions" | "availableCommands" => {}
                "_meta" => {
                    for (key, value) in fields::foreign_meta(result).iter() {
                        opened.set_nested("_meta", &key.to_text(), value.clone());
                    }
                }
                _ => opened.set(name.clone(), value.clone()),
            }
        }
        if opened == self.open_result {
            return;
        }
        if opened.to_json().as_str().len() > MAX_OPENED {
            tracing::warn!(session = %self.id, "the agent's response to opening the session is too long to store");
            return;
        }
        self.open_result = opened;
        self.dirty.opened = true;
    }

    /// Answers `_parlor/settled`: everything that the agent sent before it is applied. While the agent is being restored,
    /// the answer waits.
    pub(super) fn on_settled_request(&mut self, id: &RequestId) {
        if self.agent.is_some() {
            self.respond_to_agent(id.clone(), Ok(Object::default().to_json()));
        } else {
            self.settled_requests.push((self.epoch, id.clone()));
        }
    }

    pub(super) fn on_agent_gone(&mut self, error: &RpcError) {
        if self.agent.is_some() {
            self.unbind(live::failed_state(error), error);
        }
    }

    /// Ends the binding to the agent. If the session was busy, its turn ends with this state.
    fn unbind(&mut self, state: State, error: &RpcError) {
        self.command(AgentCommand::Unlink);
        self.agent = None;
        self.flush_info();
        self.settled_requests.clear();
        self.cancel_forwarded();
        self.decoder.on_turn_boundary();
        self.refused_settings = None;
        self.give_back_all();
        self.step(Input::AgentLost(state));
        self.resume_forks(Some(error));
        self.resume_calls(Some(error));
    }

    /// Cancels the requests that were sent to one client each.
    fn cancel_forwarded(&mut self) {
        let forwarded = self.requests.iter().filter(|(_, request)| request.forwarded);
        let forwarded: Vec<_> = forwarded.map(|(peer_request, _)| *peer_request).collect();
        for peer_request in forwarded {
            self.cancel_forwarded_request(peer_request);
            self.requests.remove(&peer_request);
        }
    }

    /// Arms the cancel timeout for what the agent has yet to end.
    fn arm_cancel_timeout(&mut self, cancelled: Cancelled) {
        if let Some(timeout) = self.config.cancel_timeout.filter(|_| !cancelled.is_empty()) {
            self.output.timers.push((timeout, Timer::Cancel(self.epoch, cancelled)));
        }
    }

    /// Ends a turn that the agent did not end within the cancel timeout. The next prompt is sent to another process.
    pub(super) fn on_cancel_timeout(&mut self, epoch: AgentEpoch, cancelled: &Cancelled) {
        let left = cancelled.intersection(&self.session.cancelled());
        if left.is_empty() || self.agent.as_ref().is_none_or(|link| link.epoch != epoch) {
            return;
        }
        if left.has_no_turn() && self.session.is_wanted_turn_running() {
            // Some agents answer a waiting prompt, even a withdrawn one, only after the prompt before it.
            return self.arm_cancel_timeout(left);
        }
        let Some(AgentLink { agent, .. }) = self.agent.clone() else { return };
        tracing::warn!(session = %self.id, agent = agent.name, "the agent did not end a cancelled turn");
        self.command(AgentCommand::Retire);
        // Whatever the process still sends belongs to an epoch that has ended.
        self.epoch = self.epoch.end();
        let message = format!("agent '{}' did not end the cancelled turn", agent.label);
        let error = RpcError::new(code::INTERNAL_ERROR, message);
        self.unbind(super::requests::cancelled_state(), &error);
    }

    /// Serves a file request of the agent: by the client whose prompt runs, which has unsaved changes, else from the disk.
    pub(super) fn serve_file(&mut self, id: RequestId, method: String, params: Object) {
        self.command(match self.editor(&method) {
            Some(_) => AgentCommand::CheckFile { id, method, params },
            None => AgentCommand::ServeFile { id, method, params },
        });
    }

    /// Serves a file that the agent may access, from the disk if the client has disconnected meanwhile.
    pub(super) fn on_file_allowed(&mut self, id: RequestId, method: String, params: Object) {
        match self.editor(&method) {
            Some(client) => self.forward_to(client, id, method, params),
            None => self.serve_file_from_disk(id, method, params),
        }
    }

    /// The client that serves files: the one whose prompt runs, if it does so on this machine.
    fn editor(&self, method: &str) -> Option<ClientId> {
        let client = self.session.running_prompt_sender().filter(|client| self.is_staying(*client))?;
        let serves = |subscriber: &Subscriber| subscriber.client.is_local && subscriber.client.serves(method);
        self.subscribers.get(&client).is_some_and(serves).then_some(client)
    }

    /// Reads or writes a file for the agent on the disk.
    pub(super) fn serve_file_from_disk(&mut self, id: RequestId, method: String, params: Object) {
        self.command(AgentCommand::ServeFile { id, method, params });
    }

    /// Sets the directory of a session that only its agent had named.
    pub(super) fn set_cwd(&mut self, cwd: String) {
        if std::mem::take(&mut self.data.is_cwd_unconfirmed) {
            self.on_data_changed();
            self.row.cwd = cwd;
        }
    }

    /// Ends the command in a terminal that the server runs for the agent.
    pub(super) fn cancel_terminal(&mut self, params: &Object) -> Result<(), RpcError> {
        let terminal = params.get_json_str("terminalId").map(|id| EntryId::Terminal(id.into()));
        let shown = terminal.and_then(|terminal| self.session.transcript().get(&terminal));
        let runs = shown.is_some_and(|shown| shown.body().fields.get("exitStatus").is_none());
        if !runs {
            return Err(RpcError::new(code::INVALID_PARAMS, "no such terminal runs in this session"));
        }
        // The client is answered at once; the terminal reports its exit as an update.
        self.command(AgentCommand::KillTerminal { params: params.clone() });
        Ok(())
    }

    /// Adds the events of a terminal that the server runs for the agent to the transcript.
    pub(super) fn on_terminal(&mut self, event: TerminalEvent) {
        let entry = |id: &str| Target::Entry(EntryId::Terminal(id.into()));
        let update = match event {
            TerminalEvent::Created { id, command, cwd } => {
                let mut fields = Object::default();
                fields.set("command", &command);
                fields.set("cwd", &*cwd.to_string_lossy());
                fields.set("capabilities", Object::new().with("cancel", Object::new()));
                Update::Upsert { target: entry(&id), upsert: Upsert { fields, ..Upsert::default() } }
            }
            TerminalEvent::Output { id, bytes } => {
                Update::Output { terminal: (&*id).into(), bytes, extra: None }
            }
            TerminalEvent::Exited { id, code, signal } => {
                let mut status = Object::default();
                if let Some(code) = code {
                    status.set("exitCode", code);
                }
                if let Some(signal) = signal {
                    status.set("signal", &signal);
                }
                let mut fields = Object::default();
                fields.set("exitStatus", status.to_json());
                fields.set("capabilities", Json::null());
                Update::Upsert { target: entry(&id), upsert: Upsert { fields, ..Upsert::default() } }
            }
            TerminalEvent::Released { .. } => return,
        };
        self.step(Input::ServerUpdate(update));
    }
}
