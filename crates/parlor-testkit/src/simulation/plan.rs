//! What one simulated world is made of, drawn from its seed.

use core::time::Duration;

use parlor_dialect::Dialect;
use parlor_engine::{QueueLimits, SessionConfig};
use parlor_json::Object;

use super::random::Random;

/// The parts of a world. Different seeds leave out different parts, so that what is left gets deep.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) people: Vec<PersonPlan>,
    pub(super) agents: Vec<AgentPlan>,
    /// How many bytes may wait for a client that keeps up.
    pub(super) room: usize,
    pub(super) config: SessionConfig,
    /// How many sessions there may be.
    pub(super) sessions: usize,
    /// How many steps are between two moments at which all is delivered and compared.
    pub(super) settle_every: usize,
    pub(super) faults: Faults,
}

/// What goes wrong in a world.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each of them happens or not by itself")]
pub(super) struct Faults {
    /// Agents crash.
    pub(super) crashes: bool,
    /// Agents hang.
    pub(super) hangs: bool,
    /// Agents cannot be started.
    pub(super) failed_starts: bool,
    /// Writes fail.
    pub(super) store: bool,
    /// The server is killed, or stopped.
    pub(super) kills: bool,
    /// The power is cut.
    pub(super) power_cuts: bool,
    /// Clients do not read for a while.
    pub(super) stalls: bool,
    /// Clients lose their connections.
    pub(super) disconnects: bool,
    /// Peers send messages that make no sense.
    pub(super) nonsense: bool,
    /// Messages of earlier epochs of agents arrive late.
    pub(super) stale_events: bool,
    /// Sessions are evicted.
    pub(super) evictions: bool,
    /// Sessions of subagents are slow, so that they handle many messages in one batch.
    pub(super) slow_subagents: bool,
}

/// A client program.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each of them holds or not by itself")]
pub(super) struct PersonPlan {
    pub(super) dialect: Dialect,
    pub(super) is_driver: bool,
    pub(super) wants_seq: bool,
    pub(super) wants_events: bool,
    pub(super) elicits: bool,
    pub(super) serves_files: bool,
    /// Whether it is sent the sessions of subagents.
    pub(super) follows_subagents: bool,
}

/// A configured agent.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each of them holds or not by itself")]
pub(super) struct AgentPlan {
    pub(super) dialect: Dialect,
    pub(super) restores: bool,
    pub(super) closes: bool,
    pub(super) deletes: bool,
    pub(super) forks: bool,
    pub(super) forks_at_message: bool,
    pub(super) takes_titles: bool,
    pub(super) ids: Ids,
    pub(super) echo: Echo,
    /// Whether it drops the prompts that it has when a turn is cancelled.
    pub(super) drops_queue: bool,
    /// Whether it takes prompts into its running turn.
    pub(super) steers: bool,
}

/// How an agent names its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// Not at all (version 1).
    None,
    /// Each by an id of its own.
    Unique,
    /// By counting from 1 in each process.
    Counted,
    /// A thought and the message after it by the same id.
    Shared,
}

/// How an agent repeats prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Echo {
    None,
    /// As a whole message.
    Whole,
    /// In chunks.
    Chunks,
}

impl Plan {
    pub(super) fn new(random: &mut Random) -> Self {
        let people = (0..random.between(1, 5)).map(|place| PersonPlan::new(random, place)).collect();
        let agents = (0..random.between(1, 3)).map(|_| AgentPlan::new(random)).collect();
        let small = random.percent(60);
        let limits = QueueLimits {
            catch_up_bytes: if small { random.between(60, 1500) } else { 256 << 10 },
            line_bytes: if small { random.between(20, 600) } else { 1 << 20 },
            unsent_bytes: if random.percent(30) { random.between(200, 1500) } else { 64 << 20 },
            deferred_calls: random.between(1, 4),
            waiting_calls: random.between(1, 4),
            waiting_forks: random.between(1, 3),
        };
        let mut on = |percent| random.percent(percent);
        let faults = Faults {
            crashes: on(60),
            hangs: on(50),
            failed_starts: on(40),
            store: on(40),
            kills: on(40),
            power_cuts: on(30),
            stalls: on(60),
            disconnects: on(60),
            nonsense: on(60),
            stale_events: on(60),
            evictions: on(50),
            slow_subagents: on(35),
        };
        Self {
            people,
            agents,
            room: random.between(300, 4000),
            config: SessionConfig {
                cancel_timeout: random.percent(80).then_some(Duration::from_secs(30)),
                is_embedded: false,
                limits,
            },
            sessions: random.between(1, 5),
            settle_every: random.between(40, 300),
            faults,
        }
    }
}

impl PersonPlan {
    fn new(random: &mut Random, place: usize) -> Self {
        Self {
            dialect: dialect(random),
            is_driver: place == 0 || random.percent(75),
            wants_seq: random.percent(60),
            wants_events: random.percent(50),
            elicits: random.percent(50),
            serves_files: random.percent(30),
            follows_subagents: random.percent(50),
        }
    }

    /// The params of its `initialize`.
    pub(super) fn initialize(&self) -> Object {
        let form = if self.elicits { r#","elicitation":{"form":{}}"# } else { "" };
        let files =
            if self.serves_files { r#","fs":{"readTextFile":true,"writeTextFile":true}"# } else { "" };
        let subagents =
            if self.follows_subagents && self.dialect == Dialect::V1 { r#","subagents":{}"# } else { "" };
        let members = format!(r#""x":1{form}{files}{subagents}"#);
        let capabilities = match self.dialect {
            Dialect::V1 => format!(r#""clientCapabilities":{{{members}}}"#),
            Dialect::V2 | Dialect::Draft => format!(r#""capabilities":{{{members}}}"#),
        };
        let (seq, events) = (self.wants_seq, self.wants_events);
        let follows = self.follows_subagents;
        let meta = format!(
            r#""_meta":{{"parlor/seq":{seq},"parlor/events":{events},"parlor/subagents":{follows}}}"#
        );
        serde_json::from_str(&format!("{{{capabilities},{meta}}}")).expect("it is an object")
    }
}

impl AgentPlan {
    fn new(random: &mut Random) -> Self {
        let dialect = dialect(random);
        let ids = match random.below(4) {
            0 if dialect == Dialect::V1 => Ids::None,
            1 => Ids::Counted,
            2 => Ids::Shared,
            _ => Ids::Unique,
        };
        let echo = match random.below(4) {
            0 if dialect != Dialect::V1 => Echo::Whole,
            1 => Echo::Chunks,
            _ => Echo::None,
        };
        Self {
            dialect,
            restores: dialect != Dialect::V1 || random.percent(60),
            closes: dialect != Dialect::V1 || random.percent(50),
            deletes: random.percent(50),
            forks: random.percent(50),
            forks_at_message: random.percent(50),
            takes_titles: random.percent(50),
            ids,
            echo,
            drops_queue: random.percent(50),
            steers: random.percent(60),
        }
    }

    /// Its response to `initialize`.
    pub(super) fn initialize(&self) -> Object {
        let mut session = Vec::new();
        let mut add = |has: bool, member: &str| {
            if has {
                session.push(member.to_owned());
            }
        };
        add(self.dialect == Dialect::V1 && self.restores, r#""resume":{}"#);
        add(self.dialect == Dialect::V1 && self.closes, r#""close":{}"#);
        add(self.deletes, r#""delete":{}"#);
        add(self.forks && !self.forks_at_message, r#""fork":{}"#);
        add(self.forks && self.forks_at_message, r#""fork":{"atMessageId":true}"#);
        add(self.takes_titles, r#""title":{}"#);
        let session = session.join(",");
        let capabilities = match self.dialect {
            Dialect::V1 => format!(r#""agentCapabilities":{{"sessionCapabilities":{{{session}}}}}"#),
            Dialect::V2 | Dialect::Draft => format!(r#""capabilities":{{"session":{{{session}}}}}"#),
        };
        let steers = self.steers;
        let text = format!(r#"{{{capabilities},"_meta":{{"steering":{{"supported":{steers}}}}}}}"#);
        serde_json::from_str(&text).expect("it is an object")
    }
}

fn dialect(random: &mut Random) -> Dialect {
    match random.below(3) {
        0 => Dialect::V1,
        1 => Dialect::V2,
        _ => Dialect::Draft,
    }
}
