//! What is found, and where.

use parlor_store::{Hit, Query, Search, SessionRow, Store, TITLE, IndexDocument, Write};

use super::common::{
    append, copy, delete, entry, head, hits, hits_of, refused, row, indexed_entry, session, index, write,
};

fn at(session: &str, created: u64) -> (String, u64) {
    (session.to_owned(), created)
}

#[track_caller]
fn found(store: &dyn Store, query: &str, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|(session, created)| at(session, *created)).collect();
    assert_eq!(hits(store, query), expected, "{query}");
}

fn search(query: &str) -> Search {
    Search { query: Query::parse(query), ..Search::default() }
}

/// A session of which each entry says one of the texts.
fn told(store: &dyn Store, id: &str, texts: &[&str]) {
    write(store, vec![session(id)]);
    write(store, texts.iter().zip(1..).flat_map(|(text, created)| indexed_entry(id, created, text)).collect());
}

pub(crate) fn what_was_said_is_found(store: &dyn Store) {
    told(store, "s", &["the first of all", "and the second"]);
    told(store, "t", &["another first"]);
    found(store, "first", &[("s", 1), ("t", 1)]);
    found(store, "second", &[("s", 2)]);
    found(store, "first all", &[("s", 1)]);
    found(store, "third", &[]);
    let hits = store.search(&search("second"), 0, 10).unwrap();
    assert_eq!(hits, [Hit { session: "s".into(), created: Some(2), kind: "user".into(), at: 2 }]);
}

pub(crate) fn a_query_is_taken_apart_alike_everywhere(store: &dyn Store) {
    let texts = [
        "Café naïve ÉTÉ",
        "foo_bar(baz); x = foo-bar",
        "私は東京に行く。",
        "a near b and or not",
        "prefix presto pre",
        "한국어 텍스트 हिन्दी",
        "nul \u{0} and \u{fffd} and 😀 emoji",
    ];
    told(store, "s", &texts);
    for query in [
        "cafe", "CAFÉ ete", "\"naive été\"", "\"été naive\"", "foo_bar", "foo-bar baz", "bar_foo", "東京", "京東", "東",
        "near", "NEAR(a b)", "a AND b", "or NOT", "pre*", "pre", "pre* -presto", "-pre", "\"a near b\" -xyz", "한국*",
        "हिन्दी", "nul and emoji", "\"and and\"", "{text}: x", "text : x", "*", "\"", "^foo", "foo + bar", "nul -emoji",
    ] {
        let parsed = Query::parse(query);
        let expected: Vec<_> = (1..)
            .zip(texts)
            .filter(|(_, text)| parsed.matches(text))
            .map(|(created, _)| at("s", created))
            .collect();
        assert_eq!(hits(store, query), expected, "{query}");
    }
}

pub(crate) fn any_query_is_answered(store: &dyn Store) {
    told(store, "s", &["needle in a haystack"]);
    let many: String = (0..10_000).map(|n| format!("w{n} ")).collect();
    for query in [
        "", " ", "\u{0}", "\"\"", "' OR 1=1 --", "%_*?[b]", "(((((", "AND", "NEAR(", "\u{fffd}", "-", "--", "-\"", "**",
        &"x".repeat(1 << 20), &"\"".repeat(10_001), &"-needle ".repeat(5000), &"(".repeat(100_000), &many,
    ] {
        assert_eq!(hits(store, query), [], "{query:.20}");
    }
    let repeated = "needle haystack ".repeat(50_000);
    found(store, &repeated, &[("s", 1)]);
}

pub(crate) fn a_replaced_content_is_not_found_by_its_old_words(store: &dyn Store) {
    told(store, "s", &["a secret", "nothing else"]);
    // The words are forgotten to be handed in.
    write(store, vec![entry("s", 1, 3, "h", "redacted")]);
    found(store, "secret", &[]);
    write(store, vec![index("s", 1, 3, "redacted")]);
    found(store, "redacted", &[("s", 1)]);
    found(store, "secret", &[]);
    found(store, "nothing", &[("s", 2)]);
    // A new head is no new content.
    write(store, vec![head("s", 1, 4, "other")]);
    found(store, "redacted", &[("s", 1)]);
}

pub(crate) fn what_is_appended_leaves_the_words_until_new_ones_come(store: &dyn Store) {
    told(store, "s", &["beginning"]);
    write(store, vec![append("s", 1, 2, " end")]);
    found(store, "beginning", &[("s", 1)]);
    found(store, "end", &[]);
    write(store, vec![index("s", 1, 2, "beginning end")]);
    found(store, "beginning end", &[("s", 1)]);
}

pub(crate) fn words_are_replaced_and_removed(store: &dyn Store) {
    told(store, "s", &["one"]);
    write(store, vec![index("s", 1, 1, "two")]);
    found(store, "one", &[]);
    found(store, "two", &[("s", 1)]);
    let none = |words| Write::Index { session: "s".into(), created: 1, seq: 1, document: words, only_missing: false };
    write(store, vec![none(None)]);
    found(store, "two", &[]);
    write(store, vec![index("s", 1, 1, "three"), index("s", 1, 1, " ...!")]);
    found(store, "three", &[]);
}

pub(crate) fn words_of_an_earlier_state_are_not_taken(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "a secret")]);
    write(store, vec![entry("s", 1, 2, "h", "redacted")]);
    write(store, vec![index("s", 1, 1, "a secret")]);
    found(store, "secret", &[]);
    write(store, vec![append("s", 1, 3, "more"), index("s", 1, 2, "redacted")]);
    found(store, "redacted", &[]);
    write(store, vec![index("s", 1, 3, "redacted more")]);
    found(store, "redacted", &[("s", 1)]);
    // In a copy the numbers are its own.
    write(store, vec![session("t"), copy("s", "t", &[(1, 7)])]);
    write(store, vec![index("t", 7, 6, "too early"), index("t", 7, 7, "in time")]);
    found(store, "early", &[]);
    found(store, "time", &[("t", 7)]);
}

pub(crate) fn words_that_are_there_may_stay(store: &dyn Store) {
    told(store, "s", &["one"]);
    write(store, vec![entry("s", 2, 2, "h", "two"), session("t"), copy("s", "t", &[(1, 1), (2, 2)])]);
    let missing = |id: &str, created, text: &str| {
        let words = IndexDocument { kind: "agent".into(), at: 9, text: text.into() };
        Write::Index { session: id.into(), created, seq: 9, document: Some(words), only_missing: true }
    };
    write(store, vec![missing("t", 1, "other"), missing("t", 2, "two"), missing("s", 2, "late")]);
    found(store, "one", &[("s", 1)]);
    found(store, "two", &[("t", 2)]);
    found(store, "other", &[]);
    found(store, "late", &[]);
}

/// A session of two entries, and two that were copied from it.
fn family(store: &dyn Store) {
    told(store, "old", &["shared words", "second thing"]);
    write(store, vec![session("fork"), copy("old", "fork", &[(1, 1), (2, 2)])]);
    write(store, vec![session("late"), copy("old", "late", &[(1, 1), (2, 2)])]);
}

pub(crate) fn a_copy_is_found_once_where_it_was_first(store: &dyn Store) {
    family(store);
    found(store, "shared", &[("old", 1)]);
    found(store, "second", &[("old", 2)]);
}

pub(crate) fn a_copy_is_found_when_the_first_is_gone(store: &dyn Store) {
    family(store);
    write(store, vec![delete("old")]);
    found(store, "shared", &[("fork", 1)]);
    found(store, "second", &[("fork", 2)]);
    write(store, vec![delete("fork")]);
    found(store, "shared", &[("late", 1)]);
    write(store, vec![delete("late")]);
    found(store, "shared", &[]);
    // What comes later has nothing to do with it.
    told(store, "new", &["other words"]);
    found(store, "words", &[("new", 1)]);
}

pub(crate) fn a_copy_is_found_when_the_first_is_replaced(store: &dyn Store) {
    family(store);
    write(store, vec![entry("old", 1, 3, "h", "redacted"), index("old", 1, 3, "redacted")]);
    found(store, "shared", &[("fork", 1)]);
    found(store, "redacted", &[("old", 1)]);
    write(store, vec![append("old", 2, 4, " more")]);
    found(store, "second", &[("fork", 2)]);
    write(store, vec![index("old", 2, 4, "second thing more")]);
    found(store, "second", &[("fork", 2), ("old", 2)]);
    // The other way round nothing moves.
    write(store, vec![entry("fork", 1, 3, "h", "gone")]);
    found(store, "shared", &[("late", 1)]);
    found(store, "redacted", &[("old", 1)]);
}

pub(crate) fn a_copy_that_is_changed_is_found_by_itself(store: &dyn Store) {
    family(store);
    write(store, vec![append("fork", 1, 3, " and more"), index("fork", 1, 3, "shared words and more")]);
    found(store, "shared", &[("fork", 1), ("old", 1)]);
    found(store, "more", &[("fork", 1)]);
    write(store, vec![delete("fork")]);
    found(store, "shared", &[("old", 1)]);
    found(store, "more", &[]);
}

pub(crate) fn words_of_a_copy_are_its_own(store: &dyn Store) {
    family(store);
    write(store, vec![index("fork", 1, 1, "changed")]);
    found(store, "changed", &[("fork", 1)]);
    found(store, "shared", &[("old", 1)]);
    write(store, vec![index("old", 2, 2, "changed too")]);
    found(store, "changed", &[("fork", 1), ("old", 2)]);
    found(store, "second", &[("fork", 2)]);
    // Only what it is found by is another.
    assert_eq!(store.entries("fork", 0, 0, usize::MAX).unwrap()[0].content, "shared words");
    assert_eq!(store.entries("fork", 0, 0, usize::MAX).unwrap()[0].inherited, 12);
    assert_eq!(store.entries("fork", 1, 0, 0).unwrap()[0].created, 2);
}

pub(crate) fn copies_of_copies_are_found_in_the_oldest_that_is_left(store: &dyn Store) {
    // The youngest copies to one that is older, and that to another: all are one family.
    write(store, vec![session("a"), session("b"), session("c"), session("z")]);
    write(store, indexed_entry("c", 5, "far away").into());
    write(store, vec![copy("c", "b", &[(5, 2)]), copy("b", "a", &[(2, 9), (2, 8)]), copy("b", "z", &[(2, 1)])]);
    found(store, "away", &[("c", 5)]);
    write(store, vec![delete("c")]);
    found(store, "away", &[("a", 8)]);
    write(store, vec![entry("a", 8, 10, "h", "")]);
    found(store, "away", &[("a", 9)]);
    write(store, vec![delete("a"), session("a")]);
    found(store, "away", &[("b", 2)]);
    // Two families become one.
    told(store, "x", &["of others"]);
    write(store, vec![session("y"), copy("x", "y", &[(1, 1)]), copy("x", "z", &[(1, 7)])]);
    write(store, vec![delete("x"), delete("b")]);
    found(store, "others", &[("z", 7)]);
    found(store, "away", &[("z", 1)]);
    write(store, vec![delete("z")]);
    found(store, "others", &[("y", 1)]);
    found(store, "away", &[]);
}

pub(crate) fn a_deleted_session_is_not_found(store: &dyn Store) {
    write(store, vec![titled("s", "some title")]);
    write(store, indexed_entry("s", 1, "some words").into());
    found(store, "some", &[("s", 0), ("s", 1)]);
    write(store, vec![delete("s")]);
    found(store, "some", &[]);
    write(store, vec![session("s"), entry("s", 1, 1, "h", "some words")]);
    found(store, "some", &[]);
}

fn titled(id: &str, title: &str) -> Write {
    Write::Session(SessionRow { title: Some(format!("\"{title}\"")), active_at: 7, ..row(id) })
}

pub(crate) fn a_session_is_found_by_its_title(store: &dyn Store) {
    write(store, vec![titled("s", r"Fix the \u00e9clair \ud83d oven"), titled("t", "Eclairs")]);
    found(store, "eclair", &[("s", 0)]);
    let hits = store.search(&search("oven"), 0, 1).unwrap();
    assert_eq!(hits, [Hit { session: "s".into(), created: None, kind: TITLE.into(), at: 7 }]);
    write(store, vec![titled("s", "Another one")]);
    found(store, "eclair*", &[("t", 0)]);
    found(store, "another", &[("s", 0)]);
    // A row that is written again with the same title.
    let again = SessionRow { active_at: 9, title: Some("\"Another one\"".into()), ..row("s") };
    write(store, vec![Write::Session(again)]);
    assert_eq!(store.search(&search("another"), 0, 1).unwrap()[0].at, 9);
    assert_eq!(store.search(&Search { since: Some(10), ..search("another") }, 0, 1).unwrap(), []);
    found(store, "another", &[("s", 0)]);
    write(store, vec![session("s")]);
    found(store, "another", &[]);
    write(store, vec![titled("u", "not \\u0000 \\n JSON"), Write::Session(SessionRow { title: Some("bare".into()), ..row("v") })]);
    found(store, "json", &[("u", 0)]);
    found(store, "bare", &[]);
}

pub(crate) fn each_filter_keeps_what_it_says(store: &dyn Store) {
    for (id, agent, cwd) in [("a", "x", "/one"), ("b", "y", "/one"), ("c", "x", "/two")] {
        write(store, vec![Write::Session(SessionRow { agent: agent.into(), cwd: cwd.into(), ..row(id) })]);
        for (created, kind) in [(1, "user"), (2, "agent")] {
            let words = IndexDocument { kind: kind.into(), at: i64::try_from(created).unwrap() * 10, text: "word".into() };
            write(store, vec![
                entry(id, created, created, "h", "word"),
                Write::Index { session: id.into(), created, seq: created, document: Some(words), only_missing: false },
            ]);
        }
    }
    let some = |text: &str| Some(text.to_owned());
    let word = || search("word");
    for (search, expected) in [
        (word(), vec![("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]),
        (Search { kind: some("user"), ..word() }, vec![("a", 1), ("b", 1), ("c", 1)]),
        (Search { kind: some("nothing"), ..word() }, vec![]),
        (Search { agent: some("x"), ..word() }, vec![("a", 1), ("a", 2), ("c", 1), ("c", 2)]),
        (Search { cwd: some("/one"), agent: some("x"), ..word() }, vec![("a", 1), ("a", 2)]),
        (Search { session: some("b"), since: Some(20), ..word() }, vec![("b", 2)]),
        (Search { session: some("nowhere"), ..word() }, vec![]),
        (Search { since: Some(21), ..word() }, vec![]),
        (Search { since: Some(i64::MIN), kind: some("agent"), ..word() }, vec![("a", 2), ("b", 2), ("c", 2)]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|(session, created)| at(session, created)).collect();
        assert_eq!(hits_of(store, &search), expected, "{search:?}");
    }
}

pub(crate) fn the_best_come_first(store: &dyn Store) {
    told(store, "s", &[
        "rare in a long text that speaks of this and that and of many other things",
        "rare rare",
        "common common common",
        "common thing and no other",
        "rare common",
        "something else", "and else", "or else", "what else",
    ]);
    let order = |query: &str| -> Vec<u64> {
        let hits = store.search(&search(query), 0, 10).unwrap();
        hits.into_iter().map(|hit| hit.created.unwrap()).collect()
    };
    assert_eq!(order("rare"), [2, 5, 1]);
    assert_eq!(order("common"), [3, 5, 4]);
}

pub(crate) fn pages_follow_each_other(store: &dyn Store) {
    let texts: Vec<_> = (0..25).map(|n| format!("word {}", "filler ".repeat(n))).collect();
    told(store, "s", &texts.iter().map(String::as_str).collect::<Vec<_>>());
    for filter in [None, Some("user".to_owned())] {
        let search = Search { kind: filter, ..search("word") };
        let all = store.search(&search, 0, 100).unwrap();
        assert_eq!(all.len(), 25);
        let mut pages = Vec::new();
        for offset in (0..).step_by(10) {
            let page = store.search(&search, offset, 10).unwrap();
            if page.is_empty() {
                break;
            }
            pages.extend(page);
        }
        assert_eq!(pages, all);
        assert_eq!(store.search(&search, 0, 0).unwrap(), []);
        assert_eq!(store.search(&search, usize::MAX, usize::MAX).unwrap(), []);
    }
}

pub(crate) fn words_need_their_entry(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    refused(store, vec![index("s", 2, 2, "x")]);
    refused(store, vec![index("nowhere", 1, 1, "x")]);
    for (created, seq) in [(0, 1), (1, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let (session, words) = ("s".into(), Some(IndexDocument { kind: "k".into(), at: 1, text: "x".into() }));
        refused(store, vec![Write::Index { session, created, seq, document: words, only_missing: false }]);
    }
    write(store, vec![Write::Indexed { session: "s".into() }, Write::Indexed { session: "nowhere".into() }]);
}

pub(crate) fn a_refused_batch_leaves_no_words(store: &dyn Store) {
    family(store);
    let mut writes: Vec<_> = indexed_entry("old", 9, "never said").into();
    writes.extend([entry("old", 1, 9, "h", "changed"), titled("old", "never"), delete("fork"), append("old", 99, 99, "")]);
    refused(store, writes);
    found(store, "never", &[]);
    found(store, "shared", &[("old", 1)]);
    write(store, vec![delete("old")]);
    found(store, "shared", &[("fork", 1)]);
}

pub(crate) fn nothing_is_unindexed_in_a_new_store(store: &dyn Store) {
    write(store, vec![session("s"), entry("s", 1, 1, "h", "x")]);
    assert_eq!(store.unindexed(10).unwrap(), Vec::<String>::new());
}
