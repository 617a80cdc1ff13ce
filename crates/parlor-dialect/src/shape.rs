//! Small steps on JSON objects that conversions are made of.

use parlor_json::{Json, JsonStr, Object, Type};

/// JSON that is written here and therefore valid.
pub(crate) fn json(text: impl AsRef<str>) -> Json {
    Json::parse(text).expect("the text is written by the caller from valid JSON")
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
    let Some(elements) = list.elements() else { return list.clone() };
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
    if changed { Json::array(&kept) } else { list.clone() }
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
    if let Some(old) = holder.get_object(name) {
        let new = convert(old.clone());
        if new != old {
            holder.set(name, new.to_json());
        }
    }
}

/// Puts a note into the metadata, for the way back.
pub(crate) fn note(holder: &mut Object, key: &str, value: Json) {
    let mut meta = holder.get_object("_meta").unwrap_or_default();
    meta.set(key, value);
    holder.set("_meta", meta.to_json());
}

/// Takes a note out of the metadata, and the metadata if nothing else is in it.
pub(crate) fn take_note(holder: &mut Object, key: &str) -> Option<Json> {
    let mut meta = holder.get_object("_meta")?;
    let value = meta.remove(key)?;
    if meta.is_empty() {
        holder.remove("_meta");
    } else {
        holder.set("_meta", meta.to_json());
    }
    Some(value)
}
