//! Parsing lines, as tables of lines and messages.

use std::fmt::Write;

use parlor_json::{JsonRef, Type};
use parlor_wire::{
    Batches, Body, Incoming, InvalidId, MAX_BATCH, Malformed, Message, Outcome, Reason, RequestId, code,
    parse,
};

fn one(line: &str) -> Result<Message<'_>, Malformed> {
    match parse(line, Batches::Refuse)? {
        Incoming::One(message) => Ok(message),
        Incoming::Batch(_) => panic!("a batch: {line}"),
    }
}

fn batch(line: &str) -> Vec<Result<Message<'_>, Malformed>> {
    match parse(line, Batches::Accept).unwrap() {
        Incoming::Batch(items) => items,
        Incoming::One(_) => panic!("not a batch: {line}"),
    }
}

/// A message in one line of text: its kind, id, method and payload.
fn describe(message: &Message<'_>) -> String {
    let text = |params: Option<JsonRef<'_>>| params.map_or("-", JsonRef::as_str).to_owned();
    let mut said = match &message.body {
        Body::Request { id, method, params } => format!("request {id} {method} {}", text(*params)),
        Body::Notification { method, params } => format!("notification {method} {}", text(*params)),
        Body::Response { id, outcome: Outcome::Result(result) } => format!("result {id} {}", result.as_str()),
        Body::Response { id, outcome: Outcome::Error(error) } => format!("error {id} {}", error.as_str()),
    };
    for (name, value) in &message.extra {
        write!(said, " +{}={}", name.as_str(), value.as_str()).unwrap();
    }
    said
}

#[test]
fn messages_keep_their_payload_unchanged() {
    for (line, meaning) in [
        (r#"{"jsonrpc":"2.0","id":0,"method":"a"}"#, "request 0 a -"),
        (r#"{"jsonrpc":"2.0","id":"0","method":"a","params":{"n": 1.50}}"#, r#"request "0" a {"n": 1.50}"#),
        (
            r#"{"method":"a","params":[1, 2],"id":18446744073709551615,"jsonrpc":"2.0"}"#,
            "request 18446744073709551615 a [1, 2]",
        ),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "request null a -"),
        (r#"{"jsonrpc":"2.0","method":"_x/\u0061\/","params":null}"#, "notification _x/a/ null"),
        (r#"{"jsonrpc":"2.0","method":"\ud800"}"#, "notification \u{fffd} -"),
        (r#"{"jsonrpc":"2.0","method":""}"#, "notification  -"),
        (r#"{"jsonrpc":"2.0","method":"a","result":null,"error":null}"#, "notification a -"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":1e400}}"#, r#"result 1 {"a":1e400}"#),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "result 1 null"),
        (r#"{"jsonrpc":"2.0","id":1,"result":3,"error":null}"#, "result 1 3"),
        (r#"{"jsonrpc":"2.0","id":1,"error":null,"result":null}"#, "result 1 null"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1}}"#, r#"error 1 {"code":1}"#),
        (r#"{"jsonrpc":"2.0","id":null,"error":"broken"}"#, r#"error null "broken""#),
        (r#"{"jsonrpc":"\u0032.0","\u0069d":"\u0061","\u006dethod":"m"}"#, r#"request "\u0061" m -"#),
        (
            r#"{"z":1.0,"jsonrpc":"2.0","x":{"id":9},"id":1,"result":0,"z":2,"\ud800":[]}"#,
            r#"result 1 0 +"z"=1.0 +"x"={"id":9} +"z"=2 +"\ud800"=[]"#,
        ),
        (" \t{ \"jsonrpc\" :\n\"2.0\" , \"method\" : \"a\" }\r\n", "notification a -"),
    ] {
        let message = one(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(describe(&message), meaning, "{line}");
        assert_eq!(message.text(), line);
    }
}

/// Each line, what is wrong, the id that was read, and the id of the answer, if one is due.
#[test]
fn a_malformed_line_has_a_reason_and_may_need_a_response() {
    let rows: &[(&str, Reason, Option<&str>, Option<&str>)] = &[
        ("", Reason::Blank, None, None),
        (" \t\r\n ", Reason::Blank, None, None),
        ("1", Reason::NotAMessage(Type::Number), None, Some("null")),
        ("null", Reason::NotAMessage(Type::Null), None, Some("null")),
        ("[]", Reason::BatchRefused, None, Some("null")),
        (r#"{"method":"a","id":1}"#, Reason::Version, Some("1"), Some("1")),
        (r#"{"jsonrpc":"1.0","method":"a"}"#, Reason::Version, None, Some("null")),
        (r#"{"jsonrpc":2.0,"method":"a"}"#, Reason::Version, None, Some("null")),
        (r#"{"jsonrpc":{},"id":"x","params":[]}"#, Reason::Version, Some(r#""x""#), Some(r#""x""#)),
        (r#"{"id":1,"result":{}}"#, Reason::Version, Some("1"), None),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Reason::Method(Type::Number), Some("1"), Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, Reason::Method(Type::Null), Some("1"), Some("1")),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#,
            Reason::Id(InvalidId::NotAnInteger),
            None,
            Some("null"),
        ),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, Reason::Id(InvalidId::Type(Type::Object)), None, None),
        (r#"{"jsonrpc":"2.0","result":1}"#, Reason::NoId, None, None),
        (r#"{"jsonrpc":"2.0","error":{"code":1}}"#, Reason::NoId, None, None),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#, Reason::ResultAndError, Some("1"), None),
        (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, Reason::NoMethodOrOutcome, Some("1"), None),
        (r#"{"jsonrpc":"2.0","id":1,"params":{}}"#, Reason::NoMethodOrOutcome, Some("1"), Some("1")),
        // It may be a response whose result was undefined, so its id must not come back.
        (r#"{"jsonrpc":"2.0","id":1}"#, Reason::NoMethodOrOutcome, Some("1"), Some("null")),
        ("{}", Reason::Version, None, Some("null")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#,
            Reason::MethodAndOutcome,
            Some("1"),
            Some("null"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","error":1}"#,
            Reason::MethodAndOutcome,
            Some("1"),
            Some("null"),
        ),
        (
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"a"}"#,
            Reason::DuplicateMember("jsonrpc"),
            Some("1"),
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"\u0069d":1,"method":"a"}"#,
            Reason::DuplicateMember("id"),
            None,
            Some("null"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
            Reason::DuplicateMember("method"),
            Some("1"),
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","method":"a","params":1,"params":2}"#,
            Reason::DuplicateMember("params"),
            None,
            Some("null"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"result":null}"#,
            Reason::DuplicateMember("result"),
            Some("1"),
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":null,"error":{}}"#,
            Reason::DuplicateMember("error"),
            Some("1"),
            None,
        ),
    ];
    for (line, reason, id, answer_to) in rows {
        let malformed = one(line).expect_err(line);
        assert_eq!(malformed.reason, *reason, "{line}");
        assert_eq!(malformed.id.as_ref().map(RequestId::as_literal), *id, "{line}");
        assert_eq!(malformed.excerpt, line.trim(), "{line}");
        assert_eq!(malformed.needs_response(), answer_to.is_some(), "{line}");
        let expected = if *reason == Reason::Blank { code::PARSE_ERROR } else { code::INVALID_REQUEST };
        assert_eq!(malformed.code(), expected, "{line}");
        let answer = malformed.response().map(|answer| describe(&one(&answer).unwrap()));
        let start = answer_to.map(|id| format!("error {id} {{\"code\":-32600,"));
        assert_eq!(answer.is_some(), start.is_some(), "{line}");
        assert!(answer.unwrap_or_default().starts_with(&start.unwrap_or_default()), "{line}");
    }
}

#[test]
fn text_that_is_not_json_gets_a_response_without_an_id() {
    for line in [
        "oops",
        "{",
        r#"{"jsonrpc":"2.0","id":1,"method":"a""#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a"} x"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a"}{}"#,
        r#"{jsonrpc:"2.0"}"#,
        r#"{"a":01}"#,
        r#"{"a":"\x"}"#,
        "{\"a\":\"\u{1}\"}",
        "[1,",
        "[1,]",
        "\u{feff}{}",
        "NaN",
    ] {
        for batches in [Batches::Accept, Batches::Refuse] {
            let malformed = parse(line, batches).expect_err(line);
            assert!(matches!(malformed.reason, Reason::NotJson(_)), "{line}: {malformed:?}");
            assert_eq!((malformed.code(), &malformed.id), (code::PARSE_ERROR, &None));
            let answer = malformed.response().unwrap();
            assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"#), "{answer}");
        }
    }
}

#[test]
fn an_error_response_has_the_reason_and_a_short_excerpt() {
    let line = format!(r#"{{"id":"q","method":"{}"}}"#, "é\\u0000".repeat(1_000_000));
    let malformed = one(&line).unwrap_err();
    assert_eq!(malformed.excerpt.chars().count(), 80);
    let excerpt = serde_json::to_string(&malformed.excerpt).unwrap();
    assert_eq!(
        malformed.response().unwrap(),
        format!(
            r#"{{"jsonrpc":"2.0","id":"q","error":{{"code":-32600,"message":"\"jsonrpc\" must be \"2.0\"","data":{{"excerpt":{excerpt}}}}}}}"#
        )
    );
}

#[test]
fn a_batch_is_parsed_if_batches_are_accepted() {
    let line =
        r#"[ {"jsonrpc":"2.0","id":1,"method":"a"} , 7, {"jsonrpc":"2.0","method":"b"},{"id":2}, [] ]"#;
    let items = batch(line);
    let said: Vec<_> = items
        .iter()
        .map(|item| match item {
            Ok(message) => describe(message),
            Err(malformed) => format!("{:?} {}", malformed.reason, malformed.excerpt),
        })
        .collect();
    assert_eq!(
        said,
        [
            "request 1 a -",
            "NotAMessage(Number) 7",
            "notification b -",
            r#"Version {"id":2}"#,
            "NotAMessage(Array) []",
        ]
    );
    let first = items[0].as_ref().unwrap();
    assert_eq!(first.text(), r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
    assert_eq!(first.with_id(&"x".into()), r#"{"jsonrpc":"2.0","id":"x","method":"a"}"#);
}

#[test]
fn a_batch_is_limited() {
    let of = |items: usize| format!("[{}]", vec!["1"; items].join(","));
    for (line, reason) in [
        (of(0), Some(Reason::BatchEmpty)),
        (of(1), None),
        (of(MAX_BATCH), None),
        (of(MAX_BATCH + 1), Some(Reason::BatchTooLong { items: MAX_BATCH + 1, limit: MAX_BATCH })),
        (of(100_000), Some(Reason::BatchTooLong { items: 100_000, limit: MAX_BATCH })),
    ] {
        let accepted = parse(&line, Batches::Accept).err();
        assert_eq!(accepted.as_ref().map(|malformed| malformed.reason.clone()), reason);
        for malformed in accepted.into_iter().chain(parse(&line, Batches::Refuse).err()) {
            assert_eq!(malformed.code(), code::INVALID_REQUEST);
            assert_eq!(malformed.response().map(|line| line.contains(r#""id":null"#)), Some(true));
        }
        assert_eq!(parse(&line, Batches::Refuse).unwrap_err().reason, Reason::BatchRefused);
    }
}

#[test]
fn with_id_changes_only_the_id() {
    for (line, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, r#"{"jsonrpc":"2.0","id":"new","method":"a"}"#),
        (r#"{"id":1,"jsonrpc":"2.0","method":"a"}"#, r#"{"id":"new","jsonrpc":"2.0","method":"a"}"#),
        (
            r#"{"method":"a","params":{"id":1},"jsonrpc":"2.0","id":1}"#,
            r#"{"method":"a","params":{"id":1},"jsonrpc":"2.0","id":"new"}"#,
        ),
        (
            "  { \"id\"\t:  null ,\r\n\"jsonrpc\" : \"2.0\", \"result\": [ 1.0 ] }  ",
            "  { \"id\"\t:  \"new\" ,\r\n\"jsonrpc\" : \"2.0\", \"result\": [ 1.0 ] }  ",
        ),
        (
            r#"{"x":"id","é":1e5,"jsonrpc":"2.0","\u0069d":"\u0061","result":1,"x":2}"#,
            r#"{"x":"id","é":1e5,"jsonrpc":"2.0","\u0069d":"new","result":1,"x":2}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"a","params":{"id":1}}"#,
            r#"{"jsonrpc":"2.0","method":"a","params":{"id":1}}"#,
        ),
    ] {
        let message = one(line).unwrap();
        assert_eq!(message.with_id(&"new".into()), expected);
        let own = message.id().cloned().unwrap_or_else(RequestId::null);
        assert_eq!(message.with_id(&own), line, "the id itself comes back byte for byte");
    }
}

#[test]
fn deeply_nested_payloads_do_not_overflow_the_stack() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(batch(&deep)[0].as_ref().unwrap_err().reason, Reason::NotAMessage(Type::Array));
    let line = format!(r#"{{"jsonrpc":"2.0","method":"a","params":{deep}}}"#);
    assert_eq!(one(&line).unwrap().params().unwrap().as_str(), deep);
    assert!(parse(&deep[..300_000], Batches::Accept).is_err());
}
