use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The change of one field: none, cleared, or a new value.
///
/// Unlike `MaybeUndefined` of the schema crate, which writes an omitted field as `null` where the attribute
/// `skip_serializing_if` is missing, serializing an omitted field is an error.
///
/// ```
/// use parlor_session::Patch;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Info {
///     #[serde(default, skip_serializing_if = "Patch::is_omitted")]
///     title: Patch<String>,
/// }
///
/// for (json, title) in [
///     ("{}", Patch::Omitted),
///     (r#"{"title":null}"#, Patch::Clear),
///     (r#"{"title":"Fix"}"#, Patch::Value("Fix".to_owned())),
/// ] {
///     let info: Info = serde_json::from_str(json).unwrap();
///     assert_eq!(info, Info { title });
///     assert_eq!(serde_json::to_string(&info).unwrap(), json);
/// }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Patch<T> {
    /// The field was absent: the stored value is unchanged.
    #[default]
    Omitted,
    /// The field was `null`: the stored value is removed.
    Clear,
    /// The field had a value, which replaces the stored one.
    Value(T),
}

impl<T> Patch<T> {
    /// Whether the field was absent.
    pub const fn is_omitted(&self) -> bool {
        matches!(self, Self::Omitted)
    }

    /// Applies the patch to a stored value.
    pub fn apply_to(self, stored: &mut Option<T>) {
        match self {
            Self::Omitted => {}
            Self::Clear => *stored = None,
            Self::Value(value) => *stored = Some(value),
        }
    }

    /// Maps the value, if there is one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Patch<U> {
        match self {
            Self::Omitted => Patch::Omitted,
            Self::Clear => Patch::Clear,
            Self::Value(value) => Patch::Value(change(value)),
        }
    }
}

impl<T: Serialize> Serialize for Patch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Omitted => Err(S::Error::custom("an omitted field cannot be serialized: skip it")),
            Self::Clear => serializer.serialize_none(),
            Self::Value(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_omitted_field_that_is_not_skipped_is_an_error_not_a_null() {
        assert!(serde_json::to_string(&Patch::<u8>::Omitted).is_err());
    }

    #[test]
    fn a_patch_leaves_clears_or_replaces_the_stored_value() {
        for (patch, result) in [(Patch::Omitted, Some(1)), (Patch::Clear, None), (Patch::Value(2), Some(2))] {
            let mut stored = Some(1);
            patch.apply_to(&mut stored);
            assert_eq!(stored, result);
        }
        assert_eq!(Patch::Value(2).map(|n| n + 1), Patch::Value(3));
    }
}
