//! Agents that come and go.

use expect_test::expect;

use crate::stage::check;

#[test]
fn an_agent_that_dies_in_a_turn_fails_its_tool_calls_and_the_turn() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready one
            prompt 1 by 2 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                send 1
            prompt 2 by 1 two
                held: [2 two (1)]
            starts t
                - tool t open
            starts u
                - tool u open
            tool u done
                - tool u done
            ask 5
                - state waits
                ask 5 of 1
                ask 5 of 2
            gone
                - tool t failed
                - event new2 failed 10 new1
                - state idle (error)
                withdraw 5 from 1
                withdraw 5 from 2
                reply 5: gone
                settle 1 of 2: ended idle (error)
                need agent
            ready one
                - user new3 = two
                - state running
                durable
                settle 2 of 1: accepted as new3
                send 2
                held: []
        "#]]);
}

#[test]
fn an_agent_that_dies_in_peace_changes_nothing() {
    check(&expect![[r#"
            join 1
            ready one
            gone
            prompt 1 by 1 one
                need agent
                held: [1 one (1)]
        "#]]);
}

#[test]
fn what_an_agent_had_and_did_not_take_is_held_again() {
    check(&expect![[r#"
            join 1
            join 2 waits
            ready queue
            prompt 1 by 2 one
                send 1
                held: [1 one (2)]
            prompt 2 by 1 two
                send 2
                held: [1 one (2), 2 two (1)]
            prompt 3 by 1 three
                send 3
                held: [1 one (2), 2 two (1), 3 three (1)]
            accepted 1 u1
                - user u1 = one
                - Info one {"parlor/title":"made"}
                durable
                held: [2 two (1), 3 three (1)]
            accepted 3
            state running
                - state running
            gone
                - event new1 failed 10 u1
                - state idle (error)
                settle 1 of 2: ended idle (error), with fields
                need agent
            ready queue
                send 2
                send 3
            accepted 2 u2
                - user u2 = two
                durable
                settle 2 of 1: accepted as u2, with fields
                held: [3 three (1)]
        "#]]);
}

#[test]
fn an_agent_that_dies_of_a_prompt_is_not_brought_back_for_ever() {
    check(&expect![[r#"
        join 1
        ready queue
        prompt 1 by 1 poison
            send 1
            held: [1 poison (1)]
        gone
            need agent
        ready queue
            send 1
        gone
            - event new1 failed 6
            - state idle (error)
            settle 1 of 1: failed idle (error)
            held: []
        join 2
        ready queue
    "#]]);
}

#[test]
fn an_agent_that_never_comes_is_not_called_for_ever() {
    check(&expect![[r#"
        join 1
        prompt 1 by 1 one
            need agent
            held: [1 one (1)]
        gone
            need agent
        gone
            - event new1 failed 4
            - state idle (error)
            settle 1 of 1: failed idle (error)
            held: []
        prompt 2 by 1 two
            need agent
            held: [2 two (1)]
        rejected 2
            settle 2 of 1: rejected "no"
            held: []
    "#]]);
}

#[test]
fn what_waits_outlives_a_restart_and_goes_on_when_a_driver_joins() {
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
            prompt 3 by 1 three
                held: [2 two (1), 3 three (1)]
            restart
            gone
                - event new2 failed 6
                - state idle (error)
            join 7 watches
            join 8
                need agent
            ready one anew
                - user new3 = two
                - state running
                durable
                send 2
                held: [3 three (0)]
            ended 2 end
                - state idle (end)
                - user new4 = three
                - state running
                durable
                send 3
                held: []
        "#]]);
}

#[test]
fn without_drivers_nothing_brings_an_agent_back() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            left 1
            gone
            join 2 watches
            join 3
                need agent
        "#]]);
}

#[test]
fn an_agent_that_was_released_is_brought_back_for_a_prompt() {
    check(&expect![[r#"
            join 1
            ready one
            released
            prompt 1 by 1 one
                need agent
                held: [1 one (1)]
            ready one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
                held: []
        "#]]);
}

#[test]
fn an_unknown_state_counts_as_busy() {
    check(&expect![[r#"
            ready queue
            state curious
                - state curious
            starts t
                - tool t open
            gone
                - tool t failed
                - event new1 failed 4
                - state idle (error)
        "#]]);
}

#[test]
fn what_an_agent_did_before_it_was_restored_is_not_the_turn_of_a_prompt_that_waits() {
    check(&expect![[r#"
        join 1 waits
        prompt 1 by 1 one
            need agent
            held: [1 one (1)]
        restored queue
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
        taken
            send 1
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            held: []
        state running
            - state running
        chunk agent b: answer
            - agent b + answer
        state idle end
            - state idle (end)
            settle 1 of 1: ended idle (end), with fields
    "#]]);
    // One that is still busy with something else takes the prompt all the same.
    check(&expect![[r#"
        join 1 waits
        prompt 1 by 1 one
            need agent
            held: [1 one (1)]
        restored queue
        state running
            - state running
        taken
            send 1
        state idle end
            - state idle (end)
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            held: []
        state running
            - state running
        state idle end
            - state idle (end)
            settle 1 of 1: ended idle (end), with fields
    "#]]);
    check(&expect![[r#"
        join 1
        prompt 1 by 1 one
            need agent
            held: [1 one (1)]
        restored one
        chunk agent: old
            - agent ~1 + old
        prompt 2 by 1 two
            held: [1 one (1), 2 two (1)]
        taken
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
            held: [2 two (1)]
        chunk agent: answer
            - agent ~2 + answer
    "#]]);
}

#[test]
fn an_agent_that_is_gone_before_its_early_updates_are_taken_is_one_that_never_came() {
    check(&expect![[r#"
        join 1
        prompt 1 by 1 one
            need agent
            held: [1 one (1)]
        restored queue
        gone
            need agent
        taken
        restored queue
        state running
            - state running
        gone
            - event new1 failed 8
            - state idle (error)
            settle 1 of 1: failed idle (error)
            held: []
        taken
    "#]]);
}

#[test]
fn a_turn_that_a_lost_agent_began_does_not_end_the_prompt_of_the_next_agent() {
    check(&expect![[r#"
        join 1 waits
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        state running
            - state running
        gone
            - event new1 failed 5
            - state idle (error)
            need agent
        ready one
            - user new2 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
            held: []
        ended 1 end
            - state idle (end)
            settle 1 of 1: ended idle (end)
    "#]]);
}
