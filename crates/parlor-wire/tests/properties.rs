//! What holds for every input.

use parlor_wire::{
    Batches, Body, Incoming, InputLine, LineDecoder, Malformed, Message, Outcome, RequestId, parse,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

const LIMIT: usize = 12;

/// A frame without its borrow.
#[derive(Debug, PartialEq)]
enum Seen {
    Line(String),
    TooLong(u64),
    NotUtf8,
    Blank,
}

fn drain(lines: &mut LineDecoder, at_most: usize, seen: &mut Vec<Seen>) {
    for _ in 0..at_most {
        match lines.next_line() {
            Some(InputLine::Line(line)) => seen.push(Seen::Line(line.to_owned())),
            Some(InputLine::TooLong { bytes, .. }) => seen.push(Seen::TooLong(bytes)),
            Some(InputLine::NotUtf8 { .. }) => seen.push(Seen::NotUtf8),
            Some(InputLine::Blank) => seen.push(Seen::Blank),
            None => return,
        }
    }
}

/// The same by the shortest way, with everything in memory.
fn all_at_once(input: &[u8]) -> Vec<Seen> {
    let input = input.strip_suffix(b"\n").unwrap_or(input);
    let mut seen = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        seen.push(match std::str::from_utf8(line) {
            _ if line.len() > LIMIT => Seen::TooLong(line.len() as u64),
            Ok(text) if text.chars().all(|c| " \t\r".contains(c)) => Seen::Blank,
            Ok(text) => Seen::Line(text.to_owned()),
            Err(_) => Seen::NotUtf8,
        });
    }
    seen
}

/// Bytes in which line ends, blanks and broken characters are frequent.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(select(b"\n\n\n\r\r \tabc\xc3\xa9\xff".as_slice()), 1..200)
}

fn valid_line() -> impl Strategy<Value = String> {
    let member = select(vec![
        r#""id":1"#,
        r#""id": "\u0061""#,
        r#""id":null"#,
        r#""id":-9"#,
        r#""method":"session/update""#,
        r#""method" : "\u0061""#,
        r#""params":{"id":1,"n":1.50}"#,
        r#""result":{"id":[1e400]}"#,
        r#""result":null"#,
        r#""error":null"#,
        r#""error":{"code":-1,"message":"m"}"#,
        r#""x-trace":[ "é" ]"#,
        r#""\ud800": 18446744073709551616"#,
    ]);
    prop::collection::vec(member, 0..5).prop_map(|mut members| {
        members.push(r#""jsonrpc":"2.0""#);
        format!(" {{{}}} ", members.join(" , "))
    })
}

/// A line with some characters taken out, put in or doubled.
fn mutated_line() -> impl Strategy<Value = String> {
    let edit =
        (any::<Index>(), select(vec!["", "\"", "{", "}", "[", ",", ":", "\\", "0", "é", "\u{0}", " "]));
    (valid_line(), any::<bool>(), prop::collection::vec(edit, 0..6)).prop_map(|(line, in_batch, edits)| {
        let mut chars: Vec<String> = line.chars().map(String::from).collect();
        for (place, text) in edits {
            let place = place.index(chars.len());
            text.clone_into(&mut chars[place]);
        }
        let line = chars.concat();
        if in_batch { format!("[{line},{line}]") } else { line }
    })
}

fn check_message(message: &Message<'_>) {
    for id in [RequestId::from(u64::MAX), RequestId::from("a\"é"), RequestId::null()] {
        let relayed = message.with_id(&id);
        let Ok(Incoming::One(again)) = parse(&relayed, Batches::Refuse) else {
            panic!("{relayed} is not a message, but {} is", message.text())
        };
        assert_eq!(again.id().map(RequestId::as_literal), message.id().map(|_| id.as_literal()));
        assert_eq!(again.method(), message.method());
        assert_eq!(payload(&again), payload(message));
        let texts = |of: &Message<'_>| -> Vec<String> {
            of.extra.iter().map(|(name, value)| format!("{}:{}", name.as_str(), value.as_str())).collect()
        };
        assert_eq!(texts(&again), texts(message));
        let own = message.id().cloned().unwrap_or_else(RequestId::null);
        assert_eq!(again.with_id(&own), message.text());
    }
}

fn payload(message: &Message<'_>) -> (u8, Option<String>) {
    match &message.body {
        Body::Request { params, .. } => (0, params.map(|raw| raw.as_str().to_owned())),
        Body::Notification { params, .. } => (1, params.map(|raw| raw.as_str().to_owned())),
        Body::Response { outcome: Outcome::Result(result), .. } => (2, Some(result.as_str().to_owned())),
        Body::Response { outcome: Outcome::Error(error), .. } => (3, Some(error.as_str().to_owned())),
    }
}

fn check_malformed(malformed: &Malformed) {
    assert!(malformed.excerpt.chars().count() <= 80);
    assert!([-32700, -32600].contains(&malformed.code()));
    assert!(!malformed.reason.to_string().is_empty(), "{malformed:?}");
    let Some(answer) = malformed.response() else { return };
    assert!(!answer.contains(['\n', '\r']));
    let Ok(Incoming::One(answer)) = parse(&answer, Batches::Refuse) else { panic!("{answer}") };
    assert!(matches!(answer.body, Body::Response { outcome: Outcome::Error(_), .. }));
    let id = answer.id().unwrap();
    assert!(id.is_null() || Some(id) == malformed.id.as_ref());
}

/// Parses with both policies and checks what came out; says whether there was any message.
fn check_line(line: &str) -> bool {
    let mut messages = 0;
    for batches in [Batches::Accept, Batches::Refuse] {
        let items = match parse(line, batches) {
            Ok(Incoming::One(message)) => vec![Ok(message)],
            Ok(Incoming::Batch(items)) => {
                assert_eq!(batches, Batches::Accept);
                items
            }
            Err(malformed) => vec![Err(malformed)],
        };
        for item in &items {
            match item {
                Ok(message) => {
                    check_message(message);
                    messages += 1;
                }
                Err(malformed) => check_malformed(malformed),
            }
        }
    }
    messages > 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn lines_do_not_depend_on_how_the_input_is_split(
        input in bytes(),
        steps in prop::collection::vec((0..20_usize, 0..4_usize), 0..40),
    ) {
        let mut lines = LineDecoder::new(LIMIT);
        let mut seen = Vec::new();
        let mut rest = input.as_slice();
        for (length, taken) in steps {
            let (part, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            lines.extend(part);
            drain(&mut lines, taken, &mut seen);
        }
        lines.extend(rest);
        lines.finish();
        drain(&mut lines, usize::MAX, &mut seen);
        prop_assert_eq!(seen, all_at_once(&input));
    }

    #[test]
    fn memory_stays_within_the_limit_and_one_read(
        reads in prop::collection::vec((bytes(), any::<bool>()), 1..40),
        limit in 0..400_usize,
    ) {
        let mut lines = LineDecoder::new(limit);
        for (mut read, without_end) in reads {
            if without_end {
                read.retain(|byte| *byte != b'\n');
            }
            lines.extend(&read);
            // A `\r` that may belong to the line end is waited with.
            prop_assert!(lines.memory() <= limit + 1 + 200, "{} for {limit}", lines.memory());
            drain(&mut lines, usize::MAX, &mut Vec::new());
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        check_line(&text);
    }

    #[test]
    fn mutated_lines_keep_the_guarantees(line in mutated_line()) {
        check_line(&line);
    }

    #[test]
    fn a_line_of_known_members_is_a_message_or_malformed(line in valid_line()) {
        check_line(&line);
    }
}

/// The properties above say nothing if their lines are hardly ever messages.
#[test]
fn generated_lines_are_often_messages() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let messages =
        (0..1000).filter(|_| check_line(&mutated_line().new_tree(&mut runner).unwrap().current())).count();
    assert!((50..950).contains(&messages), "{messages} of 1000");
}
