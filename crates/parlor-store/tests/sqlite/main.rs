//! What only a store in a file can get wrong.

#[path = "../common/mod.rs"]
mod common;

mod closing;
mod erased;
mod faults;
mod full;
mod growth;
mod journal;
mod killed;
mod long;
mod opening;
mod upgrading;
mod writing;
