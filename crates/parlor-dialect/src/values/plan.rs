//! Plans: v1 has fewer states and priorities of an entry. v1 plans are valid in v2.

use parlor_json::Object;

use crate::json_ext;
use crate::{LossKind, Losses};

/// Converts the object with `entries` (a v1 `plan` update, or the `plan` of a `plan_update`) to v1.
///
/// A cancelled entry becomes completed: both mean that no more work is done on it.
pub(crate) fn entries_to_v1(plan: &Object, losses: &mut Losses) -> Object {
    let mut plan = plan.clone();
    json_ext::each_in(&mut plan, "entries", |entry| Some(entry_to_v1(entry, losses)));
    plan
}

fn entry_to_v1(mut entry: Object, losses: &mut Losses) -> Object {
    let status = match entry.get_string("status").as_deref() {
        None | Some("pending" | "in_progress" | "completed") => None,
        Some("cancelled") => Some("completed"),
        Some(_) => Some("pending"),
    };
    if let Some(status) = status {
        entry.set("status", status);
        losses.add(LossKind::PlanEntryStatus);
    }
    if !matches!(entry.get_string("priority").as_deref(), None | Some("high" | "medium" | "low")) {
        entry.set("priority", "medium");
        losses.add(LossKind::PlanEntryPriority);
    }
    entry
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;
    use crate::values::check;

    #[test]
    fn entries_that_v1_knows_pass_unchanged() {
        for text in [
            r#"{"entries":[ {"content":"a","priority":"high","status":"pending","n":1e400} ],"x":1}"#,
            r#"{"type":"items","planId":"p","entries":[]}"#,
            r#"{"type":"markdown","planId":"p","content":"text"}"#,
            r#"{"entries":"none"}"#,
            r#"{"entries":[1,{"status":2}]}"#,
        ] {
            let mut losses = Losses::default();
            assert_eq!(entries_to_v1(&check::object(text), &mut losses), check::object(text));
            assert_eq!(losses, Losses::default());
        }
    }

    #[test]
    fn the_nearest_state_and_priority_are_used() {
        for (entry, expected, lost) in [
            (
                r#"{"content":"a","priority":"low","status":"cancelled","x":1}"#,
                r#"{"content":"a","priority":"low","status":"completed","x":1}"#,
                &["plan_entry_status"][..],
            ),
            (
                r#"{"content":"a","priority":"low","status":"_blocked"}"#,
                r#"{"content":"a","priority":"low","status":"pending"}"#,
                &["plan_entry_status"],
            ),
            (
                r#"{"content":"a","priority":"_urgent","status":"in_progress"}"#,
                r#"{"content":"a","priority":"medium","status":"in_progress"}"#,
                &["plan_entry_priority"],
            ),
            (
                r#"{"content":"a","priority":"_urgent","status":"later"}"#,
                r#"{"content":"a","priority":"medium","status":"pending"}"#,
                &["plan_entry_status", "plan_entry_priority"],
            ),
        ] {
            let plan = |entry: &str| format!(r#"{{"type":"items","planId":"p","entries":[{entry}]}}"#);
            check::parses::<v2::PlanUpdateContent>(
                &check::json(&plan(entry)),
                if entry.contains("\"x\"") { &["entries[0].x"] } else { &[] },
            );
            let mut losses = Losses::default();
            let converted = entries_to_v1(&check::object(&plan(entry)), &mut losses).to_json();
            check::same(&converted, &plan(expected));
            check::parses::<v1::PlanUpdateContent>(
                &converted,
                if entry.contains("\"x\"") { &["entries[0].x"] } else { &[] },
            );
            assert_eq!(check::names(losses), lost);
        }
    }
}
