//! Imitated faults of real agents, chosen on the command line.

use std::str::FromStr;

use super::names::{self, UnknownName};

/// A fault of a real agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// A session that is loaded, resumed or forked has the default mode and model.
    ForgetsSettings,
    /// The response to load, resume and fork has neither modes nor options.
    SilentSettings,
    /// Mode and options of a session that was loaded, resumed or forked can only be set to their defaults.
    RefusesSettings,
    /// The default mode is the only one.
    LacksModes,
    /// There are neither modes nor options.
    LacksSettings,
    /// In version 1, the mode is also an option; a change is reported as the one that was set.
    ModeOption,
    /// In version 1, the model is selected with `models` and `session/set_model` instead of an option.
    Models,
    /// A fork replays its messages before the response, with other ids.
    ForkReplays,
    /// A fork replays its messages after the response, with other ids.
    ForkReplaysLate,
    /// The response to a new session or fork has the id of an open session.
    SameId,
    /// Closing takes 300 ms; during that time the session can be neither loaded nor resumed.
    SlowClose,
    /// Load and resume fail with an error that does not mention the session.
    RestoreFails,
}

/// The quirks of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Quirks(Vec<Quirk>);

impl Quirk {
    const ALL: [(&str, Self); 12] = [
        ("forgets-settings", Self::ForgetsSettings),
        ("silent-settings", Self::SilentSettings),
        ("refuses-settings", Self::RefusesSettings),
        ("lacks-modes", Self::LacksModes),
        ("lacks-settings", Self::LacksSettings),
        ("mode-option", Self::ModeOption),
        ("models", Self::Models),
        ("fork-replays", Self::ForkReplays),
        ("fork-replays-late", Self::ForkReplaysLate),
        ("same-id", Self::SameId),
        ("slow-close", Self::SlowClose),
        ("restore-fails", Self::RestoreFails),
    ];
}

impl Quirks {
    /// Whether the agent has this quirk.
    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.0.contains(&quirk)
    }
}

impl FromStr for Quirks {
    type Err = UnknownName;

    fn from_str(list: &str) -> Result<Self, UnknownName> {
        names::parse("quirk", list, &Quirk::ALL).map(Self)
    }
}
