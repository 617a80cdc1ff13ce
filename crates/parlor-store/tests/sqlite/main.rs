//! What only a store in a file can get wrong.

#[path = "../common/mod.rs"]
mod common;

mod closing;
mod full;
mod growth;
mod killed;
mod opening;
mod upgrading;
mod writing;
