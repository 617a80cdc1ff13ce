//! Batches: whole or not at all, in order.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use parlor_store::{Batch, Store};

use super::common::{
    all, append, copy, delete, entry, head, one, refused, row, session, slot, try_batch, value, write,
};

pub(crate) fn a_batch_is_taken_in_its_order(store: &dyn Store) {
    write(
        store,
        vec![
            session("s"),
            entry("s", 1, 1, "h", "gone"),
            delete("s"),
            session("s"),
            entry("s", 2, 2, "h", "a"),
            append("s", 2, 3, "b"),
            copy("s", "s", &[(2, 4)]),
            append("s", 2, 5, "c"),
            value("k", Some("1")),
            value("k", Some("2")),
        ],
    );
    let texts: Vec<_> = all(store, "s").into_iter().map(|entry| (entry.created, entry.content)).collect();
    assert_eq!(texts, [(2, "abc".to_owned()), (4, "ab".to_owned())]);
    assert_eq!(store.value("k").unwrap().as_deref(), Some("2"));
    // What was there before counts only until it is deleted.
    refused(store, vec![delete("s"), append("s", 2, 6, "d")]);
    refused(store, vec![delete("s"), session("s"), append("s", 2, 6, "d")]);
    assert_eq!(one(store, "s", 2).content, "abc");
}

pub(crate) fn a_batch_is_taken_as_a_whole_or_not_at_all(store: &dyn Store) {
    write(store, vec![session("s"), slot("s", "n", 1, Some("b")), entry("s", 2, 2, "h", "c"), value("k", Some("v"))]);
    let state = |store: &dyn Store| {
        (store.session("s"), store.session("t"), store.slots("s", 0), all(store, "s"), store.value("k"))
    };
    let before = state(store);
    let bad = append("s", 99, 9, "no such entry");
    for writes in [
        vec![session("t"), bad.clone()],
        vec![slot("s", "n", 3, Some("x")), slot("s", "m", 3, Some("x")), bad.clone()],
        vec![slot("s", "n", 3, None), bad.clone()],
        vec![entry("s", 2, 3, "x", "x"), entry("s", 3, 3, "x", "x"), bad.clone()],
        vec![head("s", 2, 3, "x"), append("s", 2, 4, "x"), bad.clone()],
        vec![copy("s", "s", &[(2, 5)]), append("s", 5, 6, "x"), bad.clone()],
        vec![delete("s"), bad.clone()],
        vec![delete("s"), session("s"), bad.clone()],
        vec![value("k", None), value("l", Some("x")), bad],
    ] {
        refused(store, writes);
        assert_eq!(state(store), before);
        assert_eq!(store.value("l").unwrap(), None);
    }
    // And all goes on from what was there.
    write(store, vec![append("s", 2, 3, "d"), slot("s", "n", 4, Some("e"))]);
    assert_eq!(one(store, "s", 2).content, "cd");
}

pub(crate) fn a_refused_copy_leaves_nothing(store: &dyn Store) {
    write(store, vec![session("s"), session("t"), entry("s", 1, 1, "h", "c")]);
    refused(store, vec![copy("s", "t", &[(1, 1), (2, 2)])]);
    assert!(all(store, "t").is_empty());
    write(store, vec![append("s", 1, 2, "d")]);
    assert_eq!(one(store, "s", 1).content, "cd");
}

pub(crate) fn batches_are_taken_in_the_order_of_the_calls(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (sender, done) = mpsc::channel::<()>();
    for n in 0..3000_u64 {
        let (order, sender) = (Arc::clone(&order), sender.clone());
        // Every seventh is refused, and its neighbours are not.
        let created = if n % 7 == 3 { 99 } else { 1 };
        let batch = Batch { writes: vec![append("s", created, n + 2, &format!("{n},"))], durable: false };
        store.write(
            batch,
            Box::new(move |result| {
                assert_eq!(result.is_err(), n % 7 == 3);
                order.lock().unwrap().push(n);
                drop(sender);
            }),
        );
    }
    drop(sender);
    done.recv().unwrap_err();
    assert!(order.lock().unwrap().iter().copied().eq(0..3000));
    let text: String = (0..3000).filter(|n| n % 7 != 3).map(|n| format!("{n},")).collect();
    assert!(one(store, "s", 1).content == text);
}

pub(crate) fn an_empty_batch_is_done(store: &dyn Store) {
    write(store, Vec::new());
    try_batch(store, Batch { writes: Vec::new(), durable: true }).unwrap();
}

pub(crate) fn durable_and_other_batches_mix(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    for n in 0..20 {
        try_batch(store, Batch { writes: vec![append("s", 1, n + 2, "x")], durable: n % 3 == 0 }).unwrap();
        assert_eq!(one(store, "s", 1).seq, n + 2);
    }
    assert_eq!(one(store, "s", 1).content.len(), 20);
}

pub(crate) fn what_was_reported_as_done_can_be_read(store: &dyn Store) {
    for n in 0..50 {
        let id = n.to_string();
        assert_eq!(store.session(&id).unwrap(), None);
        write(store, vec![session(&id)]);
        assert_eq!(store.session(&id).unwrap(), Some(row(&id)));
        write(store, vec![delete(&id)]);
        assert_eq!(store.session(&id).unwrap(), None);
    }
}

pub(crate) fn many_threads_write_at_once(store: &dyn Store) {
    thread::scope(|scope| {
        for n in 0..8 {
            scope.spawn(move || {
                let id = format!("s{n}");
                write(store, vec![session(&id), entry(&id, 1, 1, "h", "")]);
                for seq in 2..52 {
                    write(store, vec![append(&id, 1, seq, "x")]);
                    let entry = one(store, &id, 1);
                    assert_eq!((entry.seq, entry.content.len() as u64), (seq, seq - 1));
                }
            });
        }
    });
}
