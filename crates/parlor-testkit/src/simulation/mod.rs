//! A whole server in one process, determined by a seed.
//!
//! Sessions, clients of all dialects, agents and a disk take steps in a random order. All that happens follows from one seed:
//! there is no clock, no thread and no other randomness. After each step the [`Invariant`]s are checked. A seed that fails is
//! replayed with a trace, and steps that it fails without are left out.

mod agent;
mod agent_acts;
mod client;
mod client_acts;
mod compare;
mod disk;
mod faults;
mod forks;
mod invariants;
mod jobs;
mod ledger;
mod plan;
mod random;
mod replica;
mod run;
mod settle;
mod shell;
mod steering;
mod subagents;
mod tokens;
mod world;

pub use invariants::Invariant;
pub use run::{Outcome, Report, SimulationOptions, run};

/// How often something happened.
pub type Counts = std::collections::BTreeMap<&'static str, u64>;

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The invariant.
    pub invariant: Invariant,
    /// What was found.
    pub message: String,
}
