//! Renders a session for all tabs.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use parlor_session::{Activity, Entry, EntryId, MessageNumbers, Role, ToolCallId, Transcript};

use super::super::clients::{AttachedClient, QueuedPrompt};
use super::super::regions::{self, RegionView};
use super::super::session_row::{SessionRow, SessionState};
use super::super::to_tab::{TabMessage, TabPatch};
use super::super::{created_at, side};
use super::times::EntryTimes;
use super::{Audience, DriverConnection, Feed, FeedMessage, FeedState, lock};
use crate::render::content_block::MediaSource;
use crate::render::{EntryContext, RequestCard, TurnBounds, TurnFiles};

/// What entries are rendered with.
pub(super) struct Contexts<'a> {
    pub(super) transcript: &'a Transcript,
    pub(super) numbers: MessageNumbers<'a>,
    pub(super) row: &'a SessionRow,
    pub(super) media: String,
    pub(super) waiting: &'a HashSet<ToolCallId>,
    pub(super) files: &'a TurnFiles,
    /// The times of the entries of the feed's transcript.
    pub(super) times: Option<&'a EntryTimes>,
}

impl Feed {
    /// Renders what changed, and sends it to all tabs.
    pub(super) fn refresh(&self) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let transcript = self.session.transcript();
        let mut patches = Vec::new();
        let open = state.requests.iter().chain(&state.postponed);
        let waiting: HashSet<ToolCallId> = open.filter_map(RequestCard::tool_call).cloned().collect();
        if waiting != state.waiting {
            for call in waiting.symmetric_difference(&state.waiting) {
                state.fragments.mark_stale(EntryId::ToolCall(call.clone()));
            }
            state.waiting = waiting;
        }
        let reloads = self.session.reloads();
        if reloads != state.reloads {
            state.reloads = reloads;
            state.files.reload();
            state.times.reload();
            patches.extend(state.fragments.reload(&transcript));
        }
        state.times.update(&transcript, Timestamp::now());
        let has_older = self.session.older_cursor().is_some();
        let bounds = TurnBounds { is_from_start: !has_older, is_to_end: true };
        for entry in state.files.update(&transcript, &self.row.cwd, bounds) {
            state.fragments.mark_stale(entry);
        }
        let mut fragments = std::mem::take(&mut state.fragments);
        let context = self.contexts(&transcript, state);
        patches.extend(fragments.update(&transcript, |one| context.of(one)));
        state.fragments = fragments;
        let mut for_all: Vec<TabPatch> = patches.into_iter().map(TabPatch::from).collect();
        let mut for_drivers = Vec::new();
        let drivers: Vec<Arc<DriverConnection>> = lock(&self.drivers).values().cloned().collect();
        let view = self.view(state, &transcript, &drivers);
        let is_running = view.state == SessionState::Running || view.state == SessionState::NeedsYou;
        if is_running != state.was_running && state.fragments.revision() > 0 {
            let agent = crate::render::text::clean_line(&self.row.agent);
            let agent = if agent.is_empty() { "The agent".to_owned() } else { agent };
            let what = if is_running { "is answering" } else { "has finished" };
            for_all.push(TabPatch::Announce(format!("{agent} {what}")));
        }
        if let Some(request) = state.requests.last()
            && state.requests.len() > state.announced
        {
            for_drivers.push(TabPatch::Announce(request.headline()));
        }
        let announced = state.requests.len();
        let rendered = regions::all(&view);
        state.was_running = is_running;
        state.announced = announced;
        for (id, audience, html) in rendered {
            let html = html.into_string();
            if state.regions.get(id) != Some(&html) {
                let patch = TabPatch::Replace { id: id.to_owned(), html: html.clone() };
                if audience == Audience::All {
                    for_all.push(patch);
                } else {
                    for_drivers.push(patch);
                }
                state.regions.insert(id, html);
            }
        }
        let revision = state.fragments.revision();
        for (patch, audience, revision) in
            [(for_all, Audience::All, Some(revision)), (for_drivers, Audience::Drivers, None)]
        {
            if !patch.is_empty() {
                let text = TabMessage { patch, revision }.encode().into();
                // Without tabs there is nobody to send it to.
                let _ =
                    self.messages.send(FeedMessage { text, audience, revision: state.fragments.revision() });
            }
        }
    }

    pub(super) fn view<'a>(
        &'a self,
        state: &'a FeedState,
        transcript: &'a Transcript,
        drivers: &[Arc<DriverConnection>],
    ) -> RegionView<'a> {
        let browsers: Vec<u64> = drivers.iter().filter_map(|driver| driver.number).collect();
        // All drivers are sent the same queue.
        let queue = drivers.first().map(|driver| QueuedPrompt::list(&driver.session.transcript()));
        let activity = transcript.state().map(|state| &state.activity);
        let last_failed = regions::has_failed(transcript);
        let shown = match activity {
            _ if !state.requests.is_empty() => SessionState::NeedsYou,
            Some(Activity::RequiresAction) => SessionState::NeedsYou,
            Some(Activity::Running) => SessionState::Running,
            Some(Activity::Idle | Activity::Other(_)) | None if last_failed => SessionState::Failed,
            Some(Activity::Idle | Activity::Other(_)) | None => SessionState::Idle,
        };
        RegionView {
            row: &self.row,
            title: self.title(),
            state: shown,
            transcript,
            opened: self.session.opened(),
            requests: &state.requests,
            postponed: state.postponed.len(),
            queue: queue.unwrap_or_default(),
            can_steer: drivers.iter().any(|driver| driver.can_steer()),
            clients: AttachedClient::list(transcript),
            browsers,
            is_archived: state.is_archived,
            files: &state.files,
            has_older: self.session.older_cursor().is_some(),
            deleted_at: state.deletion.as_ref().map(|(_, at)| *at),
            tabs: &state.tabs,
            tokens: state.tokens,
            turn_started_at: last_prompt(transcript).and_then(|prompt| state.times.of(prompt)),
        }
    }

    pub(super) fn contexts<'a>(&'a self, transcript: &'a Transcript, state: &'a FeedState) -> Contexts<'a> {
        Contexts {
            transcript,
            numbers: MessageNumbers::after(self.session.older_messages(), transcript),
            row: &self.row,
            media: format!("{}/media/", side::address(&self.row.id)),
            waiting: &state.waiting,
            files: &state.files,
            times: Some(&state.times),
        }
    }
}

/// The prompt of the last turn, if it is loaded.
fn last_prompt(transcript: &Transcript) -> Option<&Entry> {
    let is_prompt = |entry: &&Entry| matches!(entry.id(), EntryId::Message(Role::User, _));
    transcript.entries().iter().rev().find(is_prompt)
}

impl Contexts<'_> {
    pub(super) fn of(&self, one: &Entry) -> EntryContext<'_> {
        let number = self.numbers.number_of(one);
        EntryContext {
            transcript: self.transcript,
            agent: self.row.authors.of(number),
            cwd: &self.row.cwd,
            media: MediaSource::Served(&self.media),
            number,
            created_at: self.times.map_or_else(|| created_at(one), |times| times.of(one)),
            changed: self.files.ended_with(one.id()),
            is_waiting: matches!(one.id(), EntryId::ToolCall(call) if self.waiting.contains(call)),
        }
    }
}
