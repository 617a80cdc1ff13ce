//! Every update and every method of both versions, from the schema: each is translated or its loss is reported.

use parlor_dialect::{Dialect, Side, Translator};
use serde_json::{Value, json};

use crate::check::{Checker, Counts, Fault};
use crate::faults::Found;
use crate::generate::{Choices, generate, samples};
use crate::lines::{drafted, notification, request, response, versioned};
use crate::schema::{Call, Method, Shape, Version, update_name};

/// The context of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// Without earlier messages.
    Bare,
    /// The client took everything that it could be asked, and its prompt is being answered.
    InTurn,
}

/// One conversation that a sample is part of.
struct Walk<'a> {
    from: Dialect,
    to: Dialect,
    translator: Translator,
    checker: Checker,
    found: &'a mut Found,
}

/// The result of one line.
struct Outcome {
    lines: usize,
    losses: usize,
}

#[test]
fn v1_to_v2() {
    everything(Dialect::V1, Dialect::V2);
}

#[test]
fn v1_to_draft() {
    everything(Dialect::V1, Dialect::Draft);
}

#[test]
fn v2_to_v1() {
    everything(Dialect::V2, Dialect::V1);
}

#[test]
fn v2_to_draft() {
    everything(Dialect::V2, Dialect::Draft);
}

#[test]
fn draft_to_v1() {
    everything(Dialect::Draft, Dialect::V1);
}

#[test]
fn draft_to_v2() {
    everything(Dialect::Draft, Dialect::V2);
}

#[test]
fn samples_are_valid_and_there_is_one_for_every_update_and_method() {
    for dialect in [Dialect::V1, Dialect::V2] {
        let version = Version::of(dialect);
        for method in &version.methods {
            let shapes = match &method.call {
                Call::Request { params, result } => vec![params, result],
                Call::Notification { params } => vec![params],
            };
            for json_ext in shapes {
                for sample in samples(&json_ext.schema, &json_ext.schema) {
                    assert_eq!(json_ext.problems(&sample), Vec::<String>::new(), "{}: {sample}", method.name);
                }
            }
        }
        for branch in version.update_branches() {
            let params: Vec<_> = update_samples(dialect, branch).iter().map(update_params).collect();
            assert!(!params.is_empty(), "{dialect} {:?}", update_name(branch));
            for params in params {
                assert_eq!(version.update().problems(&params), Vec::<String>::new(), "{params}");
            }
        }
    }
}

fn everything(from: Dialect, to: Dialect) {
    let mut found = Found::default();
    let mut counts = Counts::default();
    let version = Version::of(from);
    for branch in version.update_branches() {
        for update in update_samples(from, branch) {
            for scene in [Scene::Bare, Scene::InTurn] {
                counts.add(&one_update(from, to, scene, &update, &mut found));
            }
        }
    }
    for method in &version.methods {
        match &method.call {
            Call::Notification { .. } if method.name == "session/update" => {}
            Call::Notification { params } => {
                for params in samples(&params.schema, &params.schema) {
                    counts.add(&one_notification(from, to, method, &params, &mut found));
                }
            }
            Call::Request { params, result } => {
                for sample in samples(&params.schema, &params.schema) {
                    counts.add(&one_call(from, to, method, &sample, least(result), &mut found));
                }
                for sample in samples(&result.schema, &result.schema) {
                    counts.add(&one_call(from, to, method, &least(params), sample, &mut found));
                }
            }
        }
    }
    assert!(counts.checked > 5000, "{counts:?}");
    found.assert_none();
}

fn one_update(from: Dialect, to: Dialect, scene: Scene, update: &Value, found: &mut Found) -> Counts {
    let mut walk = Walk::new(from, to, scene, found);
    let silence = may_be_silent(to, scene, update);
    let name = format!("session/update {}", update["sessionUpdate"].as_str().unwrap_or_default());
    let line = notification("session/update", &update_params(update));
    let mut outcome = walk.say(Side::Agent, &line);
    if outcome.lines + outcome.losses == 0 && !silence {
        // What may begin to repeat the prompt is held back until the agent does something else.
        let output = json!({ "sessionUpdate": "agent_message_chunk", "messageId": "output", "content": { "type": "text", "text": "x" } });
        outcome = walk.say(Side::Agent, &notification("session/update", &update_params(&output)));
        outcome.lines -= 1;
    }
    if outcome.lines + outcome.losses == 0 && !silence {
        walk.fault(&name, "is translated to nothing, and no loss is reported", &line);
    }
    walk.checker.counts
}

fn one_notification(
    from: Dialect,
    to: Dialect,
    method: &Method,
    params: &Value,
    found: &mut Found,
) -> Counts {
    let mut walk = Walk::new(from, to, Scene::InTurn, found);
    let line = notification(method.name, params);
    let outcome = walk.say(method.by, &line);
    if outcome.lines + outcome.losses == 0 {
        walk.fault(method.name, "is translated to nothing, and no loss is reported", &line);
    }
    walk.checker.counts
}

fn one_call(
    from: Dialect,
    to: Dialect,
    method: &Method,
    params: &Value,
    mut result: Value,
    found: &mut Found,
) -> Counts {
    let mut walk = Walk::new(from, to, Scene::InTurn, found);
    let (by, method) = (method.by, method.name);
    let params = &versioned(from, method, params.clone());
    let request = request(&json!("sample"), method, params);
    let asked = walk.say(by, &request);
    if asked.lines + asked.losses == 0 {
        walk.fault(method, "is translated to nothing, and no loss is reported", &request);
    }
    if from == Dialect::Draft && method == "session/prompt" {
        result.as_object_mut().map(|result| result.remove("messageId"));
    }
    let response = response(&json!("sample"), &versioned(from, method, result));
    let answered = walk.say(if by == Side::Client { Side::Agent } else { Side::Client }, &response);
    let mut said = answered.lines + answered.losses;
    if method == "session/prompt" && said == 0 {
        // A v1 client gets its answer when the turn ends; a v2 client of a draft agent when the message is named.
        for update in [
            json!({ "sessionUpdate": "user_message", "messageId": "u", "content": [] }),
            json!({ "sessionUpdate": state_word(from), "state": "idle" }),
        ] {
            let line = notification(
                "session/update",
                &json!({ "sessionId": params["sessionId"], "update": update }),
            );
            said += walk.say(Side::Agent, &line).lines;
        }
    }
    // A request that the other version cannot express was answered, and its loss reported.
    if said == 0 && asked.losses == 0 {
        walk.fault(
            &format!("{method} result"),
            "is translated to nothing, and no loss is reported",
            &response,
        );
    }
    walk.checker.counts
}

impl<'a> Walk<'a> {
    fn new(from: Dialect, to: Dialect, scene: Scene, found: &'a mut Found) -> Self {
        let (translator, checker) = (Translator::record(from, to), Checker::new(to));
        let mut walk = Self { from, to, translator, checker, found };
        if scene == Scene::InTurn {
            for (by, line) in opening(from) {
                let said = walk.translator.line(by, &line).expect("the opening is plain");
                said.lines.iter().for_each(|said| walk.checker.hear(said.by, &said.text));
            }
        }
        walk
    }

    fn say(&mut self, by: Side, line: &str) -> Outcome {
        match self.translator.line(by, line) {
            Ok(said) => {
                for one in &said.lines {
                    for fault in self.checker.line(one.by, &one.text) {
                        self.found.add(self.from, self.to, line, &fault);
                    }
                }
                Outcome { lines: said.lines.len(), losses: said.losses.len() }
            }
            Err(problem) => {
                self.found.add(self.from, self.to, line, &Fault::refused(&problem));
                Outcome { lines: 0, losses: 1 }
            }
        }
    }

    fn fault(&mut self, name: &str, problem: &str, input: &str) {
        let fault = Fault { name: name.to_owned(), problem: problem.to_owned(), line: String::new() };
        self.found.add(self.from, self.to, input, &fault);
    }
}

/// Whether an update needs no translation, so that no line is no loss.
fn may_be_silent(to: Dialect, scene: Scene, update: &Value) -> bool {
    if to != Dialect::V1 {
        return false;
    }
    let has = |name: &str| update.get(name).is_some_and(|value| !value.is_null() && *value != json!([]));
    match update["sessionUpdate"].as_str() {
        // An open prompt is a running turn, as long as nothing else is said of it. The end of a turn is kept
        // for the prompt's answer.
        Some("state_update" | "state_change") => {
            let mut said = update.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
            let is_bare = said.all(|(name, _)| name == "sessionUpdate" || name == "state");
            scene == Scene::InTurn && (is_bare || update["state"] == "idle")
        }
        // The client's own prompt is not sent to it again.
        Some("user_message_chunk") => scene == Scene::InTurn && !has("_meta"),
        // A message without content, or whose content is cleared before there was any.
        Some("agent_message" | "agent_thought") => !has("content") && !has("_meta"),
        Some("user_message") => (scene == Scene::InTurn || !has("content")) && !has("_meta"),
        // An empty update of an unknown terminal.
        Some("terminal_update") => update.as_object().is_some_and(|update| {
            update
                .iter()
                .all(|(name, value)| name.ends_with("Id") || name == "sessionUpdate" || value.is_null())
        }),
        Some("terminal_output_chunk") => update["data"] == "",
        _ => false,
    }
}

/// What is said before, so that a prompt runs and the client takes whatever a client can take.
fn opening(dialect: Dialect) -> Vec<(Side, String)> {
    let takes = json!({
        "plan": {}, "subagents": {},
        "session": { "notices": {}, "compaction": {}, "configOptions": { "boolean": {} } },
    });
    let info = json!({ "name": "n", "version": "1" });
    let (initialize, agent) = match dialect {
        Dialect::V1 => (
            json!({ "protocolVersion": 1, "clientInfo": info, "clientCapabilities": takes }),
            json!({ "protocolVersion": 1, "agentCapabilities": {} }),
        ),
        Dialect::V2 | Dialect::Draft => (
            json!({ "protocolVersion": 2, "info": info, "capabilities": takes }),
            json!({ "protocolVersion": 2, "info": info, "capabilities": { "session": {} } }),
        ),
    };
    let prompt = json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "Hi" }] });
    vec![
        (Side::Client, request(&json!("i"), "initialize", &initialize)),
        (Side::Agent, response(&json!("i"), &agent)),
        (Side::Client, request(&json!("n"), "session/new", &json!({ "cwd": "/w", "mcpServers": [] }))),
        (Side::Agent, response(&json!("n"), &json!({ "sessionId": "s", "configOptions": [] }))),
        (Side::Client, request(&json!("p"), "session/prompt", &prompt)),
    ]
}

fn update_samples(dialect: Dialect, branch: &Value) -> Vec<Value> {
    let root = &Version::of(dialect).update().schema;
    let named = |mut update: Value| {
        if update_name(branch).is_none() {
            update["sessionUpdate"] = json!("_odd");
        }
        drafted(dialect, update)
    };
    samples(root, branch).into_iter().map(named).collect()
}

fn state_word(dialect: Dialect) -> &'static str {
    if dialect == Dialect::Draft { "state_change" } else { "state_update" }
}

fn least(json_ext: &Shape) -> Value {
    generate(&json_ext.schema, &json_ext.schema, &mut Choices::default())
}

fn update_params(update: &Value) -> Value {
    json!({ "sessionId": "s", "update": update })
}
