use std::borrow::Cow;

use parlor_json::{Json, JsonStr, Object, ObjectWriter};

use crate::{PlanEntryPriority, PlanEntryStatus};

/// One entry of a plan.
///
/// ```
/// use parlor_agent::{PlanEntry, PlanEntryPriority};
///
/// let plan = [
///     PlanEntry::completed("Read the code"),
///     PlanEntry::in_progress("Find the fault").priority(PlanEntryPriority::High),
///     PlanEntry::pending("Write a test"),
/// ];
/// assert_eq!(plan[2].to_json().as_str(), r#"{"content":"Write a test","priority":"medium","status":"pending"}"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// How important it is.
    pub priority: PlanEntryPriority,
    /// How far it has come.
    pub status: PlanEntryStatus,
    /// All other members.
    pub extra: Object,
}

impl PlanEntry {
    /// An entry with this status and medium priority.
    pub fn new(content: impl Into<String>, status: PlanEntryStatus) -> Self {
        let priority = PlanEntryPriority::Medium;
        Self { content: content.into(), priority, status, extra: Object::default() }
    }

    /// An entry that has not started.
    pub fn pending(content: impl Into<String>) -> Self {
        Self::new(content, PlanEntryStatus::Pending)
    }

    /// An entry that the agent works on.
    pub fn in_progress(content: impl Into<String>) -> Self {
        Self::new(content, PlanEntryStatus::InProgress)
    }

    /// An entry that is done.
    pub fn completed(content: impl Into<String>) -> Self {
        Self::new(content, PlanEntryStatus::Completed)
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: PlanEntryPriority) -> Self {
        self.priority = priority;
        self
    }

    /// The entry as the protocol has it.
    pub fn to_json(&self) -> Json {
        ObjectWriter::new()
            .str("content", &self.content)
            .str("priority", &self.priority.as_str())
            .str("status", &self.status.as_str())
            .members(&self.extra)
            .into_json()
    }

    /// Reads an entry, for instance of the plan in a [transcript](crate::Session::transcript).
    pub fn from_json(json: &Json) -> Option<Self> {
        let mut members = Object::parse(json.raw()).ok()?;
        let mut take = |name: &str| {
            let value = JsonStr::from_raw(members.get(name)?.raw())?.to_exact().map(Cow::into_owned)?;
            members.remove(name);
            Some(value)
        };
        let (content, priority, status) = (take("content")?, take("priority")?, take("status")?);
        Some(Self {
            content,
            priority: PlanEntryPriority::from(&*priority),
            status: PlanEntryStatus::from(&*status),
            extra: members,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_written_without_loss() {
        let text = r#"{"content":"a","priority":"_urgent","status":"_paused","_meta":{"n":1e400}}"#;
        let entry = PlanEntry::from_json(&Json::parse(text).unwrap()).unwrap();
        assert_eq!(entry.status, PlanEntryStatus::Other("_paused".into()));
        assert_eq!(entry.to_json().as_str(), text);
        for invalid in
            [r#"{"content":"a","status":"pending"}"#, "[]", r#"{"content":1,"priority":"low","status":"x"}"#]
        {
            assert_eq!(PlanEntry::from_json(&Json::parse(invalid).unwrap()), None, "{invalid}");
        }
    }
}
