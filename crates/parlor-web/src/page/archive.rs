//! The archived sessions.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};

use super::session_row::SessionRow;
use super::side::{row_id, session_link};
use crate::assets::icon;

/// Archived sessions that are listed. The search finds the others.
const MAX_LISTED: usize = 500;

/// The page of archived sessions.
pub(super) fn page(content: &Markup) -> Markup {
    html! {
        section aria-labelledby="title" {
            header.bar {
                a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) }
                span.title { "Archived" }
            }
            div.scroll id="conversation" tabindex="0" role="region" aria-label="Archived sessions" {
                div.page.found { h1 id="title" { "Archived sessions" } (content) }
            }
        }
    }
}

/// The archived sessions of a list, in its order.
pub(super) fn content(rows: &[SessionRow], now: Timestamp) -> Markup {
    let archived: Vec<&SessionRow> = rows.iter().filter(|row| row.is_archived).collect();
    let zone = TimeZone::system();
    html! {
        div id="archived" {
            @if archived.is_empty() {
                p.group { "No session is archived. The menu of a session archives it." }
            } @else {
                p.group { "The search finds these too. A prompt, or “Restore” in the session, restores one." }
                ul {
                    @for row in archived.iter().take(MAX_LISTED) {
                        li { (session_link(row, &format!("{}:a", row_id(&row.id)), now, &zone)) }
                    }
                }
                @if archived.len() > MAX_LISTED {
                    p.group { (archived.len() - MAX_LISTED) " older sessions; the search finds them" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::side::tests::row;
    use super::*;
    use crate::render::tests::{HOSTILE, assert_safe};

    fn archived(id: &str) -> SessionRow {
        SessionRow { is_archived: true, ..row(id, "2026-03-04T11:00:00Z", None) }
    }

    #[test]
    fn only_archived_sessions_are_listed_and_a_long_list_is_cut() {
        let now: Timestamp = "2026-03-04T12:00:00Z".parse().unwrap();
        let mut rows: Vec<_> = (0..MAX_LISTED + 2).map(|number| archived(&number.to_string())).collect();
        rows.push(row("listed", "2026-03-04T11:00:00Z", None));
        let html = content(&rows, now).into_string();
        assert_eq!(html.matches("class=\"sess\"").count(), MAX_LISTED);
        assert!(html.contains("2 older sessions") && !html.contains("Title of listed"), "{html}");
        assert!(content(&rows[rows.len() - 1..], now).into_string().contains("No session is archived"));
    }

    #[test]
    fn nothing_in_an_archived_session_becomes_a_script() {
        for text in HOSTILE {
            let mut hostile = archived(text);
            (hostile.title, hostile.agent, hostile.cwd) =
                ((*text).to_owned(), (*text).to_owned(), (*text).to_owned());
            assert_safe(&content(&[hostile], Timestamp::UNIX_EPOCH).into_string(), text);
        }
    }
}
