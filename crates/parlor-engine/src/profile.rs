//! What real agents offer beyond the protocol without declaring it, by the name and version that they report.

use parlor_dialect::Dialect;
use parlor_json::Object;
use parlor_session::Role;
use parlor_session::session::{AgentForkMessage, Boundary};

use crate::Capability;

/// An agent whose behaviour was verified.
#[derive(Debug, PartialEq, Eq)]
pub struct AgentProfile {
    /// The name that it reports in the response to `initialize`.
    name: &'static str,
    /// The first version that behaves like this.
    since: Version,
    /// Where it cuts the history at the message in `_meta.jetbrains.air.fork` of `session/fork`.
    cuts_fork_after: ForkCut,
    /// The version of the protocol in which it offers the most.
    version: u16,
}

/// Where an agent cuts the history of a fork at a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForkCut {
    /// After the message.
    Message,
    /// After the turn of the message.
    Turn,
}

/// Major, minor and patch version.
type Version = [u64; 3];

/// All agents with a profile.
const PROFILES: [AgentProfile; 2] = [
    AgentProfile {
        name: "@agentclientprotocol/claude-agent-acp",
        since: [0, 99, 1],
        cuts_fork_after: ForkCut::Message,
        // It has neither steering nor its extensions of lists in version 2.
        version: 1,
    },
    AgentProfile {
        name: "@agentclientprotocol/codex-acp",
        since: [2, 6, 0],
        cuts_fork_after: ForkCut::Turn,
        version: 2,
    },
];

impl AgentProfile {
    /// The profile of an agent with this response to `initialize`.
    pub fn of(dialect: Dialect, initialize: &Object) -> Option<&'static Self> {
        let info = match dialect {
            Dialect::V1 => "agentInfo",
            Dialect::V2 | Dialect::Draft => "info",
        };
        let info = initialize.get_object(info)?;
        let (name, version) = (info.get_string("name")?, parse_version(&info.get_str("version")?)?);
        PROFILES.iter().find(|profile| profile.name == name && version >= profile.since)
    }

    /// The version of the protocol to speak with the agent, unless the configuration has one.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Whether the agent's fork at a message ends exactly with it.
    ///
    /// Only messages of the agent are named: a v1 agent gives prompts no ids, and thoughts are part of the message that
    /// follows them.
    pub fn forks_exactly(&self, message: &AgentForkMessage) -> bool {
        let is_exact = match (self.cuts_fork_after, message.boundary) {
            (ForkCut::Message | ForkCut::Turn, Boundary::Turn) | (ForkCut::Message, Boundary::Message) => {
                true
            }
            (ForkCut::Turn, Boundary::Message) | (_, Boundary::Unknown) => false,
        };
        message.role == Role::Agent && is_exact
    }
}

/// What an agent with this response to `initialize` offers beyond prompts, for people.
pub(crate) fn agent_features(dialect: Dialect, initialize: &Object) -> Vec<&'static str> {
    let has = |capability: Capability| capability.is_in(dialect, initialize);
    let cut = AgentProfile::of(dialect, initialize).map(|profile| profile.cuts_fork_after);
    let fork = match cut {
        _ if has(Capability::ForkAtMessage) => Some("fork at message"),
        _ if !has(Capability::Fork) => None,
        Some(ForkCut::Message) => Some("fork at message"),
        Some(ForkCut::Turn) => Some("fork at turn"),
        None => Some("fork"),
    };
    let restore = (has(Capability::Resume) || has(Capability::Load)).then_some("resume");
    let named = [
        (Capability::List, "list"),
        (Capability::Delete, "delete"),
        (Capability::Title, "title"),
        (Capability::Steering, "steering"),
    ];
    let named = named.into_iter().filter_map(|(capability, name)| has(capability).then_some(name));
    restore.into_iter().chain(fork).chain(named).collect()
}

/// The numbers of a version such as `1.2.3` or `1.2.3-beta.1`.
fn parse_version(text: &str) -> Option<Version> {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = core.split('.').map(|number| number.parse().ok());
    let version = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parlor_json::Json;

    fn profile(dialect: Dialect, info: &str) -> Option<&'static AgentProfile> {
        let initialize = Json::parse(info).unwrap().to_object().unwrap();
        AgentProfile::of(dialect, &initialize)
    }

    #[test]
    fn an_agent_is_recognised_by_the_name_and_version_that_it_reports() {
        let v1 = |name: &str, version: &str| {
            let info = format!(r#"{{"agentInfo":{{"name":"{name}","version":"{version}"}}}}"#);
            profile(Dialect::V1, &info).is_some()
        };
        let claude = "@agentclientprotocol/claude-agent-acp";
        for (name, version, is_known) in [
            (claude, "0.99.1", true),
            (claude, "0.100.0", true),
            (claude, "1.0.0-beta.1", true),
            (claude, "0.99.0", false),
            (claude, "0.99", false),
            (claude, "latest", false),
            ("@agentclientprotocol/codex-acp", "2.6.0", true),
            ("@agentclientprotocol/codex-acp", "2.5.9", false),
            ("codex-acp", "2.6.0", false),
        ] {
            assert_eq!(v1(name, version), is_known, "{name} {version}");
        }
        let v2 = r#"{"info":{"name":"@agentclientprotocol/codex-acp","version":"2.6.0"}}"#;
        assert!(profile(Dialect::V2, v2).is_some());
        assert!(profile(Dialect::V1, v2).is_none());
        assert!(profile(Dialect::V1, "{}").is_none());
    }

    #[test]
    fn features_are_those_that_the_agent_declares_or_is_known_for() {
        let features = |dialect, initialize: &str| {
            agent_features(dialect, &Json::parse(initialize).unwrap().to_object().unwrap()).join(", ")
        };
        let claude = r#"{"agentInfo":{"name":"@agentclientprotocol/claude-agent-acp","version":"0.99.1"},"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"fork":{},"list":{},"delete":{}}},"_meta":{"steering":{"supported":true}}}"#;
        assert_eq!(features(Dialect::V1, claude), "resume, fork at message, list, delete, steering");
        let codex = r#"{"info":{"name":"@agentclientprotocol/codex-acp","version":"2.6.0"},"capabilities":{"session":{"fork":{},"title":{}}}}"#;
        assert_eq!(features(Dialect::V2, codex), "resume, fork at turn, list, title");
        assert_eq!(features(Dialect::V1, "{}"), "");
        let at_message = r#"{"capabilities":{"session":{"fork":{"atMessageId":true}}}}"#;
        assert_eq!(features(Dialect::V2, at_message), "resume, fork at message, list");
        let fork = r#"{"agentCapabilities":{"sessionCapabilities":{"fork":{}}}}"#;
        assert_eq!(features(Dialect::V1, fork), "fork");
    }

    #[test]
    fn an_agent_that_cuts_after_turns_forks_exactly_only_at_the_end_of_a_turn() {
        let [claude, codex] = &PROFILES;
        let at = |role, boundary| AgentForkMessage { id: "m".into(), role, boundary };
        for (boundary, by_claude, by_codex) in [
            (Boundary::Turn, true, true),
            (Boundary::Message, true, false),
            (Boundary::Unknown, false, false),
        ] {
            let message = at(Role::Agent, boundary);
            assert_eq!(claude.forks_exactly(&message), by_claude, "{boundary:?}");
            assert_eq!(codex.forks_exactly(&message), by_codex, "{boundary:?}");
        }
        for role in [Role::User, Role::Thought] {
            assert!(!claude.forks_exactly(&at(role, Boundary::Turn)), "{role:?}");
        }
    }
}
