//! Prompts that are sent again with the same key.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn the_same_key_is_the_same_prompt() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready serial
            prompt 1 by 1 key=a one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            prompt 2 by 1 key=a one
                respond 2 to 1: accepted as new1
            prompt 3 by 2 key=a one
            ended 1 end
                - state idle (end)
                respond 3 to 2: ended idle (end)
            prompt 4 by 1 key=a one
                respond 4 to 1: accepted as new1
            prompt 5 by 2 key=a one
                respond 5 to 2: ended idle (end)
        "#]]);
}

#[test]
fn all_senders_of_a_queued_prompt_are_answered() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready serial
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            prompt 2 by 1 key=a two
                queue: [2 two (1)]
            detach 1
            prompt 3 by 2 key=a two
            ended 1 end
                - state idle (end)
                - user new2 = two
                - state running
                durable
                respond 2 to 1: accepted as new2
                send 2
                queue: []
            ended 2 end
                - state idle (end)
                respond 3 to 2: ended idle (end)
        "#]]);
}

#[test]
fn all_senders_of_a_sent_prompt_are_answered() {
    check(&expect![[r#"
            attach 1
            attach 2
            ready queued
            prompt 1 by 1 key=a one
                send 1
                queue: [1 one (1)]
            prompt 2 by 2 key=a one
            accepted 1 u1
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as u1, with fields
                respond 2 to 2: accepted as u1, with fields
                queue: []
            prompt 3 by 2 key=a one
                respond 3 to 2: accepted as u1, with fields
        "#]]);
}

#[test]
fn a_prompt_can_be_withdrawn_by_any_of_its_ids() {
    check(&expect![[r#"
        attach 1
        attach 2
        prompt 1 by 1 key=a one
            start agent
            queue: [1 one (1)]
        prompt 2 by 2 key=a one
            start agent
        withdraw 2 by 2
            respond 1 to 1: withdrawn by 2
            respond 2 to 2: withdrawn by 2
            queue: []
        prompt 3 by 1 key=a one
            respond 3 to 1: withdrawn
    "#]]);
}

#[test]
fn closing_leaves_prompts_that_another_client_also_sent() {
    check(&expect![[r#"
        attach 1
        attach 2
        prompt 1 by 1 key=a one
            start agent
            queue: [1 one (1)]
        prompt 2 by 2 key=a one
            start agent
        close 1
            respond 1 to 1: withdrawn by 1
        ready serial
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            respond 2 to 2: accepted as new1
            send 1
            queue: []
    "#]]);
}

#[test]
fn the_key_of_a_rejected_prompt_can_be_used_again() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 key=a one
                send 1
                queue: [1 one (1)]
            rejected 1
                respond 1 to 1: rejected "no"
                queue: []
            prompt 2 by 1 key=a one
                send 2
                queue: [2 one (1)]
        "#]]);
}

#[test]
fn keys_survive_a_restart() {
    check(&expect![[r#"
        attach 1
        attach 2 waits
        ready serial
        prompt 1 by 1 key=a one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        prompt 2 by 1 key=b two
            queue: [2 two (1)]
        prompt 3 by 1 key=c three
            queue: [2 two (1), 3 three (1)]
        withdraw 3
            respond 3 to 1: withdrawn by 1
            queue: [2 two (1)]
        ended 1 end
            - state idle (end)
            - user new2 = two
            - state running
            durable
            respond 2 to 1: accepted as new2
            send 2
            queue: []
        restart
        lost
            - event new3 failed 9
            - state idle (error)
        attach 1
        attach 2 waits
        prompt 4 by 1 key=a one
            respond 4 to 1: accepted as new1
        prompt 5 by 2 key=a one
            respond 5 to 2: ended idle (end)
        prompt 6 by 2 key=b two
            respond 6 to 2: ended idle (error)
        prompt 7 by 1 key=c three
            respond 7 to 1: withdrawn
    "#]]);
}
