//! What a search asks for: the words, and the filters beside them and among them.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use parlor_json::{JsonStr, Object, Type};
use parlor_store::{Query, Search};
use parlor_wire::{RpcError, code};

use super::ROLES;

/// How many hits an answer has, and at most.
const LIMIT: usize = 20;
const MOST: usize = 100;

/// How far a search can be paged through. Who wants more is better served by another word.
const DEEPEST: usize = 10_000;

/// What the params of a search mean.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) search: Search,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

impl Asked {
    pub(super) fn read(params: &Object, now: i64) -> Result<Self, RpcError> {
        let mut asked = Self { search: Search::default(), offset: 0, limit: LIMIT };
        let mut words = None;
        for (name, value) in params.iter().filter(|(_, value)| !value.is_null()) {
            let name = name.to_text();
            let text = JsonStr::from_raw(value.raw()).map(|text| text.to_text().into_owned());
            match (&*name, text) {
                ("_meta", _) => {}
                ("query", Some(query)) => words = Some(query),
                ("limit", None) if value.type_of() == Type::Number => {
                    let limit =
                        value.as_str().parse::<usize>().ok().filter(|limit| (1..=MOST).contains(limit));
                    asked.limit =
                        limit.ok_or_else(|| wrong(&format!("`limit` is a number from 1 to {MOST}"), ""))?;
                }
                ("cursor", Some(cursor)) => {
                    asked.offset = cursor
                        .parse()
                        .ok()
                        .filter(|offset| *offset <= DEEPEST)
                        .ok_or_else(|| wrong("`cursor` is not one that this server gave", ""))?;
                }
                ("sessionId", Some(_)) => {
                    let id = JsonStr::from_raw(value.raw()).map(|id| id.as_literal().to_owned());
                    asked.search.session = id;
                }
                ("since", None) if value.type_of() == Type::Number => {
                    let since = value.as_str().parse().ok();
                    asked.search.since = Some(since.ok_or_else(|| wrong_since(value.as_str()))?);
                }
                ("query" | "limit" | "cursor" | "sessionId", _) => {
                    return Err(wrong(&format!("`{name}` is of the wrong type"), ""));
                }
                (_, Some(value)) => asked.filter(&name, value, now)?,
                (_, None) => return Err(unknown(&name)),
            }
        }
        let words = words.ok_or_else(|| wrong("`query` must be a string", ""))?;
        asked.search.query = Query::parse(&asked.take_filters(&words, now)?);
        Ok(asked)
    }

    /// Where the next page begins, unless that is too far.
    pub(super) fn next(&self) -> Option<String> {
        let next = self.offset + self.limit;
        (next <= DEEPEST).then(|| next.to_string())
    }

    fn filter(&mut self, name: &str, value: String, now: i64) -> Result<(), RpcError> {
        match name {
            "role" if ROLES.contains(&&*value) => self.search.kind = Some(value),
            "role" => {
                return Err(wrong(
                    &format!("nobody has the role {value}"),
                    &format!("roles are {}", ROLES.join(", ")),
                ));
            }
            "cwd" => self.search.cwd = Some(value),
            "agent" => self.search.agent = Some(value),
            "since" => self.search.since = Some(since(&value, now).ok_or_else(|| wrong_since(&value))?),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Takes the filters out of a query, and leaves the words. What is quoted is no filter.
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

/// The filters that a query may have in it.
const FILTERS: [&str; 4] = ["role", "cwd", "agent", "since"];

/// A word that is a filter, or looks so much like one that it must be a mistake: `names:values`, and neither `a::b`,
/// `localhost:80` nor `https://`.
fn filter(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase());
    let is_meant = FILTERS.contains(&name) || value.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_name && is_meant && !value.is_empty()).then_some((name, value))
}

/// A time: a day or a moment, or how long ago.
fn since(text: &str, now: i64) -> Option<i64> {
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

fn wrong_since(value: &str) -> RpcError {
    wrong(
        &format!("{value} is no time"),
        "write a day like 2026-01-31, a moment like 2026-01-31T12:00:00Z, or 30m, 12h, 7d, 2w",
    )
}

fn unknown(name: &str) -> RpcError {
    let hint = format!("filters are {}; quote what is to be searched for as it is", FILTERS.join(", "));
    wrong(&format!("there is no filter {name}"), &hint)
}

fn wrong(message: &str, hint: &str) -> RpcError {
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
    use super::*;

    const NOW: i64 = 1_790_000_000_000;

    fn read(params: &str) -> Result<Asked, RpcError> {
        Asked::read(&crate::json::object(Some(crate::json::json(params).raw())), NOW)
    }

    fn search(query: &str) -> Result<Search, RpcError> {
        let mut params = Object::default();
        params.set("query", query);
        Asked::read(&params, NOW).map(|asked| asked.search)
    }

    #[test]
    fn filters_stand_beside_and_among_the_words() {
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
    fn what_only_looks_like_a_filter_is_searched_for() {
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
    fn times_are_days_moments_and_spans() {
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
    fn params_that_make_no_sense_are_refused() {
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
