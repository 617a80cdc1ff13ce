//! Whose title a session has.

use expect_test::expect;
use parlor_session::IdSource;
use parlor_session::session::{Input, Point, TITLE_MARK};
use parlor_session::{Limits, MetaPatch, Slot, Target, Transcript, Update, Upsert};

use crate::stage::{Stage, check, object};

#[test]
fn a_title_is_made_of_the_first_prompt_and_replaced_by_any_other() {
    check(&expect![[r#"
        ready queue
        join 1
        prompt 1 by 1 Fix the bug
            send 1
            held: [1 Fix the bug (1)]
        accepted 1 m1
            - user m1 = Fix the bug
            - Info Fix the bug {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as m1, with fields
            held: []
        prompt 2 by 1 And another one
            send 2
            held: [2 And another one (1)]
        accepted 2 m2
            - user m2 = And another one
            durable
            settle 2 of 1: accepted as m2, with fields
            held: []
        title Bugs
            - Info Bugs {"parlor/title":null}
        title Fixes
            - Info Fixes
    "#]]);
}

#[test]
fn an_agent_that_takes_prompts_one_by_one_gets_a_made_title_too() {
    check(&expect![[r#"
        ready one
        join 1 waits
        prompt 1 by 1 Fix the bug
            - user new1 = Fix the bug
            - Info Fix the bug {"parlor/title":"made"}
            - state running
            durable
            send 1
        title Bugs
            - Info Bugs {"parlor/title":null}
    "#]]);
}

#[test]
fn a_prompt_without_words_makes_no_title_and_the_next_one_does() {
    check(&expect![[r#"
        ready queue
        join 1
        prompt 1 by 1 image
            send 1
            held: [1  (1)]
        accepted 1 m1
            - user m1 = 
            durable
            settle 1 of 1: accepted as m1, with fields
            held: []
        prompt 2 by 1 ???
            send 2
            held: [2 ??? (1)]
        accepted 2 m2
            - user m2 = ???
            durable
            settle 2 of 1: accepted as m2, with fields
            held: []
        prompt 3 by 1 Look at it
            send 3
            held: [3 Look at it (1)]
        accepted 3 m3
            - user m3 = Look at it
            - Info Look at it {"parlor/title":"made"}
            durable
            settle 3 of 1: accepted as m3, with fields
            held: []
    "#]]);
}

#[test]
fn a_persons_title_stays_and_the_agents_latest_comes_back_when_it_is_cleared() {
    check(&expect![[r#"
        ready queue
        join 1
        prompt 1 by 1 Fix the bug
            send 1
            held: [1 Fix the bug (1)]
        accepted 1 m1
            - user m1 = Fix the bug
            - Info Fix the bug {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as m1, with fields
            held: []
        title Bugs
            - Info Bugs {"parlor/title":null}
        person Mine
            - Info Mine {"parlor/title":"person"}
            durable
        title Fixes
        restart
        title Repairs
        person Ours
            - Info Ours
            durable
        person
            - Info Repairs {"parlor/title":null}
            durable
        person
            durable
    "#]]);
}

#[test]
fn a_title_that_goes_makes_room_for_the_next() {
    check(&expect![[r#"
        ready queue
        join 1
        prompt 1 by 1 Fix the bug
            send 1
            held: [1 Fix the bug (1)]
        accepted 1 m1
            - user m1 = Fix the bug
            - Info Fix the bug {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as m1, with fields
            held: []
        person Mine
            - Info Mine {"parlor/title":"person"}
            durable
        person
            - Info Fix the bug {"parlor/title":"made"}
            durable
        title Bugs
            - Info Bugs {"parlor/title":null}
        title null
            - Info Fix the bug {"parlor/title":"made"}
        restart
        title Bugs
            - Info Bugs {"parlor/title":null}
        person Mine
            - Info Mine {"parlor/title":"person"}
            durable
        title null
        person
            - Info Fix the bug {"parlor/title":"made"}
            durable
    "#]]);
}

#[test]
fn what_an_agent_says_again_of_a_persons_title_does_not_become_its_own() {
    check(&expect![[r#"
        ready queue
        title Bugs
            - Info Bugs
        person Mine
            - Info Mine {"parlor/title":"person"}
            durable
        title Mine
        person
            - Info Bugs {"parlor/title":null}
            durable
    "#]]);
}

#[test]
fn a_conversation_that_was_there_before_gets_a_title_when_its_agent_comes() {
    check(&expect![[r#"
        whole user m1: image
            - user m1 = 
        whole user m2: Fix the bug
            - user m2 = Fix the bug
        whole agent m3: Done
            - agent m3 = Done
        ready queue
            - Info Fix the bug {"parlor/title":"made"}
    "#]]);
}

#[test]
fn without_a_title_at_all_a_cleared_one_is_none() {
    check(&expect![[r#"
        ready queue
        person Mine
            - Info Mine {"parlor/title":"person"}
            durable
        person
            - Info null {"parlor/title":null}
            durable
        title Bugs
            - Info Bugs
        title null
            - Info null
    "#]]);
}

fn info(fields: &str, meta: MetaPatch) -> Input {
    let upsert = Upsert { fields: object(fields), meta, ..Upsert::default() };
    Input::AgentUpdate(Update::Upsert { target: Target::Slot(Slot::Info), upsert }, IdSource::Given)
}

fn meta(stage: &Stage) -> String {
    let info = stage.session.transcript().slot(Slot::Info);
    info.and_then(|info| info.meta.as_ref())
        .map_or_else(String::new, |meta| meta.to_json().as_str().to_owned())
}

#[test]
fn the_mark_says_whose_title_it_is_whatever_the_agent_does_to_its_metadata() {
    let mut stage = Stage::default();
    stage.play("ready queue\njoin 1\nprompt 1 by 1 Fix the bug\naccepted 1 m1");
    assert_eq!(meta(&stage), r#"{"parlor/title":"made"}"#);
    stage.step(info("{}", MetaPatch::MergeDeep(object(r#"{"tag":1,"parlor/title":"mine"}"#))));
    assert_eq!(meta(&stage), r#"{"parlor/title":"made","tag":1}"#);
    stage.step(info("{}", MetaPatch::Clear));
    assert_eq!(meta(&stage), r#"{"parlor/title":"made"}"#);
    stage.step(info("{}", MetaPatch::Replace(object(r#"{"a":1}"#))));
    assert_eq!(meta(&stage), r#"{"a":1,"parlor/title":"made"}"#);
    stage.step(info(r#"{"title":"Bugs"}"#, MetaPatch::MergeKeys(object(r#"{"b":2}"#))));
    assert_eq!(meta(&stage), r#"{"a":1,"b":2}"#);
    stage.play("person Mine");
    assert_eq!(meta(&stage), r#"{"a":1,"b":2,"parlor/title":"person"}"#);
    stage.step(info(r#"{"title":"Other"}"#, MetaPatch::Clear));
    assert_eq!(meta(&stage), r#"{"parlor/title":"person"}"#);
    stage.play("person");
    assert_eq!(meta(&stage), "{}");
    assert_eq!(TITLE_MARK, "parlor/title");
}

#[test]
fn a_fork_knows_whose_titles_there_are_and_nothing_of_prompts() {
    let mut stage = Stage::default();
    stage.play("ready queue\njoin 1\nprompt 1 by 1 Fix the bug\naccepted 1 m1\ntitle Bugs\nperson Mine\nprompt 2 by 1 held");
    let (transcript, kept) = (stage.session.transcript().clone(), stage.session.kept());
    assert!(kept.get("held").is_some());
    let copied = stage.session.fork(&Point::End).unwrap().kept;
    assert!(copied.get("held").is_none());
    let mut copy = Stage::kept(transcript.clone(), Some(&copied));
    assert_eq!(copy.session.kept(), copied);
    assert_eq!(copy.play("person"), "person\n    - Info Bugs {\"parlor/title\":null}\n    durable\n");
    // One that kept nothing still knows whose title shows.
    let mut copy = Stage::kept(transcript, None);
    assert_eq!(copy.play("title Other"), "title Other\n");
    assert_eq!(copy.play("person"), "person\n    - Info Other {\"parlor/title\":null}\n    durable\n");
}

#[test]
fn a_made_title_does_not_outlive_the_words_it_was_made_of() {
    let mut stage = Stage::default();
    stage
        .play("ready queue\njoin 1\nprompt 1 by 1 My password\naccepted 1 m1\nstate running\nstate idle end");
    let title = |stage: &Stage| {
        let info = stage.session.transcript().slot(Slot::Info);
        info.and_then(|info| Some(info.fields.get("title")?.as_str().to_owned()))
    };
    assert_eq!(title(&stage).as_deref(), Some(r#""My password""#));
    stage.play("whole user m1: Something else");
    assert_eq!(title(&stage).as_deref(), Some(r#""Something else""#));
    stage.play("whole user m1: image");
    assert_eq!(title(&stage), None);
    assert!(!stage.session.kept().to_json().as_str().contains("Something"));
}

#[test]
fn a_fork_that_begins_with_nothing_has_no_made_title() {
    let mut stage = Stage::default();
    stage.play("ready queue\njoin 1\nprompt 1 by 1 Fix the bug\naccepted 1 m1");
    let fork = |stage: &Stage, point: &Point| {
        let fork = stage.session.fork(point).unwrap();
        (fork.title.map(|title| title.to_text().into_owned()), format!("{:?}", fork.slots))
    };
    let (before, after) = (Point::BeforePrompt("m1".into()), Point::After("m1".into()));
    assert_eq!(fork(&stage, &after).0.as_deref(), Some("Fix the bug"));
    let (title, slots) = fork(&stage, &before);
    assert_eq!(title, None);
    assert!(!slots.contains("Fix the bug") && !slots.contains(TITLE_MARK), "{slots}");
    stage.play("title Bugs");
    assert_eq!(fork(&stage, &before).0.as_deref(), Some("Bugs"));
    stage.play("person Mine");
    assert_eq!(fork(&stage, &before).0.as_deref(), Some("Mine"));
}

#[test]
fn titles_of_all_are_cut_and_an_update_that_is_refused_changes_no_title() {
    let limits = Limits { title_chars: 4, meta_bytes: 30, ..Limits::default() };
    let mut stage = Stage::with(Transcript::with_limits(limits));
    let title = |stage: &Stage| {
        let info = stage.session.transcript().slot(Slot::Info);
        info.and_then(|info| Some(info.fields.get("title")?.as_str().to_owned()))
    };
    stage.play("ready queue\ntitle Repairs");
    assert_eq!(title(&stage).as_deref(), Some(r#""Repa""#));
    let big = MetaPatch::MergeKeys(object(r#"{"long":"01234567890123456789012345"}"#));
    let step = stage.step(info(r#"{"title":"New"}"#, big));
    assert_eq!((step.changes.len(), step.refused.len()), (0, 1));
    assert_eq!(title(&stage).as_deref(), Some(r#""Repa""#));
    stage.play("person Personal\nperson");
    assert_eq!(title(&stage).as_deref(), Some(r#""Repa""#));
}
