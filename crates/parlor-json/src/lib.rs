//! JSON kept as the text it came in.
//!
//! A relay must not change what it relays: integers beyond 64 bits, the order of keys, fields that
//! nobody here knows and strings that hold half a surrogate pair all have to come out as they went in.
//! Parsing into a tree of numbers, maps and `String`s loses each of these, so parlor looks at JSON only as
//! deep as it must and keeps the rest as text.
//!
//! - [`Json`]: one value, as text.
//! - [`JsonStr`]: one string, as its canonical literal, so that equal strings are equal bytes.
//! - [`Members`]: the members of an object, borrowed from the text they were read from.
//! - [`Object`]: an object by itself, with the merge rules for metadata.
//!
//! **Invariant:** this crate does no I/O, knows no clock and never recurses deeper than [`MAX_DEPTH`].

mod members;
mod object;
mod string;
mod value;

pub use members::{Members, NotAnObject};
pub use object::Object;
pub use string::{JsonStr, Unit, Units};
pub use value::{InvalidJson, Json, Type, elements, string_literal, text, type_of};

/// How deep a recursive merge looks into nested objects. What lies deeper is replaced as a whole.
pub const MAX_DEPTH: usize = 64;

/// How many members an object may have that is looked into. Reading more would let a line of a few bytes a
/// member take many times its size in memory.
pub const MAX_MEMBERS: usize = 1 << 16;

/// How many elements an array may have that is looked into.
pub const MAX_ELEMENTS: usize = 1 << 20;
