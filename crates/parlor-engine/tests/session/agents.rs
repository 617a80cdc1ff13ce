//! Agents that end, hang and are restored.

use parlor_dialect::Dialect;
use parlor_engine::{AgentEpoch, AgentEvent, Event};
use parlor_wire::{RpcError, code};

use crate::harness::{IDLE, RUNNING, Script, chunk, updates_of};

#[test]
fn an_agent_that_ends_in_a_turn_fails_the_turn_and_is_restored_for_the_next_prompt() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "half")]);
    script.commands();
    script.agent_ends();
    let sent = script.sent(1);
    assert!(sent.last().unwrap().contains(r#""state":"idle""#), "{sent:?}");
    script.prompt(1, 2, "Two");
    let commands = script.commands();
    assert!(commands.iter().any(|command| command.contains("Start")), "{commands:?}");
    assert_eq!(script.prompts.len(), 1, "no prompt is sent before the agent is restored");
    script.restores(false);
    assert_eq!(script.prompts.len(), 2);
    let commands = script.commands();
    assert!(commands.last().unwrap().starts_with("2: session/prompt"), "{commands:?}");
    assert!(!commands.last().unwrap().contains("half"), "it knows the conversation: {commands:?}");
}

#[test]
fn an_agent_that_lost_its_memory_is_given_the_conversation_with_the_next_prompt() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING, &chunk("a", "an answer"), IDLE]);
    script.agent_ends();
    script.prompt(1, 2, "Two");
    script.restores(true);
    let commands = script.commands();
    let prompt = commands.last().unwrap();
    assert!(prompt.contains("an answer") && prompt.contains("Two"), "{prompt}");
}

#[test]
fn a_prompt_that_the_agent_had_not_accepted_is_sent_in_the_next_epoch() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    assert_eq!(script.prompts.len(), 1);
    script.agent_ends();
    script.restores(false);
    assert_eq!(script.prompts.len(), 2, "it is sent again");
    script.responds(1, r#"{"messageId":"u"}"#);
    assert!(script.sent(1).iter().any(|line| line == r#"1 -> {"messageId":"u"}"#));
    assert_eq!(script.stored_texts().len(), 1);
}

#[test]
fn a_prompt_that_ends_two_agents_before_they_accept_it_fails() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.prompt(1, 1, "One");
    script.agent_ends();
    script.restores(false);
    script.agent_ends();
    let sent = script.sent(1);
    assert!(sent.iter().any(|line| line.starts_with("1 failed: ")), "{sent:?}");
    script.commands();
    script.handle([]);
    assert_eq!(script.commands(), [""; 0], "no third agent is started for it");
}

#[test]
fn events_of_an_older_epoch_change_nothing() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.agent_ends();
    script.prompt(1, 1, "One");
    script.restores(false);
    script.responds(0, r#"{"messageId":"u"}"#);
    script.says(&[RUNNING]);
    script.sent(1);
    script.commands();
    let before = (script.machine.transcript().seq(), script.stored_texts());
    let old = AgentEpoch(1);
    let gone = RpcError::new(code::INTERNAL_ERROR, "ended");
    script.handle([
        Event::Agent(old, updates_of(&[&chunk("a", "late"), IDLE])),
        Event::Agent(old, AgentEvent::Gone(gone)),
    ]);
    assert_eq!((script.machine.transcript().seq(), script.stored_texts()), before);
    assert_eq!((script.sent(1), script.commands()), (Vec::new(), Vec::new()));
    assert!(script.machine.agent().is_some());
}

#[test]
fn updates_that_the_agent_sent_early_are_applied_before_the_first_prompt() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.agent_ends();
    script.prompt(1, 1, "One");
    script.epoch = AgentEpoch(2);
    let mut agent = script.opened_agent(false);
    agent.early.push(updates_of(&[&chunk("a", "early")]));
    script.handle([Event::AgentReady(Ok(Box::new(agent)))]);
    script.responds(0, r#"{"messageId":"u"}"#);
    let texts = script.stored_texts();
    assert!(texts[0].contains("early") && texts[1].contains("One"), "{texts:?}");
}

#[test]
fn an_agent_that_cannot_be_restored_fails_the_prompts_that_wait_for_it() {
    let mut script = Script::new(Dialect::V2);
    script.attach(1, Dialect::V2);
    script.agent_ends();
    script.prompt(1, 1, "One");
    script.sent(1);
    let error = RpcError::new(code::INTERNAL_ERROR, "agent 'agent' cannot be started");
    script.handle([Event::AgentReady(Err(error))]);
    let sent = script.sent(1);
    assert!(sent.iter().any(|line| line == "1 failed: agent 'agent' cannot be started"), "{sent:?}");
}
