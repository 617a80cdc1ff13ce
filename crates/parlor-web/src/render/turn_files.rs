//! The files that turns changed.

use std::collections::{BTreeMap, HashMap};

use maud::{Markup, html};
use parlor_session::{Activity, Entry, EntryId, Role, Transcript};
use parlor_view::tool_call::{ToolDetails, relative};

use super::diff;
use super::text::{clean_line, element_id};
use crate::assets::icon;

/// Files of a turn or a session that are listed.
const MAX_FILES: usize = 100;

/// Added and removed lines of files, by their paths, each with the element of its last change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileCounts(BTreeMap<String, (usize, usize, String)>);

/// The files that the turns of a transcript changed.
#[derive(Debug, Default)]
pub struct TurnFiles {
    /// The changes of each tool call at its last change.
    calls: HashMap<EntryId, (u64, FileCounts)>,
    /// The changes of each turn that has ended, by its last message or tool call.
    ended: HashMap<EntryId, FileCounts>,
    turn: FileCounts,
    session: FileCounts,
}

/// What is known of the turns at the ends of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnBounds {
    /// Whether the transcript begins with the first entry of the session. A turn whose beginning is missing has no summary.
    pub is_from_start: bool,
    /// Whether no entry of the session is after the last one of the transcript.
    pub is_to_end: bool,
}

impl TurnFiles {
    /// Counts the changes of tool calls that changed since they were counted, and returns the entries at which the summary of a turn
    /// changed.
    pub fn update(&mut self, transcript: &Transcript, cwd: &str, bounds: TurnBounds) -> Vec<EntryId> {
        let (mut session, mut turn) = (FileCounts::default(), FileCounts::default());
        let mut ended = HashMap::new();
        let mut last: Option<&EntryId> = None;
        let mut is_whole = bounds.is_from_start;
        for one in transcript.entries().iter().filter(|one| !one.body().removed) {
            match one.id() {
                EntryId::Message(Role::User, _) if !is_steered(one) => {
                    let before = std::mem::take(&mut turn);
                    if let Some(last) = last.take().filter(|_| is_whole && !before.is_empty()) {
                        ended.insert(last.clone(), before);
                    }
                    is_whole = true;
                }
                EntryId::ToolCall(_) => {
                    let counts = self.of_call(one, cwd);
                    session.add(counts);
                    turn.add(counts);
                    last = Some(one.id());
                }
                EntryId::Message(..) | EntryId::Plan(_) => last = Some(one.id()),
                EntryId::Terminal(_)
                | EntryId::Compaction(_)
                | EntryId::Subagent(_)
                | EntryId::SessionMessage(_)
                | EntryId::Event(_)
                | EntryId::Note(_) => {}
            }
        }
        let is_running = transcript
            .state()
            .is_some_and(|state| matches!(state.activity, Activity::Running | Activity::RequiresAction));
        if let Some(last) = last.filter(|_| is_whole && !turn.is_empty() && bounds.is_to_end && !is_running) {
            ended.insert(last.clone(), turn.clone());
        }
        let before = std::mem::replace(&mut self.ended, ended);
        (self.turn, self.session) = (turn, session);
        let gone = before.keys().filter(|entry| !self.ended.contains_key(entry));
        let changed = self.ended.iter().filter(|(entry, counts)| before.get(entry) != Some(counts));
        gone.chain(changed.map(|(entry, _)| entry)).cloned().collect()
    }

    fn of_call(&mut self, call: &Entry, cwd: &str) -> &FileCounts {
        let known = self.calls.entry(call.id().clone()).or_default();
        if known.0 != call.seq() {
            *known = (call.seq(), FileCounts::of_entry(call, cwd));
        }
        &known.1
    }

    /// Counts everything again: the changes of the transcript have other numbers now.
    pub fn reload(&mut self) {
        self.calls.clear();
    }

    /// The changes of the turn that ended with this entry.
    pub fn ended_with(&self, entry: &EntryId) -> Option<&FileCounts> {
        self.ended.get(entry)
    }

    /// The changes of the last turn.
    pub fn turn(&self) -> &FileCounts {
        &self.turn
    }

    /// The changes of all turns.
    pub fn session(&self) -> &FileCounts {
        &self.session
    }
}

/// Whether a prompt was sent into a running turn.
pub fn is_steered(prompt: &Entry) -> bool {
    let mark = prompt.body().meta.as_ref().and_then(|meta| meta.get_bool("parlor/steer"));
    mark == Some(true)
}

impl FileCounts {
    /// Counts the changes of a tool call.
    fn of_entry(entry: &Entry, cwd: &str) -> Self {
        let details = ToolDetails::of_entry(entry, cwd);
        let mut counts = Self::default();
        for diff in details.diffs() {
            let (added, removed) = diff.counts();
            let path = relative(&diff.path, cwd).to_owned();
            let known = counts.0.entry(path).or_default();
            *known = (known.0 + added, known.1 + removed, element_id(entry.id()));
        }
        counts
    }

    /// Adds the counts of later changes.
    fn add(&mut self, later: &Self) {
        for (path, (added, removed, element)) in &later.0 {
            let known = self.0.entry(path.clone()).or_default();
            *known = (known.0 + added, known.1 + removed, element.clone());
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn total(&self) -> (usize, usize) {
        self.0.values().fold((0, 0), |sum, (added, removed, _)| (sum.0 + added, sum.1 + removed))
    }

    /// The files as a part of the details.
    pub(crate) fn html(&self, title: &str) -> Markup {
        html! {
            @if !self.is_empty() {
                section {
                    h3 { (title) span.num { (diff::counts(self.total())) } }
                    (self.list())
                }
            }
        }
    }

    /// The files in one line that opens, for the end of a turn.
    pub(crate) fn summary(&self) -> Markup {
        let count = self.0.len();
        html! {
            details.changed {
                summary {
                    (icon("chev", "chev")) (icon("file", ""))
                    @if count == 1 { "1 file changed" } @else { (count) " files changed" }
                    span.num { (diff::counts(self.total())) }
                }
                (self.list())
            }
        }
    }

    fn list(&self) -> Markup {
        html! {
            ul.files {
                @for (path, (added, removed, element)) in self.0.iter().take(MAX_FILES) {
                    li {
                        a href=(format!("#{element}")) {
                            code.cut.grow { (clean_line(path)) } span.num { (diff::counts((*added, *removed))) }
                        }
                    }
                }
            }
            @if self.0.len() > MAX_FILES { p.muted { "and " (self.0.len() - MAX_FILES) " more" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_dialect::{Dialect, Fold};

    use super::*;

    const ALL: TurnBounds = TurnBounds { is_from_start: true, is_to_end: true };

    fn prompt(id: &str, meta: &str) -> String {
        format!(r#"{{"sessionUpdate":"user_message","messageId":"{id}","content":[]{meta}}}"#)
    }

    fn edit(id: &str, path: &str, new: &str) -> String {
        format!(
            r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","kind":"edit","content":[{{"type":"diff","path":"{path}","oldText":"a\n","newText":"{new}"}}]}}"#
        )
    }

    fn said(id: &str) -> String {
        format!(r#"{{"sessionUpdate":"agent_message","messageId":"{id}","content":[]}}"#)
    }

    fn state(state: &str) -> String {
        format!(r#"{{"sessionUpdate":"state_update","state":"{state}"}}"#)
    }

    fn fold(updates: &[String]) -> Fold {
        let mut fold = Fold::of_session(Dialect::V2, "s".into());
        updates.iter().for_each(|update| fold.line(update).unwrap());
        fold
    }

    /// The elements at which summaries are, with the changed lines.
    fn summaries(files: &TurnFiles) -> Vec<(String, (usize, usize))> {
        let mut all: Vec<_> =
            files.ended.iter().map(|(entry, counts)| (element_id(entry), counts.total())).collect();
        all.sort();
        all
    }

    #[test]
    fn a_turn_that_ended_has_a_summary_at_its_last_message() {
        let mut updates = vec![
            prompt("u1", ""),
            edit("t1", "/w/a", "b\\nc\\n"),
            edit("t2", "/w/a", "a\\nb\\n"),
            said("a1"),
            state("running"),
        ];
        let mut files = TurnFiles::default();
        assert!(files.update(fold(&updates).transcript(), "/w", ALL).is_empty(), "the turn is running");
        updates.push(state("idle"));
        let changed = files.update(fold(&updates).transcript(), "/w", ALL);
        assert_eq!(changed.len(), 1);
        assert_eq!(summaries(&files), [("m-a1".to_owned(), (3, 1))]);
        assert!(files.update(fold(&updates).transcript(), "/w", ALL).is_empty(), "nothing changed");
        // A prompt into the turn is a part of it; the next one is not.
        updates.splice(3..3, [prompt("u2", r#","_meta":{"parlor/steer":true}"#)]);
        updates.extend([prompt("u3", ""), edit("t3", "/w/b", "b\\n"), state("idle")]);
        files.update(fold(&updates).transcript(), "/w", ALL);
        assert_eq!(summaries(&files), [("m-a1".to_owned(), (3, 1)), ("t-t3".to_owned(), (1, 1))]);
        let html = files.ended_with(&EntryId::ToolCall("t3".into())).unwrap().summary().into_string();
        assert!(html.contains("1 file changed") && html.contains("href=\"#t-t3\""), "{html}");
    }

    #[test]
    fn a_turn_of_which_a_part_is_not_loaded_has_no_summary() {
        let updates = [
            edit("t1", "/w/a", "b\\n"),
            prompt("u1", ""),
            edit("t2", "/w/a", "b\\n"),
            prompt("u2", ""),
            edit("t3", "/w/b", "b\\n"),
        ];
        let mut files = TurnFiles::default();
        files.update(
            fold(&updates).transcript(),
            "/w",
            TurnBounds { is_from_start: false, is_to_end: false },
        );
        assert_eq!(summaries(&files), [("t-t2".to_owned(), (1, 1))]);
    }
}
