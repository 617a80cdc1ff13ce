//! A session as lists show it: its title and metadata, and whether it is archived.

use core::time::Duration;
use std::sync::Arc;

use parlor_dialect::live::{self, AgentLine};
use parlor_dialect::{Dialect, LossKind};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Input, Scope};
use parlor_session::{IdSource, MetaPatch, Slot, TITLE, Target, Update, Upsert};
use parlor_wire::RequestId;

use super::{SessionMachine, params_for};
use crate::{AgentCall, AgentCommand, Capability, ClientInfo, Frame, Timer};

impl SessionMachine {
    /// An update of title or metadata: applied at once, or merged with the next ones if they come too fast.
    pub(super) fn on_info(&mut self, info: Upsert, line: &AgentLine<'_>) {
        let now = self.now.monotonic;
        if self.throttle.passes(now) {
            return self.apply_info(info, Some(line));
        }
        let is_first = self.throttle.is_empty();
        if let Err(refused) = self.throttle.hold(info, line.params_extra(), self.session.transcript()) {
            self.losses.add(LossKind::UpdateRefused);
            tracing::warn!(session = %self.id, "an update was rejected: {refused}");
        }
        if is_first && !self.throttle.is_empty() {
            self.arm_throttle(now);
        }
    }

    fn arm_throttle(&mut self, now: Duration) {
        self.output.timers.push((self.throttle.wait(now), Timer::Throttle));
    }

    /// The throttle's timer ran out: applies the held update if it is due.
    pub(super) fn on_throttle_timer(&mut self) {
        let now = self.now.monotonic;
        match self.throttle.due(now) {
            Some((held, params_extra)) => self.apply_info(held, Some(&AgentLine::without_line(params_extra))),
            None if self.throttle.is_empty() => {}
            None => self.arm_throttle(now),
        }
    }

    /// Applies the held update now, because something follows that must not overtake it.
    pub(super) fn flush_info(&mut self) {
        if let Some((held, params_extra)) = self.throttle.take() {
            self.apply_info(held, Some(&AgentLine::without_line(params_extra)));
        }
    }

    pub(super) fn apply_info(&mut self, mut info: Upsert, line: Option<&AgentLine<'_>>) {
        let mut title = info.fields.get_json_str(TITLE);
        // An agent may generate the title from the first prompt, which may contain the transcript.
        if title.take_if(|title| self.is_title_of_context(title)).is_some() {
            info.fields.remove(TITLE);
            if info.fields.is_empty() && info.meta == MetaPatch::Keep {
                return;
            }
        }
        let most = self.session.transcript().limits().title_chars;
        if title.is_some_and(|title| title.truncated(most).is_some()) {
            self.losses.add(LossKind::TitleCut);
        }
        let update = Update::Upsert { target: Target::Slot(Slot::Info), upsert: info };
        self.step_update(update, IdSource::Given, line);
    }

    /// Answers `session/status`.
    pub(super) fn on_status(&mut self, client: &Arc<ClientInfo>, id: &RequestId) {
        let mut result = Object::default();
        result.set("status", "open");
        let transcript = self.session.transcript();
        if client.dialect == Dialect::V1 {
            result.set_nested("_meta", "parlor/state", live::state_name(transcript));
        } else {
            result.set("state", live::state_snapshot(transcript, client.dialect).to_json());
        }
        self.respond(client, id, &result);
    }

    /// The title that shows, as JSON.
    fn title(&self) -> Json {
        let info = self.session.transcript().slot(Slot::Info);
        info.and_then(|info| info.fields.get(TITLE).cloned()).unwrap_or_else(Json::null)
    }

    /// A person gives the session a title, or takes it away.
    pub(super) fn on_set_title(&mut self, client: &Arc<ClientInfo>, id: &RequestId, title: Option<JsonStr>) {
        self.flush_info();
        let names = title.is_some();
        self.step(Input::Titled(title));
        let mut result = Object::default();
        result.set(TITLE, self.title());
        self.respond(client, id, &result);
        self.is_title_unsent |= names;
    }

    /// Sends the agent a title that a person set, if it takes titles. Otherwise it keeps its own, which does no harm: what
    /// people see is decided here.
    pub(super) fn send_title(&mut self) {
        if !std::mem::take(&mut self.is_title_unsent) {
            return;
        }
        let Some(link) = self.agent.link().filter(|link| link.agent.has(Capability::Title)) else { return };
        let mut params = params_for(&link.session);
        params.set(TITLE, self.title());
        let (call, method) = (AgentCall::SetTitle, "session/set_title".to_owned());
        self.command(AgentCommand::Call { call, method, params });
    }

    /// A person archives the session, or unarchives it. A turn that runs is cancelled, and ends before the answer.
    pub(super) fn on_archive(&mut self, client: &Arc<ClientInfo>, id: RequestId, archived: bool) {
        if archived {
            self.step(Input::Cancelled { by: client.id, scope: Scope::Session });
            self.closing.releases = true;
        }
        self.set_archived(archived);
        self.rows.dirty.durable = true;
        self.respond_after_turn(client, id, false);
    }

    pub(super) fn set_archived(&mut self, archived: bool) {
        self.rows.dirty.row |= self.rows.row.archived != archived;
        self.rows.row.archived = archived;
    }

    /// Responds to a client, in order with its updates if it is attached.
    pub(super) fn respond(&mut self, client: &ClientInfo, id: &RequestId, result: &Object) {
        if self.subscribers.contains_key(&client.id) {
            self.send(client.id, Frame::response(id, result));
        } else {
            self.unattached_responses.push((client.id, Frame::response(id, result)));
        }
    }
}
