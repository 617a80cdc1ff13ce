//! What a session machine does with events, one behaviour a test.

mod stage;

mod attaching;
mod closing;
mod failing;
