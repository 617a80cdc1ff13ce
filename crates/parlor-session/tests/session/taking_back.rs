//! What is not wanted any more.

use expect_test::expect;

use crate::stage::check;

#[test]
fn cancelling_takes_back_all_that_is_held_and_ends_the_turn() {
    check(&expect![[r#"
        join 1
        join 2 waits
        ready one
        prompt 1 by 2 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 1 two
            held: [2 two (1)]
        prompt 3 by 2 three
            held: [2 two (1), 3 three (2)]
        ask 5
            - state waits
            ask 5 of 1
            ask 5 of 2
        cancel
            - state running
            settle 2 of 1: taken back
            settle 3 of 2: taken back
            interrupt
            withdraw 5 from 1
            withdraw 5 from 2
            reply 5: cancelled
            held: []
        ended 1 cancelled
            - state idle (cancelled)
            settle 1 of 2: ended idle (cancelled)
    "#]]);
}

#[test]
fn cancelling_takes_back_what_an_agent_holds() {
    check(&expect![[r#"
        join 1
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as u1, with fields
            held: []
        state running
            - state running
        prompt 2 by 1 two
            send 2
            held: [2 two (1)]
        ask 5
            ask 5 of 1
        cancel
            settle 2 of 1: taken back
            recall 2
            interrupt
            withdraw 5 from 1
            reply 5: cancelled
            held: []
        rejected 2
        state idle cancelled
            - state idle (cancelled)
    "#]]);
}

#[test]
fn a_prompt_that_was_taken_back_too_late_is_in_the_conversation() {
    check(&expect![[r#"
            join 1
            ready queue
            state running
                - state running
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            cancel
                settle 1 of 1: taken back
                recall 1
                interrupt
                held: []
            whole user u1: one
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
            accepted 1 u1
            state idle cancelled
                - state idle (cancelled)
        "#]]);
}

#[test]
fn an_agent_that_has_said_nothing_yet_is_interrupted_too() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            accepted 1 u1
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as u1, with fields
                held: []
            cancel
                interrupt
            state idle cancelled
                - state idle (cancelled)
            cancel
        "#]]);
}

#[test]
fn without_an_agent_cancelling_takes_back() {
    check(&expect![[r#"
            join 1
            prompt 1 by 1 one
                need agent
                held: [1 one (1)]
            cancel
                settle 1 of 1: taken back
                held: []
        "#]]);
}

#[test]
fn one_held_prompt_is_taken_back() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            prompt 2 by 1 two
                held: [2 two (1)]
            prompt 3 by 1 three
                held: [2 two (1), 3 three (1)]
            back 2
                settle 2 of 1: taken back
                held: [3 three (1)]
            back 2
            back 1
            ended 1 end
                - state idle (end)
                - user new2 = three
                - state running
                durable
                settle 3 of 1: accepted as new2
                send 3
                held: []
        "#]]);
}

#[test]
fn an_agent_says_what_came_of_one_that_it_holds() {
    check(&expect![[r#"
            join 1
            ready queue
            state running
                - state running
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            prompt 2 by 1 two
                send 2
                held: [1 one (1), 2 two (1)]
            back 1
                recall 1
                held: [2 two (1)]
            back 1
            back 2
                recall 2
                held: []
            rejected 1
                settle 1 of 1: rejected "no"
            accepted 2 u2
                - user u2 = two
                - Info two {"parlor/title":"made"}
                durable
                settle 2 of 1: accepted as u2, with fields
        "#]]);
}

#[test]
fn what_was_taken_back_is_not_sent_to_the_next_agent() {
    check(&expect![[r#"
            join 1
            ready queue
            state running
                - state running
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            prompt 2 by 1 two
                send 2
                held: [1 one (1), 2 two (1)]
            back 1
                recall 1
                held: [2 two (1)]
            gone
                - state idle (error)
                settle 1 of 1: taken back
                need agent
            ready queue
                send 2
        "#]]);
}

#[test]
fn closing_takes_back_ones_own() {
    check(&expect![[r#"
            join 1
            join 2
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            prompt 2 by 1 two
                held: [2 two (1)]
            prompt 3 by 2 three
                held: [2 two (1), 3 three (2)]
            ask 5
                - state waits
                ask 5 of 1
                ask 5 of 2
            close 1
                settle 2 of 1: taken back
                withdraw 5 from 1
                held: [3 three (2)]
            answer 5 by 2
                - state running
                durable
                reply 5: result "answer of 2"
            ended 1 end
                - state idle (end)
                - user new2 = three
                - state running
                durable
                settle 3 of 2: accepted as new2
                send 3
                held: []
        "#]]);
}

#[test]
fn the_last_to_close_ends_the_turn_and_lets_the_agent_go() {
    check(&expect![[r#"
        join 1 waits
        join 2
        ready one
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 2 two
            held: [2 two (2)]
        left 2
        ask 5
            - state waits
            ask 5 of 1
        close 1
            - state running
            withdraw 5 from 1
            settle 2 of 2: taken back
            interrupt
            reply 5: cancelled
            release
            held: []
        ended 1 cancelled
            - state idle (cancelled)
            settle 1 of 1: ended idle (cancelled)
        released
    "#]]);
}

#[test]
fn a_lost_connection_is_not_a_close() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            prompt 2 by 1 two
                held: [2 two (1)]
            left 1
        "#]]);
}
