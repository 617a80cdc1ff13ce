use std::borrow::Cow;

use parlor_json::{ArrayWriter, CodePoint, CodePoints, Json, JsonRef, JsonStr, Members, Type};

/// A list of content items: the blocks of a message or the content of a tool call.
///
/// Items are opaque JSON and keep their original text. All of them share one buffer, so that a message streamed in
/// 100,000 chunks costs its JSON plus four bytes per chunk, and appending does not move earlier items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    text: String,
    /// The end of each item in `text`.
    ends: Vec<u32>,
    /// Additional members of the chunks that had any, with the index of their item.
    extras: Vec<(u32, Json)>,
    /// Bytes of all extras, counted once so that `size` is O(1).
    extras_len: usize,
}

/// One item of a [`Content`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The item's JSON, in its original text.
    pub json: &'a str,
    /// The other members of the chunk that carried the item: its metadata and unknown fields. They belong to the
    /// chunk, not to the message.
    pub extra: Option<&'a Json>,
}

impl Content {
    /// The maximum length of the text of one list: offsets into it have 32 bits.
    pub(crate) const MAX_BYTES: usize = u32::MAX as usize;

    /// Reads the elements of an array; if the value is not an array, the error is its type.
    pub fn parse(array: JsonRef<'_>) -> Result<Self, Type> {
        let items = array.elements().ok_or_else(|| array.type_of())?;
        Ok(items.into_iter().collect())
    }

    /// Appends one item. The caller has checked that it fits into [`Limits`](crate::Limits).
    pub(crate) fn push(&mut self, item: JsonRef<'_>, extra: Option<Json>) {
        self.push_valid(item.as_str(), extra);
    }

    /// Appends one item that is valid JSON.
    fn push_valid(&mut self, item: &str, extra: Option<Json>) {
        if let Some(extra) = extra {
            self.extras_len += extra.as_str().len();
            self.extras.push((Self::offset(self.ends.len()), extra));
        }
        self.text.push_str(item);
        self.ends.push(Self::offset(self.text.len()));
    }

    /// Appends a plain text block, given the JSON literal of its text.
    pub(crate) fn push_text_literal(&mut self, literal: JsonRef<'_>) {
        self.text.push_str(PLAIN.0);
        self.text.push_str(literal.as_str());
        self.text.push_str(PLAIN.1);
        self.ends.push(Self::offset(self.text.len()));
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of the items and their extras.
    pub fn size(&self) -> usize {
        self.text.len() + self.extras_len
    }

    /// The items, in order.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        let mut extras = self.extras.iter().peekable();
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).enumerate().map(move |(index, (&start, &end))| Item {
            json: &self.text[start as usize..end as usize],
            extra: extras.next_if(|(at, _)| *at as usize == index).map(|(_, extra)| extra),
        })
    }

    /// The items in a range of indexes, in order.
    pub(crate) fn range(&self, indexes: std::ops::Range<usize>) -> impl Iterator<Item = Item<'_>> {
        let first = self.extras.partition_point(|(at, _)| (*at as usize) < indexes.start);
        let mut extras = self.extras[first..].iter().peekable();
        indexes.map(move |index| Item {
            json: self.get(index).unwrap_or_default(),
            extra: extras.next_if(|(at, _)| *at as usize == index).map(|(_, extra)| extra),
        })
    }

    /// The JSON of the item at an index.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.text[start..end])
    }

    /// The items as a JSON array.
    pub fn to_json(&self) -> Json {
        let mut array = ArrayWriter::with_capacity(self.text.len() + self.len() + 1);
        self.iter().for_each(|item| array.push(item.json));
        array.into_json()
    }

    /// Merges neighbouring plain text blocks into one; see [`plain_text`].
    ///
    /// This also restores a surrogate pair that was split between two blocks.
    #[must_use]
    pub fn joined(&self) -> Self {
        Self::join(self.iter())
    }

    fn join<'a>(items: impl Iterator<Item = Item<'a>>) -> Self {
        let mut joined = Self::default();
        let mut run = Run::default();
        for item in items {
            if let Some(text) = plain_text(item.json).filter(|_| item.extra.is_none()) {
                run.add(item.json, text);
                continue;
            }
            joined.push_run(&std::mem::take(&mut run));
            joined.push_valid(item.json, item.extra.cloned());
        }
        joined.push_run(&run);
        joined
    }

    /// Concatenates the text of the text blocks.
    pub fn to_text(&self) -> String {
        // Joined first, so that a surrogate pair that was split between chunks is one character.
        self.joined().iter().filter_map(|item| text_of(item.json)).collect()
    }

    /// Returns the items from `indexes.start` on that fit into `bytes`, at least one, with neighbouring plain text
    /// merged, and the index of the first item that is left.
    pub(crate) fn joined_range(&self, indexes: std::ops::Range<usize>, bytes: usize) -> (Self, usize) {
        let (mut taken, mut end) = (0, indexes.start);
        for item in self.range(indexes.clone()) {
            taken += item.json.len() + item.extra.map_or(0, |extra| extra.as_str().len());
            if taken > bytes && end > indexes.start {
                break;
            }
            end += 1;
        }
        (Self::join(self.range(indexes.start..end)), end)
    }

    fn push_run(&mut self, run: &Run<'_>) {
        match run.blocks {
            0 => {}
            1 => self.push_valid(run.first, None),
            // Escaped text stays valid when it is joined.
            2.. => self.push_valid(&format!(r#"{}"{}"{}"#, PLAIN.0, run.escaped, PLAIN.1), None),
        }
    }

    fn offset(index: usize) -> u32 {
        u32::try_from(index).expect("entries are limited to fewer bytes than fit into 32 bits")
    }
}

/// Neighbouring plain text blocks that are merged into one.
#[derive(Default)]
struct Run<'a> {
    blocks: usize,
    /// The first block; a single block keeps its original text.
    first: &'a str,
    escaped: String,
}

impl<'a> Run<'a> {
    fn add(&mut self, block: &'a str, escaped: &str) {
        if self.blocks == 0 {
            self.first = block;
        }
        self.blocks += 1;
        self.escaped.push_str(escaped);
    }
}

impl<'a> FromIterator<JsonRef<'a>> for Content {
    fn from_iter<I: IntoIterator<Item = JsonRef<'a>>>(items: I) -> Self {
        let mut content = Self::default();
        for item in items {
            content.push(item, None);
        }
        content
    }
}

/// The escaped text of a plain text block: `type` is `text`, there is a `text` and no other member. A block with
/// annotations, metadata or unknown fields is not plain.
pub fn plain_text(block: &str) -> Option<&str> {
    let literal = canonical_text(block);
    literal.map_or_else(
        || plain_text_in(&Members::parse(block)?),
        |literal| Some(&literal[1..literal.len() - 1]),
    )
}

/// The text before and after the literal of a plain text block in canonical form.
const PLAIN: (&str, &str) = (r#"{"type":"text","text":"#, "}");

/// The literal of the text of a plain text block, if the block, which must be valid JSON, is in canonical form.
pub(crate) fn canonical_text(block: &str) -> Option<&str> {
    let literal = block.strip_prefix(PLAIN.0)?.strip_suffix(PLAIN.1)?;
    is_one_string(literal).then_some(literal)
}

/// Whether a part of valid JSON is exactly one string: its first unescaped quote after the opening one is its end.
fn is_one_string(part: &str) -> bool {
    let inner = part.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(mut rest) = inner.map(str::as_bytes) else { return false };
    while let Some(index) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[index] == b'"' || index + 1 == rest.len() {
            return false;
        }
        rest = &rest[index + 2..];
    }
    true
}

/// As [`plain_text`], for a block whose members are parsed already.
pub fn plain_text_in<'a>(members: &Members<'a>) -> Option<&'a str> {
    (members.len() == 2).then(|| escaped_text(members)).flatten()
}

/// The text of a text block, plain or not; `None` for blocks of other types.
pub fn text_of(block: &str) -> Option<Cow<'_, str>> {
    let members = Members::parse(block)?;
    escaped_text(&members)?;
    let text = JsonStr::from_raw(members.get("text")?)?;
    Some(Cow::Owned(text.to_text().into_owned()))
}

/// The text of a text block, cut after a little more than `max` bytes; `None` for blocks of other types.
pub fn text_prefix(block: &str, max: usize) -> Option<String> {
    let mut text = String::new();
    for unit in text_units(block)? {
        if text.len() > max {
            break;
        }
        text.push(match unit {
            CodePoint::Char(c) => c,
            CodePoint::Surrogate(_) => char::REPLACEMENT_CHARACTER,
        });
    }
    Some(text)
}

/// The characters of a text block, including unpaired surrogates; `None` for blocks of other types.
pub(crate) fn text_units(block: &str) -> Option<CodePoints<'_>> {
    let members = Members::parse(block)?;
    escaped_text(&members)?;
    Some(CodePoints::of_literal(members.get("text")?.as_str()))
}

/// The escaped text of a text block's members, without its quotes.
fn escaped_text<'a>(members: &Members<'a>) -> Option<&'a str> {
    let is_text = members.get_str("type")? == "text";
    let text = members.get("text").filter(|_| is_text)?.as_str();
    text.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(array: &str) -> Content {
        Content::parse(serde_json::from_str(array).unwrap()).unwrap()
    }

    #[test]
    fn a_plain_block_is_recognised_in_any_spelling() {
        for (block, text) in [
            (r#"{"type":"text","text":"a\"b\\"}"#, Some(r#"a\"b\\"#)),
            (r#"{"type":"text","text":""}"#, Some("")),
            (r#"{"text":"a","type":"text"}"#, Some("a")),
            (r#"{"type":"text","text":"a" }"#, Some("a")),
            (r#"{"type":"text","text":"a","x":"b"}"#, None),
            (r#"{"type":"text","text":7}"#, None),
            (r#"{"type":"text","text":"a","text":"\\"}"#, None),
        ] {
            assert_eq!(plain_text(block), text, "{block}");
        }
    }

    #[test]
    fn items_keep_their_original_text() {
        let array =
            r#"[{"b":18446744073709551616,"type":"x","a":1.50},{"type":"text","text":"\u0041"},null,7]"#;
        assert_eq!(content(array).to_json().as_str(), array);
        assert_eq!(content(array).len(), 4);
        assert_eq!(content(array).get(3), Some("7"));
        assert_eq!(content(array).get(4), None);
        assert_eq!(content("[]").to_json().as_str(), "[]");
    }

    #[test]
    fn parsing_a_value_that_is_no_array_returns_its_type() {
        assert_eq!(Content::parse(serde_json::from_str("{}").unwrap()), Err(Type::Object));
    }

    #[test]
    fn extras_of_a_chunk_stay_with_its_item() {
        let mut content = content("[1,2]");
        content.push(serde_json::from_str("3").unwrap(), Some(Json::parse(r#"{"k":1}"#).unwrap()));
        content.push(serde_json::from_str("4").unwrap(), None);
        let extras: Vec<_> = content.iter().map(|item| (item.json, item.extra.map(Json::as_str))).collect();
        assert_eq!(extras, [("1", None), ("2", None), ("3", Some(r#"{"k":1}"#)), ("4", None)]);
    }

    #[test]
    fn joining_merges_neighbouring_plain_text() {
        for (blocks, joined) in [
            ("[]", "[]"),
            (
                r#"[{"type":"text","text":"a\n"},{"text":"b\"","type":"text"},{"type":"text","text":""}]"#,
                r#"[{"type":"text","text":"a\nb\""}]"#,
            ),
            // A block without a plain neighbour keeps its original text.
            (r#"[{ "text": "b", "type":"text" },7]"#, r#"[{ "text": "b", "type":"text" },7]"#),
            // A surrogate pair that was split is restored.
            (
                r#"[{"type":"text","text":"\ud83d"},{"type":"text","text":"\ude00"}]"#,
                r#"[{"type":"text","text":"\ud83d\ude00"}]"#,
            ),
            // Blocks with more than text are unchanged.
            (
                r#"[{"type":"text","text":"a"},{"type":"text","text":"b","_meta":{}},{"type":"text","text":"c"}]"#,
                r#"[{"type":"text","text":"a"},{"type":"text","text":"b","_meta":{}},{"type":"text","text":"c"}]"#,
            ),
            (
                r#"[{"type":"text","text":"a","annotations":null},{"type":"text","text":"b"}]"#,
                r#"[{"type":"text","text":"a","annotations":null},{"type":"text","text":"b"}]"#,
            ),
            (
                r#"[{"type":"text","text":"a"},{"type":"image","text":"b"},{"type":"text","text":"c"}]"#,
                r#"[{"type":"text","text":"a"},{"type":"image","text":"b"},{"type":"text","text":"c"}]"#,
            ),
            (r#"[{"type":"text","text":1},5,"x",null]"#, r#"[{"type":"text","text":1},5,"x",null]"#),
        ] {
            assert_eq!(content(blocks).joined(), content(joined), "{blocks}");
        }
    }

    #[test]
    fn joining_leaves_blocks_with_extras() {
        let mut three = content(r#"[{"type":"text","text":"a"}]"#);
        let block: JsonRef<'_> = serde_json::from_str(r#"{"type":"text","text":"b"}"#).unwrap();
        three.push(block, Some(Json::parse("{}").unwrap()));
        three.push(block, None);
        assert_eq!(three.joined(), three);
    }

    #[test]
    fn text_is_concatenated_from_the_text_blocks() {
        let blocks = r#"[{"type":"text","text":"a\ud83d"},{"type":"text","text":"\ude00"},{"type":"image"},{"type":"text","text":"!","_meta":{}}]"#;
        assert_eq!(content(blocks).to_text(), "a😀!");
    }
}
