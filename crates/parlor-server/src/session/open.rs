//! Sessions that begin, and sessions that go on.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parlor_dialect::{Decoder, Dialect, Losses, live};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Input, Session, Step};
use parlor_session::{SessionId, Unsaved};
use parlor_wire::{RpcError, code};
use tokio::sync::mpsc;

use super::agent::Bound;
use super::aliases::Aliases;
use super::bursts::Bursts;
use super::tell::Groups;
use super::words::Unworded;
use super::{Actor, Due, INBOX, Inbox, Message};
use crate::hub::Shared;
use crate::json;
use crate::stored::{Opened, dialect_of};

/// What an agent told of a session that only it knew.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Its updates.
    pub(crate) lines: Vec<String>,
    /// What it may have said since.
    pub(crate) rest: mpsc::Receiver<Message>,
}

/// Starts the task of a session. `agent` is there if the session has just begun, and `replay` if it began elsewhere.
pub(crate) fn start(
    hub: Arc<Shared>,
    opened: Opened,
    agent: Option<(Bound, Object)>,
    replay: Option<Replay>,
) -> Inbox {
    let (me, inbox) = mpsc::channel(INBOX);
    let Opened { row, transcript, kept, answers, aliases } = opened;
    let id = SessionId::from(JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)));
    let dialect = dialect_of(&row).unwrap_or(Dialect::V1);
    let next_prompt = kept.as_ref().and_then(highest_prompt).map_or(1, |id| id + 1);
    let was_busy = row.busy;
    let is_new = agent.is_some();
    let unworded = if was_busy { Unworded::of_last_turn(&transcript) } else { Unworded::default() };
    let session = Session::new(transcript, live::WORDS, kept.as_ref());
    let mut actor = Actor {
        hub,
        id,
        inbox,
        me: me.clone(),
        // Who joins is told of these; from then on it is told of what changes.
        held: session.held(),
        session,
        row,
        row_stored: None,
        row_written: Instant::now(),
        decoder: Decoder::new(dialect),
        bursts: Bursts::new(Instant::now()),
        stream: None,
        agent: None,
        starting: None,
        hand_over: false,
        handed: None,
        terminals: None,
        seats: BTreeMap::new(),
        leaving: Vec::new(),
        prompts: HashMap::new(),
        unasked: HashSet::new(),
        sent: HashMap::new(),
        next_prompt,
        held_changed: false,
        questions: HashMap::new(),
        next_question: 0,
        lookers: Vec::new(),
        forks: Vec::new(),
        waiting_forks: Vec::new(),
        waiting_calls: Vec::new(),
        passed_on: HashMap::new(),
        unsettled: Vec::new(),
        aliases: Aliases::restored(aliases.as_deref()),
        unsaved: Unsaved::default(),
        unworded,
        answers: stored_answers(answers.as_deref()),
        due: Due { row: is_new, kept: false, answers: false, aliases: false, durable: is_new },
        owed: Vec::new(),
        retitled: false,
        effects: Vec::new(),
        groups: Groups::default(),
        room: Step::default(),
        losses: Losses::default(),
        last_active: Instant::now(),
        stored: 0,
        ends: None,
    };
    if was_busy {
        let error = RpcError::new(code::INTERNAL_ERROR, "parlor was stopped in the middle of the turn");
        actor.step(Input::AgentGone(live::failed_state(&error)));
    }
    if let Some((bound, _)) = &agent {
        bound.agent.link(&bound.session, &me);
    }
    tokio::spawn(async move {
        if let Some((bound, result)) = agent {
            if let Some(replay) = replay {
                actor.decoder = Decoder::new(bound.agent.dialect);
                actor.record(replay).await;
            }
            actor.learn(&result);
            actor.bind(bound, false);
        }
        // What was learned on the way is stored before anybody can see it.
        if let Err(failed) = actor.store().await {
            actor.fail(&failed);
            actor.leave().await;
            return;
        }
        actor.act();
        Box::pin(actor.run()).await;
    });
    me
}

impl Actor {
    /// Takes what an agent told of the session before it was one of ours.
    async fn record(&mut self, Replay { lines, mut rest }: Replay) {
        lines.iter().for_each(|lines| self.lines(lines));
        // From here on the agent speaks to the session itself.
        rest.close();
        while let Some(message) = rest.recv().await {
            self.take(message);
        }
        self.flush_info();
        self.decoder.turn_boundary();
    }
}

fn stored_answers(stored: Option<&str>) -> VecDeque<String> {
    let list = stored.and_then(|stored| Json::parse(stored).ok());
    let list = list.as_ref().and_then(|list| parlor_json::elements(list.raw())).unwrap_or_default();
    list.into_iter().map(|answer| answer.get().to_owned()).collect()
}

fn highest_prompt(kept: &Object) -> Option<u64> {
    let held = parlor_json::elements(kept.get("held")?.raw())?;
    held.into_iter().filter_map(|held| json::object(Some(held)).get("id")?.as_str().parse().ok()).max()
}
