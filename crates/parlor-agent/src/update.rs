//! Texts of updates and content blocks.

use parlor_json::ObjectWriter;

/// Starts an update of a session.
pub(crate) fn update(kind: &str) -> ObjectWriter {
    ObjectWriter::with_capacity(256).str("sessionUpdate", kind)
}

/// Returns an array of values that are JSON.
pub(crate) fn array(values: &[String]) -> String {
    format!("[{}]", values.join(","))
}

/// Returns a text block.
pub(crate) fn text_block(text: &str) -> String {
    ObjectWriter::new().str("type", "text").str("text", text).finish()
}
