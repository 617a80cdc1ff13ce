//! Whether a type keeps what was said: a value, and what became of it on the way through the type.
//!
//! Members that the type does not know are left out. What the type knows has to come back the same, except:
//!
//! - `null` may come back as nothing, where the schema allows null: the type holds `None` for both. This is
//!   also all that becomes of `_meta: null` where the type cannot distinguish it from no metadata.
//! - A member that was not said may come back, if its value is the `default` of its schema, or is null or
//!   an empty array or object that stands for nothing said.
//! - A member whose value is the schema's `default`, or is an empty array or object that the schema does not
//!   require, may come back as nothing: the type leaves it out when it is written.
//! - So may the status and the kind of a v1 `tool_call`, if they are what the type takes for granted ([`GRANTED`]).
//! - Numbers are equal by value: `1` and `1.0` are the same.

use serde_json::{Map, Value};

/// What v1's type of a `tool_call` leaves out when it is written, though its schema names no default.
const GRANTED: [(&str, &str); 2] = [("status", "pending"), ("kind", "other")];

/// What of `said` is not in `typed`.
pub(crate) fn losses(schema: &Value, said: &Value, typed: &Value) -> Vec<String> {
    let mut compare = Compare { root: schema, found: Vec::new() };
    compare.value(&[schema], said, typed, "");
    compare.found
}

struct Compare<'a> {
    root: &'a Value,
    found: Vec<String>,
}

impl<'a> Compare<'a> {
    fn value(&mut self, schemas: &[&'a Value], said: &Value, typed: &Value, at: &str) {
        match (said, typed) {
            (Value::Object(said), Value::Object(typed)) => self.object(schemas, said, typed, at),
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                let schemas = self.all(schemas, said);
                let items: Vec<_> = schemas.iter().filter_map(|schema| schema.get("items")).collect();
                for (place, (one, other)) in one.iter().zip(other).enumerate() {
                    self.value(&items, one, other, &format!("{at}/{place}"));
                }
            }
            (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => {}
            _ if said == typed => {}
            _ => self.found.push(format!("lost, {at}: said {said}, kept {typed}")),
        }
    }

    fn object(
        &mut self,
        schemas: &[&'a Value],
        said: &Map<String, Value>,
        typed: &Map<String, Value>,
        at: &str,
    ) {
        let whole = Value::Object(said.clone());
        let schemas = self.all(schemas, &whole);
        for (name, value) in said {
            let at = format!("{at}/{name}");
            let known = members(&schemas, name);
            match typed.get(name) {
                Some(kept) => self.value(&known, value, kept, &at),
                None if known.is_empty() || value.is_null() || self.is_default(&known, value) => {}
                None if is_empty(value) && !is_required(&schemas, name) => {}
                None if is_granted(said, name, value) => {}
                None => self.found.push(format!("lost, {at}: said {value}, kept nothing")),
            }
        }
        for (name, value) in typed.iter().filter(|(name, _)| !said.contains_key(*name)) {
            if !value.is_null() && !is_empty(value) && !self.is_default(&members(&schemas, name), value) {
                self.found.push(format!("made up, {at}/{name}: {value}"));
            }
        }
    }

    fn is_default(&self, schemas: &[&'a Value], value: &Value) -> bool {
        let schemas = schemas.iter().flat_map(|schema| [Some(*schema), self.target(schema)]).flatten();
        schemas.into_iter().any(|schema| schema.get("default") == Some(value))
    }

    fn target(&self, schema: &Value) -> Option<&'a Value> {
        self.root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    /// These schemas and all that they refer to, as far as the value may be meant.
    fn all(&self, schemas: &[&'a Value], value: &Value) -> Vec<&'a Value> {
        let mut all = Vec::new();
        let mut rest = schemas.to_vec();
        while let Some(schema) = rest.pop() {
            rest.extend(self.target(schema));
            for name in ["oneOf", "anyOf", "allOf"] {
                let branches = schema.get(name).and_then(Value::as_array).into_iter().flatten();
                rest.extend(branches.filter(|branch| may_mean(branch, value)));
            }
            all.push(schema);
        }
        all
    }
}

/// Whether a value has the constants of a branch.
fn may_mean(branch: &Value, value: &Value) -> bool {
    let properties = branch.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut constants = properties.filter_map(|(name, schema)| Some((name, schema.get("const")?)));
    constants.all(|(name, constant)| value.get(name) == Some(constant))
}

fn members<'a>(schemas: &[&'a Value], name: &str) -> Vec<&'a Value> {
    schemas.iter().filter_map(|schema| schema.get("properties")?.get(name)).collect()
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

fn is_granted(holder: &Map<String, Value>, name: &str, value: &Value) -> bool {
    let is_tool_call = holder.get("sessionUpdate").is_some_and(|kind| kind == "tool_call");
    is_tool_call && GRANTED.iter().any(|(granted, word)| name == *granted && value == word)
}

fn is_required(schemas: &[&Value], name: &str) -> bool {
    let required = schemas.iter().filter_map(|schema| schema.get("required")?.as_array()).flatten();
    required.into_iter().any(|required| required == name)
}

#[test]
fn a_dropped_member_is_a_loss_unless_the_type_does_not_know_it() {
    let schema = serde_json::json!({
        "properties": {
            "known": { "type": ["integer", "null"] },
            "list": { "items": { "$ref": "#/$defs/Item" } },
            "flag": { "default": false },
        },
        "$defs": { "Item": { "properties": { "x": {} } } },
    });
    let losses = |said, typed| {
        let [said, typed] = [said, typed].map(|text| serde_json::from_str(text).expect("JSON"));
        losses(&schema, &said, &typed).len()
    };
    for (said, typed, expected) in [
        (r#"{"known":1}"#, r#"{"known":1.0}"#, 0),
        (r#"{"known":1}"#, "{}", 1),
        (r#"{"known":null}"#, "{}", 0),
        (r#"{"unknown":1}"#, "{}", 0),
        (r#"{"list":[{"x":1},{}]}"#, r#"{"list":[{}]}"#, 1),
        (r#"{"list":[{"x":1,"y":2}]}"#, r#"{"list":[{}]}"#, 1),
        (r#"{"list":[]}"#, "{}", 0),
        (r#"{"flag":false}"#, "{}", 0),
        (r#"{"flag":true}"#, "{}", 1),
        ("{}", r#"{"flag":false,"list":[],"known":null}"#, 0),
        ("{}", r#"{"flag":true}"#, 1),
    ] {
        assert_eq!(losses(said, typed), expected, "{said} {typed}");
    }
}
