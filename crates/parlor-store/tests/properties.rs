//! Any sequence of writes gives the same reads from every store.

mod common;

use std::path::Path;

use parlor_store::{
    Batch, CopiedEntry, Cursor, Filter, IndexDocument, MemoryStore, Query, Search, SessionRow, SqliteStore,
    Store, Write,
};
use proptest::prelude::*;

use common::{HARD, append, row, try_batch};

const SESSIONS: [&str; 4] = ["\"a\"", r#""\u0000""#, r#""\ud83d""#, ""];

fn id() -> impl Strategy<Value = String> {
    prop::sample::select(&SESSIONS[..]).prop_map(str::to_owned)
}

/// Few numbers, so that they meet; now and then one that is refused.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 1..6_u64, 1 => Just(0), 1 => Just(u64::MAX)]
}

fn text() -> impl Strategy<Value = String> {
    let long = (10_000..70_000_usize).prop_map(|length| "é".repeat(length));
    prop_oneof![10 => prop::sample::select(HARD).prop_map(str::to_owned), 10 => "[a-z]{0,8}", 1 => long]
}

fn session() -> impl Strategy<Value = SessionRow> {
    let flags = (any::<bool>(), any::<bool>());
    let title = prop::option::of("\"[ab]( é)?\"|a|\"\\\\ud83d b\"");
    (id(), "[xy]", prop::option::of("[xy]"), "[xy]", 0..3_i64, flags, text(), title).prop_map(
        |(id, agent, agent_session, cwd, active_at, (archived, busy), data, title)| SessionRow {
            title,
            agent,
            agent_session,
            cwd,
            active_at,
            archived,
            busy,
            data,
            ..row(&id)
        },
    )
}

fn copied() -> impl Strategy<Value = CopiedEntry> {
    (number(), 1..40_u64, prop::option::of(text())).prop_map(|(from, to, head)| CopiedEntry {
        from,
        to,
        head,
    })
}

/// Few words, so that a query finds some.
fn found() -> impl Strategy<Value = IndexDocument> {
    ("[uv]", 0..4_i64, "([abé] ?){0,4}|[*\"(]|東京").prop_map(|(kind, at, text)| IndexDocument {
        kind,
        at,
        text,
    })
}

fn one_write() -> impl Strategy<Value = Write> {
    prop_oneof![
        4 => session().prop_map(Write::Session),
        2 => (id(), "[ab]", number(), prop::option::of(text()))
            .prop_map(|(session, name, seq, body)| Write::Slot { session, name, seq, body }),
        8 => (id(), number(), number(), text(), prop::option::of(text())).prop_map(
            |(session, created, seq, head, content)| Write::Entry { session, created, seq, head, content }
        ),
        12 => (id(), number(), number(), text())
            .prop_map(|(session, created, seq, content)| Write::Append { session, created, seq, content }),
        4 => (id(), id(), prop::collection::vec(copied(), 0..3))
            .prop_map(|(from, to, entries)| Write::Copy { from, to, entries }),
        6 => (id(), number(), number(), prop::option::weighted(0.9, found()), any::<bool>()).prop_map(
            |(session, created, seq, words, only_missing)| Write::Index { session, created, seq, document: words, only_missing }
        ),
        1 => id().prop_map(|session| Write::Indexed { session }),
        1 => id().prop_map(|session| Write::Delete { session }),
        1 => ("[ab]", prop::option::of(text())).prop_map(|(key, value)| Write::Value { key, value }),
    ]
}

/// Batches, after one that makes the sessions: without them most would be refused.
fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = (prop::collection::vec(one_write(), 1..4), prop::bool::weighted(0.1))
        .prop_map(|(writes, durable)| Batch { writes, durable });
    // As many pieces as a stream brings, so that they are put together.
    let stream = (id(), 1..6_u64, 100..600_u64).prop_map(|(id, created, pieces)| Batch {
        writes: (1..=pieces).map(|n| append(&id, created, 5, &format!("{n},"))).collect(),
        durable: false,
    });
    prop::collection::vec(prop_oneof![15 => batch, 1 => stream], 1..40).prop_map(|mut batches| {
        let writes = SESSIONS.iter().map(|id| Write::Session(row(id))).collect();
        batches.insert(0, Batch { writes, durable: false });
        batches
    })
}

/// Everything that can be read, and some of it in other ways.
fn reads(store: &dyn Store) -> impl PartialEq + std::fmt::Debug + use<> {
    let sessions: Vec<_> = SESSIONS
        .iter()
        .map(|id| {
            let since: Vec<_> =
                (0..7).map(|since| store.entries(id, since, 0, usize::MAX).unwrap()).collect();
            let pages: Vec<_> = (0..7).map(|n| store.entries(id, 0, n, 10).unwrap()).collect();
            let slots: Vec<_> = (0..7).map(|since| store.slots(id, since).unwrap()).collect();
            (store.session(id).unwrap(), since, pages, slots)
        })
        .collect();
    let mut lists = Vec::new();
    for agent in [None, Some("x".to_owned())] {
        for archived in [None, Some(true), Some(false)] {
            for busy in [None, Some(true)] {
                let filter = Filter { agent: agent.clone(), archived, busy, ..Filter::default() };
                let after = Cursor { active_at: 1, id: SESSIONS[1].to_owned() };
                lists.push(store.sessions(&filter, None, 3).unwrap());
                lists.push(store.sessions(&filter, Some(&after), 3).unwrap());
            }
        }
    }
    (sessions, lists, found_by(store), store.value("a").unwrap(), store.value("b").unwrap())
}

/// What is found. The order of equals is each store's own.
fn found_by(store: &dyn Store) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for query in ["a", "b e", "\"a b\"", "ab*", "a -e", "京", "é*"] {
        let search = || Search { query: Query::parse(query), ..Search::default() };
        for search in [
            search(),
            Search { kind: Some("u".to_owned()), since: Some(2), ..search() },
            Search { agent: Some("x".to_owned()), cwd: Some("y".to_owned()), ..search() },
            Search { session: Some(SESSIONS[1].to_owned()), ..search() },
        ] {
            let hits = store.search(&search, 0, usize::MAX).unwrap();
            let mut hits: Vec<_> = hits.iter().map(|hit| format!("{hit:?}")).collect();
            hits.sort_unstable();
            all.push(hits);
        }
    }
    all
}

/// Whether each content is shared by as many entries as is written, each segment belongs to some, and what is found is
/// there.
fn counts_are_right(path: &Path) -> bool {
    let conn = rusqlite::Connection::open(path).unwrap();
    let wrong = "
        WITH counted AS (SELECT content, count(*) AS entries FROM entries GROUP BY content)
        SELECT content FROM counted LEFT JOIN shared USING (content)
            WHERE counted.entries <> coalesce(shared.entries, 1)
        UNION ALL SELECT content FROM shared WHERE content NOT IN (SELECT content FROM counted)
        UNION ALL SELECT key >> 20 FROM segments WHERE key >> 20 NOT IN (SELECT content FROM counted)
        UNION ALL SELECT w.content FROM words AS w LEFT JOIN entries AS e USING (session, created)
            WHERE w.content > 0 AND w.content IS NOT e.content
        UNION ALL SELECT content FROM words WHERE content < 0 AND -content NOT IN (SELECT key FROM sessions)
        UNION ALL SELECT id FROM word_index_docsize WHERE id NOT IN (SELECT content FROM words)
        UNION ALL SELECT content FROM words WHERE content NOT IN (SELECT content FROM indexed_texts)
        UNION ALL SELECT content FROM indexed_texts WHERE content NOT IN (SELECT id FROM word_index_docsize)
        UNION ALL SELECT session FROM families WHERE session NOT IN (SELECT key FROM sessions)";
    !conn.prepare(wrong).unwrap().exists([]).unwrap()
}

/// Whether the index has exactly the words of the texts that are in it, each in its place.
fn index_is_right(path: &Path) -> bool {
    let conn = rusqlite::Connection::open(path).unwrap();
    let check = "CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, word_index, instance);
        INSERT INTO word_index (word_index) VALUES ('integrity-check');";
    conn.execute_batch(check).unwrap();
    let all = |sql: &str| -> Vec<(i64, String)> {
        let mut rows = conn.prepare(sql).unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let found = all("SELECT doc, term FROM instances ORDER BY doc, offset");
    let texts = all("SELECT content, text FROM indexed_texts ORDER BY content");
    let words = texts
        .iter()
        .flat_map(|(content, text)| text.split_terminator(' ').map(|word| (*content, word.to_owned())));
    found == words.collect::<Vec<_>>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn memory_and_sqlite_give_the_same_results(batches in batches()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let memory = MemoryStore::default();
        let sqlite = SqliteStore::open(&path).unwrap();
        for (n, batch) in batches.into_iter().enumerate() {
            let result = try_batch(&memory, batch.clone()).map_err(|error| error.kind);
            prop_assert_eq!(result, try_batch(&sqlite, batch).map_err(|error| error.kind));
            if n % 4 == 0 || n < 8 {
                prop_assert!(reads(&memory) == reads(&sqlite), "after a batch that ended as {:?}", result);
            }
        }
        let left = common::snapshot(&path);
        drop(sqlite);
        let left = SqliteStore::open(&left.path().join("db")).unwrap();
        prop_assert!(reads(&memory) == reads(&left), "after it was killed");
        prop_assert!(counts_are_right(&path), "a content is counted wrong or belongs to nobody");
        prop_assert!(index_is_right(&path), "the index has other words than the texts");
        prop_assert!(reads(&memory) == reads(&SqliteStore::open(&path).unwrap()), "after opening it again");
    }
}
