//! Agents that give an id for a prompt and repeat it.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn a_prompt_with_an_id_may_be_repeated_before_or_after_its_response() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 one
                send 1
                queue: [1 one (1)]
            whole user u1: one
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1
                queue: []
            accepted 1 u1
            whole user u1: one
            state idle
                - state idle
            prompt 2 by 1 two
                send 2
                queue: [2 two (1)]
            accepted 2 u2
                - user u2 = two
                durable
                respond 2 to 1: accepted as u2, with fields
                queue: []
            whole user u2: two
        "#]]);
}

#[test]
fn a_prompt_with_an_id_may_be_repeated_in_chunks() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 one two
                send 1
                queue: [1 one two (1)]
            chunk user u1: one
            chunk user u1:  two
                - user u1 = one two
                - Info one two {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1
                queue: []
            accepted 1 u1
            chunk agent a: yes
                - agent a + yes
            chunk user u1: ?
                - user u1 + ?
        "#]]);
}

#[test]
fn a_whole_message_and_then_its_chunks_are_one_prompt() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 one
                send 1
                queue: [1 one (1)]
            whole user u1: one
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1
                queue: []
            chunk user u1: one
            chunk agent a: yes
                - agent a + yes
        "#]]);
}

#[test]
fn several_prompts_are_repeated_after_all_were_accepted() {
    check(&expect![[r#"
            attach 1
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
                respond 1 to 1: accepted as u1, with fields
                queue: [2 two (1)]
            accepted 2 u2
                - user u2 = two
                durable
                respond 2 to 1: accepted as u2, with fields
                queue: []
            whole user u1: one
            chunk user u2: two
        "#]]);
}

#[test]
fn output_may_come_between_a_prompt_with_an_id_and_its_echo() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 one two
                send 1
                queue: [1 one two (1)]
            accepted 1 u1
                - user u1 = one two
                - Info one two {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1, with fields
                queue: []
            chunk agent a: still at it
                - agent a + still at it
            chunk user u1: one
            chunk agent a: yes
                - agent a + yes
            chunk user u1:  two
            chunk user u1: !
                - user u1 + !
        "#]]);
}

#[test]
fn a_prompt_may_be_changed_by_the_agent_after_it_was_repeated() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 my password is x
            send 1
            queue: [1 my password is x (1)]
        whole user u1: my password is x
            - user u1 = my password is x
            - Info my password is x {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1
            queue: []
        chunk agent a: careful
            - agent a + careful
        whole user u1: my password is ***
            - user u1 = my password is ***
            - Info my password is ***
        whole user u1: my password is x
            - user u1 = my password is x
            - Info my password is x
    "#]]);
}

#[test]
fn a_prompt_that_was_never_repeated_may_be_changed() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 my password is x
            send 1
            queue: [1 my password is x (1)]
        accepted 1 u1
            - user u1 = my password is x
            - Info my password is x {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        chunk agent a: careful
            - agent a + careful
        whole user u1: my password is ***
            - user u1 = my password is ***
            - Info my password is ***
    "#]]);
}

#[test]
fn an_agent_that_was_released_may_still_repeat_its_prompt() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        state running
            - state running
        state idle end_turn
            - state idle (end_turn)
        released
        chunk user u1: one
        chunk agent m1: hi
            - agent m1 + hi
    "#]]);
}
