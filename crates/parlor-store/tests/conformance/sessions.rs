//! Sessions and lists of them.

use parlor_store::{Cursor, Filter, SessionRow, Store, Write};

use super::common::{HARD, all, append, delete, entry, refused, row, session, slot, write};

fn ids(rows: &[SessionRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

fn list(store: &dyn Store, filter: &Filter) -> Vec<String> {
    ids(&store.sessions(filter, None, usize::MAX).unwrap()).into_iter().map(str::to_owned).collect()
}

fn cursor(row: &SessionRow) -> Cursor {
    Cursor { active_at: row.active_at, id: row.id.clone() }
}

/// All pages of a list.
fn pages(store: &dyn Store, filter: &Filter, limit: usize) -> Vec<Vec<SessionRow>> {
    let mut pages: Vec<Vec<SessionRow>> = Vec::new();
    loop {
        let after = pages.last().and_then(|page| page.last()).map(cursor);
        let page = store.sessions(filter, after.as_ref(), limit).unwrap();
        assert!(page.len() <= limit);
        if page.is_empty() {
            return pages;
        }
        pages.push(page);
    }
}

/// Sessions of every combination of what can be filtered, with few different times.
fn many() -> Vec<SessionRow> {
    let texts = |n: usize, count: usize| format!("{}", n % count);
    let rows = (0..96).map(|n| SessionRow {
        agent: texts(n, 2),
        cwd: texts(n / 2, 3),
        archived: n / 6 % 2 == 1,
        busy: n / 12 % 2 == 1,
        agent_session: (n / 24 % 2 == 1).then(|| texts(n, 5)),
        active_at: i64::try_from(n * 7 % 5).unwrap(),
        owner: (n % 11 == 5).then(|| "s00".to_owned()),
        ..row(&format!("s{:02}", n * 37 % 96))
    });
    rows.collect()
}

pub(crate) fn a_session_is_what_was_written(store: &dyn Store) {
    let full = SessionRow {
        id: "\"s\"".into(),
        agent: "a".into(),
        agent_session: Some("\"x\"".into()),
        cwd: "/home".into(),
        title: Some("\"t\"".into()),
        parent: Some("\"p\"".into()),
        owner: Some("\"o\"".into()),
        created_at: 5,
        active_at: 7,
        archived: true,
        busy: true,
        data: "{}".into(),
    };
    write(store, vec![Write::Session(full.clone()), session("other")]);
    assert_eq!(store.session("\"s\"").unwrap(), Some(full.clone()));
    assert_eq!(store.session("other").unwrap(), Some(row("other")));
    assert_eq!(store.session("missing").unwrap(), None);
    let with_owned = Filter { owned: true, ..Filter::default() };
    assert_eq!(store.sessions(&with_owned, None, 9).unwrap(), [full, row("other")]);
}

pub(crate) fn a_session_is_replaced_and_keeps_what_is_in_it(store: &dyn Store) {
    write(store, vec![session("s"), slot("s", "n", 1, Some("b")), entry("s", 2, 2, "h", "c")]);
    let new = SessionRow { agent: "b".into(), title: Some("t".into()), active_at: 9, busy: true, ..row("s") };
    write(store, vec![Write::Session(new.clone())]);
    assert_eq!(store.session("s").unwrap(), Some(new.clone()));
    assert_eq!(store.sessions(&Filter::default(), None, 9).unwrap(), [new]);
    assert_eq!(store.slots("s", 0).unwrap().len(), 1);
    assert_eq!(all(store, "s").len(), 1);
    // What it was filed under before is forgotten.
    assert!(list(store, &Filter { agent: Some("agent".into()), ..Filter::default() }).is_empty());
    assert!(list(store, &Filter { busy: Some(false), ..Filter::default() }).is_empty());
}

pub(crate) fn hard_texts_are_kept(store: &dyn Store) {
    for text in HARD {
        let text = (*text).to_owned();
        let hard = SessionRow {
            id: text.clone(),
            agent: text.clone(),
            agent_session: Some(text.clone()),
            cwd: text.clone(),
            title: Some(text.clone()),
            parent: Some(text.clone()),
            data: text.clone(),
            ..row("")
        };
        write(store, vec![Write::Session(hard.clone())]);
        assert_eq!(store.session(&text).unwrap(), Some(hard));
        let text = Some(text);
        for filter in [
            Filter { agent: text.clone(), ..Filter::default() },
            Filter { cwd: text.clone(), ..Filter::default() },
            Filter { agent_session: text.clone(), ..Filter::default() },
        ] {
            assert_eq!(list(store, &filter), [text.clone().unwrap()]);
        }
    }
    let mut sorted = HARD.to_vec();
    sorted.sort_unstable();
    assert_eq!(list(store, &Filter::default()), sorted);
    assert_eq!(pages(store, &Filter::default(), 1).concat().len(), HARD.len());
}

pub(crate) fn extreme_times_are_kept_and_ordered(store: &dyn Store) {
    let times = [i64::MAX, 1, 0, -1, i64::MIN];
    for (n, time) in times.iter().enumerate() {
        let row = SessionRow { active_at: *time, created_at: *time, ..row(&n.to_string()) };
        write(store, vec![Write::Session(row.clone())]);
        assert_eq!(store.session(&row.id).unwrap(), Some(row));
    }
    let pages = pages(store, &Filter::default(), 1).concat();
    assert_eq!(pages.iter().map(|row| row.active_at).collect::<Vec<_>>(), times);
}

pub(crate) fn the_latest_come_first_and_equals_by_id(store: &dyn Store) {
    for (id, active_at, archived) in [("b", 5, true), ("c", 9, false), ("a", 5, false), ("d", 1, true)] {
        write(store, vec![Write::Session(SessionRow { active_at, archived, ..row(id) })]);
    }
    assert_eq!(list(store, &Filter::default()), ["c", "a", "b", "d"]);
}

pub(crate) fn pages_follow_each_other(store: &dyn Store) {
    write(store, many().into_iter().map(Write::Session).collect());
    let with_owned = Filter { owned: true, ..Filter::default() };
    let whole = store.sessions(&with_owned, None, usize::MAX).unwrap();
    assert_eq!(whole.len(), 96);
    for limit in [1, 2, 7, 95, 96, 97] {
        let pages = pages(store, &with_owned, limit);
        assert_eq!(pages.len(), 96_usize.div_ceil(limit));
        assert_eq!(pages.concat(), whole);
    }
    assert!(store.sessions(&with_owned, None, 0).unwrap().is_empty());
}

pub(crate) fn what_happens_between_pages_neither_repeats_nor_skips_older_ones(store: &dyn Store) {
    for n in 0..6 {
        write(store, vec![Write::Session(SessionRow { active_at: n / 2, ..row(&format!("s{n}")) })]);
    }
    let first = store.sessions(&Filter::default(), None, 3).unwrap();
    assert_eq!(ids(&first), ["s4", "s5", "s2"]);
    // One is new, one that was seen is active again, one that was seen goes.
    write(store, vec![Write::Session(SessionRow { active_at: 9, ..row("new") })]);
    write(store, vec![Write::Session(SessionRow { active_at: 8, ..row("s5") }), delete("s4")]);
    let second = store.sessions(&Filter::default(), Some(&cursor(&first[2])), 9).unwrap();
    assert_eq!(ids(&second), ["s3", "s0", "s1"]);
}

pub(crate) fn a_cursor_needs_no_session(store: &dyn Store) {
    write(store, vec![session("a"), session("c")]);
    let at = |active_at, id: &str| Cursor { active_at, id: id.to_owned() };
    let page = |cursor| store.sessions(&Filter::default(), Some(&cursor), 9).unwrap();
    assert_eq!(ids(&page(at(1, "b"))), ["c"]);
    assert_eq!(ids(&page(at(2, "z"))), ["a", "c"]);
    assert_eq!(ids(&page(at(1, ""))), ["a", "c"]);
    assert!(page(at(1, "c")).is_empty());
    assert!(page(at(0, "")).is_empty());
}

pub(crate) fn each_filter_keeps_what_it_says(store: &dyn Store) {
    write(
        store,
        vec![
            session("plain"),
            Write::Session(SessionRow { agent: "x".into(), ..row("agent") }),
            Write::Session(SessionRow { cwd: "x".into(), ..row("cwd") }),
            Write::Session(SessionRow { agent_session: Some("x".into()), ..row("agent_session") }),
            Write::Session(SessionRow { archived: true, ..row("archived") }),
            Write::Session(SessionRow { busy: true, ..row("busy") }),
        ],
    );
    let none = Filter::default;
    let x = || Some("x".to_owned());
    assert_eq!(list(store, &Filter { agent: x(), ..none() }), ["agent"]);
    assert_eq!(list(store, &Filter { cwd: x(), ..none() }), ["cwd"]);
    assert_eq!(list(store, &Filter { agent_session: x(), ..none() }), ["agent_session"]);
    assert_eq!(list(store, &Filter { archived: Some(true), ..none() }), ["archived"]);
    assert_eq!(list(store, &Filter { busy: Some(true), ..none() }), ["busy"]);
    let others = ["agent", "agent_session", "busy", "cwd", "plain"];
    assert_eq!(list(store, &Filter { archived: Some(false), ..none() }), others);
    let others = ["agent", "agent_session", "archived", "cwd", "plain"];
    assert_eq!(list(store, &Filter { busy: Some(false), ..none() }), others);
    assert!(list(store, &Filter { agent: Some("missing".into()), ..none() }).is_empty());
}

pub(crate) fn filters_work_together_and_with_pages(store: &dyn Store) {
    let rows = many();
    write(store, rows.iter().cloned().map(Write::Session).collect());
    let texts = |text: &str| [None, Some(text.to_owned()), Some("missing".to_owned())];
    let flags = [None, Some(true), Some(false)];
    for n in 0..2 * 3_usize.pow(5) {
        let filter = Filter {
            agent: texts("1")[n % 3].clone(),
            cwd: texts("2")[n / 3 % 3].clone(),
            agent_session: texts("4")[n / 9 % 3].clone(),
            archived: flags[n / 27 % 3],
            busy: flags[n / 81 % 3],
            owned: n / 243 == 1,
        };
        let keep = |row: &&SessionRow| {
            filter.agent.as_ref().is_none_or(|agent| row.agent == *agent)
                && filter.cwd.as_ref().is_none_or(|cwd| row.cwd == *cwd)
                && filter.agent_session.as_ref().is_none_or(|id| row.agent_session.as_ref() == Some(id))
                && filter.archived.is_none_or(|archived| row.archived == archived)
                && filter.busy.is_none_or(|busy| row.busy == busy)
                && (filter.owned || row.owner.is_none())
        };
        let mut kept: Vec<_> = rows.iter().filter(keep).cloned().collect();
        kept.sort_by(|a, b| (-a.active_at, &a.id).cmp(&(-b.active_at, &b.id)));
        assert_eq!(pages(store, &filter, 4).concat(), kept, "{filter:?}");
    }
}

pub(crate) fn a_deleted_session_is_gone_with_all_that_was_in_it(store: &dyn Store) {
    let some = |id| vec![session(id), slot(id, "n", 1, Some("b")), entry(id, 2, 2, "h", "c"), append(id, 2, 3, "d")];
    write(store, some("gone"));
    write(store, some("stays"));
    write(store, vec![delete("gone")]);
    assert_eq!(store.session("gone").unwrap(), None);
    assert_eq!(list(store, &Filter::default()), ["stays"]);
    assert!(store.slots("gone", 0).unwrap().is_empty());
    assert!(all(store, "gone").is_empty());
    assert_eq!(store.slots("stays", 0).unwrap().len(), 1);
    assert_eq!(all(store, "stays")[0].content, "cd");
    // One that is not there is gone already.
    write(store, vec![delete("gone"), delete("never was")]);
    // Another of the same name begins empty.
    write(store, vec![session("gone")]);
    assert!(store.slots("gone", 0).unwrap().is_empty());
    assert!(all(store, "gone").is_empty());
    write(store, vec![entry("gone", 2, 2, "h", "new")]);
    assert_eq!(all(store, "gone")[0].content, "new");
}

pub(crate) fn owned_sessions_are_listed_on_request_and_deleted_with_their_owners(store: &dyn Store) {
    let owned = |id: &str, owner: &str| {
        Write::Session(SessionRow { owner: Some(owner.to_owned()), active_at: 0, ..row(id) })
    };
    write(store, vec![session("s"), session("other"), owned("child", "s")]);
    write(store, vec![owned("grandchild", "child"), owned("others", "other"), entry("grandchild", 1, 1, "h", "c")]);
    assert_eq!(list(store, &Filter::default()), ["other", "s"]);
    let with_owned = Filter { owned: true, ..Filter::default() };
    assert_eq!(list(store, &with_owned), ["other", "s", "child", "grandchild", "others"]);
    assert_eq!(pages(store, &Filter::default(), 1).concat().len(), 2);
    write(store, vec![append("grandchild", 1, 2, "d"), delete("s")]);
    assert_eq!(list(store, &with_owned), ["other", "others"]);
    // A write to a session that was deleted with its owner is refused, also where the rows are cached.
    refused(store, vec![append("grandchild", 1, 3, "e")]);
    refused(store, vec![slot("child", "n", 1, Some("b"))]);
    refused(store, vec![delete("other"), slot("others", "n", 1, Some("b"))]);
    assert_eq!(list(store, &with_owned), ["other", "others"]);
}
