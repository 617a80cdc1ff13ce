//! Any lines of both sides, translated between any dialects.

use parlor_dialect::{Dialect, Recorded, Side, Translator};
use parlor_wire::{Incoming, parse};

/// Translates lines of both sides between the dialects that the first byte chooses. Every line that comes out is one message.
pub fn check(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let dialect = |number: u8| Dialect::ALL[usize::from(number) % Dialect::ALL.len()];
    let (from, to) = (dialect(choice), dialect(choice / 3));
    let (mut translator, ways) = match choice / 9 % 3 {
        0 => (Translator::relay(from, to), [to, from]),
        1 => (Translator::record(from, to), [to, to]),
        _ => (Translator::one_sided(from, to), [to, to]),
    };
    let text = String::from_utf8_lossy(rest);
    for line in text.lines() {
        let Some(recorded) = Recorded::read(line) else { continue };
        let by = recorded.from.unwrap_or(Side::Agent);
        let Ok(translation) = translator.line(by, recorded.message) else { continue };
        for line in &translation.lines {
            let dialect = if line.by == Side::Agent { ways[0] } else { ways[1] };
            let same = from == to;
            match parse(&line.text, dialect.batches()) {
                Ok(Incoming::One(_)) => {}
                Ok(Incoming::Batch(_)) => assert!(same, "a batch came out: {}", line.text),
                Err(malformed) => panic!("{malformed:?}: {}", line.text),
            }
        }
    }
}
