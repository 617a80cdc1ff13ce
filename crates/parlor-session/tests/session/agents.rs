//! Agents that are lost, released and restored.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn losing_the_agent_in_a_turn_fails_its_tool_calls_and_the_turn() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready serial
            prompt 1 by 2 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                send 1
            prompt 2 by 1 two
                queue: [2 two (1)]
            starts t
                - tool t open
            starts u
                - tool u open
            tool u done
                - tool u done
            request 5
                - state requires_action
                send request 5 to 1
                send request 5 to 2
            lost
                - tool t failed
                - event new2 failed 10 new1
                - state idle (error)
                cancel request 5 at 1
                cancel request 5 at 2
                respond to request 5: agent lost
                respond 1 to 2: ended idle (error)
                start agent
            ready serial
                - user new3 = two
                - state running
                durable
                respond 2 to 1: accepted as new3
                send 2
                queue: []
        "#]]);
}

#[test]
fn losing_an_idle_agent_changes_nothing() {
    check(&expect![[r#"
            attach 1
            ready serial
            lost
            prompt 1 by 1 one
                start agent
                queue: [1 one (1)]
        "#]]);
}

#[test]
fn prompts_that_a_lost_agent_did_not_insert_are_queued_again() {
    check(&expect![[r#"
            attach 1
            attach 2 waits
            ready queued
            prompt 1 by 2 one
                send 1
                queue: [1 one (2)]
            prompt 2 by 1 two
                send 2
                queue: [1 one (2), 2 two (1)]
            prompt 3 by 1 three
                send 3
                queue: [1 one (2), 2 two (1), 3 three (1)]
            accepted 1 u1
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                queue: [2 two (1), 3 three (1)]
            accepted 3
            state running
                - state running
            lost
                - event new1 failed 10 u1
                - state idle (error)
                respond 1 to 2: ended idle (error), with fields
                start agent
            ready queued
                send 2
                send 3
            accepted 2 u2
                - user u2 = two
                durable
                respond 2 to 1: accepted as u2, with fields
                queue: [3 three (1)]
        "#]]);
}

#[test]
fn a_prompt_that_crashes_its_agents_fails_after_a_limit() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 poison
            send 1
            queue: [1 poison (1)]
        lost
            start agent
        ready queued
            send 1
        lost
            - event new1 failed 6
            - state idle (error)
            respond 1 to 1: failed idle (error)
            queue: []
        attach 2
        ready queued
    "#]]);
}

#[test]
fn a_prompt_fails_after_a_limit_of_failed_agent_starts() {
    check(&expect![[r#"
        attach 1
        prompt 1 by 1 one
            start agent
            queue: [1 one (1)]
        lost
            start agent
        lost
            - event new1 failed 4
            - state idle (error)
            respond 1 to 1: failed idle (error)
            queue: []
        prompt 2 by 1 two
            start agent
            queue: [2 two (1)]
        rejected 2
            respond 2 to 1: rejected "no"
            queue: []
    "#]]);
}

#[test]
fn queued_prompts_survive_a_restart_and_continue_when_a_driver_attaches() {
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
            prompt 3 by 1 three
                queue: [2 two (1), 3 three (1)]
            restart
            lost
                - event new2 failed 6
                - state idle (error)
            attach 7 observer
            attach 8
                start agent
            ready serial without-history
                - user new3 = two
                - state running
                durable
                send 2
                queue: [3 three (0)]
            ended 2 end
                - state idle (end)
                - user new4 = three
                - state running
                durable
                send 3
                queue: []
        "#]]);
}

#[test]
fn no_agent_is_started_without_drivers() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 one
                send 1
                queue: [1 one (1)]
            detach 1
            lost
            attach 2 observer
            attach 3
                start agent
        "#]]);
}

#[test]
fn a_released_agent_is_started_for_a_prompt() {
    check(&expect![[r#"
            attach 1
            ready serial
            released
            prompt 1 by 1 one
                start agent
                queue: [1 one (1)]
            ready serial
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
                queue: []
        "#]]);
}

#[test]
fn an_unknown_state_counts_as_busy() {
    check(&expect![[r#"
            ready queued
            state curious
                - state curious
            starts t
                - tool t open
            lost
                - tool t failed
                - event new1 failed 4
                - state idle (error)
        "#]]);
}

#[test]
fn early_updates_are_not_the_turn_of_a_queued_prompt() {
    check(&expect![[r#"
        attach 1 waits
        prompt 1 by 1 one
            start agent
            queue: [1 one (1)]
        restored queued
        state running
            - state running
        chunk agent a: old
            - agent a + old
        state idle end
            - state idle (end)
        state running
            - state running
        state idle end
            - state idle (end)
        applied
            send 1
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            queue: []
        state running
            - state running
        chunk agent b: answer
            - agent b + answer
        state idle end
            - state idle (end)
            respond 1 to 1: ended idle (end), with fields
    "#]]);
    // An agent that is busy with other work is sent the prompt too.
    check(&expect![[r#"
        attach 1 waits
        prompt 1 by 1 one
            start agent
            queue: [1 one (1)]
        restored queued
        state running
            - state running
        applied
            send 1
        state idle end
            - state idle (end)
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            queue: []
        state running
            - state running
        state idle end
            - state idle (end)
            respond 1 to 1: ended idle (end), with fields
    "#]]);
    check(&expect![[r#"
        attach 1
        prompt 1 by 1 one
            start agent
            queue: [1 one (1)]
        restored serial
        chunk agent: old
            - agent ~1 + old
        prompt 2 by 1 two
            queue: [1 one (1), 2 two (1)]
        applied
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
            queue: [2 two (1)]
        chunk agent: answer
            - agent ~2 + answer
    "#]]);
}

#[test]
fn losing_an_agent_before_its_early_updates_are_applied_counts_as_a_failed_start() {
    check(&expect![[r#"
        attach 1
        prompt 1 by 1 one
            start agent
            queue: [1 one (1)]
        restored queued
        lost
            start agent
        applied
        restored queued
        state running
            - state running
        lost
            - event new1 failed 8
            - state idle (error)
            respond 1 to 1: failed idle (error)
            queue: []
        applied
    "#]]);
}

#[test]
fn a_turn_that_a_lost_agent_began_does_not_end_the_prompt_of_the_next_agent() {
    check(&expect![[r#"
        attach 1 waits
        ready queued
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        state running
            - state running
        lost
            - event new1 failed 5
            - state idle (error)
            start agent
        ready serial
            - user new2 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
            queue: []
        ended 1 end
            - state idle (end)
            respond 1 to 1: ended idle (end)
    "#]]);
}
