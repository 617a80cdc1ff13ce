//! Sessions that only the agent knows, taken over when somebody wants to see them.
//!
//! The agent tells the whole session while nobody else hears it; when it has finished, all of it is stored at once, and
//! from then on the session is one like any other. If it cannot be had, nothing was stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parlor_dialect::{Dialect, Losses, live};
use parlor_json::Object;
use parlor_session::{SessionId, Transcript};
use parlor_store::SessionRow;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::mpsc;

use super::begin;
use crate::agent::{Agent, Offer};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::{AgentChoice, Shared, no_session};
use crate::json;
use crate::known;
use crate::session::{self, Bound, INBOX, Inbox, MOST_SILENCE, Message, Replay, SILENCE};
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
    id: &RequestId,
    params: &Object,
    session: &SessionId,
    message: Message,
) {
    let handed = async {
        hub.open_or(session, async || adopt(hub, client, session, params).await).await?;
        hub.send(session, message).await
    };
    if let Err(error) = handed.await {
        client.outbox.push(json::error(id, &error).into());
    }
}

/// Takes over a session of an agent's.
async fn adopt(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &SessionId,
    params: &Object,
) -> Result<Inbox, RpcError> {
    let literal = id.as_json().as_literal().to_owned();
    let (config, listed) = agent_of(hub, client, &literal).await?;
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
    let cwd = json::text(params, "cwd").filter(|cwd| cwd.starts_with('/'));
    let cwd = cwd.or_else(|| listed.as_ref().map(|row| row.cwd.clone())).unwrap_or_else(|| "/".to_owned());
    let agent = hub.registry().get(&config, Some(&client.peer), cwd.as_ref(), id).await;
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
    let (lines, rest, result) = told(&agent, client.dialect(), id, &params, listed.is_some()).await?;
    let now = session::now();
    let mut data = begin::data(client, params, agent.dialect);
    if matches!(&client.peer.agent, Some(AgentChoice::Command(command)) if *command != config.command) {
        data.remove("command");
    }
    let row = SessionRow {
        cwd,
        created_at: listed.as_ref().map_or(now, |row| row.created_at).max(1),
        active_at: now,
        data: data.to_json().as_str().to_owned(),
        ..row
    };
    let mut replay = Replay { lines: Vec::with_capacity(lines.len() + 1), rest };
    if let Some(title) = listed.and_then(|row| row.title) {
        // What the agent lists is what it says first.
        let update = format!(r#"{{"sessionUpdate":"session_info_update","title":{title}}}"#);
        replay.lines.push(live::update_line(id, &update, None));
    }
    replay.lines.extend(lines);
    let opened = Opened { row, transcript: Transcript::default(), kept: None, answers: None, aliases: None };
    let bound = Bound { agent, session: id.clone(), replays: false, anew: false, result: Object::default() };
    hub.note_peer(id, &client.peer);
    Ok(session::start(Arc::clone(hub), opened, Some((bound, result)), Some(replay)))
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
            let own = lists.of_agent(&key)?.iter().find(|row| row.id == id).cloned();
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
    dialect: Dialect,
    id: &SessionId,
    params: &Object,
    is_listed: bool,
) -> Result<(Vec<String>, mpsc::Receiver<Message>, Object), RpcError> {
    let mut losses = Losses::default();
    let converted = live::request_to_agent("session/new", params, dialect, agent.dialect, None, &mut losses);
    let (_, mut params) =
        converted.map_err(|loss| why(id, &format!("the agent cannot be told this: {loss}")))?;
    params.set("sessionId", id.as_json());
    let method = match agent.dialect {
        Dialect::V1 if agent.offers(Offer::Load) => "session/load",
        Dialect::V1 => return Err(why(id, "the agent cannot load sessions")),
        Dialect::V2 | Dialect::Draft => {
            params.set("replayFrom", json::json(r#"{"type":"start"}"#));
            "session/resume"
        }
    };
    let (inbox, mut heard) = mpsc::channel(INBOX);
    agent.forget_orphans(id);
    agent.link(id, &inbox);
    let done = hear(agent, method, &params, &mut heard).await;
    let told = done.map_err(|error| match error.code() {
        code::AUTH_REQUIRED => error,
        _ => why(id, error.message()),
    });
    let told = told.and_then(|(lines, result)| {
        let another = json::session_of(&result).is_some_and(|other| other != *id);
        // Some agents answer for any id.
        if another || (lines.is_empty() && !is_listed) {
            return Err(why(id, "the agent knows nothing of it"));
        }
        Ok((lines, result))
    });
    match told {
        Ok((lines, result)) => Ok((lines, heard, result)),
        Err(error) => {
            agent.unlink(id);
            Err(error)
        }
    }
}

/// Asks, and hears all that the agent says until it has answered and been silent for a while.
async fn hear(
    agent: &Agent,
    method: &str,
    params: &Object,
    heard: &mut mpsc::Receiver<Message>,
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
                Some(Message::Lines(more, _)) => {
                    bytes += more.len();
                    if bytes > MAX_REPLAY {
                        let message = "the session is larger than can be taken over";
                        return Err(RpcError::new(code::INTERNAL_ERROR, message));
                    }
                    lines.push(more);
                }
                Some(Message::AgentGone(error)) => return Err(error),
                Some(Message::AgentAsks { id, .. }) => {
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
            () = tokio::time::sleep_until(until.into()) => return match answer {
                Some((result, _)) => Ok((lines, result)),
                None => Err(RpcError::new(code::INTERNAL_ERROR, "the agent does not answer")),
            },
        }
    }
}

/// The error for a session that cannot be had, and why.
fn why(id: &SessionId, reason: &str) -> RpcError {
    let mut data = Object::default();
    data.set("sessionId", id.as_json());
    data.set("reason", json::string(reason));
    RpcError::new(code::RESOURCE_NOT_FOUND, "there is no such session").with_data(data.to_json())
}
