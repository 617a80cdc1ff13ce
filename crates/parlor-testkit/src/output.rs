//! What a command printed and how it ended.

use std::process::Output;

use serde_json::Value;

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
}

#[expect(clippy::return_self_not_must_use, reason = "often the check is all that is wanted")]
impl CommandOutput {
    /// Checks that the command succeeded.
    #[track_caller]
    pub fn success(self) -> Self {
        self.exit_code(0)
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn exit_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks that standard output has no control characters, as in a pipe.
    #[track_caller]
    pub fn plain(self) -> Self {
        let is_plain = |c: char| !c.is_control() || c == '\n';
        assert!(self.stdout.chars().all(is_plain), "{self:#?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// The last line of standard output as JSON: the result after a stream of events.
    #[track_caller]
    pub fn last_json(&self) -> Value {
        let line = self.stdout.lines().next_back().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { stdout: text(&output.stdout), stderr: text(&output.stderr), code: output.status.code() }
    }
}
