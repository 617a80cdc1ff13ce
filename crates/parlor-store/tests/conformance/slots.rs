//! What a session has once.

use parlor_store::{SlotRow, Store};

use super::common::{HARD, refused, session, slot, write};

fn row(name: &str, seq: u64, body: &str) -> SlotRow {
    SlotRow { name: name.to_owned(), seq, body: body.to_owned() }
}

pub(crate) fn slots_are_read_by_name(store: &dyn Store) {
    write(store, vec![session("s"), session("t"), slot("t", "a", 9, Some("other"))]);
    write(store, vec![slot("s", "b", 1, Some("1")), slot("s", "a", 2, Some("2"))]);
    assert_eq!(store.slots("s", 0).unwrap(), [row("a", 2, "2"), row("b", 1, "1")]);
    assert!(store.slots("missing", 0).unwrap().is_empty());
}

pub(crate) fn a_slot_is_replaced_or_removed(store: &dyn Store) {
    write(store, vec![session("s"), slot("s", "a", 1, Some("1")), slot("s", "b", 1, Some("1"))]);
    write(store, vec![slot("s", "a", 2, Some("2")), slot("s", "b", 3, None), slot("s", "never was", 4, None)]);
    assert_eq!(store.slots("s", 0).unwrap(), [row("a", 2, "2")]);
}

pub(crate) fn slots_that_changed_after_a_number(store: &dyn Store) {
    write(store, vec![session("s"), slot("s", "a", 1, Some("")), slot("s", "b", 2, Some(""))]);
    assert_eq!(store.slots("s", 1).unwrap(), [row("b", 2, "")]);
    assert!(store.slots("s", 2).unwrap().is_empty());
    assert!(store.slots("s", u64::MAX).unwrap().is_empty());
}

pub(crate) fn hard_texts_are_kept(store: &dyn Store) {
    write(store, vec![session("s")]);
    HARD.iter().for_each(|text| write(store, vec![slot("s", text, 1, Some(text))]));
    let mut sorted = HARD.to_vec();
    sorted.sort_unstable();
    let rows: Vec<_> = sorted.into_iter().map(|text| row(text, 1, text)).collect();
    assert_eq!(store.slots("s", 0).unwrap(), rows);
}

pub(crate) fn a_slot_needs_its_session(store: &dyn Store) {
    refused(store, vec![slot("s", "a", 1, Some(""))]);
    refused(store, vec![slot("s", "a", 1, None)]);
    write(store, vec![session("s")]);
    refused(store, vec![slot("s", "a", 0, Some(""))]);
    refused(store, vec![slot("s", "a", 1 << 63, Some(""))]);
    assert!(store.slots("s", 0).unwrap().is_empty());
}
