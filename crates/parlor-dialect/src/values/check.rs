//! Checks conversions against the types of the schema crate, for tests.

use parlor_json::{Json, Object};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Losses;

pub(crate) fn object(text: &str) -> Object {
    Object::parse(json(text).raw()).unwrap()
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(crate) fn names(losses: Losses) -> Vec<&'static str> {
    losses.into_vec().into_iter().map(|loss| loss.kind.name()).collect()
}

/// Compares values without the order of members.
#[track_caller]
pub(crate) fn same(found: &Json, expected: &str) {
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(value(found.as_str()), value(expected), "found: {found:?}");
}

/// Checks that the value parses as the type, and that the members that the type drops are exactly `unknown`. The
/// types are lenient: a known field with a wrong shape shows only by being dropped.
#[track_caller]
pub(crate) fn parses<T: DeserializeOwned + Serialize>(value: &Json, unknown: &[&str]) {
    let typed: T = serde_json::from_str(value.as_str()).unwrap_or_else(|e| panic!("{e}: {value:?}"));
    let mut dropped = Vec::new();
    let read: Value = serde_json::from_str(value.as_str()).unwrap();
    compare(&read, &serde_json::to_value(&typed).unwrap(), "", &mut dropped);
    dropped.sort();
    assert_eq!(dropped, unknown, "in {value:?}");
}

fn compare(read: &Value, kept: &Value, path: &str, dropped: &mut Vec<String>) {
    match (read, kept) {
        (Value::Object(read), Value::Object(kept)) => {
            for (name, value) in read {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match kept.get(name) {
                    Some(kept) => compare(value, kept, &path, dropped),
                    // Types omit empty lists.
                    None if value.is_array() && value.as_array().unwrap().is_empty() => (),
                    None => dropped.push(path),
                }
            }
        }
        (Value::Array(read), Value::Array(kept)) if read.len() == kept.len() => {
            for (index, (read, kept)) in read.iter().zip(kept).enumerate() {
                compare(read, kept, &format!("{path}[{index}]"), dropped);
            }
        }
        _ if read == kept => (),
        _ => dropped.push(path.to_owned()),
    }
}
