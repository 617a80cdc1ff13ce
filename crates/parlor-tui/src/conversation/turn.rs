//! The last turn: what the agent is doing, its plan, and what it changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parlor_client::{Entry, EntryId, Role, ToolCall, ToolCallStatus, ToolKind, Transcript};
use parlor_view::tool_call::ToolDetails;

use super::{Conversation, ItemKey, LIVE, created_at};
use crate::clean::Clean;

/// The activity of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    /// In a few words, such as `Running cargo test`.
    pub what: Clean,
    /// Since when, if this client saw it begin.
    pub since: Option<Timestamp>,
}

/// The files that the last turn changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnChanges {
    /// How many files.
    pub files: usize,
    /// Added lines.
    pub added: usize,
    /// Removed lines.
    pub removed: usize,
}

impl Conversation {
    /// The present activity: the latest tool call that runs, else writing or thinking.
    pub fn doing(&self) -> Doing {
        let transcript = self.replica.read();
        let since = |entry: &Entry| {
            let key = ItemKey { page: LIVE, created: entry.created() };
            self.times.get(&key).and_then(|times| times.started).or_else(|| created_at(entry))
        };
        let mut last = None;
        for entry in last_turn(&transcript) {
            if let Some(call) = ToolCall::of_entry(entry)
                && call.status() == Some(ToolCallStatus::InProgress)
            {
                let title = call.title().unwrap_or_default();
                return Doing {
                    what: Clean::line(&running(&title, call.kind().as_ref())),
                    since: since(entry),
                };
            }
            if last.is_none() && matches!(entry.id(), EntryId::Message(..)) {
                last = Some(entry);
            }
        }
        let (what, entry) = match last.map(|entry| (entry.id(), entry)) {
            Some((EntryId::Message(Role::Thought, _), entry)) => ("Thinking", Some(entry)),
            Some((_, entry)) => ("Writing", Some(entry)),
            None => ("Working", None),
        };
        Doing { what: Clean::line(what), since: entry.and_then(since) }
    }

    /// How many items of the plan are completed, and how many there are.
    pub fn plan(&self) -> Option<(usize, usize)> {
        let transcript = self.replica.read();
        let is_plan = |entry: &&Entry| matches!(entry.id(), EntryId::Plan(_)) && !entry.body().removed;
        let is_prompt = |entry: &Entry| matches!(entry.id(), EntryId::Message(Role::User, _));
        let plan_index = transcript.entries().iter().rposition(|entry| is_plan(&entry))?;
        let is_of_turn = transcript.entries().iter().rposition(is_prompt) < Some(plan_index);
        let plan = &transcript.entries()[plan_index];
        let plan = plan.body().fields.get_object("plan")?;
        let items = plan.get_array("entries")?;
        let is_done = |item: &parlor_client::JsonRef<'_>| {
            let status = item.to_object().and_then(|item| item.get_string("status"));
            status.as_deref() == Some("completed")
        };
        let (done, all) = (items.iter().filter(|item| is_done(item)).count(), items.len());
        // A plan that was completed in an earlier turn is over.
        (all > 0 && (is_of_turn || done < all)).then_some((done, all))
    }

    /// The files that the last turn changed; `None` if there are none, or if the turn runs.
    pub fn turn_changes(&self) -> Option<TurnChanges> {
        self.turn_changes
    }
}

/// The entries of the last turn, the latest first, without those that were removed.
fn last_turn(transcript: &Transcript) -> impl Iterator<Item = &Entry> {
    let is_prompt = |entry: &&Entry| matches!(entry.id(), EntryId::Message(Role::User, _));
    let is_steered = |entry: &Entry| {
        entry.body().meta.as_ref().and_then(|meta| meta.get_bool("parlor/steer")) == Some(true)
    };
    let shown = transcript.entries().iter().rev().filter(|entry| !entry.body().removed);
    shown.take_while(move |entry| !is_prompt(entry) || is_steered(entry))
}

/// The files that the last turn changed. Nothing is said about a turn that runs, or whose beginning is not loaded.
pub(super) fn changes(transcript: &Transcript, cwd: &str, is_from_start: bool) -> Option<TurnChanges> {
    if transcript.state().is_some_and(|state| state.activity.is_busy()) {
        return None;
    }
    let has_prompt =
        transcript.entries().iter().rev().any(|entry| matches!(entry.id(), EntryId::Message(Role::User, _)));
    if !has_prompt && !is_from_start {
        return None;
    }
    let mut files: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for entry in last_turn(transcript).filter(|entry| matches!(entry.id(), EntryId::ToolCall(_))) {
        for diff in ToolDetails::of_entry(entry, cwd).diffs() {
            let (added, removed) = diff.counts();
            let known = files.entry(diff.path.clone()).or_default();
            *known = (known.0 + added, known.1 + removed);
        }
    }
    let sum = |sum: (usize, usize), file: &(usize, usize)| (sum.0 + file.0, sum.1 + file.1);
    let (added, removed) = files.values().fold((0, 0), sum);
    (!files.is_empty()).then_some(TurnChanges { files: files.len(), added, removed })
}

/// The last edit of the last turn.
pub(super) fn last_edit(transcript: &Transcript) -> Option<ItemKey> {
    let mut turn = last_turn(transcript);
    let is_edit = |entry: &&Entry| {
        let call = ToolCall::of_entry(entry);
        call.is_some_and(|call| call.kind() == Some(ToolKind::Edit))
    };
    turn.find(is_edit).map(|entry| ItemKey { page: LIVE, created: entry.created() })
}

/// The name of a running tool call on the turn line.
fn running(title: &str, kind: Option<&ToolKind>) -> String {
    let title = title.trim_matches('`');
    match kind {
        Some(ToolKind::Execute) => {
            let command = title.strip_prefix("Run ").unwrap_or(title);
            let words: Vec<_> = command.split_whitespace().take(2).collect();
            format!("Running {}", words.join(" "))
        }
        _ => title.to_owned(),
    }
}
