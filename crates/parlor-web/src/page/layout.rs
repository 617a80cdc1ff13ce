//! The frame of the page: the list at the side, and what it shows.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use parlor_session::SessionId;

use super::session_row::{SessionRow, SessionState, age};
use crate::assets::{self, icon, state_icon};
use crate::render::text::{clean_line, percent_encoded};

/// How deep forks of forks are indented.
const MAX_DEPTH: usize = 8;

/// A page with a title, the list of sessions and what it shows.
pub(super) fn page(
    title: &str,
    list: &[SessionRow],
    current: Option<&SessionId>,
    main: &Markup,
    aside: &Markup,
) -> Markup {
    // A phone shows the list or a session, not both.
    let column = if current.is_some() { "main" } else { "list" };
    html! {
        (DOCTYPE)
        html lang="en" data-col=(column) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover, interactive-widget=resizes-content";
                meta name="color-scheme" content="light dark";
                title { (clean_line(title)) " · parlor" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/page.css";
                script src="/assets/page.js" defer {}
            }
            body {
                (assets::icons())
                a.skip href="#conversation" { "Skip to the conversation" }
                div.banner id="offline" role="status" hidden {
                    (icon("off", ""))
                    span {
                        strong { "Connection lost." } " " span id="offline-when" {} " "
                        span.hide-s { "The agent goes on; what you write is kept here." }
                    }
                    button.btn.small type="button" data-do="connect" { "Try now" }
                }
                div.sr id="live" role="status" aria-live="polite" {}
                div.app {
                    (side(list, current))
                    main.main id="main" { (main) }
                    (aside)
                }
            }
        }
    }
}

/// The page for a browser that is not signed in.
pub(super) fn signed_out(reason: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-col="main" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Sign in · parlor" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/page.css";
            }
            body {
                main.main id="main" {
                    div.scroll {
                        div.page {
                            h1 { "Sign in" }
                            p { (reason) }
                            div.ways {
                                div {
                                    p { "On the computer that runs parlor, this opens a browser that is signed in:" }
                                    div.code { pre { "parlor open" } }
                                }
                                div {
                                    p { "For another browser, copy the link that this prints:" }
                                    div.code { pre { "parlor open --print" } }
                                }
                            }
                            p.muted { "Editors start `parlor acp` and need no sign-in." }
                        }
                    }
                }
            }
        }
    }
}

fn side(list: &[SessionRow], current: Option<&SessionId>) -> Markup {
    let tree = SessionTree::new(list);
    html! {
        nav.side aria-label="Sessions" {
            div.bar { a.row.brand.grow href="/" { (icon("logo", "")) "parlor" }
                button.btn.quiet.icon type="button" data-do="theme" aria-label="Change theme" title="Change theme" { (icon("theme", "")) }
            }
            div.scroll {
                @if list.is_empty() {
                    p.group { "No sessions yet. The first one appears here, newest first." }
                } @else {
                    (tree.html(&tree.roots, current, 0))
                }
            }
        }
    }
}

/// The sessions of a list, each below the one from which it was forked.
struct SessionTree<'a> {
    roots: Vec<&'a SessionRow>,
    forks: HashMap<&'a SessionId, Vec<&'a SessionRow>>,
    now: Timestamp,
}

impl<'a> SessionTree<'a> {
    fn new(list: &'a [SessionRow]) -> Self {
        let listed: HashSet<&SessionId> = list.iter().map(|row| &row.id).collect();
        let mut tree = Self { roots: Vec::new(), forks: HashMap::new(), now: Timestamp::now() };
        for row in list {
            match row.parent.as_ref().filter(|parent| listed.contains(parent)) {
                Some(parent) => tree.forks.entry(parent).or_default().push(row),
                None => tree.roots.push(row),
            }
        }
        tree
    }

    fn html(&self, rows: &[&SessionRow], current: Option<&SessionId>, depth: usize) -> Markup {
        html! {
            ul.kids[depth > 0] {
                @for row in rows {
                    li {
                        (session_link(row, current == Some(&row.id), self.now))
                        @if let Some(forks) = self.forks.get(&row.id).filter(|_| depth < MAX_DEPTH) {
                            (self.html(forks, current, depth + 1))
                        }
                    }
                }
            }
        }
    }
}

fn session_link(row: &SessionRow, is_current: bool, now: Timestamp) -> Markup {
    let (class, name) = row.state.shown();
    let current = is_current.then_some("page");
    html! {
        a.sess.unread[row.is_unread] href=(address(&row.id)) aria-current=[current] {
            (state_icon(class, class, name))
            span.t.cut { @if row.is_unread { span.sr { "unread, " } } (clean_line(&row.title)) }
            span.when.num { @if let Some(at) = row.active_at { (age(at, now)) } }
            span.sub {
                span { (clean_line(&row.agent)) }
                span.cut { "· " (clean_line(&row.cwd)) }
                span.num {
                    @if row.state == SessionState::NeedsYou { span.badge.you { "needs you" } }
                    @else if let Some(cost) = &row.cost { (clean_line(cost)) }
                }
            }
        }
    }
}

/// The address of a session's page.
pub(super) fn address(id: &SessionId) -> String {
    format!("/s/{}", percent_encoded(&id.to_string()))
}

/// What is shown without a session.
pub(super) fn no_session(list: &[SessionRow]) -> Markup {
    if list.is_empty() {
        message(
            "No sessions yet",
            "Start one with `parlor prompt --new` or with an editor that runs `parlor acp`.",
        )
    } else {
        message("Sessions", "Select a session.")
    }
}

/// A short page.
pub(super) fn message(title: &str, text: &str) -> Markup {
    html! {
        section aria-labelledby="title" {
            div.scroll { div.page { h1 id="title" { (title) } p { (text) } } }
        }
    }
}
