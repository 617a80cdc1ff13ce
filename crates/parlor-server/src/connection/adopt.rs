//! Sessions that only the agent knows, taken over when somebody wants to see them.
//!
//! The agent tells the whole session while nobody else hears it; when it has finished, all of it is stored at once, and
//! from then on the session is one like any other. If it cannot be had, nothing was stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parlor_dialect::{Dialect, Losses, live};
use parlor_engine::Capability;
use parlor_json::Object;
use parlor_session::{SessionId, Transcript};
use parlor_store::SessionRow;
use parlor_wire::{RpcError, code};
use tokio::sync::mpsc;

use super::begin;
use crate::agent::{Agent, Cancel, Rest, Startup, Tie, cancelled};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::{AgentChoice, Shared, no_session};
use crate::json;
use crate::known;
use crate::session::{
    self, AgentMessage, Bound, INBOX, Inbox, Link, MOST_SILENCE, Message, SILENCE, next_epoch,
};
use crate::stored::{self, Opened};

/// How long an agent that has not answered may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much an agent may tell of a session.
const MAX_REPLAY: usize = 256 << 20;

/// Whether a session is one that only an agent is known to have.
pub(super) async fn is_foreign(hub: &Arc<Shared>, id: &SessionId) -> Result<bool, RpcError> {
    if hub.is_live(id) {
        return Ok(false);
    }
    let key = id.as_json().as_literal().to_owned();
    hub.read(move |store| {
        Ok(store.session(&key)?.is_none() && known::of_all(store)?.iter().any(|row| row.id == key))
    })
    .await
}

/// A client has something for a session that nobody here knows. The params are those of its request.
pub(super) async fn hand_over(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    params: &Object,
    session: &SessionId,
    message: Message,
    cancel: Cancel,
) -> Result<(), RpcError> {
    hub.open_or(session, async || adopt(hub, client, session, params, cancel).await).await?;
    hub.send(session, message).await
}

/// Takes over a session of an agent's.
async fn adopt(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &SessionId,
    params: &Object,
    cancel: Cancel,
) -> Result<Inbox, RpcError> {
    let literal = id.as_json().as_literal().to_owned();
    let (config, listed) = agent_of(hub, client, &literal).await?;
    // One inside this process has no sessions but those that are here.
    if config.local.is_some() {
        return Err(no_session(id));
    }
    let row = known::row(&config.name, &{
        let mut info = Object::default();
        info.set("sessionId", id.as_json());
        info.set("cwd", json::string("/"));
        info
    });
    let row = row.ok_or_else(|| no_session(id))?;
    let is_kept = {
        let row = row.clone();
        hub.read(move |store| known::is_kept(store, &row)).await?
    };
    if is_kept {
        return Err(why(id, "the session has another id here"));
    }
    let named = json::absolute(params, "cwd");
    let is_placed = named.is_some();
    let cwd = named.or_else(|| listed.as_ref().map(|row| row.cwd.clone())).unwrap_or_else(|| "/".to_owned());
    let startup = Startup::new(config.startup_timeout);
    let agent = hub.registry().get(&config, Some(&client.peer), cwd.as_ref(), id, startup).await;
    let agent = agent.map_err(|error| why(id, error.message()))?;
    agent.add_client(client);
    let mut params = params.clone();
    for name in ["sessionId", "replayFrom", "_meta"] {
        params.remove(name);
    }
    params.set("cwd", json::string(&cwd));
    if params.get("mcpServers").is_none() {
        params.set("mcpServers", json::json("[]"));
    }
    let mut losses = Losses::default();
    let agents_params = live::request_to_agent(
        "session/new",
        &params,
        client.dialect(),
        agent.about.dialect,
        None,
        &mut losses,
    );
    let (_, agents_params) =
        agents_params.map_err(|loss| why(id, &format!("the agent cannot be told this: {loss}")))?;
    let (told, tie, rest, result) = told(&agent, id, agents_params, listed.is_some(), cancel).await?;
    hub.losses().count(id, losses);
    let now = session::now();
    let mut data = begin::data(client, params, agent.about.dialect);
    if matches!(&client.peer.agent, Some(AgentChoice::Command(command)) if *command != config.command) {
        data.remove("command");
    }
    if !is_placed {
        data.set(session::UNPLACED, json::json("true"));
    }
    let row = SessionRow {
        cwd,
        created_at: listed.as_ref().map_or(now, |row| row.created_at).max(1),
        active_at: now,
        data: data.to_json().as_str().to_owned(),
        ..row
    };
    let mut lines = Vec::with_capacity(told.len() + 1);
    if let Some(title) = listed.and_then(|row| row.title) {
        // What the agent lists is what it says first.
        let update = format!(r#"{{"sessionUpdate":"session_info_update","title":{title}}}"#);
        lines.push(live::update_line(id, &update, None));
    }
    lines.extend(told);
    let opened = Opened { row, transcript: Transcript::default(), kept: None, aliases: None, opened: None };
    let bound = Bound::adopted(tie, rest);
    hub.note_peer(id, &client.peer);
    Ok(session::start(Arc::clone(hub), opened, Some((bound, result)), Some(lines)))
}

/// The agent that is asked for a session, and how it lists it: one that has it in its list, else the client's own.
async fn agent_of(
    hub: &Arc<Shared>,
    client: &Client,
    id: &str,
) -> Result<(AgentConfig, Option<SessionRow>), RpcError> {
    let chosen = begin::config(hub, client)?;
    let (lists, key, id) = (Arc::clone(&hub.registry().lists), stored::key_of(&chosen), id.to_owned());
    let (own, other) = hub
        .read(move |store| {
            let own = lists.of_agent(store, &key)?.iter().find(|row| row.id == id).cloned();
            let other = match own {
                Some(_) => None,
                None => known::of_all(store)?.into_iter().find(|row| row.id == id),
            };
            Ok((own, other))
        })
        .await?;
    let others = other.and_then(|row| Some((hub.registry().agents.get(&row.agent)?.clone(), Some(row))));
    Ok(match own {
        Some(_) => (chosen, own),
        None => others.unwrap_or((chosen, None)),
    })
}

/// Lets the agent tell a session from its start: the lines that it said, those that may still come, and its answer.
async fn told(
    agent: &Arc<Agent>,
    id: &SessionId,
    mut params: Object,
    is_listed: bool,
    cancel: Cancel,
) -> Result<(Vec<String>, Tie, Rest, Object), RpcError> {
    params.set("sessionId", id.as_json());
    let method = match agent.about.dialect {
        Dialect::V1 if agent.about.has(Capability::Load) => "session/load",
        Dialect::V1 => return Err(why(id, "the agent cannot load sessions")),
        Dialect::V2 | Dialect::Draft => {
            params.set("replayFrom", json::json(r#"{"type":"start"}"#));
            "session/resume"
        }
    };
    let (inbox, mut heard) = mpsc::channel(INBOX);
    agent.forget_orphans(id);
    let epoch = next_epoch();
    agent.link(id, &Link { inbox, epoch, is_session: false }).map_err(|error| why(id, error.message()))?;
    // Should nothing come of it, dropping this lets go of the session.
    let tie = Tie { agent: Arc::clone(agent), session: id.clone(), epoch };
    let done = hear(agent, method, &params, &mut heard, cancel).await;
    let told = done.map_err(|error| match error.code() {
        code::AUTH_REQUIRED | code::REQUEST_CANCELLED => error,
        _ => why(id, error.message()),
    });
    let told = told.and_then(|(lines, result)| {
        let another = json::session_of(&result).is_some_and(|other| other != *id);
        // Some agents answer for any id.
        if another || !(is_listed || has_history(&lines)) {
            return Err(why(id, "the agent knows nothing of it"));
        }
        Ok((lines, result))
    });
    told.map(|(lines, result)| (lines, tie, Rest { kept: Vec::new(), messages: heard }, result))
}

/// Asks, and hears all that the agent says until it has answered and been silent for a while.
async fn hear(
    agent: &Agent,
    method: &str,
    params: &Object,
    heard: &mut mpsc::Receiver<Message>,
    mut cancel: Cancel,
) -> Result<(Vec<String>, Object), RpcError> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    let mut call = std::pin::pin!(agent.call(method, params));
    let mut answer: Option<(Object, Instant)> = None;
    loop {
        let now = Instant::now();
        let until = answer.as_ref().map_or(now + PATIENCE, |(_, at)| (now + SILENCE).min(*at + MOST_SILENCE));
        tokio::select! {
            biased;
            message = heard.recv() => match message {
                Some(Message::Agent(_, AgentMessage::Lines(more, _))) => {
                    bytes += more.len();
                    if bytes > MAX_REPLAY {
                        let message = "the session is larger than can be taken over";
                        return Err(RpcError::new(code::INTERNAL_ERROR, message));
                    }
                    lines.push(more);
                }
                Some(Message::Agent(_, AgentMessage::Gone(error))) => return Err(error),
                Some(Message::Agent(_, AgentMessage::Asks { id, .. })) => {
                    let error = RpcError::new(code::METHOD_NOT_FOUND, "nobody is here yet to answer");
                    agent.answer(&id, &Err(json::error_object(&error)));
                }
                Some(_) => {}
                None => return Err(agent.error()),
            },
            reply = &mut call, if answer.is_none() => {
                let result = reply.map_err(|error| RpcError::from_raw(error.raw()))?;
                answer = Some((json::object(Some(result.raw())), Instant::now()));
            }
            () = cancel.wait() => return Err(cancelled()),
            () = tokio::time::sleep_until(until.into()) => return match answer {
                Some((result, _)) => Ok((lines, result)),
                None => Err(RpcError::new(code::INTERNAL_ERROR, "the agent does not answer")),
            },
        }
    }
}

/// Whether any of these updates is part of a conversation, and not only of what any session has.
fn has_history(lines: &[String]) -> bool {
    let is_history = |line: &str| {
        live::update_kind(line).is_some_and(|kind| {
            !matches!(
                kind.as_str(),
                "available_commands_update"
                    | "config_option_update"
                    | "current_mode_update"
                    | "usage_update"
                    | "state_update"
                    | "state_change"
            )
        })
    };
    lines.iter().flat_map(|lines| lines.lines()).any(is_history)
}

/// The error for a session that cannot be had, and why.
fn why(id: &SessionId, reason: &str) -> RpcError {
    let mut data = Object::default();
    data.set("sessionId", id.as_json());
    data.set("reason", json::string(reason));
    RpcError::new(code::RESOURCE_NOT_FOUND, "there is no such session").with_data(data.to_json())
}
