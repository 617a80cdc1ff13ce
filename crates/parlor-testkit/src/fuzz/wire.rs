//! Any bytes as JSON-RPC lines.

use parlor_json::JsonRef;
use parlor_wire::{
    Batches, Body, EXCERPT_CHARS, Incoming, InputLine, LineDecoder, Malformed, Message, Outcome, RequestId,
    parse,
};

/// A line without its borrow.
#[derive(Debug, PartialEq)]
enum Seen {
    Line(String),
    Broken(Malformed),
}

/// Cuts bytes into lines in two ways and parses them with both batch policies.
///
/// The first two bytes choose the sizes of the reads and the line limit.
pub fn check(data: &[u8]) {
    let [size, limit, input @ ..] = data else { return };
    let limit = if *limit < 64 { usize::from(*limit) } else { 1 << 20 };

    let lines = read(input, usize::MAX, limit);
    assert_eq!(lines, read(input, 1 + usize::from(*size), limit), "reads of another size gave other lines");
    assert_eq!(lines.len(), count_lines(input));
    for line in &lines {
        match line {
            Seen::Line(line) => check_line(line),
            Seen::Broken(malformed) => check_malformed(malformed),
        }
    }
}

fn read(input: &[u8], size: usize, limit: usize) -> Vec<Seen> {
    let mut lines = LineDecoder::new(limit);
    let mut seen = Vec::new();
    for part in input.chunks(size) {
        lines.extend(part);
        let one_read = size.min(input.len());
        assert!(lines.memory() <= limit + 1 + one_read, "{} bytes held", lines.memory());
        take_all(&mut lines, &mut seen);
    }
    lines.finish();
    take_all(&mut lines, &mut seen);
    seen
}

fn take_all(lines: &mut LineDecoder, seen: &mut Vec<Seen>) {
    while let Some(frame) = lines.next_line() {
        if let InputLine::Line(line) = &frame {
            assert!(!line.contains('\n'));
        }
        seen.push(match frame.line() {
            Ok(line) => Seen::Line(line.to_owned()),
            Err(malformed) => Seen::Broken(malformed),
        });
    }
}

fn count_lines(input: &[u8]) -> usize {
    input.split_inclusive(|byte| *byte == b'\n').count()
}

fn check_line(line: &str) {
    for batches in [Batches::Accept, Batches::Refuse] {
        match parse(line, batches) {
            Ok(Incoming::One(message)) => check_message(&message),
            Ok(Incoming::Batch(items)) => {
                assert_eq!(batches, Batches::Accept);
                for item in &items {
                    match item {
                        Ok(message) => check_message(message),
                        Err(malformed) => check_malformed(malformed),
                    }
                }
            }
            Err(malformed) => check_malformed(&malformed),
        }
    }
}

/// Another id changes nothing else, and the old one put back gives the old text.
fn check_message(message: &Message<'_>) {
    let id = RequestId::from("another \"id\"");
    let relayed = message.with_id(&id);
    let Ok(Incoming::One(again)) = parse(&relayed, Batches::Refuse) else { panic!("no message: {relayed}") };
    assert_eq!(again.id(), message.id().map(|_| &id));
    assert_eq!(again.method(), message.method());
    assert_eq!(payload(&again), payload(message));
    assert_eq!(again.extra.len(), message.extra.len());
    for (one, other) in again.extra.iter().zip(&message.extra) {
        assert_eq!((one.0.as_str(), one.1.as_str()), (other.0.as_str(), other.1.as_str()));
    }
    match message.id() {
        Some(old) => assert_eq!(again.with_id(old), message.text()),
        None => assert_eq!(relayed, message.text()),
    }
}

fn payload<'a>(message: &Message<'a>) -> Option<&'a str> {
    match &message.body {
        Body::Request { params, .. } | Body::Notification { params, .. } => params.map(JsonRef::as_str),
        Body::Response { outcome: Outcome::Result(raw) | Outcome::Error(raw), .. } => Some(raw.as_str()),
    }
}

fn check_malformed(malformed: &Malformed) {
    assert!(malformed.excerpt.chars().count() <= EXCERPT_CHARS);
    assert_eq!(malformed.response().is_some(), malformed.needs_response());
    let Some(answer) = malformed.response() else { return };
    assert!(!answer.contains('\n'));
    serde_json::from_str::<serde_json::Value>(&answer).expect("an answer is JSON");
    let Ok(Incoming::One(message)) = parse(&answer, Batches::Refuse) else { panic!("no message: {answer}") };
    assert!(matches!(message.body, Body::Response { outcome: Outcome::Error(_), .. }));
}
