use parlor_json::{JsonStr, Object, ObjectWriter};

use crate::PermissionOptionKind;

/// One option of a permission request.
///
/// ```
/// use parlor_agent::{PermissionOption, PermissionOptionKind};
///
/// let options = [
///     PermissionOption::allow_once(),
///     PermissionOption::new("tests", "Allow for tests", PermissionOptionKind::AllowAlways),
///     PermissionOption::reject_once(),
/// ];
/// assert_eq!(options[0].name, "Allow once");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermissionOption {
    /// Its id, unique in the request.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// What selecting it means.
    pub kind: PermissionOptionKind,
}

/// The result of a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermissionOutcome {
    /// A person selected an option.
    Selected(PermissionOption),
    /// A person cancelled the request.
    Cancelled,
    /// No client decided: none is attached, or all declined the request.
    Unanswered,
}

impl PermissionOption {
    /// An option.
    pub fn new(id: impl Into<String>, name: impl Into<String>, kind: PermissionOptionKind) -> Self {
        Self { id: id.into(), name: name.into(), kind }
    }

    /// An option to allow the operation.
    pub fn allow_once() -> Self {
        Self::new("allow_once", "Allow once", PermissionOptionKind::AllowOnce)
    }

    /// An option to allow the operation and to remember the choice.
    pub fn allow_always() -> Self {
        Self::new("allow_always", "Always allow", PermissionOptionKind::AllowAlways)
    }

    /// An option to reject the operation.
    pub fn reject_once() -> Self {
        Self::new("reject_once", "Reject", PermissionOptionKind::RejectOnce)
    }

    /// An option to reject the operation and to remember the choice.
    pub fn reject_always() -> Self {
        Self::new("reject_always", "Always reject", PermissionOptionKind::RejectAlways)
    }

    pub(crate) fn write(&self) -> String {
        ObjectWriter::new()
            .str("optionId", &self.id)
            .str("name", &self.name)
            .str("kind", &self.kind.as_str())
            .finish()
    }
}

impl PermissionOutcome {
    /// Whether a person selected an option that allows the operation.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Selected(option) if option.kind.allows())
    }

    /// Reads the result of a request with these options. An option that was not offered counts as cancelled.
    pub(crate) fn read(result: &Object, options: &[PermissionOption]) -> Self {
        let outcome = result.get("outcome").and_then(|outcome| Object::parse(outcome.raw()).ok());
        let id = outcome.and_then(|outcome| JsonStr::from_raw(outcome.get("optionId")?.raw()));
        let selected = id.and_then(|id| options.iter().find(|option| option.id == id.to_text()));
        selected.cloned().map_or(Self::Cancelled, Self::Selected)
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    #[test]
    fn an_option_is_written_with_its_id_and_found_by_it() {
        let own = PermissionOption::new("x y", "X", PermissionOptionKind::Other("_ask_later".into()));
        assert_eq!(own.write(), r#"{"optionId":"x y","name":"X","kind":"_ask_later"}"#);
        let options = [PermissionOption::allow_once(), own.clone()];
        let read = |json: &str| {
            PermissionOutcome::read(&Object::parse(Json::parse(json).unwrap().raw()).unwrap(), &options)
        };
        let selected = read(r#"{"outcome":{"outcome":"selected","optionId":"x y"}}"#);
        assert_eq!(selected, PermissionOutcome::Selected(own));
        assert!(!selected.is_allowed(), "an unknown kind allows nothing");
        assert!(read(r#"{"outcome":{"outcome":"selected","optionId":"allow_once"}}"#).is_allowed());
        for other in [
            r#"{"outcome":{"outcome":"selected","optionId":"allow_always"}}"#,
            r#"{"outcome":{"outcome":"cancelled"}}"#,
            r#"{"outcome":5}"#,
            "{}",
        ] {
            assert_eq!(read(other), PermissionOutcome::Cancelled, "{other}");
        }
    }
}
