//! Which idle state ends the turn of a prompt, with an agent that reports states.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn a_prompt_that_is_accepted_after_its_turn_has_ended() {
    check(&expect![[r#"
        attach 1 waits
        attach 2
        ready queued
        prompt 1 by 1 hi
            send 1
            queue: [1 hi (1)]
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
            respond 1 to 1: ended idle (end), with fields
            queue: []
        state running
            - state running
        state idle cancelled
            - event new1 cancelled 10
            - state idle (cancelled)
    "#]]);
}

#[test]
fn the_message_of_a_prompt_may_come_after_its_turn() {
    check(&expect![[r#"
        attach 1 waits
        ready queued
        prompt 1 by 1 key=k hi
            send 1
            queue: [1 hi (1)]
        state requires_action
            - state requires_action
        state running
            - state running
        state idle refusal
            - event new1 refused 6
            - state idle (refusal)
        whole user u1: hi
            - user u1 = hi
            - Info hi {"parlor/title":"made"}
            durable
            respond 1 to 1: ended idle (refusal)
            queue: []
        accepted 1 u1
        prompt 2 by 1 key=k hi
            respond 2 to 1: ended idle (refusal)
    "#]]);
}

#[test]
fn the_end_of_a_turn_that_ran_before_the_prompt_was_sent_does_not_end_it() {
    check(&expect![[r#"
        attach 1 waits
        ready queued
        state running
            - state running
        prompt 1 by 1 hi
            send 1
            queue: [1 hi (1)]
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
            queue: []
        state idle refusal
            - event new1 refused 9 u1
            - state idle (refusal)
            respond 1 to 1: ended idle (refusal), with fields
    "#]]);
}

#[test]
fn the_turn_of_one_prompt_does_not_end_another_that_was_sent_while_the_agent_had_the_first() {
    check(&expect![[r#"
        attach 1 waits
        ready queued
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        prompt 2 by 1 two
            send 2
            queue: [1 one (1), 2 two (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            queue: [2 two (1)]
        state running
            - state running
        state idle end
            - state idle (end)
            respond 1 to 1: ended idle (end), with fields
        accepted 2 u2
            - user u2 = two
            durable
            queue: []
        state running
            - state running
        state idle refusal
            - event new1 refused 10 u2
            - state idle (refusal)
            respond 2 to 1: ended idle (refusal), with fields
    "#]]);
}
