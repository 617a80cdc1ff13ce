//! A v1 agent that repeats its prompt before it answers it.

use parlor_json::{Json, JsonRef, JsonStr, Members};
use parlor_session::{MessageId, plain_text_in};

/// What an agent may repeat of a prompt, until it says anything else. Only chunks that equal the prompt are an echo.
#[derive(Debug)]
pub(super) struct Echo {
    /// The prompt's message.
    message: MessageId,
    /// The forms in which the prompt may come back: all of it, or its text only.
    expected: [String; 2],
    /// How many bytes of each form came back so far; `None` once something else came.
    progress: [Option<usize>; 2],
    /// The agent's id for it.
    id: Option<MessageId>,
    /// The lines of it, should it turn out to be something else.
    lines: Vec<String>,
    /// How many bytes they are.
    held: usize,
}

/// How many bytes of lines are held: this many times the prompt, this much for chunks that say nothing of it, and never
/// more than this.
const MAX_HELD: (usize, usize, usize) = (256, 64 << 10, 64 << 20);

/// How an update relates to the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It says nothing about the conversation, and may come at any time.
    Beside,
    /// It goes on with an echo.
    Prefix,
    /// It completes an echo.
    Whole,
    /// It is something else.
    Other,
}

impl Echo {
    pub(super) fn of(message: &MessageId, prompt: &Json) -> Self {
        let blocks = prompt.elements().unwrap_or_default();
        let all = blocks.iter().map(|block| form(*block)).collect();
        let text = blocks.iter().filter(|block| is_text(**block)).map(|block| form(*block)).collect();
        Self {
            message: message.clone(),
            expected: [all, text],
            progress: [Some(0); 2],
            id: None,
            lines: Vec::new(),
            held: 0,
        }
    }

    pub(super) fn hears(&mut self, update: &Members<'_>) -> Heard {
        let kind = update.get_str("sessionUpdate").unwrap_or_default();
        match kind.as_ref() {
            "user_message_chunk" => {}
            "available_commands_update"
            | "config_option_update"
            | "current_mode_update"
            | "usage_update"
            | "session_info_update" => return Heard::Beside,
            _ => return Heard::Other,
        }
        let id = update.get("messageId").and_then(JsonStr::from_raw).map(MessageId::from);
        let is_same = !self.is_begun() || id == self.id;
        let Some(content) = update.get("content").filter(|_| is_same) else { return Heard::Other };
        let said = form(content);
        let advance = |n: usize| {
            let at = self.progress[n]?;
            self.expected[n][at..].starts_with(&said).then_some(at + said.len())
        };
        let progress = [advance(0), advance(1)];
        if progress.iter().all(|at| at.unwrap_or(0) == 0) {
            return Heard::Other;
        }
        self.progress = progress;
        self.id = id;
        if self.is_whole(0) { Heard::Whole } else { Heard::Prefix }
    }

    /// Whether any of the prompt came back.
    fn is_begun(&self) -> bool {
        self.progress.iter().any(|at| at.is_some_and(|at| at > 0))
    }

    /// Whether all of a form came back.
    fn is_whole(&self, form: usize) -> bool {
        self.progress[form] == Some(self.expected[form].len())
    }

    /// Holds a line back. If the lines would be far more than the prompt, they are no echo: it hands back those that were
    /// held before, and this one follows them.
    pub(super) fn hold(&mut self, line: String) -> Result<(), Vec<String>> {
        let (times, more, most) = MAX_HELD;
        self.held += line.len();
        if self.held > self.expected[0].len().saturating_mul(times).saturating_add(more).min(most) {
            return Err(std::mem::take(&mut self.lines));
        }
        self.lines.push(line);
        Ok(())
    }

    /// The prompt's message and the agent's id for it, if the agent repeated it and named one; else the lines that are
    /// no echo.
    pub(super) fn end(self) -> Result<Option<(MessageId, MessageId)>, Vec<String>> {
        if self.is_begun() && (self.is_whole(0) || self.is_whole(1)) {
            return Ok(self.id.map(|id| (self.message, id)));
        }
        if self.lines.is_empty() { Ok(None) } else { Err(self.lines) }
    }
}

fn is_text(block: JsonRef<'_>) -> bool {
    Members::of(block).is_ok_and(|block| plain_text_in(&block).is_some())
}

/// A block such that it does not matter how a text is cut into blocks or escaped.
fn form(block: JsonRef<'_>) -> String {
    let members = Members::of(block).unwrap_or_default();
    match plain_text_in(&members).and_then(|_| members.get("text")).and_then(JsonRef::to_text) {
        Some(text) => text.into_owned(),
        None => format!("\0{}\0", block.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(echo: &mut Echo, content: &str) -> Heard {
        let update = format!(r#"{{"sessionUpdate":"user_message_chunk","content":{content}}}"#);
        let update: JsonRef<'_> = serde_json::from_str(&update).unwrap();
        echo.hears(&Members::of(update).unwrap())
    }

    fn text(text: &str) -> String {
        format!(r#"{{"type":"text","text":"{text}"}}"#)
    }

    #[test]
    fn a_long_prompt_that_comes_back_in_small_chunks_is_an_echo() {
        const CHUNKS: usize = 100_000;
        let prompt = Json::parse(format!("[{}]", text(&"0123456789".repeat(CHUNKS)))).unwrap();
        let mut echo = Echo::of(&"m".into(), &prompt);
        for _ in 1..CHUNKS {
            assert_eq!(hear(&mut echo, &text("0123456789")), Heard::Prefix);
        }
        // Something else changes nothing.
        assert_eq!(hear(&mut echo, &text("x")), Heard::Other);
        assert_eq!(hear(&mut echo, &text("0123456789")), Heard::Whole);
        assert_eq!(hear(&mut echo, &text("0")), Heard::Other);
        assert_eq!(echo.end(), Ok(None));
    }

    #[test]
    fn a_prompt_comes_back_with_all_of_its_blocks_or_with_its_text_only() {
        const IMAGE: &str = r#"{"type":"image","data":"AA=="}"#;
        let prompt = Json::parse(format!("[{},{IMAGE},{}]", text("a"), text("b"))).unwrap();
        let walk = |blocks: &[&str]| {
            let mut echo = Echo::of(&"m".into(), &prompt);
            let heard: Vec<_> = blocks.iter().map(|block| hear(&mut echo, block)).collect();
            assert_eq!(echo.hold("line".to_owned()), Ok(()));
            (heard, echo.end().is_ok())
        };
        let (a, b) = (&*text("a"), &*text("b"));
        assert_eq!(walk(&[a, IMAGE, b]), (vec![Heard::Prefix, Heard::Prefix, Heard::Whole], true));
        assert_eq!(walk(&[a, b]), (vec![Heard::Prefix, Heard::Prefix], true));
        assert_eq!(walk(&[a, IMAGE]), (vec![Heard::Prefix, Heard::Prefix], false));
        assert_eq!(walk(&[a, IMAGE, IMAGE]).0[2], Heard::Other);
        assert_eq!(walk(&[&text("")]), (vec![Heard::Other], false));
    }
}
