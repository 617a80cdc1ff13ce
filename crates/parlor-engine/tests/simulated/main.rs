//! What the simulation found: events that a session once handled wrongly, one behaviour a test.

mod stage;

mod agents;
mod attaching;
mod closing;
mod failing;
mod forks;
mod queue;
