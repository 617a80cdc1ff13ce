//! The inbox: everything that waits for a person, over all sessions.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};

use super::list_feed::InboxRequest;
use super::session_row::{SessionRow, SessionState};
use super::side::{address, short_path};
use crate::assets::{icon, state_icon};
use crate::render::CardPlace;
use crate::render::entry::age_html;
use crate::render::text::{clean_line, percent_encoded};

/// Failed turns in the inbox. The list has the others.
const MAX_FAILED: usize = 20;

/// The number of requests beside the link to the inbox.
pub(super) fn count(waiting: usize) -> Markup {
    html! {
        span id="inbox-count" {
            @if waiting > 0 {
                span.count.num { (waiting) span.sr { @if waiting == 1 { " request waits for you" } @else { " requests wait for you" } } }
            }
        }
    }
}

/// The inbox with its header.
pub(super) fn page(content: &Markup) -> Markup {
    html! {
        section aria-labelledby="title" {
            header.bar {
                a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) }
                span.title.grow { "Inbox" }
                button.btn.quiet.small id="notifications" type="button" data-do="notifications" hidden {
                    (icon("bell", "")) span { "Turn on notifications" }
                }
            }
            div.scroll id="conversation" tabindex="0" role="region" aria-label="Inbox" { (content) }
        }
    }
}

/// The requests, the failed turns that nobody has seen, and the requests that were put off.
pub(super) fn content(requests: &[InboxRequest], rows: &[SessionRow], now: Timestamp) -> Markup {
    let (postponed, waiting): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.is_postponed);
    let failed: Vec<_> = rows
        .iter()
        .filter(|row| row.state == SessionState::Failed && row.is_unread && !row.is_archived)
        .take(MAX_FAILED)
        .collect();
    html! {
        div.page id="inbox" {
            h1 id="title" {
                @match waiting.len() {
                    0 => "No requests wait for you",
                    1 => "1 request waits for you",
                    many => { (many) " requests wait for you" }
                }
            }
            @if waiting.is_empty() {
                p { "Agents ask here before they run commands or change files." }
            } @else {
                p { "Oldest first. An answer here counts everywhere and removes the request from all other clients." }
            }
            @for (index, request) in waiting.iter().enumerate() {
                article class=(if index == 0 { "item cur" } else { "item" }) id=(format!("{}:i", request.card.element_id())) {
                    (head(request))
                    (request.card.html(CardPlace::Inbox))
                }
            }
            @if !failed.is_empty() {
                h2 { "Failed turns" }
                div.tools {
                    @for row in failed {
                        div.tool.failed data-s="bad" {
                            (state_icon("bad", "bad", "failed"))
                            a.cut.grow href=(address(&row.id)) { (clean_line(&row.title)) }
                            span.res { (clean_line(&row.agent)) @if let Some(at) = row.active_at { " · " (when_html(at, now)) } }
                            button.btn.quiet.small type="button" data-do="dismiss" data-session=(percent_encoded(&row.id.to_string())) {
                                "Dismiss"
                            }
                        }
                    }
                }
            }
            @if !postponed.is_empty() {
                h2 { "Not now" }
                div.tools {
                    @for request in postponed {
                        details.tool id=(format!("{}:d", request.card.element_id())) data-s="you" {
                            summary {
                                (icon("chev", "chev"))
                                span.cut.grow { (clean_line(&request.agent)) ": " code { (request.card.summary()) } }
                                span.res {
                                    (clean_line(&request.title))
                                    @if let Some(at) = request.opened_at { " · " (age_html(at)) }
                                }
                            }
                            div.body { (request.card.html(CardPlace::Inbox)) }
                        }
                    }
                }
            }
        }
    }
}

fn head(request: &InboxRequest) -> Markup {
    html! {
        div.row {
            a.cut href=(address(request.card.session())) { (clean_line(&request.title)) }
            span.muted.cut.grow { (clean_line(&request.agent)) " · " (short_path(&request.cwd)) }
            @if let Some(at) = request.opened_at { span.muted.num { (age_html(at)) } }
        }
    }
}

fn when_html(at: Timestamp, now: Timestamp) -> Markup {
    // The day is enough: a text that changes with each minute would replace the whole inbox, with what a person writes in it.
    html! { span.num { (at.to_zoned(TimeZone::system()).strftime(if at.as_second() + 86_400 > now.as_second() { "%H:%M" } else { "%-d %b" })) } }
}

#[cfg(test)]
mod tests {
    use super::super::list_feed::tests::request;
    use super::super::side::tests::row;
    use super::*;
    use crate::render::tests::{HOSTILE, assert_safe};

    const NOW: &str = "2026-03-04T12:00:00Z";

    #[test]
    fn the_inbox_has_requests_failed_turns_and_requests_that_were_put_off() {
        let now: Timestamp = NOW.parse().unwrap();
        let mut later = request("r2", "rm -r target");
        later.is_postponed = true;
        let mut failed = row("f", "2026-03-04T11:00:00Z", None);
        failed.state = SessionState::Failed;
        let seen = SessionRow { id: "seen".into(), ..failed.clone() };
        failed.is_unread = true;
        let archived = SessionRow { id: "archived".into(), is_archived: true, ..failed.clone() };
        let html = content(&[request("r1", "make"), later], &[failed, seen, archived], now).into_string();
        for part in
            ["1 request waits for you", "Failed turns", "Not now", "data-do=\"dismiss\" data-session=\"f\""]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("data-session=\"seen\""), "a person has seen it: {html}");
        assert!(!html.contains("data-session=\"archived\""), "a person has archived it: {html}");
        let empty = content(&[], &[], now).into_string();
        assert!(empty.contains("No requests wait for you") && !empty.contains("<h2>"), "{empty}");
    }

    #[test]
    fn nothing_in_the_inbox_becomes_a_script() {
        for text in HOSTILE {
            let hostile = |is_postponed| {
                let mut hostile = request("r1", "make");
                (hostile.title, hostile.agent, hostile.cwd) =
                    ((*text).to_owned(), (*text).to_owned(), (*text).to_owned());
                hostile.is_postponed = is_postponed;
                hostile
            };
            let mut failed = row(text, "2026-03-04T11:00:00Z", None);
            (failed.title, failed.agent) = ((*text).to_owned(), (*text).to_owned());
            (failed.state, failed.is_unread) = (SessionState::Failed, true);
            let html = content(&[hostile(false), hostile(true)], &[failed], NOW.parse().unwrap());
            assert_safe(&html.into_string(), text);
        }
    }

    #[test]
    fn the_count_is_read_out_with_its_meaning() {
        assert!(count(0).into_string().ends_with("<span id=\"inbox-count\"></span>"));
        assert!(count(1).into_string().contains("1<span class=\"sr\"> request waits for you</span>"));
        assert!(count(3).into_string().contains("3<span class=\"sr\"> requests wait for you</span>"));
    }
}
