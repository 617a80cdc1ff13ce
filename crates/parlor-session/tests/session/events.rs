//! What stays visible of a turn that did not end as turns do, and of what was decided.

use expect_test::expect;

use crate::stage::{Stage, check};

#[test]
fn a_turn_that_fails_is_refused_or_is_cancelled_leaves_an_event_before_it_is_over() {
    check(&expect![[r#"
        join 1
        ready one
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
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
            settle 2 of 1: accepted as new3
            send 2
        cancel
            interrupt
        ended 2 cancelled
            - event new4 cancelled 8 new3 1
            - state idle (cancelled)
        prompt 3 by 1 c
            - user new5 = c
            - state running
            durable
            settle 3 of 1: accepted as new5
            send 3
        gone
            - event new6 failed 10 new5
            - state idle (error)
    "#]]);
}

#[test]
fn an_agent_that_reports_states_leaves_them_too_and_one_for_each_turn() {
    check(&expect![[r#"
        join 1
        ready queue
        prompt 1 by 1 a
            send 1
            held: [1 a (1)]
        accepted 1 u1
            - user u1 = a
            - Info a {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as u1, with fields
            held: []
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
        gone
            - event new3 failed 11
            - state idle (error)
        gone
    "#]]);
}

#[test]
fn a_turn_that_ends_as_turns_do_leaves_none() {
    let mut stage = Stage::default();
    let told = stage.play("join 1\nready one\nprompt 1 by 1 a\nended 1 end_turn");
    assert!(!told.contains("event"), "{told}");
    let told = stage.play("prompt 2 by 1 b\nended 2 max_tokens");
    assert!(!told.contains("event"), "{told}");
}

#[test]
fn what_is_decided_says_who_decided_and_only_the_first_answer_counts() {
    check(&expect![[r#"
        join 1
        join 2
        ready one
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
        ask 5
            - state waits
            ask 5 of 1
            ask 5 of 2
        err 5 by 1
        answer 5 by 2
            - state running
            durable
            decided 5 by 2: "answer of 2"
            reply 5: result "answer of 2"
        answer 5 by 1
    "#]]);
}

#[test]
fn an_agent_cannot_write_an_event() {
    check(&expect![[r#"
        join 1
        ready queue
        event e1
            refused: an agent cannot write events
        rebuilt
            - event new1 rebuilt 4
        event new1
            refused: an agent cannot write events
    "#]]);
}

#[test]
fn an_event_in_a_turn_ends_no_message_and_no_fork_ends_with_it() {
    check(&expect![[r#"
        join 1
        ready queue
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
            ["1 Agent m1"] [] kept {}; agent: After(MessageId("m1"))
        chunk agent m2: whole
            - agent m2 + whole
        fork after m1
            ["1 Agent m1"] [] kept {}; agent: After(MessageId("m1"))
        state idle cancelled
            - event new2 cancelled 8
            - state idle (cancelled)
        fork end
            ["1 Agent m1", "2 Agent m2", "3 Event(EventId(\"new1\"))", "4 Event(EventId(\"new2\"))"] [] kept {}; agent: End
        fork after m2
            ["1 Agent m1", "2 Agent m2"] [] kept {}; agent: End
    "#]]);
}

#[test]
fn a_cancelled_turn_names_the_first_who_cancelled_it_and_whether_the_agent_answered() {
    check(&expect![[r#"
        join 1 name=zed
        join 2
        ready one
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
        cancel by 1
            interrupt
        cancel by 2
            interrupt
        ended 1 cancelled
            - event new2 cancelled 7 new1 1 zed
            - state idle (cancelled)
        prompt 2 by 1 b
            - user new3 = b
            - state running
            durable
            settle 2 of 1: accepted as new3
            send 2
        cancel by 2
            interrupt
        gone cancelled
            - event new4 unanswered 10 new3 2
            - state idle (cancelled)
        ready queue
        prompt 3 by 1 c
            send 3
            held: [3 c (1)]
        back 3 by 1
            recall 3
            held: []
        accepted 3 u3
            - user u3 = c
            durable
            settle 3 of 1: accepted as u3, with fields
        state running
            - state running
        state idle cancelled
            - event new5 cancelled 16 u3 1 zed
            - state idle (cancelled)
        close 2
        prompt 4 by 1 d
            send 4
            held: [4 d (1)]
        accepted 4 u4
            - user u4 = d
            durable
            settle 4 of 1: accepted as u4, with fields
            held: []
        state running
            - state running
        close 1
            interrupt
        state idle cancelled
            - event new6 cancelled 22 u4 1 zed
            - state idle (cancelled)
    "#]]);
}

#[test]
fn a_prompt_that_comes_to_nothing_when_none_is_there_who_waits_for_it_is_left_to_everybody() {
    check(&expect![[r#"
        join 1
        prompt 1 by 1 a
            need agent
            held: [1 a (1)]
        prompt 2 by 1 b
            need agent
            held: [1 a (1), 2 b (1)]
        restart
        join 2
            need agent
        rejected 1
            settle 1 of 0: rejected "no"
            held: [2 b (0)]
        prompt 3 by 2 c
            need agent
            held: [2 b (0), 3 c (2)]
        left 2
        rejected 3
            settle 3 of 0: rejected "no"
            settle 3 of 2: rejected "no"
            held: [2 b (0)]
        join 3
            need agent
        prompt 4 by 3 d
            need agent
            held: [2 b (0), 4 d (3)]
        rejected 4
            settle 4 of 3: rejected "no"
            held: [2 b (0)]
        back 2 by 3
            held: []
        rejected 2
    "#]]);
}
