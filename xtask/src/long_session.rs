//! A session of many messages, for the benchmarks of clients.

use parlor_testkit::scenario::Scenario;

/// Messages of a prompt; the test agent takes so many commands at once.
pub(crate) const MESSAGES_PER_PROMPT: usize = 1000;
/// Chunks of a message.
pub(crate) const CHUNKS_PER_MESSAGE: usize = 20;

/// Creates the session with so many prompts; its id.
pub(crate) fn create(scenario: &Scenario, prompts: usize) -> String {
    let prompt = format!("stream {CHUNKS_PER_MESSAGE} 40\n").repeat(MESSAGES_PER_PROMPT);
    let id = scenario.new_session(&prompt);
    for _ in 1..prompts {
        scenario.run(&["prompt", "-s", &id, "--yes", &prompt]).success();
    }
    id
}
