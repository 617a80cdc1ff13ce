//! Values made of a JSON Schema.
//!
//! A value is a row of choices: which branch, whether an optional member is there, which of a few strings. No
//! choices at all give the least value. The choices come from a generator of random numbers, or from
//! [`samples`], which makes sure that each way to choose at each place of a schema is taken once.

use std::collections::{HashSet, VecDeque};

use serde_json::{Map, Value, json};

/// How deep values are before only the least is chosen.
const DEPTH: usize = 14;

/// Values that a discriminator of v2 may have besides those that are listed.
const ODD: [&str; 2] = ["_odd", "odd_one"];

/// A row of choices; when it ends, the first way is chosen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choices {
    row: Vec<u16>,
    /// What was chosen: at which place of the schema and what, how many ways there were, and which one it was.
    taken: Vec<((usize, &'static str), usize, usize)>,
}

impl Choices {
    pub(crate) fn new(row: Vec<u16>) -> Self {
        Self { row, taken: Vec::new() }
    }

    /// Whether only first ways are left.
    pub(crate) fn is_done(&self) -> bool {
        self.taken.len() >= self.row.len()
    }

    /// One of `ways` numbers, chosen at a place of the schema.
    pub(crate) fn pick<T>(&mut self, place: &T, what: &'static str, ways: usize) -> usize {
        let chosen = self.row.get(self.taken.len()).map_or(0, |number| usize::from(*number) % ways);
        self.taken.push(((std::ptr::from_ref(place) as usize, what), ways, chosen));
        chosen
    }
}

/// Values of a schema in which every way of every choice is taken.
pub(crate) fn samples(root: &Value, node: &Value) -> Vec<Value> {
    let mut seen = HashSet::new();
    let mut rows = VecDeque::from([Vec::new()]);
    let mut samples = Vec::new();
    while let Some(row) = rows.pop_front() {
        let mut choices = Choices::new(row.clone());
        let value = generate(root, node, &mut choices);
        samples.push(value);
        seen.extend(choices.taken.iter().map(|(place, _, chosen)| (*place, *chosen)));
        for (at, (place, ways, _)) in choices.taken.iter().enumerate().skip(row.len()) {
            for way in (0..*ways).filter(|way| seen.insert((*place, *way))).collect::<Vec<_>>() {
                let mut row: Vec<_> = choices.taken[..at].iter().map(|taken| taken.2).collect();
                row.push(way);
                rows.push_back(row.into_iter().map(|way| u16::try_from(way).expect("few ways")).collect());
            }
        }
    }
    samples
}

/// A value of the schema `node`, whose references lead into `root`.
pub(crate) fn generate(root: &Value, node: &Value, choices: &mut Choices) -> Value {
    Generator { root, choices }.value(node, "", 0)
}

struct Generator<'a> {
    root: &'a Value,
    choices: &'a mut Choices,
}

impl<'a> Generator<'a> {
    /// A value for the member `name`, made of all parts of a schema.
    fn value(&mut self, node: &'a Value, name: &str, depth: usize) -> Value {
        if let Some(constant) = node.get("const") {
            return constant.clone();
        }
        if let Some(ways) = node.get("enum").and_then(Value::as_array) {
            return ways[self.choices.pick(node, "way", ways.len())].clone();
        }
        let mut parts = Vec::new();
        if node.get("type").is_some() || node.get("properties").is_some() {
            parts.push(self.typed(node, name, depth));
        }
        if let Some(target) = node.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|target| self.root.pointer(target));
            parts.push(self.value(target.expect("references lead somewhere"), name, depth + 1));
        }
        for all in node.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            parts.push(self.value(all, name, depth));
        }
        if let Some(branches) = node.get("oneOf").or_else(|| node.get("anyOf")).and_then(Value::as_array) {
            parts.push(self.branch(node, branches, name, depth));
        }
        let parts = parts.into_iter().reduce(|mut one, other| match (&mut one, other) {
            (Value::Object(one), Value::Object(other)) => {
                one.extend(other);
                Value::Object(std::mem::take(one))
            }
            (_, other) => other,
        });
        parts.unwrap_or_else(|| self.anything(node))
    }

    /// One of the branches; where others are listed by their names, one of a name that is not listed as well.
    fn branch(&mut self, node: &'a Value, branches: &'a [Value], name: &str, depth: usize) -> Value {
        let chosen = if depth < DEPTH { self.choices.pick(node, "branch", branches.len()) } else { 0 };
        let branch = &branches[chosen];
        let is_listed = |branch: &Value| branch.get("const").is_some();
        if branch.get("type") == Some(&json!("string"))
            && !is_listed(branch)
            && branches.iter().any(is_listed)
        {
            return json!(ODD[self.choices.pick(branch, "odd", ODD.len())]);
        }
        let mut value = self.value(branch, name, depth + 1);
        if let Some(known) = branch.pointer("/not/anyOf/0/required/0").and_then(Value::as_str) {
            value[known] = json!(ODD[self.choices.pick(branch, "odd", ODD.len())]);
            value["beyond"] = json!({ "a": [1, null] });
        }
        value
    }

    fn typed(&mut self, node: &'a Value, name: &str, depth: usize) -> Value {
        let kind = match node.get("type") {
            Some(Value::Array(kinds)) => {
                let chosen = self.choices.pick(node, "type", kinds.len());
                kinds[chosen].as_str()
            }
            Some(Value::String(kind)) => Some(kind.as_str()),
            _ => Some("object"),
        };
        match kind.expect("types have names") {
            "object" => self.object(node, depth),
            "array" => self.array(node, name, depth),
            "string" => self.string(node, name),
            "integer" => self.integer(node, name),
            "number" => [json!(0.5), json!(1)][self.choices.pick(node, "number", 2)].clone(),
            "boolean" => json!(self.choices.pick(node, "boolean", 2) == 1),
            "null" => Value::Null,
            kind => panic!("no values are made of type {kind}"),
        }
    }

    fn object(&mut self, node: &'a Value, depth: usize) -> Value {
        let mut made = Map::new();
        let required = node.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
        for (name, schema) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if is_required(name) || (depth < DEPTH && self.choices.pick(schema, "presence", 2) == 1) {
                made.insert(name.clone(), self.value(schema, name, depth + 1));
            }
        }
        match node.get("additionalProperties") {
            // Metadata, and whatever else may hold anything.
            Some(Value::Bool(true)) if node.get("properties").is_none() => {
                let ways = [json!({}), json!({ "k": 1 }), json!({ "k": null, "d": { "e": null, "f": "x" } })];
                return ways[self.choices.pick(node, "way", ways.len())].clone();
            }
            Some(values @ Value::Object(_)) => {
                for name in ["a", "b"].into_iter().take(self.choices.pick(node, "items", 3)) {
                    made.insert(name.to_owned(), self.value(values, name, depth + 1));
                }
            }
            _ => {}
        }
        Value::Object(made)
    }

    fn array(&mut self, node: &'a Value, name: &str, depth: usize) -> Value {
        let least = node.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let least = usize::try_from(least).expect("few items");
        let more = if depth < DEPTH { self.choices.pick(node, "items", 3) } else { 0 };
        let item = node.get("items").unwrap_or(&Value::Null);
        (0..least + more).map(|_| self.value(item, name, depth + 1)).collect()
    }

    fn string(&mut self, node: &'a Value, name: &str) -> Value {
        let ways: &[&str] = match (node.get("contentEncoding"), node.get("format").and_then(Value::as_str)) {
            (Some(_), _) => &["aGk=", "", "8J+YgA==", "/w=="],
            (None, Some("uri")) => &["https://example.com/a"],
            (None, Some("date-time")) => &["2026-01-02T03:04:05Z"],
            (None, Some("regex")) => &["^a$"],
            _ if name == "sessionId" => &["s", "t"],
            _ if name == "id" || name.ends_with("Id") || name == "value" => &["a", "b", "mode"],
            _ if ["cwd", "path", "oldPath", "additionalDirectories"].contains(&name) => &["/w/a.txt", "/w/b"],
            _ if node.get("minLength").is_some() => &["x", "a text"],
            _ => &["x", "", "ü\n\"\u{0}"],
        };
        json!(ways[self.choices.pick(node, "way", ways.len())])
    }

    fn integer(&mut self, node: &'a Value, name: &str) -> Value {
        let limit = |limit: &str| node.get(limit).and_then(Value::as_i64);
        let (least, most) = (limit("minimum").unwrap_or(0), limit("maximum").unwrap_or(40_000));
        if name == "protocolVersion" {
            return json!(least.max(1));
        }
        let ways = [1.clamp(least, most), least, most];
        json!(ways[self.choices.pick(node, "way", ways.len())])
    }

    fn anything(&mut self, node: &'a Value) -> Value {
        let ways = [json!({ "a": 1 }), json!("x"), json!([1, null]), json!(null), json!(1.5)];
        ways[self.choices.pick(node, "way", ways.len())].clone()
    }
}
