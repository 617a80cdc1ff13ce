//! Titles of persons, agents and generated ones.

use expect_test::expect;
use parlor_session::IdSource;
use parlor_session::session::{Input, Point, TITLE_MARK};
use parlor_session::{Limits, MetaPatch, Slot, Target, Transcript, Update, Upsert};

use crate::scenario::{Scenario, check, object};

#[test]
fn a_title_is_generated_from_the_first_prompt_and_replaced_by_any_other() {
    check(&expect![[r#"
        ready queued
        attach 1
        prompt 1 by 1 Fix the bug
            send 1
            queue: [1 Fix the bug (1)]
        accepted 1 m1
            - user m1 = Fix the bug
            - Info Fix the bug {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as m1, with fields
            queue: []
        prompt 2 by 1 And another one
            send 2
            queue: [2 And another one (1)]
        accepted 2 m2
            - user m2 = And another one
            durable
            respond 2 to 1: accepted as m2, with fields
            queue: []
        title Bugs
            - Info Bugs {"parlor/title":null}
        title Fixes
            - Info Fixes
    "#]]);
}

#[test]
fn a_session_with_a_serial_agent_gets_a_generated_title() {
    check(&expect![[r#"
        ready serial
        attach 1 waits
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
fn a_prompt_without_text_generates_no_title_and_the_next_one_does() {
    check(&expect![[r#"
        ready queued
        attach 1
        prompt 1 by 1 image
            send 1
            queue: [1  (1)]
        accepted 1 m1
            - user m1 = 
            durable
            respond 1 to 1: accepted as m1, with fields
            queue: []
        prompt 2 by 1 ???
            send 2
            queue: [2 ??? (1)]
        accepted 2 m2
            - user m2 = ???
            durable
            respond 2 to 1: accepted as m2, with fields
            queue: []
        prompt 3 by 1 Look at it
            send 3
            queue: [3 Look at it (1)]
        accepted 3 m3
            - user m3 = Look at it
            - Info Look at it {"parlor/title":"made"}
            durable
            respond 3 to 1: accepted as m3, with fields
            queue: []
    "#]]);
}

#[test]
fn a_persons_title_stays_and_the_agents_latest_comes_back_when_it_is_cleared() {
    check(&expect![[r#"
        ready queued
        attach 1
        prompt 1 by 1 Fix the bug
            send 1
            queue: [1 Fix the bug (1)]
        accepted 1 m1
            - user m1 = Fix the bug
            - Info Fix the bug {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as m1, with fields
            queue: []
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
fn a_cleared_title_is_replaced_by_the_next() {
    check(&expect![[r#"
        ready queued
        attach 1
        prompt 1 by 1 Fix the bug
            send 1
            queue: [1 Fix the bug (1)]
        accepted 1 m1
            - user m1 = Fix the bug
            - Info Fix the bug {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as m1, with fields
            queue: []
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
fn an_agent_that_repeats_a_persons_title_does_not_set_its_own() {
    check(&expect![[r#"
        ready queued
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
fn an_existing_transcript_gets_a_generated_title_when_its_agent_is_ready() {
    check(&expect![[r#"
        whole user m1: image
            - user m1 = 
        whole user m2: Fix the bug
            - user m2 = Fix the bug
        whole agent m3: Done
            - agent m3 = Done
        ready queued
            - Info Fix the bug {"parlor/title":"made"}
    "#]]);
}

#[test]
fn a_cleared_title_without_another_is_null() {
    check(&expect![[r#"
        ready queued
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

fn meta(scenario: &Scenario) -> String {
    let info = scenario.session.transcript().slot(Slot::Info);
    info.and_then(|info| info.meta.as_ref())
        .map_or_else(String::new, |meta| meta.to_json().as_str().to_owned())
}

#[test]
fn the_mark_of_a_title_survives_every_metadata_patch_of_the_agent() {
    let mut scenario = Scenario::default();
    scenario.run("ready queued\nattach 1\nprompt 1 by 1 Fix the bug\naccepted 1 m1");
    assert_eq!(meta(&scenario), r#"{"parlor/title":"made"}"#);
    scenario.step(info("{}", MetaPatch::MergeDeep(object(r#"{"tag":1,"parlor/title":"mine"}"#))));
    assert_eq!(meta(&scenario), r#"{"parlor/title":"made","tag":1}"#);
    scenario.step(info("{}", MetaPatch::Clear));
    assert_eq!(meta(&scenario), r#"{"parlor/title":"made"}"#);
    scenario.step(info("{}", MetaPatch::Replace(object(r#"{"a":1}"#))));
    assert_eq!(meta(&scenario), r#"{"a":1,"parlor/title":"made"}"#);
    scenario.step(info(r#"{"title":"Bugs"}"#, MetaPatch::MergeKeys(object(r#"{"b":2}"#))));
    assert_eq!(meta(&scenario), r#"{"a":1,"b":2}"#);
    scenario.run("person Mine");
    assert_eq!(meta(&scenario), r#"{"a":1,"b":2,"parlor/title":"person"}"#);
    scenario.step(info(r#"{"title":"Other"}"#, MetaPatch::Clear));
    assert_eq!(meta(&scenario), r#"{"parlor/title":"person"}"#);
    scenario.run("person");
    assert_eq!(meta(&scenario), "{}");
    assert_eq!(TITLE_MARK, "parlor/title");
}

#[test]
fn a_fork_keeps_the_titles_and_no_prompts() {
    let mut scenario = Scenario::default();
    scenario.run("ready queued\nattach 1\nprompt 1 by 1 Fix the bug\naccepted 1 m1\ntitle Bugs\nperson Mine\nprompt 2 by 1 held");
    let (transcript, kept) = (scenario.session.transcript().clone(), scenario.session.side_state());
    assert!(kept.get("held").is_some());
    let copied = scenario.session.fork(&Point::End).unwrap().side_state;
    assert!(copied.get("held").is_none());
    let mut copy = Scenario::restored(transcript.clone(), Some(&copied));
    assert_eq!(copy.session.side_state(), copied);
    assert_eq!(copy.run("person"), "person\n    - Info Bugs {\"parlor/title\":null}\n    durable\n");
    // Without side state, the mark shows the source of the title.
    let mut copy = Scenario::restored(transcript, None);
    assert_eq!(copy.run("title Other"), "title Other\n");
    assert_eq!(copy.run("person"), "person\n    - Info Other {\"parlor/title\":null}\n    durable\n");
}

#[test]
fn a_generated_title_is_replaced_with_the_prompt_that_it_was_generated_from() {
    let mut scenario = Scenario::default();
    scenario.run(
        "ready queued\nattach 1\nprompt 1 by 1 My password\naccepted 1 m1\nstate running\nstate idle end",
    );
    let title = |scenario: &Scenario| {
        let info = scenario.session.transcript().slot(Slot::Info);
        info.and_then(|info| Some(info.fields.get("title")?.as_str().to_owned()))
    };
    assert_eq!(title(&scenario).as_deref(), Some(r#""My password""#));
    scenario.run("whole user m1: Something else");
    assert_eq!(title(&scenario).as_deref(), Some(r#""Something else""#));
    scenario.run("whole user m1: image");
    assert_eq!(title(&scenario), None);
    assert!(!scenario.session.side_state().to_json().as_str().contains("Something"));
}

#[test]
fn an_empty_fork_has_no_generated_title() {
    let mut scenario = Scenario::default();
    scenario.run("ready queued\nattach 1\nprompt 1 by 1 Fix the bug\naccepted 1 m1");
    let fork = |scenario: &Scenario, point: &Point| {
        let fork = scenario.session.fork(point).unwrap();
        (fork.title.map(|title| title.to_text().into_owned()), format!("{:?}", fork.slots))
    };
    let (before, after) = (Point::BeforePrompt("m1".into()), Point::After("m1".into()));
    assert_eq!(fork(&scenario, &after).0.as_deref(), Some("Fix the bug"));
    let (title, slots) = fork(&scenario, &before);
    assert_eq!(title, None);
    assert!(!slots.contains("Fix the bug") && !slots.contains(TITLE_MARK), "{slots}");
    scenario.run("title Bugs");
    assert_eq!(fork(&scenario, &before).0.as_deref(), Some("Bugs"));
    scenario.run("person Mine");
    assert_eq!(fork(&scenario, &before).0.as_deref(), Some("Mine"));
}

#[test]
fn every_title_is_truncated_and_a_rejected_update_changes_no_title() {
    let limits = Limits { title_chars: 4, meta_bytes: 30, ..Limits::default() };
    let mut scenario = Scenario::with(Transcript::with_limits(limits));
    let title = |scenario: &Scenario| {
        let info = scenario.session.transcript().slot(Slot::Info);
        info.and_then(|info| Some(info.fields.get("title")?.as_str().to_owned()))
    };
    scenario.run("ready queued\ntitle Repairs");
    assert_eq!(title(&scenario).as_deref(), Some(r#""Repa""#));
    let big = MetaPatch::MergeKeys(object(r#"{"long":"01234567890123456789012345"}"#));
    let step = scenario.step(info(r#"{"title":"New"}"#, big));
    assert_eq!((step.changes.len(), step.rejected.len()), (0, 1));
    assert_eq!(title(&scenario).as_deref(), Some(r#""Repa""#));
    scenario.run("person Personal\nperson");
    assert_eq!(title(&scenario).as_deref(), Some(r#""Repa""#));
}
