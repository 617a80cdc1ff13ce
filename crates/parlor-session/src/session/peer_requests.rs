//! What an agent asks people, and who answers.

use std::collections::BTreeMap;

use parlor_json::Json;

use crate::ToolCallId;

use super::{Client, ClientId, Effect, Step};

/// Names a question of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerRequestId(pub u64);

/// What a client said to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// An answer.
    Result(Json),
    /// That it cannot answer.
    Error(Json),
}

/// What the agent is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A person's answer.
    Result(Json),
    /// Nobody could answer, and this is what the last one said.
    Error(Json),
    /// The question was cancelled with its turn.
    Cancelled,
    /// The agent took it back itself.
    TakenBack,
    /// The agent is gone and hears nothing.
    Gone,
}

/// The questions that have no answer yet.
#[derive(Debug, Clone, Default)]
pub(super) struct PeerRequests(BTreeMap<PeerRequestId, PeerRequest>);

#[derive(Debug, Clone)]
struct PeerRequest {
    form: bool,
    /// The tool call that it wants permission for.
    call: Option<ToolCallId>,
    /// Who can still answer.
    asked: Vec<ClientId>,
    /// Who could not and is still there.
    erred: Vec<ClientId>,
    /// What the last of them said.
    error: Option<Json>,
}

impl PeerRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tool calls that permission is wanted for.
    pub(super) fn calls(&self) -> impl Iterator<Item = ToolCallId> + '_ {
        self.0.values().filter_map(|peer_request| peer_request.call.clone())
    }

    /// Puts a question to all who can answer it; whether it waits for an answer now.
    pub(super) fn ask(
        &mut self,
        id: PeerRequestId,
        form: bool,
        call: Option<ToolCallId>,
        clients: &BTreeMap<ClientId, Client>,
        out: &mut Step,
    ) -> bool {
        let can = |client: &Client| client.drives && (!form || client.elicits);
        let asked: Vec<_> = clients.iter().filter(|(_, client)| can(client)).map(|(id, _)| *id).collect();
        if form && asked.is_empty() {
            out.effects.push(Effect::RespondRequest(id, Reply::Cancelled));
            return false;
        }
        out.effects.extend(asked.iter().map(|client| Effect::SendRequest(id, *client)));
        self.0.insert(id, PeerRequest { form, call, asked, erred: Vec::new(), error: None });
        true
    }

    /// Somebody came who can answer what is open. Who joins again is not asked again.
    pub(super) fn joined(&mut self, id: ClientId, client: &Client, out: &mut Step) {
        for (peer_request, open) in &mut self.0 {
            if (!open.form || client.elicits) && !open.asked.contains(&id) {
                open.erred.retain(|erred| *erred != id);
                open.asked.push(id);
                out.effects.push(Effect::SendRequest(*peer_request, id));
            }
        }
    }

    /// Somebody is gone. If all who are left could not answer, nobody will.
    pub(super) fn left(&mut self, id: ClientId, out: &mut Step) {
        let mut given_up = Vec::new();
        for (peer_request, open) in &mut self.0 {
            open.asked.retain(|asked| *asked != id);
            open.erred.retain(|erred| *erred != id);
            if open.asked.is_empty() && !open.erred.is_empty() {
                given_up.extend(open.error.take().map(|error| (*peer_request, error)));
            }
        }
        given_up.into_iter().for_each(|(id, error)| self.withdraw(id, Reply::Error(error), out));
    }

    /// Somebody who is still there wants no more of the session.
    pub(super) fn closed(&mut self, id: ClientId, out: &mut Step) {
        let asked = self.0.iter().filter(|(_, open)| open.asked.contains(&id));
        out.effects.extend(asked.map(|(peer_request, _)| Effect::CancelClientRequest(*peer_request, id)));
        self.left(id, out);
    }

    /// The first result counts. Who errs is out; the last one's error is the answer if nobody is left.
    pub(super) fn answer(&mut self, id: PeerRequestId, by: ClientId, answer: Answer, out: &mut Step) {
        let Some(open) = self.0.get_mut(&id) else { return };
        let Some(place) = open.asked.iter().position(|asked| *asked == by) else { return };
        open.asked.remove(place);
        match answer {
            Answer::Result(result) => {
                out.durable = true;
                out.effects.push(Effect::RecordDecision { peer_request: id, by, result: result.clone() });
                self.withdraw(id, Reply::Result(result), out);
            }
            Answer::Error(error) if open.asked.is_empty() => self.withdraw(id, Reply::Error(error), out),
            Answer::Error(error) => {
                open.erred.push(by);
                open.error = Some(error);
            }
        }
    }

    /// A question is off the table.
    pub(super) fn withdraw(&mut self, id: PeerRequestId, reply: Reply, out: &mut Step) {
        let Some(open) = self.0.remove(&id) else { return };
        out.effects.extend(open.asked.into_iter().map(|client| Effect::CancelClientRequest(id, client)));
        out.effects.push(Effect::RespondRequest(id, reply));
    }

    pub(super) fn withdraw_all(&mut self, reply: &Reply, out: &mut Step) {
        let open: Vec<_> = self.0.keys().copied().collect();
        open.into_iter().for_each(|id| self.withdraw(id, reply.clone(), out));
    }
}
