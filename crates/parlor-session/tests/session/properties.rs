//! Whatever happens in whatever order.

use std::collections::BTreeMap;

use parlor_session::session::{ClientId, Effect, Input, PromptMode, Step};
use proptest::prelude::*;

use crate::stage::Stage;

/// Something that happens. What it is about is chosen from what there is.
#[derive(Debug, Clone)]
enum Happens {
    Line(String),
    Prompt {
        by: u64,
        key: Option<u8>,
        text: &'static str,
    },
    /// The agent says what came of one of the prompts that it has.
    Accepts {
        which: usize,
        named: Option<u8>,
    },
    Rejects {
        which: usize,
    },
    Drops {
        which: usize,
    },
    Ends {
        which: usize,
    },
    Asks {
        form: bool,
    },
}

const TEXTS: [&str; 6] =
    ["a", "ab", "abc", "image", "<conver", "<conversation id='e'>a</conversation id='e'>ab"];

fn happens() -> impl Strategy<Value = Happens> {
    let client = 1..4_u64;
    let line = |line: BoxedStrategy<String>| line.prop_map(Happens::Line);
    let fixed = prop::sample::select(vec![
        "cancel",
        "cancel by 2",
        "cancel turn",
        "cancel by 2 turn",
        "gone",
        "ready one",
        "ready queue",
        "ready one anew",
        "ready queue anew",
        "handed e",
        "state running",
        "state waits",
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
    let joins = (client.clone(), prop::sample::select(vec!["", "waits", "forms", "watches"]));
    let says = (
        prop::sample::select(vec!["user", "agent", "thought"]),
        prop::option::of(0..4_u8),
        prop::sample::select(TEXTS.to_vec()),
        any::<bool>(),
    );
    let says = says.prop_map(|(role, id, text, whole)| match id {
        Some(id) if whole => format!("whole {role} m{id}: {text}"),
        Some(id) => format!("chunk {role} m{id}: {text}"),
        None => format!("chunk {role}: {text}"),
    });
    let answers = (0..4_u64, client.clone(), prop::sample::select(vec!["answer", "err"]));
    prop_oneof![
        3 => line(fixed.prop_map(str::to_owned).boxed()),
        2 => line(joins.prop_map(|(id, how)| format!("join {id} {how}")).boxed()),
        1 => line(client.clone().prop_map(|id| format!("left {id}")).boxed()),
        1 => line(client.clone().prop_map(|id| format!("close {id}")).boxed()),
        1 => line((0..12_u64).prop_map(|id| format!("back {id}")).boxed()),
        1 => line((0..4_u64).prop_map(|id| format!("unask {id}")).boxed()),
        2 => line(answers.prop_map(|(id, by, verb)| format!("{verb} {id} by {by}")).boxed()),
        4 => line(says.boxed()),
        4 => (client, prop::option::of(0..2_u8), prop::sample::select(TEXTS.to_vec()))
            .prop_map(|(by, key, text)| Happens::Prompt { by, key, text }),
        3 => (0..3_usize, prop::option::of(0..4_u8)).prop_map(|(which, named)| Happens::Accepts { which, named }),
        1 => (0..3_usize).prop_map(|which| Happens::Rejects { which }),
        2 => (0..3_usize).prop_map(|which| Happens::Drops { which }),
        2 => (0..2_usize).prop_map(|which| Happens::Ends { which }),
        1 => any::<bool>().prop_map(|form| Happens::Asks { form }),
    ]
}

/// A session with the least of a server around it: it knows what the agent has, and counts the answers.
#[derive(Default)]
struct World {
    stage: Stage,
    agent: Option<PromptMode>,
    /// What the agent has and did not answer.
    sent: Vec<u64>,
    prompts: u64,
    peer_requests: u64,
    settled: BTreeMap<u64, u32>,
    replied: BTreeMap<u64, u32>,
}

impl World {
    fn happen(&mut self, happens: &Happens) {
        match happens {
            Happens::Line(line) => self.line(line),
            Happens::Prompt { by, key, text } => {
                let key = key.map_or_else(String::new, |key| format!(" key=k{key}"));
                self.prompts += 1;
                self.settled.insert(self.prompts, 0);
                self.line(&format!("prompt {} by {by}{key} {text}", self.prompts));
            }
            Happens::Accepts { which, named } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Queued) {
                    let named = named.map_or_else(String::new, |named| format!(" m{named}"));
                    self.line(&format!("accepted {prompt}{named}"));
                }
            }
            Happens::Rejects { which } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Queued) {
                    self.line(&format!("rejected {prompt}"));
                }
            }
            Happens::Drops { which } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Queued) {
                    self.line(&format!("drops {prompt}"));
                }
            }
            Happens::Ends { which } => {
                if let Some(prompt) = self.answered(*which, PromptMode::Serial) {
                    self.line(&format!("ended {prompt} end"));
                }
            }
            Happens::Asks { form } => {
                let peer_request = self.peer_requests;
                self.peer_requests += 1;
                self.replied.insert(peer_request, 0);
                self.line(&format!("ask {peer_request}{} call=t", if *form { " form" } else { "" }));
            }
        }
    }

    /// One of the prompts that an agent of this kind has, which it has no longer.
    fn answered(&mut self, which: usize, agent: PromptMode) -> Option<u64> {
        (self.agent == Some(agent) && which < self.sent.len()).then(|| self.sent.remove(which))
    }

    fn line(&mut self, line: &str) {
        let input = self.stage.input(line);
        match &input {
            Input::AgentReady { taking, .. } | Input::AgentRestored { taking, .. } => {
                // An agent comes when there is none, and an agent that takes one prompt at a time reports no states.
                if self.agent.is_some() {
                    return;
                }
                self.agent = Some(*taking);
            }
            Input::AgentGone(_) => {
                self.agent = None;
                self.sent.clear();
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
            | Input::AgentReleased
            | Input::EarlyUpdatesTaken
            | Input::ContextHandedOver(_)
            | Input::Accepted { .. }
            | Input::Rejected { .. }
            | Input::Ended { .. }
            | Input::RequestOpened { .. }
            | Input::RequestAnswered { .. }
            | Input::RequestCancelled(_)
            | Input::ServerUpdate(_)
            | Input::Happened(_)
            | Input::Titled(_) => {}
        }
        let step = self.stage.step(input);
        self.count(&step);
    }

    fn count(&mut self, step: &Step) {
        for effect in &step.effects {
            match effect {
                Effect::SendPrompt(prompt) => {
                    assert!(self.agent.is_some(), "there is nobody to send a prompt to");
                    self.sent.push(prompt.id.0);
                }
                // What nobody sent is only shown, and answers nobody.
                Effect::RespondPrompt { prompt, by, .. } if *by != ClientId::UNKNOWN => {
                    *self.settled.get_mut(&prompt.0).expect("a prompt that there was") += 1;
                }
                Effect::RespondRequest(peer_request, _) => {
                    *self.replied.get_mut(&peer_request.0).expect("a question that there was") += 1;
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
        assert!(self.settled.values().all(|count| *count <= 1), "somebody was answered twice");
        assert!(self.replied.values().all(|count| *count <= 1), "the agent was answered twice");
    }

    /// Goes on until nothing is left to do.
    fn rest(&mut self) {
        if self.agent.is_none() {
            self.line("ready one");
        }
        for _ in 0..1000 {
            match self.agent {
                Some(PromptMode::Serial) if !self.sent.is_empty() => {
                    self.happen(&Happens::Ends { which: 0 });
                }
                Some(PromptMode::Queued) if !self.sent.is_empty() => {
                    self.happen(&Happens::Accepts { which: 0, named: None });
                }
                Some(PromptMode::Queued) => {
                    self.line("state idle end");
                    // A prompt that the agent dropped may wait for that.
                    if self.sent.is_empty() {
                        return;
                    }
                }
                Some(PromptMode::Serial) | None => return,
            }
        }
        panic!("it never comes to rest");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// That the changes are all that changed is looked at by the stage after each step.
    #[test]
    fn everybody_is_answered_exactly_once(script in prop::collection::vec(happens(), 0..60)) {
        let mut world = World::default();
        script.iter().for_each(|happens| world.happen(happens));
        world.rest();
        let unanswered: Vec<_> = world.settled.iter().filter(|(_, count)| **count == 0).collect();
        prop_assert_eq!(unanswered, Vec::<(&u64, &u32)>::new());
        prop_assert!(world.stage.session.queued_prompts().is_empty());
        prop_assert!(!world.stage.session.is_busy() || world.agent == Some(PromptMode::Serial));
        prop_assert!(!world.stage.session.is_cancelling());
        world.line("gone");
        prop_assert!(world.replied.values().all(|count| *count == 1));
        prop_assert!(!world.stage.session.is_busy());
    }

    #[test]
    fn what_is_kept_is_enough_to_go_on(script in prop::collection::vec(happens(), 0..60)) {
        let mut world = World::default();
        script.iter().for_each(|happens| world.happen(happens));
        world.line("gone");
        let held = |world: &World| -> Vec<_> {
            world.stage.session.queued_prompts().into_iter().map(|held| (held.id, held.text)).collect()
        };
        let (before, names) = (held(&world), world.stage.session.id_map().clone());
        world.stage.restart();
        prop_assert_eq!(held(&world), before);
        prop_assert_eq!(world.stage.session.id_map(), &names);
    }

    /// Towards clients names are unique.
    #[test]
    fn no_two_messages_have_one_name(script in prop::collection::vec(happens(), 0..60)) {
        let mut world = World::default();
        script.iter().for_each(|happens| world.happen(happens));
        let mut seen = std::collections::HashSet::new();
        for entry in world.stage.session.transcript().entries() {
            if let parlor_session::EntryId::Message(_, id) = entry.id() {
                prop_assert!(seen.insert(id.clone()), "{id} twice");
            }
        }
    }

    /// However an agent cuts what it says into chunks, and whatever else it says in between.
    #[test]
    fn a_conversation_that_was_handed_over_shows_nowhere(
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
        // What is outside of envelopes is no secret.
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
        let said: String = parts.concat();
        let mut rest: &str = &said;
        let mut world = World::default();
        world.line("ready queue anew");
        world.line("tool t open");
        world.line("handed e");
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
        world.line(&format!("whole {role} w: {said}"));
        for entry in world.stage.session.transcript().entries() {
            let text = entry.body().content.to_text();
            prop_assert!(!text.contains("SECRET"), "{:?}: {text}", entry.id());
        }
    }
}
