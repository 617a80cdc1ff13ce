//! Prompts that the agent takes into its running turn.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn a_serial_agent_takes_a_prompt_into_its_turn() {
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
        chunk agent a: first
            - agent a + first
        steer 2 by 1 now
            steer 2
        steer 3 by 2 also
            steer 3
        steered 2
            - user new2 = now meta
            durable
            respond 2 to 1: accepted as new2
        steered 3
            - user new3 = also meta
            durable
        chunk agent b: second
            - agent b + second
        ended 1 end
            - state idle (end)
            respond 3 to 2: ended idle (end)
        fork after a
            ["1 User new1", "2 Agent a"] ["Slot { name: \"info\", seq: 2, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"one\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"one"}}; agent: After(AgentForkMessage { id: MessageId("a"), role: Agent, boundary: Message })
        fork after b
            ["1 User new1", "2 Agent a", "3 User new2", "4 User new3", "5 Agent b"] ["Slot { name: \"info\", seq: 5, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"one\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"one"}}; agent: End
    "#]]);
}

#[test]
fn an_agent_with_a_queue_may_repeat_the_prompt_before_or_after_its_response() {
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
        chunk agent a: first
            - agent a + first
        steer 2 by 1 now
            steer 2
        chunk user u2: now
            - user u2 = now meta
            durable
            respond 2 to 1: accepted as u2
        steered 2
        steer 3 by 1 again
            steer 3
        steered 3
            - user new1 = again meta
            durable
            respond 3 to 1: accepted as new1
        chunk user u3: again
        chunk agent b: second
            - agent b + second
        state idle end
            - state idle (end)
        fork after u3
            Unknown
    "#]]);
}

#[test]
fn a_prompt_that_comes_too_late_for_the_turn_is_the_next_one() {
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
        steer 3 by 1 now
            steer 3
        not-steered 3
            queue: [3 now (1), 2 two (1)]
        ended 1 end
            - state idle (end)
            - user new2 = now
            - state running
            durable
            respond 3 to 1: accepted as new2
            send 3
            queue: [2 two (1)]
        steer 4 by 1 late
            steer 4
        ended 3 end
            - state idle (end)
            - user new3 = two
            - state running
            durable
            respond 2 to 1: accepted as new3
            send 2
            queue: []
        steered 4
            - user new4 = late meta
            durable
            respond 4 to 1: accepted as new4
        ended 2 end
            - state idle (end)
    "#]]);
}

#[test]
fn a_prompt_ends_with_the_turn_that_ended_before_the_agent_responded() {
    check(&expect![[r#"
        attach 1
        attach 2 waits
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
        steer 2 by 2 now
            steer 2
        steer 3 by 2 also
            steer 3
        state idle end
            - state idle (end)
        chunk user u2: now
            - user u2 = now meta
            durable
        prompt 4 by 1 two
            send 4
            queue: [4 two (1)]
        accepted 4 u4
            - user u4 = two
            durable
            respond 4 to 1: accepted as u4, with fields
            queue: []
        steered 2
            respond 2 to 2: ended idle (end)
        steered 3
            - user new1 = also meta
            durable
            respond 3 to 2: ended idle (end)
        state running
            - state running
        state idle end
            - state idle (end)
    "#]]);
}

#[test]
fn without_a_turn_or_in_a_cancelled_turn_a_steering_prompt_is_the_next_one() {
    check(&expect![[r#"
        attach 1
        ready serial
        steer 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        prompt 2 by 1 two
            queue: [2 two (1)]
        cancel turn by 2
            cancel turn
        steer 3 by 1 three
            queue: [3 three (1), 2 two (1)]
        next 4 by 1 four
            queue: [3 three (1), 4 four (1), 2 two (1)]
        ended 1 cancelled
            - event new2 cancelled 8 new1 2
            - state idle (cancelled)
            - user new3 = three
            - state running
            durable
            respond 3 to 1: accepted as new3
            send 3
            queue: [4 four (1), 2 two (1)]
    "#]]);
}

#[test]
fn a_prompt_that_the_agent_does_not_take_or_that_is_withdrawn_gets_an_outcome() {
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
        steer 2 by 1 now
            steer 2
        rejected 2
            respond 2 to 1: rejected "no"
        steer 3 by 1 now
            steer 3
        withdraw 3
            cancel prompt 3
        not-steered 3
            respond 3 to 1: withdrawn by 1
        steer 4 by 1 now
            steer 4
        lost
            - event new2 failed 10 new1
            - state idle (error)
            start agent
            queue: [4 now (1)]
        ready serial
            - user new3 = now
            - state running
            durable
            respond 4 to 1: accepted as new3
            send 4
            queue: []
    "#]]);
}

#[test]
fn a_request_of_a_serial_agent_between_turns_is_not_a_turn() {
    check(&expect![[r#"
        attach 1
        ready serial
        request 0 call=t
            - state requires_action
            send request 0 to 1
        steer 1 by 1 now
            - user new1 = now
            - Info now {"parlor/title":"made"}
            - state running
            - state requires_action
            durable
            respond 1 to 1: accepted as new1
            send 1
    "#]]);
}

#[test]
fn a_request_between_turns_does_not_hold_up_the_prompts_after_one_that_came_too_late() {
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
        steer 2 by 2 now
            steer 2
        ended 1 end
            - state idle (end)
        request 0 call=t
            - state requires_action
            send request 0 to 1
            send request 0 to 2
        steered 2
            - user new2 = now meta
            durable
            respond 2 to 2: ended idle
        prompt 3 by 1 two
            - user new3 = two
            - state running
            - state requires_action
            durable
            respond 3 to 1: accepted as new3
            send 3
    "#]]);
}

#[test]
fn a_prompt_that_seems_to_be_repeated_is_inserted_at_the_end_of_the_turn() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        steer 2 by 1 a
            steer 2
        meta user m0
        steered 2
        ended 1 end
            - user m0 meta
            - user new2 = a meta
            - state idle (end)
            durable
            respond 2 to 1: accepted as new2
    "#]]);
}

#[test]
fn a_prompt_that_the_agent_repeated_after_the_turn_does_not_hold_up_the_next_one() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 a
            - user new1 = a
            - Info a {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        steer 2 by 1 a
            steer 2
        ended 1 end
            - state idle (end)
        whole user m0: a
            - user m0 = a meta
            durable
            respond 2 to 1: accepted as m0
        prompt 3 by 1 a
            - user new2 = a
            - state running
            durable
            respond 3 to 1: accepted as new2
            send 3
        steered 2
    "#]]);
}

#[test]
fn a_prompt_that_the_agent_repeated_was_taken_whatever_the_agent_responds() {
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
        steer 2 by 2 now
            steer 2
        ended 1 end
            - state idle (end)
        whole user m0: now
            - user m0 = now meta
            durable
            respond 2 to 2: ended idle (end)
        not-steered 2
        prompt 3 by 1 two
            - user new2 = two
            - state running
            durable
            respond 3 to 1: accepted as new2
            send 3
    "#]]);
}

#[test]
fn a_prompt_that_the_agent_repeated_after_the_turn_is_no_turn_to_cancel() {
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
        steer 2 by 1 now
            steer 2
        ended 1 end
            - state idle (end)
        whole user m0: now
            - user m0 = now meta
            durable
            respond 2 to 1: accepted as m0
        cancel turn by 1
        steered 2
        prompt 3 by 1 two
            - user new2 = two
            - state running
            durable
            respond 3 to 1: accepted as new2
            send 3
    "#]]);
}

#[test]
fn a_turn_that_fails_is_that_of_its_own_prompt_and_not_of_one_that_joined_it() {
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
        steer 2 by 1 now
            steer 2
        steered 2
            - user new2 = now meta
            durable
            respond 2 to 1: accepted as new2
        ended 1 error
            - event new3 failed 6 new1
            - state idle (error)
    "#]]);
}

#[test]
fn prompts_for_the_turn_of_a_lost_agent_are_the_next_ones_in_order_and_survive_a_restart() {
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
        steer 2 by 1 now
            steer 2
        steer 3 by 1 also
            steer 3
        lost
            - event new1 failed 8 u1
            - state idle (error)
            start agent
            queue: [2 now (1), 3 also (1)]
        restart
        attach 1
            start agent
        ready queued
            send 2
            send 3
        accepted 2 u2
            - user u2 = now
            durable
            queue: [3 also (0)]
        accepted 3 u3
            - user u3 = also
            durable
            queue: []
        state running
            - state running
    "#]]);
}

#[test]
fn a_new_agent_that_works_is_not_asked_to_take_a_prompt_of_the_turn_before_into_its_own() {
    check(&expect![[r#"
        attach 1
        ready queued
        state running
            - state running
        steer 1 by 1 now
            steer 1
        lost
            - event new1 failed 5
            - state idle (error)
            start agent
            queue: [1 now (1)]
        restored queued
        state running
            - state running
        applied
            send 1
    "#]]);
}
