//! Which agent wrote a message.

/// The agents of a session: in a fork that another agent continues, the first messages are of earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authors {
    agent: String,
    /// The earlier agents, each with the number of its last message.
    earlier: Vec<(String, usize)>,
}

impl Authors {
    /// The agent of a session, and the earlier ones, each with the number of its last message.
    pub fn new(agent: &str, earlier: Vec<(String, usize)>) -> Self {
        Self { agent: agent.to_owned(), earlier }
    }

    /// The agent that wrote the message with this number.
    pub fn of(&self, number: Option<usize>) -> &str {
        let earlier = self.earlier.iter().find(|(_, last)| number.is_some_and(|number| number <= *last));
        earlier.map_or(&self.agent, |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_earlier_agents_have_their_names() {
        let authors = Authors::new("gemini", vec![("claude".to_owned(), 4), ("codex".to_owned(), 6)]);
        for (number, name) in [(1, "claude"), (4, "claude"), (5, "codex"), (6, "codex"), (7, "gemini")] {
            assert_eq!(authors.of(Some(number)), name, "{number}");
        }
        assert_eq!(authors.of(None), "gemini");
    }
}
