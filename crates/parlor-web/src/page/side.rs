//! The list of sessions at the side: by day, forks below the session that they were forked from.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use maud::{Markup, PreEscaped, html};
use parlor_server::hub::ClientRole;
use parlor_session::SessionId;
use parlor_view::address::session_path;

use super::list_feed::ListView;
use super::session_row::{SessionRow, SessionState, age};
use crate::assets::{icon, state_icon};
pub(super) use crate::render::text::short_path;
use crate::render::text::{clean_line, percent_encoded};

/// How deep forks of forks are indented.
const MAX_DEPTH: usize = 8;

/// Sessions in the list. The search finds the others.
const MAX_LISTED: usize = 500;

/// The page that is shown beside the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownPage<'a> {
    Session(&'a SessionId),
    Inbox,
    /// The results of a search.
    Search,
    /// Anything else that a phone shows in place of the list.
    Other,
    /// Nothing: a phone shows the list.
    List,
}

/// The column at the side.
pub(super) fn side(view: &ListView, place: ShownPage<'_>, role: ClientRole, query: &str) -> Markup {
    let is_inbox = (place == ShownPage::Inbox).then_some("page");
    let tree = view.tree.html();
    let tree = match place {
        // The list is rendered once for all tabs; the script marks the current session in later ones.
        ShownPage::Session(id) => {
            let link = format!("href=\"{}\"", address(id));
            tree.replacen(&link, &format!("{link} aria-current=\"page\""), 1)
        }
        ShownPage::Inbox | ShownPage::Search | ShownPage::Other | ShownPage::List => tree,
    };
    html! {
        nav.side aria-label="Sessions" {
            div.bar {
                a.row.brand.grow href="/" { (icon("logo", "")) "parlor" }
                button.btn.quiet.icon id="theme" type="button" data-do="theme" aria-label="Change theme" { (icon("theme", "")) }
                @if role == ClientRole::Driver {
                    a.btn.icon href="/new" aria-label="New session (c)" title="New session (c)" { (icon("plus", "")) }
                }
            }
            form.find role="search" action="/search" method="get" {
                (icon("search", ""))
                label.sr for="q" { "Search all sessions" }
                input.field id="q" name="q" type="search" placeholder="Search all sessions" autocomplete="off" value=(query) maxlength="200";
                kbd { "/" }
            }
            @if role == ClientRole::Driver {
                a.navrow href="/inbox" aria-current=[is_inbox] {
                    (icon("inbox", "")) span.grow { "Inbox" } (PreEscaped(&*view.inbox_count))
                }
            }
            div.scroll { @if place != ShownPage::Search { div id="hits" hidden {} } (PreEscaped(tree)) }
            footer {
                div.bar {
                    span.row.grow { span.dot {} span id="connection" { "Connected" } }
                    a.muted href="/keys" { "Keys " kbd { "?" } }
                }
            }
        }
    }
}

/// The list of sessions, rendered.
#[derive(Debug, Default)]
pub(super) struct SessionTree {
    /// The links of sessions by their ids.
    rows: HashMap<String, Arc<str>>,
    /// The groups, and where the links are in them.
    outline: Vec<Outline>,
}

/// A part of the list before, between or after the links of sessions.
#[derive(Debug, PartialEq, Eq)]
enum Outline {
    Markup(String),
    Row(String),
}

impl SessionTree {
    /// The list with sessions of which the most recently active is the first.
    pub(super) fn new(rows: &[SessionRow], now: Timestamp) -> Self {
        let zone = TimeZone::system();
        let today = now.to_zoned(zone.clone()).date();
        let mut tree = Self::default();
        let all: Vec<&SessionRow> = rows.iter().filter(|row| !row.is_archived).collect();
        let archived = rows.len() - all.len();
        let forks = Forks::of(&all[..all.len().min(MAX_LISTED)]);
        let mut group = None;
        tree.push("<div id=\"sessions\">");
        for root in &forks.roots {
            let day = forks.active_at(root).map(|at| at.to_zoned(zone.clone()).date());
            let day = day_group(day, today);
            if group != Some(day) {
                tree.push(if group.is_some() { "</ul>" } else { "" });
                tree.push(&format!("<h2 class=\"group\">{day}</h2><ul>"));
                group = Some(day);
            }
            tree.push_session(root, &forks, 0, now, &zone);
        }
        tree.push(if group.is_some() { "</ul>" } else { "" });
        if rows.is_empty() {
            tree.push("<p class=\"group\">No sessions yet. The first one appears here, newest first.</p>");
        } else if all.is_empty() {
            tree.push("<p class=\"group\">All sessions are archived.</p>");
        }
        if let Some(more) = all.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
            tree.push(&format!("<p class=\"group\">{more} older sessions; the search finds them</p>"));
        }
        if archived > 0 {
            tree.push(&archive_link(archived).into_string());
        }
        tree.push("</div>");
        tree
    }

    fn push(&mut self, markup: &str) {
        match self.outline.last_mut() {
            Some(Outline::Markup(last)) => last.push_str(markup),
            Some(Outline::Row(_)) | None => self.outline.push(Outline::Markup(markup.to_owned())),
        }
    }

    fn push_session(
        &mut self,
        row: &SessionRow,
        forks: &Forks<'_>,
        depth: usize,
        now: Timestamp,
        zone: &TimeZone,
    ) {
        self.push("<li>");
        let id = row_id(&row.id);
        self.rows.insert(id.clone(), session_link(row, &id, now, zone).into_string().into());
        self.outline.push(Outline::Row(id));
        let children = forks.children.get(&row.id).map_or(&[][..], Vec::as_slice);
        if children.is_empty() || depth == MAX_DEPTH {
            self.push("</li>");
            children.iter().for_each(|child| self.push_session(child, forks, depth, now, zone));
        } else {
            self.push("<ul class=\"kids\">");
            children.iter().for_each(|child| self.push_session(child, forks, depth + 1, now, zone));
            self.push("</ul></li>");
        }
    }

    /// The element with all groups.
    pub(super) fn html(&self) -> String {
        let mut html = String::new();
        for part in &self.outline {
            match part {
                Outline::Markup(markup) => html.push_str(markup),
                Outline::Row(id) => html.push_str(self.rows.get(id).map_or("", |row| row)),
            }
        }
        html
    }

    /// The elements that changed since another list, by their ids: links of sessions, or all of it if the order has changed.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<(String, Arc<str>)> {
        if self.outline != before.outline {
            return vec![("sessions".to_owned(), self.html().into())];
        }
        let changed = self.rows.iter().filter(|(id, row)| before.rows.get(*id) != Some(row));
        changed.map(|(id, row)| (id.clone(), Arc::clone(row))).collect()
    }
}

/// The sessions of a list by the session that they were forked from.
struct Forks<'a> {
    roots: Vec<&'a SessionRow>,
    children: HashMap<&'a SessionId, Vec<&'a SessionRow>>,
}

impl<'a> Forks<'a> {
    fn of(rows: &[&'a SessionRow]) -> Self {
        let listed: HashMap<&SessionId, &SessionRow> = rows.iter().map(|row| (&row.id, *row)).collect();
        let mut forks = Self { roots: Vec::new(), children: HashMap::new() };
        for row in rows.iter().copied() {
            match row.parent.as_ref().filter(|_| has_root(row, &listed)) {
                Some(parent) if listed.contains_key(parent) => {
                    forks.children.entry(parent).or_default().push(row);
                }
                Some(_) | None => forks.roots.push(row),
            }
        }
        // A fork that is active moves its whole tree.
        let mut roots = std::mem::take(&mut forks.roots);
        roots.sort_by_cached_key(|root| std::cmp::Reverse(forks.active_at(root)));
        forks.roots = roots;
        forks
    }

    /// When a session or one of its forks was last active.
    fn active_at(&self, row: &SessionRow) -> Option<Timestamp> {
        let children = self.children.get(&row.id).into_iter().flatten();
        let forks = children.filter_map(|fork| self.active_at(fork));
        forks.chain(row.active_at).max()
    }
}

/// Whether the sessions that a session was forked from end with one that is no fork. Broken data may have a circle.
fn has_root(row: &SessionRow, listed: &HashMap<&SessionId, &SessionRow>) -> bool {
    let mut passed: HashSet<&SessionId> = HashSet::from([&row.id]);
    let mut parent = row.parent.as_ref();
    while let Some(id) = parent {
        if !passed.insert(id) {
            return false;
        }
        parent = listed.get(id).and_then(|row| row.parent.as_ref());
    }
    true
}

/// The name of the group of a day.
fn day_group(day: Option<Date>, today: Date) -> &'static str {
    let Some(day) = day else { return "Older" };
    match days_between(day, today) {
        ..=0 => "Today",
        1 => "Yesterday",
        2..=7 => "Last week",
        8..=31 => "Last month",
        _ => "Older",
    }
}

fn days_between(day: Date, today: Date) -> i32 {
    today.since(day).map_or(i32::MAX, |span| span.get_days())
}

/// When a session was active, in the zone of the server until the script shows it in that of the browser.
pub(super) fn when_html(at: Timestamp, now: Timestamp, zone: &TimeZone) -> Markup {
    html! { time.when.num datetime=(at) { (when(at, now, zone)) } }
}

/// When a session was active: an age today, the time yesterday, the weekday in the last week, else the date.
fn when(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let (at_zone, today) = (at.to_zoned(zone.clone()), now.to_zoned(zone.clone()).date());
    match days_between(at_zone.date(), today) {
        ..=0 => age(at, now),
        1 => at_zone.strftime("%H:%M").to_string(),
        2..=6 => at_zone.strftime("%a").to_string(),
        _ if at_zone.year() == today.year() => at_zone.strftime("%-d %b").to_string(),
        _ => at_zone.strftime("%Y-%m-%d").to_string(),
    }
}

fn archive_link(count: usize) -> Markup {
    html! { a.navrow.archived href="/archived" { (icon("inbox", "")) span.grow { "Archived" } span.num { (count) } } }
}

pub(super) fn session_link(row: &SessionRow, id: &str, now: Timestamp, zone: &TimeZone) -> Markup {
    let (class, name) = row.state.shown();
    html! {
        a.sess.unread[row.is_unread] id=(id) href=(address(&row.id)) {
            (state_icon(class, class, name))
            span.t.cut { @if row.is_unread { span.sr { "unread, " } } (clean_line(&row.title)) }
            @if let Some(at) = row.active_at { (when_html(at, now, zone)) } @else { span.when {} }
            span.sub {
                span { (clean_line(&row.agent)) }
                span.cut { "· " (short_path(&row.cwd)) }
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
    session_path(id)
}

/// The id of a session's link in the list.
pub(super) fn row_id(id: &SessionId) -> String {
    format!("row-{}", percent_encoded(&id.to_string()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::render::Authors;
    use crate::render::tests::{HOSTILE, assert_safe};

    pub(crate) fn row(id: &str, at: &str, parent: Option<&str>) -> SessionRow {
        SessionRow {
            id: id.into(),
            title: format!("Title of {id}"),
            agent: "claude".to_owned(),
            authors: Authors::default(),
            cwd: "/w".to_owned(),
            state: SessionState::Idle,
            is_unread: false,
            is_archived: false,
            active_at: Some(at.parse().unwrap()),
            cost: None,
            tokens: None,
            parent: parent.map(SessionId::from),
            owner: None,
        }
    }

    const NOW: &str = "2026-03-04T12:00:00Z";

    /// The groups and sessions of a list, with an indentation for forks.
    fn outline(rows: &[SessionRow]) -> Vec<String> {
        let html = SessionTree::new(rows, NOW.parse().unwrap()).html();
        let mut lines = Vec::new();
        let mut depth = 0_usize;
        for part in html.split('<') {
            if part.starts_with("ul") {
                depth += 1;
            } else if part.starts_with("/ul") {
                depth -= 1;
            } else if let Some(group) = part.strip_prefix("h2 class=\"group\">") {
                lines.push(group.to_owned());
            } else if let Some(title) = part.strip_prefix("span class=\"t cut\">") {
                lines.push(format!("{}{}", "  ".repeat(depth), title.replace("Title of ", "")));
            }
        }
        assert_eq!(depth, 0, "{html}");
        lines
    }

    #[test]
    fn sessions_are_grouped_by_day_and_forks_are_below_their_parents() {
        let rows = [
            row("fork of old", "2026-03-04T11:59:00Z", Some("old")),
            row("new", "2026-03-04T11:00:00Z", None),
            row("fork", "2026-03-02T11:00:00Z", Some("new")),
            row("lost parent", "2026-03-01T11:00:00Z", Some("deleted")),
            row("fork of fork", "2026-03-01T10:00:00Z", Some("fork")),
            row("old", "2026-01-01T11:00:00Z", None),
            row("older", "2025-01-01T11:00:00Z", None),
        ];
        assert_eq!(
            outline(&rows),
            [
                "Today",
                "  old",
                "    fork of old",
                "  new",
                "    fork",
                "      fork of fork",
                "Last week",
                "  lost parent",
                "Older",
                "  older"
            ]
        );
    }

    #[test]
    fn archived_sessions_are_counted_and_their_forks_are_listed() {
        let archived = SessionRow { is_archived: true, ..row("archived", "2026-03-04T11:00:00Z", None) };
        let rows = [archived, row("fork", "2026-03-04T10:00:00Z", Some("archived"))];
        assert_eq!(outline(&rows), ["Today", "  fork"]);
        let html = |rows: &[SessionRow]| SessionTree::new(rows, NOW.parse().unwrap()).html();
        assert!(
            html(&rows).contains("href=\"/archived\"")
                && html(&rows).contains("<span class=\"num\">1</span>")
        );
        assert!(!html(&rows[1..]).contains("/archived"));
        assert!(
            html(&rows[..1]).contains("All sessions are archived.") && html(&[]).contains("No sessions yet.")
        );
    }

    #[test]
    fn sessions_that_are_forks_of_each_other_are_all_listed() {
        let rows = [
            row("a", "2026-03-04T11:00:00Z", Some("b")),
            row("b", "2026-03-04T10:00:00Z", Some("a")),
            row("c", "2026-03-04T09:00:00Z", Some("c")),
        ];
        assert_eq!(outline(&rows), ["Today", "  a", "  b", "  c"]);
    }

    #[test]
    fn nothing_in_a_session_becomes_a_script() {
        for text in HOSTILE {
            let mut hostile = row(text, "2026-03-04T11:00:00Z", Some(text));
            (hostile.title, hostile.agent, hostile.cwd) =
                ((*text).to_owned(), (*text).to_owned(), (*text).to_owned());
            (hostile.cost, hostile.is_unread) = (Some((*text).to_owned()), true);
            assert_safe(&SessionTree::new(&[hostile], NOW.parse().unwrap()).html(), text);
        }
    }

    #[test]
    fn deep_forks_are_listed_below_the_deepest_level() {
        let rows: Vec<_> = (0..12)
            .map(|n: u32| {
                let parent = n.checked_sub(1).map(|parent| parent.to_string());
                row(&n.to_string(), "2026-03-04T11:00:00Z", parent.as_deref())
            })
            .collect();
        let lines = outline(&rows);
        assert_eq!(lines.len(), 13);
        assert_eq!(lines[12], format!("{}11", "  ".repeat(MAX_DEPTH + 1)));
    }

    #[test]
    fn a_long_list_says_how_many_sessions_are_left_out() {
        let rows: Vec<_> =
            (0..MAX_LISTED + 3).map(|n| row(&n.to_string(), "2026-03-04T11:00:00Z", None)).collect();
        let html = SessionTree::new(&rows, NOW.parse().unwrap()).html();
        assert_eq!(html.matches("class=\"sess\"").count(), MAX_LISTED);
        assert!(html.contains("3 older sessions"), "{html}");
    }

    #[test]
    fn a_change_of_one_session_sends_only_its_link() {
        let now = NOW.parse().unwrap();
        let mut rows = vec![row("a", "2026-03-04T11:00:00Z", None), row("b", "2026-03-04T10:00:00Z", None)];
        let before = SessionTree::new(&rows, now);
        assert!(SessionTree::new(&rows, now).changes_since(&before).is_empty());
        rows[1].title = "<b>".to_owned();
        let changes = SessionTree::new(&rows, now).changes_since(&before);
        assert_eq!(changes.len(), 1);
        assert!(changes[0].0 == "row-b" && changes[0].1.contains("&lt;b&gt;"), "{changes:?}");
        rows.swap(0, 1);
        let changes = SessionTree::new(&rows, "2026-03-04T12:00:00Z".parse().unwrap()).changes_since(&before);
        // Roots are ordered by their activity, whatever the order of the rows.
        assert_eq!(changes.len(), 1);
        rows[0].active_at = Some(now);
        let changes = SessionTree::new(&rows, now).changes_since(&before);
        assert_eq!(changes[0].0, "sessions");
    }

    #[test]
    fn times_are_short() {
        let now: Timestamp = NOW.parse().unwrap();
        for (at, shown) in [
            ("2026-03-04T11:46:00Z", "14m"),
            ("2026-03-03T17:40:00Z", "17:40"),
            ("2026-02-27T06:00:00Z", "Fri"),
            ("2026-02-01T06:00:00Z", "1 Feb"),
            ("2025-12-31T06:00:00Z", "2025-12-31"),
        ] {
            assert_eq!(when(at.parse().unwrap(), now, &TimeZone::UTC), shown, "{at}");
        }
    }
}
