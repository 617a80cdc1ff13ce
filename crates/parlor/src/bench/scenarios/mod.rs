//! What is measured, and what is hoped for.

mod holding;
mod joining;
mod lasting;
mod streams;
mod turns;

use super::heard::Faults;
use super::place::Bench;
use crate::failure::Failure;

/// One thing to measure.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// What is aimed at.
    pub(crate) aims: &'static [Aim],
    /// Does it once, directly and through parlor one after the other.
    pub(crate) run: fn(&Bench) -> Result<Sample, Failure>,
}

/// A limit for a figure.
pub(crate) struct Aim {
    pub(crate) figure: &'static str,
    pub(crate) limit: Limit,
}

/// How far a figure may go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    Most(f64),
    Least(f64),
}

/// What came of one run.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) figures: Vec<Figure>,
    pub(crate) faults: Faults,
}

/// Something that was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
}

/// What a figure counts.
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

/// Every scenario.
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
        aims: &[most("parlor p50", 100.0)],
        run: streams::latency,
    },
    Scenario {
        name: "turns",
        about: "short turns one after another, each prompt safe from a power cut",
        aims: &[most("parlor p50", 400.0)],
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
        run: streams::fanout,
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
];

impl Sample {
    fn figure(&mut self, name: &'static str, unit: Unit, value: f64) {
        self.figures.push(Figure { name, unit, value });
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
