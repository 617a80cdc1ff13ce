//! Renders a session for all tabs, and counts its changed files.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parlor_session::{Activity, Entry, EntryId, MessageNumbers, ToolCallId, Transcript};

use super::super::clients::{AttachedClient, QueuedPrompt};
use super::super::regions::{self, FileCounts, RegionView};
use super::super::session_row::{SessionRow, SessionState};
use super::super::to_tab::{TabMessage, TabPatch};
use super::super::{created_at, side};
use super::{Audience, Feed, FeedMessage, FeedState, Steering, lock};
use crate::render::content_block::MediaSource;
use crate::render::{EntryContext, RequestCard};

/// What entries are rendered with.
pub(super) struct Contexts<'a> {
    pub(super) transcript: &'a Transcript,
    pub(super) numbers: MessageNumbers<'a>,
    pub(super) row: &'a SessionRow,
    pub(super) media: String,
    pub(super) waiting: &'a HashSet<ToolCallId>,
}

impl Feed {
    /// Renders what changed, and sends it to all tabs.
    pub(super) fn refresh(&self) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let transcript = self.session.transcript();
        let mut patches = Vec::new();
        let waiting: HashSet<ToolCallId> =
            state.requests.iter().filter_map(RequestCard::tool_call).cloned().collect();
        if waiting != state.waiting {
            for call in waiting.symmetric_difference(&state.waiting) {
                state.fragments.mark_stale(EntryId::ToolCall(call.clone()));
            }
            state.waiting = waiting;
        }
        let reloads = self.session.reloads();
        if reloads != state.reloads {
            state.reloads = reloads;
            patches.extend(state.fragments.reload(&transcript));
        }
        let context = self.contexts(&transcript, &state.waiting);
        patches.extend(state.fragments.update(&transcript, |one| context.of(one)));
        let mut all: Vec<TabPatch> = patches.into_iter().map(TabPatch::from).collect();
        let mut drivers = Vec::new();
        let view = Self::count_files(&self.row, &mut state.files, &transcript);
        let steering: Vec<Arc<Steering>> = lock(&self.steering).values().cloned().collect();
        let view = self.view(state, &transcript, view, &steering);
        let is_running = view.state == SessionState::Running || view.state == SessionState::NeedsYou;
        if is_running != state.was_running && state.fragments.revision() > 0 {
            let agent = crate::render::text::clean_line(&self.row.agent);
            let agent = if agent.is_empty() { "The agent".to_owned() } else { agent };
            let what = if is_running { "is answering" } else { "has finished" };
            all.push(TabPatch::Announce(format!("{agent} {what}")));
        }
        if let Some(request) = state.requests.last()
            && state.requests.len() > state.announced
        {
            drivers.push(TabPatch::Announce(request.headline()));
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
                    all.push(patch);
                } else {
                    drivers.push(patch);
                }
                state.regions.insert(id, html);
            }
        }
        let revision = state.fragments.revision();
        for (patch, audience, revision) in
            [(all, Audience::All, Some(revision)), (drivers, Audience::Drivers, None)]
        {
            if !patch.is_empty() {
                let text = TabMessage { patch, revision }.encode().into();
                // Without tabs there is nobody to send it to.
                let _ =
                    self.messages.send(FeedMessage { text, audience, revision: state.fragments.revision() });
            }
        }
    }

    /// Counts the changed files of tool calls that changed since they were counted.
    pub(super) fn count_files(
        row: &SessionRow,
        known: &mut HashMap<EntryId, (u64, FileCounts)>,
        transcript: &Transcript,
    ) -> (FileCounts, FileCounts) {
        let (mut session, mut turn) = (FileCounts::default(), FileCounts::default());
        for one in transcript.entries() {
            match one.id() {
                EntryId::Message(parlor_session::Role::User, _) => turn = FileCounts::default(),
                EntryId::ToolCall(_) => {
                    let counted = known.get(one.id()).filter(|(seq, _)| *seq == one.seq());
                    let counts = match counted {
                        Some((_, counts)) => counts.clone(),
                        None => {
                            let counts = FileCounts::of_entry(one, &row.cwd);
                            known.insert(one.id().clone(), (one.seq(), counts.clone()));
                            counts
                        }
                    };
                    session.add(&counts);
                    turn.add(&counts);
                }
                EntryId::Message(..)
                | EntryId::Plan(_)
                | EntryId::Terminal(_)
                | EntryId::Compaction(_)
                | EntryId::Subagent(_)
                | EntryId::SessionMessage(_)
                | EntryId::Event(_)
                | EntryId::Note(_) => {}
            }
        }
        (turn, session)
    }

    pub(super) fn view<'a>(
        &'a self,
        state: &'a FeedState,
        transcript: &'a Transcript,
        (turn_files, session_files): (FileCounts, FileCounts),
        steering: &[Arc<Steering>],
    ) -> RegionView<'a> {
        let browsers: Vec<u64> = steering.iter().filter_map(|steering| steering.number).collect();
        // All drivers are sent the same queue.
        let queue = steering.first().map(|steering| QueuedPrompt::list(&steering.session.transcript()));
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
            postponed: state.postponed,
            queue: queue.unwrap_or_default(),
            can_steer: steering.iter().any(|steering| steering.can_steer()),
            clients: AttachedClient::list(transcript),
            browsers,
            is_archived: state.is_archived,
            turn_files,
            session_files,
            is_deleted: state.deletion.is_some(),
            tabs: &state.tabs,
        }
    }

    pub(super) fn contexts<'a>(
        &'a self,
        transcript: &'a Transcript,
        waiting: &'a HashSet<ToolCallId>,
    ) -> Contexts<'a> {
        Contexts {
            transcript,
            numbers: MessageNumbers::after(self.session.older_messages(), transcript),
            row: &self.row,
            media: format!("{}/media/", side::address(&self.row.id)),
            waiting,
        }
    }
}

impl Contexts<'_> {
    pub(super) fn of(&self, one: &Entry) -> EntryContext<'_> {
        EntryContext {
            transcript: self.transcript,
            agent: &self.row.agent,
            cwd: &self.row.cwd,
            media: MediaSource::Served(&self.media),
            number: self.numbers.number_of(one),
            created_at: created_at(one),
            is_waiting: matches!(one.id(), EntryId::ToolCall(call) if self.waiting.contains(call)),
        }
    }
}
