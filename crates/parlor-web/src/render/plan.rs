//! Plans as cards.

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use parlor_session::Body;
use parlor_view::event::{plan_items, plan_text};

use super::markdown;
use super::text::clean_line;
use super::tool_call::{Card, CardState};
use crate::assets::state_icon;

/// The card of a plan.
pub(crate) fn card(body: &Body, created_at: Option<Timestamp>) -> Markup {
    let items = plan_items(body);
    let text = plan_text(body);
    let done = items.iter().filter(|(status, _)| status == "completed").count();
    let now = items.iter().find(|(status, _)| status == "in_progress");
    let state = match now {
        Some(_) => CardState::Running,
        None if done == items.len() => CardState::Completed,
        None => CardState::Pending,
    };
    let content = html! {
        @if !items.is_empty() { (list(&items)) }
        @if let Some(text) = text { div.md { (PreEscaped(markdown::to_html(&text))) } }
    };
    let subject = html! { span.what.cut.muted { (clean_line(now.map_or("", |(_, text)| text.as_str()))) } };
    let result = html! { @if !items.is_empty() { (done) " of " (items.len()) " done" } };
    Card { state, icon: "ok", verb: "Plan", subject, result, body: content, created_at }.html()
}

pub(crate) fn list(items: &[(String, String)]) -> Markup {
    html! {
        ul.plan {
            @for (status, text) in items {
                @let (class, icon) = match status.as_str() {
                    "completed" => ("done", state_icon("ok", "ok", "completed")),
                    "in_progress" => ("now", state_icon("run", "run", "running")),
                    "failed" => ("", state_icon("bad", "bad", "failed")),
                    "cancelled" => ("done", state_icon("x", "idle", "cancelled")),
                    _ => ("", state_icon("idle", "idle", "to do")),
                };
                li class=(class) { (icon) span { (clean_line(text)) } }
            }
        }
    }
}
