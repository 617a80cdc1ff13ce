//! Search in all sessions: by title, agent and directory, and in their texts.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use parlor_client::{Connection, Error};
use parlor_json::{JsonRef, Object};
use parlor_session::{EntryId, MessageId, Role, SessionId, ToolCallId};

use super::list_feed::ListView;
use super::session_row::SessionRow;
use super::side::{address, short_path, when_html};
use crate::assets::{icon, state_icon};
use crate::render::text::{clean, clean_line, element_id, percent_encoded};

/// Bytes of a query.
const MAX_QUERY: usize = 1_000;

/// Hits in texts that are shown.
const MAX_HITS: usize = 50;

/// Sessions that are shown at the side; on the page of results.
const MAX_SESSIONS: usize = 8;
const MAX_SESSIONS_ON_PAGE: usize = 100;

/// Where results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultsPlace {
    /// Beside what a person reads, with the most recent sessions only.
    Side,
    /// On a page of their own.
    Page,
}

/// What a search found.
#[derive(Debug)]
pub(super) struct SearchResults<'a> {
    query: &'a str,
    sessions: Vec<&'a SessionRow>,
    /// The hits in texts, or why there are none.
    hits: Result<Vec<SearchHit>, String>,
    /// Whether older sessions are still being indexed.
    is_incomplete: bool,
}

/// A text that has the words of a query.
#[derive(Debug, PartialEq, Eq)]
struct SearchHit {
    session: SessionId,
    title: String,
    /// The entry, unless the title of the session has the words.
    entry: Option<EntryId>,
    role: String,
    at: Option<Timestamp>,
    /// Parts of the text, and whether they match.
    snippet: Vec<(String, bool)>,
}

impl<'a> SearchResults<'a> {
    /// Searches in the list and in the index of the server.
    pub(super) async fn find(
        view: &'a ListView,
        connection: &Connection,
        query: &'a str,
    ) -> Result<Self, Error> {
        let mut found = Self { query, sessions: Vec::new(), hits: Ok(Vec::new()), is_incomplete: false };
        if query.trim().is_empty() {
            return Ok(found);
        }
        if query.len() > MAX_QUERY {
            found.hits = Err(format!("The query is longer than {MAX_QUERY} bytes."));
            return Ok(found);
        }
        found.sessions = matching(&view.rows, query, Timestamp::now());
        let params = Object::new().with("query", while_typing(query)).with("limit", MAX_HITS as u64);
        match connection.call("_parlor/search", &params).await {
            Ok(result) => {
                let hits = result.get_array("hits").unwrap_or_default();
                let hits = hits.into_iter().filter_map(SearchHit::decode);
                // A title that matches is a session, not a message.
                let (texts, titles): (Vec<_>, Vec<_>) = hits.partition(|hit| hit.entry.is_some());
                let titled = titles.iter().filter_map(|hit| view.row(&hit.session));
                for row in titled {
                    if !found.sessions.iter().any(|known| known.id == row.id) {
                        found.sessions.push(row);
                    }
                }
                found.hits = Ok(texts);
                found.is_incomplete = result.get_bool("incomplete") == Some(true);
            }
            // The query is wrong; the message says in what.
            Err(Error::Rpc(error)) => found.hits = Err(error.message().to_owned()),
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    /// The results, in an element for the side or for a page of their own.
    pub(super) fn html(&self, place: ResultsPlace, now: Timestamp) -> Markup {
        let zone = TimeZone::system();
        let shown = match place {
            ResultsPlace::Side => MAX_SESSIONS,
            ResultsPlace::Page => MAX_SESSIONS_ON_PAGE,
        };
        let more = self.sessions.len().saturating_sub(shown);
        html! {
            div id="hits" role="region" aria-label="Search results" {
                @if self.query.trim().is_empty() {
                    p.group { "Type words, \"a phrase\", -without, or filters: role:user, agent:claude, since:7d" }
                } @else {
                    @if !self.sessions.is_empty() {
                        h2.group { "Sessions" }
                        ul { @for row in self.sessions.iter().take(shown) { li { (session_html(row, now, &zone)) } } }
                        @if more > 0 {
                            @let text = format!("{more} more session{}", if more == 1 { "" } else { "s" });
                            p.group {
                                @if place == ResultsPlace::Side {
                                    a href=(format!("/search?q={}", percent_encoded(self.query))) { (text) }
                                } @else {
                                    (text) ": more words narrow the search"
                                }
                            }
                        }
                    }
                    @match &self.hits {
                        Err(reason) => p.group { (clean_line(reason)) },
                        Ok(hits) => {
                            p.group role="status" {
                                @match hits.len() {
                                    0 => "Nothing found in messages",
                                    1 => "1 message",
                                    MAX_HITS => { "The best " (MAX_HITS) " messages" }
                                    many => { (many) " messages" }
                                }
                            }
                            ul { @for hit in hits { li { (hit.html(now, &zone)) } } }
                        }
                    }
                    @if self.is_incomplete { p.group { "Older sessions are still being indexed." } }
                }
            }
        }
    }
}

/// The results as a page.
pub(super) fn page(query: &str, results: &Markup) -> Markup {
    let query = clean_line(query);
    html! {
        section aria-labelledby="title" {
            header.bar {
                a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) }
                span.title { "Search" }
            }
            div.scroll id="conversation" tabindex="0" role="region" aria-label="Search results" {
                div.page.found {
                    h1 id="title" { @if query.is_empty() { "Search all sessions" } @else { "Results for “" (query) "”" } }
                    (results)
                }
            }
        }
    }
}

/// A query whose last word may be the beginning of one.
fn while_typing(query: &str) -> String {
    let word = query.rsplit([' ', ':', '-', '"']).next().unwrap_or_default();
    let is_word = word.chars().count() >= 2 && word.chars().all(char::is_alphanumeric);
    let is_filter = query.rsplit(' ').next().is_some_and(|part| part.contains(':'));
    let in_quotes = query.matches('"').count() % 2 == 1;
    if is_word && !is_filter && !in_quotes { format!("{query}*") } else { query.to_owned() }
}

/// The sessions that have all words in their title, agent, directory or state, and pass the filters of the query.
fn matching<'a>(rows: &'a [SessionRow], query: &str, now: Timestamp) -> Vec<&'a SessionRow> {
    let parts = parts(query, now);
    let matches = |row: &&SessionRow| {
        let (_, state) = row.state.shown();
        let text = format!("{} {} {} {state}", row.title, row.agent, row.cwd).to_lowercase();
        parts.iter().all(|part| match part {
            QueryPart::Word(word) => text.contains(word.as_str()),
            QueryPart::Excluded(word) => !text.contains(word.as_str()),
            QueryPart::Agent(agent) => row.agent.to_lowercase() == *agent,
            QueryPart::Directory(cwd) => row.cwd.to_lowercase() == *cwd,
            QueryPart::Since(since) => row.active_at.is_some_and(|at| at.as_millisecond() >= *since),
            QueryPart::Title => true,
            QueryPart::Messages => false,
        })
    };
    // A part that every session passes searches for none.
    if parts.iter().all(|part| *part == QueryPart::Title) {
        return Vec::new();
    }
    rows.iter().filter(matches).collect()
}

/// A part of a query, in small letters.
#[derive(Debug, PartialEq, Eq)]
enum QueryPart {
    Word(String),
    Excluded(String),
    Agent(String),
    Directory(String),
    /// When the session was active at the earliest, in milliseconds since 1970.
    Since(i64),
    /// The role of titles.
    Title,
    /// What only messages have, such as another role, and filters that are wrong.
    Messages,
}

/// The words, phrases and filters of a query.
fn parts(query: &str, now: Timestamp) -> Vec<QueryPart> {
    let query = query.to_lowercase();
    let mut parts = Vec::new();
    let mut rest = query.trim_start();
    while !rest.is_empty() {
        let said = rest.strip_prefix('-').unwrap_or(rest);
        let is_excluded = said.len() < rest.len();
        let (part, after) = match said.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => said.split_at(said.find([' ', '"']).unwrap_or(said.len())),
        };
        let is_quoted = said.starts_with('"');
        rest = after.strip_prefix('*').unwrap_or(after).trim_start();
        let word = part.trim_end_matches('*');
        let filter = part.split_once(':').filter(|_| !is_quoted && !is_excluded);
        parts.extend(match filter {
            Some(("agent", name)) => Some(QueryPart::Agent(name.to_owned())),
            Some(("cwd", cwd)) => Some(QueryPart::Directory(cwd.to_owned())),
            Some(("role", role)) => {
                Some(if role == "title" { QueryPart::Title } else { QueryPart::Messages })
            }
            Some(("since", time)) => {
                let since = parlor_server::search::since(time, now.as_millisecond());
                Some(since.map_or(QueryPart::Messages, QueryPart::Since))
            }
            Some(_) | None if word.is_empty() => None,
            Some(_) | None if is_excluded => Some(QueryPart::Excluded(word.to_owned())),
            Some(_) | None => Some(QueryPart::Word(word.to_owned())),
        });
    }
    parts
}

fn session_html(row: &SessionRow, now: Timestamp, zone: &TimeZone) -> Markup {
    let (class, name) = row.state.shown();
    html! {
        a.sess href=(address(&row.id)) {
            (state_icon(class, class, name))
            span.t.cut { (clean_line(&row.title)) }
            @if let Some(at) = row.active_at { (when_html(at, now, zone)) } @else { span.when {} }
            span.sub { span { (clean_line(&row.agent)) } span.cut { "· " (short_path(&row.cwd)) } span { @if row.is_archived { "archived" } } }
        }
    }
}

impl SearchHit {
    fn decode(raw: JsonRef<'_>) -> Option<Self> {
        let hit = raw.to_object()?;
        let message =
            hit.get_json_str("messageId").map(|id| EntryId::Message(Role::Agent, MessageId::from(id)));
        let call = hit.get_json_str("toolCallId").map(|id| EntryId::ToolCall(ToolCallId::from(id)));
        let at = hit.get_string("at").and_then(|at| at.parse().ok());
        let at = at.or_else(|| Timestamp::from_millisecond(i64::try_from(hit.get_u64("at")?).ok()?).ok());
        let matches = hit.get_array("matches").unwrap_or_default();
        let matches: Vec<(usize, usize)> = matches
            .into_iter()
            .filter_map(|pair| {
                let pair = pair.elements()?;
                let [start, end] = pair.as_slice() else { return None };
                Some((start.as_str().parse().ok()?, end.as_str().parse().ok()?))
            })
            .collect();
        Some(Self {
            session: hit.get_json_str("sessionId")?.into(),
            title: hit.get_string("title").unwrap_or_else(|| "New session".to_owned()),
            entry: message.or(call),
            role: hit.get_string("role").unwrap_or_default(),
            at,
            snippet: split(&hit.get_string("snippet").unwrap_or_default(), &matches),
        })
    }

    /// The address of the entry in its session.
    fn address(&self) -> String {
        let session = address(&self.session);
        match &self.entry {
            Some(entry) => format!("{session}#{}", element_id(entry)),
            None => session,
        }
    }

    fn html(&self, now: Timestamp, zone: &TimeZone) -> Markup {
        let role = match self.role.as_str() {
            "user" => "you",
            role => role,
        };
        html! {
            a.hit href=(self.address()) {
                span.t.cut { (clean_line(&self.title)) }
                @if let Some(at) = self.at { (when_html(at, now, zone)) } @else { span.when {} }
                span.sub {
                    span.muted { (clean_line(role)) ": " }
                    @for (text, is_match) in &self.snippet {
                        @if *is_match { mark { (clean(text)) } } @else { (without_rules(&clean(text))) }
                    }
                }
            }
        }
    }
}

/// A part of a text without the rules of Markdown tables, `|---|---|`.
fn without_rules(text: &str) -> String {
    let is_rule = |word: &&str| word.contains("|--") && word.chars().all(|c| "|-:".contains(c));
    text.split(' ').filter(|word| !is_rule(word)).collect::<Vec<_>>().join(" ")
}

/// A text in parts that match and parts that do not. The positions are in characters; bad ones are ignored.
fn split(text: &str, matches: &[(usize, usize)]) -> Vec<(String, bool)> {
    let characters: Vec<char> = text.chars().collect();
    let mut parts = Vec::new();
    let mut from = 0;
    for (start, end) in matches {
        if *start < from || end <= start || *end > characters.len() {
            continue;
        }
        parts.push((characters[from..*start].iter().collect(), false));
        parts.push((characters[*start..*end].iter().collect(), true));
        from = *end;
    }
    parts.push((characters[from..].iter().collect(), false));
    parts.retain(|(part, _): &(String, bool)| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::super::side::tests::row;
    use super::*;
    use crate::render::tests::{HOSTILE, assert_safe};

    #[test]
    fn the_last_word_matches_words_that_begin_with_it() {
        for (query, sent) in [
            ("flaky te", "flaky te*"),
            ("f", "f"),
            ("done ", "done "),
            ("a*", "a*"),
            ("role:user", "role:user"),
            ("\"two wo", "\"two wo"),
            ("\"two words\" th", "\"two words\" th*"),
            ("x -other", "x -other*"),
        ] {
            assert_eq!(while_typing(query), sent);
        }
    }

    #[test]
    fn sessions_match_by_all_words() {
        let rows = [row("one", "2026-03-04T11:00:00Z", None), row("two", "2026-03-04T11:00:00Z", None)];
        let now = "2026-03-04T12:00:00Z".parse().unwrap();
        let found = |query: &str| {
            matching(&rows, query, now).iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found("TITLE two"), ["two"]);
        assert_eq!(found("claude idle"), ["one", "two"]);
        assert!(found("title three").is_empty());
        assert_eq!(found("agent:claude \"title of\" tw* -one"), ["two"]);
        assert_eq!(found("agent:CLAUDE"), ["one", "two"]);
        assert_eq!(found("cwd:/w since:2h"), ["one", "two"]);
        for all in ["since:2026-03-04", "since:2026-03-04T10:30:00Z", "role:title title"] {
            assert_eq!(found(all), ["one", "two"], "{all}");
        }
        for none in [
            "since:2026-03-05",
            "since:2026-03-04T11:30:00Z",
            "since:soon",
            "role:title",
            "",
            "agent:gemini",
            "cwd:/other",
            "since:30m",
            "role:user title",
            "\"of title\"",
        ] {
            assert!(found(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn results_say_how_many_sessions_are_left_out() {
        let rows: Vec<_> = (0..12).map(|n| row(&n.to_string(), "2026-03-04T11:00:00Z", None)).collect();
        let results = SearchResults {
            query: "agent:claude",
            sessions: rows.iter().collect(),
            hits: Ok(Vec::new()),
            is_incomplete: false,
        };
        let html = |place| results.html(place, Timestamp::UNIX_EPOCH).into_string();
        let side = html(ResultsPlace::Side);
        assert!(side.contains("href=\"/search?q=agent%3Aclaude\">4 more sessions</a>"), "{side}");
        assert_eq!(side.matches("class=\"sess\"").count(), MAX_SESSIONS);
        assert_eq!(html(ResultsPlace::Page).matches("class=\"sess\"").count(), 12);
    }

    #[test]
    fn nothing_in_a_hit_becomes_a_script() {
        for text in HOSTILE {
            let literal = parlor_json::string_literal(text);
            let hit = format!(
                r#"{{"sessionId":{literal},"messageId":{literal},"role":{literal},"title":{literal},"snippet":{literal},"matches":[[1,3]]}}"#
            );
            let hit = SearchHit::decode(parlor_json::Json::parse(hit).unwrap().raw()).unwrap();
            let results = SearchResults {
                query: text,
                sessions: Vec::new(),
                hits: Ok(vec![hit]),
                is_incomplete: false,
            };
            assert_safe(&results.html(ResultsPlace::Page, Timestamp::UNIX_EPOCH).into_string(), text);
            let refused = SearchResults { hits: Err((*text).to_owned()), ..results };
            assert_safe(&refused.html(ResultsPlace::Side, Timestamp::UNIX_EPOCH).into_string(), text);
        }
    }

    #[test]
    fn the_rules_of_tables_are_left_out() {
        assert_eq!(without_rules("a | b | |---|:--:| | c | d "), "a | b | | c | d ");
        assert_eq!(without_rules("ls | wc --lines || -- |"), "ls | wc --lines || -- |");
    }

    #[test]
    fn a_hit_opens_at_its_entry_and_marks_the_words() {
        let hit = |json: &str| SearchHit::decode(parlor_json::Json::parse(json).unwrap().raw()).unwrap();
        let message = hit(
            r#"{"sessionId":"s 1","messageId":"m<","role":"user","title":"T","snippet":"é <b> word","matches":[[6,10],[3,4],[8,99]]}"#,
        );
        assert_eq!(message.address(), "/s/s%201#m-m%3C");
        let html = message.html(Timestamp::UNIX_EPOCH, &TimeZone::UTC).into_string();
        assert!(html.contains("é &lt;b&gt; <mark>word</mark>") && html.contains("you: "), "{html}");
        assert_eq!(hit(r#"{"sessionId":"s","toolCallId":"t"}"#).address(), "/s/s#t-t");
        assert_eq!(hit(r#"{"sessionId":"s","role":"title"}"#).address(), "/s/s");
    }
}
