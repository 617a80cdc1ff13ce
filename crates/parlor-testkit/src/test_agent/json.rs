//! JSON that the test agent writes.

use parlor_json::{ArrayWriter, Json, Object};

/// Writes an array of JSON texts.
pub(super) fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let mut array = ArrayWriter::new();
    items.into_iter().for_each(|item| array.push(item.as_ref()));
    array.finish()
}

/// Parses a text that the test agent wrote.
pub(super) fn value(text: String) -> Json {
    Json::parse(text).expect("the agent writes valid JSON")
}

/// Returns the elements of a member that is an array.
pub(super) fn array(object: &Object, name: &str) -> Option<Vec<Json>> {
    Some(object.get_array(name)?.into_iter().map(Json::from).collect())
}
