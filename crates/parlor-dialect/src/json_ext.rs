//! Helpers for JSON objects in conversions.

use parlor_json::{Json, JsonStr, Object, Type};

/// Whether a member exists and has this type.
pub(crate) fn is(holder: &Object, name: &str, type_: Type) -> bool {
    holder.get(name).is_some_and(|value| value.type_of() == type_)
}

/// Renames a member at its position, unless the object has one of the new name.
pub(crate) fn renamed(holder: &Object, from: &str, to: &str) -> Object {
    if holder.get(to).is_some() {
        return holder.clone();
    }
    let name = |name: &JsonStr| if *name == *from { JsonStr::new(to) } else { name.clone() };
    holder.iter().map(|(old, value)| (name(old), value.clone())).collect()
}

/// Adds a first member, where tags usually are.
pub(crate) fn in_front(holder: &Object, name: &str, value: impl Into<Json>) -> Object {
    let rest = holder.iter().filter(|(old, _)| **old != *name);
    let rest = rest.map(|(name, value)| (name.clone(), value.clone()));
    std::iter::once((JsonStr::new(name), value.into())).chain(rest).collect()
}

/// Converts every object of a list; `None` removes it. Other elements stay, as does a value that is not a list. Unchanged elements keep their text.
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
