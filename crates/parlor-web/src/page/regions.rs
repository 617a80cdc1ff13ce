//! The parts of a session's page that change as a whole.

use jiff::Timestamp;
use maud::{Markup, html};
use parlor_client::ConfigOption;
use parlor_json::{Json, Object};
use parlor_server::hub::ClientRole;
use parlor_session::{Activity, Entry, EntryId, Role, Slot, Transcript};
use parlor_view::address::session_path;
use parlor_view::browser::browser_name;
use parlor_view::event::plan_items;

use super::clients::{AttachedClient, QueuedPrompt};
use super::feed::{Audience, ShowingTab, UNDO_TIME};
use super::session_row::{SessionRow, SessionState, cost};
use super::side::short_path;
use crate::assets::icon;
use crate::render::plan;
use crate::render::text::clean_line;
use crate::render::{CardPlace, RequestCard, TurnFiles, is_steered};

/// Characters of a queued prompt that are shown.
const MAX_QUEUED_TEXT: usize = 500;

/// What the regions are rendered from.
pub(super) struct RegionView<'a> {
    pub(super) row: &'a SessionRow,
    pub(super) title: String,
    pub(super) state: SessionState,
    pub(super) transcript: &'a Transcript,
    /// The response with which the session was opened.
    pub(super) opened: Object,
    pub(super) requests: &'a [RequestCard],
    /// How many requests a person has put off.
    pub(super) postponed: usize,
    pub(super) queue: Vec<QueuedPrompt>,
    /// Whether a prompt can be sent into the running turn.
    pub(super) can_steer: bool,
    pub(super) files: &'a TurnFiles,
    /// Whether there are older entries than those that are loaded.
    pub(super) has_older: bool,
    /// When the session will be deleted.
    pub(super) deleted_at: Option<Timestamp>,
    pub(super) is_archived: bool,
    /// The tabs that show the session.
    pub(super) tabs: &'a [ShowingTab],
    /// The tokens of all turns.
    pub(super) tokens: Option<u64>,
    /// When the last prompt was sent.
    pub(super) turn_started_at: Option<Timestamp>,
    /// All clients that are attached, those of the page included.
    pub(super) clients: Vec<AttachedClient>,
    /// The numbers of the page's own browsers.
    pub(super) browsers: Vec<u64>,
}

impl RegionView<'_> {
    /// Where the session is shown: the browsers with their tabs, then the other clients.
    fn places(&self) -> Vec<ShownPlace> {
        let mut places: Vec<ShownPlace> = Vec::new();
        for tab in self.tabs {
            match places.iter_mut().find(|place| place.browser.as_ref() == Some(&tab.browser)) {
                Some(place) => place.tabs += 1,
                None => places.push(ShownPlace {
                    name: browser_name(&tab.name),
                    role: tab.role,
                    browser: Some(tab.browser.clone()),
                    tabs: 1,
                }),
            }
        }
        let others = self.clients.iter().filter(|client| !client.is_page(&self.browsers));
        places.extend(others.map(|client| ShownPlace {
            name: client.name.clone().unwrap_or_else(|| "a client without a name".to_owned()),
            role: client.role,
            browser: None,
            tabs: 0,
        }));
        places
    }

    /// The client that queued a prompt. Without another one that could have, everybody knows.
    fn sender(&self, prompt: &QueuedPrompt) -> Option<&str> {
        let from = prompt.from.filter(|from| self.browsers != [*from])?;
        self.clients.iter().find(|client| client.number == from)?.name.as_deref()
    }
}

/// A browser or another client that shows the session.
struct ShownPlace {
    name: String,
    role: ClientRole,
    /// The id of the browser. The script of each browser names its own one "This browser".
    browser: Option<String>,
    tabs: usize,
}

/// Whether the last turn failed.
pub(super) fn has_failed(transcript: &Transcript) -> bool {
    let is_failure = |entry: &Entry| {
        matches!(entry.id(), EntryId::Event(_))
            && entry.body().fields.get_str("type").as_deref() == Some("turn_failed")
    };
    transcript.entries().last().is_some_and(is_failure)
}

/// Every region with the tabs that it is for.
pub(super) fn all(view: &RegionView<'_>) -> [(&'static str, Audience, Markup); 6] {
    let region = |id: &'static str, html: Markup| (id, audience(id), html);
    [
        region("head", head(view)),
        region("notices", notices(view)),
        region("queue", queue_html(view)),
        region("request", request(view)),
        region("composer-bar", composer_bar(view)),
        region("details-body", details(view)),
    ]
}

/// The tabs that a region is for.
pub(super) fn audience(region: &str) -> Audience {
    if matches!(region, "queue" | "request" | "composer-bar") { Audience::Drivers } else { Audience::All }
}

/// The title, the state and the agent.
fn head(view: &RegionView<'_>) -> Markup {
    let (class, name) = view.state.shown();
    let attached = view.places().len();
    let since = view.turn_started_at.filter(|_| view.state == SessionState::Running);
    html! {
        div.row.grow id="head" data-state=(class) {
            h1.title.cut id="title" { (clean_line(&view.title)) }
            @if view.state != SessionState::Idle {
                span class=(format!("badge {class}")) {
                    (name) @if let Some(since) = since { " " time.since.num.hide-s datetime=(since) {} }
                }
            }
            span.badge.as-of {}
            span.muted.cut.hide-m { (clean_line(&view.row.agent)) " · " (short_path(&view.row.cwd)) }
            span.grow {}
            button.btn.quiet.present.hide-s type="button" data-do="details" aria-controls="details" title="Details (d)" {
                (icon("people", "")) span.num { (attached.max(1)) }
                span.sr { @if attached > 1 { " clients attached." } @else { " client attached." } " Details" }
            }
        }
    }
}

/// What a person has to know of the session before acting in it: it is archived, or about to be deleted.
fn notices(view: &RegionView<'_>) -> Markup {
    html! {
        div id="notices" {
            @if let Some(owner) = &view.row.owner {
                div.note {
                    span.grow { "This is the session of a subagent, which takes no prompts." }
                    a.btn.small href=(session_path(owner)) { "Open its owner" }
                }
            }
            @if view.is_archived {
                div.note {
                    (icon("inbox", ""))
                    span.grow { "This session is archived. A prompt restores it." }
                    button.btn.small.driver type="button" data-do="restore" { "Restore" }
                }
            }
            @if let Some(at) = view.deleted_at {
                div.note role="alert" {
                    span.grow {
                        "This session will be deleted in "
                        time.left.num aria-live="off" datetime=(at) { (UNDO_TIME.as_secs()) " seconds" } "."
                    }
                    button.btn.small.driver type="button" data-do="undelete" { "Undo" }
                }
            }
        }
    }
}

fn queue_html(view: &RegionView<'_>) -> Markup {
    html! {
        div id="queue" {
            @for prompt in &view.queue {
                div.queued role="group" aria-label="Queued prompt" {
                    (icon("clock", ""))
                    span.hide-s {
                        "Queued"
                        @if let Some(name) = view.sender(prompt) { " by " (clean_line(name)) }
                    }
                    @let text: String = prompt.text.chars().take(MAX_QUEUED_TEXT).collect();
                    span.grow.cut { (clean_line(&text)) }
                    button.btn.quiet.small type="button" data-do="withdraw" data-id=(prompt.id) { "Withdraw" }
                }
            }
        }
    }
}

fn request(view: &RegionView<'_>) -> Markup {
    html! {
        div id="request" {
            // The oldest one: the others follow when it is answered.
            @if let Some(request) = view.requests.first() {
                (request.html(CardPlace::Dock(&also_shown(&view.places()))))
            } @else if view.postponed > 0 {
                a.btn.small.you href="/inbox" { "A request waits in the inbox" }
            }
        }
    }
}

/// Where a request is shown as well. The script leaves out the tab itself.
fn also_shown(places: &[ShownPlace]) -> Markup {
    html! {
        span.also hidden {
            @for place in places {
                span data-browser=[place.browser.as_deref()] data-tabs=[place.browser.as_ref().map(|_| place.tabs)] { (clean_line(&place.name)) }
            }
        }
    }
}

/// What is below the text of the composer.
fn composer_bar(view: &RegionView<'_>) -> Markup {
    let is_running = matches!(view.state, SessionState::Running | SessionState::NeedsYou)
        && view.transcript.state().is_none_or(|state| state.activity != Activity::Idle);
    let takes_prompts = view.row.owner.is_none();
    let options = ConfigOption::of_session(view.transcript, &view.opened);
    let known = |option: &&ConfigOption| is_mode_or_model(option) && !option.values.is_empty();
    html! {
        div.row id="composer-bar" {
            @if takes_prompts {
                button.btn.quiet.small.icon type="button" data-do="attach" aria-label="Attach files" title="Attach files" { (icon("clip", "")) }
                @for option in options.iter().filter(known) {
                    (option_select(option))
                }
            }
            span.grow {}
            @if let Some(usage) = Usage::of(view) {
                span.ctx-m.num title=(format!("{} of {} tokens", thousands(usage.used), thousands(usage.size))) {
                    progress.hide-s value=(usage.percent()) max="100" aria-label="Context used" {}
                    (usage.percent()) " %"
                }
            }
            @if is_running {
                button.btn.small type="button" data-do="stop" title="Stop (Ctrl+.)" { (icon("stop", "")) "Stop" }
            }
            @if is_running && view.can_steer && takes_prompts {
                button.btn.small type="button" data-do="send_now" title="Send into the running turn (Ctrl+↵)" {
                    "Send now"
                }
            }
            @if takes_prompts {
                button.btn.main.small.send {
                    span.on { @if is_running { "Queue" } @else { "Send" } } span.off { "Sends when connected" } " " kbd { "↵" }
                }
            }
        }
    }
}

/// Whether an option is in the composer's bar.
fn is_mode_or_model(option: &ConfigOption) -> bool {
    option.is_of("mode") || option.is_of("model")
}

fn option_select(option: &ConfigOption) -> Markup {
    let name = clean_line(&option.name);
    html! {
        label.row.hide-s[option.is_of("model")] {
            span.sr { (name) }
            select data-do="set_option" data-option=(option.id.as_str()) title=(name) {
                @for value in &option.values {
                    option value=(value.value.as_str()) selected[Some(&value.value) == option.value.as_ref()] { (clean_line(&value.name)) }
                }
            }
        }
    }
}

/// Changed files, plan, usage, options and tabs.
fn details(view: &RegionView<'_>) -> Markup {
    let plan = plan_of_turn(view.transcript);
    let items = plan.map(|plan| plan_items(plan.body())).unwrap_or_default();
    let done = items.iter().filter(|(status, _)| status == "completed").count();
    let options = ConfigOption::of_session(view.transcript, &view.opened);
    let other = |option: &&ConfigOption| !is_mode_or_model(option);
    html! {
        div.scroll id="details-body" {
            (view.files.turn().html("Changed in this turn"))
            (view.files.session().html(if view.has_older { "Changed in the latest entries" } else { "Changed in the session" }))
            @if !items.is_empty() {
                section { h3 { "Plan" span.num { (done) " of " (items.len()) } } (plan::list(&items)) }
            }
            (usage_html(view))
            @if options.iter().any(|option| other(&option)) {
                section {
                    h3 { "Options" }
                    dl.facts {
                        @for option in options.iter().filter(other) { (option_fact(option)) }
                    }
                }
            }
            section {
                @let places = view.places();
                h3 { "Attached" span.num { (places.len()) } }
                dl.facts { @for place in &places { (attached(place)) } }
            }
            section {
                h3 { "Session" }
                dl.facts {
                    dt { "Agent" } dd { (clean_line(&view.row.agent)) }
                    dt { "Directory" } dd { code { (short_path(&view.row.cwd)) } }
                    dt { "Id" } dd { code { (view.row.id) } }
                }
            }
        }
    }
}

/// The plan of the last turn: that of an earlier one is not what the agent does now.
fn plan_of_turn(transcript: &Transcript) -> Option<&Entry> {
    let turn = transcript
        .entries()
        .iter()
        .rev()
        .take_while(|entry| !matches!(entry.id(), EntryId::Message(Role::User, _)) || is_steered(entry));
    turn.into_iter().find(|entry| matches!(entry.id(), EntryId::Plan(_)) && !entry.body().removed)
}

/// A browser or another client in the list of those that are attached.
fn attached(place: &ShownPlace) -> Markup {
    html! {
        dt { span data-browser=[place.browser.as_deref()] { (clean_line(&place.name)) } @if place.tabs > 1 { ", " (place.tabs) " tabs" } }
        dd { @if place.role == ClientRole::Driver { "driver" } @else { "observer" } }
    }
}

/// An option that is neither the mode nor the model: its name, and a control.
fn option_fact(option: &ConfigOption) -> Markup {
    let name = clean_line(&option.name);
    html! {
        dt { (name) }
        dd {
            @if option.is_boolean {
                @let is_on = option.value == Some(Json::from(true));
                input type="checkbox" data-do="set_option" data-option=(option.id.as_str()) checked[is_on] aria-label=(name);
            } @else {
                (option_select(option))
            }
        }
    }
}

struct Usage {
    used: u64,
    size: u64,
    cost: Option<String>,
}

impl Usage {
    fn of(view: &RegionView<'_>) -> Option<Self> {
        let fields = &view.transcript.slot(Slot::Usage)?.fields;
        let size = fields.get_u64("size").filter(|size| *size > 0)?;
        Some(Self { used: fields.get_u64("used").unwrap_or(0), size, cost: cost(fields) })
    }

    fn percent(&self) -> u64 {
        self.used.saturating_mul(100) / self.size
    }
}

fn usage_html(view: &RegionView<'_>) -> Markup {
    let usage = Usage::of(view);
    let turn = view.transcript.state().and_then(|state| state.fields.get_object("usage"));
    let turn = turn.and_then(|usage| usage.get_u64("totalTokens"));
    html! {
        @if usage.is_some() || turn.is_some() || view.tokens.is_some() {
            section {
                h3 { "Usage" }
                @if let Some(usage) = &usage {
                    div.facts.num { span { "Context" } span { (thousands(usage.used)) " of " (thousands(usage.size)) } }
                    p.facts { progress value=(usage.percent()) max="100" aria-label="Context used" {} }
                }
                dl.facts.num {
                    @if let Some(turn) = turn { dt { "Last turn" } dd { (thousands(turn)) " tokens" } }
                    @if let Some(tokens) = view.tokens { dt { "Session" } dd { (thousands(tokens)) " tokens" } }
                    @if let Some(cost) = usage.and_then(|usage| usage.cost) { dt { "Cost" } dd { (clean_line(&cost)) } }
                }
            }
        }
    }
}

/// A number of tokens: `950`, `12.4k`, `1.2M`.
fn thousands(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..100_000 => format!("{}.{}k", tokens / 1_000, tokens % 1_000 / 100),
        100_000..1_000_000 => format!("{}k", tokens / 1_000),
        _ => format!("{}.{}M", tokens / 1_000_000, tokens % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tokens_are_short() {
        for (tokens, shown) in [(999, "999"), (12_440, "12.4k"), (124_000, "124k"), (1_250_000, "1.2M")] {
            assert_eq!(thousands(tokens), shown);
        }
    }
}
