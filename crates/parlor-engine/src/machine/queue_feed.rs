//! Which drivers have to be sent the prompt queue.

use parlor_session::session::{ClientId, QueuedPrompt};

/// The prompt queue as drivers know it.
#[derive(Debug)]
pub(super) struct QueueFeed {
    /// The queued prompts, as they were last sent.
    sent: Vec<QueuedPrompt>,
    has_changed: bool,
    /// Drivers that attached in this batch; the flag: they are sent the queue also if it is empty.
    attached: Vec<(ClientId, bool)>,
}

impl QueueFeed {
    /// A client that attaches is sent these prompts; from then on it is sent changes.
    pub(super) fn new(queued: Vec<QueuedPrompt>) -> Self {
        Self { sent: queued, has_changed: false, attached: Vec::new() }
    }

    pub(super) fn on_changed(&mut self) {
        self.has_changed = true;
    }

    /// A driver attached. With `also_if_empty`, it may know prompts that are not queued any more.
    pub(super) fn on_attached(&mut self, client: ClientId, also_if_empty: bool) {
        self.attached.push((client, also_if_empty));
    }

    /// The clients that have to be sent the queue now: all drivers if it changed, else those that attached.
    pub(super) fn receivers(
        &mut self,
        queued: Vec<QueuedPrompt>,
        drivers: impl Iterator<Item = ClientId>,
    ) -> Vec<ClientId> {
        let attached = std::mem::take(&mut self.attached);
        let has_changed = std::mem::take(&mut self.has_changed) && queued != self.sent;
        let mut receivers: Vec<_> = if has_changed {
            drivers.collect()
        } else {
            let wants = |(_, also_if_empty): &(ClientId, bool)| *also_if_empty || !queued.is_empty();
            attached.into_iter().filter(wants).map(|(client, _)| client).collect()
        };
        self.sent = queued;
        receivers.sort_unstable();
        receivers.dedup();
        receivers
    }
}

#[cfg(test)]
mod tests {
    use parlor_session::session::PromptId;

    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const C: ClientId = ClientId(3);

    fn queued(id: u64) -> Vec<QueuedPrompt> {
        vec![QueuedPrompt { id: PromptId(id), by: A, text: "later".to_owned() }]
    }

    fn receivers(feed: &mut QueueFeed, queued: Vec<QueuedPrompt>) -> Vec<ClientId> {
        feed.receivers(queued, [A, B, C].into_iter())
    }

    #[test]
    fn all_drivers_are_sent_a_queue_that_changed() {
        let mut feed = QueueFeed::new(Vec::new());
        assert_eq!(receivers(&mut feed, Vec::new()), []);
        feed.on_changed();
        assert_eq!(receivers(&mut feed, queued(1)), [A, B, C]);
        assert_eq!(receivers(&mut feed, queued(1)), [], "they know it");
        feed.on_changed();
        assert_eq!(receivers(&mut feed, queued(1)), [], "it is the same again");
    }

    #[test]
    fn a_driver_that_attaches_is_sent_a_queue_that_is_not_empty() {
        let mut feed = QueueFeed::new(queued(1));
        feed.on_attached(B, false);
        feed.on_attached(B, false);
        assert_eq!(receivers(&mut feed, queued(1)), [B]);
        let mut empty = QueueFeed::new(Vec::new());
        empty.on_attached(B, false);
        empty.on_attached(C, true);
        assert_eq!(receivers(&mut empty, Vec::new()), [C], "it may know prompts that are gone");
    }
}
