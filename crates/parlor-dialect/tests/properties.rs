//! What holds for any sequence of updates in any dialect.

mod common;

use parlor_dialect::{Dialect, Fold, LineProblem, view};
use parlor_session::Transcript;
use proptest::prelude::*;
use serde_json::{Value, json};

use common::{dialect, updates};

fn fold(dialect: Dialect, updates: &[Value]) -> Fold {
    let mut fold = Fold::new(dialect);
    updates.iter().for_each(|update| drop(fold.line(&update.to_string())));
    fold
}

proptest! {
    #[test]
    fn changes_since_n_applied_to_the_state_at_n_give_the_state_now(
        dialect in dialect(), updates in updates(), cut in any::<prop::sample::Index>()
    ) {
        let cut = cut.index(updates.len() + 1);
        let then = fold(dialect, &updates[..cut]).transcript().clone();
        let now = fold(dialect, &updates);
        let mut caught_up = then.clone();
        for change in now.transcript().changes_since(then.seq()) {
            caught_up.apply(&change).unwrap();
        }
        prop_assert_eq!(&caught_up, now.transcript());
    }

    #[test]
    fn one_by_one_and_in_any_batches_are_the_same(
        dialect in dialect(), updates in updates(), batches in prop::collection::vec(1..8_usize, 1..20)
    ) {
        // A second transcript that hears of changes only in batches, as one that reads slowly does.
        let mut fold = Fold::new(dialect);
        let mut follower = Transcript::default();
        let mut sizes = batches.iter().cycle();
        let mut rest = &updates[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            batch.iter().for_each(|update| drop(fold.line(&update.to_string())));
            let news: Vec<_> = fold.transcript().changes_since(follower.seq()).collect();
            news.iter().for_each(|change| follower.apply(change).unwrap());
            rest = later;
        }
        prop_assert_eq!(&follower, fold.transcript());
    }

    #[test]
    fn replaying_the_snapshot_gives_the_same_state(dialect in dialect(), updates in updates()) {
        let fold = fold(dialect, &updates);
        let mut again = Transcript::default();
        fold.transcript().changes_since(0).for_each(|change| again.apply(&change).unwrap());
        prop_assert_eq!(&again, fold.transcript());
        prop_assert_eq!(view::transcript(&again), view::transcript(fold.transcript()));
    }

    #[test]
    fn the_counter_moves_by_one_for_each_update_taken_and_not_for_one_refused(
        dialect in dialect(), updates in updates()
    ) {
        let mut fold = Fold::new(dialect);
        for update in &updates {
            let before = fold.transcript().clone();
            match fold.line(&update.to_string()) {
                Ok(()) | Err(LineProblem::Ignored(_)) => prop_assert_eq!(fold.transcript().seq(), before.seq() + 1),
                Err(_) => prop_assert_eq!(fold.transcript(), &before),
            }
        }
    }

    #[test]
    fn a_line_means_the_same_however_it_is_written(dialect in dialect(), updates in updates()) {
        // Compact lines are read in one pass; these are not: members in another order, white space, a batch
        // where the dialect takes one.
        let (open, close) = if dialect == Dialect::V1 { ("", "") } else { ("[ ", " ]") };
        let bare = fold(dialect, &updates);
        let (mut compact, mut odd) = (Fold::new(dialect), Fold::new(dialect));
        for update in &updates {
            let params = json!({ "sessionId": "s", "update": update });
            drop(compact.line(&format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#)));
            let odd_line = format!(
                r#"{open}{{ "params" : {params}, "x": 1, "method" : "session/update","jsonrpc":"2.0" }}{close}"#
            );
            drop(odd.line(&odd_line));
        }
        prop_assert_eq!(bare.transcript(), compact.transcript());
        prop_assert_eq!(bare.transcript(), odd.transcript());
    }

    #[test]
    fn no_line_panics(dialect in dialect(), updates in updates(), damage in prop::collection::vec((any::<prop::sample::Index>(), ".?"), 1..5)) {
        let mut fold = Fold::new(dialect);
        for update in &updates {
            let mut line: Vec<char> = update.to_string().chars().collect();
            for (place, text) in &damage {
                let place = place.index(line.len());
                line.splice(place..=place, text.chars());
            }
            drop(fold.line(&line.into_iter().collect::<String>()));
        }
        view::transcript(fold.transcript());
    }
}
