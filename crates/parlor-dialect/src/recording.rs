/// The sender of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client, to the agent.
    Client,
    /// The agent, to the client.
    Agent,
}

/// One line of a recording, or of a plain stream of messages.
///
/// A recording marks each message with its direction, `C->A {json}` or `A->C {json}`; lines that start with `#` are
/// comments, and `A!!` precedes output of an agent that was not a message. A plain stream has only messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// The sender, if the line has a direction.
    pub from: Option<Side>,
    /// The message.
    pub message: &'a str,
}

impl<'a> Recorded<'a> {
    /// Reads a line; `None` if it is a comment.
    pub fn read(line: &'a str) -> Option<Self> {
        if line.starts_with('#') || line.starts_with("A!!") {
            return None;
        }
        let marked = [("C->A ", Side::Client), ("A->C ", Side::Agent)]
            .into_iter()
            .find_map(|(mark, side)| Some((side, line.strip_prefix(mark)?)));
        Some(match marked {
            Some((side, message)) => Self { from: Some(side), message },
            None => Self { from: None, message: line },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_lines_are_classified() {
        for (line, expected) in [
            ("{}", Some((None, "{}"))),
            ("C->A {}", Some((Some(Side::Client), "{}"))),
            ("A->C {}", Some((Some(Side::Agent), "{}"))),
            ("A!! warning", None),
            ("# start", None),
        ] {
            assert_eq!(Recorded::read(line).map(|recorded| (recorded.from, recorded.message)), expected);
        }
    }
}
