//! Any lines, folded in any dialect: no panic, nothing changed by what is refused, and whoever catches up
//! from any point ends with the same transcript.

#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_dialect::{Dialect, Fold, LineProblem, view};
use parlor_session::Transcript;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let dialect = Dialect::ALL[usize::from(choice) % Dialect::ALL.len()];
    let text = String::from_utf8_lossy(rest);
    let mut fold = Fold::new(dialect);
    let mut follower = Transcript::default();
    for (number, line) in text.lines().enumerate() {
        let before = fold.transcript().seq();
        let taken = fold.line(line);
        let took_some = matches!(taken, Ok(()) | Err(LineProblem::Ignored(_) | LineProblem::Batch(_)));
        assert!(took_some || fold.transcript().seq() == before, "a refused line changed something");
        if number % 3 == usize::from(choice) % 3 {
            catch_up(&mut follower, fold.transcript());
        }
    }
    catch_up(&mut follower, fold.transcript());
    assert!(parlor_json::JsonRef::parse(view::transcript(fold.transcript()).as_str()).is_ok());
});

fn catch_up(follower: &mut Transcript, ahead: &Transcript) {
    for change in ahead.changes_since(follower.seq()) {
        follower.apply(&change).expect("what one transcript took, another takes");
    }
    assert!(*follower == *ahead, "catching up ends elsewhere");
}
