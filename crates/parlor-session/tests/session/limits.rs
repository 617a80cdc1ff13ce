//! Limits of a session, and its queries.

use parlor_session::session::{ClientId, Effect, Input, PromptId, PromptMode, PromptOutcome};
use parlor_session::{Limits, MessageId, Role, Transcript, UpdateError};

use crate::scenario::Scenario;

/// The outcomes of the prompts of a step.
fn outcomes(effects: Vec<Effect>) -> Vec<PromptOutcome> {
    let outcomes = effects.into_iter().filter_map(|effect| match effect {
        Effect::RespondPrompt { outcome, .. } => Some(outcome),
        Effect::SendPrompt(_)
        | Effect::Steer(_)
        | Effect::CancelPrompt(_)
        | Effect::CancelTurn
        | Effect::SendRequest(..)
        | Effect::CancelClientRequest(..)
        | Effect::RespondRequest(..)
        | Effect::RecordDecision { .. }
        | Effect::QueueChanged
        | Effect::StartAgent => None,
    });
    outcomes.collect()
}

#[test]
fn no_more_than_64_prompts_wait() {
    let mut scenario = Scenario::default();
    scenario.run("attach 1");
    for prompt in 0..64 {
        let results = scenario.run(&format!("prompt {prompt} by 1 again"));
        assert!(!results.contains("respond"), "{results}");
    }
    assert!(scenario.run("prompt 64 by 1 again").contains("respond 64 to 1: more than 64"));
    assert_eq!(scenario.session.queued_prompts().len(), 64);
    // An inserted prompt is not queued.
    scenario.run("ready serial");
    assert!(!scenario.run("prompt 65 by 1 again").contains("settle"));
}

#[test]
fn no_more_than_64_wait_for_one_prompt() {
    let mut scenario = Scenario::default();
    scenario.run("attach 1");
    for prompt in 0..64 {
        let results = scenario.run(&format!("prompt {prompt} by 1 key=k again"));
        assert!(!results.contains("respond"), "{results}");
    }
    assert!(scenario.run("prompt 64 by 1 key=k again").contains("respond 64 to 1: more than 64"));
    assert_eq!(scenario.run("ready serial").matches("accepted as new1").count(), 64);
}

#[test]
fn the_oldest_of_256_keys_is_forgotten() {
    let mut scenario = Scenario::default();
    scenario.run("attach 1\nready serial");
    for prompt in 1..=257 {
        scenario.run(&format!("prompt {prompt} by 1 key=k{prompt} hi\nended {prompt} end"));
    }
    assert!(scenario.run("prompt 300 by 1 key=k2 hi").contains("respond 300 to 1: accepted as new2"));
    assert!(scenario.run("prompt 301 by 1 key=k1 hi").contains("user new258 = hi"));
}

#[test]
fn a_prompt_that_does_not_fit_fails_and_the_next_is_sent() {
    let limits = Limits { entry_bytes: 40, ..Limits::default() };
    for mode in [PromptMode::Serial, PromptMode::Queued] {
        let mut scenario = Scenario::with(Transcript::with_limits(limits));
        scenario.run("attach 1\nattach 2 waits\nprompt 1 by 1 this is much too long\nprompt 2 by 2 hi");
        let mut step = scenario.step(Input::AgentReady { mode, without_history: false });
        if mode == PromptMode::Queued {
            let message = Some(MessageId::from("u1"));
            let fields = parlor_json::Object::default();
            step = scenario.step(Input::Accepted { prompt: PromptId(1), message, fields });
        }
        let error = UpdateError::EntryTooLarge { bytes: 46, limit: 40 };
        assert_eq!(step.rejected, [error]);
        assert_eq!(outcomes(step.effects), [PromptOutcome::NoRoom(error)]);
        if mode == PromptMode::Serial {
            assert_eq!(scenario.session.running_prompt_sender(), Some(ClientId(2)));
        }
    }
}

#[test]
fn a_session_reports_its_clients_and_whether_it_is_busy() {
    let mut scenario = Scenario::default();
    assert!(scenario.session.has_no_clients() && !scenario.session.is_busy());
    scenario.run("attach 3\nattach 1 observer\nattach 2 waits");
    assert_eq!(scenario.session.drivers().collect::<Vec<_>>(), [ClientId(2), ClientId(3)]);
    assert!(!scenario.session.has_no_clients() && !scenario.session.is_busy());
    assert_eq!((scenario.session.agent(), scenario.session.running_prompt_sender()), (None, None));
    scenario.run("prompt 1 by 3 hi");
    assert!(scenario.session.is_busy());
    scenario.run("ready serial");
    assert_eq!(scenario.session.agent(), Some(PromptMode::Serial));
    assert_eq!(scenario.session.running_prompt_sender(), Some(ClientId(3)));
    scenario.run("ended 1 end");
    assert!(!scenario.session.is_busy());
    // A prompt that the agent has stays open until the agent ends it, unless no client waits for it.
    scenario.run("released\nready queued\nprompt 2 by 2 hi\ncancel");
    assert!(scenario.session.is_busy() && scenario.session.is_cancelling());
    scenario.run("dropped 2");
    assert!(!scenario.session.is_busy() && !scenario.session.is_cancelling());
    scenario.run("prompt 4 by 2 hi\nclose 2");
    assert!(!scenario.session.is_busy() && scenario.session.is_cancelling());
}

#[test]
fn ids_are_converted_back_to_the_agents() {
    let mut scenario = Scenario::default();
    scenario.run("ready queued\nchunk thought m: hm\nchunk agent m: yes\nchunk agent n: no");
    let agents = |scenario: &Scenario, role, id: &str| {
        scenario.session.agents_message(role, &id.into()).map(|name| name.to_string())
    };
    assert_eq!(agents(&scenario, Role::Thought, "m").as_deref(), Some("m"));
    assert_eq!(agents(&scenario, Role::Agent, "new1").as_deref(), Some("m"));
    assert_eq!(agents(&scenario, Role::Agent, "x"), None);
    scenario.run("lost\nready queued without-history\nchunk agent n: well");
    // The same id is another message.
    assert_eq!(agents(&scenario, Role::Agent, "new2").as_deref(), Some("n"));
    assert_eq!(agents(&scenario, Role::Agent, "n"), None);
    scenario.run("starts t\ntool t done\nstarts t");
    assert_eq!(scenario.session.id_map().tool_call(&"t".into()).to_string(), "new3");
    assert_eq!(scenario.session.id_map().tool_call(&"u".into()).to_string(), "u");
}
