//! The page that lists the keys.

use maud::{Markup, html};

use crate::assets::icon;

/// The keys of the page with what they do, by place.
const KEYS: [(&str, &[(&str, &str)]); 5] = [
    (
        "Anywhere outside text fields",
        &[
            ("/", "search all sessions"),
            ("i", "inbox"),
            ("c", "new session"),
            ("[ ]", "previous, next session"),
            ("d", "details"),
            ("p", "go to the request"),
            ("Ctrl .", "stop the turn (also in text fields)"),
            ("?", "these keys"),
        ],
    ),
    (
        "In the conversation",
        &[
            ("j k", "next, previous message"),
            ("o", "open or close a card"),
            ("y", "copy the message"),
            ("l", "copy a link to the message"),
            ("f", "fork after the message"),
            ("e", "edit the prompt in a fork"),
            ("r", "regenerate the answer in a fork"),
            ("a", "continue with another agent"),
            ("m", "all actions of the message"),
            ("G", "go to the end"),
            ("Enter", "write a prompt"),
        ],
    ),
    ("In a request that has the focus", &[("1 … 9", "select an option"), ("Esc", "not now")]),
    ("In the inbox", &[("j k", "next, previous request"), ("p", "go to the first request")]),
    (
        "In the composer",
        &[
            ("Enter", "send, or queue while a turn runs"),
            ("Ctrl Enter", "send into the running turn, if the agent takes that"),
            ("Shift Enter", "new line"),
            ("/", "commands of the agent, at the beginning"),
            ("@", "files"),
        ],
    ),
];

/// The page.
pub(super) fn page() -> Markup {
    html! {
        section aria-labelledby="title" {
            header.bar {
                a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) }
                span.title { "Keys" }
            }
            div.scroll id="conversation" tabindex="0" role="region" aria-label="Keys" {
                div.page {
                    h1 id="title" { "Keys" }
                    p { "Letters act outside text fields only, digits only in the request that has the focus." }
                    div.key-groups {
                        @for (place, keys) in KEYS {
                            section {
                                h2 { (place) }
                                dl.keys {
                                    @for (key, text) in keys {
                                        dt { @for part in key.split(' ') { @if part == "…" { "…" } @else { kbd { (part) } } " " } }
                                        dd { (text) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
