use parlor_json::Object;

use crate::{Content, MetaPatch, Patch};

/// A patch of one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upsert {
    /// Whether the patch describes the whole target: fields, content and metadata that it does not contain are
    /// removed.
    pub whole: bool,
    /// Fields by name; a null value removes the field.
    pub fields: Object,
    /// Replaces the content. An empty list clears it, as `Clear` does.
    pub content: Patch<Content>,
    /// Replaces the output of a terminal.
    pub output: Patch<Vec<u8>>,
    /// Patches the metadata.
    pub meta: MetaPatch,
}

/// The stored value of one entry or slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// The fields that have a value.
    pub fields: Object,
    /// Blocks of a message, content of a tool call, summary of a compaction.
    pub content: Content,
    /// The bytes that a terminal wrote.
    pub output: Vec<u8>,
    /// The metadata; `None` if none was ever set, or if it was cleared.
    pub meta: Option<Object>,
    /// Whether the entry was removed.
    pub removed: bool,
    /// Bytes of the fields and the metadata, counted once so that `size` is O(1).
    small_parts: usize,
}

/// The result of a patch for the fields and metadata of a body, and the size of the whole body after it.
pub(crate) struct Patched {
    fields: Object,
    meta: Option<Object>,
    pub(crate) meta_bytes: usize,
    pub(crate) bytes: usize,
}

impl Upsert {
    /// Combines this patch of fields and metadata with a later one. `stored` is the metadata that the combined patch
    /// will be applied to.
    #[must_use]
    pub fn then(mut self, next: Self, stored: Option<&Object>) -> Self {
        next.fields.iter().for_each(|(name, value)| self.fields.set(name.clone(), value.clone()));
        self.meta = self.meta.then(next.meta, stored);
        self
    }
}

impl Body {
    /// The body of a removed entry.
    pub(crate) fn tombstone() -> Self {
        Self { removed: true, ..Self::default() }
    }

    /// A body from the store, without content and output.
    pub(crate) fn restored(fields: Object, meta: Option<Object>) -> Self {
        let small_parts = size(&fields) + meta.as_ref().map_or(0, size);
        Self { fields, meta, small_parts, ..Self::default() }
    }

    /// Bytes of the values, without the overhead of their containers.
    pub(crate) fn size(&self) -> usize {
        self.small_parts + self.content.size() + self.output.len()
    }

    /// Computes the result of `upsert` without applying it, so that the caller can check limits first. Content and
    /// output may be large and are not copied.
    pub(crate) fn patched(&self, upsert: &Upsert) -> Patched {
        let unless_whole = |length: usize| if upsert.whole { 0 } else { length };
        let stored = if upsert.whole { &Self::default() } else { self };
        let fields = if upsert.whole {
            upsert.fields.clone()
        } else {
            let mut fields = stored.fields.clone();
            fields.merge_keys(&upsert.fields);
            fields
        };
        let meta = upsert.meta.applied_to(stored.meta.as_ref());
        let content = match &upsert.content {
            Patch::Omitted => unless_whole(self.content.size()),
            Patch::Clear => 0,
            Patch::Value(content) => content.size(),
        };
        let output = match &upsert.output {
            Patch::Omitted => unless_whole(self.output.len()),
            Patch::Clear => 0,
            Patch::Value(output) => output.len(),
        };
        let meta_bytes = meta.as_ref().map_or(0, size);
        Patched { bytes: size(&fields) + content + output + meta_bytes, fields, meta, meta_bytes }
    }

    /// Applies the result of [`patched`](Self::patched).
    pub(crate) fn apply(&mut self, patched: Patched, upsert: &Upsert) {
        self.small_parts = size(&patched.fields) + patched.meta_bytes;
        self.fields = patched.fields;
        self.meta = patched.meta;
        self.removed = false;
        match &upsert.content {
            Patch::Omitted if !upsert.whole => {}
            Patch::Omitted | Patch::Clear => self.content = Content::default(),
            Patch::Value(content) => self.content.clone_from(content),
        }
        match &upsert.output {
            Patch::Omitted if !upsert.whole => {}
            Patch::Omitted | Patch::Clear => self.output = Vec::new(),
            Patch::Value(output) => self.output.clone_from(output),
        }
    }
}

/// Bytes of an object that count towards a limit: an object without members counts nothing.
fn size(object: &Object) -> usize {
    if object.is_empty() { 0 } else { object.text_len() }
}
