//! Decodes the params of a search: the words of the query, and filters in the query or beside it.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use parlor_json::{Object, Type};
use parlor_store::{Query, Search};
use parlor_wire::{RpcError, code};

use super::ROLES;

/// How many hits a page has, by default and at most.
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// The maximal offset of a page.
const MAX_OFFSET: usize = 10_000;

/// The decoded params of a search.
#[derive(Debug)]
pub(super) struct SearchParams {
    pub(super) search: Search,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

impl SearchParams {
    pub(super) fn read(params: &Object, now: i64) -> Result<Self, RpcError> {
        let mut read = Self { search: Search::default(), offset: 0, limit: DEFAULT_LIMIT };
        let mut words = None;
        for (name, value) in params.iter().filter(|(_, value)| !value.is_null()) {
            let name = name.to_text();
            let text = value.to_json_str().map(|text| text.to_text().into_owned());
            match (&*name, text) {
                ("_meta", _) => {}
                ("query", Some(query)) => words = Some(query),
                ("limit", None) if value.type_of() == Type::Number => {
                    let limit =
                        value.as_str().parse::<usize>().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    read.limit = limit.ok_or_else(|| {
                        invalid(&format!("`limit` must be a number from 1 to {MAX_LIMIT}"), "")
                    })?;
                }
                ("cursor", Some(cursor)) => {
                    read.offset = cursor
                        .parse()
                        .ok()
                        .filter(|offset| *offset <= MAX_OFFSET)
                        .ok_or_else(|| invalid("`cursor` is not a cursor of this server", ""))?;
                }
                ("sessionId", Some(_)) => {
                    let id = value.to_json_str().map(|id| id.as_literal().to_owned());
                    read.search.session = id;
                }
                ("since", None) if value.type_of() == Type::Number => {
                    let since = value.as_str().parse().ok();
                    read.search.since = Some(since.ok_or_else(|| invalid_since(value.as_str()))?);
                }
                ("query" | "limit" | "cursor" | "sessionId", _) => {
                    return Err(invalid(&format!("`{name}` has the wrong type"), ""));
                }
                (_, Some(value)) => read.filter(&name, value, now)?,
                (_, None) => return Err(unknown_filter(&name)),
            }
        }
        let words = words.ok_or_else(|| invalid("`query` must be a string", ""))?;
        read.search.query = Query::parse(&read.take_filters(&words, now)?);
        Ok(read)
    }

    /// The cursor of the next page, unless it exceeds the maximal offset.
    pub(super) fn next(&self) -> Option<String> {
        let next = self.offset + self.limit;
        (next <= MAX_OFFSET).then(|| next.to_string())
    }

    fn filter(&mut self, name: &str, value: String, now: i64) -> Result<(), RpcError> {
        match name {
            "role" if ROLES.contains(&&*value) => self.search.kind = Some(value),
            "role" => {
                return Err(invalid(
                    &format!("unknown role: {value}"),
                    &format!("roles are {}", ROLES.join(", ")),
                ));
            }
            "cwd" if value.starts_with('/') => self.search.cwd = Some(value),
            "cwd" => return Err(invalid(&format!("`cwd` must be an absolute path: {value}"), "")),
            "agent" => self.search.agent = Some(value),
            "since" => self.search.since = Some(since(&value, now).ok_or_else(|| invalid_since(&value))?),
            _ => return Err(unknown_filter(name)),
        }
        Ok(())
    }

    /// Applies the filters in a query, and returns the rest. Quoted text is not a filter.
    fn take_filters(&mut self, query: &str, now: i64) -> Result<String, RpcError> {
        let mut words = String::with_capacity(query.len());
        for (n, part) in query.split('"').enumerate() {
            if n > 0 {
                words.push('"');
            }
            if n % 2 == 1 {
                words.push_str(part);
                continue;
            }
            for word in part.split_inclusive(char::is_whitespace) {
                match filter(word.trim_end()) {
                    Some((name, value)) => {
                        self.filter(name, value.to_owned(), now)?;
                        words.push(' ');
                    }
                    None => words.push_str(word),
                }
            }
        }
        Ok(words)
    }
}

/// The names of filters in a query.
pub const FILTERS: [&str; 4] = ["role", "cwd", "agent", "since"];

/// Splits a filter, or a word that is probably a misspelled filter: `name:value`, but not `a::b`, `localhost:80` or
/// `https://`.
fn filter(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase());
    let is_filter = FILTERS.contains(&name) || value.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_name && is_filter && !value.is_empty()).then_some((name, value))
}

/// Decodes a date, a timestamp, or a span before now (`30m`, `12h`, `7d`, `2w`), in milliseconds since 1970.
pub fn since(text: &str, now: i64) -> Option<i64> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(moment.as_millisecond());
    }
    if let Ok(day) = text.parse::<Date>() {
        return Some(day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond());
    }
    let unit = text.chars().last()?;
    let seconds: i64 = match unit {
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let count: i64 = text[..text.len() - 1].parse().ok().filter(|count| *count >= 0)?;
    Some(now.saturating_sub(count.saturating_mul(seconds).saturating_mul(1000)))
}

fn invalid_since(value: &str) -> RpcError {
    invalid(
        &format!("invalid time: {value}"),
        "use a date like 2026-01-31, a timestamp like 2026-01-31T12:00:00Z, or a span like 30m, 12h, 7d, 2w",
    )
}

fn unknown_filter(name: &str) -> RpcError {
    let hint = format!("filters are {}; quote text with a colon to search for it", FILTERS.join(", "));
    invalid(&format!("unknown filter: {name}"), &hint)
}

fn invalid(message: &str, hint: &str) -> RpcError {
    let error = RpcError::new(code::INVALID_PARAMS, message);
    if hint.is_empty() {
        return error;
    }
    let mut data = Object::default();
    data.set("hint", hint);
    error.with_data(data.to_json())
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    const NOW: i64 = 1_790_000_000_000;

    fn read(params: &str) -> Result<SearchParams, RpcError> {
        SearchParams::read(&Json::parse(params).unwrap().to_object().unwrap_or_default(), NOW)
    }

    fn search(query: &str) -> Result<Search, RpcError> {
        let mut params = Object::default();
        params.set("query", query);
        SearchParams::read(&params, NOW).map(|params| params.search)
    }

    #[test]
    fn filters_are_read_from_the_params_and_from_the_query() {
        let text = |text: &str| Some(text.to_owned());
        let expected = Search {
            query: Query::parse("two words"),
            kind: text("agent"),
            session: text("\"s\""),
            agent: text("claude"),
            cwd: text("/x"),
            since: Some(NOW - 7 * 86_400_000),
        };
        let beside = r#"{"query":"two words","role":"agent","cwd":"/x","agent":"claude","since":"7d","sessionId":"s","_meta":{}}"#;
        assert_eq!(read(beside).unwrap().search, expected);
        let among =
            r#"{"query":"role:agent two cwd:/x words agent:claude since:7d","sessionId":"s","limit":null}"#;
        assert_eq!(read(among).unwrap().search, expected);
    }

    #[test]
    fn text_with_a_colon_that_is_no_filter_is_searched_for() {
        for query in [
            "std::io",
            "https://example.org",
            "localhost:80",
            "12:30",
            "role:",
            ":x",
            "\"note:well\"",
            "Note:x",
            "-a:b",
        ] {
            assert_eq!(
                search(query).unwrap(),
                Search { query: Query::parse(query), ..Search::default() },
                "{query}"
            );
        }
        for query in ["note:well", "rol:user", "role:nobody", "since:yesterday", "x since:-1d"] {
            let error = search(query).unwrap_err();
            assert!(error.code() == code::INVALID_PARAMS && error.data().is_some(), "{query}");
        }
    }

    #[test]
    fn times_are_dates_timestamps_and_spans() {
        for (text, expected) in [
            ("1970-01-02", Some(86_400_000)),
            ("1970-01-01T00:00:01Z", Some(1000)),
            ("1970-01-01T01:00:00+01:00", Some(0)),
            ("30m", Some(NOW - 1_800_000)),
            ("2w", Some(NOW - 14 * 86_400_000)),
            ("99999999999999999999d", None),
            ("9223372036854775807w", Some(NOW - i64::MAX)),
            ("d", None),
            ("7é", None),
            ("", None),
        ] {
            assert_eq!(since(text, NOW), expected, "{text}");
        }
    }

    #[test]
    fn invalid_params_are_rejected() {
        for params in [
            "{}",
            r#"{"query":7}"#,
            r#"{"query":"x","limit":0}"#,
            r#"{"query":"x","limit":101}"#,
            r#"{"query":"x","limit":"9"}"#,
            r#"{"query":"x","cursor":"y"}"#,
            r#"{"query":"x","cursor":"10001"}"#,
            r#"{"query":"x","cursor":7}"#,
            r#"{"query":"x","since":1.5}"#,
            r#"{"query":"x","other":"y"}"#,
            r#"{"query":"x","role":[]}"#,
        ] {
            assert_eq!(read(params).unwrap_err().code(), code::INVALID_PARAMS, "{params}");
        }
        let page = read(r#"{"query":"\ud83d x","limit":7,"cursor":"14","since":5}"#).unwrap();
        assert_eq!(
            (page.offset, page.limit, page.search.since, page.next()),
            (14, 7, Some(5), Some("21".to_owned()))
        );
        assert_eq!(read(r#"{"query":"x","cursor":"9999"}"#).unwrap().next(), None);
    }
}
