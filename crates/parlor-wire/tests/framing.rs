//! Splitting bytes into lines.

use std::collections::BTreeSet;

use parlor_wire::{DEFAULT_LINE_LIMIT, InputLine, LineDecoder, Reason, RequestId, code};

/// Decodes bytes and describes each line.
fn decode(limit: usize, input: &[u8]) -> Vec<String> {
    let mut lines = LineDecoder::new(limit);
    lines.extend(input);
    lines.finish();
    let mut decoded = Vec::new();
    while let Some(line) = lines.next_line() {
        decoded.push(match line {
            InputLine::Line(line) => format!("line {line:?}"),
            InputLine::TooLong { bytes, limit } => format!("{bytes} over {limit}"),
            InputLine::NotUtf8 { excerpt } => format!("not text {excerpt:?}"),
            InputLine::Blank => "blank".to_owned(),
        });
    }
    decoded
}

#[test]
fn bytes_are_split_into_lines() {
    let rows: &[(&[u8], &[&str])] = &[
        (b"", &[]),
        (b"a\nb\n", &[r#"line "a""#, r#"line "b""#]),
        (b"a\r\nb\r\r\n c \n", &[r#"line "a""#, r#"line "b\r""#, r#"line " c ""#]),
        (b"a\rb", &[r#"line "a\rb""#]),
        (b"a\nlast", &[r#"line "a""#, r#"line "last""#]),
        (b"last\r", &[r#"line "last""#]),
        (b"\n\r\n \t\na", &["blank", "blank", "blank", r#"line "a""#]),
        ("é😀\n".as_bytes(), &[r#"line "é😀""#]),
        (b"a\xffb\nok\n", &[r#"not text "a�b""#, r#"line "ok""#]),
        // Exactly the limit, with each line end and without one.
        (b"12345678\n12345678\r\n12345678", &[r#"line "12345678""#; 3]),
        (b"123456789\n12345678\rx\nok", &["9 over 8", "10 over 8", r#"line "ok""#]),
        (b"123456789\r\n\nok", &["9 over 8", "blank", r#"line "ok""#]),
        (b"123456789", &["9 over 8"]),
        (b"12345678\r\r\n", &["9 over 8"]),
        (b"         \n", &["9 over 8"]),
    ];
    for (input, expected) in rows {
        assert_eq!(decode(8, input), *expected, "{}", input.escape_ascii());
    }
}

#[test]
fn a_line_over_the_limit_is_discarded_and_reported_once() {
    const LIMIT: usize = 100_000;
    const READ: usize = 8192;
    let mut lines = LineDecoder::new(LIMIT);
    let mut most = 0;
    for _ in 0..1000 {
        lines.extend(&[b'x'; READ]);
        most = most.max(lines.memory());
        assert_eq!(lines.next_line(), None);
    }
    assert!(most <= LIMIT + READ, "{most} bytes were held");
    lines.extend(b"\nnext\n");
    assert_eq!(lines.next_line(), Some(InputLine::TooLong { bytes: 1000 * READ as u64, limit: LIMIT }));
    assert_eq!(lines.next_line(), Some(InputLine::Line("next")));
    assert_eq!(lines.next_line(), None);
}

#[test]
fn memory_is_freed_after_a_long_line() {
    let mut lines = LineDecoder::default();
    for _ in 0..1000 {
        lines.extend(&[b'x'; 10_000]);
        assert_eq!(lines.next_line(), None);
    }
    assert!(lines.memory() >= 10_000_000);
    lines.extend(b"\nshort");
    assert!(matches!(lines.next_line(), Some(InputLine::Line(line)) if line.len() == 10_000_000));
    assert_eq!(lines.next_line(), None);
    assert!(lines.memory() <= 64 * 1024, "{} bytes are still held", lines.memory());
    lines.finish();
    assert_eq!(lines.next_line(), Some(InputLine::Line("short")));
}

/// Searching each byte again with each read, or moving all that waits with each line, would take minutes.
#[test]
fn decoding_takes_linear_time() {
    let mut lines = LineDecoder::new(DEFAULT_LINE_LIMIT);
    let mut sizes = BTreeSet::new();
    for _ in 0..1_000_000 {
        lines.extend(b"0123456789abcdef");
        assert_eq!(lines.next_line(), None);
        sizes.insert(lines.memory());
    }
    assert!(sizes.len() < 30, "the buffer moved {} times", sizes.len());
    lines.finish();
    assert!(matches!(lines.next_line(), Some(InputLine::Line(line)) if line.len() == 16_000_000));

    lines.extend(&b"a\n".repeat(4_000_000));
    for _ in 0..4_000_000 {
        assert_eq!(lines.next_line(), Some(InputLine::Line("a")));
        lines.extend(b"b\n");
    }
    assert!(lines.memory() <= 32_000_000, "{} bytes are held for 8 MB of lines", lines.memory());
}

#[test]
fn finish_adds_no_line_if_none_is_incomplete() {
    let mut lines = LineDecoder::new(8);
    lines.finish();
    assert_eq!(lines.next_line(), None);
    lines.extend(b"a\nb");
    lines.finish();
    lines.finish();
    assert_eq!(lines.next_line(), Some(InputLine::Line("a")));
    lines.finish();
    assert_eq!(lines.next_line(), Some(InputLine::Line("b")));
    lines.finish();
    assert_eq!(lines.next_line(), None);
}

#[test]
fn an_unusable_line_is_a_malformed_message() {
    let answer = |frame: InputLine<'_>| {
        let malformed = frame.line().unwrap_err();
        assert_eq!(malformed.id, None::<RequestId>);
        (malformed.code(), malformed.response())
    };
    assert_eq!(InputLine::Line("a").line().unwrap(), "a");
    assert_eq!(answer(InputLine::Blank), (code::PARSE_ERROR, None));
    assert_eq!(
        answer(InputLine::TooLong { bytes: 9, limit: 8 }),
        (
            code::INVALID_REQUEST,
            Some(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"line of 9 bytes is longer than the limit of 8"}}"#.to_owned())
        )
    );
    let not_text = InputLine::NotUtf8 { excerpt: "a�".to_owned() };
    assert_eq!(not_text.clone().line().unwrap_err().reason, Reason::NotUtf8);
    assert_eq!(
        answer(not_text),
        (
            code::PARSE_ERROR,
            Some(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not UTF-8","data":{"excerpt":"a�"}}}"#.to_owned())
        )
    );
}
