//! Prompts to an agent that takes any number, names them and says what it does.

use expect_test::expect;

use crate::stage::check;

#[test]
fn it_gets_each_at_once_and_the_answer_of_the_agent_inserts_it() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            prompt 2 by 2 two
                send 2
                held: [1 one (1), 2 two (2)]
            accepted 1 u1
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as u1, with fields
                held: [2 two (2)]
            state running
                - state running
            accepted 2 u2
                - user u2 = two
                durable
                held: []
            chunk agent a: hello
                - agent a + hello
            state idle end
                - state idle (end)
                settle 2 of 2: ended idle (end), with fields
        "#]]);
}

#[test]
fn its_first_new_user_message_inserts_it_too() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 hello there
                send 1
                held: [1 hello there (1)]
            state running
                - state running
            whole user u1: hello there
                - user u1 = hello there
                - Info hello there {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as u1
                held: []
            accepted 1 u1
            chunk agent a: hi
                - agent a + hi
            state idle end
                - state idle (end)
        "#]]);
}

#[test]
fn what_the_agent_says_besides_the_prompt_is_kept() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 hi
                send 1
                held: [1 hi (1)]
            accepted 1 u1
                - user u1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as u1, with fields
                held: []
            meta user u1
                - user u1 meta
        "#]]);
}

#[test]
fn a_user_message_is_that_of_the_prompt_it_sounds_like() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 first
                send 1
                held: [1 first (1)]
            prompt 2 by 1 second
                send 2
                held: [1 first (1), 2 second (1)]
            whole user u2: second
                - user u2 = second
                - Info second {"parlor/title":"made"}
                durable
                settle 2 of 1: accepted as u2
                held: [1 first (1)]
            whole user u1: first
                - user u1 = first
                durable
                settle 1 of 1: accepted as u1
                held: []
            accepted 1 u1
            accepted 2 u2
        "#]]);
}

#[test]
fn the_error_of_the_agent_is_that_of_the_client_and_nothing_is_stored() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 hi
                send 1
                held: [1 hi (1)]
            rejected 1
                settle 1 of 1: rejected "no"
                held: []
            state idle
                - state idle
        "#]]);
}

#[test]
fn an_error_after_the_message_comes_too_late_for_who_has_an_answer() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            prompt 2 by 2 two
                send 2
                held: [1 one (1), 2 two (2)]
            whole user u1: one
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as u1
                held: [2 two (2)]
            whole user u2: two
                - user u2 = two
                durable
                held: []
            rejected 1
            rejected 2
                settle 2 of 2: rejected "no"
        "#]]);
}

#[test]
fn who_waits_is_answered_by_the_first_rest_after_insertion() {
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
            accepted 1 u1
                - user u1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                held: []
            state running
                - state running
            state waits
                - state waits
            state idle refusal
                - event new1 refused 9 u1
                - state idle (refusal)
                settle 1 of 1: ended idle (refusal), with fields
        "#]]);
}

#[test]
fn an_answer_without_a_name_waits_for_the_message() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 hi
                send 1
                held: [1 hi (1)]
            accepted 1
            state running
                - state running
            whole user u1: hi
                - user u1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as u1, with fields
                held: []
            chunk agent a: hello
                - agent a + hello
            state idle end
                - state idle (end)
        "#]]);
}

#[test]
fn a_prompt_that_is_never_named_comes_before_its_answer() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready queue
            prompt 1 by 2 hi
                send 1
                held: [1 hi (2)]
            accepted 1
            state running
                - state running
            chunk agent a: hello
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - agent a + hello
                durable
                held: []
            whole user u1: hi
            state idle end
                - state idle (end)
                settle 1 of 2: ended idle (end), with fields
            chunk user u1: and more
                - user new1 + and more
        "#]]);
}

#[test]
fn a_prompt_that_is_never_named_and_never_answered_is_there_in_the_end() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 hi
                send 1
                held: [1 hi (1)]
            accepted 1
            state running
                - state running
            state idle end
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state idle (end)
                durable
                settle 1 of 1: accepted as new1, with fields
                held: []
        "#]]);
}

#[test]
fn a_name_that_the_agent_has_used_is_not_the_same_message() {
    check(&expect![[r#"
        join 1
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        accepted 1 u
            - user u = one
            - Info one {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as u, with fields
            held: []
        state idle
            - state idle
        prompt 2 by 1 two
            send 2
            held: [2 two (1)]
        accepted 2 u
            - user new1 = two
            durable
            settle 2 of 1: accepted as new1, with fields
            held: []
        chunk user u: two
    "#]]);
}

#[test]
fn a_message_that_equals_the_prompt_and_the_one_that_the_answer_names_are_the_same() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 hi
                send 1
                held: [1 hi (1)]
            whole user x: hi
                - user x = hi
                - Info hi {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as x
                held: []
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
fn the_agent_may_speak_and_work_without_a_prompt() {
    check(&expect![[r#"
            ready queue
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
