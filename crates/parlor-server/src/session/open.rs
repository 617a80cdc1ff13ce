//! Sessions that begin, and sessions that go on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parlor_dialect::{Decoder, Dialect, Losses, live};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Input, Session, Step};
use parlor_session::{SessionId, Unsaved};
use parlor_wire::{RpcError, code};
use tokio::sync::mpsc;

use super::agent::Bound;
use super::tell::Groups;
use super::words::Unworded;
use super::{Actor, Due, INBOX, Inbox};
use crate::hub::Shared;
use crate::json;
use crate::stored::{Opened, dialect_of};

/// Starts the task of a session. `agent` is there if the session has just begun.
pub(crate) fn start(hub: Arc<Shared>, opened: Opened, agent: Option<(Bound, Object)>) -> Inbox {
    let (me, inbox) = mpsc::channel(INBOX);
    let Opened { row, transcript, kept, answers } = opened;
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
        stream: None,
        agent: None,
        starting: None,
        hand_over: false,
        terminals: None,
        seats: BTreeMap::new(),
        leaving: Vec::new(),
        prompts: HashMap::new(),
        sent: HashMap::new(),
        next_prompt,
        held_changed: false,
        questions: HashMap::new(),
        next_question: 0,
        unsaved: Unsaved::default(),
        unworded,
        answers: stored_answers(answers.as_deref()),
        due: Due { row: is_new, kept: false, answers: false, durable: is_new },
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
    if let Some((bound, result)) = agent {
        bound.agent.link(&bound.session, &me);
        actor.learn(&result);
        actor.bind(bound, false);
    }
    tokio::spawn(async move {
        // What was learned on the way is stored before anybody can see it.
        if let Err(failed) = actor.store().await {
            actor.fail(&failed);
            actor.leave().await;
            return;
        }
        actor.act();
        actor.run().await;
    });
    me
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
