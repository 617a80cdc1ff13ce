//! Values that belong to no session.

use parlor_store::Store;

use super::common::{HARD, value, write};

pub(crate) fn a_value_is_kept_replaced_and_removed(store: &dyn Store) {
    assert_eq!(store.value("k").unwrap(), None);
    write(store, vec![value("k", Some("1")), value("l", Some("2"))]);
    assert_eq!(store.value("k").unwrap().as_deref(), Some("1"));
    write(store, vec![value("k", Some("3"))]);
    assert_eq!(store.value("k").unwrap().as_deref(), Some("3"));
    write(store, vec![value("k", None), value("never was", None)]);
    assert_eq!(store.value("k").unwrap(), None);
    assert_eq!(store.value("l").unwrap().as_deref(), Some("2"));
}

pub(crate) fn hard_texts_are_kept(store: &dyn Store) {
    HARD.iter().for_each(|text| write(store, vec![value(text, Some(text))]));
    for text in HARD {
        assert_eq!(store.value(text).unwrap().as_deref(), Some(*text));
    }
}
