use parlor_json::Object;

/// What an update says about stored metadata.
///
/// The protocol's versions merge metadata by different rules; a dialect chooses the variant that says what
/// its peer meant, and the core only applies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MetaPatch {
    /// Nothing was said.
    #[default]
    Keep,
    /// All metadata goes.
    Clear,
    /// This is the metadata now.
    Replace(Object),
    /// Top-level keys are replaced; a null removes its key.
    MergeKeys(Object),
    /// Nested objects are merged too, as JSON Merge Patch does.
    MergeDeep(Object),
}

impl MetaPatch {
    /// How many bytes of metadata the patch itself carries.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Keep | Self::Clear => 0,
            Self::Replace(meta) | Self::MergeKeys(meta) | Self::MergeDeep(meta) => meta.text_len(),
        }
    }

    /// The metadata after the patch.
    pub(crate) fn applied_to(&self, stored: Option<&Object>) -> Option<Object> {
        let merged = |merge: fn(&mut Object, &Object), patch: &Object| {
            let mut meta = stored.cloned().unwrap_or_default();
            merge(&mut meta, patch);
            Some(meta)
        };
        match self {
            Self::Keep => stored.cloned(),
            Self::Clear => None,
            Self::Replace(meta) => Some(meta.clone()),
            Self::MergeKeys(patch) => merged(Object::merge_keys, patch),
            Self::MergeDeep(patch) => merged(Object::merge_deep, patch),
        }
    }
}
