//! What is too much, and what can be asked of a session besides.

use parlor_session::session::{ClientId, Effect, Input, PromptId, PromptMode, PromptOutcome};
use parlor_session::{Limits, MessageId, Refused, Role, Transcript};

use crate::stage::Stage;

/// What the prompts of a step were answered.
fn settled(effects: Vec<Effect>) -> Vec<PromptOutcome> {
    let settled = effects.into_iter().filter_map(|effect| match effect {
        Effect::RespondPrompt { outcome, .. } => Some(outcome),
        Effect::SendPrompt(_)
        | Effect::CancelPrompt(_)
        | Effect::CancelTurn
        | Effect::SendRequest(..)
        | Effect::CancelClientRequest(..)
        | Effect::RespondRequest(..)
        | Effect::RecordDecision { .. }
        | Effect::QueueChanged
        | Effect::StartAgent => None,
    });
    settled.collect()
}

#[test]
fn no_more_than_64_prompts_wait() {
    let mut stage = Stage::default();
    stage.play("join 1");
    for prompt in 0..64 {
        let told = stage.play(&format!("prompt {prompt} by 1 again"));
        assert!(!told.contains("settle"), "{told}");
    }
    assert!(stage.play("prompt 64 by 1 again").contains("settle 64 of 1: more than 64"));
    assert_eq!(stage.session.queued_prompts().len(), 64);
    // One that is in the conversation does not wait.
    stage.play("ready one");
    assert!(!stage.play("prompt 65 by 1 again").contains("settle"));
}

#[test]
fn no_more_than_64_wait_for_one_prompt() {
    let mut stage = Stage::default();
    stage.play("join 1");
    for prompt in 0..64 {
        let told = stage.play(&format!("prompt {prompt} by 1 key=k again"));
        assert!(!told.contains("settle"), "{told}");
    }
    assert!(stage.play("prompt 64 by 1 key=k again").contains("settle 64 of 1: more than 64"));
    assert_eq!(stage.play("ready one").matches("accepted as new1").count(), 64);
}

#[test]
fn the_oldest_of_256_keys_is_forgotten() {
    let mut stage = Stage::default();
    stage.play("join 1\nready one");
    for prompt in 1..=257 {
        stage.play(&format!("prompt {prompt} by 1 key=k{prompt} hi\nended {prompt} end"));
    }
    assert!(stage.play("prompt 300 by 1 key=k2 hi").contains("settle 300 of 1: accepted as new2"));
    assert!(stage.play("prompt 301 by 1 key=k1 hi").contains("user new258 = hi"));
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_and_the_next_goes_on() {
    let limits = Limits { entry_bytes: 40, ..Limits::default() };
    for taking in [PromptMode::Serial, PromptMode::Queued] {
        let mut stage = Stage::with(Transcript::with_limits(limits));
        stage.play("join 1\njoin 2 waits\nprompt 1 by 1 this is much too long\nprompt 2 by 2 hi");
        let mut step = stage.step(Input::AgentReady { taking, anew: false });
        if taking == PromptMode::Queued {
            let message = Some(MessageId::from("u1"));
            let fields = parlor_json::Object::default();
            step = stage.step(Input::Accepted { prompt: PromptId(1), message, fields });
        }
        let refused = Refused::EntryTooLarge { bytes: 46, limit: 40 };
        assert_eq!(step.refused, [refused]);
        assert_eq!(settled(step.effects), [PromptOutcome::NoRoom(refused)]);
        if taking == PromptMode::Serial {
            assert_eq!(stage.session.prompter(), Some(ClientId(2)));
        }
    }
}

#[test]
fn a_session_says_who_is_there_and_whether_it_is_busy() {
    let mut stage = Stage::default();
    assert!(stage.session.has_no_clients() && !stage.session.is_busy());
    stage.play("join 3\njoin 1 watches\njoin 2 waits");
    assert_eq!(stage.session.drivers().collect::<Vec<_>>(), [ClientId(2), ClientId(3)]);
    assert!(!stage.session.has_no_clients() && !stage.session.is_busy());
    assert_eq!((stage.session.agent(), stage.session.prompter()), (None, None));
    stage.play("prompt 1 by 3 hi");
    assert!(stage.session.is_busy());
    stage.play("ready one");
    assert_eq!(stage.session.agent(), Some(PromptMode::Serial));
    assert_eq!(stage.session.prompter(), Some(ClientId(3)));
    stage.play("ended 1 end");
    assert!(!stage.session.is_busy());
    // What the agent has goes on until the agent says what came of it, unless nobody waits for that.
    stage.play("released\nready queue\nprompt 2 by 2 hi\ncancel");
    assert!(stage.session.is_busy() && stage.session.is_cancelling());
    stage.play("drops 2");
    assert!(!stage.session.is_busy() && !stage.session.is_cancelling());
    stage.play("prompt 4 by 2 hi\nclose 2");
    assert!(!stage.session.is_busy() && stage.session.is_cancelling());
}

#[test]
fn the_agent_is_told_its_own_names() {
    let mut stage = Stage::default();
    stage.play("ready queue\nchunk thought m: hm\nchunk agent m: yes\nchunk agent n: no");
    let agents = |stage: &Stage, role, id: &str| {
        stage.session.agents_message(role, &id.into()).map(|name| name.to_string())
    };
    assert_eq!(agents(&stage, Role::Thought, "m").as_deref(), Some("m"));
    assert_eq!(agents(&stage, Role::Agent, "new1").as_deref(), Some("m"));
    assert_eq!(agents(&stage, Role::Agent, "x"), None);
    stage.play("gone\nready queue anew\nchunk agent n: well");
    // The name is the same, and what it names is not.
    assert_eq!(agents(&stage, Role::Agent, "new2").as_deref(), Some("n"));
    assert_eq!(agents(&stage, Role::Agent, "n"), None);
    stage.play("starts t\ntool t done\nstarts t");
    assert_eq!(stage.session.id_map().tool_call(&"t".into()).to_string(), "new3");
    assert_eq!(stage.session.id_map().tool_call(&"u".into()).to_string(), "u");
}
