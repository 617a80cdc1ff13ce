//! How an agent session is opened for a session: created, restored, forked or adopted.
//!
//! ```text
//! (await close) -> resuming | loading | creating | forking | adopting -> replaying -> applying settings -> bound
//!                      any of these -> failed
//! ```
//!
//! An [`Opening`] takes an [`OpeningEvent`] and returns the actions to perform ([`OpeningOutput`]). Until it is bound, it
//! receives what the agent sends about the session: it drops replay, has the agent apply the settings that were in force, and
//! keeps the rest for the session, in order.
//!
//! A session that the agent had is restored by `session/resume`, else by `session/load`, by what the agent can do. If it does
//! not have the session any more, another one is created, which the session hands its conversation over to. Replay is over when
//! the agent has been idle for [`REPLAY_IDLE`].

mod adopt;
mod early;
mod event;
mod machine;
mod missing;
mod plan;
mod refused;
mod replay;
mod restore;
mod settings;

#[cfg(test)]
mod script;

use core::time::Duration;

pub use self::adopt::session_not_found;
pub use self::early::EarlyMessage;
pub use self::event::{AgentSession, OpeningAction, OpeningError, OpeningEvent, OpeningOutput};
pub use self::machine::Opening;
pub use self::plan::{OpeningPlan, RestorePlan, RestoreSource, StartupLimit, name_session};
pub use self::refused::{RefusedSetting, RefusedSettings, wanted_settings};
pub use self::replay::History;

/// How long an agent has to send nothing until its replay is over.
pub const REPLAY_IDLE: Duration = Duration::from_millis(200);

/// How long an agent may replay after it answered.
pub const MAX_REPLAY_TIME: Duration = Duration::from_secs(10);
