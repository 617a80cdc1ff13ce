//! JSON text that the library writes to sessions.

use parlor_json::{ArrayWriter, ObjectWriter};

/// Begins a session update of a kind.
pub(crate) fn update(kind: &str) -> ObjectWriter {
    ObjectWriter::new().str("sessionUpdate", kind)
}

/// Writes an array of JSON values.
pub(crate) fn array<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> String {
    let mut array = ArrayWriter::new();
    values.into_iter().for_each(|value| array.push(value.as_ref()));
    array.finish()
}
