//! Generated conversations: valid messages in any order are translated to valid messages.

use parlor_dialect::{Dialect, Side, Translator};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::check::{Checker, Fault};
use crate::faults::Found;
use crate::generate::{Choices, generate};
use crate::lines::{drafted, notification, request, response, versioned};
use crate::schema::{Call, Method, Shape, Version};

/// A request without a response.
#[derive(Debug, Clone)]
struct Waiting {
    /// The side that responds.
    by: Side,
    id: Value,
    method: String,
}

/// Two peers that send any valid message.
struct Peers {
    agent: Dialect,
    client: Dialect,
    choices: Choices,
    waiting: Vec<Waiting>,
    asked: usize,
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    }
}

fn row() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..1500)
}

fn two_dialects() -> impl Strategy<Value = (Dialect, Dialect)> {
    let all = Dialect::ALL.into_iter().flat_map(|one| Dialect::ALL.map(|other| (one, other)));
    prop::sample::select(all.filter(|(one, other)| one != other).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_translated_conversation_is_valid((from, to) in two_dialects(), row in row()) {
        let mut found = Found::default();
        translate_recorded(from, to, row, &mut found);
        prop_assert_eq!(found.shown(), "");
    }

    #[test]
    fn peers_receive_only_valid_messages_of_their_dialect((agent, client) in two_dialects(), row in row()) {
        let mut found = Found::default();
        let mut peers = Peers::new(agent, client, row);
        relay(agent, client, &mut found, |peer| {
            peer.iter().for_each(|(by, line)| peers.hear(*by, line));
            peers.next()
        });
        prop_assert_eq!(found.shown(), "");
    }
}

#[test]
fn a_mode_is_set_only_to_an_available_one() {
    let modes = json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }] });
    let set = json!({ "sessionId": "s", "configId": "mode", "type": "boolean", "value": true });
    for client in [Dialect::V2, Dialect::Draft] {
        let mut found = Found::default();
        let mut lines = [
            (Side::Client, request(&json!(1), "session/new", &json!({ "cwd": "/w", "mcpServers": [] }))),
            (Side::Agent, response(&json!(1), &json!({ "sessionId": "s", "modes": modes }))),
            (Side::Client, request(&json!(2), "session/set_config_option", &set)),
            (Side::Agent, response(&json!(2), &json!({}))),
        ]
        .into_iter();
        relay(Dialect::V1, client, &mut found, |_| lines.next());
        found.assert_none();
    }
}

/// Searches longer than a normal test run, and prints all faults.
#[test]
#[ignore = "takes minutes"]
fn a_long_search() {
    let mut found = Found::default();
    let mut runner = TestRunner::deterministic();
    for _ in 0..1500 {
        let mut any =
            |strategy: BoxedStrategy<_>| strategy.new_tree(&mut runner).expect("no filters").current();
        let ((one, other), row) = any((two_dialects(), row()).boxed());
        translate_recorded(one, other, row.clone(), &mut found);
        let mut peers = Peers::new(one, other, row);
        relay(one, other, &mut found, |peer| {
            peer.iter().for_each(|(by, line)| peers.hear(*by, line));
            peers.next()
        });
    }
    assert_eq!(found.shown(), "");
}

/// Translates a generated conversation.
fn translate_recorded(from: Dialect, to: Dialect, row: Vec<u16>, found: &mut Found) {
    let mut peers = Peers::new(from, from, row);
    let mut translator = Translator::record(from, to);
    let mut checker = Checker::new(to);
    while let Some((by, line)) = peers.next() {
        peers.hear(by, &line);
        match translator.line(by, &line) {
            Ok(said) => {
                for one in &said.lines {
                    let faults = checker.line(one.by, &one.text);
                    faults.iter().for_each(|fault| found.add(from, to, &line, fault));
                }
            }
            Err(problem) => found.add(from, to, &line, &Fault::refused(&problem)),
        }
    }
}

/// Stands between two peers; `next` is what one of them says when they have heard what the other said.
fn relay(
    agent: Dialect,
    client: Dialect,
    found: &mut Found,
    mut next: impl FnMut(&[(Side, String)]) -> Option<(Side, String)>,
) {
    let mut translator = Translator::relay(agent, client);
    let (mut at_agent, mut at_client) = (Checker::new(agent), Checker::new(client));
    let mut peer = Vec::new();
    while let Some((by, line)) = next(&std::mem::take(&mut peer)) {
        let (from, to) = match by {
            Side::Agent => (agent, client),
            Side::Client => (client, agent),
        };
        match by {
            Side::Agent => at_agent.hear(by, &line),
            Side::Client => at_client.hear(by, &line),
        }
        match translator.line(by, &line) {
            Ok(said) => {
                for one in &said.lines {
                    let checker = if one.by == Side::Agent { &mut at_client } else { &mut at_agent };
                    let faults = checker.line(one.by, &one.text);
                    faults.iter().for_each(|fault| found.add(from, to, &line, fault));
                    peer.push((one.by, one.text.to_string()));
                }
            }
            Err(problem) => found.add(from, to, &line, &Fault::refused(&problem)),
        }
    }
}

impl Peers {
    fn new(agent: Dialect, client: Dialect, row: Vec<u16>) -> Self {
        Self { agent, client, choices: Choices::new(row), waiting: Vec::new(), asked: 0 }
    }

    /// The next line of one of them; `None` when no choices are left.
    fn next(&mut self) -> Option<(Side, String)> {
        if self.choices.is_done() {
            return None;
        }
        if self.asked == 0 {
            return Some(self.ask(Side::Client, "initialize"));
        }
        Some(match self.choices.pick(&(), "what", 12) {
            0..6 => self.update(),
            6..9 if !self.waiting.is_empty() => {
                let place = self.choices.pick(&(), "answer", self.waiting.len());
                self.answer(place)
            }
            6..8 => self.ask(Side::Client, "session/prompt"),
            8 | 9 => self.call(Side::Agent),
            _ => self.call(Side::Client),
        })
    }

    /// One of them receives a line: it will respond to a request.
    fn hear(&mut self, by: Side, line: &str) {
        let message: Value = serde_json::from_str(line).expect("a line is JSON");
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else { return };
        let by = if by == Side::Agent { Side::Client } else { Side::Agent };
        let other = if by == Side::Agent { Side::Client } else { Side::Agent };
        if Version::of(self.dialect(by)).request(other, method).is_some() {
            self.waiting.push(Waiting { by, id: id.clone(), method: method.to_owned() });
        }
    }

    fn dialect(&self, side: Side) -> Dialect {
        if side == Side::Agent { self.agent } else { self.client }
    }

    fn update(&mut self) -> (Side, String) {
        let version = Version::of(self.agent);
        let branches = version.update_branches();
        let branch = &branches[self.choices.pick(&(), "update", branches.len())];
        let update = generate(&version.update().schema, branch, &mut self.choices);
        let params = json!({ "sessionId": "s", "update": drafted(self.agent, update) });
        (Side::Agent, notification("session/update", &params))
    }

    /// Any method but updates.
    fn call(&mut self, by: Side) -> (Side, String) {
        let methods = &Version::of(self.dialect(by)).methods;
        let is_meant = |method: &&Method| method.by == by && method.name != "session/update";
        let methods: Vec<_> = methods.iter().filter(is_meant).collect();
        let method = methods[self.choices.pick(&(), "method", methods.len())];
        match &method.call {
            Call::Request { .. } => self.ask(by, method.name),
            Call::Notification { params } => {
                let params = self.made(params);
                (by, notification(method.name, &params))
            }
        }
    }

    fn ask(&mut self, by: Side, method: &str) -> (Side, String) {
        let (params, _) = Version::of(self.dialect(by)).request(by, method).expect("a method of its dialect");
        let params = self.made(params);
        self.asked += 1;
        (by, request(&json!(self.asked), method, &versioned(self.dialect(by), method, params)))
    }

    fn answer(&mut self, place: usize) -> (Side, String) {
        let Waiting { by, id, method } = self.waiting.swap_remove(place);
        if self.choices.pick(&(), "error", 8) == 1 {
            let error = json!({ "code": -32603, "message": "no" });
            return (by, json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
        }
        let other = if by == Side::Agent { Side::Client } else { Side::Agent };
        let (_, result) =
            Version::of(self.dialect(by)).request(other, &method).expect("a method of its dialect");
        let mut result = self.made(result);
        if self.dialect(by) == Dialect::Draft && method == "session/prompt" {
            result.as_object_mut().map(|result| result.remove("messageId"));
        }
        (by, response(&id, &versioned(self.dialect(by), &method, result)))
    }

    fn made(&mut self, json_ext: &Shape) -> Value {
        generate(&json_ext.schema, &json_ext.schema, &mut self.choices)
    }
}
