//! Events for turns that did not complete and for decisions.

use expect_test::expect;

use crate::scenario::{Scenario, check};

#[test]
fn an_event_is_recorded_before_the_end_of_a_failed_refused_or_cancelled_turn() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk agent: well
            - agent ~1 + well
        ended 1 refusal
            - event new2 refused 5 new1
            - state idle (refusal)
        prompt 2 by 1 b
            - user new3 = b
            - state running
            durable
            respond 2 to 1: accepted as new3
            send 2
        cancel
            cancel turn
        ended 2 cancelled
            - event new4 cancelled 8 new3 1
            - state idle (cancelled)
        prompt 3 by 1 c
            - user new5 = c
            - state running
            durable
            respond 3 to 1: accepted as new5
            send 3
        lost
            - event new6 failed 10 new5
            - state idle (error)
    "#]]);
}

#[test]
fn one_event_is_recorded_for_each_turn_of_an_agent_that_reports_states() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 a
            send 1
            queue: [1 a (1)]
        accepted 1 u1
            - user u1 = a
            - Info a {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        state running
            - state running
        state idle refusal
            - event new1 refused 6 u1
            - state idle (refusal)
        state idle refusal
            - state idle (refusal)
        state running
            - state running
        state idle cancelled
            - event new2 cancelled 9
            - state idle (cancelled)
        state running
            - state running
        lost
            - event new3 failed 11
            - state idle (error)
        lost
    "#]]);
}

#[test]
fn a_completed_turn_records_no_event() {
    let mut scenario = Scenario::default();
    let results = scenario.run("attach 1\nready serial\nprompt 1 by 1 a\nended 1 end_turn");
    assert!(!results.contains("event"), "{results}");
    let results = scenario.run("prompt 2 by 1 b\nended 2 max_tokens");
    assert!(!results.contains("event"), "{results}");
}

#[test]
fn a_decision_has_its_client_and_only_the_first_answer_counts() {
    check(&expect![[r#"
        attach 1
        attach 2
        ready serial
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        request 5
            - state requires_action
            send request 5 to 1
            send request 5 to 2
        err 5 by 1
        answer 5 by 2
            - state running
            durable
            decision 5 by 2: "answer of 2"
            respond to request 5: result "answer of 2"
        answer 5 by 1
    "#]]);
}

#[test]
fn an_event_from_an_agent_is_rejected() {
    check(&expect![[r#"
        attach 1
        ready queued
        event e1
            rejected: an agent cannot send events: only the server writes them
        rebuilt
            - event new1 rebuilt 4
        event new1
            rejected: an agent cannot send events: only the server writes them
    "#]]);
}

#[test]
fn an_event_does_not_end_a_message_and_is_not_the_end_of_a_fork() {
    check(&expect![[r#"
        attach 1
        ready queued
        state running
            - state running
        whole agent m1: done
            - agent m1 = done
        chunk agent m2: half
            - agent m2 + half
        rebuilt
            - event new1 rebuilt 6
        fork after m2
            BeingWritten
        fork end
            ["1 Agent m1"] [] side state {}; agent: After(AgentForkMessage { id: MessageId("m1"), role: Agent, boundary: Message })
        chunk agent m2: whole
            - agent m2 + whole
        fork after m1
            ["1 Agent m1"] [] side state {}; agent: After(AgentForkMessage { id: MessageId("m1"), role: Agent, boundary: Message })
        state idle cancelled
            - event new2 cancelled 8
            - state idle (cancelled)
        fork end
            ["1 Agent m1", "2 Agent m2", "3 Event(EventId(\"new1\"))", "4 Event(EventId(\"new2\"))"] [] side state {}; agent: End
        fork after m2
            ["1 Agent m1", "2 Agent m2"] [] side state {}; agent: End
    "#]]);
}

#[test]
fn the_event_of_a_cancelled_turn_has_the_first_client_and_whether_the_agent_responded() {
    check(&expect![[r#"
        attach 1 name=zed
        attach 2
        ready serial
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        cancel by 1
            cancel turn
        cancel by 2
            cancel turn
        ended 1 cancelled
            - event new2 cancelled 7 new1 1 zed
            - state idle (cancelled)
        prompt 2 by 1 b
            - user new3 = b
            - state running
            durable
            respond 2 to 1: accepted as new3
            send 2
        cancel by 2
            cancel turn
        lost cancelled
            - event new4 unanswered 10 new3 2
            - state idle (cancelled)
        ready queued
        prompt 3 by 1 c
            send 3
            queue: [3 c (1)]
        withdraw 3 by 1
            cancel prompt 3
            queue: []
        accepted 3 u3
            - user u3 = c
            durable
            respond 3 to 1: accepted as u3, with fields
        state running
            - state running
        state idle cancelled
            - event new5 cancelled 16 u3 1 zed
            - state idle (cancelled)
        close 2
        prompt 4 by 1 d
            send 4
            queue: [4 d (1)]
        accepted 4 u4
            - user u4 = d
            durable
            respond 4 to 1: accepted as u4, with fields
            queue: []
        state running
            - state running
        close 1
            cancel turn
        state idle cancelled
            - event new6 cancelled 22 u4 1 zed
            - state idle (cancelled)
    "#]]);
}

#[test]
fn the_failure_of_a_prompt_without_attached_waiters_is_reported_for_later_clients() {
    check(&expect![[r#"
        attach 1
        prompt 1 by 1 a
            start agent
            queue: [1 a (1)]
        prompt 2 by 1 b
            start agent
            queue: [1 a (1), 2 b (1)]
        restart
        attach 2
            start agent
        rejected 1
            respond 1 to 0: rejected "no"
            queue: [2 b (0)]
        prompt 3 by 2 c
            start agent
            queue: [2 b (0), 3 c (2)]
        detach 2
        rejected 3
            respond 3 to 0: rejected "no"
            respond 3 to 2: rejected "no"
            queue: [2 b (0)]
        attach 3
            start agent
        prompt 4 by 3 d
            start agent
            queue: [2 b (0), 4 d (3)]
        rejected 4
            respond 4 to 3: rejected "no"
            queue: [2 b (0)]
        withdraw 2 by 3
            queue: []
        rejected 2
    "#]]);
}
