//! Prompts to an agent that accepts one at a time.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn a_prompt_is_inserted_when_it_is_sent_and_answered_at_once() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk agent: hello
                - agent ~1 + hello
            ended 1 end
                - state idle (end)
        "#]]);
}

#[test]
fn a_client_that_waits_is_answered_at_the_end_of_the_turn() {
    check(&expect![[r#"
            attach 1 waits
            ready serial
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
                respond 1 to 1: ended idle (end)
        "#]]);
}

#[test]
fn prompts_sent_during_a_turn_are_queued_in_order() {
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
            prompt 2 by 2 two
                queue: [2 two (2)]
            prompt 3 by 1 three
                queue: [2 two (2), 3 three (1)]
            ended 1 end
                - state idle (end)
                - user new2 = two
                - state running
                durable
                send 2
                queue: [3 three (1)]
            ended 2 end
                - state idle (end)
                - user new3 = three
                - state running
                durable
                respond 2 to 2: ended idle (end)
                respond 3 to 1: accepted as new3
                send 3
                queue: []
            ended 3 end
                - state idle (end)
        "#]]);
}

#[test]
fn an_error_ends_the_turn() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready serial
            prompt 1 by 2 hi
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                send 1
            prompt 2 by 1 more
                queue: [2 more (1)]
            ended 1 error
                - event new2 failed 6 new1
                - state idle (error)
                - user new3 = more
                - state running
                durable
                respond 1 to 2: ended idle (error)
                respond 2 to 1: accepted as new3
                send 2
                queue: []
        "#]]);
}

#[test]
fn without_an_agent_a_prompt_waits_for_one() {
    check(&expect![[r#"
            attach 1
            prompt 1 by 1 hi
                start agent
                queue: [1 hi (1)]
            prompt 2 by 1 more
                start agent
                queue: [1 hi (1), 2 more (1)]
            ready serial
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
                queue: [2 more (1)]
        "#]]);
}

#[test]
fn the_end_of_another_turn_is_ignored() {
    check(&expect![[r#"
            attach 1 waits
            ready serial
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
                respond 1 to 1: ended idle (end)
            ended 1 end
        "#]]);
}

#[test]
fn the_agent_may_send_updates_without_a_prompt() {
    check(&expect![[r#"
            ready serial
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
fn a_turn_continues_without_clients() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            prompt 2 by 1 two
                queue: [2 two (1)]
            detach 1
            ended 1 end
                - state idle (end)
                - user new2 = two
                - state running
                durable
                respond 2 to 1: accepted as new2
                send 2
                queue: []
        "#]]);
}

#[test]
fn a_state_from_a_serial_agent_is_rejected() {
    check(&expect![[r#"
        attach 1 waits
        ready serial
        state running
            rejected: an agent of version 1 cannot report a state
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 1 two
            queue: [2 two (1)]
        state idle end_turn
            rejected: an agent of version 1 cannot report a state
        ended 1 refusal
            - event new2 refused 7 new1
            - state idle (refusal)
            - user new3 = two
            - state running
            durable
            respond 1 to 1: ended idle (refusal)
            send 2
            queue: []
    "#]]);
}

#[test]
fn a_state_that_an_agent_of_version_1_reports_while_its_session_is_adopted_ends_with_the_replay() {
    check(&expect![[r#"
            attach 1
            state dreaming
                - state dreaming
            ready serial
                - state idle
            cancel by 1
        "#]]);
}
