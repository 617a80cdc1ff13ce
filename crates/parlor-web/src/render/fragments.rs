//! The rendered entries of a session, which all tabs that show it share.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parlor_session::{Entry, EntryId, Transcript};

use super::entry::{EntryContext, blocks_id, entry, is_shown, message, tool_call_of};
use super::message::MessageBlocks;
use super::text::element_id;

/// A change of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// Replaces the element with this id, or inserts it after another one.
    Put {
        /// The id of the element.
        id: String,
        /// The element before it; `None` if it is the first one.
        after: Option<String>,
        /// The element.
        html: Arc<str>,
    },
    /// Replaces the children of an element from an index on.
    Blocks {
        /// The id of the element.
        id: String,
        /// The index of the first child that is replaced.
        from: usize,
        /// The children from there on.
        html: Arc<str>,
    },
    /// Removes an element.
    Remove {
        /// The id of the element.
        id: String,
    },
}

/// Elements that were removed and are remembered for tabs that connect again.
const MAX_REMOVED: usize = 256;

/// The elements of a session's entries, each at its latest revision.
#[derive(Debug, Default)]
pub struct Fragments {
    rendered: HashMap<EntryId, Rendered>,
    /// The last change of the transcript that is rendered.
    seq: u64,
    /// Counts the calls that changed something.
    revision: u64,
    /// The elements that were removed, each with the revision of that.
    removed: VecDeque<(u64, String)>,
    /// The revision after which all removed elements are known.
    removed_since: u64,
    /// Entries whose elements changed for another reason than the transcript.
    stale: HashSet<EntryId>,
}

#[derive(Debug)]
struct Rendered {
    /// The revision of its last change.
    revision: u64,
    element: Element,
}

#[derive(Debug)]
enum Element {
    Message(MessageBlocks),
    Other(Arc<str>),
}

impl Fragments {
    /// The number of the last revision; patches lead from one to the next.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Renders what changed since the last call. `context` is called with each entry that is rendered.
    pub fn update<'a>(
        &mut self,
        transcript: &'a Transcript,
        context: impl Fn(&Entry) -> EntryContext<'a>,
    ) -> Vec<Patch> {
        let entries = transcript.entries();
        let mut changed = changed_since(self.seq, transcript);
        let stale = std::mem::take(&mut self.stale);
        if !stale.is_empty() {
            changed.extend((0..entries.len()).filter(|index| stale.contains(entries[*index].id())));
            changed.sort_unstable();
            changed.dedup();
        }
        self.seq = transcript.seq();
        self.revision += 1;
        let mut patches = Vec::new();
        for index in changed {
            let one = &entries[index];
            let patch = if is_shown(one, transcript) {
                self.render(one, &context(one), stale.contains(one.id()), || before(index, transcript))
            } else {
                self.remove(one.id())
            };
            patches.extend(patch);
        }
        if patches.is_empty() {
            self.revision -= 1;
        }
        patches
    }

    /// Renders an entry again with the next update, because its context changed.
    pub fn mark_stale(&mut self, id: EntryId) {
        self.stale.insert(id);
    }

    /// Prepares for a transcript that was loaded again, whose changes have other numbers. What is the same as before is not sent
    /// again; the elements of entries that it does not have are removed.
    pub fn reload(&mut self, transcript: &Transcript) -> Vec<Patch> {
        self.seq = 0;
        for rendered in self.rendered.values_mut() {
            if let Element::Message(blocks) = &mut rendered.element {
                blocks.invalidate();
            }
        }
        let present: HashSet<&EntryId> = transcript.entries().iter().map(Entry::id).collect();
        let missing: Vec<EntryId> =
            self.rendered.keys().filter(|id| !present.contains(id)).cloned().collect();
        self.revision += u64::from(!missing.is_empty());
        missing.iter().filter_map(|id| self.remove(id)).collect()
    }

    /// The patches for a page that has an earlier revision; `None` if that is not known any more, and the page has to be loaded
    /// again.
    pub fn since<'a>(
        &self,
        revision: u64,
        transcript: &'a Transcript,
        context: impl Fn(&Entry) -> EntryContext<'a>,
    ) -> Option<Vec<Patch>> {
        if revision > self.revision || revision < self.removed_since {
            return None;
        }
        let removed = self.removed.iter().filter(|(at, _)| *at > revision);
        let mut patches: Vec<Patch> = removed.map(|(_, id)| Patch::Remove { id: id.clone() }).collect();
        for (index, one) in transcript.entries().iter().enumerate() {
            if self.rendered.get(one.id()).is_some_and(|rendered| rendered.revision > revision) {
                let html = self.html(one, &context(one))?;
                patches.push(Patch::Put { id: element_id(one.id()), after: before(index, transcript), html });
            }
        }
        Some(patches)
    }

    /// The element of an entry as it was last rendered.
    pub fn html(&self, one: &Entry, context: &EntryContext<'_>) -> Option<Arc<str>> {
        match (&self.rendered.get(one.id())?.element, one.id()) {
            (Element::Message(blocks), EntryId::Message(role, _)) => {
                let element = message(*role, &element_id(one.id()), blocks.blocks(), context);
                Some(element.into_string().into())
            }
            (Element::Other(html), _) => Some(Arc::clone(html)),
            (Element::Message(_), _) => None,
        }
    }

    fn render(
        &mut self,
        one: &Entry,
        context: &EntryContext<'_>,
        is_stale: bool,
        after: impl Fn() -> Option<String>,
    ) -> Option<Patch> {
        let id = element_id(one.id());
        let known = self.rendered.get_mut(one.id());
        if let EntryId::Message(role, _) = one.id() {
            if let Some(Rendered { revision, element: Element::Message(blocks) }) = known {
                let from = blocks.update(one, &id, context.media);
                if is_stale {
                    *revision = self.revision;
                    let html = message(*role, &id, blocks.blocks(), context).into_string().into();
                    return Some(Patch::Put { id, after: after(), html });
                }
                let from = from?;
                *revision = self.revision;
                let html: String = blocks.blocks()[from..].concat();
                return Some(Patch::Blocks { id: blocks_id(&id), from, html: html.into() });
            }
            let mut blocks = MessageBlocks::new(*role);
            blocks.update(one, &id, context.media);
            let html = message(*role, &id, blocks.blocks(), context).into_string().into();
            let rendered = Rendered { revision: self.revision, element: Element::Message(blocks) };
            self.rendered.insert(one.id().clone(), rendered);
            return Some(Patch::Put { id, after: after(), html });
        }
        let html: Arc<str> = entry(one, context)?.into_string().into();
        if matches!(known, Some(Rendered { element: Element::Other(before), .. }) if *before == html) {
            return None;
        }
        let rendered = Rendered { revision: self.revision, element: Element::Other(Arc::clone(&html)) };
        self.rendered.insert(one.id().clone(), rendered);
        Some(Patch::Put { id, after: after(), html })
    }

    fn remove(&mut self, id: &EntryId) -> Option<Patch> {
        self.rendered.remove(id)?;
        let id = element_id(id);
        self.removed.push_back((self.revision, id.clone()));
        if self.removed.len() > MAX_REMOVED
            && let Some((revision, _)) = self.removed.pop_front()
        {
            self.removed_since = revision;
        }
        Some(Patch::Remove { id })
    }
}

/// The indexes of the entries that changed, and of the tool calls that show a terminal which did.
fn changed_since(seq: u64, transcript: &Transcript) -> Vec<usize> {
    let entries = transcript.entries();
    let mut changed: Vec<usize> = (0..entries.len()).filter(|index| entries[*index].seq() > seq).collect();
    let calls: Vec<usize> = changed
        .iter()
        .filter_map(|index| match entries[*index].id() {
            EntryId::Terminal(id) => tool_call_of(&entries[*index], id, transcript),
            EntryId::Message(..)
            | EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => None,
        })
        .filter_map(|call| entries.binary_search_by_key(&call.created(), Entry::created).ok())
        .collect();
    changed.extend(calls);
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// The id of the element before that of an entry.
fn before(index: usize, transcript: &Transcript) -> Option<String> {
    let before = transcript.entries()[..index].iter().rev().find(|before| is_shown(before, transcript));
    before.map(|before| element_id(before.id()))
}

#[cfg(test)]
mod tests {
    use parlor_dialect::{Dialect, Fold};

    use super::*;
    use crate::render::content_block::MediaSource;

    /// A session and a page that shows it.
    struct Shown {
        fold: Fold,
        fragments: Fragments,
        /// The elements of the page in order, each with its blocks if it is a message.
        page: Vec<(String, Vec<String>)>,
    }

    fn context(transcript: &Transcript) -> EntryContext<'_> {
        EntryContext {
            transcript,
            agent: "agent",
            cwd: "/w",
            media: MediaSource::Embedded,
            number: None,
            created_at: None,
            changed: None,
            is_waiting: false,
        }
    }

    impl Shown {
        fn new() -> Self {
            Self { fold: Fold::new(Dialect::V2), fragments: Fragments::default(), page: Vec::new() }
        }

        /// Applies an update, and returns the patches for the page in short.
        fn push(&mut self, update: &str) -> Vec<String> {
            self.fold.line(update).unwrap();
            let transcript = self.fold.transcript();
            let patches = self.fragments.update(transcript, |_| context(transcript));
            patches.into_iter().map(|patch| self.apply(patch)).collect()
        }

        fn apply(&mut self, patch: Patch) -> String {
            let find =
                |page: &Vec<(String, Vec<String>)>, id: &str| page.iter().position(|(known, _)| known == id);
            match patch {
                Patch::Put { id, after, html } => {
                    let element = (id.clone(), vec![html.to_string()]);
                    match find(&self.page, &id) {
                        Some(at) => self.page[at] = element,
                        None => {
                            let at =
                                after.map_or(0, |after| find(&self.page, &after).expect("an element") + 1);
                            self.page.insert(at, element);
                        }
                    }
                    format!("put {id}")
                }
                Patch::Blocks { id, from, html } => {
                    let element = id.strip_suffix(":c").unwrap();
                    find(&self.page, element).expect("the message is there");
                    format!("blocks {id} {from} {html}")
                }
                Patch::Remove { id } => {
                    let at = find(&self.page, &id).expect("an element");
                    self.page.remove(at);
                    format!("remove {id}")
                }
            }
        }

        fn order(&self) -> Vec<&str> {
            self.page.iter().map(|(id, _)| id.as_str()).collect()
        }
    }

    fn chunk(id: &str, text: &str) -> String {
        let text = parlor_json::string_literal(text);
        format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{{"type":"text","text":{text}}}}}"#
        )
    }

    #[test]
    fn a_stale_message_is_sent_as_a_whole() {
        let mut shown = Shown::new();
        shown.push(&chunk("a", "one"));
        let revision = shown.fragments.revision();
        shown.fragments.mark_stale(EntryId::Message(parlor_session::Role::Agent, "a".into()));
        let transcript = shown.fold.transcript();
        let number = |_: &Entry| EntryContext { number: Some(7), ..context(transcript) };
        let patches = shown.fragments.update(transcript, number);
        let [Patch::Put { html, .. }] = &patches[..] else { panic!("{patches:?}") };
        assert!(html.contains("#7") && html.contains("one"), "{html}");
        // A page that was not connected gets it, too.
        assert_eq!(shown.fragments.since(revision, transcript, number), Some(patches));
    }

    #[test]
    fn a_growing_message_sends_only_its_open_blocks() {
        let mut shown = Shown::new();
        assert_eq!(shown.push(&chunk("1", "one\n\ntw")), ["put m-1"]);
        assert_eq!(
            shown.push(&chunk("1", "o\n\nthree")),
            ["blocks m-1:c 0 <p>one</p>\n<p>two</p>\n<p>three</p>\n"]
        );
        assert_eq!(shown.push(&chunk("1", " and")), ["blocks m-1:c 1 <p>two</p>\n<p>three and</p>\n"]);
        let replaced = r#"{"sessionUpdate":"agent_message","messageId":"1","content":[{"type":"text","text":"one\n\nother"}]}"#;
        assert_eq!(shown.push(replaced), ["blocks m-1:c 1 <p>other</p>\n"]);
        assert_eq!(shown.push(replaced), [""; 0], "nothing changed");
        let cleared = r#"{"sessionUpdate":"agent_message","messageId":"1","content":null}"#;
        assert_eq!(shown.push(cleared), ["blocks m-1:c 0 "]);
    }

    #[test]
    fn entries_are_put_in_order_and_changed_in_place() {
        let mut shown = Shown::new();
        shown.push(&chunk("1", "one"));
        let call = |status: &str| {
            format!(
                r#"{{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"x","status":"{status}"}}"#
            )
        };
        assert_eq!(shown.push(&call("in_progress")), ["put t-t"]);
        shown.push(&chunk("2", "two"));
        assert_eq!(shown.push(&call("completed")), ["put t-t"]);
        assert_eq!(shown.push(&call("completed")), [""; 0]);
        assert_eq!(shown.order(), ["m-1", "t-t", "m-2"]);
        shown.push(r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[]}}"#);
        assert_eq!(shown.push(r#"{"sessionUpdate":"plan_removed","planId":"p"}"#), ["remove p-p"]);
        assert_eq!(shown.order(), ["m-1", "t-t", "m-2"]);
    }

    #[test]
    fn output_of_a_terminal_changes_the_tool_call_that_shows_it() {
        let mut shown = Shown::new();
        shown.push(r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"execute","content":[{"type":"terminal","terminalId":"x"}]}"#);
        assert_eq!(
            shown.push(r#"{"sessionUpdate":"terminal_update","terminalId":"x","command":"make"}"#),
            [""; 0]
        );
        let output = r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"x","data":"cmVk"}"#;
        assert_eq!(shown.push(output), ["put t-t"]);
        assert_eq!(shown.order(), ["t-t"]);
        assert!(shown.page[0].1[0].contains(">red<"), "{:?}", shown.page);
    }

    #[test]
    fn a_transcript_that_is_loaded_again_sends_only_differences() {
        let mut shown = Shown::new();
        for id in ["1", "2"] {
            shown.push(&chunk(id, "text"));
        }
        shown.push(r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"x"}"#);
        let mut again = Fold::new(Dialect::V2);
        again.line(&chunk("1", "text")).unwrap();
        again.line(r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"x"}"#).unwrap();
        again.line(&chunk("3", "new")).unwrap();
        shown.fold = again;
        let transcript = shown.fold.transcript().clone();
        let mut patches = shown.fragments.reload(&transcript);
        patches.extend(shown.fragments.update(&transcript, |_| context(&transcript)));
        let patches: Vec<_> = patches.into_iter().map(|patch| shown.apply(patch)).collect();
        assert_eq!(patches, ["remove m-2", "put m-3"]);
        assert_eq!(shown.order(), ["m-1", "t-t", "m-3"]);
    }

    #[test]
    fn a_page_that_connects_again_gets_what_it_lacks_once() {
        let mut shown = Shown::new();
        shown.push(&chunk("1", "one"));
        shown.push(r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[]}}"#);
        let revision = shown.fragments.revision();
        shown.push(&chunk("1", " more"));
        shown.push(r#"{"sessionUpdate":"plan_removed","planId":"p"}"#);
        shown.push(&chunk("2", "two"));
        let transcript = shown.fold.transcript();
        let since = |revision| {
            let patches = shown.fragments.since(revision, transcript, |_| context(transcript))?;
            let short = |patch: &Patch| match patch {
                Patch::Put { id, after, .. } => format!("put {id} {after:?}"),
                Patch::Blocks { id, .. } => format!("blocks {id}"),
                Patch::Remove { id } => format!("remove {id}"),
            };
            Some(patches.iter().map(short).collect::<Vec<_>>())
        };
        let expected = ["remove p-p", "put m-1 None", r#"put m-2 Some("m-1")"#];
        assert_eq!(since(revision).unwrap(), expected);
        assert_eq!(since(shown.fragments.revision()).unwrap(), [""; 0]);
        assert_eq!(since(shown.fragments.revision() + 1), None);
    }

    #[test]
    fn a_page_that_is_too_old_has_to_be_loaded_again() {
        let mut shown = Shown::new();
        for number in 0..=MAX_REMOVED {
            shown.push(&format!(r#"{{"sessionUpdate":"plan_update","plan":{{"type":"items","planId":"{number}","entries":[]}}}}"#));
            shown.push(&format!(r#"{{"sessionUpdate":"plan_removed","planId":"{number}"}}"#));
        }
        let transcript = shown.fold.transcript();
        assert_eq!(shown.fragments.since(1, transcript, |_| context(transcript)), None);
        assert!(shown.fragments.since(2, transcript, |_| context(transcript)).is_some());
    }
}
