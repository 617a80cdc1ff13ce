//! Which clients are attached, for clients that want to know.

use parlor_dialect::live;
use parlor_json::{Json, Object};
use parlor_session::session::ClientId;

use super::SessionMachine;
use crate::Frame;

/// Clients in the list. It says how many others there are.
const MAX_CLIENTS: usize = 100;

/// Characters of a client's name in the list.
const MAX_NAME: usize = 100;

/// Who has to be sent the attached clients.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Whether clients attached or detached in this batch.
    pub(super) has_changed: bool,
    /// Clients that attached again in this batch.
    pub(super) receivers: Vec<ClientId>,
}

impl SessionMachine {
    /// Sends the attached clients to those that want to know: to all of them if a client attached or detached.
    pub(super) fn send_attached_clients(&mut self) {
        let Presence { has_changed, mut receivers } = std::mem::take(&mut self.presence);
        if self.config.is_embedded || (!has_changed && receivers.is_empty()) {
            return;
        }
        if has_changed {
            receivers = self.subscribers.keys().copied().collect();
        }
        receivers.sort_unstable();
        receivers.dedup();
        receivers.retain(|client| {
            self.session.is_attached(*client)
                && self.subscribers.get(client).is_some_and(|subscriber| subscriber.client.wants_clients)
        });
        if receivers.is_empty() {
            return;
        }
        let update = self.attached_clients();
        for client in receivers {
            let is_numbered = self
                .subscribers
                .get(&client)
                .is_some_and(|subscriber| subscriber.client.wants_seq && subscriber.is_live());
            let seq = is_numbered.then(|| self.session.transcript().seq());
            self.send(client, Frame::updates(live::update_line(&self.id, &update, seq)));
        }
    }

    /// The update with the attached clients.
    fn attached_clients(&self) -> String {
        let attached: Vec<_> = self
            .subscribers
            .iter()
            .filter(|(client, _)| self.session.is_attached(**client))
            .map(|(_, subscriber)| &subscriber.client)
            .collect();
        let listed = attached.iter().take(MAX_CLIENTS).map(|client| {
            let role = if client.is_driver { "driver" } else { "observer" };
            let listed = Object::new().with("client", client.id.0).with("role", role);
            match client.decider().name {
                Some(name) => listed.with("name", name.to_text().chars().take(MAX_NAME).collect::<String>()),
                None => listed,
            }
        });
        let more = attached.len().saturating_sub(MAX_CLIENTS);
        // Clients merge metadata: a number that is not sent again would stay.
        let more = if more > 0 { Json::from(more as u64) } else { Json::null() };
        let meta = Object::new().with("parlor/clients", Json::array(listed)).with("parlor/moreClients", more);
        Object::new().with("sessionUpdate", "session_info_update").with("_meta", meta).text()
    }
}
