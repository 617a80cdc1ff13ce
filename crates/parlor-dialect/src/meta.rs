//! Converts metadata patches between merge rules.
//!
//! The dialects merge metadata differently. Forwarding a patch unchanged would leave a peer of another dialect with
//! different metadata, so that the patch is replaced by one that gives the stored result under the peer's rule.

use parlor_json::{Json, MAX_DEPTH, Object, Type};
use parlor_session::{EntryId, MetaPatch, Patch, Slot, Target};

use crate::{Dialect, LossKind, Losses};

/// How a dialect applies a metadata object in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It replaces the metadata.
    Replace,
    /// It replaces top-level keys; a null removes one.
    Keys,
    /// It is merged recursively; a null removes.
    Deep,
}

impl Rule {
    /// The rule of a dialect for the metadata of a target.
    pub(crate) fn of(dialect: Dialect, target: &Target) -> Self {
        let is_report = matches!(
            target,
            Target::Slot(Slot::Usage | Slot::Commands | Slot::Options | Slot::Mode | Slot::Model)
                | Target::Entry(EntryId::Plan(_) | EntryId::Note(_))
        );
        let is_message = matches!(target, Target::Entry(EntryId::Message(..)));
        let is_info = *target == Target::Slot(Slot::Info);
        match dialect {
            // A report is replaced by the next one, with its metadata.
            _ if is_report => Self::Replace,
            Dialect::V1 | Dialect::Draft if is_info => Self::Deep,
            Dialect::V1 => Self::Replace,
            Dialect::Draft if is_message => Self::Replace,
            // Where the drafts define nothing, the published rule applies.
            Dialect::V2 | Dialect::Draft => Self::Keys,
        }
    }

    /// The patch that an object in an update stands for.
    pub(crate) fn patch(self, meta: Object) -> MetaPatch {
        match self {
            Self::Replace => MetaPatch::Replace(meta),
            Self::Keys => MetaPatch::MergeKeys(meta),
            Self::Deep => MetaPatch::MergeDeep(meta),
        }
    }
}

/// Converts a metadata patch for a peer that merges by `rule` and has `before`; the stored result is `after`.
pub(crate) fn convert(
    patch: &MetaPatch,
    rule: Rule,
    before: Option<&Object>,
    after: Option<&Object>,
    losses: &mut Losses,
) -> Patch<Object> {
    match (patch, rule) {
        (MetaPatch::Keep, _) => return Patch::Omitted,
        (MetaPatch::Clear, _) => return Patch::Clear,
        (MetaPatch::Replace(meta), Rule::Replace)
        | (MetaPatch::MergeKeys(meta), Rule::Keys)
        | (MetaPatch::MergeDeep(meta), Rule::Deep) => return Patch::Value(meta.clone()),
        // Without nested objects, both merges are the same.
        (MetaPatch::MergeKeys(meta), Rule::Deep) | (MetaPatch::MergeDeep(meta), Rule::Keys)
            if meta.iter().all(|(_, value)| value.type_of() != Type::Object) =>
        {
            return Patch::Value(meta.clone());
        }
        (MetaPatch::Replace(_) | MetaPatch::MergeKeys(_) | MetaPatch::MergeDeep(_), _) => {}
    }
    let Some(after) = after else { return Patch::Clear };
    let empty = Object::default();
    let before = before.unwrap_or(&empty);
    Patch::Value(match rule {
        Rule::Replace => after.clone(),
        Rule::Keys => difference(before, after, 0, losses),
        Rule::Deep => difference(before, after, MAX_DEPTH, losses),
    })
}

/// The merge patch from one object to another, merging nested objects down to `depth`.
fn difference(before: &Object, after: &Object, depth: usize, losses: &mut Losses) -> Object {
    let mut patch = Object::default();
    for (name, new) in after.iter() {
        let old = before.get_key(name);
        if old == Some(new) {
            continue;
        }
        if new.is_null() {
            losses.add(LossKind::MetaNull);
            continue;
        }
        let nested = |json: &Json| json.to_object();
        let value = match (depth, nested(new)) {
            (1.., Some(new)) => {
                let old = old.and_then(nested).unwrap_or_default();
                difference(&old, &new, depth - 1, losses).to_json()
            }
            (0, Some(_)) | (_, None) => new.clone(),
        };
        patch.set(name.clone(), value);
    }
    for (name, _) in before.iter().filter(|(name, _)| after.get_key(name).is_none()) {
        patch.set(name.clone(), Json::null());
    }
    patch
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_patch_is_converted_to_the_other_rule() {
        let (before, patch) = (r#"{"a":{"x":1,"y":2},"b":1}"#, r#"{"a":{"y":3},"b":null}"#);
        for (means, rule, said) in [
            (Rule::Deep, Rule::Keys, r#"{"a":{"x":1,"y":3},"b":null}"#),
            (Rule::Deep, Rule::Replace, r#"{"a":{"x":1,"y":3}}"#),
            (Rule::Keys, Rule::Deep, r#"{"a":{"y":3,"x":null},"b":null}"#),
            (Rule::Keys, Rule::Replace, r#"{"a":{"y":3}}"#),
            (Rule::Keys, Rule::Keys, patch),
        ] {
            let patch = means.patch(object(patch));
            let mut losses = Losses::default();
            let after = applied(&patch, &object(before));
            let got = convert(&patch, rule, Some(&object(before)), Some(&after), &mut losses);
            assert_eq!(got, Patch::Value(object(said)), "{means:?} -> {rule:?}");
            assert_eq!(losses.as_slice(), []);
        }
    }

    #[test]
    fn a_flat_patch_is_passed_on_whatever_was_there() {
        for (patch, rule) in [
            (MetaPatch::MergeKeys(object(r#"{"a":null,"b":[{}]}"#)), Rule::Deep),
            (MetaPatch::MergeDeep(object(r#"{"a":null,"b":[{}]}"#)), Rule::Keys),
        ] {
            let said = convert(&patch, rule, None, Some(&object(r#"{"b":[{}]}"#)), &mut Losses::default());
            assert_eq!(said, Patch::Value(object(r#"{"a":null,"b":[{}]}"#)));
        }
    }

    #[test]
    fn a_stored_null_is_not_expressible_by_a_rule_that_removes_it() {
        let mut losses = Losses::default();
        let patch = MetaPatch::Replace(object(r#"{"a":null,"b":1}"#));
        let said = convert(&patch, Rule::Keys, None, Some(&object(r#"{"a":null,"b":1}"#)), &mut losses);
        assert_eq!(said, Patch::Value(object(r#"{"b":1}"#)));
        assert_eq!(losses.as_slice()[0].kind, LossKind::MetaNull);
    }

    fn applied(patch: &MetaPatch, before: &Object) -> Object {
        let mut after = before.clone();
        match patch {
            MetaPatch::Keep => {}
            MetaPatch::Clear => after = Object::default(),
            MetaPatch::Replace(meta) => after = meta.clone(),
            MetaPatch::MergeKeys(meta) => after.merge_keys(meta),
            MetaPatch::MergeDeep(meta) => after.merge_deep(meta),
        }
        after
    }

    fn nested() -> impl Strategy<Value = Object> {
        let leaf = prop_oneof![
            Just(serde_json::json!(1)),
            Just(serde_json::json!("x")),
            Just(serde_json::json!(null))
        ];
        let value = leaf.prop_recursive(3, 16, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| serde_json::json!(map))
        });
        prop::collection::btree_map("[a-c]", value, 0..3)
            .prop_map(|map| object(&serde_json::json!(map).to_string()))
    }

    /// The value, without the order of its members.
    fn value(object: &Object) -> serde_json::Value {
        serde_json::from_str(object.to_json().as_str()).unwrap()
    }

    proptest! {
        #[test]
        fn whoever_follows_by_another_rule_ends_with_the_stored_metadata(
            before in nested(), patch in nested(),
            means in prop::sample::select(vec![Rule::Replace, Rule::Keys, Rule::Deep]),
            rule in prop::sample::select(vec![Rule::Replace, Rule::Keys, Rule::Deep]),
        ) {
            let patch = means.patch(patch);
            let after = applied(&patch, &before);
            let mut losses = Losses::default();
            let Patch::Value(said) = convert(&patch, rule, Some(&before), Some(&after), &mut losses) else { unreachable!() };
            let followed = applied(&rule.patch(said), &before);
            prop_assert!(value(&followed) == value(&after) || !losses.as_slice().is_empty());
        }
    }
}
