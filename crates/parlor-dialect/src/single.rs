use std::fmt;

use parlor_json::{Json, JsonRef, Members};
use parlor_session::{EntryId, MetaPatch, Patch, Target, Update};

use crate::encode::{chunk, message_kinds};
use crate::values::blocks::{self, ForV1};
use crate::{BadUpdate, Decoded, Decoder, Dialect, Losses, shape};

/// Why a whole message cannot be said in v1 chunks without knowing what was said before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAsChunks {
    /// It is no update that can be read.
    BadUpdate(BadUpdate),
    /// It is an update of something else.
    NotAMessage,
    /// It leaves the content as it is.
    PatchOnly,
    /// It clears the content.
    ContentCleared,
    /// It clears the metadata.
    MetaCleared,
    /// It has a block that v1 does not know.
    BlockType,
}

/// The v1 chunks that say a whole v2 message, one for each content block.
///
/// This looks at the one update only, and is right only if the v1 side has nothing of the message yet: v1 cannot
/// replace. What no chunk can say is an error. [`Translator`](crate::Translator) knows what was said before.
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
        // What the message says besides its content goes with the first chunk.
        let said = std::mem::take(&mut extra);
        let said = (!said.is_empty()).then(|| said.to_json());
        chunks.push(shape::json(chunk(
            message_kinds(role).1,
            "messageId",
            id.as_json(),
            block,
            said.as_ref(),
        )));
    }
    Ok(chunks)
}

impl fmt::Display for NotAsChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUpdate(bad) => bad.fmt(f),
            Self::NotAMessage => f.write_str("the update is no whole message"),
            Self::PatchOnly => f.write_str("chunks cannot patch a message without content"),
            Self::ContentCleared => f.write_str("chunks cannot clear the content of a message"),
            Self::MetaCleared => f.write_str("chunks cannot clear the metadata of a message"),
            Self::BlockType => f.write_str("v1 does not know one of the blocks"),
        }
    }
}

impl std::error::Error for NotAsChunks {}
