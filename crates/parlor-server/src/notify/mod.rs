//! Notifies the `[[notify]]` targets of the configuration that an agent needs a person, or that a turn has ended or failed.
//!
//! The feed reports changed rows and open requests -> [`Schedule`] of each target (pure: when a notification is due) ->
//! [`NotifyEvent`] (from the store) -> the queue of the target -> `deliver`.

mod deliver;
mod event;
mod schedule;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;
use parlor_wire::RpcError;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use self::deliver::{Delivery, MAX_PENDING};
use self::event::NotifyEvent;
use self::schedule::{DueNotification, LastTurn, Schedule};
use crate::config::NotifyTarget;
use crate::hub::HubState;
use crate::lock;
use crate::stored::SessionData;

/// When the store is read again after an error.
const READ_RETRY: Duration = Duration::from_secs(5);

/// What the task that notifies people has to know: the targets of the configuration in force, and the address of the page.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    state: Mutex<NotifierState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct NotifierState {
    targets: Vec<NotifyTarget>,
    page: Option<String>,
}

/// A target with its schedule and the queue of its pending notifications.
#[derive(Debug)]
struct ScheduledTarget {
    target: Arc<NotifyTarget>,
    schedule: Schedule,
    pending: mpsc::Sender<Delivery>,
}

impl Notifier {
    /// Notifies these targets from now on. Targets that are unchanged keep their schedule.
    pub(crate) fn set_targets(&self, targets: Vec<NotifyTarget>) {
        lock(&self.state).targets = targets;
        self.changed.notify_one();
    }

    /// Sets the address of the page on this machine, for links.
    pub(crate) fn set_page(&self, page: String) {
        lock(&self.state).page = Some(page);
    }
}

impl ScheduledTarget {
    fn start(target: &NotifyTarget, now: i64) -> Self {
        let target = Arc::new(target.clone());
        let (pending, receiver) = mpsc::channel(MAX_PENDING);
        tokio::spawn(deliver::run(Arc::clone(&target), receiver));
        let delay = i64::try_from(target.delay.as_millis()).unwrap_or(i64::MAX);
        Self { target, schedule: Schedule::new(delay, now), pending }
    }

    fn push(&self, event: &NotifyEvent, page: Option<&String>) {
        if !self.target.events.contains(&event.kind) {
            return;
        }
        let event = event.clone();
        let event = if self.target.has_details { event } else { event.without_details() };
        let page = self.target.page.as_ref().or(page).cloned();
        if self.pending.try_send(Delivery { event, page }).is_err() {
            tracing::warn!(target = self.target.name(), "dropped a notification: {MAX_PENDING} are pending");
        }
    }
}

/// Notifies targets until the server ends.
pub(crate) async fn run(shared: Weak<HubState>) {
    let mut targets: Vec<ScheduledTarget> = Vec::new();
    loop {
        let Some(hub) = shared.upgrade() else { return };
        let now = Timestamp::now().as_millisecond();
        set_targets(&mut targets, &hub, now);
        let is_read = update(&mut targets, &hub, now).await;
        let (feed, notifier) = (Arc::clone(hub.feed()), Arc::clone(hub.notifier()));
        drop(hub);
        let retry = (!is_read).then(|| retry_at(now));
        let next = targets.iter().filter_map(|target| target.schedule.next_due()).chain(retry).min();
        let pause =
            next.map(|next| u64::try_from(next - Timestamp::now().as_millisecond()).unwrap_or_default());
        let due = async {
            match pause {
                Some(pause) => sleep(Duration::from_millis(pause)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = feed.watched() => {}
            () = notifier.changed.notified() => {}
            () = due => {}
        }
    }
}

/// Starts the targets that are new and stops those that were removed.
fn set_targets(targets: &mut Vec<ScheduledTarget>, hub: &HubState, now: i64) {
    let wanted = lock(&hub.notifier().state).targets.clone();
    let mut before = std::mem::take(targets);
    for target in wanted {
        let known = before.iter().position(|known| *known.target == target);
        targets.push(
            known.map_or_else(|| ScheduledTarget::start(&target, now), |index| before.swap_remove(index)),
        );
    }
    // Pending notifications of the others are still delivered.
    hub.feed().set_watched(!targets.is_empty());
}

/// Updates the schedules with what has changed, and queues the notifications that are due. Returns whether the changed sessions
/// could be read; if not, they are read again with the next change, or later.
async fn update(targets: &mut [ScheduledTarget], hub: &Arc<HubState>, now: i64) -> bool {
    if targets.is_empty() {
        return true;
    }
    let changed = hub.feed().take_watched();
    let unread = changed.clone();
    let read = hub.read(move |store| {
        let mut turns = Vec::with_capacity(changed.len());
        for session in changed {
            // A person is notified of the turns of sessions, not of those of their subagents.
            let Some(row) = store.session(&session)?.filter(|row| row.owner.is_none()) else { continue };
            let summary = SessionData::of(&row).summary;
            let turn = LastTurn {
                ended_at: summary.last_turn_ended_at,
                has_failed: summary.has_failed,
                is_unread: summary.is_unread() && !row.archived,
                is_running: row.busy,
            };
            turns.push((session, turn));
        }
        Ok(turns)
    });
    let read = read.await;
    let is_read = read.is_ok();
    match read {
        Ok(turns) => {
            for (session, turn) in &turns {
                targets.iter_mut().for_each(|target| target.schedule.on_turn(session, *turn, now));
            }
        }
        Err(error) => {
            tracing::warn!("cannot read sessions for notifications: {}", error.message());
            hub.feed().watch_again(unread);
        }
    }
    let requests = hub.feed().requests();
    let open: Vec<(u64, &str)> =
        requests.iter().map(|(id, listed)| (*id, listed.session.as_json().as_literal())).collect();
    let page = lock(&hub.notifier().state).page.clone();
    for target in targets {
        target.schedule.on_requests(open.iter().copied(), now);
        for due in target.schedule.take_due(now) {
            match read_event(hub, due.clone(), &requests, now).await {
                Ok(event) => event.into_iter().for_each(|event| target.push(&event, page.as_ref())),
                Err(error) => {
                    tracing::warn!("cannot read a session for a notification: {}", error.message());
                    target.schedule.postpone(due, retry_at(now));
                }
            }
        }
    }
    is_read
}

/// When the store is read again after an error.
fn retry_at(now: i64) -> i64 {
    now.saturating_add(i64::try_from(READ_RETRY.as_millis()).unwrap_or(i64::MAX))
}

/// Reads the content of a notification; `None` if the session was deleted.
async fn read_event(
    hub: &Arc<HubState>,
    due: DueNotification,
    requests: &[(u64, crate::feed::ListedRequest)],
    now: i64,
) -> Result<Option<NotifyEvent>, RpcError> {
    let of_session = requests.iter().filter(|(id, _)| due.requests.contains(id)).cloned().collect::<Vec<_>>();
    hub.read(move |store| NotifyEvent::read(store, &due, &of_session, now)).await
}
