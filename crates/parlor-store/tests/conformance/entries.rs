//! Entries and their content.

use parlor_store::{EntryRow, Store};

use super::common::{HARD, all, append, entry, head, one, refused, session, write};

fn row(created: u64, seq: u64, head: &str, content: &str) -> EntryRow {
    EntryRow { created, seq, head: head.to_owned(), content: content.to_owned(), inherited: 0 }
}

/// The changes that made the entries that are read.
fn read(store: &dyn Store, since: u64, after: u64, bytes: usize) -> Vec<u64> {
    store.entries("s", since, after, bytes).unwrap().iter().map(|entry| entry.created).collect()
}

pub(crate) fn entries_are_read_in_the_order_of_creation(store: &dyn Store) {
    write(store, vec![session("s"), session("t"), entry("t", 3, 3, "other", "other")]);
    write(store, vec![entry("s", 7, 7, "h7", "c7"), entry("s", 2, 9, "h2", "c2"), entry("s", 300, 300, "h", "")]);
    assert_eq!(all(store, "s"), [row(2, 9, "h2", "c2"), row(7, 7, "h7", "c7"), row(300, 300, "h", "")]);
    assert!(all(store, "missing").is_empty());
}

pub(crate) fn an_entry_without_content_has_an_empty_one(store: &dyn Store) {
    write(store, vec![session("s"), head("s", 1, 1, "h")]);
    assert_eq!(all(store, "s"), [row(1, 1, "h", "")]);
    write(store, vec![append("s", 1, 2, "more")]);
    assert_eq!(all(store, "s"), [row(1, 2, "h", "more")]);
}

pub(crate) fn a_head_is_replaced_and_the_content_stays(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "old", "c"), append("s", 1, 2, "d")]);
    write(store, vec![head("s", 1, 3, "new")]);
    assert_eq!(all(store, "s"), [row(1, 3, "new", "cd")]);
    write(store, vec![append("s", 1, 4, "e")]);
    assert_eq!(all(store, "s"), [row(1, 4, "new", "cde")]);
}

pub(crate) fn content_is_replaced(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "old"), append("s", 1, 2, "er")]);
    write(store, vec![entry("s", 1, 3, "h", "new"), append("s", 1, 4, "er")]);
    assert_eq!(all(store, "s"), [row(1, 4, "h", "newer")]);
    write(store, vec![entry("s", 1, 5, "h", "")]);
    assert_eq!(all(store, "s"), [row(1, 5, "h", "")]);
}

pub(crate) fn content_grows(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "a"), entry("s", 2, 2, "h", "")]);
    write(store, vec![append("s", 1, 3, "b"), append("s", 2, 4, "x")]);
    write(store, vec![append("s", 1, 5, ""), append("s", 2, 6, "y"), append("s", 1, 7, "c")]);
    assert_eq!(all(store, "s"), [row(1, 7, "h", "abc"), row(2, 6, "h", "xy")]);
    // One that adds nothing is a change all the same.
    write(store, vec![append("s", 1, 8, "")]);
    assert_eq!(one(store, "s", 1), row(1, 8, "h", "abc"));
}

pub(crate) fn hard_texts_are_kept(store: &dyn Store) {
    for text in HARD {
        write(store, vec![session(text), entry(text, 1, 1, text, text)]);
        HARD.iter().for_each(|more| write(store, vec![append(text, 1, 2, more)]));
        assert_eq!(all(store, text), [row(1, 2, text, &format!("{text}{}", HARD.concat()))]);
    }
}

pub(crate) fn a_long_content_is_kept(store: &dyn Store) {
    // Characters of three bytes, so that no round number of bytes is a place between two.
    let long = "€ürü".repeat(800_000);
    write(store, vec![session("s"), entry("s", 1, 1, "h", &long), entry("s", 2, 2, &long, "short")]);
    write(store, vec![append("s", 1, 3, &long), append("s", 1, 4, "end")]);
    assert_eq!(one(store, "s", 1).content, format!("{long}{long}end"));
    assert_eq!(one(store, "s", 2), row(2, 2, &long, "short"));
}

pub(crate) fn characters_of_any_length_are_kept_at_any_place(store: &dyn Store) {
    write(store, vec![session("s")]);
    for shift in 0..4 {
        let text = format!("{}{}", "x".repeat((1 << 20) - shift), "😀é€x".repeat(3));
        write(store, vec![entry("s", 1, 1, "h", &text)]);
        assert_eq!(one(store, "s", 1).content, text);
    }
}

pub(crate) fn many_appends_are_the_text_they_are(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "start"), entry("s", 2, 2, "h", "")]);
    let mut texts = ["start".to_owned(), String::new()];
    let mut seq = 2;
    let long = "l".repeat(20_000);
    for n in 0..60 {
        let mut batch = Vec::new();
        for m in 0..50 {
            seq += 1;
            let which = usize::from(m % 3 == 0);
            let text = if (n * m) % 97 == 96 { long.clone() } else { format!("{n}.{m},") };
            batch.push(append("s", which as u64 + 1, seq, &text));
            texts[which] += &text;
        }
        write(store, batch);
        let read = all(store, "s");
        assert!(read[0].content == texts[0] && read[1].content == texts[1], "after {seq} changes");
        assert_eq!(read[0].seq.max(read[1].seq), seq);
    }
}

pub(crate) fn entries_that_changed_after_a_number(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "c"), entry("s", 2, 2, "h", ""), head("s", 3, 3, "h")]);
    assert_eq!(read(store, 0, 0, 99), [1, 2, 3]);
    assert_eq!(read(store, 1, 0, 99), [2, 3]);
    assert_eq!(read(store, 3, 0, 99), [0; 0]);
    write(store, vec![append("s", 1, 4, "d")]);
    assert_eq!(read(store, 3, 0, 99), [1]);
    assert_eq!(read(store, 2, 0, 99), [1, 3]);
    write(store, vec![head("s", 2, 5, "h")]);
    assert_eq!(read(store, 3, 0, 99), [1, 2]);
    assert_eq!(read(store, 4, 0, 99), [2]);
    write(store, vec![entry("s", 3, 6, "h", "c")]);
    assert_eq!(read(store, 5, 0, 99), [3]);
    assert_eq!(read(store, 3, 1, 99), [2, 3]);
    assert_eq!(read(store, u64::MAX, 0, 99), [0; 0]);
    assert_eq!(read(store, 0, u64::MAX, 99), [0; 0]);
}

pub(crate) fn an_earlier_number_does_not_turn_back(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 5, "h", "a"), append("s", 1, 9, "b"), append("s", 1, 7, "c")]);
    assert_eq!(all(store, "s"), [row(1, 9, "h", "abc")]);
    write(store, vec![head("s", 1, 6, "i")]);
    assert_eq!(all(store, "s"), [row(1, 9, "i", "abc")]);
    write(store, vec![entry("s", 1, 6, "j", "new"), append("s", 1, 8, "er")]);
    assert_eq!(all(store, "s"), [row(1, 9, "j", "newer")]);
}

pub(crate) fn pages_are_as_long_as_bytes_allow(store: &dyn Store) {
    write(store, vec![session("s")]);
    // Ten bytes each, in the head, in the content or in both.
    for n in 1..=6 {
        let head = "h".repeat([10, 4, 0][(n % 3) as usize]);
        write(store, vec![entry("s", n, n, &head, &"c".repeat(10 - head.len()))]);
    }
    assert_eq!(read(store, 0, 0, 60), [1, 2, 3, 4, 5, 6]);
    assert_eq!(read(store, 0, 0, 59), [1, 2, 3, 4, 5]);
    assert_eq!(read(store, 0, 0, 20), [1, 2]);
    assert_eq!(read(store, 0, 0, 19), [1]);
    // At least one.
    assert_eq!(read(store, 0, 0, 0), [1]);
    assert_eq!(read(store, 0, 1, 9), [2]);
    assert_eq!(read(store, 3, 1, 25), [4, 5]);
    assert_eq!(read(store, 0, 6, 99), [0; 0]);
    // A long one neither comes with the one before it nor keeps those after it away.
    write(store, vec![append("s", 3, 7, &"x".repeat(1000))]);
    assert_eq!(read(store, 0, 0, 100), [1, 2]);
    assert_eq!(read(store, 0, 2, 100), [3]);
    assert_eq!(read(store, 0, 3, 100), [4, 5, 6]);
}

pub(crate) fn pages_count_empty_entries_as_nothing(store: &dyn Store) {
    write(store, vec![session("s"), head("s", 1, 1, ""), entry("s", 2, 2, "ab", "c"), head("s", 3, 3, "")]);
    assert_eq!(read(store, 0, 0, 0), [1]);
    assert_eq!(read(store, 0, 0, 2), [1]);
    assert_eq!(read(store, 0, 0, 3), [1, 2, 3]);
    // The one that did not fit ends its page.
    assert_eq!(read(store, 0, 1, 2), [2]);
}

pub(crate) fn writes_need_their_session_and_appends_their_entry(store: &dyn Store) {
    refused(store, vec![entry("s", 1, 1, "h", "c")]);
    refused(store, vec![head("s", 1, 1, "h")]);
    refused(store, vec![append("s", 1, 1, "c")]);
    write(store, vec![session("s"), session("t"), entry("t", 1, 1, "h", "c")]);
    refused(store, vec![append("s", 1, 1, "c")]);
    assert!(all(store, "s").is_empty());
    assert_eq!(all(store, "t"), [row(1, 1, "h", "c")]);
}

pub(crate) fn numbers_have_limits(store: &dyn Store) {
    const LAST: u64 = i64::MAX as u64;
    write(store, vec![session("s"), entry("s", LAST, LAST, "h", "c"), append("s", LAST, LAST, "d")]);
    assert_eq!(all(store, "s"), [row(LAST, LAST, "h", "cd")]);
    for number in [0, LAST + 1, u64::MAX] {
        refused(store, vec![entry("s", number, 1, "h", "c")]);
        refused(store, vec![entry("s", 1, number, "h", "c")]);
        refused(store, vec![head("s", number, 1, "h")]);
        refused(store, vec![append("s", LAST, number, "c")]);
        refused(store, vec![append("s", number, 1, "c")]);
    }
    assert_eq!(all(store, "s"), [row(LAST, LAST, "h", "cd")]);
}
