//! The proposals about the receiver of updates, sentence by sentence, with their JSON.
//!
//! Each module is one document, each test one sentence, example or answer of it.

mod fork;
mod message_id;
mod message_updates;
mod prompt_lifecycle;
mod session_info;

use parlor_dialect::{Dialect, Fold, view};
use serde_json::Value;

/// The transcript after some lines, each a notification or a bare update.
#[derive(Debug)]
struct Folded {
    view: Value,
    problems: Vec<String>,
}

fn fold(dialect: Dialect, lines: &[&str]) -> Folded {
    let mut fold = Fold::new(dialect);
    let problems = lines.iter().filter_map(|line| fold.line(line).err()).map(|problem| problem.to_string());
    let problems = problems.collect();
    Folded { view: serde_json::from_str(view::transcript(fold.transcript()).as_str()).unwrap(), problems }
}

impl Folded {
    /// The value at a JSON pointer, after lines that were all fine.
    #[track_caller]
    fn at(&self, pointer: &str) -> &Value {
        assert_eq!(self.problems, [""; 0], "no line may be refused");
        self.view.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The messages as `role id: text|text`, one block each between the bars.
    #[track_caller]
    fn messages(&self) -> Vec<String> {
        let text = |block: &Value| block["text"].as_str().unwrap_or("?").to_owned();
        let show = |message: &Value| {
            let blocks: Vec<_> = message["content"].as_array().unwrap().iter().map(text).collect();
            format!(
                "{} {}: {}",
                message["role"].as_str().unwrap(),
                message["messageId"].as_str().unwrap(),
                blocks.join("|")
            )
        };
        self.at("/messages").as_array().unwrap().iter().map(show).collect()
    }
}
