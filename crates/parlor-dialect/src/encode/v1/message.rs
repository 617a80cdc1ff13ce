//! Messages for a v1 peer, which can only be appended to.

use parlor_json::{CodePoint, CodePoints, Json, JsonRef, MAX_DEPTH, Members};
use parlor_session::{Content, MessageId, MetaPatch, Patch, Role, Upsert, plain_text_in};

use super::V1PeerState;
use crate::LossKind;
use crate::encode::{Context, chunk, message_kinds};
use crate::values::blocks::{self, ForV1};

/// The metadata key for the id of the message that a restated one replaces.
const REPLACES: &str = "parlor/replaces";

/// The block for empty content.
const EMPTY: &str = r#"{"type":"text","text":""}"#;

/// The parts of one message that a v1 peer has received.
#[derive(Debug, Clone)]
pub(super) struct ReceivedMessage {
    /// Whether it has received any content.
    content: bool,
    /// All of its content, however it was split into blocks. Many agents stream a message and then send it as a
    /// whole, which has nothing new for a v1 peer. `None` if chunks were forwarded without being read.
    received: Option<Fingerprint>,
    /// The id of its content since it was replaced.
    alias: Option<MessageId>,
    /// How much the agent has repeated of a message that the peer itself sent, until it has repeated all of it.
    echo: Option<Fingerprint>,
}

impl Default for ReceivedMessage {
    fn default() -> Self {
        Self { content: false, received: Some(Fingerprint::default()), alias: None, echo: None }
    }
}

impl ReceivedMessage {
    /// A message that was received over an earlier connection: its content is not known.
    pub(super) fn unread() -> Self {
        Self { content: true, received: None, ..Self::default() }
    }
}

/// A hash of the content of a message. Neighbouring plain texts count as one, and the spelling of the JSON does not
/// matter: a client's prompt and an agent's repetition differ in escapes, spaces and key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    hash: u64,
    length: usize,
}

impl V1PeerState {
    /// Marks a message that the peer itself sent: it has the content, and the agent will repeat it.
    pub(crate) fn sent(&mut self, id: &MessageId, content: &Json) {
        let content = Content::parse(content.raw()).unwrap_or_default();
        let peer = self.messages.entry((Role::User, id.clone())).or_default();
        if !peer.content {
            *peer = ReceivedMessage {
                content: true,
                received: Some(Fingerprint::of(&content)),
                echo: Some(Fingerprint::default()),
                alias: None,
            };
        }
    }

    /// Tracks a chunk that is forwarded as the agent wrote it; `false` if it must be encoded.
    pub(crate) fn passed(&mut self, role: Role, id: &MessageId) -> bool {
        if self.passed.as_ref().is_some_and(|(last, message)| *last == role && message == id) {
            return true;
        }
        let peer = self.messages.entry((role, id.clone())).or_default();
        if peer.alias.is_some() || peer.echo.is_some() {
            return false;
        }
        peer.content = true;
        peer.received = None;
        self.passed = Some((role, id.clone()));
        true
    }

    /// Encodes one more block of a message.
    pub(super) fn message_chunk(
        &mut self,
        role: Role,
        id: &MessageId,
        item: &Json,
        extra: Option<&Json>,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        let block = Members::of(item.raw()).unwrap_or_default();
        let block_json = match blocks::for_v1(&block, cx.losses) {
            ForV1::Same => item.clone(),
            ForV1::Changed(block) => block,
            ForV1::Unknown => {
                cx.losses.add_for(LossKind::ContentBlockType, id);
                return Vec::new();
            }
        };
        let peer = self.messages.entry((role, id.clone())).or_default();
        match peer.echo(item.as_str(), &block) {
            Echo::Yes => {
                if extra.is_some() {
                    cx.losses.add_for(LossKind::MessageMeta, id);
                }
                return Vec::new();
            }
            Echo::Differs => cx.losses.add_for(LossKind::MessageReplaced, id),
            Echo::No => {}
        }
        peer.content = true;
        if let Some(all) = &mut peer.received {
            all.add(item.as_str(), &block);
        }
        let id = peer.alias.as_ref().unwrap_or(id).as_json();
        vec![chunk(message_kinds(role).1, "messageId", id, block_json.as_str(), extra).finish()]
    }

    /// Encodes a whole message: its content if the peer has none of it, else what v1 can express of the change.
    pub(super) fn message(
        &mut self,
        role: Role,
        id: &MessageId,
        upsert: &Upsert,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        self.passed = None;
        let peer = self.messages.entry((role, id.clone())).or_default();
        // The other fields of a message can only go with the first chunk.
        let mut extra = upsert.fields.clone();
        if !extra.is_empty() {
            cx.losses.add_for(LossKind::MessageFields, id);
        }
        match &upsert.meta {
            MetaPatch::Clear if peer.content => cx.losses.add_for(LossKind::MessageMetaCleared, id),
            MetaPatch::Keep | MetaPatch::Clear => {}
            MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta) => {
                cx.losses.add_for(LossKind::MessageMeta, id);
                extra.set("_meta", meta.to_json());
            }
        }
        let says_nothing = !peer.content
            && upsert.fields.is_empty()
            && matches!(upsert.meta, MetaPatch::Keep | MetaPatch::Clear)
            && !matches!(upsert.content, Patch::Value(_));
        if says_nothing {
            cx.losses.add_for(LossKind::MessageEmpty, id);
        }
        let echo = peer.echo;
        if matches!(upsert.content, Patch::Value(_)) {
            peer.echo = None;
        }
        let blocks = match &upsert.content {
            Patch::Omitted => return Vec::new(),
            Patch::Clear if !peer.content || peer.received == Some(Fingerprint::default()) => {
                return Vec::new();
            }
            // Some agents clear a message before they send it.
            Patch::Clear if echo == Some(Fingerprint::default()) => return Vec::new(),
            Patch::Value(content) if peer.content && peer.received == Some(Fingerprint::of(content)) => {
                return Vec::new();
            }
            Patch::Clear => {
                cx.losses.add_for(LossKind::MessageCleared, id);
                vec![EMPTY.to_owned()]
            }
            Patch::Value(content) => {
                if peer.content {
                    cx.losses.add_for(LossKind::MessageReplaced, id);
                }
                content.iter().map(|item| item.json.to_owned()).collect()
            }
        };
        let is_replaced = peer.content;
        if is_replaced {
            peer.alias = Some((cx.new_id)());
            peer.received = Some(Fingerprint::default());
            peer.echo = None;
            extra.set_nested("_meta", REPLACES, id.as_json());
        }
        let mut chunks = Vec::with_capacity(blocks.len());
        for block in blocks {
            let members = Members::parse(&block).unwrap_or_default();
            let known = match blocks::for_v1(&members, cx.losses) {
                ForV1::Same => None,
                ForV1::Changed(known) => Some(known),
                ForV1::Unknown => {
                    cx.losses.add_for(LossKind::ContentBlockType, id);
                    continue;
                }
            };
            peer.content = true;
            if let Some(all) = &mut peer.received {
                all.add(&block, &members);
            }
            let first_extra = std::mem::take(&mut extra);
            let first_extra = (!first_extra.is_empty()).then(|| first_extra.to_json());
            let id = peer.alias.as_ref().unwrap_or(id).as_json();
            let block = known.as_ref().map_or(block.as_str(), Json::as_str);
            let chunk = chunk(message_kinds(role).1, "messageId", id, block, first_extra.as_ref());
            chunks.push(chunk.finish());
        }
        if is_replaced && chunks.is_empty() {
            // The previous content is obsolete, although none of the new content can be expressed.
            let id = peer.alias.as_ref().unwrap_or(id).as_json();
            let first_extra = extra.to_json();
            chunks.push(chunk(message_kinds(role).1, "messageId", id, EMPTY, Some(&first_extra)).finish());
        }
        chunks
    }
}

/// The relation of a chunk to the message that the peer itself sent.
enum Echo {
    /// It repeats the message.
    Yes,
    /// It differs: the agent has another message than the peer sent.
    Differs,
    /// There is no message to repeat.
    No,
}

impl ReceivedMessage {
    /// Compares a chunk while the agent may be repeating the peer's message.
    fn echo(&mut self, block: &str, members: &Members<'_>) -> Echo {
        let (Some(echo), Some(received)) = (&mut self.echo, self.received) else { return Echo::No };
        echo.add(block, members);
        if *echo != received && echo.length < received.length {
            return Echo::Yes;
        }
        let differs = *echo != received;
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
    /// Separates values that are not text; no code unit has this value.
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

    /// Hashes a value that is not plain text.
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

    /// Hashes the text of a literal without its quotes, by code units, so that splits and escapes do not matter.
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
        for (index, one) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|other| fingerprint(one) != fingerprint(other)), "{one}");
        }
    }
}
