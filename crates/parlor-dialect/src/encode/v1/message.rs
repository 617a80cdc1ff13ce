//! Messages for a v1 peer, which can only be added to.

use parlor_json::{CodePoint, CodePoints, Json, JsonRef, MAX_DEPTH, Members};
use parlor_session::{Content, MessageId, MetaPatch, Patch, Role, Upsert, plain_text_in};

use super::Heard;
use crate::encode::{Context, chunk, message_kinds};
use crate::values::blocks::{self, ForV1};
use crate::{LossKind, shape};

/// The metadata key that says which message a restated one stands for.
const REPLACES: &str = "parlor/replaces";

/// The block that stands for no content.
const EMPTY: &str = r#"{"type":"text","text":""}"#;

/// What a v1 peer has heard of one message.
#[derive(Debug, Clone)]
pub(super) struct HeardMessage {
    /// Whether any content of it was said.
    content: bool,
    /// All of its content, however it was cut into blocks. Many agents stream a message and then send it as a
    /// whole, which tells a v1 peer nothing new. `None` if chunks were passed on without a look.
    said: Option<Fingerprint>,
    /// Under which id its content is said since it was replaced.
    alias: Option<MessageId>,
    /// What the agent has said so far of a message that the peer itself sent, until it has said all of it.
    echo: Option<Fingerprint>,
}

impl Default for HeardMessage {
    fn default() -> Self {
        Self { content: false, said: Some(Fingerprint::default()), alias: None, echo: None }
    }
}

/// A short stand-in for the content of a message. Neighbouring plain texts count as one, and it does not matter how
/// JSON is written: what a client sends and what an agent repeats of it differ in escapes, spaces and key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    hash: u64,
    length: usize,
}

impl Heard {
    /// A message is what the peer itself sent: it has the content already, and the agent will say it again.
    pub(crate) fn sent(&mut self, id: &MessageId, content: &Json) {
        let content = Content::parse(content.raw()).unwrap_or_default();
        let heard = self.messages.entry((Role::User, id.clone())).or_default();
        if !heard.content {
            *heard = HeardMessage {
                content: true,
                said: Some(Fingerprint::of(&content)),
                echo: Some(Fingerprint::default()),
                alias: None,
            };
        }
    }

    /// Notes that a chunk is passed on as the agent wrote it; `false` if it has to be said otherwise.
    pub(crate) fn passed(&mut self, role: Role, id: &MessageId) -> bool {
        if self.passed.as_ref().is_some_and(|(last, message)| *last == role && message == id) {
            return true;
        }
        let heard = self.messages.entry((role, id.clone())).or_default();
        if heard.alias.is_some() || heard.echo.is_some() {
            return false;
        }
        heard.content = true;
        heard.said = None;
        self.passed = Some((role, id.clone()));
        true
    }

    /// One more block of a message.
    pub(super) fn message_chunk(
        &mut self,
        role: Role,
        id: &MessageId,
        item: &Json,
        extra: Option<&Json>,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        let block = Members::of(item.raw()).unwrap_or_default();
        let said = match blocks::for_v1(&block, cx.losses) {
            ForV1::Same => item.clone(),
            ForV1::Changed(block) => block,
            ForV1::Unknown => {
                cx.losses.add_for(LossKind::ContentBlockType, id);
                return Vec::new();
            }
        };
        let heard = self.messages.entry((role, id.clone())).or_default();
        match heard.echo(item.as_str(), &block) {
            Echo::Yes => {
                if extra.is_some() {
                    cx.losses.add_for(LossKind::MessageMeta, id);
                }
                return Vec::new();
            }
            Echo::Differs => cx.losses.add_for(LossKind::MessageReplaced, id),
            Echo::No => {}
        }
        heard.content = true;
        if let Some(all) = &mut heard.said {
            all.add(item.as_str(), &block);
        }
        let id = heard.alias.as_ref().unwrap_or(id).as_json();
        vec![chunk(message_kinds(role).1, "messageId", id, said.as_str(), extra)]
    }

    /// A message as a whole: its content if the peer has none of it, else what v1 can say of the change.
    pub(super) fn message(
        &mut self,
        role: Role,
        id: &MessageId,
        upsert: &Upsert,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        self.passed = None;
        let heard = self.messages.entry((role, id.clone())).or_default();
        // Whatever a message says besides its content can at most go with the first chunk.
        let mut extra = upsert.fields.clone();
        if !extra.is_empty() {
            cx.losses.add_for(LossKind::MessageFields, id);
        }
        match &upsert.meta {
            MetaPatch::Clear if heard.content => cx.losses.add_for(LossKind::MessageMetaCleared, id),
            MetaPatch::Keep | MetaPatch::Clear => {}
            MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta) => {
                cx.losses.add_for(LossKind::MessageMeta, id);
                extra.set("_meta", meta.to_json());
            }
        }
        let says_nothing = !heard.content
            && upsert.fields.is_empty()
            && matches!(upsert.meta, MetaPatch::Keep | MetaPatch::Clear)
            && !matches!(upsert.content, Patch::Value(_));
        if says_nothing {
            cx.losses.add_for(LossKind::MessageEmpty, id);
        }
        let echo = heard.echo;
        if matches!(upsert.content, Patch::Value(_)) {
            heard.echo = None;
        }
        let blocks = match &upsert.content {
            Patch::Omitted => return Vec::new(),
            Patch::Clear if !heard.content || heard.said == Some(Fingerprint::default()) => {
                return Vec::new();
            }
            // Some agents clear a message before they say it.
            Patch::Clear if echo == Some(Fingerprint::default()) => return Vec::new(),
            Patch::Value(content) if heard.content && heard.said == Some(Fingerprint::of(content)) => {
                return Vec::new();
            }
            Patch::Clear => {
                cx.losses.add_for(LossKind::MessageCleared, id);
                vec![EMPTY.to_owned()]
            }
            Patch::Value(content) => {
                if heard.content {
                    cx.losses.add_for(LossKind::MessageReplaced, id);
                }
                content.iter().map(|item| item.json.to_owned()).collect()
            }
        };
        let is_replaced = heard.content;
        if is_replaced {
            heard.alias = Some((cx.fresh)());
            heard.said = Some(Fingerprint::default());
            heard.echo = None;
            shape::note(&mut extra, REPLACES, Json::from(id.as_json()));
        }
        let mut chunks = Vec::with_capacity(blocks.len());
        for block in blocks {
            let members = Members::parse(&block).unwrap_or_default();
            let known = match blocks::for_v1(&members, cx.losses) {
                ForV1::Same => shape::json(block.clone()),
                ForV1::Changed(known) => known,
                ForV1::Unknown => {
                    cx.losses.add_for(LossKind::ContentBlockType, id);
                    continue;
                }
            };
            heard.content = true;
            if let Some(all) = &mut heard.said {
                all.add(&block, &members);
            }
            let said = std::mem::take(&mut extra);
            let said = (!said.is_empty()).then(|| said.to_json());
            let id = heard.alias.as_ref().unwrap_or(id).as_json();
            chunks.push(chunk(message_kinds(role).1, "messageId", id, known.as_str(), said.as_ref()));
        }
        if is_replaced && chunks.is_empty() {
            // What it said before does not stand any more, although nothing of what it says now can be said.
            let id = heard.alias.as_ref().unwrap_or(id).as_json();
            let said = extra.to_json();
            chunks.push(chunk(message_kinds(role).1, "messageId", id, EMPTY, Some(&said)));
        }
        chunks
    }
}

/// What a chunk of a message is that the peer itself sent.
enum Echo {
    /// It says again what the peer sent.
    Yes,
    /// It is something else: the agent took another message than the peer sent.
    Differs,
    /// There is nothing to be said again.
    No,
}

impl HeardMessage {
    /// Looks at a chunk while the agent may be repeating what the peer sent.
    fn echo(&mut self, block: &str, members: &Members<'_>) -> Echo {
        let (Some(echo), Some(said)) = (&mut self.echo, self.said) else { return Echo::No };
        echo.add(block, members);
        if *echo != said && echo.length < said.length {
            return Echo::Yes;
        }
        let differs = *echo != said;
        self.echo = None;
        if differs { Echo::Differs } else { Echo::Yes }
    }
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, length: 0 }
    }
}

impl Fingerprint {
    /// Stands before and after what is no text; no code unit has this value.
    const MARK: u32 = 0x1_0000;

    fn of(content: &Content) -> Self {
        let mut all = Self::default();
        content.iter().for_each(|item| all.add(item.json, &Members::parse(item.json).unwrap_or_default()));
        all
    }

    fn add(&mut self, block: &str, members: &Members<'_>) {
        if let Some(text) = plain_text_in(members) {
            return self.text(text);
        }
        match serde_json::from_str(block) {
            Ok(block) => self.value(block, MAX_DEPTH),
            Err(_) => self.text(block),
        }
    }

    /// A value that is no plain text, by what it says.
    fn value(&mut self, value: JsonRef<'_>, depth: usize) {
        self.unit(Self::MARK);
        match (Members::of(value), value.elements()) {
            (Ok(members), _) if depth > 0 => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (name, value) in members {
                    self.text(name.inner());
                    self.value(value, depth - 1);
                }
            }
            (Err(_), Some(elements)) if depth > 0 => {
                elements.into_iter().for_each(|element| self.value(element, depth - 1));
            }
            (Ok(_) | Err(_), _) => {
                match value.as_str().strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
                    Some(string) => {
                        self.unit(Self::MARK);
                        self.text(string);
                    }
                    None => self.text(value.as_str()),
                }
            }
        }
        self.unit(Self::MARK);
    }

    /// The text of a literal without its quotes, code unit by code unit, so that it does not matter how it is cut or escaped.
    fn text(&mut self, literal: &str) {
        if !literal.contains('\\') {
            return literal.encode_utf16().for_each(|unit| self.unit(unit.into()));
        }
        for unit in CodePoints::of_literal(literal) {
            match unit {
                CodePoint::Char(c) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| self.unit((*unit).into()));
                }
                CodePoint::Surrogate(half) => self.unit(half.into()),
            }
        }
    }

    /// FNV-1a, by code units.
    fn unit(&mut self, unit: u32) {
        self.length += 1;
        self.hash = (self.hash ^ u64::from(unit)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(array: &str) -> Fingerprint {
        Fingerprint::of(&Content::parse(serde_json::from_str(array).unwrap()).unwrap())
    }

    #[test]
    fn the_same_content_is_the_same_however_it_is_written() {
        for (one, other) in [
            (
                r#"[{"type":"text","text":"h\u00e9\u006c\ud83d\ude00"}]"#,
                r#"[{ "text": "hél😀", "type": "text" }]"#,
            ),
            (
                r#"[{"type":"text","text":"a\ud83d"},{"type":"text","text":"\ude00"}]"#,
                r#"[{"type":"text","text":"a😀"}]"#,
            ),
            (
                r#"[{"type": "resource_link", "uri": "file:\/\/\/a", "name": "a", "x": [1, {"b": 2, "a": 3}]}]"#,
                r#"[{"name":"a","type":"resource_link","x":[1,{"a":3,"b":2}],"uri":"file:///a"}]"#,
            ),
        ] {
            assert_eq!(fingerprint(one), fingerprint(other));
        }
    }

    #[test]
    fn other_content_is_another() {
        let all = [
            "[]",
            r#"[{"type":"text","text":"a"}]"#,
            r#"[{"type":"text","text":"b"}]"#,
            r#"[{"type":"text","text":"a","_meta":{}}]"#,
            r#"[{"type":"image","data":"a"}]"#,
            r#"[{"type":"image","data":["a"]}]"#,
            r#"[{"type":"image","data":1}]"#,
            r#"[{"type":"image","data":"1"}]"#,
            r#"[{"type":"image","data":"a"},{"type":"text","text":"a"}]"#,
            r#"[{"type":"text","text":"a"},{"type":"image","data":"a"}]"#,
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(all[place + 1..].iter().all(|other| fingerprint(one) != fingerprint(other)), "{one}");
        }
    }
}
