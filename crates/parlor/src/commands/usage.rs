use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::civil::Date;
use jiff::{Span, ToSpan};
use parlor_server::search::since;
use parlor_server::stored::{DayUsage, SessionData, TOKEN_KINDS};
use parlor_store::{Filter, SessionRow};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::offline_sessions::{LatestOption, OfflineSessions, session_id, session_title};
use crate::output::{self, BOLD, DIM};
use crate::path_options::PathOptions;
use crate::table::{Cell, Table};

/// Print the tokens, the cost and the time of turns
///
/// The figures are those that agents report. What an agent does not report is unknown: it is printed as `-`, and is not part of a
/// total. Costs are in the currency of the agent. Days are in UTC. Works with and without a running server.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Usage {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Count only this session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Print a row for each agent, day or session [default: agent; day for one session]
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
    /// Count only turns since this date or age (12h, 7d, 2w) [default: 7d; all of one session]
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor usage
  parlor usage --by day --since 30d
  parlor usage --by session --since 2026-01-01
  parlor usage latest --json";

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Agent,
    Day,
    Session,
}

/// The age of the turns that are counted by default.
const DEFAULT_SINCE: &str = "7d";

const MILLIS_PER_DAY: i64 = 86_400_000;

/// One row of the output.
#[derive(Debug, Default)]
struct UsageRow {
    /// The agent, the day, or the id of the session.
    name: String,
    /// The title of a session.
    title: Option<String>,
    /// The name of a session for people.
    display_name: Option<String>,
    /// The sessions with turns.
    sessions: u64,
    usage: DayUsage,
    /// Whether all turns ended with a count of each kind of tokens, so that the sum is the whole.
    has_unknown_tokens: bool,
    has_unknown_cost: bool,
}

/// The output with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageOutput<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    sessions: u64,
    turns: u64,
    /// The turns whose tokens the agent did not report.
    turns_without_tokens: u64,
    seconds: u64,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cached_read_tokens: Option<u64>,
    cached_write_tokens: Option<u64>,
    thought_tokens: Option<u64>,
    total_tokens: Option<u64>,
    /// By currency; `null` if the agent reports none.
    cost: Option<&'a BTreeMap<String, f64>>,
}

impl Usage {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let now = output::now();
        let first_day = self.first_day(now)?;
        let sessions = OfflineSessions::open(&self.paths)?;
        let rows = match &self.session {
            Some(name) => vec![sessions.find(name, self.latest.scope())?],
            None => sessions.sessions(&Filter::default(), usize::MAX)?,
        };
        let by = self.by.unwrap_or(if self.session.is_some() { By::Day } else { By::Agent });
        let mut counted = count_rows(&rows, by, first_day, now.div_euclid(MILLIS_PER_DAY));
        if self.json {
            output::print_json(&counted.iter().map(|row| row.output(by)).collect::<Vec<_>>())?;
            return Ok(ExitCode::SUCCESS);
        }
        if counted.iter().all(|row| row.sessions == 0) {
            let when = first_day.map(|day| format!(" since {}", date(day))).unwrap_or_default();
            output::print(|out| writeln!(out, "no turns have ended{when}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        if by == By::Session {
            let rows: HashMap<_, _> = rows.iter().map(|row| (session_id(row), row)).collect();
            for row in &mut counted {
                let session = rows.get(&row.name).map(|session| sessions.display_name(session));
                row.display_name = session.transpose()?.flatten();
            }
        }
        let id_length = sessions.id_length()?;
        output::print(|out| {
            if self.since.is_none() && self.session.is_none() {
                writeln!(out, "{DIM}last 7 days (--since 30d for more){DIM:#}\n")?;
            }
            table(&counted, by, id_length).write(out)?;
            let has_unknown = counted.iter().any(|row| row.has_unknown_tokens || row.has_unknown_cost);
            if has_unknown {
                writeln!(out, "\n{DIM}-  not reported by the agent{DIM:#}")?;
            }
            Ok(())
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// The first day that counts.
    fn first_day(&self, now: i64) -> Result<Option<i64>, CommandError> {
        let text = match (&self.since, &self.session) {
            (Some(text), _) => text,
            (None, Some(_)) => return Ok(None),
            (None, None) => DEFAULT_SINCE,
        };
        let time = since(text, now).ok_or_else(|| {
            CommandError::bad_input(format_args!("invalid time: {text}"))
                .hint("use a date like 2026-01-31, or an age like 12h, 7d, 2w")
        })?;
        Ok(Some(time.div_euclid(MILLIS_PER_DAY)))
    }
}

/// Counts the usage of sessions.
fn count_rows(sessions: &[SessionRow], by: By, first_day: Option<i64>, today: i64) -> Vec<UsageRow> {
    let mut rows: BTreeMap<String, UsageRow> = BTreeMap::new();
    for session in sessions {
        let usage = SessionData::of(session).summary.turn_usage;
        let days = usage.days.iter().filter(|day| first_day.is_none_or(|first| day.day >= first));
        let mut seen: Vec<String> = Vec::new();
        for day in days {
            let name = match by {
                By::Agent => session.agent.clone(),
                By::Day => date(day.day),
                By::Session => session_id(session),
            };
            let row = rows.entry(name.clone()).or_insert_with(|| UsageRow {
                name: name.clone(),
                title: (by == By::Session).then(|| session_title(session)).flatten(),
                ..UsageRow::default()
            });
            if !seen.contains(&name) {
                row.sessions += 1;
                seen.push(name);
            }
            row.has_unknown_tokens |= day.counted_turns < day.turns;
            row.has_unknown_cost |= day.costs.is_empty() && day.turns > 0;
            row.usage.add(day);
        }
    }
    // A day without turns is a row too, so that the days are complete.
    if by == By::Day {
        let days: Vec<i64> = rows.keys().filter_map(|day| day_number(day)).collect();
        for day in days.first().copied().into_iter().flat_map(|first| first..=today) {
            let name = date(day);
            rows.entry(name.clone()).or_insert_with(|| UsageRow { name, ..UsageRow::default() });
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    match by {
        By::Day => rows.reverse(),
        // The largest first.
        By::Agent | By::Session => rows.sort_by_key(|row| std::cmp::Reverse((row.usage.turns, row.sessions))),
    }
    rows
}

impl UsageRow {
    fn tokens(&self, kind: &str) -> Option<u64> {
        self.usage.tokens.0.get(kind).copied()
    }

    /// All tokens: the agent's own total, or else the sum of input and output.
    fn total(&self) -> Option<u64> {
        self.tokens("totalTokens")
            .or_else(|| Some(self.tokens("inputTokens")?.saturating_add(self.tokens("outputTokens")?)))
    }

    fn output(&self, by: By) -> UsageOutput<'_> {
        let named = |what| (by == what).then_some(self.name.as_str());
        let [input, output, cached_read, cached_write, thought, total] =
            TOKEN_KINDS.map(|kind| self.tokens(kind));
        UsageOutput {
            agent: named(By::Agent),
            day: named(By::Day),
            session_id: named(By::Session),
            title: self.title.as_deref(),
            sessions: self.sessions,
            turns: self.usage.turns,
            turns_without_tokens: self.usage.turns - self.usage.counted_turns,
            seconds: self.usage.millis / 1000,
            input_tokens: input,
            output_tokens: output,
            cached_read_tokens: cached_read,
            cached_write_tokens: cached_write,
            thought_tokens: thought,
            total_tokens: total,
            cost: Some(&self.usage.costs).filter(|costs| !costs.is_empty()),
        }
    }

    fn cells(&self, name: Cell, title: Option<Cell>) -> Vec<Cell> {
        let number = |value: Option<u64>| -> Cell {
            match value {
                Some(value) => short_count(value).into(),
                None if self.usage.turns == 0 => "".into(),
                None => Cell::styled("-", DIM),
            }
        };
        let cached = match (self.tokens("cachedReadTokens"), self.tokens("inputTokens")) {
            (Some(cached), Some(input)) if input > 0 => {
                format!("{}%", cached.min(input).saturating_mul(100) / input).into()
            }
            _ if self.usage.turns == 0 => "".into(),
            _ => Cell::styled("-", DIM),
        };
        let cost = match self.usage.costs.is_empty() {
            true if self.usage.turns == 0 => "".into(),
            true => Cell::styled("-", DIM),
            false => costs(&self.usage.costs).into(),
        };
        let time = if self.usage.turns == 0 { String::new() } else { time(self.usage.millis) };
        // A row of a session has its title instead of the number of sessions.
        let sessions = title.unwrap_or_else(|| self.sessions.to_string().into());
        let first = [name, sessions];
        let rest = [
            self.usage.turns.to_string().into(),
            time.into(),
            number(self.tokens("inputTokens")),
            cached,
            number(self.tokens("outputTokens")),
            number(self.total()),
            cost,
        ];
        first.into_iter().chain(rest).collect()
    }
}

fn table(rows: &[UsageRow], by: By, id_length: usize) -> Table {
    let first: &[&'static str] = match by {
        By::Agent => &["~AGENT", "<SESSIONS"],
        By::Day => &["DAY", "<SESSIONS"],
        By::Session => &["SESSION", "~TITLE"],
    };
    let columns = ["<TURNS", "<TIME", "<INPUT", "<CACHED", "<OUTPUT", "<TOKENS", "<COST"];
    let mut table = Table::new(&[first, &columns].concat());
    table.drop_if_narrow(&["CACHED", "SESSIONS", "OUTPUT", "INPUT", "TIME", "TITLE", "TURNS"]);
    let mut total = UsageRow::default();
    for row in rows {
        let name = match by {
            By::Agent => row.name.as_str().into(),
            By::Day => day_name(&row.name).into(),
            By::Session => row.name.chars().take(id_length).collect::<String>().into(),
        };
        let title = (by == By::Session)
            .then(|| row.display_name.as_ref().or(row.title.as_ref()).map_or("", String::as_str).into());
        table.push(row.cells(name, title));
        total.sessions += row.sessions;
        total.usage.add(&row.usage);
    }
    // A session with turns on several days is not several sessions.
    if rows.len() > 1 && by != By::Day {
        let title = (by == By::Session).then(|| "".into());
        table.push(total.cells(Cell::styled("total", BOLD), title));
    }
    table
}

/// The date of a day since 1970.
fn date(day: i64) -> String {
    let epoch = Date::constant(1970, 1, 1);
    let span: Option<Span> = i32::try_from(day).ok().map(|day| i64::from(day).days());
    span.and_then(|span| epoch.checked_add(span).ok()).map(|date| date.to_string()).unwrap_or_default()
}

/// The number of days since 1970 of a date.
fn day_number(date: &str) -> Option<i64> {
    let date: Date = date.parse().ok()?;
    let span = Date::constant(1970, 1, 1).until(date).ok()?;
    Some(i64::from(span.get_days()))
}

/// A date with its day of the week.
fn day_name(date: &str) -> String {
    let parsed: Option<Date> = date.parse().ok();
    parsed.map_or_else(|| date.to_owned(), |date| date.strftime("%a %e %b").to_string())
}

/// Formats a number with a unit: `412k`, `9.1M`.
fn short_count(number: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", number / unit, number % unit * 10 / unit);
    match number {
        0..1000 => number.to_string(),
        1000..1_000_000 => format!("{}k", number / 1000),
        1_000_000..10_000_000 => tenths(1_000_000) + "M",
        10_000_000..1_000_000_000 => format!("{}M", number / 1_000_000),
        _ => tenths(1_000_000_000) + "G",
    }
}

/// Formats how long turns ran.
fn time(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

fn costs(costs: &BTreeMap<String, f64>) -> String {
    costs.iter().map(|(currency, amount)| money(currency, *amount)).collect::<Vec<_>>().join(" + ")
}

/// Formats an amount of money; less than a cent is not nothing.
pub(crate) fn money(currency: &str, amount: f64) -> String {
    let digits = if amount > 0.0 && amount < 0.005 { 4 } else { 2 };
    match currency {
        "USD" => format!("${amount:.digits$}"),
        "EUR" => format!("€{amount:.digits$}"),
        _ => format!("{amount:.digits$} {currency}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const TODAY: i64 = 20_774;

    fn session(id: &str, agent: &str, usage: &str) -> SessionRow {
        SessionRow {
            id: format!("\"{id}\""),
            agent: agent.to_owned(),
            title: Some(format!("\"Session {id}\"")),
            data: format!(r#"{{"summary":{{"turnUsage":{usage}}}}}"#),
            ..SessionRow::default()
        }
    }

    fn sessions() -> Vec<SessionRow> {
        let claude = format!(
            r#"{{"days":[{{"day":{},"turns":80,"countedTurns":80,"ms":15000000,"tokens":{{"inputTokens":9000000,"cachedReadTokens":7300000,"outputTokens":412345}},"costs":{{"USD":21.4}}}},
               {{"day":{TODAY},"turns":8,"countedTurns":8,"ms":120000,"tokens":{{"inputTokens":1000,"outputTokens":10}},"costs":{{"USD":0.001}}}}]}}"#,
            TODAY - 2
        );
        let gemini = format!(
            r#"{{"days":[{{"day":{TODAY},"turns":9,"countedTurns":4,"ms":9000,"tokens":{{"inputTokens":400,"outputTokens":22}}}}]}}"#
        );
        vec![
            session("aa", "claude", &claude),
            session("bb", "gemini", &gemini),
            session("cc", "goose", &format!(r#"{{"days":[{{"day":{TODAY},"turns":1}}]}}"#)),
            session("dd", "claude", "{}"),
        ]
    }

    fn shown(by: By, first_day: Option<i64>, width: Option<usize>) -> String {
        let mut out = Vec::new();
        table(&count_rows(&sessions(), by, first_day, TODAY), by, 8).write_within(width, &mut out).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string()
    }

    #[test]
    fn usage_is_counted_by_agent_and_what_is_not_reported_is_unknown() {
        expect![[r#"
            AGENT   SESSIONS  TURNS    TIME  INPUT  CACHED  OUTPUT  TOKENS    COST
            claude         1     88  4:12 h   9.0M     81%    412k    9.4M  $21.40
            gemini         1      9     9 s    400       -      22     422       -
            goose          1      1     0 s      -       -       -       -       -
            total          3     98  4:12 h   9.0M     81%    412k    9.4M  $21.40
        "#]]
        .assert_eq(&shown(By::Agent, None, None));
        expect![[r#"
            AGENT   SESSIONS  TURNS   TIME  INPUT  CACHED  OUTPUT  TOKENS     COST
            gemini         1      9    9 s    400       -      22     422        -
            claude         1      8  2 min     1k       -      10      1k  $0.0010
            goose          1      1    0 s      -       -       -       -        -
            total          3     18  2 min     1k       -      32      1k  $0.0010
        "#]]
        .assert_eq(&shown(By::Agent, Some(TODAY), None));
    }

    #[test]
    fn usage_is_counted_by_day_and_a_day_without_turns_is_empty() {
        expect![[r#"
            DAY         SESSIONS  TURNS    TIME  INPUT  CACHED  OUTPUT  TOKENS     COST
            Tue 17 Nov         3     18   2 min     1k       -      32      1k  $0.0010
            Mon 16 Nov         0      0
            Sun 15 Nov         1     80  4:10 h   9.0M     81%    412k    9.4M   $21.40
        "#]]
        .assert_eq(&shown(By::Day, None, None));
    }

    #[test]
    fn usage_is_counted_by_session() {
        expect![[r#"
            SESSION  TITLE       TURNS    TIME  INPUT  CACHED  OUTPUT  TOKENS    COST
            aa       Session aa     88  4:12 h   9.0M     81%    412k    9.4M  $21.40
            bb       Session bb      9     9 s    400       -      22     422       -
            cc       Session cc      1     0 s      -       -       -       -       -
            total                   98  4:12 h   9.0M     81%    412k    9.4M  $21.40
        "#]]
        .assert_eq(&shown(By::Session, None, None));
    }

    #[test]
    fn the_table_fits_40_columns() {
        for by in [By::Agent, By::Day, By::Session] {
            let shown = shown(by, None, Some(40));
            assert!(shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
            assert!(shown.contains("COST") && shown.contains("TOKENS"), "{shown}");
        }
    }

    #[test]
    fn figures_are_formatted_for_people() {
        let counts = [999, 1000, 412_345, 1_000_000, 9_150_000, 11_700_000, 2_000_000_000].map(short_count);
        assert_eq!(counts, ["999", "1k", "412k", "1.0M", "9.1M", "11M", "2.0G"]);
        assert_eq!([59_000, 61_000, 15_120_000].map(time), ["59 s", "1 min", "4:12 h"]);
        assert_eq!(money("USD", 25.416), "$25.42");
        assert_eq!(
            (money("USD", 0.0), money("USD", 0.0012), money("XAU", 1.0)),
            ("$0.00".into(), "$0.0012".into(), "1.00 XAU".into())
        );
        assert_eq!(
            (date(0), date(TODAY), day_number("2026-11-17")),
            ("1970-01-01".into(), "2026-11-17".into(), Some(TODAY))
        );
        assert_eq!(day_name("2026-11-16"), "Mon 16 Nov");
        assert_eq!(date(i64::MAX), "");
    }
}
