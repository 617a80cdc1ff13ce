//! Tests of the SQLite store that do not apply to other stores.

#[path = "../common/mod.rs"]
mod common;

mod closing;
mod erased;
mod faults;
mod full;
mod growth;
mod journal;
mod kept_formats;
mod killed;
mod long;
mod migrating;
mod opening;
mod stalled;
mod writing;
