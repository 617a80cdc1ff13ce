//! The frame of the page: the list at the side, and what it shows.

use maud::{DOCTYPE, Markup, html};
use parlor_server::hub::Role;

use super::list_feed::ListView;
use super::session_row::{SessionRow, SessionState};
use super::side::{Place, short_path, side};
use crate::assets::{self, icon};
use crate::render::text::clean_line;

/// A page with the list at the side.
pub(super) struct Frame<'a> {
    pub(super) view: &'a ListView,
    pub(super) role: Role,
    pub(super) place: Place<'a>,
    /// What is searched for.
    pub(super) query: &'a str,
}

/// A page with a title, the list of sessions and what it shows.
pub(super) fn page(title: &str, frame: &Frame<'_>, main: &Markup) -> Markup {
    // A phone shows the list or what is beside it, not both.
    let column = if frame.place == Place::List { "list" } else { "main" };
    html! {
        (DOCTYPE)
        html lang="en" data-col=(column) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover, interactive-widget=resizes-content";
                meta name="color-scheme" content="light dark";
                title { (clean_line(title)) " · parlor" }
                link rel="stylesheet" href="/assets/page.css";
                script src="/assets/page.js" defer {}
            }
            body {
                (assets::icons())
                a.skip href="#conversation" { "Skip to the conversation" }
                div.app {
                    (side(frame.view, frame.place, frame.role, frame.query))
                    main.main id="main" { (main) }
                }
            }
        }
    }
}

/// A session with its entries.
pub(super) fn conversation(row: &SessionRow, entries: &Markup, has_older: bool) -> Markup {
    let (class, name) = row.state.shown();
    html! {
        section aria-labelledby="title" {
            header.bar {
                a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) }
                h1.title.cut id="title" { (clean_line(&row.title)) }
                @if row.state != SessionState::Idle { span class=(format!("badge {class}")) { (name) } }
                span.muted.cut.grow.hide-m { (clean_line(&row.agent)) " · " (short_path(&row.cwd)) }
            }
            div.scroll id="conversation" tabindex="0" role="region" aria-label="Conversation" {
                ol.log {
                    @if has_older { li.entry.turn { span { "Earlier entries are not shown" } } }
                    (entries)
                }
            }
        }
    }
}

/// A short page.
pub(super) fn message(title: &str, text: &str) -> Markup {
    html! {
        section aria-labelledby="title" {
            header.bar { a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) } span.title { (title) } }
            div.scroll id="conversation" tabindex="0" { div.page { h1 id="title" { (title) } p { (text) } } }
        }
    }
}
