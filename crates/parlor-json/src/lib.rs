//! JSON values kept as the text in which they were received.
//!
//! A relay must not change what it relays: integers beyond 64 bits, the order of members, unknown members and
//! strings with unpaired surrogates must be sent exactly as they were received. Parsing into a tree of numbers,
//! maps and `String`s loses each of these, so this crate parses only the levels that the caller asks for and keeps
//! the rest as text.
//!
//! - [`Json`]: an owned value; clones share the text.
//! - [`JsonRef`]: a value borrowed from a longer text.
//! - [`JsonStr`]: a string, stored as its canonical literal, so that equal strings have equal bytes.
//! - [`Members`]: the members of an object, borrowed from its text.
//! - [`Object`]: an owned object with typed getters and the merge rules for metadata.
//! - [`ObjectWriter`] and [`ArrayWriter`]: write text member by member, element by element.
//!
//! **Invariant:** this crate does no I/O, reads no clock and never recurses deeper than [`MAX_DEPTH`].

mod borrowed;
mod members;
mod object;
mod string;
mod value;
mod writer;

pub use borrowed::{InvalidJson, JsonRef, Type};
pub use members::{Members, NotAnObject};
pub use object::Object;
pub use string::{CodePoint, CodePoints, JsonStr, string_literal};
pub use value::Json;
pub use writer::{ArrayWriter, ObjectWriter};

/// The depth to which a recursive merge descends; deeper values are replaced as a whole.
pub const MAX_DEPTH: usize = 64;

/// The most members that are read from one object.
///
/// Without a limit, a line with a few bytes per member would take many times its size in memory.
pub const MAX_MEMBERS: usize = 1 << 16;

/// The most elements that are read from one array.
pub const MAX_ELEMENTS: usize = 1 << 20;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
