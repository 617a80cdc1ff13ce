use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::Style;
use clap::Args;
use clap::builder::PossibleValuesParser;
use parlor_client::{Connection, Hello};
use parlor_json::{JsonStr, Object};
use parlor_server::search::{FILTERS, ROLES};
use parlor_session::{EntryId, MessageNumbers};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::command_error::CommandError;
use crate::offline_sessions::{LatestScope, OfflineSessions};
use crate::output::{self, BOLD, DIM, ago, count};
use crate::path_options::{self, PathOptions};
use crate::render::safe;
use crate::runtime;
use crate::server;
use crate::table::{terminal_width, truncate};

/// Search the text of all sessions
///
/// An entry matches if it has all words of the query, in any order; case and accents are ignored. `"two words"` matches the
/// phrase, `begin*` a prefix, and `-word` excludes entries with the word. Filters in the query: `role:agent`, `cwd:.`,
/// `agent:claude`, `since:2026-01-31` or `since:7d`. Messages match by their text, tool calls by title, input and output,
/// sessions by their title.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  parlor search 'flaky test -windows'\n  parlor search --since 7d '\"race condition\" role:agent'"
)]
pub(crate) struct Search {
    #[command(flatten)]
    paths: PathOptions,
    /// Search for these words; quote the query if a word starts with a dash
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Search only entries with this role
    #[arg(long, value_name = "ROLE", value_parser = PossibleValuesParser::new(ROLES))]
    role: Option<String>,
    /// Search only sessions with this working directory
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Search only sessions of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Search only entries since this date, time or age (30m, 12h, 7d, 2w)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Print at most this many matches, the best first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

/// The width below which ids are shortened, and the length of a shortened id.
const NARROW: usize = 100;
const SHORT_ID: usize = 8;

/// How many hits `--limit` accepts.
const MAX_LIMIT: usize = 10_000;

/// How many hits are requested at once.
const PAGE: usize = 100;

impl Search {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        if self.query.iter().all(|word| word.trim().is_empty()) {
            return Err(CommandError::bad_input("the query is empty")
                .hint("`parlor search WORD` searches for a word; `parlor ls` lists all sessions"));
        }
        let words = self.query.join(" ");
        if words.split_whitespace().all(is_filter) {
            return Err(CommandError::bad_input("the query has filters and no words")
                .hint("add a word to search for; `parlor ls --cwd DIR --agent NAME` lists sessions"));
        }
        let backend = SearchBackend::new(&self.paths)?;
        let mut params = self.params()?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut hits: Vec<Object> = Vec::new();
        let result = loop {
            params.set("limit", PAGE.min(limit - hits.len()));
            let result = backend.search(&params)?;
            let found = result.get_array("hits").unwrap_or_default();
            hits.extend(found.into_iter().filter_map(|hit| Object::parse(hit).ok()));
            match result.get("nextCursor") {
                Some(next) if hits.len() < limit => params.set("cursor", next.clone()),
                Some(_) | None => break result,
            }
        };
        if self.json {
            let listed: Vec<_> = hits.iter().map(|hit| hit.to_json().as_str().to_owned()).collect();
            output::print_raw_json(&format!("[{}]\n", listed.join(",")))?;
        } else {
            output::print(|out| {
                if hits.is_empty() {
                    writeln!(out, "No entries match.")?;
                    let has_plain_words =
                        self.query.iter().all(|word| word.chars().all(char::is_alphanumeric));
                    if has_plain_words && self.agent.is_none() {
                        let prefixes = self.query.join("* ") + "*";
                        let words = self.query.join(" or ");
                        writeln!(
                            out,
                            "{DIM}hint: '{}' also finds words that begin with {}{DIM:#}",
                            safe(&prefixes),
                            safe(&words)
                        )?;
                    }
                }
                let mut numbers = Numbers::new(&self.paths);
                hits.iter().try_for_each(|hit| show(hit, &mut numbers, out))?;
                if result.get("nextCursor").is_some() {
                    let more = limit.saturating_mul(5).min(MAX_LIMIT);
                    writeln!(out, "{DIM}There are more matches; --limit {more} prints more.{DIM:#}")?;
                }
                Ok(())
            })?;
        }
        print_warnings(&result);
        Ok(ExitCode::SUCCESS)
    }

    fn params(&self) -> Result<Object, CommandError> {
        let (query, cwd) = take_cwd(&self.query.join(" "));
        let cwd = cwd.map(PathBuf::from).or_else(|| self.cwd.clone());
        let cwd = cwd.as_deref().map(path_options::canonical_directory).transpose()?;
        let mut params = Object::default();
        params.set("query", JsonStr::new(&query));
        for (name, value) in [
            ("role", self.role.clone()),
            ("cwd", cwd.map(|cwd| cwd.to_string_lossy().into_owned())),
            ("agent", self.agent.as_deref().map(|agent| self.paths.agent_name(agent))),
            ("since", self.since.clone()),
        ] {
            if let Some(value) = value {
                params.set(name, JsonStr::new(&value));
            }
        }
        Ok(params)
    }
}

/// Whether a word of a query is a filter such as `role:agent`.
fn is_filter(word: &str) -> bool {
    word.split_once(':').is_some_and(|(name, value)| FILTERS.contains(&name) && !value.is_empty())
}

/// Takes the last filter `cwd:` out of a query, because its directory may be relative to that of this process. Quoted text is not a
/// filter.
fn take_cwd(query: &str) -> (String, Option<String>) {
    let (mut rest, mut cwd) = (String::new(), None);
    for (n, part) in query.split('"').enumerate() {
        if n > 0 {
            rest.push('"');
        }
        for word in part.split_inclusive(char::is_whitespace) {
            match word.trim_end().strip_prefix("cwd:").filter(|directory| n % 2 == 0 && !directory.is_empty())
            {
                Some(directory) => cwd = Some(directory.to_owned()),
                None => rest.push_str(word),
            }
        }
    }
    (rest, cwd)
}

/// Answers the query: the server if it is running, else the store.
enum SearchBackend {
    Server(tokio::runtime::Runtime, Connection),
    Store(OfflineSessions),
}

impl SearchBackend {
    fn new(paths: &PathOptions) -> Result<Self, CommandError> {
        let data = paths.existing_data_dir()?.filter(|data| server::is_running(&data.socket()));
        let Some(data) = data else { return Ok(Self::Store(OfflineSessions::open(paths)?)) };
        let runtime = runtime::single_threaded()?;
        let (socket, hello) = (data.socket(), Hello::new());
        let connecting = server::respond_in_time(Connection::socket(&socket, &hello));
        let (server, _) = runtime.block_on(connecting)?;
        Ok(Self::Server(runtime, server))
    }

    fn search(&self, params: &Object) -> Result<Object, CommandError> {
        match self {
            Self::Server(runtime, server) => {
                runtime.block_on(server::respond_in_time(server.call("_parlor/search", params)))
            }
            Self::Store(sessions) => sessions.search(params),
        }
    }
}

/// Prints a hit: the session, the entry with its role and time, and the snippet.
fn show(hit: &Object, numbers: &mut Numbers, out: &mut dyn Write) -> io::Result<()> {
    let named = |name: &str| hit.get_str(name).unwrap_or_default();
    let at: Option<jiff::Timestamp> = named("at").parse().ok();
    let when = at.map(|at| ago(at.as_millisecond(), output::now())).unwrap_or_default();
    let name = named("name");
    let name = if name.trim().is_empty() { "(no prompt yet)".into() } else { name };
    let mut line = safe(&name.split_whitespace().collect::<Vec<_>>().join(" "));
    let (mut session, id) =
        (named("sessionId"), hit.get("toolCallId").and_then(|_| hit.get_str("toolCallId")));
    let mut id = id.unwrap_or_else(|| named("messageId"));
    if let Some(number) = numbers.get(&session, &id) {
        id = format!("#{number}").into();
    }
    // On a narrow terminal, the ids are the prefixes that other commands print.
    if let Some(width) = terminal_width().filter(|width| *width < NARROW) {
        session = session.chars().take(SHORT_ID).collect::<String>().into();
        id = id.chars().take(SHORT_ID).collect::<String>().into();
        line = truncate(&line, width.saturating_sub(SHORT_ID + 1));
    }
    writeln!(out, "{BOLD}{line}{BOLD:#} {DIM}{}{DIM:#}", safe(&session))?;
    let about = [named("role"), id, when.into()];
    let about: Vec<_> = about.iter().filter(|part| !part.is_empty()).map(|part| safe(part)).collect();
    writeln!(out, "  {DIM}{}{DIM:#}", about.join(" · "))?;
    let (snippet, ranges) = match terminal_width() {
        Some(width) => around_match(&named("snippet"), ranges(hit), width.saturating_sub(2)),
        None => (named("snippet").into_owned(), ranges(hit)),
    };
    writeln!(out, "  {}\n", highlighted(&snippet, &ranges))
}

/// The part of a snippet around its first match that fits a terminal, with the matches in it.
fn around_match(text: &str, ranges: Vec<(usize, usize)>, width: usize) -> (String, Vec<(usize, usize)>) {
    if text.width() <= width {
        return (text.to_owned(), ranges);
    }
    let first = ranges.first().map_or(0, |(start, _)| *start);
    // A third of the line is what comes before the match.
    let before: Vec<char> = text.chars().take(first).collect();
    let (mut skipped, mut room) = (before.len(), width / 3);
    while skipped > 0 && before[skipped - 1].width().unwrap_or(0) <= room {
        skipped -= 1;
        room -= before[skipped].width().unwrap_or(0);
    }
    let rest: String = text.chars().skip(skipped).collect();
    let cut = if skipped > 0 { format!("…{rest}") } else { rest };
    let cut = truncate(&cut, width);
    let (end, mark) = (cut.chars().count(), usize::from(skipped > 0));
    let moved = |at: usize| (at + mark).saturating_sub(skipped).min(end);
    let ranges = ranges.into_iter().map(|(start, end)| (moved(start), moved(end)));
    (cut, ranges.filter(|(start, end)| start < end).collect())
}

/// The numbers of messages, as `parlor show` prints them, of the sessions that have hits.
struct Numbers {
    /// The stored sessions; errors of the store leave the ids of messages in place of their numbers.
    sessions: Option<OfflineSessions>,
    /// The numbers by message id, by session id.
    read: HashMap<String, HashMap<String, usize>>,
}

impl Numbers {
    fn new(paths: &PathOptions) -> Self {
        Self { sessions: OfflineSessions::open(paths).ok(), read: HashMap::new() }
    }

    /// The number of a message; `None` if it is not stored yet, or is not a message.
    fn get(&mut self, session: &str, message: &str) -> Option<usize> {
        if !self.read.contains_key(session) {
            let numbers = self.sessions.as_ref().and_then(|sessions| numbers(sessions, session));
            self.read.insert(session.to_owned(), numbers.unwrap_or_default());
        }
        self.read.get(session)?.get(message).copied()
    }
}

/// Reads a session and numbers its messages.
fn numbers(sessions: &OfflineSessions, session: &str) -> Option<HashMap<String, usize>> {
    let row = sessions.find(session, LatestScope::All).ok()?;
    let opened = sessions.read(&row).ok()?;
    let numbers = MessageNumbers::of(&opened.transcript);
    let by_id = numbers.iter().filter_map(|(number, entry)| {
        let EntryId::Message(_, id) = entry.id() else { return None };
        Some((id.to_string(), number))
    });
    Some(by_id.collect())
}

/// The ranges of the matched words in the snippet, in characters.
fn ranges(hit: &Object) -> Vec<(usize, usize)> {
    let pairs = hit.get_array("matches").unwrap_or_default();
    let range = |raw: parlor_json::JsonRef<'_>| serde_json::from_str::<(usize, usize)>(raw.as_str()).ok();
    pairs.into_iter().filter_map(range).collect()
}

/// Text with the matches highlighted.
fn highlighted(text: &str, ranges: &[(usize, usize)]) -> String {
    const MATCH: Style = BOLD.underline();
    let mut marked = String::new();
    for (n, c) in text.chars().enumerate() {
        if ranges.iter().any(|(start, _)| *start == n) {
            marked += &MATCH.render().to_string();
        }
        marked += &safe(c.encode_utf8(&mut [0; 4]));
        if ranges.iter().any(|(_, end)| *end == n + 1) {
            marked += &MATCH.render_reset().to_string();
        }
    }
    marked
}

/// Prints what limits the result to standard error.
fn print_warnings(result: &Object) {
    if let Some(ignored) = result.get("ignoredWords").and_then(|count| count.as_str().parse().ok()) {
        print_stderr!("parlor: the query is too long; {} ignored", count(ignored, "word"));
    }
    if result.get("incomplete").is_some() {
        print_stderr!(
            "parlor: the result is incomplete: sessions of an earlier version are not indexed yet; a running server indexes them"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{around_match, take_cwd};

    #[test]
    fn a_snippet_is_cut_around_its_first_match() {
        assert_eq!(around_match("a quokka", vec![(2, 8)], 8), ("a quokka".to_owned(), vec![(2, 8)]));
        let text = "far away lives a quokka, and another quokka";
        let (cut, ranges) = around_match(text, vec![(17, 23), (37, 43)], 20);
        assert_eq!((cut.as_str(), &ranges[..]), ("…ves a quokka, and …", &[(7, 13)][..]));
        assert_eq!(
            around_match("日本語のとても長い題名", vec![(0, 2)], 8),
            ("日本語…".to_owned(), vec![(0, 2)])
        );
    }

    #[test]
    fn the_directory_of_a_query_is_taken_out_unless_it_is_quoted() {
        for (query, rest, cwd) in [
            ("flaky", "flaky", None),
            ("flaky cwd:. test", "flaky test", Some(".")),
            ("cwd:/a flaky cwd:../b", "flaky ", Some("../b")),
            ("\"cwd:. flaky\" cwd:", "\"cwd:. flaky\" cwd:", None),
            ("\"a b\" cwd:/c", "\"a b\" ", Some("/c")),
        ] {
            assert_eq!(take_cwd(query), (rest.to_owned(), cwd.map(str::to_owned)), "{query}");
        }
    }
}
