//! The agent's side of a session: its updates, the calls to it, and how it is bound and lost.

use parlor_dialect::live::{self, AgentLine, AgentUpdate, ChunkTemplate, ParamsExtra};
use parlor_dialect::{Decoded, Decoder, Dialect, LossKind};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Cancelled, Effect, Envelope, Input, Prompt, PromptId, PromptMode, Reply};
use parlor_session::{Entry, EntryId, EventKind, Role, Slot, State, Target, Update};
use parlor_wire::{Outcome, RequestId, RpcError, code};

use super::agent_state::OpenResultTooLong;
use super::{Pending, SessionMachine, params_for};
use crate::{AgentCall, AgentCommand, AgentEpoch, AgentEvent, AgentLink, Event, OpenedAgent, Timer, context};

impl SessionMachine {
    /// A new session has its agent.
    pub(super) fn on_started(&mut self, opened: OpenedAgent, replay: Option<Vec<String>>) {
        let OpenedAgent { link, result, settings, refused, mut early, .. } = opened;
        self.rows.dirty.row = true;
        self.rows.dirty.durable = true;
        self.agent.epoch = link.epoch;
        self.decoder = Decoder::new(link.agent.dialect);
        if let Some(replay) = replay {
            // The agent replayed an adopted session.
            self.agent.adopt();
            replay.iter().for_each(|lines| self.on_updates(lines));
            std::mem::take(&mut early).into_iter().for_each(|event| self.on_agent_event(event));
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
        let millis = self.agent.on_restored(self.now.monotonic).as_millis();
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
        self.agent.epoch = link.epoch;
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
        if !without_history {
            self.subagents.on_restored();
        }
        self.bind(link, without_history, early);
        self.resume_calls(None);
        for (epoch, id) in std::mem::take(&mut self.agent.settled_requests) {
            // The agent session of an earlier epoch sent the request; this one must not get the answer.
            if epoch == self.agent.epoch {
                self.on_settled_request(&id);
            }
        }
    }

    /// Binds the session to an agent session. `early` are its messages from before.
    fn bind(&mut self, link: AgentLink, without_history: bool, early: Vec<AgentEvent>) {
        self.flush_info();
        let dialect = link.agent.dialect;
        self.decoder = Decoder::new(dialect);
        self.chunk_template = None;
        // Nobody prompts a subagent; its turns begin and end with its states.
        let is_serial = dialect == Dialect::V1 && !self.is_owned();
        let mode = if is_serial { PromptMode::Serial } else { PromptMode::Queued };
        self.rows.data.agent_dialect = Some(dialect);
        if without_history {
            self.rows.data.context_entries = None;
        }
        let without_history = without_history && !self.session.transcript().entries().is_empty();
        // An agent without the history may be restored before it was given the conversation.
        let has_context = !without_history && !self.rows.data.needs_context;
        if !has_context {
            self.rows.data.needs_context = true;
            let id = self.ids.new_id().as_json().to_text().into_owned();
            self.step(Input::ContextHandedOver(Envelope::new(id)));
        }
        self.rows.on_data_changed();
        self.rows.row.agent_session = Some(link.session.as_json().as_literal().to_owned());
        self.agent.bind(link, has_context);
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
        if let Some(template) = self.chunk_template.take()
            && let Some(decoded) = template.read(line)
        {
            let line = AgentLine::of_template(line, &template, &decoded);
            self.on_update(decoded, &line);
            self.chunk_template = Some(template);
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
                self.chunk_template = spans
                    .as_ref()
                    .and_then(|spans| ChunkTemplate::after(line, spans, &params_extra, &decoded))
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
        live::drop_generated_title(&mut decoded.update, self.session.transcript());
        if live::drop_reserved(&mut decoded.update) || line.params_extra().was_reserved() {
            self.losses.add(LossKind::ReservedMeta);
        }
        if !self.on_announced(&decoded.update) {
            return;
        }
        self.map_sessions(&mut decoded.update);
        match decoded.update {
            Update::Upsert { target: Target::Slot(Slot::Info), upsert } => {
                return self.on_info(upsert, line);
            }
            update if live::is_notice(&update) => return self.broadcast_unstored(update, Some(line)),
            Update::State(state) if self.agent.is_released() && state.activity.is_busy() => {
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
            Effect::CancelTurn if !self.takes_cancel() => {}
            Effect::CancelTurn => {
                self.notify_agent("session/cancel");
                cancels = true;
            }
            Effect::RespondRequest(peer_request, reply) => {
                let Some(request) = self.requests.remove(peer_request) else { return cancels };
                let reply = match reply {
                    Reply::Result(result) => Ok(result),
                    // If no client can show the form, the agent gets the answer for a cancelled form.
                    Reply::Error(error) if request.is_form_without_client(&error) => {
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
        let is_unwanted = self.session.has_no_clients() || self.rows.row.archived;
        if is_unwanted && !self.session.is_busy() && self.agent.is_bound() {
            self.cancel_forwarded();
            self.command(AgentCommand::Release);
            let error = RpcError::new(code::INTERNAL_ERROR, "the session that owns the subagent was closed");
            self.unbind_subagents(&error);
            self.agent.unbind();
            self.step(Input::AgentReleased);
            return true;
        }
        false
    }

    fn send_prompt(&mut self, prompt: &Prompt) {
        let Some(AgentLink { agent, session, .. }) = self.agent.link().cloned() else { return };
        let mut content = live::prompt_to_agent(&prompt.content, agent.dialect, &mut self.losses);
        if !context::is_command(&prompt.content) && self.agent.takes_context(prompt.id) {
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
            return self.pending.push_back(Pending::Event(Event::Agent(self.agent.epoch, failed)));
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
        self.rows.data.context_entries = Some(end);
        self.rows.on_data_changed();
        with
    }

    /// Whether a title of the agent consists only of words of the transcript that the server sent it.
    pub(super) fn is_title_of_context(&self, title: &JsonStr) -> bool {
        let Some(count) = self.rows.data.context_entries else { return false };
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
        if self.agent.on_turn_ended(prompt, is_completed) {
            self.rows.data.needs_context = false;
            self.rows.on_data_changed();
        }
    }

    /// Starts to restore the agent session, unless that is already in progress.
    pub(super) fn start_agent(&mut self) {
        if !self.is_owned() && self.agent.restore(self.now.monotonic) {
            self.output.agent.push((self.agent.epoch, AgentCommand::Start));
        }
    }

    /// Answers all prompts that wait with an error.
    fn reject_queued(&mut self, error: &RpcError) {
        for held in self.session.queued_prompts() {
            self.step(Input::Rejected { prompt: held.id, error: error.to_json() });
        }
    }

    /// Keeps the agent's response to opening the session for all clients that open it.
    pub(super) fn keep_open_result(&mut self, result: &Object) {
        match self.agent.keep_open_result(result) {
            Ok(has_changed) => self.rows.dirty.opened |= has_changed,
            Err(OpenResultTooLong) => {
                tracing::warn!(session = %self.id, "the agent's response to opening the session is too long to store");
            }
        }
    }

    /// Answers `_parlor/settled`: everything that the agent sent before it is applied. While the agent is being restored,
    /// the answer waits.
    pub(super) fn on_settled_request(&mut self, id: &RequestId) {
        if self.agent.is_bound() {
            self.respond_to_agent(id.clone(), Ok(Object::default().to_json()));
        } else {
            self.agent.settled_requests.push((self.agent.epoch, id.clone()));
        }
    }

    pub(super) fn on_agent_gone(&mut self, error: &RpcError) {
        if self.agent.is_bound() {
            self.unbind(live::failed_state(error), error);
        }
    }

    /// Ends the binding to the agent. If the session was busy, its turn ends with this state.
    fn unbind(&mut self, state: State, error: &RpcError) {
        self.decide_effects_for_bound_agent();
        self.command(AgentCommand::DropSession);
        self.unbind_subagents(error);
        self.agent.unbind();
        self.flush_info();
        self.agent.settled_requests.clear();
        self.cancel_forwarded();
        self.decoder.on_turn_boundary();
        self.agent.refused_settings = None;
        self.give_back_all();
        self.step(Input::AgentLost(state));
        self.resume_forks(Some(error));
        self.resume_calls(Some(error));
    }

    /// Decides what concerns only the agent that is bound now: the next one may be bound in the same batch, and use the same ids.
    fn decide_effects_for_bound_agent(&mut self) {
        let is_for_this = |effect: &mut Effect| {
            matches!(effect, Effect::RespondRequest(..) | Effect::CancelPrompt(_) | Effect::CancelTurn)
        };
        let effects: Vec<_> = self.effects.extract_if(.., is_for_this).collect();
        for effect in effects {
            // The loss of the agent ends what is cancelled: there is no timeout.
            let _ = self.decide_effect(effect);
        }
    }

    /// Cancels the requests that were sent to one client each.
    fn cancel_forwarded(&mut self) {
        for peer_request in self.requests.forwarded() {
            self.cancel_forwarded_request(peer_request);
            self.requests.remove(peer_request);
        }
    }

    /// Arms the cancel timeout for what the agent has yet to end.
    fn arm_cancel_timeout(&mut self, cancelled: Cancelled) {
        if let Some(timeout) =
            self.config.cancel_timeout.filter(|_| !cancelled.is_empty() && !self.is_owned())
        {
            self.output.timers.push((timeout, Timer::Cancel(self.agent.epoch, cancelled)));
        }
    }

    /// Ends a turn that the agent did not end within the cancel timeout. The next prompt is sent to another process.
    pub(super) fn on_cancel_timeout(&mut self, epoch: AgentEpoch, cancelled: &Cancelled) {
        let left = cancelled.intersection(&self.session.cancelled());
        if left.is_empty() || self.agent.link().is_none_or(|link| link.epoch != epoch) {
            return;
        }
        if left.has_no_turn() && self.session.is_wanted_turn_running() {
            // Some agents answer a waiting prompt, even a withdrawn one, only after the prompt before it.
            return self.arm_cancel_timeout(left);
        }
        let Some(AgentLink { agent, .. }) = self.agent.link().cloned() else { return };
        tracing::warn!(session = %self.id, agent = agent.name, "the agent did not end a cancelled turn");
        self.command(AgentCommand::Retire);
        // Whatever the process still sends belongs to an epoch that has ended.
        self.agent.epoch = self.agent.epoch.end();
        let message = format!("agent '{}' did not end the cancelled turn", agent.label);
        let error = RpcError::new(code::INTERNAL_ERROR, message);
        self.unbind(super::requests::cancelled_state(), &error);
    }

    /// Sets the directory of a session that only its agent had named.
    pub(super) fn set_cwd(&mut self, cwd: String) {
        if std::mem::take(&mut self.rows.data.is_cwd_unconfirmed) {
            self.rows.on_data_changed();
            self.rows.row.cwd = cwd;
        }
    }
}
