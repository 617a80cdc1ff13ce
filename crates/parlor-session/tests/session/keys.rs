//! Prompts that are sent again under their key.

use expect_test::expect;

use crate::stage::check;

#[test]
fn the_same_key_is_the_same_prompt() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready one
            prompt 1 by 1 key=a one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            prompt 2 by 1 key=a one
                settle 2 of 1: accepted as new1
            prompt 3 by 2 key=a one
            ended 1 end
                - state idle (end)
                settle 3 of 2: ended idle (end)
            prompt 4 by 1 key=a one
                settle 4 of 1: accepted as new1
            prompt 5 by 2 key=a one
                settle 5 of 2: ended idle (end)
        "#]]);
}

#[test]
fn all_who_sent_a_held_prompt_are_answered() {
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
            prompt 2 by 1 key=a two
                held: [2 two (1)]
            left 1
            prompt 3 by 2 key=a two
            ended 1 end
                - state idle (end)
                - user new2 = two
                - state running
                durable
                settle 2 of 1: accepted as new2
                send 2
                held: []
            ended 2 end
                - state idle (end)
                settle 3 of 2: ended idle (end)
        "#]]);
}

#[test]
fn all_who_sent_a_prompt_that_the_agent_has_are_answered() {
    check(&expect![[r#"
            join 1
            join 2
            ready queue
            prompt 1 by 1 key=a one
                send 1
                held: [1 one (1)]
            prompt 2 by 2 key=a one
            accepted 1 u1
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as u1, with fields
                settle 2 of 2: accepted as u1, with fields
                held: []
            prompt 3 by 2 key=a one
                settle 3 of 2: accepted as u1, with fields
        "#]]);
}

#[test]
fn a_prompt_is_taken_back_under_any_of_its_names() {
    check(&expect![[r#"
        join 1
        join 2
        prompt 1 by 1 key=a one
            need agent
            held: [1 one (1)]
        prompt 2 by 2 key=a one
            need agent
        back 2 by 2
            settle 1 of 1: withdrawn by 2
            settle 2 of 2: withdrawn by 2
            held: []
        prompt 3 by 1 key=a one
            settle 3 of 1: withdrawn
    "#]]);
}

#[test]
fn closing_leaves_what_another_sent_as_well() {
    check(&expect![[r#"
        join 1
        join 2
        prompt 1 by 1 key=a one
            need agent
            held: [1 one (1)]
        prompt 2 by 2 key=a one
            need agent
        close 1
            settle 1 of 1: withdrawn by 1
        ready one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            settle 2 of 2: accepted as new1
            send 1
            held: []
    "#]]);
}

#[test]
fn a_key_that_was_rejected_may_be_tried_again() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 key=a one
                send 1
                held: [1 one (1)]
            rejected 1
                settle 1 of 1: rejected "no"
                held: []
            prompt 2 by 1 key=a one
                send 2
                held: [2 one (1)]
        "#]]);
}

#[test]
fn keys_outlive_a_restart() {
    check(&expect![[r#"
        join 1
        join 2 waits
        ready one
        prompt 1 by 1 key=a one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
        prompt 2 by 1 key=b two
            held: [2 two (1)]
        prompt 3 by 1 key=c three
            held: [2 two (1), 3 three (1)]
        back 3
            settle 3 of 1: withdrawn by 1
            held: [2 two (1)]
        ended 1 end
            - state idle (end)
            - user new2 = two
            - state running
            durable
            settle 2 of 1: accepted as new2
            send 2
            held: []
        restart
        gone
            - event new3 failed 9
            - state idle (error)
        join 1
        join 2 waits
        prompt 4 by 1 key=a one
            settle 4 of 1: accepted as new1
        prompt 5 by 2 key=a one
            settle 5 of 2: ended idle (end)
        prompt 6 by 2 key=b two
            settle 6 of 2: ended idle (error)
        prompt 7 by 1 key=c three
            settle 7 of 1: withdrawn
    "#]]);
}
