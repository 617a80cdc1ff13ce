//! The scenarios and their targets.

mod fanout;
mod holding;
mod joining;
mod lasting;
mod memory;
mod sessions;
mod streams;
mod turns;

use super::environment::Bench;
use super::received::Faults;
use crate::failure::Failure;

/// A scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The targets.
    pub(crate) aims: &'static [Aim],
    /// Runs the scenario once, directly and through parlor.
    pub(crate) run: fn(&Bench) -> Result<Sample, Failure>,
}

/// A limit for a figure.
pub(crate) struct Aim {
    pub(crate) figure: &'static str,
    pub(crate) limit: Limit,
}

/// The kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    Most(f64),
    Least(f64),
}

/// The result of one run.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) figures: Vec<Figure>,
    pub(crate) faults: Faults,
}

/// A figure.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
    pub(crate) kind: Kind,
}

/// The relation of a figure to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Measures the server.
    Server,
    /// Measures something else for comparison, which does not depend on the server.
    Reference,
    /// Is computed from a figure of the server and a reference.
    Computed,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
    Times,
    Megabytes,
    PerSecond,
}

const fn most(figure: &'static str, limit: f64) -> Aim {
    Aim { figure, limit: Limit::Most(limit) }
}

const fn least(figure: &'static str, limit: f64) -> Aim {
    Aim { figure, limit: Limit::Least(limit) }
}

/// All scenarios.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "each",
        about: "200,000 chunks of 40 bytes, one write each, one client through parlor acp",
        aims: &[most("ratio", 5.0), most("server CPU per chunk", 3.0)],
        run: streams::each,
    },
    Scenario {
        name: "bulk",
        about: "200,000 chunks of 200 bytes in writes of 64 KiB, one client through parlor acp",
        aims: &[most("ratio", 10.0)],
        run: streams::bulk,
    },
    Scenario {
        name: "latency",
        about: "how long a chunk is on its way, at 500 chunks a second",
        aims: &[
            most("parlor acp to direct", 6.0),
            most("Unix socket to direct", 4.0),
            most("WebSocket to direct", 4.0),
        ],
        run: streams::latency,
    },
    Scenario {
        name: "turns",
        about: "short turns one after another, each prompt synced to disk",
        aims: &[
            most("parlor acp beyond direct and a sync", 200.0),
            most("Unix socket beyond direct and a sync", 200.0),
            most("WebSocket beyond direct and a sync", 200.0),
        ],
        run: turns::turns,
    },
    Scenario {
        name: "connect",
        about: "parlor acp starts, joins a running server and is initialized",
        aims: &[most("parlor p50", 30.0)],
        run: turns::connect,
    },
    Scenario {
        name: "fanout",
        about: "20,000 chunks of 40 bytes to 50 clients on the Unix socket",
        aims: &[least("deliveries", 1_000_000.0)],
        run: fanout::full,
    },
    Scenario {
        name: "fanout-paced",
        about: "1,000 chunks of 40 bytes at 200 a second to 50 clients, beside a relay that only copies",
        aims: &[most("Unix socket to bare relay", 1.3)],
        run: fanout::paced,
    },
    Scenario {
        name: "sessions",
        about: "many sessions at the pace of a model: sessions x chunks a second, a WebSocket client each",
        aims: &[
            most("1 x 500 p50, SQLite to memory", 1.2),
            most("16 x 100 p99, SQLite", 600.0),
            most("16 x 100 server CPU per chunk, SQLite", 75.0),
            most("64 x 50 p99, SQLite", 1500.0),
            most("64 x 50 server CPU per chunk, SQLite", 65.0),
        ],
        run: sessions::paced,
    },
    Scenario {
        name: "sessions-full",
        about: "400,000 chunks of 40 bytes at full speed from 16 sessions, and from one",
        aims: &[least("16 sessions", 350_000.0), most("16 sessions server CPU per chunk", 3.0)],
        run: sessions::full,
    },
    Scenario {
        name: "client",
        about: "200,000 chunks of 40 bytes, held with parlor-client, beside just read",
        aims: &[
            most("direct ratio", 5.0),
            most("direct held CPU per chunk", 3.0),
            most("socket ratio", 5.0),
            most("socket held CPU per chunk", 3.0),
        ],
        run: holding::client,
    },
    Scenario {
        name: "join",
        about: "a client joins a session of 10,000 messages and 200,000 chunks",
        aims: &[most("join", 0.3), most("join after a restart", 0.3)],
        run: joining::join,
    },
    Scenario {
        name: "join-live",
        about: "four clients join while 2,000 chunks a second stream",
        aims: &[],
        run: joining::join_live,
    },
    Scenario {
        name: "fork",
        about: "a session is forked at its end, by an agent that cannot do it itself",
        aims: &[most("fork of 10,000 messages", 50.0)],
        run: joining::fork,
    },
    Scenario {
        name: "stalled",
        about: "a client that does not read during 200,000 chunks of 40 bytes, and then does",
        aims: &[most("growth", 64.0)],
        run: lasting::stalled,
    },
    Scenario {
        name: "restart",
        about: "SIGTERM right after 200,000 chunks of 40 bytes, a new server, a client that reads all",
        aims: &[],
        run: lasting::restart,
    },
    Scenario {
        name: "memory",
        about: "resident memory of the server: live sessions, idle clients, sessions that come and go",
        aims: &[],
        run: memory::memory,
    },
];

impl Sample {
    fn figure(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.add(name.into(), unit, value, Kind::Server);
    }

    /// Adds a reference.
    fn reference(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.add(name.into(), unit, value, Kind::Reference);
    }

    /// Adds a figure that is computed from others.
    fn computed(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.add(name.into(), unit, value, Kind::Computed);
    }

    fn add(&mut self, name: String, unit: Unit, value: f64, kind: Kind) {
        self.figures.push(Figure { name, unit, value, kind });
    }
}

impl Unit {
    /// Returns whether a higher value is better.
    pub(crate) fn is_better_higher(self) -> bool {
        match self {
            Self::PerSecond => true,
            Self::Seconds | Self::Milliseconds | Self::Microseconds | Self::Times | Self::Megabytes => false,
        }
    }
}

impl Limit {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::Most(most) => value <= most,
            Self::Least(least) => value >= least,
        }
    }
}
