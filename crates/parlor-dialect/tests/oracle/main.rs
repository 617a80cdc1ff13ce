//! The oracle: everything that is said in a dialect is what the schema crate says the dialect is.
//!
//! Each line that a translator says is parsed with the crate's type of the target version, is compared with
//! what became of it on the way through the type, and is validated against the JSON Schema that the crate
//! generates. The lines come from recordings of real peers, from samples that are made of the schemas
//! themselves, one for each method, update and nested choice, and from generated conversations.

mod check;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod conversations;
mod coverage;
mod faults;
mod generate;
mod lines;
mod recordings;
mod schema;
