use parlor_json::{JsonStr, Object};

/// The result of a form that people were asked to fill in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormOutcome {
    /// A person filled it in. The values have not been checked against the schema.
    Accepted(Object),
    /// A person declined.
    Declined,
    /// A person closed it without a decision.
    Cancelled,
    /// No client showed it: none that can show forms is attached, or all declined the request.
    Unanswered,
}

impl FormOutcome {
    /// The values, if a person filled the form in.
    pub fn accepted(self) -> Option<Object> {
        if let Self::Accepted(values) = self { Some(values) } else { None }
    }

    pub(crate) fn read(result: &Object) -> Self {
        let action = result.get("action").and_then(|action| JsonStr::from_raw(action.raw()));
        match action.as_ref().map(JsonStr::to_text).as_deref() {
            Some("accept") => {
                let content = result.get("content").and_then(|content| Object::parse(content.raw()).ok());
                Self::Accepted(content.unwrap_or_default())
            }
            Some("decline") => Self::Declined,
            Some(_) | None => Self::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    #[test]
    fn results_are_read_by_their_action() {
        let read = |json: &str| FormOutcome::read(&Object::parse(Json::parse(json).unwrap().raw()).unwrap());
        let accepted = read(r#"{"action":"accept","content":{"n":1e2}}"#).accepted().unwrap();
        assert_eq!(accepted.get("n").unwrap().as_str(), "1e2");
        assert_eq!(read(r#"{"action":"accept"}"#), FormOutcome::Accepted(Object::default()));
        assert_eq!(read(r#"{"action":"decline"}"#), FormOutcome::Declined);
        assert_eq!(read(r#"{"action":"cancel"}"#), FormOutcome::Cancelled);
        assert_eq!(read(r#"{"action":"_other"}"#), FormOutcome::Cancelled);
        assert_eq!(read("{}").accepted(), None);
    }
}
