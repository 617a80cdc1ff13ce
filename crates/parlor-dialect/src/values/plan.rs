//! Plans: v1 knows fewer states and priorities of an entry. What v1 says, v2 understands as it is.

use parlor_json::Object;

use crate::{LossKind, Losses};

/// The holder of `entries` (a v1 `plan` update, or the `plan` of a `plan_update`) as v1 can parse it.
///
/// A cancelled entry is said as completed, because both mean that nothing more will be done about it.
pub(crate) fn entries_to_v1(plan: &Object, losses: &mut Losses) -> Object {
    let mut plan = plan.clone();
    shape::each_in(&mut plan, "entries", |entry| Some(entry_to_v1(entry, losses)));
    plan
}

fn entry_to_v1(mut entry: Object, losses: &mut Losses) -> Object {
    let status = match shape::text(&entry, "status").as_deref() {
        None | Some("pending" | "in_progress" | "completed") => None,
        Some("cancelled") => Some("completed"),
        Some(_) => Some("pending"),
    };
    if let Some(status) = status {
        entry.set("status", shape::string(status));
        losses.add(LossKind::PlanEntryStatus);
    }
    if !matches!(shape::text(&entry, "priority").as_deref(), None | Some("high" | "medium" | "low")) {
        entry.set("priority", shape::string("medium"));
        losses.add(LossKind::PlanEntryPriority);
    }
    entry
}

/// How the conversions look at JSON and put it together.
pub(crate) mod shape {
    use parlor_json::{Json, JsonStr, Object, Type, elements, string_literal};

    /// JSON that is written here and therefore valid.
    pub(crate) fn json(text: impl Into<String>) -> Json {
        Json::parse(text).expect("the text is written by the caller from valid JSON")
    }

    /// A string as JSON.
    pub(crate) fn string(text: &str) -> Json {
        json(string_literal(text))
    }

    /// `{}`
    pub(crate) fn empty() -> Json {
        Object::default().to_json()
    }

    /// The value as an object, if it is one.
    pub(crate) fn object(value: &Json) -> Option<Object> {
        Object::parse(value.raw()).ok()
    }

    /// A member as an object, if it is one.
    pub(crate) fn member(holder: &Object, name: &str) -> Option<Object> {
        object(holder.get(name)?)
    }

    /// A member's text, if it is a string.
    pub(crate) fn text(holder: &Object, name: &str) -> Option<String> {
        Some(parlor_json::text(holder.get(name)?.raw())?.into_owned())
    }

    /// Whether a member is there and of that type.
    pub(crate) fn is(holder: &Object, name: &str, type_: Type) -> bool {
        holder.get(name).is_some_and(|value| value.type_of() == type_)
    }

    /// The object with a member renamed in its place, unless it already has one of the new name.
    pub(crate) fn renamed(holder: &Object, from: &str, to: &str) -> Object {
        if holder.get(to).is_some() {
            return holder.clone();
        }
        let name = |name: &JsonStr| if *name == *from { JsonStr::new(to) } else { name.clone() };
        holder.iter().map(|(old, value)| (name(old), value.clone())).collect()
    }

    /// The object with a new first member, where tags usually stand.
    pub(crate) fn in_front(holder: &Object, name: &str, value: Json) -> Object {
        let rest = holder.iter().filter(|(old, _)| **old != *name);
        let rest = rest.map(|(name, value)| (name.clone(), value.clone()));
        std::iter::once((JsonStr::new(name), value)).chain(rest).collect()
    }

    /// A list with every object converted; `None` leaves it out. What is no object stays, as does a value
    /// that is no list. What did not change keeps its text.
    pub(crate) fn each(list: &Json, mut convert: impl FnMut(Object) -> Option<Object>) -> Json {
        let Some(elements) = elements(list.raw()) else { return list.clone() };
        let mut changed = false;
        let mut kept = Vec::with_capacity(elements.len());
        for element in elements {
            let Ok(old) = Object::parse(element) else {
                kept.push(Json::from(element));
                continue;
            };
            match convert(old.clone()) {
                Some(new) if new == old => kept.push(Json::from(element)),
                Some(new) => {
                    kept.push(new.to_json());
                    changed = true;
                }
                None => changed = true,
            }
        }
        if changed { list_of(&kept) } else { list.clone() }
    }

    /// A list of values.
    pub(crate) fn list_of(values: &[Json]) -> Json {
        json(format!("[{}]", values.iter().map(Json::as_str).collect::<Vec<_>>().join(",")))
    }

    /// Converts a member as [`each`] does.
    pub(crate) fn each_in(holder: &mut Object, name: &str, convert: impl FnMut(Object) -> Option<Object>) {
        if let Some(list) = holder.get(name) {
            let converted = each(list, convert);
            holder.set(name, converted);
        }
    }

    /// Converts a member if it is an object. If it does not change, it keeps its text.
    pub(crate) fn within(holder: &mut Object, name: &str, convert: impl FnOnce(Object) -> Object) {
        if let Some(old) = member(holder, name) {
            let new = convert(old.clone());
            if new != old {
                holder.set(name, new.to_json());
            }
        }
    }

    /// Puts a note into the metadata, for the way back.
    pub(crate) fn note(holder: &mut Object, key: &str, value: Json) {
        let mut meta = member(holder, "_meta").unwrap_or_default();
        meta.set(key, value);
        holder.set("_meta", meta.to_json());
    }

    /// Takes a note out of the metadata, and the metadata if nothing else is in it.
    pub(crate) fn take_note(holder: &mut Object, key: &str) -> Option<Json> {
        let mut meta = member(holder, "_meta")?;
        let value = meta.remove(key)?;
        if meta.is_empty() {
            holder.remove("_meta");
        } else {
            holder.set("_meta", meta.to_json());
        }
        Some(value)
    }
}

/// What the tests of the conversions share.
#[cfg(test)]
pub(crate) mod check {
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

    /// Members in any order.
    #[track_caller]
    pub(crate) fn same(found: &Json, expected: &str) {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(value(found.as_str()), value(expected), "found: {found:?}");
    }

    /// The oracle: the value parses as the type, and what the type does not keep of it is exactly `unknown`.
    /// The types forgive much, so that a known field of a wrong shape only shows by being dropped.
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
                        // Types leave out what is empty anyway.
                        None if value.is_array() && value.as_array().unwrap().is_empty() => (),
                        None => dropped.push(path),
                    }
                }
            }
            (Value::Array(read), Value::Array(kept)) if read.len() == kept.len() => {
                for (place, (read, kept)) in read.iter().zip(kept).enumerate() {
                    compare(read, kept, &format!("{path}[{place}]"), dropped);
                }
            }
            _ if read == kept => (),
            _ => dropped.push(path.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;

    #[test]
    fn entries_that_v1_knows_pass_unchanged() {
        for text in [
            r#"{"entries":[ {"content":"a","priority":"high","status":"pending","n":1e400} ],"x":1}"#,
            r#"{"type":"items","planId":"p","entries":[]}"#,
            r#"{"type":"markdown","planId":"p","content":"text"}"#,
            r#"{"entries":"none"}"#,
            r#"{"entries":[1,{"status":2}]}"#,
        ] {
            let mut losses = Losses::default();
            assert_eq!(entries_to_v1(&check::object(text), &mut losses), check::object(text));
            assert_eq!(losses, Losses::default());
        }
    }

    #[test]
    fn the_nearest_state_and_priority_are_said() {
        for (entry, expected, lost) in [
            (
                r#"{"content":"a","priority":"low","status":"cancelled","x":1}"#,
                r#"{"content":"a","priority":"low","status":"completed","x":1}"#,
                &["plan_entry_status"][..],
            ),
            (
                r#"{"content":"a","priority":"low","status":"_blocked"}"#,
                r#"{"content":"a","priority":"low","status":"pending"}"#,
                &["plan_entry_status"],
            ),
            (
                r#"{"content":"a","priority":"_urgent","status":"in_progress"}"#,
                r#"{"content":"a","priority":"medium","status":"in_progress"}"#,
                &["plan_entry_priority"],
            ),
            (
                r#"{"content":"a","priority":"_urgent","status":"later"}"#,
                r#"{"content":"a","priority":"medium","status":"pending"}"#,
                &["plan_entry_status", "plan_entry_priority"],
            ),
        ] {
            let plan = |entry: &str| format!(r#"{{"type":"items","planId":"p","entries":[{entry}]}}"#);
            check::parses::<v2::PlanUpdateContent>(
                &check::json(&plan(entry)),
                if entry.contains("\"x\"") { &["entries[0].x"] } else { &[] },
            );
            let mut losses = Losses::default();
            let converted = entries_to_v1(&check::object(&plan(entry)), &mut losses).to_json();
            check::same(&converted, &plan(expected));
            check::parses::<v1::PlanUpdateContent>(
                &converted,
                if entry.contains("\"x\"") { &["entries[0].x"] } else { &[] },
            );
            assert_eq!(check::names(losses), lost);
        }
    }
}
