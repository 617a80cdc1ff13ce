//! Prompts to an agent that takes one at a time.

use expect_test::expect;

use crate::stage::check;

#[test]
fn a_prompt_is_stored_as_it_is_handed_over_and_answered_at_once() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk agent: hello
                - agent ~1 + hello
            ended 1 end
                - state idle (end)
        "#]]);
}

#[test]
fn who_waits_is_answered_at_the_end_of_the_turn() {
    check(&expect![[r#"
            join 1 waits
            ready one
            prompt 1 by 1 hi
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                send 1
            chunk agent: hello
                - agent ~1 + hello
            ended 1 end
                - state idle (end)
                settle 1 of 1: ended idle (end)
        "#]]);
}

#[test]
fn what_comes_while_the_agent_works_is_held_in_order() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            prompt 2 by 2 two
                held: [2 two (2)]
            prompt 3 by 1 three
                held: [2 two (2), 3 three (1)]
            ended 1 end
                - state idle (end)
                - user new2 = two
                - state running
                durable
                send 2
                held: [3 three (1)]
            ended 2 end
                - state idle (end)
                - user new3 = three
                - state running
                durable
                settle 2 of 2: ended idle (end)
                settle 3 of 1: accepted as new3
                send 3
                held: []
            ended 3 end
                - state idle (end)
        "#]]);
}

#[test]
fn an_error_ends_the_turn() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready one
            prompt 1 by 2 hi
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                send 1
            prompt 2 by 1 more
                held: [2 more (1)]
            ended 1 error
                - event new2 failed 6 new1
                - state idle (error)
                - user new3 = more
                - state running
                durable
                settle 1 of 2: ended idle (error)
                settle 2 of 1: accepted as new3
                send 2
                held: []
        "#]]);
}

#[test]
fn without_an_agent_a_prompt_waits_for_one() {
    check(&expect![[r#"
            join 1
            prompt 1 by 1 hi
                need agent
                held: [1 hi (1)]
            prompt 2 by 1 more
                need agent
                held: [1 hi (1), 2 more (1)]
            ready one
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
                held: [2 more (1)]
        "#]]);
}

#[test]
fn an_end_of_another_turn_is_none() {
    check(&expect![[r#"
            join 1 waits
            ready one
            ended 7 end
            prompt 1 by 1 hi
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                send 1
            ended 7 end
            ended 1 end
                - state idle (end)
                settle 1 of 1: ended idle (end)
            ended 1 end
        "#]]);
}

#[test]
fn the_agent_may_speak_without_a_prompt() {
    check(&expect![[r#"
            ready one
            chunk agent: by the way
                - agent ~1 + by the way
            starts t
                - tool t open
            title later
                - Info later
            notice
                - note
        "#]]);
}

#[test]
fn sessions_go_on_without_clients() {
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
            ended 1 end
                - state idle (end)
                - user new2 = two
                - state running
                durable
                settle 2 of 1: accepted as new2
                send 2
                held: []
        "#]]);
}

#[test]
fn a_state_that_such_an_agent_reports_neither_begins_nor_ends_a_turn() {
    check(&expect![[r#"
        join 1 waits
        ready one
        state running
            refused: an agent of version 1 cannot report states
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 1 two
            held: [2 two (1)]
        state idle end_turn
            refused: an agent of version 1 cannot report states
        ended 1 refusal
            - event new2 refused 7 new1
            - state idle (refusal)
            - user new3 = two
            - state running
            durable
            settle 1 of 1: ended idle (refusal)
            send 2
            held: []
    "#]]);
}
