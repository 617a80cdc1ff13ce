//! Prompts to an agent that accepts any number, assigns their ids and reports its state.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn each_prompt_is_sent_at_once_and_inserted_by_the_agents_response() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready queued
            prompt 1 by 1 one
                send 1
                queue: [1 one (1)]
            prompt 2 by 2 two
                send 2
                queue: [1 one (1), 2 two (2)]
            accepted 1 u1
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1, with fields
                queue: [2 two (2)]
            state running
                - state running
            accepted 2 u2
                - user u2 = two
                durable
                queue: []
            chunk agent a: hello
                - agent a + hello
            state idle end
                - state idle (end)
                respond 2 to 2: ended idle (end), with fields
        "#]]);
}

#[test]
fn an_equal_user_message_inserts_the_prompt() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 hello there
                send 1
                queue: [1 hello there (1)]
            state running
                - state running
            whole user u1: hello there
                - user u1 = hello there
                - Info hello there {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1
                queue: []
            accepted 1 u1
            chunk agent a: hi
                - agent a + hi
            state idle end
                - state idle (end)
        "#]]);
}

#[test]
fn the_other_fields_of_a_repeated_prompt_are_applied() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 hi
                send 1
                queue: [1 hi (1)]
            accepted 1 u1
                - user u1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1, with fields
                queue: []
            meta user u1
                - user u1 meta
        "#]]);
}

#[test]
fn a_user_message_is_matched_with_the_equal_prompt() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 first
                send 1
                queue: [1 first (1)]
            prompt 2 by 1 second
                send 2
                queue: [1 first (1), 2 second (1)]
            whole user u2: second
                - user u2 = second
                - Info second {"parlor/title":"made"}
                durable
                respond 2 to 1: accepted as u2
                queue: [1 first (1)]
            whole user u1: first
                - user u1 = first
                durable
                respond 1 to 1: accepted as u1
                queue: []
            accepted 1 u1
            accepted 2 u2
        "#]]);
}

#[test]
fn a_rejected_prompt_returns_the_agents_error_and_is_not_inserted() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 hi
                send 1
                queue: [1 hi (1)]
            rejected 1
                respond 1 to 1: rejected "no"
                queue: []
            state idle
                - state idle
        "#]]);
}

#[test]
fn an_error_after_insertion_does_not_answer_again() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready queued
            prompt 1 by 1 one
                send 1
                queue: [1 one (1)]
            prompt 2 by 2 two
                send 2
                queue: [1 one (1), 2 two (2)]
            whole user u1: one
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1
                queue: [2 two (2)]
            whole user u2: two
                - user u2 = two
                durable
                queue: []
            rejected 1
            rejected 2
                respond 2 to 2: rejected "no"
        "#]]);
}

#[test]
fn a_client_that_waits_is_answered_by_the_first_idle_after_insertion() {
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
            accepted 1 u1
                - user u1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                queue: []
            state running
                - state running
            state requires_action
                - state requires_action
            state idle refusal
                - event new1 refused 9 u1
                - state idle (refusal)
                respond 1 to 1: ended idle (refusal), with fields
        "#]]);
}

#[test]
fn a_response_without_an_id_waits_for_the_message() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 hi
                send 1
                queue: [1 hi (1)]
            accepted 1
            state running
                - state running
            whole user u1: hi
                - user u1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1, with fields
                queue: []
            chunk agent a: hello
                - agent a + hello
            state idle end
                - state idle (end)
        "#]]);
}

#[test]
fn a_prompt_without_an_id_is_inserted_before_the_output() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready queued
            prompt 1 by 2 hi
                send 1
                queue: [1 hi (2)]
            accepted 1
            state running
                - state running
            chunk agent a: hello
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - agent a + hello
                durable
                queue: []
            whole user u1: hi
            state idle end
                - state idle (end)
                respond 1 to 2: ended idle (end), with fields
            chunk user u1: and more
                - user new1 + and more
        "#]]);
}

#[test]
fn a_prompt_without_an_id_and_output_is_inserted_at_the_end_of_the_turn() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 hi
                send 1
                queue: [1 hi (1)]
            accepted 1
            state running
                - state running
            state idle end
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state idle (end)
                durable
                respond 1 to 1: accepted as new1, with fields
                queue: []
        "#]]);
}

#[test]
fn a_reused_id_is_another_message() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        accepted 1 u
            - user u = one
            - Info one {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u, with fields
            queue: []
        state idle
            - state idle
        prompt 2 by 1 two
            send 2
            queue: [2 two (1)]
        accepted 2 u
            - user new1 = two
            durable
            respond 2 to 1: accepted as new1, with fields
            queue: []
        chunk user u: two
    "#]]);
}

#[test]
fn an_equal_message_and_the_one_in_the_response_are_the_same() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 hi
                send 1
                queue: [1 hi (1)]
            whole user x: hi
                - user x = hi
                - Info hi {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as x
                queue: []
            accepted 1 u1
            whole user u1: hi
            chunk user u1: h
            chunk user u1: i
            whole user x: ho
                - user x = ho
                - Info ho
        "#]]);
}

#[test]
fn the_agent_may_run_a_turn_without_a_prompt() {
    check(&expect![[r#"
            ready queued
            state running
                - state running
            whole user u: from another place
                - user u = from another place
            chunk agent a: done
                - agent a + done
            state idle end
                - state idle (end)
            state curious
                - state curious
        "#]]);
}
