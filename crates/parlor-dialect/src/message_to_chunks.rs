use std::fmt;

use parlor_json::{Json, JsonRef, Members};
use parlor_session::{EntryId, MetaPatch, Patch, Target, Update};

use crate::encode::{chunk, message_kinds};
use crate::values::blocks::{self, ForV1};
use crate::{BadUpdate, Decoded, Decoder, Dialect, Losses};

/// Why a whole message cannot be converted to v1 chunks without knowledge of what the peer has received.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAsChunks {
    /// The update cannot be decoded.
    BadUpdate(BadUpdate),
    /// The update is not about a message.
    NotAMessage,
    /// The update leaves the content unchanged.
    PatchOnly,
    /// The update clears the content.
    ContentCleared,
    /// The update clears the metadata.
    MetaCleared,
    /// The message has a block of a type that v1 does not know.
    BlockType,
}

/// Converts a whole v2 message to v1 chunks, one for each content block.
///
/// This reads only the one update, and is correct only if the v1 peer has nothing of the message: v1 cannot
/// replace. A message that chunks cannot express is an error. [`Translator`](crate::Translator) tracks what a peer has.
///
/// ```
/// use parlor_dialect::message_as_chunks;
///
/// let update = r#"{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"A"}]}"#;
/// let chunks = message_as_chunks(serde_json::from_str(update).unwrap()).unwrap();
/// assert_eq!(
///     chunks[0].as_str(),
///     r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"A"}}"#
/// );
/// ```
pub fn message_as_chunks(update: JsonRef<'_>) -> Result<Vec<Json>, NotAsChunks> {
    let decoded = Decoder::new(Dialect::V2).decode(update, &mut || "".into());
    let Decoded { update, ignored, .. } = decoded.map_err(NotAsChunks::BadUpdate)?;
    if let Some(ignored) = ignored.into_iter().next() {
        return Err(NotAsChunks::BadUpdate(ignored));
    }
    let Update::Upsert { target: Target::Entry(EntryId::Message(role, id)), upsert } = update else {
        return Err(NotAsChunks::NotAMessage);
    };
    let mut extra = upsert.fields;
    match upsert.meta {
        MetaPatch::Keep => {}
        MetaPatch::Clear => return Err(NotAsChunks::MetaCleared),
        MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta) => {
            extra.set("_meta", meta.to_json());
        }
    }
    let content = match upsert.content {
        Patch::Omitted => return Err(NotAsChunks::PatchOnly),
        Patch::Clear => return Err(NotAsChunks::ContentCleared),
        Patch::Value(content) => content,
    };
    let mut chunks = Vec::with_capacity(content.len());
    for block in content.iter().map(|item| item.json) {
        let members = Members::parse(block).unwrap_or_default();
        if blocks::for_v1(&members, &mut Losses::default()) != ForV1::Same {
            return Err(NotAsChunks::BlockType);
        }
        // The message's other fields go with the first chunk.
        let first_extra = std::mem::take(&mut extra);
        let first_extra = (!first_extra.is_empty()).then(|| first_extra.to_json());
        let chunk = chunk(message_kinds(role).1, "messageId", id.as_json(), block, first_extra.as_ref());
        chunks.push(chunk.into_json());
    }
    Ok(chunks)
}

impl fmt::Display for NotAsChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUpdate(bad) => bad.fmt(f),
            Self::NotAMessage => f.write_str("the update is not a whole message"),
            Self::PatchOnly => f.write_str("chunks cannot patch a message without content"),
            Self::ContentCleared => f.write_str("chunks cannot clear the content of a message"),
            Self::MetaCleared => f.write_str("chunks cannot clear the metadata of a message"),
            Self::BlockType => f.write_str("v1 does not know one of the blocks"),
        }
    }
}

impl std::error::Error for NotAsChunks {}
