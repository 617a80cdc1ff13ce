//! The content of a prompt, prepared for comparison with what an agent repeats chunk by chunk.

use parlor_json::{CodePoint, Json};
use serde_json::Value;

use crate::content::text_units;
use crate::{Content, plain_text};

/// The text and the other blocks of a prompt, in order.
///
/// Text is compared in UTF-16 units, because agents split streams between the halves of a surrogate pair.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
    size: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// The text of neighbouring text blocks; never empty.
    Text(Vec<u16>),
    /// A block of another type.
    Block(Json),
}

/// How much of a pattern has been repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    part: usize,
    unit: usize,
}

/// How much of a prompt an agent must repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchRule {
    /// All of the prompt.
    Equal,
    /// All of its text; other blocks may be left out.
    EqualText,
}

impl Pattern {
    pub(crate) fn of(content: &Content) -> Self {
        let mut parts = Vec::new();
        for item in content.iter() {
            let Some(units) = text_units(item.json) else {
                parts.push(Part::Block(Json::parse(item.json).expect("an item is JSON")));
                continue;
            };
            let mut units = utf16(units).peekable();
            match parts.last_mut() {
                _ if units.peek().is_none() => {}
                Some(Part::Text(text)) => text.extend(units),
                Some(Part::Block(_)) | None => parts.push(Part::Text(units.collect())),
            }
        }
        let size = parts.iter().map(|part| match part {
            Part::Text(units) => units.len(),
            Part::Block(block) => block.as_str().len(),
        });
        Self { size: size.sum(), parts }
    }

    /// The length of the text in code units plus the length of the JSON of other blocks.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// The progress after one more block; `None` if the block does not continue the pattern.
    pub(crate) fn advance(&self, mut at: Progress, block: &str, rule: MatchRule) -> Option<Progress> {
        let Some(units) = text_units(block) else { return self.advance_block(at, block, rule) };
        for unit in utf16(units) {
            loop {
                match self.parts.get(at.part)? {
                    Part::Text(text) if at.unit < text.len() => {
                        if text[at.unit] != unit {
                            return None;
                        }
                        at.unit += 1;
                        break;
                    }
                    Part::Block(_) if rule == MatchRule::Equal => return None,
                    Part::Text(_) | Part::Block(_) => at = at.next_part(),
                }
            }
        }
        Some(at)
    }

    fn advance_block(&self, mut at: Progress, block: &str, rule: MatchRule) -> Option<Progress> {
        loop {
            match self.parts.get(at.part)? {
                Part::Text(text) if at.unit < text.len() => return None,
                Part::Text(_) => at = at.next_part(),
                Part::Block(next) if block_is_equal(next.as_str(), block) => return Some(at.next_part()),
                Part::Block(_) if rule == MatchRule::EqualText => at = at.next_part(),
                Part::Block(_) => return None,
            }
        }
    }

    /// Whether the pattern has been repeated completely.
    pub(crate) fn is_whole(&self, at: Progress, rule: MatchRule) -> bool {
        let mut rest = self.parts.iter().skip(at.part);
        let is_part_repeated = match rest.next() {
            Some(Part::Text(text)) => at.unit == text.len(),
            Some(Part::Block(_)) => rule == MatchRule::EqualText,
            None => true,
        };
        is_part_repeated && rest.all(|part| rule == MatchRule::EqualText && matches!(part, Part::Block(_)))
    }

    /// Whether a message has the content of the prompt.
    pub(crate) fn equals(&self, content: &Content) -> bool {
        let mut items = content.iter();
        let end =
            items.try_fold(Progress::default(), |at, item| self.advance(at, item.json, MatchRule::Equal));
        end.is_some_and(|end| self.is_whole(end, MatchRule::Equal))
    }
}

impl Progress {
    const fn next_part(self) -> Self {
        Self { part: self.part + 1, unit: 0 }
    }
}

fn utf16(units: impl Iterator<Item = CodePoint>) -> impl Iterator<Item = u16> {
    units.flat_map(|unit| {
        let mut buffer = [0; 2];
        let length = match unit {
            CodePoint::Char(c) => c.encode_utf16(&mut buffer).len(),
            CodePoint::Surrogate(half) => {
                buffer[0] = half;
                1
            }
        };
        buffer.into_iter().take(length)
    })
}

/// Whether two lists have the same blocks.
pub(crate) fn blocks_are_equal(one: &Content, other: &Content) -> bool {
    one.len() == other.len()
        && one.iter().zip(other.iter()).all(|(one, other)| block_is_equal(one.json, other.json))
}

/// Whether two blocks have the same value. A peer that decodes and encodes a block may reorder members and drop
/// nulls.
fn block_is_equal(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    if let (Some(one), Some(other)) = (plain_text(one), plain_text(other))
        && one == other
    {
        return true;
    }
    let value = |text: &str| serde_json::from_str::<Value>(text).ok().map(without_nulls);
    value(one).is_some_and(|one| Some(one) == value(other))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(members.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(array: &str) -> Content {
        Content::parse(serde_json::from_str(array).unwrap()).unwrap()
    }

    fn text(text: &str) -> String {
        format!(r#"{{"type":"text","text":"{text}"}}"#)
    }

    fn image(data: u8) -> String {
        format!(r#"{{"type":"image","data":{data},"mimeType":null}}"#)
    }

    fn pattern(blocks: &[String]) -> Pattern {
        Pattern::of(&content(&format!("[{}]", blocks.join(","))))
    }

    #[test]
    fn text_may_be_split_anywhere_and_blocks_may_be_spelled_differently() {
        let prompt = pattern(&[text("a"), text("b\\ud83d\\ude00"), image(1), text("c")]);
        for (blocks, equals) in [
            (&[text("ab\\ud83d"), text("\\ude00"), image(1), text("c")][..], true),
            (&[text("ab😀"), r#"{"data":1,"type":"image"}"#.to_owned(), text(""), text("c")], true),
            (&[text("ab😀"), image(2), text("c")], false),
            (&[text("ab😀"), text("c")], false),
            (&[text("ab😀"), image(1)], false),
            (&[text("ab😀"), image(1), text("cd")], false),
            (&[], false),
        ] {
            assert_eq!(prompt.equals(&content(&format!("[{}]", blocks.join(",")))), equals, "{blocks:?}");
        }
        assert!(pattern(&[]).equals(&content("[]")));
    }

    #[test]
    fn by_text_a_prompt_may_be_repeated_without_its_other_blocks() {
        let prompt = pattern(&[image(1), text("a"), image(2), image(3)]);
        let walk = |blocks: &[String]| {
            let mut at = Progress::default();
            for block in blocks {
                at = prompt.advance(at, block, MatchRule::EqualText)?;
            }
            Some(prompt.is_whole(at, MatchRule::EqualText))
        };
        assert_eq!(walk(&[text("a")]), Some(true));
        assert_eq!(walk(&[image(1), text("a"), image(3)]), Some(true));
        assert_eq!(walk(&[image(1)]), Some(false));
        assert_eq!(walk(&[image(2)]), None);
        assert_eq!(walk(&[text("a"), image(3), image(2)]), None);
        assert_eq!(walk(&[text("ab")]), None);
    }
}
