//! Some of the examples, written with the official SDK: peers for the examples, and implementations to compare them
//! with.

pub(crate) mod echo_v1;
pub(crate) mod echo_v2;
pub(crate) mod watch_v1;
pub(crate) mod watch_v2;

/// The output of a client.
pub(crate) type Print = Box<dyn FnMut(&str) + Send>;

/// The JSON name of a value.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap_or_default().to_owned()
}
