//! Checks lines as a peer of one dialect would parse them.

use std::collections::{BTreeMap, HashMap};

use parlor_dialect::{Dialect, LineProblem, Side};
use serde_json::{Value, json};

use crate::lines::version;
use crate::schema::{Shape, Version};

/// Checks the lines between two peers of one dialect.
pub(crate) struct Checker {
    dialect: Dialect,
    /// The methods of requests that have no answer yet, by sender.
    open: HashMap<(bool, String), String>,
    /// How many lines were checked, and which could not be.
    pub(crate) counts: Counts,
}

/// How many lines there were.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Checked against their type.
    pub(crate) checked: usize,
    /// Extensions and methods that no version of the schema knows, and answers to such, by method.
    pub(crate) unknown: BTreeMap<String, usize>,
    /// Responses to unknown requests.
    pub(crate) unasked: usize,
}

/// A line that its peer would misread or reject.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// The method, for an update with its name, for an answer with `result` or `error`.
    pub(crate) name: String,
    pub(crate) problem: String,
    pub(crate) line: String,
}

impl Fault {
    /// A valid line that was not translated at all.
    pub(crate) fn refused(problem: &LineProblem) -> Self {
        fault("line", &format!("is refused: {problem:?}"), "")
    }
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.checked += other.checked;
        self.unasked += other.unasked;
        for (method, count) in &other.unknown {
            *self.unknown.entry(method.clone()).or_default() += count;
        }
    }
}

impl Checker {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, open: HashMap::new(), counts: Counts::default() }
    }

    /// Takes a request that needs no check, so that its answer can be checked.
    pub(crate) fn hear(&mut self, by: Side, line: &str) {
        let message: Value = serde_json::from_str(line).expect("a line is JSON");
        let Some(id) = message.get("id").map(Value::to_string) else { return };
        match message.get("method").and_then(Value::as_str) {
            Some(method) => self.open.insert((by == Side::Client, id), method.to_owned()),
            None => self.open.remove(&(by != Side::Client, id)),
        };
    }

    /// Checks one line; the request of a response has to be checked before it.
    pub(crate) fn line(&mut self, by: Side, line: &str) -> Vec<Fault> {
        let message: Value = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => return vec![fault("line", &format!("is not JSON: {error}"), line)],
        };
        if let Value::Array(batch) = &message {
            return batch.iter().flat_map(|message| self.message(by, message, line)).collect();
        }
        self.message(by, &message, line)
    }

    fn message(&mut self, by: Side, message: &Value, line: &str) -> Vec<Fault> {
        let id = message.get("id").map(Value::to_string);
        let method = message.get("method").and_then(Value::as_str);
        let (name, problems) = match (method, id) {
            (Some(method), Some(id)) => {
                self.open.insert((by == Side::Client, id), method.to_owned());
                (method.to_owned(), self.request(by, method, &params(message)))
            }
            (Some(method), None) => self.notification(by, method, params(message)),
            (None, Some(id)) => match self.open.remove(&(by != Side::Client, id)) {
                Some(method) => self.response(by, &method, message),
                None => {
                    self.counts.unasked += 1;
                    (String::from("unasked"), self.error(message))
                }
            },
            (None, None) => ("line".to_owned(), vec!["has neither method nor id".to_owned()]),
        };
        let envelope =
            (message.get("jsonrpc") != Some(&json!("2.0"))).then(|| "is not JSON-RPC 2.0".to_owned());
        let problems: Vec<_> = problems.into_iter().chain(envelope).collect();
        if problems.is_empty() { Vec::new() } else { vec![fault(&name, &problems.join("; "), line)] }
    }

    fn request(&mut self, by: Side, method: &str, params: &Value) -> Vec<String> {
        let mut problems = self.version(method, params);
        problems.extend(match Version::of(self.dialect).request(by, method) {
            Some((json_ext, _)) => self.check(json_ext, params),
            None => self.no_shape(method),
        });
        problems
    }

    fn notification(&mut self, by: Side, method: &str, mut params: Value) -> (String, Vec<String>) {
        let Some(json_ext) = Version::of(self.dialect).notification(by, method) else {
            return (method.to_owned(), self.no_shape(method));
        };
        let Some(update) = params.get_mut("update") else {
            return (method.to_owned(), self.check(json_ext, &params));
        };
        let mut problems = Vec::new();
        if self.dialect == Dialect::Draft {
            problems.extend(published(update));
        }
        let name = update["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        let here = Version::of(self.dialect).updates().contains(&name.as_str());
        if !here
            && (Version::other(self.dialect).updates().contains(&name.as_str()) || name == "state_change")
        {
            problems.push(format!("has no update {name}"));
        }
        problems.extend(self.check(json_ext, &params));
        (format!("{method} {name}"), problems)
    }

    fn response(&mut self, by: Side, method: &str, message: &Value) -> (String, Vec<String>) {
        let Some(result) = message.get("result") else {
            return (format!("{method} error"), self.error(message));
        };
        let asker = if by == Side::Agent { Side::Client } else { Side::Agent };
        let mut problems = self.version(method, result);
        let mut result = result.clone();
        if self.dialect == Dialect::Draft && method == "session/prompt" {
            if result.get("messageId").is_some() {
                problems.push("a draft's answer to a prompt names no message".to_owned());
            }
            result["messageId"] = json!("m");
        }
        problems.extend(match Version::of(self.dialect).request(asker, method) {
            Some((_, json_ext)) => self.check(json_ext, &result),
            None => self.no_shape(method),
        });
        (format!("{method} result"), problems)
    }

    /// Who initializes, or is initialized, says the version that it speaks.
    fn version(&self, method: &str, value: &Value) -> Vec<String> {
        let is_right = method != "initialize" || value["protocolVersion"] == json!(version(self.dialect));
        if is_right { Vec::new() } else { vec!["is of another version".to_owned()] }
    }

    fn error(&mut self, message: &Value) -> Vec<String> {
        match message.get("error") {
            Some(error) => self.check(&Version::of(self.dialect).error, error),
            None => Vec::new(),
        }
    }

    fn check(&mut self, json_ext: &Shape, value: &Value) -> Vec<String> {
        self.counts.checked += 1;
        json_ext.problems(value)
    }

    /// A method without a type may be an extension, but not one that only the other version has.
    fn no_shape(&mut self, method: &str) -> Vec<String> {
        if Version::other(self.dialect).names.contains(method)
            || Version::of(self.dialect).names.contains(method)
        {
            return vec!["has no such method".to_owned()];
        }
        *self.counts.unknown.entry(method.to_owned()).or_default() += 1;
        Vec::new()
    }
}

/// A draft's update in its published form, and a problem if it is not in the draft's form.
fn published(update: &mut Value) -> Option<String> {
    match update["sessionUpdate"].as_str() {
        Some("state_change") => {
            let has_both = update.get("stopReason").is_some();
            update["sessionUpdate"] = json!("state_update");
            if let Some(reason) = update.as_object_mut().and_then(|update| update.remove("stop_reason")) {
                update["stopReason"] = reason;
            }
            has_both.then(|| "a draft has no stopReason".to_owned())
        }
        Some("state_update") => Some("a draft has no state_update".to_owned()),
        _ => None,
    }
}

fn params(message: &Value) -> Value {
    message.get("params").cloned().unwrap_or_else(|| json!({}))
}

fn fault(name: &str, problem: &str, line: &str) -> Fault {
    Fault { name: name.to_owned(), problem: problem.to_owned(), line: line.to_owned() }
}
