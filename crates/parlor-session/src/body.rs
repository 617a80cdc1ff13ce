use parlor_json::Object;

use crate::{Content, MetaPatch, Patch};

/// A patch of one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upsert {
    /// Whether this is all there is to say: what the patch does not name goes.
    pub whole: bool,
    /// Fields by name; a null removes its field.
    pub fields: Object,
    /// The content as a whole. An empty list clears it, as `Clear` does.
    pub content: Patch<Content>,
    /// The output of a terminal as a whole.
    pub output: Patch<Vec<u8>>,
    /// The metadata.
    pub meta: MetaPatch,
}

/// What is known of one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// The fields that have a value.
    pub fields: Object,
    /// Blocks of a message, content of a tool call, summary of a compaction.
    pub content: Content,
    /// What a terminal wrote.
    pub output: Vec<u8>,
    /// The metadata, if any was ever set and not cleared.
    pub meta: Option<Object>,
    /// Whether the entry was removed.
    pub removed: bool,
    /// What the fields and the metadata take, so that measuring a body is no walk over them.
    small_parts: usize,
}

/// What a patch would make of the small parts of a body, and how large the whole would be.
pub(crate) struct Patched {
    fields: Object,
    meta: Option<Object>,
    pub(crate) meta_bytes: usize,
    pub(crate) bytes: usize,
}

impl Upsert {
    /// This patch of fields and metadata and then another one, as one. `stored` is the metadata that it will be
    /// applied to.
    #[must_use]
    pub fn then(mut self, next: Self, stored: Option<&Object>) -> Self {
        next.fields.iter().for_each(|(name, value)| self.fields.set(name.clone(), value.clone()));
        self.meta = self.meta.then(next.meta, stored);
        self
    }
}

impl Body {
    /// What is left of an entry that was removed.
    pub(crate) fn tombstone() -> Self {
        Self { removed: true, ..Self::default() }
    }

    /// What was kept of a body, still without content and output.
    pub(crate) fn restored(fields: Object, meta: Option<Object>) -> Self {
        let small_parts = size(&fields) + meta.as_ref().map_or(0, size);
        Self { fields, meta, small_parts, ..Self::default() }
    }

    /// How many bytes this takes, without what its containers cost.
    pub(crate) fn size(&self) -> usize {
        self.small_parts + self.content.size() + self.output.len()
    }

    /// Works out what `upsert` would do, so that it can be refused before anything is changed. Content and
    /// output may be large and are not copied for that.
    pub(crate) fn patched(&self, upsert: &Upsert) -> Patched {
        let kept = |length: usize| if upsert.whole { 0 } else { length };
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
            Patch::Omitted => kept(self.content.size()),
            Patch::Clear => 0,
            Patch::Value(content) => content.size(),
        };
        let output = match &upsert.output {
            Patch::Omitted => kept(self.output.len()),
            Patch::Clear => 0,
            Patch::Value(output) => output.len(),
        };
        let meta_bytes = meta.as_ref().map_or(0, size);
        Patched { bytes: size(&fields) + content + output + meta_bytes, fields, meta, meta_bytes }
    }

    /// Does what [`patched`](Self::patched) worked out.
    pub(crate) fn take(&mut self, patched: Patched, upsert: &Upsert) {
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

    /// The patch that makes any body this one.
    pub(crate) fn to_upsert(&self) -> Upsert {
        Upsert {
            whole: true,
            fields: self.fields.clone(),
            content: Patch::Value(self.content.clone()),
            output: Patch::Value(self.output.clone()),
            meta: self.meta.clone().map_or(MetaPatch::Clear, MetaPatch::Replace),
        }
    }
}

/// What an object takes of a limit; one without members takes nothing.
fn size(object: &Object) -> usize {
    if object.is_empty() { 0 } else { object.text_len() }
}
