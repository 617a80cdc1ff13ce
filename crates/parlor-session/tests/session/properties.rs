//! Properties of a session under any order of inputs.

use std::collections::BTreeMap;

use parlor_session::session::{ClientId, Effect, Input, PromptMode, Step};
use proptest::prelude::*;

use crate::scenario::Scenario;

/// An input; `which` selects from the prompts that the agent has.
#[derive(Debug, Clone)]
enum Action {
    Line(String),
    Prompt {
        by: u64,
        key: Option<u8>,
        text: &'static str,
        verb: &'static str,
    },
    /// The agent answers whether it took a prompt into its turn.
    AnswerSteer {
        which: usize,
        verb: &'static str,
    },
    /// The agent accepts one of the prompts that it has.
    Accept {
        which: usize,
        named: Option<u8>,
    },
    Reject {
        which: usize,
    },
    Drop {
        which: usize,
    },
    End {
        which: usize,
    },
    Request {
        form: bool,
    },
}

const TEXTS: [&str; 6] =
    ["a", "ab", "abc", "image", "<conver", "<conversation id='e'>a</conversation id='e'>ab"];

fn action() -> impl Strategy<Value = Action> {
    let client = 1..4_u64;
    let line = |line: BoxedStrategy<String>| line.prop_map(Action::Line);
    let fixed = prop::sample::select(vec![
        "cancel",
        "cancel by 2",
        "cancel turn",
        "cancel by 2 turn",
        "lost",
        "ready serial",
        "ready queued",
        "ready serial without-history",
        "ready queued without-history",
        "context e",
        "state running",
        "state requires_action",
        "state idle end",
        "state idle",
        "title x",
        "title null",
        "person y",
        "person",
        "notice",
        "starts t",
        "tool t open",
        "tool t done",
        "meta user m0",
    ]);
    let attaches = (client.clone(), prop::sample::select(vec!["", "waits", "forms", "watches"]));
    let updates = (
        prop::sample::select(vec!["user", "agent", "thought"]),
        prop::option::of(0..4_u8),
        prop::sample::select(TEXTS.to_vec()),
        any::<bool>(),
    );
    let updates = updates.prop_map(|(role, id, text, whole)| match id {
        Some(id) if whole => format!("whole {role} m{id}: {text}"),
        Some(id) => format!("chunk {role} m{id}: {text}"),
        None => format!("chunk {role}: {text}"),
    });
    let answers = (0..4_u64, client.clone(), prop::sample::select(vec!["answer", "err"]));
    prop_oneof![
        3 => line(fixed.prop_map(str::to_owned).boxed()),
        2 => line(attaches.prop_map(|(id, how)| format!("attach {id} {how}")).boxed()),
        1 => line(client.clone().prop_map(|id| format!("detach {id}")).boxed()),
        1 => line(client.clone().prop_map(|id| format!("close {id}")).boxed()),
        1 => line((0..12_u64).prop_map(|id| format!("withdraw {id}")).boxed()),
        1 => line((0..4_u64).prop_map(|id| format!("cancel-request {id}")).boxed()),
        2 => line(answers.prop_map(|(id, by, verb)| format!("{verb} {id} by {by}")).boxed()),
        4 => line(updates.boxed()),
        4 => (client, prop::option::of(0..2_u8), prop::sample::select(TEXTS.to_vec()), prop::sample::select(vec!["prompt", "prompt", "steer", "next"]))
            .prop_map(|(by, key, text, verb)| Action::Prompt { by, key, text, verb }),
        3 => (0..2_usize, prop::sample::select(vec!["steered", "not-steered", "rejected"]))
            .prop_map(|(which, verb)| Action::AnswerSteer { which, verb }),
        3 => (0..3_usize, prop::option::of(0..4_u8)).prop_map(|(which, named)| Action::Accept { which, named }),
        1 => (0..3_usize).prop_map(|which| Action::Reject { which }),
        2 => (0..3_usize).prop_map(|which| Action::Drop { which }),
        2 => (0..2_usize).prop_map(|which| Action::End { which }),
        1 => any::<bool>().prop_map(|form| Action::Request { form }),
    ]
}

/// A session with a minimal server, which tracks the prompts of the agent and counts responses.
#[derive(Default)]
struct World {
    scenario: Scenario,
    agent: Option<PromptMode>,
    /// The prompts that the agent has not answered.
    sent: Vec<u64>,
    /// The prompts that the agent was asked to take into its turn.
    steered: Vec<u64>,
    prompts: u64,
    peer_requests: u64,
    responses: BTreeMap<u64, u32>,
    replies: BTreeMap<u64, u32>,
}

impl World {
    fn act(&mut self, action: &Action) {
        match action {
            Action::Line(line) => self.line(line),
            Action::Prompt { by, key, text, verb } => {
                let key = key.map_or_else(String::new, |key| format!(" key=k{key}"));
                self.prompts += 1;
                self.responses.insert(self.prompts, 0);
                self.line(&format!("{verb} {} by {by}{key} {text}", self.prompts));
            }
            Action::AnswerSteer { which, verb } => {
                if *which < self.steered.len() {
                    let prompt = self.steered.remove(*which);
                    self.line(&format!("{verb} {prompt}"));
                }
            }
            Action::Accept { which, named } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Queued) {
                    let named = named.map_or_else(String::new, |named| format!(" m{named}"));
                    self.line(&format!("accepted {prompt}{named}"));
                }
            }
            Action::Reject { which } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Queued) {
                    self.line(&format!("rejected {prompt}"));
                }
            }
            Action::Drop { which } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Queued) {
                    self.line(&format!("dropped {prompt}"));
                }
            }
            Action::End { which } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Serial) {
                    self.line(&format!("ended {prompt} end"));
                }
            }
            Action::Request { form } => {
                let peer_request = self.peer_requests;
                self.peer_requests += 1;
                self.replies.insert(peer_request, 0);
                self.line(&format!("request {peer_request}{} call=t", if *form { " form" } else { "" }));
            }
        }
    }

    /// Removes one of the prompts of an agent with this mode.
    fn answered(&mut self, which: usize, agent: PromptMode) -> Option<u64> {
        (self.agent == Some(agent) && which < self.sent.len()).then(|| self.sent.remove(which))
    }

    fn line(&mut self, line: &str) {
        let input = self.scenario.input(line);
        match &input {
            Input::AgentReady { mode, .. } | Input::AgentRestored { mode, .. } => {
                // There is one agent at a time, and a serial agent reports no states.
                if self.agent.is_some() {
                    return;
                }
                self.agent = Some(*mode);
            }
            Input::AgentLost(_) => {
                self.agent = None;
                self.sent.clear();
                self.steered.clear();
            }
            Input::AgentUpdate(..) if self.agent.is_none() => return,
            Input::AgentUpdate(parlor_session::Update::State(_), _)
                if self.agent != Some(PromptMode::Queued) =>
            {
                return;
            }
            Input::AgentUpdate(..)
            | Input::Attached(..)
            | Input::Detached(_)
            | Input::Closed(_)
            | Input::Prompted(_)
            | Input::Withdrawn { .. }
            | Input::Cancelled { .. }
            | Input::Dropped { .. }
            | Input::Steered(_)
            | Input::NotSteered(_)
            | Input::AgentReleased
            | Input::EarlyUpdatesApplied
            | Input::ContextHandedOver(_)
            | Input::Accepted { .. }
            | Input::Rejected { .. }
            | Input::Ended { .. }
            | Input::RequestOpened { .. }
            | Input::RequestAnswered { .. }
            | Input::RequestDecided { .. }
            | Input::RequestCancelled(_)
            | Input::ServerUpdate(_)
            | Input::EventOccurred(_)
            | Input::Titled(_) => {}
        }
        let step = self.scenario.step(input);
        self.count(&step);
    }

    fn count(&mut self, step: &Step) {
        for effect in &step.effects {
            match effect {
                Effect::SendPrompt(prompt) => {
                    assert!(self.agent.is_some(), "a prompt is sent without an agent");
                    self.sent.push(prompt.id.0);
                }
                Effect::Steer(prompt) => {
                    assert!(self.agent.is_some(), "a prompt is sent without an agent");
                    self.steered.push(prompt.id.0);
                }
                // A failure without a waiting client is not a response.
                Effect::RespondPrompt { prompt, by, .. } if *by != ClientId::UNKNOWN => {
                    *self.responses.get_mut(&prompt.0).expect("the prompt is known") += 1;
                }
                Effect::RespondRequest(peer_request, _) => {
                    *self.replies.get_mut(&peer_request.0).expect("the request is known") += 1;
                }
                Effect::RespondPrompt { .. }
                | Effect::CancelPrompt(_)
                | Effect::CancelTurn
                | Effect::SendRequest(..)
                | Effect::CancelClientRequest(..)
                | Effect::RecordDecision { .. }
                | Effect::QueueChanged
                | Effect::StartAgent => {}
            }
        }
        assert!(self.responses.values().all(|count| *count <= 1), "a client was answered twice");
        assert!(self.replies.values().all(|count| *count <= 1), "the agent was answered twice");
    }

    /// Continues until no prompt is left.
    fn finish(&mut self) {
        if self.agent.is_none() {
            self.line("ready serial");
        }
        for n in 0..1000 {
            if !self.steered.is_empty() {
                let verb = if n % 2 == 0 { "steered" } else { "not-steered" };
                self.act(&Action::AnswerSteer { which: 0, verb });
                continue;
            }
            match self.agent {
                Some(PromptMode::Serial) if !self.sent.is_empty() => {
                    self.act(&Action::End { which: 0 });
                }
                Some(PromptMode::Queued) if !self.sent.is_empty() => {
                    self.act(&Action::Accept { which: 0, named: None });
                }
                Some(PromptMode::Queued) => {
                    self.line("state idle end");
                    // A prompt that the agent dropped may be sent again now.
                    if self.sent.is_empty() && self.steered.is_empty() {
                        return;
                    }
                }
                Some(PromptMode::Serial) | None => return,
            }
        }
        panic!("prompts are left after 1000 steps");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// The scenario also checks after each step that the changes are all that changed.
    #[test]
    fn every_prompt_and_request_is_answered_exactly_once(script in prop::collection::vec(action(), 0..60)) {
        let mut world = World::default();
        script.iter().for_each(|action| world.act(action));
        world.finish();
        let unanswered: Vec<_> = world.responses.iter().filter(|(_, count)| **count == 0).collect();
        prop_assert_eq!(unanswered, Vec::<(&u64, &u32)>::new());
        prop_assert!(world.scenario.session.queued_prompts().is_empty());
        prop_assert!(!world.scenario.session.is_busy() || world.agent == Some(PromptMode::Serial));
        prop_assert!(!world.scenario.session.is_cancelling());
        world.line("lost");
        prop_assert!(world.replies.values().all(|count| *count == 1));
        prop_assert!(!world.scenario.session.is_busy());
    }

    #[test]
    fn the_queue_and_the_id_map_are_restored_from_the_side_state(script in prop::collection::vec(action(), 0..60)) {
        let mut world = World::default();
        script.iter().for_each(|action| world.act(action));
        world.line("lost");
        let queue = |world: &World| -> Vec<_> {
            world.scenario.session.queued_prompts().into_iter().map(|queued| (queued.id, queued.text)).collect()
        };
        let (before, id_map) = (queue(&world), world.scenario.session.id_map().clone());
        world.scenario.restart();
        prop_assert_eq!(queue(&world), before);
        prop_assert_eq!(world.scenario.session.id_map(), &id_map);
    }

    #[test]
    fn message_ids_are_unique(script in prop::collection::vec(action(), 0..60)) {
        let mut world = World::default();
        script.iter().for_each(|action| world.act(action));
        let mut seen = std::collections::HashSet::new();
        for entry in world.scenario.session.transcript().entries() {
            if let parlor_session::EntryId::Message(_, id) = entry.id() {
                prop_assert!(seen.insert(id.clone()), "{id} twice");
            }
        }
    }

    /// Holds for any split into chunks and any updates in between.
    #[test]
    fn a_transcript_that_was_handed_over_is_cut_out_of_every_message(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "<", "a", "<conversation id='e", "<conversation id='e'>SECRET</conversation id='e'>",
                "<conversation id='e'>", "</conversation id='e'>", "SECRET", "\\n",
            ]),
            0..12,
        ),
        cuts in prop::collection::vec((1..30_usize, 0..6_u8), 0..20),
        role in prop::sample::select(vec!["user", "agent", "thought"]),
        is_named in any::<bool>(),
    ) {
        // The secret occurs only inside of envelopes.
        let mut is_inside = false;
        let parts: Vec<_> = parts.into_iter().map(|part| {
            let is_secret = part == "SECRET" && !is_inside;
            is_inside = match part {
                "<conversation id='e'>" => true,
                "</conversation id='e'>" | "<conversation id='e'>SECRET</conversation id='e'>" => false,
                _ => is_inside,
            };
            if is_secret { "b" } else { part }
        }).collect();
        let text: String = parts.concat();
        let mut rest: &str = &text;
        let mut world = World::default();
        world.line("ready queued without-history");
        world.line("tool t open");
        world.line("context e");
        let name = if is_named { " m" } else { "" };
        for (length, between) in cuts {
            let end = (length..rest.len()).find(|end| !rest[..*end].ends_with('\\')).unwrap_or(rest.len());
            let (piece, after) = rest.split_at(end);
            rest = after;
            world.line(&format!("chunk {role}{name}: {piece}"));
            match between {
                0 => world.line("title x"),
                1 => world.line("notice"),
                2 => world.line("tool t open"),
                3 if is_named => world.line("chunk agent other: z"),
                _ => {}
            }
        }
        world.line(&format!("chunk {role}{name}: {rest}"));
        world.line("state idle end");
        world.line(&format!("whole {role} w: {text}"));
        for entry in world.scenario.session.transcript().entries() {
            let text = entry.body().content.to_text();
            prop_assert!(!text.contains("SECRET"), "{:?}: {text}", entry.id());
        }
    }
}
