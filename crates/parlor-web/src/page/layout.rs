//! The frame of the page: the list at the side, and what it shows.

use maud::{DOCTYPE, Markup, html};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::ClientRole;

use super::compress::{ICON, SCRIPT, STYLE};
use super::list_feed::ListView;
use super::side::{ShownPage, side};
use crate::assets::{self, icon};
use crate::render::text::{clean_line, sentence_html};

/// A page with the list at the side.
pub(super) struct Frame<'a> {
    pub(super) view: &'a ListView,
    pub(super) browser: &'a SignedIn,
    pub(super) place: ShownPage<'a>,
    /// What is searched for.
    pub(super) query: &'a str,
}

/// A page with a title, the list of sessions and what it shows.
pub(super) fn page(title: &str, frame: &Frame<'_>, main: &Markup, aside: &Markup) -> Markup {
    // A phone shows the list or what is beside it, not both.
    let column = if frame.place == ShownPage::List { "list" } else { "main" };
    let role = if frame.browser.role == ClientRole::Driver { "driver" } else { "observer" };
    html! {
        (DOCTYPE)
        html lang="en" data-col=(column) data-role=(role) data-browser=(frame.browser.id) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover, interactive-widget=resizes-content";
                meta name="color-scheme" content="light dark";
                title { (clean_line(title)) " · parlor" }
                link rel="icon" href=(ICON.address("/assets/icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(STYLE.address("/assets/page.css"));
                script src=(SCRIPT.address("/assets/page.js")) defer {}
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
                    (side(frame.view, frame.place, frame.browser.role, frame.query))
                    main.main id="main" { (main) }
                    (aside)
                }
                div.toast id="toast" role="alert" {}
            }
        }
    }
}

/// The page for a browser that is not signed in.
pub(super) fn signed_out(reason: &str) -> Markup {
    let more = html! {
        h2 { "On the computer that runs parlor" }
        div.code { pre tabindex="0" { "parlor open" } }
        h2 { "For another browser" }
        div.code { pre tabindex="0" { "parlor open --print" } }
        p { "It prints a link that signs one browser in. The link works once, for 10 minutes." }
        p.foot { "Editors start " code { "parlor acp" } " and need no sign-in." }
    };
    card("Sign in", reason, &more)
}

/// The page when the list cannot be shown.
pub(super) fn problem(title: &str, reason: &str) -> Markup {
    card(title, reason, &html! { p.foot { a href="/" { "Try again" } } })
}

/// A page without the list.
fn card(title: &str, text: &str, more: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-col="main" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · parlor" }
                link rel="icon" href=(ICON.address("/assets/icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(STYLE.address("/assets/page.css"));
            }
            body.signed-out {
                (assets::icons())
                main id="main" {
                    div.row.brand { (icon("logo", "")) "parlor" }
                    h1 { (title) }
                    p { (sentence_html(text)) }
                    (more)
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
            div.scroll id="conversation" tabindex="0" { div.page { h1 id="title" { (title) } p { (sentence_html(text)) } } }
        }
    }
}
