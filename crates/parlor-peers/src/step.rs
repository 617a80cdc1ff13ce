//! The steps of a story, and how they end.

use std::fmt;

macro_rules! steps {
    ($(#[$doc:meta])* $enum:ident { $($name:ident => $title:literal, $meaning:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "`meaning` describes them")]
        pub enum $enum { $($name),* }

        impl $enum {
            /// All of them, in the order of the story.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The heading in the table.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }

            /// What the suite checks.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning),* }
            }
        }
    };
}

steps! {
    /// One step of a story with an agent.
    Step {
    Start => "start", "a client creates a session";
    Prompt => "prompt", "the first client sends a prompt and gets the answer and the end of the turn; the model got the prompt once";
    Stream => "stream", "the client has the first part of an answer while the model has not sent the rest";
    Thought => "thought", "a thought is a message of its own, before the answer";
    Join => "join", "a second client of the other version joins during a turn, gets all of it so far and follows it to its end";
    ToolCall => "tool call", "a tool runs, and both clients have the call as completed";
    Permission => "permission", "both clients get the permission request, the second one answers, it is withdrawn from the first, and the tool runs";
    Queue => "queue", "a prompt that is sent during a turn is shown as queued and gets its own turn afterwards";
    Cancel => "cancel", "the second client cancels the turn of the first; the turn ends as cancelled, and the next prompt works";
    Steer => "steer", "a prompt that is sent into the running turn gets its answer in this turn; the model was given it there";
    ModelError => "error", "an error of the model ends the turn, and the next prompt works";
    ClientKilled => "client killed", "the first client is killed during its turn; the turn goes on, and the second client gets the end of it";
    AgentKilled => "agent killed", "the agent is killed during a turn, or `while idle`; the turn fails, and with the next prompt the agent is back and knows the conversation";
    ServerKilled => "server killed", "the server is killed; the next one has the same conversation, and so has the agent with the next prompt";
    Title => "title", "the session has a title; a title that one client sets reaches the other one";
    List => "list", "both clients list the session with its directory and title";
    Load => "load", "a new client of each version loads the session; both have the same messages and tool calls under the same ids";
    Subagent => "subagent", "both clients are sent the announcement of a subagent and its answer in its own session; new clients load that session; it is listed only on demand, and deleted with its owner";
    Adopt => "adopt", "another server that has never seen the session finds it at the agent and loads it";
    Fork => "fork", "a fork at an answer; the model is given what was before and nothing of what came after";
    ForkEnd => "fork at the end", "a fork of the whole session; the model is given all of it";
    Edit => "edit", "a prompt is replaced in a fork; the model is given the new one and not the old one";
    Regenerate => "regenerate", "a prompt is sent again in a fork; the model is given it without its first answer";
    Delete => "delete", "a deleted session is not listed and cannot be used by either client; an agent that can delete sessions has deleted its own";
    NoOrphans => "no orphans", "when the server has stopped, no process of the agent runs";
    }
}

steps! {
    /// One step of a story with a client.
    ClientStep {
    Prompt => "prompt", "the client connects to parlor, creates a session, sends a prompt and shows the answer";
    Stream => "stream", "it shows the first part of an answer while the model has not sent the rest";
    Join => "join", "clients of both versions join its session during the turn and follow it to its end";
    Answer => "answer", "it answers a permission request, and the tool runs or does not, as it said";
    OtherAnswer => "other answers", "a client of the other version answers the request that it shows; it goes on with the turn";
    Queue => "queue", "a prompt that another client sends into its session waits for the end of its turn";
    Cancel => "cancel", "another client cancels its turn; it shows the end of the turn and is usable, or exits";
    Killed => "killed", "it is killed during its turn; the turn goes on, and other clients get the end of it";
    AgentKilled => "agent killed", "the agent is killed during its turn; the client ends, or its next prompt works; the model is given the conversation";
    ServerKilled => "server killed", "the server is killed during its turn, and started again; the same as before";
    Title => "title", "it changes the title of its session, and other clients have it";
    Fork => "fork", "it forks its session at the first answer and sends a prompt; the model is given what was before and nothing of what came after";
    Edit => "edit", "it replaces its second prompt; the model is given the new one and not the old one";
    Delete => "delete", "it deletes its session, which no client can list or load then";
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

impl fmt::Display for ClientStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It works, possibly with a remark for the table.
    Works(Option<String>),
    /// It does not work: what was seen.
    Fails(String),
    /// It was not tried.
    NotTried(String),
}

/// What a step must end with.
#[derive(Debug, Clone, Copy)]
pub enum Expectation {
    /// It works.
    Works,
    /// The peer cannot do it: the reason for the table, and a part of what must be seen.
    Fails {
        /// The reason.
        why: &'static str,
        /// A part of the message of the failed check.
        with: &'static str,
    },
    /// It makes no sense for the peer.
    NotTried {
        /// The reason.
        why: &'static str,
    },
}

impl Expectation {
    /// What is wrong with an outcome, if it is not the expected one.
    pub fn check(self, outcome: &Outcome) -> Result<(), String> {
        match (self, outcome) {
            (Self::Works, Outcome::Works(_)) | (Self::NotTried { .. }, Outcome::NotTried(_)) => Ok(()),
            (Self::Fails { with, .. }, Outcome::Fails(seen)) if seen.contains(with) => Ok(()),
            (Self::Fails { with, .. }, Outcome::Fails(seen)) => {
                Err(format!("it fails in another way than expected ({with:?}): {seen}"))
            }
            (Self::Fails { why, .. }, Outcome::Works(_)) => {
                Err(format!("it works, although expected not to: {why}"))
            }
            (_, Outcome::Fails(seen)) => Err(seen.clone()),
            (_, Outcome::NotTried(reason)) => Err(format!("it was not tried: {reason}")),
            (Self::NotTried { why }, Outcome::Works(_)) => Err(format!("it was tried, although {why}")),
        }
    }
}
