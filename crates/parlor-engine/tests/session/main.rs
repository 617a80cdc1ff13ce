//! What a session machine does with events, one behaviour a test.

mod stage;

mod agents;
mod attaching;
mod closing;
mod failing;
mod forks;
mod queue;
