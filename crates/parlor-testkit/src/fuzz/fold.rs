//! Any lines, folded in any dialect.

use parlor_dialect::{Dialect, Fold, LineProblem};
use parlor_session::{Entry, ReplayCursor, Slot, Transcript};

/// How long an update of a replay may be.
const MAX_UPDATE: usize = 1 << 20;

/// Folds lines in the dialect that the first byte chooses. A rejected line changes nothing, and a subscriber that catches up
/// now and then ends with the same transcript.
pub fn check(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let dialect = Dialect::ALL[usize::from(choice) % Dialect::ALL.len()];
    let text = String::from_utf8_lossy(rest);
    let mut fold = Fold::new(dialect);
    let (mut follower, mut has) = (Transcript::default(), 0);
    for (number, line) in text.lines().enumerate() {
        let before = fold.transcript().seq();
        let result = fold.line(line);
        let is_applied = matches!(result, Ok(()) | Err(LineProblem::Ignored(_) | LineProblem::Batch(_)));
        assert!(is_applied || fold.transcript().seq() == before, "a rejected line changed the transcript");
        if number % 3 == usize::from(choice) % 3 {
            catch_up(&mut follower, &mut has, fold.transcript());
        }
    }
    catch_up(&mut follower, &mut has, fold.transcript());
}

/// Applies a replay of what the follower lacks.
fn catch_up(follower: &mut Transcript, has: &mut u64, ahead: &Transcript) {
    let mut cursor = ReplayCursor::new(*has, ahead.seq());
    while let Some(update) = cursor.next(ahead, MAX_UPDATE) {
        follower.push(update).expect("a transcript accepts what another one replays");
    }
    *has = ahead.seq();
    assert_eq!(follower.entries().len(), ahead.entries().len(), "the replay has other entries");
    for (own, other) in follower.entries().iter().zip(ahead.entries()) {
        assert_eq!(own.id(), other.id());
        assert!(is_same(own, other), "the replay of {:?} differs", own.id());
    }
    for slot in Slot::ALL {
        let shown = |transcript: &Transcript| {
            transcript.slot(slot).map(|body| (body.fields.clone(), body.meta.clone().unwrap_or_default()))
        };
        assert_eq!(shown(follower), shown(ahead), "the replay of {slot:?} differs");
    }
    assert_eq!(follower.state(), ahead.state());
}

/// Whether two entries have the same state. A replay joins neighbouring blocks of text.
fn is_same(own: &Entry, other: &Entry) -> bool {
    let (own, other) = (own.body(), other.body());
    own.removed == other.removed
        && own.fields == other.fields
        && own.meta.clone().unwrap_or_default() == other.meta.clone().unwrap_or_default()
        && own.content.joined() == other.content.joined()
        && own.output == other.output
}
