//! Plans as cards.

use maud::{Markup, PreEscaped, html};
use parlor_json::Json;
use parlor_session::Body;

use super::markdown;
use super::text::clean_line;
use super::tool_call::{Card, ToolState};
use crate::assets::state_icon;

/// An item of a plan.
struct Item {
    status: String,
    text: String,
}

/// The card of a plan.
pub(crate) fn card(body: &Body) -> Markup {
    let plan = body.fields.get("plan").and_then(Json::to_object).unwrap_or_else(|| body.fields.clone());
    let items: Vec<Item> = plan
        .get_array("entries")
        .unwrap_or_default()
        .into_iter()
        .filter_map(|item| {
            let item = item.to_object()?;
            let text = |name: &str| item.get_string(name).unwrap_or_default();
            Some(Item { status: text("status"), text: text("content") })
        })
        .collect();
    let text = plan.get_string("content").filter(|text| !text.is_empty());
    let address = plan.get_string("uri").filter(|address| !address.is_empty());
    let done = items.iter().filter(|item| item.status == "completed").count();
    let now = items.iter().find(|item| item.status == "in_progress");
    let state = match now {
        Some(_) => ToolState::Running,
        None if done == items.len() => ToolState::Completed,
        None => ToolState::Pending,
    };
    let content = html! {
        @if !items.is_empty() { (list(&items)) }
        @if let Some(text) = text { div.md { (PreEscaped(markdown::to_html(&text))) } }
        @if let Some(address) = address { header { code { (clean_line(&address)) } } }
    };
    let subject = html! { span.what.cut.muted { (clean_line(now.map_or("", |item| &item.text))) } };
    let result = html! { @if !items.is_empty() { (done) " of " (items.len()) " done" } };
    Card { state, icon: "ok", verb: "Plan", subject, result, body: content }.html()
}

fn list(items: &[Item]) -> Markup {
    html! {
        ul.plan {
            @for item in items {
                @let (class, icon) = match item.status.as_str() {
                    "completed" => ("done", state_icon("ok", "ok", "completed")),
                    "in_progress" => ("now", state_icon("run", "run", "running")),
                    "failed" => ("", state_icon("bad", "bad", "failed")),
                    "cancelled" => ("done", state_icon("x", "idle", "cancelled")),
                    _ => ("", state_icon("idle", "idle", "to do")),
                };
                li class=(class) { (icon) span { (clean_line(&item.text)) } }
            }
        }
    }
}
