//! Tracks which entries have to be indexed again.

use crate::rows::{IndexDocument, Write};
use crate::search_text::{TOOL_FIELDS, index_document};
use parlor_session::{Change, Entry, EntryId, Role, Target, Transcript, Update};
use std::collections::BTreeSet;

/// The entries whose text in the search index is out of date.
#[derive(Debug, Default)]
pub(super) struct IndexBacklog {
    /// Entries to index now, by the changes that created them.
    due: BTreeSet<u64>,
    /// Entries that grow: they are indexed when the next entry begins or the turn ends.
    open: BTreeSet<u64>,
    /// Running tool calls: they change often, and each time all of their text would be indexed.
    running: BTreeSet<u64>,
    /// Running tool calls whose text is not in the index.
    unfound: BTreeSet<u64>,
    /// Entries whose old text must leave the index at once.
    stale: BTreeSet<u64>,
    /// When entries that grow outside of a turn were last indexed, in milliseconds since 1970.
    last_indexed_at: i64,
}

/// Whether growing entries are indexed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnPhase {
    /// A turn runs.
    Running,
    /// No turn runs. The agent may still send updates.
    Idle,
    /// The session is unloaded or deleted.
    Ended,
}

/// How often entries that grow outside of a turn are indexed, in milliseconds.
const PAUSE: i64 = 1000;

impl IndexBacklog {
    /// The entries that a server killed in the middle of a turn may not have indexed: all that changed since the last
    /// prompt.
    pub(super) fn of_last_turn(transcript: &Transcript) -> Self {
        let entries = transcript.entries();
        let prompt = entries.iter().rfind(|entry| matches!(entry.id(), EntryId::Message(Role::User, _)));
        let since = prompt.map_or(0, parlor_session::Entry::created);
        let due = entries.iter().filter(|entry| entry.seq() >= since).map(parlor_session::Entry::created);
        Self { due: due.collect(), ..Self::default() }
    }

    /// Notes an applied change. The transcript already contains it.
    pub(super) fn note(&mut self, change: &Change, transcript: &Transcript) {
        if change.is_creation() {
            self.due.append(&mut self.open);
        }
        if let Update::Append { entry, .. } | Update::Upsert { target: Target::Entry(entry), .. } =
            &change.update
        {
            if runs(entry, transcript) {
                return self.note_running(change);
            }
            if self.running.remove(&change.created) {
                self.unfound.remove(&change.created);
                self.due.insert(change.created);
            }
        }
        match &change.update {
            Update::Append { .. } | Update::Output { .. } => {
                self.open.insert(change.created);
            }
            // The store drops the text with the content, and a tool call is also found by some fields.
            Update::Upsert { target: Target::Entry(_), upsert } => {
                let says_more = upsert.whole || !upsert.content.is_omitted() || !upsert.fields.is_empty();
                if says_more || change.is_creation() {
                    self.due.insert(change.created);
                }
            }
            Update::Remove { .. } => {
                self.due.insert(change.created);
            }
            Update::Upsert { target: Target::Slot(_), .. } | Update::Note { .. } => {}
            Update::State(state) => {
                if !state.activity.is_busy() {
                    self.due.append(&mut self.open);
                    self.finish_running();
                }
            }
        }
    }

    /// Notes a change of a running tool call. Its new text is indexed later. Its old text leaves the index at once: the store
    /// removes it with replaced content, and otherwise on request (`stale`).
    fn note_running(&mut self, change: &Change) {
        self.running.insert(change.created);
        let takes_away = matches!(&change.update, Update::Upsert { upsert, .. }
            if upsert.whole || TOOL_FIELDS.iter().any(|name| upsert.fields.get(name).is_some()));
        if (change.is_creation() || takes_away)
            && self.unfound.insert(change.created)
            && !change.is_creation()
        {
            self.stale.insert(change.created);
        }
    }

    fn finish_running(&mut self) {
        self.due.append(&mut self.running);
        self.unfound.clear();
    }

    /// The index writes of finished entries. Outside of a turn, growing entries are indexed now and then; at the end of the
    /// session all of them are.
    pub(super) fn take(
        &mut self,
        session: &str,
        transcript: &Transcript,
        turn: TurnPhase,
        now: i64,
    ) -> Vec<Write> {
        let grows = turn == TurnPhase::Idle
            && !self.open.is_empty()
            && now.saturating_sub(self.last_indexed_at) >= PAUSE;
        if grows || turn == TurnPhase::Ended {
            self.due.append(&mut self.open);
            self.last_indexed_at = now;
        }
        if turn != TurnPhase::Running {
            self.finish_running();
        }
        let entries = transcript.entries();
        let write = |created, document: &dyn Fn(&Entry) -> Option<Option<IndexDocument>>| {
            let place = entries.binary_search_by_key(&created, Entry::created).ok()?;
            let (entry, session) = (&entries[place], session.to_owned());
            let document = document(entry)?;
            Some(Write::Index { session, created, seq: entry.seq(), document, only_missing: false })
        };
        let (due, stale) = (std::mem::take(&mut self.due), std::mem::take(&mut self.stale));
        let forgotten = stale.difference(&due).filter_map(|created| write(*created, &|_| Some(None)));
        let found =
            due.iter().filter_map(|created| write(*created, &|entry| index_document(entry, now).map(Some)));
        forgotten.chain(found).collect()
    }
}

/// Whether an entry is a tool call that has not ended.
fn runs(entry: &EntryId, transcript: &Transcript) -> bool {
    let call = transcript.get(entry).filter(|_| matches!(entry, EntryId::ToolCall(_)));
    call.is_some_and(|call| {
        let status = call.body().fields.get_string("status");
        status.is_none_or(|status| matches!(status.as_str(), "pending" | "in_progress"))
    })
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;
    use parlor_session::{Activity, Content, Patch, State, Upsert};

    use super::*;

    /// A session with its index backlog.
    #[derive(Default)]
    struct IndexedSession {
        transcript: Transcript,
        backlog: IndexBacklog,
        now: i64,
    }

    impl IndexedSession {
        fn push(&mut self, update: Update) -> Vec<(u64, String)> {
            let change = self.transcript.push(update).unwrap();
            self.backlog.note(&change, &self.transcript);
            self.take(TurnPhase::Running)
        }

        fn take(&mut self, turn: TurnPhase) -> Vec<(u64, String)> {
            let writes = self.backlog.take("s", &self.transcript, turn, self.now);
            let documents = writes.into_iter().map(|write| {
                let Write::Index { created, seq, document, .. } = write else { panic!("{write:?}") };
                assert!(seq >= created);
                let Some(document) = document else { return (created, "forgotten".to_owned()) };
                assert_eq!(document.at, self.now);
                (created, format!("{}: {}", document.kind, document.text))
            });
            documents.collect()
        }

        fn says(&mut self, id: &str, text: &str) -> Vec<(u64, String)> {
            let item = Json::parse(block(text)).unwrap();
            let entry = EntryId::Message(Role::Agent, id.into());
            self.push(Update::Append { entry, item, extra: None })
        }

        fn upsert(&mut self, entry: EntryId, upsert: Upsert) -> Vec<(u64, String)> {
            self.push(Update::Upsert { target: Target::Entry(entry), upsert })
        }
    }

    fn block(text: &str) -> String {
        format!(r#"{{"type":"text","text":"{text}"}}"#)
    }

    fn replaced(text: &str) -> Upsert {
        let content = Content::parse(Json::parse(format!("[{}]", block(text))).unwrap().raw()).unwrap();
        Upsert { content: Patch::Value(content), ..Upsert::default() }
    }

    #[test]
    fn what_is_being_written_is_handed_in_when_the_next_begins() {
        let mut session = IndexedSession::default();
        assert_eq!(session.says("a", "one "), []);
        assert_eq!(session.says("a", "two"), []);
        assert_eq!(session.says("b", "three"), [(1, "agent: one two".to_owned())]);
        // Two that grow by turns are not handed in again and again.
        assert_eq!(session.says("a", " four"), []);
        assert_eq!(session.says("b", " five"), []);
        let all = [(1, "agent: one two four".to_owned()), (3, "agent: three five".to_owned())];
        assert_eq!(session.take(TurnPhase::Ended), all);
        assert_eq!(session.take(TurnPhase::Ended), []);
    }

    #[test]
    fn the_end_of_a_turn_finishes_all_that_it_wrote() {
        let mut session = IndexedSession::default();
        session.says("a", "one");
        let state = |activity| Update::State(State::new(activity));
        assert_eq!(session.push(state(Activity::RequiresAction)), []);
        assert_eq!(session.push(state(Activity::Idle)), [(1, "agent: one".to_owned())]);
    }

    #[test]
    fn what_grows_without_a_turn_is_handed_in_now_and_then() {
        let mut session = IndexedSession { now: 5000, ..IndexedSession::default() };
        session.says("a", "one");
        assert_eq!(session.take(TurnPhase::Idle), [(1, "agent: one".to_owned())]);
        for now in [5001, 5999] {
            session.now = now;
            session.says("a", ".");
            assert_eq!(session.take(TurnPhase::Idle), []);
        }
        session.now = 6000;
        assert_eq!(session.take(TurnPhase::Idle), [(1, "agent: one..".to_owned())]);
        session.says("a", "!");
        assert_eq!(session.take(TurnPhase::Idle), []);
        assert_eq!(session.take(TurnPhase::Ended), [(1, "agent: one..!".to_owned())]);
    }

    #[test]
    fn what_is_replaced_or_cleared_is_handed_in_at_once() {
        let mut session = IndexedSession::default();
        let entry = || EntryId::Message(Role::Agent, "a".into());
        session.says("a", "a secret");
        session.take(TurnPhase::Ended);
        assert_eq!(session.upsert(entry(), replaced("redacted")), [(1, "agent: redacted".to_owned())]);
        let cleared = Upsert { content: Patch::Clear, ..Upsert::default() };
        assert_eq!(session.upsert(entry(), cleared), [(1, "agent: ".to_owned())]);
        assert_eq!(session.upsert(entry(), Upsert::default()), []);
    }

    fn fields(fields: &str) -> Upsert {
        Upsert { fields: Json::parse(fields).unwrap().to_object().unwrap_or_default(), ..Upsert::default() }
    }

    fn call() -> EntryId {
        EntryId::ToolCall("c".into())
    }

    #[test]
    fn a_finished_tool_call_is_handed_in_when_its_title_or_content_changes() {
        let mut session = IndexedSession::default();
        let titled = |title: &str| fields(&format!(r#"{{"title":"{title}","status":"completed"}}"#));
        assert_eq!(session.upsert(call(), titled("Read")), [(1, "tool: Read".to_owned())]);
        assert_eq!(session.upsert(call(), titled("Write")), [(1, "tool: Write".to_owned())]);
        // The store has forgotten the title with the old content.
        assert_eq!(session.upsert(call(), replaced("output")), [(1, "tool: Write\noutput".to_owned())]);
        assert_eq!(session.upsert(EntryId::Plan("p".into()), replaced("a plan")), [], "plans are not found");
    }

    #[test]
    fn a_tool_call_that_runs_is_handed_in_once_when_it_or_the_turn_ends() {
        for status in ["", r#","status":"pending""#, r#","status":"in_progress""#] {
            let mut session = IndexedSession::default();
            assert_eq!(session.upsert(call(), fields(&format!(r#"{{"title":"Run"{status}}}"#))), []);
            for n in 0..10 {
                assert_eq!(session.upsert(call(), replaced(&format!("line {n}"))), []);
                assert_eq!(session.upsert(call(), fields(&format!(r#"{{"rawOutput":"{n}"}}"#))), []);
                let item = Json::parse(block("more")).unwrap();
                assert_eq!(session.push(Update::Append { entry: call(), item, extra: None }), []);
            }
            // What else begins meanwhile does not end it.
            assert_eq!(session.says("a", "words"), []);
            let ended = session.upsert(call(), fields(r#"{"status":"completed","rawOutput":"all"}"#));
            assert_eq!(ended, [(1, "tool: Run\nline 9\nmore\nall".to_owned())]);
        }
        let mut session = IndexedSession::default();
        assert_eq!(session.upsert(call(), fields(r#"{"title":"Run"}"#)), []);
        assert_eq!(session.take(TurnPhase::Idle), [(1, "tool: Run".to_owned())], "no turn runs");
        session.upsert(EntryId::ToolCall("d".into()), fields(r#"{"title":"Walk"}"#));
        assert_eq!(session.take(TurnPhase::Ended), [(2, "tool: Walk".to_owned())]);
    }

    #[test]
    fn what_a_tool_call_that_runs_does_not_say_any_more_is_not_found() {
        let mut session = IndexedSession::default();
        session.upsert(call(), fields(r#"{"title":"Run","rawOutput":"a secret"}"#));
        session.take(TurnPhase::Ended);
        // The title and the values are found until they are handed in again, so that they are forgotten, and only once.
        let redacted = || fields(r#"{"rawOutput":"redacted"}"#);
        assert_eq!(session.upsert(call(), redacted()), [(1, "forgotten".to_owned())]);
        assert_eq!(session.upsert(call(), redacted()), []);
        assert_eq!(session.take(TurnPhase::Ended), [(1, "tool: Run\nredacted".to_owned())]);
        // The store forgets them with the content, and an appended piece takes nothing away.
        assert_eq!(session.upsert(call(), replaced("public")), []);
        session.take(TurnPhase::Ended);
        let item = Json::parse(block("more")).unwrap();
        assert_eq!(session.push(Update::Append { entry: call(), item, extra: None }), []);
        assert_eq!(session.upsert(call(), redacted()), [(1, "forgotten".to_owned())]);
    }

    #[test]
    fn a_turn_that_was_cut_off_is_handed_in_from_its_prompt_on() {
        let mut session = IndexedSession::default();
        session.says("old", "old");
        session.says("other", "other");
        session.upsert(EntryId::Message(Role::User, "u".into()), replaced("prompt"));
        session.says("new", "new");
        session.says("old", " and changed");
        session.backlog = IndexBacklog::of_last_turn(&session.transcript);
        let documents: Vec<_> =
            session.take(TurnPhase::Running).into_iter().map(|(_, documents)| documents).collect();
        assert_eq!(documents, ["agent: old and changed", "user: prompt", "agent: new"]);
    }
}
