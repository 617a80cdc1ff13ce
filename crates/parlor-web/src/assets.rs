//! The style sheet and the icons of the page.

use maud::{Markup, PreEscaped, html};

/// The style sheet.
pub const STYLE: &str = include_str!("../assets/page.css");

/// The script.
pub const SCRIPT: &str = concat!(include_str!("../assets/page.js"), "\n", include_str!("../assets/lists.js"));

/// The icon of the page in tabs and bookmarks.
pub const ICON: &str = include_str!("../assets/icon.svg");

/// The icons, each a symbol with the id `i-` and its name. Put once into a page.
const ICONS: &str = include_str!("../assets/icons.svg");

/// The definitions of all icons.
pub fn icons() -> Markup {
    html! { (PreEscaped(ICONS.trim_end())) }
}

/// An icon without a meaning of its own.
pub(crate) fn icon(name: &str, class: &str) -> Markup {
    html! { svg class=(format!("i {class}").trim_end()) aria-hidden="true" { (PreEscaped(format!("<use href=\"#i-{name}\"/>"))) } }
}

/// An icon that shows a state, with its name for screen readers.
pub(crate) fn state_icon(name: &str, state: &str, label: &str) -> Markup {
    html! {
        svg class=(format!("i st {state}")) role="img" aria-label=(label) { (PreEscaped(format!("<use href=\"#i-{name}\"/>"))) }
    }
}
