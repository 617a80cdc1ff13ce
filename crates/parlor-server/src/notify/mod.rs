//! Tells the `[[notify]]` targets of the configuration that an agent needs a person, or that a turn has ended or failed.
//!
//! The feed reports changed rows and open requests -> [`Schedule`] of each target (pure: when is it told) -> [`NotifyEvent`] (from the
//! store) -> the queue of the target -> `deliver`.

mod deliver;
mod event;
mod schedule;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use self::deliver::{Delivery, MAX_WAITING};
use self::event::NotifyEvent;
use self::schedule::{DueNotice, LastTurn, Schedule};
use crate::config::NotifyTarget;
use crate::hub::HubState;
use crate::lock;
use crate::stored::SessionData;

/// The targets of the configuration in force.
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

/// A target with what it has to be told.
#[derive(Debug)]
struct ScheduledTarget {
    target: Arc<NotifyTarget>,
    schedule: Schedule,
    waiting: mpsc::Sender<Delivery>,
}

impl Notifier {
    /// Tells these targets from here on. Those that were told before keep what they have to be told.
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
        let (waiting, receiver) = mpsc::channel(MAX_WAITING);
        tokio::spawn(deliver::run(Arc::clone(&target), receiver));
        let delay = i64::try_from(target.delay.as_millis()).unwrap_or(i64::MAX);
        Self { target, schedule: Schedule::new(delay, now), waiting }
    }

    fn push(&self, event: &NotifyEvent, page: Option<&String>) {
        if !self.target.events.contains(&event.kind) {
            return;
        }
        let event = event.clone();
        let event = if self.target.has_details { event } else { event.without_details() };
        let page = self.target.page.as_ref().or(page).cloned();
        if self.waiting.try_send(Delivery { event, page }).is_err() {
            tracing::warn!(target = self.target.name(), "cannot notify: {MAX_WAITING} events wait already");
        }
    }
}

/// Tells targets until the server ends.
pub(crate) async fn run(shared: Weak<HubState>) {
    let mut targets: Vec<ScheduledTarget> = Vec::new();
    loop {
        let Some(hub) = shared.upgrade() else { return };
        let now = Timestamp::now().as_millisecond();
        set_targets(&mut targets, &hub, now);
        update(&mut targets, &hub, now).await;
        let (feed, notifier) = (Arc::clone(hub.feed()), Arc::clone(hub.notifier()));
        drop(hub);
        let next = targets.iter().filter_map(|target| target.schedule.next_due()).min();
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
    // What waits for the others is still delivered.
    hub.feed().set_watched(!targets.is_empty());
}

/// Takes over what has changed, and passes on what is due.
async fn update(targets: &mut [ScheduledTarget], hub: &Arc<HubState>, now: i64) {
    if targets.is_empty() {
        return;
    }
    let changed = hub.feed().take_watched();
    let read = hub.read(move |store| {
        let mut turns = Vec::with_capacity(changed.len());
        for session in changed {
            let Some(row) = store.session(&session)? else { continue };
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
    match read.await {
        Ok(turns) => {
            for (session, turn) in &turns {
                targets.iter_mut().for_each(|target| target.schedule.on_turn(session, *turn, now));
            }
        }
        Err(error) => tracing::warn!("cannot read sessions for notifications: {}", error.message()),
    }
    let requests = hub.feed().requests();
    let open: Vec<(u64, &str)> =
        requests.iter().map(|(id, listed)| (*id, listed.session.as_json().as_literal())).collect();
    let page = lock(&hub.notifier().state).page.clone();
    for target in targets {
        target.schedule.on_requests(open.iter().copied(), now);
        for due in target.schedule.take_due(now) {
            if let Some(event) = read_event(hub, due, &requests, now).await {
                target.push(&event, page.as_ref());
            }
        }
    }
}

async fn read_event(
    hub: &Arc<HubState>,
    due: DueNotice,
    requests: &[(u64, crate::feed::ListedRequest)],
    now: i64,
) -> Option<NotifyEvent> {
    let of_session = requests.iter().filter(|(id, _)| due.requests.contains(id)).cloned().collect::<Vec<_>>();
    match hub.read(move |store| NotifyEvent::read(store, &due, &of_session, now)).await {
        Ok(event) => event,
        Err(error) => {
            tracing::warn!("cannot read a session for a notification: {}", error.message());
            None
        }
    }
}
