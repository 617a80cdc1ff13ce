//! What some real agents do beyond the documents, chosen on the command line.

use std::fmt;
use std::str::FromStr;

/// Something that some real agents do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// A session that is loaded, resumed or forked has the default mode and model.
    ForgetsSettings,
    /// The answer to load, resume and fork names neither modes nor options.
    SilentSettings,
    /// Mode and options of a session that was loaded, resumed or forked can be set to what they are by default only.
    RefusesSettings,
    /// There is no mode but the default one.
    LacksModes,
    /// There are neither modes nor options.
    LacksSettings,
    /// The mode is an option as well in version 1, and a change is reported by the one that was set.
    ModeOption,
    /// The model is chosen with `models` and `session/set_model` in version 1, and not with an option.
    Models,
    /// A fork tells its messages before the answer, under other ids.
    ForkReplays,
    /// A fork tells its messages after the answer, under other ids.
    ForkReplaysLate,
    /// A new session or fork is answered with the id of one that is open.
    SameId,
    /// Closing takes 300 ms, in which the session can neither be loaded nor resumed.
    SlowClose,
    /// Load and resume fail with an error that says nothing of the session.
    RestoreFails,
}

/// The quirks of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Quirks(Vec<Quirk>);

/// A quirk that the agent does not have.
#[derive(Debug)]
pub(crate) struct UnknownQuirk(String);

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
    /// Whether the agent has this one.
    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.0.contains(&quirk)
    }
}

impl FromStr for Quirks {
    type Err = UnknownQuirk;

    fn from_str(list: &str) -> Result<Self, UnknownQuirk> {
        let find = |name: &str| Quirk::ALL.into_iter().find(|(known, _)| *known == name);
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "none");
        let quirks = names.map(|name| Ok(find(name).ok_or_else(|| UnknownQuirk(name.to_owned()))?.1));
        quirks.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for UnknownQuirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Quirk::ALL.iter().map(|(name, _)| *name).collect();
        write!(f, "unknown quirk '{}': there are {}, none", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownQuirk {}
