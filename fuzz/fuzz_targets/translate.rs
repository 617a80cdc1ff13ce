//! Any lines from both sides, between any dialects: no panic, and every line that comes out is one message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_dialect::{Dialect, Recorded, Side, Translator};
use parlor_wire::{Incoming, parse};

fuzz_target!(|data: &[u8]| {
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
        for said in &translation.lines {
            let heard_in = if said.by == Side::Agent { ways[0] } else { ways[1] };
            let same = from == to;
            match parse(&said.text, heard_in.batches()) {
                Ok(Incoming::One(_)) => {}
                Ok(Incoming::Batch(_)) => assert!(same, "a batch came out: {}", said.text),
                Err(malformed) => panic!("{malformed:?}: {}", said.text),
            }
        }
    }
});
