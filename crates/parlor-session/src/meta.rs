use parlor_json::{MAX_DEPTH, Object};

/// A change of stored metadata.
///
/// The protocol's versions merge metadata by different rules: the dialect chooses the variant, the core applies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MetaPatch {
    /// No change.
    #[default]
    Keep,
    /// Removes all metadata.
    Clear,
    /// Replaces all metadata.
    Replace(Object),
    /// Replaces top-level keys; a null removes its key.
    MergeKeys(Object),
    /// Merges nested objects too, as JSON Merge Patch does.
    MergeDeep(Object),
}

impl MetaPatch {
    /// Bytes of metadata in the patch itself.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Keep | Self::Clear => 0,
            Self::Replace(meta) | Self::MergeKeys(meta) | Self::MergeDeep(meta) => meta.text_len(),
        }
    }

    /// The metadata after the patch is applied to `stored`.
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

    /// Combines this patch with a later one. `stored` is the metadata that the combined patch will be applied to: a
    /// removal followed by new members of the same name is not expressible as one merge, so that the result is a
    /// replacement.
    #[must_use]
    pub fn then(self, next: Self, stored: Option<&Object>) -> Self {
        match (self, next) {
            (first, Self::Keep) => first,
            (_, next @ (Self::Clear | Self::Replace(_))) | (Self::Keep, next) => next,
            (Self::MergeKeys(mut first), Self::MergeKeys(next)) => {
                next.iter().for_each(|(name, value)| first.set(name.clone(), value.clone()));
                Self::MergeKeys(first)
            }
            (Self::MergeDeep(first), Self::MergeDeep(next)) => match deep(&first, &next, MAX_DEPTH) {
                Some(both) => Self::MergeDeep(both),
                None => Self::MergeDeep(first).result(&Self::MergeDeep(next), stored),
            },
            (first, next) => first.result(&next, stored),
        }
    }

    /// The replacement that equals applying both patches to `stored`.
    fn result(&self, next: &Self, stored: Option<&Object>) -> Self {
        next.applied_to(self.applied_to(stored).as_ref()).map_or(Self::Clear, Self::Replace)
    }
}

/// Combines two recursive merges; `None` if no single merge is equivalent for every stored value.
fn deep(first: &Object, next: &Object, depth: usize) -> Option<Object> {
    let mut both = first.clone();
    for (name, new) in next.iter() {
        let nested = new.to_object().filter(|_| depth > 0);
        let value = match (both.get_key(name), nested) {
            (Some(old), Some(new)) => deep(&old.to_object()?, &new, depth - 1)?.to_json(),
            (_, None) | (None, Some(_)) => new.clone(),
        };
        both.set(name.clone(), value);
    }
    Some(both)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn patches_are_combined_by_their_own_rule() {
        let stored = object(r#"{"a":{"x":1},"b":1}"#);
        for (first, next, both) in [
            (
                MetaPatch::MergeDeep(object(r#"{"a":{"y":2},"b":null}"#)),
                MetaPatch::MergeDeep(object(r#"{"a":{"x":null},"c":3}"#)),
                MetaPatch::MergeDeep(object(r#"{"a":{"y":2,"x":null},"b":null,"c":3}"#)),
            ),
            (
                MetaPatch::MergeKeys(object(r#"{"a":{"y":2},"b":null}"#)),
                MetaPatch::MergeKeys(object(r#"{"a":{"x":null}}"#)),
                MetaPatch::MergeKeys(object(r#"{"a":{"x":null},"b":null}"#)),
            ),
            // No single merge removes a member and then adds members to it.
            (
                MetaPatch::MergeDeep(object(r#"{"a":null}"#)),
                MetaPatch::MergeDeep(object(r#"{"a":{"y":2}}"#)),
                MetaPatch::Replace(object(r#"{"b":1,"a":{"y":2}}"#)),
            ),
            (
                MetaPatch::Clear,
                MetaPatch::MergeDeep(object(r#"{"a":1}"#)),
                MetaPatch::Replace(object(r#"{"a":1}"#)),
            ),
            (MetaPatch::MergeKeys(object(r#"{"a":1}"#)), MetaPatch::Clear, MetaPatch::Clear),
            (MetaPatch::Clear, MetaPatch::Keep, MetaPatch::Clear),
        ] {
            assert_eq!(first.clone().then(next.clone(), Some(&stored)), both, "{first:?} then {next:?}");
        }
    }

    fn nested() -> impl Strategy<Value = Object> {
        let leaf = prop_oneof![
            Just(serde_json::json!(1)),
            Just(serde_json::json!([{ "a": null }])),
            Just(serde_json::json!(null))
        ];
        let value = leaf.prop_recursive(3, 16, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| serde_json::json!(map))
        });
        prop::collection::btree_map("[a-c]", value, 0..3)
            .prop_map(|map| object(&serde_json::json!(map).to_string()))
    }

    fn patch() -> impl Strategy<Value = MetaPatch> {
        prop_oneof![
            1 => Just(MetaPatch::Keep),
            1 => Just(MetaPatch::Clear),
            1 => nested().prop_map(MetaPatch::Replace),
            1 => nested().prop_map(MetaPatch::MergeKeys),
            4 => nested().prop_map(MetaPatch::MergeDeep),
        ]
    }

    /// The value, without the order of its members.
    fn value(object: Option<Object>) -> Option<serde_json::Value> {
        object.map(|object| serde_json::from_str(object.to_json().as_str()).unwrap())
    }

    proptest! {
        #[test]
        fn a_combined_patch_equals_its_parts_in_order(
            stored in prop::option::of(nested()), patches in prop::collection::vec(patch(), 1..6),
        ) {
            let mut one_by_one = stored.clone();
            let mut composed = MetaPatch::Keep;
            for patch in patches {
                one_by_one = patch.applied_to(one_by_one.as_ref());
                composed = composed.then(patch, stored.as_ref());
            }
            prop_assert_eq!(value(composed.applied_to(stored.as_ref())), value(one_by_one));
        }

        #[test]
        fn combining_merges_does_not_depend_on_the_stored_value(
            stored in nested(), first in nested(), next in nested(),
        ) {
            let (mut merged, mut at_once) = (stored.clone(), stored);
            merged.merge_deep(&first);
            merged.merge_deep(&next);
            if let Some(both) = deep(&first, &next, MAX_DEPTH) {
                at_once.merge_deep(&both);
                prop_assert_eq!(value(Some(at_once)), value(Some(merged)));
            }
        }
    }
}
