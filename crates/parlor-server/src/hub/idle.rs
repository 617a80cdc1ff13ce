//! Which turns are running, and when a server may stop by itself.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parlor_json::JsonStr;
use parlor_session::SessionId;
use parlor_store::{Filter, SessionRow};
use parlor_wire::RpcError;

use super::{Hub, HubState};
use crate::lock;
use crate::stored;

/// A turn that is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningTurn {
    /// The id of its session.
    pub session: String,
    /// The title of its session.
    pub title: Option<String>,
    /// The name of its session for people.
    pub name: Option<String>,
    /// The name of its agent.
    pub agent: String,
}

/// How many running turns are listed.
const MAX_LISTED: usize = 1000;

/// The longest time between two checks whether the server is in use.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl Hub {
    /// Lists the turns that are running.
    pub async fn running_turns(&self) -> Vec<RunningTurn> {
        self.shared.running_turns().await.unwrap_or_default()
    }

    /// Waits until no client has been connected and no turn has run for `timeout`.
    pub async fn wait_until_idle(&self, timeout: Duration) {
        self.shared.idle_exit.store(timeout.as_secs().max(1), Ordering::Relaxed);
        let mut idle_since = Instant::now();
        let mut connections = 0;
        loop {
            tokio::time::sleep((timeout / 4).clamp(Duration::from_millis(50), CHECK_INTERVAL)).await;
            // A client may have come and gone since the last check.
            let connections_before = std::mem::replace(&mut connections, self.shared.connections());
            if connections != connections_before || self.shared.is_in_use().await {
                idle_since = Instant::now();
            }
            if idle_since.elapsed() < timeout {
                continue;
            }
            if !self.shared.has_background_work().await {
                return;
            }
            idle_since = Instant::now();
        }
    }
}

impl HubState {
    /// Lists the turns that are running.
    pub(crate) async fn running_turns(&self) -> Result<Vec<RunningTurn>, RpcError> {
        self.read(|store| {
            let filter = Filter { busy: Some(true), owned: true, ..Filter::default() };
            let rows = store.sessions(&filter, None, MAX_LISTED)?;
            let turn = |row: SessionRow| {
                Ok(RunningTurn {
                    session: JsonStr::from_literal(&row.id)
                        .map_or_else(|| row.id.clone(), |id| id.to_text().into_owned()),
                    title: stored::title(&row).map(|title| title.to_text().into_owned()),
                    name: stored::display_name(store, &row)?,
                    agent: row.agent,
                })
            };
            rows.into_iter().map(turn).collect()
        })
        .await
    }

    /// After how long without clients and turns the server stops.
    pub(crate) fn idle_exit(&self) -> Option<Duration> {
        Some(self.idle_exit.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }

    /// How many clients have connected since the server started.
    fn connections(&self) -> u64 {
        self.next_client.load(Ordering::Relaxed)
    }

    /// Whether a client is connected or a turn is running. If the store cannot tell, a turn may be running.
    async fn is_in_use(&self) -> bool {
        self.clients() > 0 || self.running_turns().await.map_or(true, |turns| !turns.is_empty())
    }

    /// Whether an agent reports work that goes on without a turn.
    async fn has_background_work(&self) -> bool {
        let live: Vec<SessionId> = lock(&self.sessions).keys().cloned().collect();
        for session in live {
            let mailbox = lock(&self.sessions).get(&session).and_then(|cell| cell.get().cloned());
            let Some(mailbox) = mailbox else { continue };
            let (reply, transcript) = tokio::sync::oneshot::channel();
            if mailbox.send(super::SessionMessage::Read { message: None, reply }).await.is_err() {
                continue;
            }
            let Ok(transcript) = transcript.await else { continue };
            if parlor_engine::reports_background(&transcript) {
                return true;
            }
        }
        false
    }
}
