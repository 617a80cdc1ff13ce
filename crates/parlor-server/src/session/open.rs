//! Sessions that begin, and sessions that go on.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parlor_dialect::{Decoder, Dialect, Losses, live};
use parlor_engine::{IdGen, InfoThrottle, Now, SessionConfig};
use parlor_json::{JsonStr, Object};
use parlor_session::session::{Input, Session, Step};
use parlor_session::{SessionId, UnixMillis, Unsaved};
use parlor_store::SessionRow;
use parlor_wire::{RpcError, code};
use tokio::sync::mpsc;

use super::aliases::Aliases;
use super::restore::Bound;
use super::tell::Groups;
use super::words::Unworded;
use super::{Actor, AgentEpoch, Due, INBOX, Inbox, new_id, now};
use crate::hub::Shared;
use crate::json;
use crate::stored::{self, Opened, dialect_of};

/// Starts the task of a session. `agent` is there if the session has just begun, and `replay`, the updates that the agent
/// told, if it began elsewhere.
pub(crate) fn start(
    hub: Arc<Shared>,
    opened: Opened,
    agent: Option<(Bound, Object)>,
    replay: Option<Vec<String>>,
) -> Inbox {
    let (me, inbox) = mpsc::channel(INBOX);
    let Opened { row, transcript, kept, aliases, opened } = opened;
    let id = SessionId::from(JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)));
    let dialect = dialect_of(&row).unwrap_or(Dialect::V1);
    let next_prompt = kept.as_ref().and_then(highest_prompt).map_or(1, |id| id + 1);
    let was_busy = row.busy;
    let is_new = agent.is_some();
    let unworded = if was_busy { Unworded::of_last_turn(&transcript) } else { Unworded::default() };
    let mut share = hub.resident().share();
    share.set(transcript.bytes());
    let session = Session::new(transcript, live::WORDS, kept.as_ref());
    let mut actor = Actor {
        config: config_of(&hub, &row),
        hub,
        id,
        inbox,
        me: me.clone(),
        // Who joins is told of these; from then on it is told of what changes.
        held: session.held(),
        session,
        agents_time: stored::updated_at(&row),
        row,
        row_stored: None,
        row_written: Duration::ZERO,
        decoder: Decoder::new(dialect),
        throttle: InfoThrottle::new(Duration::ZERO),
        started: Instant::now(),
        now: Now { monotonic: Duration::ZERO, wall: UnixMillis(now()) },
        ids: IdGen::new(new_id),
        timers: Vec::new(),
        stream: None,
        agent: None,
        ties: HashMap::new(),
        commands: Vec::new(),
        epoch: AgentEpoch::NONE,
        starting: None,
        refused_settings: None,
        hand_over: false,
        handed: None,
        terminals: None,
        file_requests: HashMap::new(),
        seats: BTreeMap::new(),
        clients: HashMap::new(),
        sends: Vec::new(),
        requests: HashMap::new(),
        leaving: super::Leaving::default(),
        pending: VecDeque::new(),
        prompts: HashMap::new(),
        unasked: HashSet::new(),
        sent: HashMap::new(),
        next_prompt,
        held_changed: false,
        questions: HashMap::new(),
        next_question: 0,
        lookers: Vec::new(),
        forks: Vec::new(),
        fork_starts: Vec::new(),
        waiting_forks: Vec::new(),
        waiting_calls: Vec::new(),
        passed_on: HashMap::new(),
        unsettled: Vec::new(),
        aliases: Aliases::restored(aliases.as_deref()),
        unsaved: Unsaved::default(),
        unworded,
        due: Due { row: is_new, kept: false, aliases: false, opened: false, durable: is_new },
        owed: Vec::new(),
        retitled: false,
        relayed: Vec::new(),
        opened: opened.unwrap_or_default(),
        effects: Vec::new(),
        groups: Groups::default(),
        room: Step::default(),
        losses: Losses::default(),
        last_active: Duration::ZERO,
        share,
        stored: 0,
        ends: None,
    };
    if was_busy {
        let error = RpcError::new(code::INTERNAL_ERROR, "parlor was stopped in the middle of the turn");
        actor.step(Input::AgentGone(live::failed_state(&error)));
        // Whatever its last state says, no turn runs.
        actor.due.row |= std::mem::take(&mut actor.row.busy);
    }
    let linked = agent.as_ref().map(|(bound, _)| actor.relink(&bound.tie));
    tokio::spawn(async move {
        if let Some((bound, result)) = agent {
            actor.begin(bound, &result, replay).await;
        }
        if let Some(Err(error)) = linked {
            actor.agent_gone(&error);
        }
        // What was learned on the way is stored before anybody can see it.
        actor.finish_batch();
        if let Err(failed) = actor.store().await {
            actor.fail(&failed);
            actor.leave().await;
            return;
        }
        actor.release_output();
        Box::pin(actor.run()).await;
    });
    me
}

/// How a session behaves, by the configuration of its agent.
fn config_of(hub: &Shared, row: &SessionRow) -> SessionConfig {
    let agent = hub.config_of(row);
    SessionConfig {
        cancel_timeout: agent.as_ref().map(|agent| agent.cancel_timeout),
        is_embedded: agent.is_some_and(|agent| agent.local.is_some()),
    }
}

impl Actor {
    /// A session that has just begun has its agent.
    async fn begin(&mut self, mut bound: Bound, result: &Object, replay: Option<Vec<String>>) {
        let mut rest = bound.rest.take();
        self.decoder = Decoder::new(bound.tie.agent.about.dialect);
        if let Some(replay) = replay {
            // What the agent told of the session before it was one of ours.
            replay.iter().for_each(|lines| self.lines(lines));
            if let Some(rest) = rest.take() {
                self.take_rest(rest).await;
            }
            self.flush_info();
            self.decoder.turn_boundary();
        }
        self.learn(result);
        self.note_opened(result);
        for update in bound.settings.updates(self.session.transcript()) {
            self.step(Input::Noted(update));
        }
        let refused = bound.refused.take();
        self.set_refused(refused);
        self.bind(bound, false, rest).await;
    }
}

fn highest_prompt(kept: &Object) -> Option<u64> {
    let held = parlor_json::elements(kept.get("held")?.raw())?;
    held.into_iter().filter_map(|held| json::object(Some(held)).get("id")?.as_str().parse().ok()).max()
}
