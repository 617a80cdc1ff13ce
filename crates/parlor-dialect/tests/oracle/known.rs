//! Faults of the translator that are known, so that the oracle can watch for new ones.
//!
//! An entry that no longer describes a fault makes the tests fail: take it out.

use std::collections::{BTreeMap, BTreeSet};

use parlor_dialect::Dialect;

use crate::check::Fault;

/// A fault that is known.
pub(crate) struct Known {
    pub(crate) from: &'static [Dialect],
    pub(crate) to: &'static [Dialect],
    /// How the name of the line begins, as [`Fault::name`] has it.
    pub(crate) name: &'static str,
    /// Part of the problem.
    pub(crate) problem: &'static str,
    /// Part of the line that was said.
    pub(crate) line: &'static str,
    /// Where it is sure to be found.
    pub(crate) found_in: Place,
}

/// Where faults are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Among the samples of the schema.
    Samples,
    /// In a conversation written for it.
    Conversation,
}

const V1: &[Dialect] = &[Dialect::V1];
const V2: &[Dialect] = &[Dialect::V2, Dialect::Draft];

const fn to_v1(name: &'static str, problem: &'static str, line: &'static str) -> Known {
    Known { from: V2, to: V1, name, problem, line, found_in: Place::Samples }
}

const fn to_v2(name: &'static str, problem: &'static str, line: &'static str) -> Known {
    Known { from: V1, to: V2, name, problem, line, found_in: Place::Samples }
}

impl Known {
    const fn in_conversation(self) -> Self {
        Self { found_in: Place::Conversation, ..self }
    }
}

/// What is wrong, and will be mended.
pub(crate) const KNOWN: &[Known] = &[
    // v1 requires the list of MCP servers, v2 does not.
    to_v1("session/new", "\"mcpServers\" is a required property", ""),
    to_v1("session/load", "\"mcpServers\" is a required property", ""),
    // Content blocks of a type that v1 cannot parse are left out of messages, but not of what follows.
    to_v1("session/prompt", "expected one of `text`, `image`", ""),
    to_v1("session/", "expected one of `text`, `image`", "\"systemPrompt\""),
    to_v1("session/update compaction_summary_chunk", "expected one of `text`, `image`", ""),
    to_v1("session/update compaction_update", "lost, /update/summary: ", ""),
    to_v1("session/update session_message_chunk", "expected one of `text`, `image`", ""),
    to_v1("session/update session_message", "lost, /update/content: ", ""),
    // Who a block is meant for is one of two in v1, anybody in v2.
    to_v1("", "/annotations/audience: ", ""),
    // A v1 client that takes plans takes only three types of them.
    to_v1("session/update plan_update", "expected one of `items`, `file`, `markdown`", ""),
    // The loss is told, and the line is said nevertheless.
    to_v1("session/set_config_option", "SessionConfigOptionValue", ""),
    // A capability of v2 may be null.
    to_v1("initialize", "Capabilities/auth: value is not of type", "\"auth\":null"),
    // The option that stands for the modes is set to what is no id.
    to_v1("session/set_mode", "/modeId: value is not of type", "").in_conversation(),
    to_v2("session/set_config_option result", "lost, /configOptions", "\"parlor/modes\"").in_conversation(),
    // What a terminal runs, where, and how it ended.
    to_v1("session/update terminal_update", "is translated to nothing", ""),
    // Methods between a conductor and its proxies are passed on as they are.
    to_v1("proxy/initialize result", "/authMethods", ""),
    to_v2("proxy/initialize", "\"info\" is a required property", ""),
    // An id may be null in v1.
    to_v2("$/cancel_request", "enum RequestId", "\"requestId\":null"),
    to_v2("elicitation/create", "enum ElicitationMode", "\"requestId\":null"),
    // Lists that may be empty in v1.
    to_v2("session/prompt", "schema, /prompt: value has less than 1 item", ""),
    to_v2("session/request_permission", "schema, /options: value has less than 1 item", ""),
    to_v2("session/update config_option_update", "schema, /update", "\"options\":[]"),
    to_v2("session/", "schema, /configOptions", "\"options\":[]"),
    to_v2("elicitation/create", "schema, : value", "\"enum\":[]"),
    to_v2("elicitation/create", "schema, : value", "\"oneOf\":[]"),
    to_v2("elicitation/create", "schema, : value", "\"anyOf\":[]"),
];

/// The faults that a test found.
#[derive(Default)]
pub(crate) struct Found {
    known: BTreeSet<usize>,
    /// By what they are, the number of the others that are alike, and the first one.
    new: BTreeMap<String, (usize, String)>,
}

impl Found {
    /// Adds a fault of a translation of `input`.
    pub(crate) fn add(&mut self, from: Dialect, to: Dialect, input: &str, fault: &Fault) {
        if let Some(place) = place(from, to, fault) {
            self.known.insert(place);
            return;
        }
        let what = format!("{from} -> {to}, {}: {}", fault.name, without_values(&fault.problem));
        let example = || format!("  of   {}\n  said {}", cut(input), cut(&fault.line));
        self.new.entry(what).and_modify(|(others, _)| *others += 1).or_insert_with(|| (0, example()));
    }

    /// Fails if there are faults that are not known, or known ones between these dialects that are not there.
    pub(crate) fn assert(&self, from: Dialect, to: Dialect, place: Place) {
        assert_eq!(self.new_ones(), "");
        for (at, known) in KNOWN.iter().enumerate() {
            let is_meant = known.from.contains(&from) && known.to.contains(&to) && known.found_in == place;
            assert!(
                !is_meant || self.known.contains(&at),
                "{from} -> {to}, {}: {}: this fault is mended, take it off the list",
                known.name,
                known.problem
            );
        }
    }

    /// The faults that are not known, one for each kind.
    pub(crate) fn new_ones(&self) -> String {
        let show = |(what, (others, example)): (&String, &(usize, String))| {
            format!("{what} (and {others} more)\n{example}\n\n")
        };
        self.new.iter().map(show).collect()
    }
}

fn place(from: Dialect, to: Dialect, fault: &Fault) -> Option<usize> {
    KNOWN.iter().position(|known| {
        known.from.contains(&from)
            && known.to.contains(&to)
            && fault.name.starts_with(known.name)
            && fault.problem.contains(known.problem)
            && fault.line.contains(known.line)
    })
}

/// A problem without the values that it happened to, so that those that are alike count as one.
fn without_values(problem: &str) -> String {
    let problems = problem.split("; ").map(|problem| problem.split(": said").next().unwrap_or_default());
    let problems: Vec<_> =
        problems.map(|problem| problem.replace(|c: char| c.is_ascii_digit(), "N")).collect();
    problems.join("; ")
}

fn cut(text: &str) -> String {
    if text.len() < 600 { text.to_owned() } else { text.chars().take(500).chain("...".chars()).collect() }
}
