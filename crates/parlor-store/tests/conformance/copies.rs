//! Entries that were copied into another session, and what they share.

use parlor_store::{CopiedEntry, EntryRow, Store, Write};

use super::common::{all, append, copy, delete, entry, head, one, refused, session, write};

fn row(created: u64, seq: u64, head: &str, content: &str, inherited: usize) -> EntryRow {
    EntryRow { created, seq, head: head.to_owned(), content: content.to_owned(), inherited }
}

/// A session with two entries, the first of which had a later change, and another with copies of them.
fn fork(store: &dyn Store) {
    write(store, vec![session("old"), entry("old", 10, 10, "h1", "one"), entry("old", 11, 11, "h2", "two")]);
    write(store, vec![append("old", 10, 50, "1")]);
    write(store, vec![session("new"), copy("old", "new", &[(10, 1), (11, 2)])]);
}

fn original() -> [EntryRow; 2] {
    [row(10, 50, "h1", "one1", 0), row(11, 11, "h2", "two", 0)]
}

fn copied() -> [EntryRow; 2] {
    [row(1, 1, "h1", "one1", 4), row(2, 2, "h2", "two", 3)]
}

pub(crate) fn a_copy_has_what_was_there(store: &dyn Store) {
    fork(store);
    assert_eq!(all(store, "old"), original());
    assert_eq!(all(store, "new"), copied());
}

pub(crate) fn a_copy_may_have_another_head(store: &dyn Store) {
    fork(store);
    let entries = vec![CopiedEntry { from: 10, to: 7, head: Some("other".into()) }];
    write(store, vec![Write::Copy { from: "old".into(), to: "new".into(), entries }]);
    assert_eq!(one(store, "new", 7), row(7, 7, "other", "one1", 4));
    assert_eq!(all(store, "old"), original());
}

pub(crate) fn what_is_appended_to_a_copy_stays_there(store: &dyn Store) {
    fork(store);
    write(store, vec![append("new", 1, 3, "x"), append("new", 1, 4, "y")]);
    assert_eq!(one(store, "new", 1), row(1, 4, "h1", "one1xy", 4));
    assert_eq!(one(store, "new", 2), copied()[1]);
    assert_eq!(all(store, "old"), original());
    write(store, vec![append("old", 10, 51, "z")]);
    assert_eq!(one(store, "old", 10), row(10, 51, "h1", "one1z", 0));
    assert_eq!(one(store, "new", 1), row(1, 4, "h1", "one1xy", 4));
}

pub(crate) fn what_is_appended_to_the_original_stays_there(store: &dyn Store) {
    fork(store);
    write(store, vec![append("old", 10, 51, "x"), append("old", 11, 52, "y")]);
    assert_eq!(all(store, "old"), [row(10, 51, "h1", "one1x", 0), row(11, 52, "h2", "twoy", 0)]);
    assert_eq!(all(store, "new"), copied());
    // Now that nothing is shared any more.
    write(store, vec![append("new", 1, 3, "z")]);
    assert_eq!(one(store, "new", 1), row(1, 3, "h1", "one1z", 4));
}

pub(crate) fn replaced_content_stays_on_its_side(store: &dyn Store) {
    fork(store);
    write(store, vec![entry("new", 1, 3, "h3", "mine"), entry("old", 11, 51, "h4", "yours")]);
    assert_eq!(all(store, "new"), [row(1, 3, "h3", "mine", 0), copied()[1].clone()]);
    assert_eq!(all(store, "old"), [original()[0].clone(), row(11, 51, "h4", "yours", 0)]);
    write(store, vec![append("new", 1, 4, "!"), append("new", 2, 5, "!")]);
    assert_eq!(all(store, "new"), [row(1, 4, "h3", "mine!", 0), row(2, 5, "h2", "two!", 3)]);
    write(store, vec![entry("new", 2, 6, "h2", "")]);
    assert_eq!(one(store, "new", 2), row(2, 6, "h2", "", 0));
}

pub(crate) fn a_new_head_leaves_a_copy_what_it_is(store: &dyn Store) {
    fork(store);
    write(store, vec![head("new", 1, 3, "h3")]);
    assert_eq!(one(store, "new", 1), row(1, 3, "h3", "one1", 4));
    write(store, vec![append("new", 1, 4, "x"), head("new", 1, 5, "h4")]);
    assert_eq!(one(store, "new", 1), row(1, 5, "h4", "one1x", 4));
    assert_eq!(all(store, "old"), original());
}

pub(crate) fn numbers_of_the_other_session_do_not_count(store: &dyn Store) {
    fork(store);
    let changed = |since| {
        let entries = store.entries("new", since, 0, 99).unwrap();
        entries.iter().map(|entry| entry.created).collect::<Vec<_>>()
    };
    assert_eq!(changed(0), [1, 2]);
    assert_eq!(changed(1), [2]);
    assert!(changed(2).is_empty());
    write(store, vec![append("new", 1, 3, "x")]);
    assert_eq!(changed(2), [1]);
    assert!(changed(3).is_empty());
    // Nor do they when the other session is gone, and what was shared is now of this one alone.
    write(store, vec![delete("old"), append("new", 2, 4, "y")]);
    assert_eq!(changed(3), [2]);
    assert!(changed(4).is_empty());
}

pub(crate) fn a_copy_of_a_copy(store: &dyn Store) {
    fork(store);
    write(store, vec![append("new", 1, 3, "x")]);
    write(store, vec![session("third"), copy("new", "third", &[(1, 5), (2, 6)])]);
    let third = [row(5, 5, "h1", "one1x", 5), row(6, 6, "h2", "two", 3)];
    assert_eq!(all(store, "third"), third);
    write(store, vec![append("new", 1, 4, "y"), append("new", 2, 5, "y")]);
    assert_eq!(all(store, "third"), third);
    assert_eq!(all(store, "new"), [row(1, 4, "h1", "one1xy", 4), row(2, 5, "h2", "twoy", 3)]);
    write(store, vec![append("third", 6, 7, "z")]);
    assert_eq!(one(store, "third", 6), row(6, 7, "h2", "twoz", 3));
    assert_eq!(all(store, "old"), original());
    write(store, vec![delete("new"), delete("old")]);
    assert_eq!(all(store, "third"), [third[0].clone(), row(6, 7, "h2", "twoz", 3)]);
}

pub(crate) fn a_copy_outlives_the_original(store: &dyn Store) {
    fork(store);
    write(store, vec![delete("old")]);
    assert_eq!(all(store, "new"), copied());
    // What comes after must not take the place of what the copy uses.
    write(store, vec![session("old"), entry("old", 1, 1, "h", "fresh"), append("old", 1, 2, "er")]);
    assert_eq!(all(store, "new"), copied());
    write(store, vec![append("new", 1, 3, "x")]);
    assert_eq!(one(store, "new", 1), row(1, 3, "h1", "one1x", 4));
    assert_eq!(all(store, "old"), [row(1, 2, "h", "fresher", 0)]);
}

pub(crate) fn the_original_outlives_a_copy(store: &dyn Store) {
    fork(store);
    write(store, vec![delete("new")]);
    assert_eq!(all(store, "old"), original());
    write(store, vec![append("old", 10, 51, "x")]);
    assert_eq!(one(store, "old", 10), row(10, 51, "h1", "one1x", 0));
}

pub(crate) fn copies_in_one_session(store: &dyn Store) {
    fork(store);
    write(store, vec![copy("old", "old", &[(10, 60), (60, 61)])]);
    assert_eq!(one(store, "old", 60), row(60, 60, "h1", "one1", 4));
    write(store, vec![append("old", 60, 62, "x"), append("old", 10, 63, "y")]);
    assert_eq!(one(store, "old", 10), row(10, 63, "h1", "one1y", 0));
    assert_eq!(one(store, "old", 60), row(60, 62, "h1", "one1x", 4));
    assert_eq!(one(store, "old", 61), row(61, 61, "h1", "one1", 4));
    assert_eq!(all(store, "new"), copied());
    write(store, vec![delete("old")]);
    assert_eq!(all(store, "new"), copied());
}

pub(crate) fn an_empty_entry_is_copied(store: &dyn Store) {
    write(store, vec![session("old"), head("old", 1, 1, "h"), entry("old", 2, 2, "h", ""), append("old", 2, 9, "")]);
    write(store, vec![session("new"), copy("old", "new", &[(1, 1), (2, 2)])]);
    assert_eq!(all(store, "new"), [row(1, 1, "h", "", 0), row(2, 2, "h", "", 0)]);
    write(store, vec![append("new", 1, 3, "x"), append("new", 2, 4, ""), append("old", 1, 10, "y")]);
    assert_eq!(all(store, "new"), [row(1, 3, "h", "x", 0), row(2, 4, "h", "", 0)]);
    assert_eq!(all(store, "old"), [row(1, 10, "h", "y", 0), row(2, 9, "h", "", 0)]);
}

pub(crate) fn a_copy_needs_its_sessions_and_entries(store: &dyn Store) {
    fork(store);
    refused(store, vec![copy("missing", "new", &[])]);
    refused(store, vec![copy("old", "missing", &[])]);
    refused(store, vec![copy("old", "new", &[(12, 3)])]);
    refused(store, vec![copy("old", "new", &[(10, 0)])]);
    refused(store, vec![copy("old", "new", &[(10, 1 << 63)])]);
    refused(store, vec![copy("old", "new", &[(1 << 63, 5)])]);
    write(store, vec![copy("old", "new", &[])]);
    assert_eq!(all(store, "new"), copied());
}

pub(crate) fn a_copy_replaces_nothing(store: &dyn Store) {
    fork(store);
    refused(store, vec![copy("old", "new", &[(10, 2)])]);
    refused(store, vec![copy("old", "new", &[(10, 7), (11, 7)])]);
    assert_eq!(all(store, "new"), copied());
}

/// How many entries are copied at once, so that they are read and written in several parts.
const MANY: u64 = 700;

pub(crate) fn many_entries_are_copied_in_any_order(store: &dyn Store) {
    write(store, vec![session("old")]);
    let text = |n: u64| format!("text {n}");
    write(store, (1..=MANY).map(|n| entry("old", n * 3, n * 3, &format!("h{n}"), &text(n))).collect());
    let orders: [Vec<u64>; 4] = [
        (1..=MANY).collect(),
        (1..=MANY).rev().collect(),
        // Back and forth, and some twice.
        (1..=MANY).map(|n| n * 11 % MANY + 1).chain([5, 5, 6]).collect(),
        (1..=MANY).filter(|n| n % 50 == 0).collect(),
    ];
    for (n, order) in orders.iter().enumerate() {
        let id = n.to_string();
        let copied = order.iter().zip(1..).map(|(from, to)| {
            CopiedEntry { from: from * 3, to, head: (from % 10 == 0).then(|| format!("other {from}")) }
        });
        let writes = [Write::Copy { from: "old".into(), to: id.clone(), entries: copied.collect() }];
        write(store, [session(&id)].into_iter().chain(writes).collect());
        let expected = order.iter().zip(1..).map(|(from, to)| {
            let head = if from % 10 == 0 { format!("other {from}") } else { format!("h{from}") };
            row(to, to, &head, &text(*from), text(*from).len())
        });
        assert!(all(store, &id).into_iter().eq(expected), "order {n}");
    }
    // All of them are counted: what the others have stays when one goes.
    write(store, vec![delete("old"), delete("0"), delete("1"), delete("3")]);
    assert_eq!(one(store, "2", MANY + 2).content, text(5));
    write(store, vec![append("2", 1, MANY * 9, "!"), append("2", MANY + 2, MANY * 9, "?")]);
    assert_eq!(one(store, "2", MANY + 1).content, text(5));
    assert_eq!(one(store, "2", MANY + 2).content, text(5) + "?");
}

pub(crate) fn entries_with_long_heads_are_copied(store: &dyn Store) {
    let heads: Vec<_> = (0..40).map(|n| format!("{n} {}", "h".repeat(100_000))).collect();
    write(store, vec![session("old"), session("new")]);
    for (head, n) in heads.iter().zip(1..) {
        write(store, vec![entry("old", n, n, head, "t")]);
    }
    write(store, vec![copy("old", "new", &(1..=40).map(|n| (n, n)).collect::<Vec<_>>())]);
    assert!(all(store, "new").into_iter().map(|entry| entry.head).eq(heads));
}

pub(crate) fn many_copies_are_refused_for_one_of_them(store: &dyn Store) {
    write(store, vec![session("old"), session("new"), entry("new", 333, 333, "h", "here")]);
    write(store, (1..=MANY).filter(|n| *n != 444).map(|n| entry("old", n, n, "h", "t")).collect());
    let pairs = |range: std::ops::RangeInclusive<u64>| range.map(|n| (n, n)).collect::<Vec<_>>();
    refused(store, vec![copy("old", "new", &pairs(1..=443))]);
    refused(store, vec![copy("old", "new", &pairs(400..=MANY))]);
    assert_eq!(all(store, "new"), [row(333, 333, "h", "here", 0)]);
    write(store, vec![copy("old", "new", &pairs(1..=332)), copy("old", "new", &pairs(334..=443))]);
    assert_eq!(all(store, "new").len(), 443);
}
