//! Simulated client programs and their connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parlor_engine::{ClientCall, ClientInfo, ClientRequestId, Event, Frame, FrameKind};
use parlor_json::Object;
use parlor_session::session::{Answer, ClientId};
use parlor_session::{EntryId, MessageId, Role, SessionId};
use parlor_wire::RequestId;
use serde_json::Value;

use super::Invariant;
use super::ledger::PromptStage;
use super::plan::PersonPlan;
use super::replica::{From, Replica};
use super::shell::{Message, number};
use super::world::World;

/// A client program, which may connect again and again.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) plan: PersonPlan,
    pub(super) connection: Option<ClientId>,
    pub(super) replicas: BTreeMap<SessionId, Replica>,
    /// The requests of agents that it has read and not answered.
    pub(super) requests: BTreeMap<u64, PeerRequest>,
    /// Whether it does not read.
    pub(super) is_stalled: bool,
    /// Messages that it was sent under other names, by session: the names and the messages.
    pub(super) aliases: BTreeMap<SessionId, BTreeMap<String, MessageId>>,
    /// Prompts that it may send again: their sessions, keys and contents.
    pub(super) keyed: Vec<(SessionId, String, String)>,
}

/// A request that a client was sent.
#[derive(Debug, Clone)]
pub(super) struct PeerRequest {
    pub(super) session: SessionId,
    pub(super) incarnation: u64,
    pub(super) id: ClientRequestId,
    pub(super) method: String,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) person: usize,
    pub(super) is_open: bool,
    /// Frames on their way to the client.
    queue: VecDeque<(Frame, Tag)>,
    pub(super) bytes: usize,
    next_request: u64,
    /// The requests that it made.
    pub(super) made: BTreeMap<u64, Made>,
    /// The requests that it was sent and has not answered.
    pub(super) asked: BTreeMap<u64, PeerRequest>,
    next_asked: u64,
    /// The sessions that want to know when it has read what it was sent.
    pub(super) drains: Vec<(SessionId, u64)>,
    /// The sessions that it called.
    pub(super) sessions: BTreeSet<SessionId>,
}

/// Where a frame comes from. A client does not see this.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tag {
    /// The task of the session that sent it.
    pub(super) incarnation: u64,
    /// The last request of the client to be attached that the session had handled.
    pub(super) attach: u64,
    /// How the client followed the session of a subagent.
    pub(super) following: Following,
}

/// How a client follows the session of a subagent because it is attached to the owner.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Following {
    /// How often it began or ended.
    pub(super) changes: u64,
    /// Whether it ended.
    pub(super) is_over: bool,
    /// Entries that were created up to this change may be unknown to the client.
    pub(super) floor: u64,
}

/// A request of a client.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) session: Option<SessionId>,
    pub(super) what: What,
    /// Whether its response was sent.
    pub(super) is_answered: bool,
    /// Whether the client has read its response.
    pub(super) is_read: bool,
}

/// What a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    New,
    Attach(From),
    Prompt(u64),
    /// `_session/steering`
    Steer(u64),
    Close,
    Other(&'static str),
}

/// How many requests a client may have open.
const MAX_ASKED: usize = 1000;

impl Person {
    pub(super) fn new(plan: PersonPlan) -> Self {
        Self {
            plan,
            connection: None,
            replicas: BTreeMap::new(),
            requests: BTreeMap::new(),
            is_stalled: false,
            aliases: BTreeMap::new(),
            keyed: Vec::new(),
        }
    }

    pub(super) fn replica(&mut self, session: &SessionId) -> &mut Replica {
        let (dialect, wants_seq) = (self.plan.dialect, self.plan.wants_seq);
        self.replicas
            .entry(session.clone())
            .or_insert_with(|| Replica::new(session.clone(), dialect, wants_seq))
    }
}

impl Connection {
    /// Whether everything that it was sent is read.
    pub(super) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn unanswered(&self) -> impl Iterator<Item = (u64, &Made)> {
        self.made.iter().filter(|(_, made)| !made.is_answered).map(|(id, made)| (*id, made))
    }

    /// The requests that have no response as far as the client knows.
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, &Made)> {
        self.made.iter().filter(|(_, made)| !made.is_read).map(|(id, made)| (*id, made))
    }

    /// Whether a request about a session has no response as far as the client knows.
    pub(super) fn waits_for(&self, session: &SessionId) -> bool {
        self.open().any(|(_, made)| made.session.as_ref() == Some(session))
    }
}

impl World {
    /// A client program connects.
    pub(super) fn connect(&mut self, person: usize) -> ClientId {
        let id = self.new_client_id();
        let plan = &self.people[person].plan;
        let info = ClientInfo::new(id, plan.dialect, plan.initialize(), plan.is_driver, true);
        let info = Arc::new(info);
        self.note(|| format!("person {person} connects as client {} ({:?})", id.0, info.dialect));
        self.ledger.add_client(info);
        self.people[person].connection = Some(id);
        let connection = Connection {
            person,
            is_open: true,
            queue: VecDeque::new(),
            bytes: 0,
            next_request: 0,
            made: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_asked: 0,
            drains: Vec::new(),
            sessions: BTreeSet::new(),
        };
        self.connections.insert(id, connection);
        id
    }

    /// The id for a request that a client is about to make.
    pub(super) fn new_request(&mut self, client: ClientId, session: Option<&SessionId>, what: What) -> u64 {
        let connection = self.connections.get_mut(&client).expect("it is connected");
        connection.next_request += 1;
        let id = connection.next_request;
        let made = Made { session: session.cloned(), what, is_answered: false, is_read: false };
        connection.made.insert(id, made);
        connection.sessions.extend(session.cloned());
        id
    }

    /// A client calls a session.
    pub(super) fn call(&mut self, client: ClientId, session: &SessionId, call: ClientCall) {
        self.note(|| format!("client {} calls {session}: {call:?}", client.0));
        let request = call.to_rejectable();
        if let Err(error) = self.send(session, Message::Call(client, call))
            && let Some(request) = request
        {
            self.push(client, request.response(&error), Tag::default());
        }
    }

    /// Puts a frame of a session's task into the send queue of a client.
    pub(super) fn push(&mut self, client: ClientId, frame: Frame, tag: Tag) {
        if frame.is_empty() || !self.is_connected(client) {
            return;
        }
        self.note(|| format!("  > client {}: {frame:?}", client.0));
        match frame.kind() {
            FrameKind::Response { id, is_error } => {
                let (id, is_error) = (number(id), *is_error);
                self.check_response(client, id);
                self.note_outcome(client, id, is_error, &frame);
            }
            FrameKind::Updates => self.check_client_was_sent_stored(client, frame.as_str()),
            FrameKind::Cancel(id) => {
                // An answer that crosses this is none to a later request about the same question.
                self.connections.get_mut(&client).map(|to| to.asked.remove(&number(id)));
            }
            FrameKind::Request(_) | FrameKind::Notification | FrameKind::Batch(_) => {}
        }
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.bytes += frame.len();
            connection.queue.push_back((frame, tag));
        }
    }

    /// Notes the response to the sender of a prompt.
    fn note_outcome(&mut self, client: ClientId, id: u64, is_error: bool, frame: &Frame) {
        let made = self.connections.get(&client).and_then(|connection| connection.made.get(&id));
        if let Some(made) = made
            && matches!(made.what, What::Close | What::Other("archive"))
            && let Some(session) = made.session.clone()
        {
            // It may have waited, and then it took prompts along that came later.
            self.ledger.session_ended(&session, "the session was closed or archived");
        }
        let made = self.connections.get(&client).and_then(|connection| connection.made.get(&id));
        let token = match made.map(|made| made.what.clone()) {
            Some(What::Prompt(token)) => token,
            Some(What::Steer(token)) => return self.note_steer_outcome(token, is_error, frame),
            Some(What::New | What::Attach(_) | What::Close | What::Other(_)) | None => return,
        };
        self.check_withdrawal(token, frame);
        let is_cancelled = frame.as_str().contains(r#""stopReason":"cancelled""#);
        let is_accepted = !is_error && !is_cancelled;
        self.count(if is_accepted { "prompts accepted" } else { "prompts refused" });
        if let Some(prompt) = self.ledger.prompts.get_mut(&token) {
            prompt.stage = if is_accepted { PromptStage::Accepted } else { PromptStage::Refused };
        }
    }

    /// Sends a request of an agent to a client; returns its id unless too many are open.
    pub(super) fn ask_client(
        &mut self,
        session: &SessionId,
        incarnation: u64,
        client: ClientId,
        asked: ClientRequestId,
        method: &str,
        params: &Object,
    ) -> Option<u64> {
        let connection = self.connections.get_mut(&client)?;
        if connection.asked.len() >= MAX_ASKED {
            return None;
        }
        let request =
            PeerRequest { session: session.clone(), incarnation, id: asked, method: method.to_owned() };
        let is_same = |open: &PeerRequest| open.id.peer_request == asked.peer_request;
        let is_open = |open: &&PeerRequest| open.incarnation == incarnation && is_same(open);
        if connection.asked.values().find(is_open).is_some() {
            self.fail(
                Invariant::PeerRequests,
                format!("client {} is sent {method} ({asked:?}) of {session} twice", client.0),
            );
        }
        let connection = self.connections.get_mut(&client)?;
        connection.next_asked += 1;
        let id = connection.next_asked;
        connection.asked.insert(id, request);
        self.push(client, Frame::request(&RequestId::from(id), method, params), Tag::default());
        Some(id)
    }

    /// A client answers a request of an agent.
    pub(super) fn answer(&mut self, client: ClientId, id: u64, answer: Answer) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let person = connection.person;
        self.people[person].requests.remove(&id);
        let Some(request) = self.connections.get_mut(&client).and_then(|to| to.asked.remove(&id)) else {
            return;
        };
        self.note(|| format!("client {} answers request {id}: {answer:?}", client.0));
        let answered = Event::Answered { request: request.id, by: client, answer };
        let _ = self.send_to(&request.session, request.incarnation, Message::Event(answered));
    }

    /// A client reads up to `count` frames.
    pub(super) fn read(&mut self, client: ClientId, count: usize) {
        for _ in 0..count {
            let Some(connection) = self.connections.get_mut(&client) else { return };
            let Some((frame, tag)) = connection.queue.pop_front() else { break };
            connection.bytes -= frame.len();
            self.note(|| format!("client {} reads {} bytes", client.0, frame.len()));
            self.take_frame(client, &frame, tag);
        }
        let room = self.plan.room;
        let Some(connection) = self.connections.get_mut(&client) else { return };
        if connection.bytes < room {
            for (session, incarnation) in std::mem::take(&mut connection.drains) {
                let _ = self.send_to(&session, incarnation, Message::Event(Event::Drained(client)));
            }
        }
    }

    fn take_frame(&mut self, client: ClientId, frame: &Frame, tag: Tag) {
        let Some(person) = self.connections.get(&client).map(|connection| connection.person) else { return };
        match frame.kind() {
            FrameKind::Updates => {
                for line in frame.as_str().lines() {
                    let value: Value = serde_json::from_str(line).unwrap_or_default();
                    let Some(session) = value["params"]["sessionId"].as_str().map(SessionId::from) else {
                        continue;
                    };
                    let update = &value["params"]["update"];
                    if let (Some(alias), Some(message)) =
                        (update["messageId"].as_str(), update["_meta"]["parlor/replaces"].as_str())
                    {
                        let aliases = self.people[person].aliases.entry(session.clone()).or_default();
                        aliases.insert(alias.to_owned(), MessageId::from(message));
                    }
                    let replica = self.people[person].replica(&session);
                    if let Some(problem) = replica.update(line, &value, tag) {
                        let message = format!("client {} in {session}: {problem}: {line}", client.0);
                        self.fail(Invariant::Order, message);
                    }
                }
            }
            FrameKind::Request(id) => {
                let request = self.connections.get(&client).and_then(|to| to.asked.get(&number(id)));
                if let Some(request) = request.cloned() {
                    self.people[person].requests.insert(number(id), request);
                }
            }
            FrameKind::Cancel(id) => {
                self.people[person].requests.remove(&number(id));
                if let Some(connection) = self.connections.get_mut(&client) {
                    connection.asked.remove(&number(id));
                }
            }
            FrameKind::Response { id, is_error } => {
                self.take_response(client, person, number(id), *is_error, (frame, tag));
            }
            FrameKind::Notification | FrameKind::Batch(_) => {}
        }
    }

    fn take_response(
        &mut self,
        client: ClientId,
        person: usize,
        id: u64,
        is_error: bool,
        (frame, tag): (&Frame, Tag),
    ) {
        let made = self.connections.get_mut(&client).and_then(|connection| connection.made.get_mut(&id));
        let Some(made) = made else { return };
        made.is_read = true;
        let (session, what) = (made.session.clone(), made.what.clone());
        let value: Value = serde_json::from_str(frame.as_str()).unwrap_or_default();
        let result = &value["result"];
        match (what, session) {
            (What::New, _) if !is_error => {
                let Some(session) = result["sessionId"].as_str().map(SessionId::from) else { return };
                let is_attached = result["_meta"].get("parlor/fork").is_none_or(|fork| fork == "native");
                let replica = self.people[person].replica(&session);
                // The response to a later request to be attached says what the client knows from then on.
                if is_attached && !replica.is_attaching() {
                    replica.attach(id, From::Start);
                    replica.attached(id, result, tag, None);
                    replica.floor = if result["_meta"].get("parlor/fork").is_some() {
                        result["_meta"]["parlor/seq"].as_u64().unwrap_or(u64::MAX)
                    } else {
                        0
                    };
                }
            }
            (What::Attach(from), Some(session)) => {
                let floor = match &from {
                    From::Message(id) => self.created_before(&session, id),
                    From::Start | From::Now | From::After(_) => None,
                };
                let replica = self.people[person].replica(&session);
                if is_error {
                    replica.refused(id);
                } else {
                    replica.attached(id, result, tag, floor);
                }
            }
            (What::Close, Some(session)) => self.people[person].replica(&session).closed(),
            (
                What::New | What::Attach(_) | What::Prompt(_) | What::Steer(_) | What::Close | What::Other(_),
                _,
            ) => {}
        }
    }

    /// The change before a message was created.
    fn created_before(&self, session: &SessionId, message: &str) -> Option<u64> {
        let transcript = self.shells.get(session)?.machine.transcript();
        let find = |role| transcript.get(&EntryId::Message(role, message.into()));
        let entry = [Role::User, Role::Agent, Role::Thought].into_iter().find_map(find)?;
        Some(entry.created() - 1)
    }
}
