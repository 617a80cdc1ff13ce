//! Which idle ends the turn of a prompt whose sender waits for it, with an agent that reports states.

use expect_test::expect;

use crate::stage::check;

#[test]
fn a_prompt_that_is_answered_after_its_turn_has_ended_with_it() {
    check(&expect![[r#"
        join 1 waits
        join 2
        ready queue
        prompt 1 by 1 hi
            send 1
            held: [1 hi (1)]
        state running
            - state running
        chunk agent a: hello
            - agent a + hello
        state idle end
            - state idle (end)
        accepted 1 u1
            - user u1 = hi
            - Info hi {"parlor/title":"made"}
            durable
            settle 1 of 1: ended idle (end), with fields
            held: []
        state running
            - state running
        state idle cancelled
            - event new1 cancelled 10
            - state idle (cancelled)
    "#]]);
}

#[test]
fn the_message_may_come_after_the_turn_as_well() {
    check(&expect![[r#"
        join 1 waits
        ready queue
        prompt 1 by 1 key=k hi
            send 1
            held: [1 hi (1)]
        state waits
            - state waits
        state running
            - state running
        state idle refusal
            - event new1 refused 6
            - state idle (refusal)
        whole user u1: hi
            - user u1 = hi
            - Info hi {"parlor/title":"made"}
            durable
            settle 1 of 1: ended idle (refusal)
            held: []
        accepted 1 u1
        prompt 2 by 1 key=k hi
            settle 2 of 1: ended idle (refusal)
    "#]]);
}

#[test]
fn the_end_of_a_turn_that_ran_before_the_prompt_was_sent_does_not_end_it() {
    check(&expect![[r#"
        join 1 waits
        ready queue
        state running
            - state running
        prompt 1 by 1 hi
            send 1
            held: [1 hi (1)]
        state idle end
            - state idle (end)
        state running
            - state running
        state idle end
            - state idle (end)
        accepted 1 u1
            - user u1 = hi
            - Info hi {"parlor/title":"made"}
            durable
            held: []
        state idle refusal
            - event new1 refused 9 u1
            - state idle (refusal)
            settle 1 of 1: ended idle (refusal), with fields
    "#]]);
}

#[test]
fn the_turn_of_one_prompt_does_not_end_another_that_was_sent_while_the_agent_had_the_first() {
    check(&expect![[r#"
        join 1 waits
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        prompt 2 by 1 two
            send 2
            held: [1 one (1), 2 two (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            held: [2 two (1)]
        state running
            - state running
        state idle end
            - state idle (end)
            settle 1 of 1: ended idle (end), with fields
        accepted 2 u2
            - user u2 = two
            durable
            held: []
        state running
            - state running
        state idle refusal
            - event new1 refused 10 u2
            - state idle (refusal)
            settle 2 of 1: ended idle (refusal), with fields
    "#]]);
}
