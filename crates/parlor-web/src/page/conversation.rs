//! The page of a session: the frame of its regions.

use maud::{Markup, PreEscaped, html};
use parlor_server::hub::ClientRole;

use super::feed::Feed;
use super::side;
use crate::assets::icon;
use crate::render::text::{clean_line, percent_encoded};

/// The conversation and its details.
pub(super) fn conversation(feed: &Feed, role: ClientRole, agents: &[&str]) -> (Markup, Markup) {
    let (page, revision) = feed.tail();
    let regions = feed.regions();
    let region = |id: &str| PreEscaped(regions.get(id).cloned().unwrap_or_default());
    let is_driver = role == ClientRole::Driver;
    // The session of a subagent takes no prompts, gets its title from its agent, and is archived and deleted with its owner.
    let is_owned = feed.row.owner.is_some();
    let can_change = is_driver && !is_owned;
    let address = side::address(&feed.row.id);
    let main = html! {
        section aria-labelledby="title" {
            header.bar {
                a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) }
                (region("head"))
                @let command = format!("parlor attach {}", feed.row.id);
                button.btn.quiet.icon.hide-s type="button" data-do="copy-text" data-text=(command) aria-label="Copy attach command" title="Copy attach command" { (icon("term", "")) }
                @if can_change {
                    button.btn.quiet.icon.hide-s type="button" data-do="fork" aria-label="Fork at the end" title="Fork at the end" { (icon("fork", "")) }
                }
                (session_menu(&command, can_change, &address))
            }
            div.scroll id="conversation" tabindex="0" role="region" aria-label="Conversation" {
                ol.log id="log" data-session=(percent_encoded(&feed.row.id.to_string())) data-epoch=(feed.epoch) data-revision=(revision)
                    data-before=[page.before] { (PreEscaped(page.html)) }
            }
            div.dock id="dock" {
                button.btn.small.latest type="button" data-do="to_end" hidden { (icon("down", "")) "Latest" }
                div id="note" role="alert" {}
                (region("notices"))
                @if is_driver {
                    div id="queue" {}
                    div id="request" {}
                    @if is_owned {
                        (region("composer-bar"))
                    } @else {
                        (composer(&feed.row.agent, &region("composer-bar")))
                    }
                } @else {
                    p.note { (icon("people", "")) span { "You watch this session: the link that signed this browser in does not allow more." } }
                }
            }
            (message_menu(can_change, agents, &feed.row.agent))
        }
    };
    let aside = html! {
        aside.details id="details" aria-label="Details" {
            div.bar {
                h2.title.grow { "Details" }
                button.btn.quiet.icon type="button" data-do="details" aria-label="Close details (d)" { (icon("x", "")) }
            }
            (region("details-body"))
        }
    };
    (main, aside)
}

fn composer(agent: &str, bar: &PreEscaped<String>) -> Markup {
    let agent = clean_line(agent);
    let agent = if agent.is_empty() { "the agent".to_owned() } else { agent };
    html! {
        form.composer id="composer" data-do="prompt" {
            label.sr for="p" { "Prompt" }
            ul.menu.completions id="completions" role="listbox" aria-label="Completions" hidden {}
            textarea id="p" name="text" rows="1" placeholder=(format!("Write to {agent}, / command, @ file")) autocomplete="off" aria-controls="completions" {}
            div.chips id="attached" {}
            input id="files" type="file" multiple hidden;
            (bar)
        }
    }
}

fn session_menu(command: &str, can_change: bool, address: &str) -> Markup {
    html! {
        details.drop id="session-menu" {
            summary.btn.quiet.icon aria-label="Session menu" title="Session menu" { (icon("dots", "")) }
            div.menu {
                button type="button" data-do="details" aria-controls="details" { (icon("people", "")) "Details" kbd { "d" } }
                @if can_change {
                    form data-do="rename" {
                        label.sr for="new-title" { "Title" }
                        input.field id="new-title" name="title" placeholder="Title" autocomplete="off";
                        button { (icon("edit", "")) "Rename" }
                    }
                    button type="button" data-do="fork" { (icon("fork", "")) "Fork at the end" }
                }
                button type="button" data-do="copy-text" data-text=(command) { (icon("term", "")) "Copy attach command" }
                a href=(format!("{address}/export")) download { (icon("down", "")) "Export as HTML" }
                @if can_change {
                    hr;
                    button type="button" data-do="archive" { (icon("inbox", "")) "Archive" }
                    button type="button" data-do="delete" { (icon("x", "")) "Delete" }
                }
            }
        }
    }
}

/// The actions of a message, which the script shows at the message that they are for.
fn message_menu(can_change: bool, agents: &[&str], own: &str) -> Markup {
    let item = |action: &str, name: &str, picture: &str, key: &str| {
        html! { button type="button" role="menuitem" data-act=(action) { (icon(picture, "")) (name) kbd { (key) } } }
    };
    let short = |action: &str, name: &str, picture: &str| {
        html! { button.btn.quiet.small.icon type="button" data-act=(action) aria-label=(name) title=(name) { (icon(picture, "")) } }
    };
    html! {
        template id="more" { button.btn.quiet.small.icon.more type="button" data-act="menu" aria-label="Message actions" { (icon("dots", "")) } }
        div.acts id="acts" role="toolbar" aria-label="Message actions" hidden {
            (short("copy", "Copy (y)", "copy"))
            (short("link", "Copy link (l)", "link"))
            @if can_change {
                (short("fork", "Fork here (f)", "fork"))
                (short("edit", "Edit (e)", "edit"))
                (short("regenerate", "Regenerate (r)", "redo"))
            }
            (short("menu", "More actions (m)", "dots"))
        }
        div.menu id="message-menu" role="menu" aria-label="Message actions" hidden {
            (item("copy", "Copy as Markdown", "copy", "y"))
            (item("link", "Copy link", "link", "l"))
            @if can_change {
                (item("fork", "Fork here", "fork", "f"))
                (item("regenerate", "Regenerate", "redo", "r"))
                (item("edit", "Edit the prompt", "edit", "e"))
                @if agents.iter().any(|agent| *agent != own) {
                    hr;
                    h3 { "Continue from here with" }
                    @for (number, agent) in agents.iter().filter(|agent| **agent != own).enumerate() {
                        button type="button" role="menuitem" data-act="fork" data-agent=(agent) {
                            (icon("swap", "")) (clean_line(agent)) kbd { "a " (number + 1) }
                        }
                    }
                }
            }
        }
        template id="edit-form" {
            form.edit-form data-do="edit" {
                label.sr for="edited" { "Edit the message" }
                textarea id="edited" name="text" rows="2" {}
                div.chips {}
                div.row {
                    span.muted.grow { "Sending makes a fork. This session stays as it is." }
                    button.btn.quiet type="button" data-do="cancel-edit" { "Cancel " kbd { "Esc" } }
                    button.btn.main { (icon("fork", "")) "Fork and send " kbd { "↵" } }
                }
            }
        }
    }
}
