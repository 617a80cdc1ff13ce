//! Marks in texts, by which a text is recognized wherever it appears.

use std::collections::HashSet;

use parlor_engine::rows::{Batch, Write};
use parlor_engine::{AgentEvent, ClientCall, Event};

/// The marks that were given out, and which of them the store has had.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    last: u64,
    stored: HashSet<u64>,
    /// Marks in events that were handled, if what came of them is stored.
    handled: HashSet<u64>,
    /// Marks in events that must not change anything.
    forbidden: HashSet<u64>,
}

impl Tokens {
    /// A text that no other text contains.
    pub(super) fn next(&mut self) -> String {
        self.last += 1;
        format!("«{}»", self.last)
    }

    /// The mark that was given out last.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// A text that must never be stored.
    pub(super) fn forbidden(&mut self) -> String {
        let text = self.next();
        self.forbidden.insert(self.last);
        text
    }

    /// Events with these marks were handled, and what came of them is stored. It need not have the marks: what was said
    /// may have been replaced at once.
    pub(super) fn handled(&mut self, tokens: &[u64]) {
        self.handled.extend(tokens);
    }

    /// Whether peers may be sent a mark.
    pub(super) fn may_be_sent(&self, token: u64) -> bool {
        self.stored.contains(&token) || self.handled.contains(&token)
    }

    /// Whether a mark is or was in the store.
    pub(super) fn is_stored(&self, token: u64) -> bool {
        self.stored.contains(&token)
    }

    /// Notes the marks of a batch that is committed; returns one that must not be stored.
    pub(super) fn commit(&mut self, batch: &Batch) -> Option<u64> {
        let mut wrong = None;
        for text in batch.writes.iter().flat_map(texts) {
            for token in tokens_in(text) {
                if self.forbidden.contains(&token) {
                    wrong = Some(token);
                }
                self.stored.insert(token);
            }
        }
        wrong
    }
}

/// The texts that a write stores. Words of the search index are made of others.
fn texts(write: &Write) -> Vec<&str> {
    match write {
        Write::Session(row) => row.title.as_deref().into_iter().chain([row.data.as_str()]).collect(),
        Write::Slot { body, .. } => body.as_deref().into_iter().collect(),
        Write::Entry { head, content, .. } => content.as_deref().into_iter().chain([head.as_str()]).collect(),
        Write::Append { content, .. } => vec![content],
        Write::Copy { entries, .. } => entries.iter().filter_map(|copied| copied.head.as_deref()).collect(),
        Write::Index { .. } | Write::Indexed { .. } | Write::Delete { .. } | Write::Value { .. } => {
            Vec::new()
        }
    }
}

/// The marks in an event.
pub(super) fn tokens_of_event(event: &Event) -> Vec<u64> {
    let of_agent = |event: &AgentEvent| -> Vec<u64> {
        let AgentEvent::Updates(lines) = event else { return Vec::new() };
        tokens_in(lines).collect()
    };
    if let Event::Agent(_, event) = event {
        of_agent(event)
    } else if let Event::AgentReady(Ok(agent)) = event {
        agent.early.iter().flat_map(of_agent).collect()
    } else if let Event::Started { agent, replay } = event {
        let replay = replay.iter().flatten().flat_map(|lines| tokens_in(lines));
        replay.chain(agent.early.iter().flat_map(of_agent)).collect()
    } else if let Event::Client { call, .. } = event {
        let text = if let ClientCall::Prompt { params, .. } | ClientCall::Steer { params, .. } = call {
            params.to_json().as_str().to_owned()
        } else if let ClientCall::PromptWithoutRequest { content, .. } = call {
            content.as_str().to_owned()
        } else if let ClientCall::SetTitle { title: Some(title), .. } = call {
            title.as_literal().to_owned()
        } else {
            String::new()
        };
        tokens_in(&text).collect()
    } else {
        Vec::new()
    }
}

/// The marks in a text, in their order.
pub(super) fn tokens_in(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.split('«').skip(1).filter_map(|rest| rest.split_once('»')?.0.parse().ok())
}
