//! Cancelled turns and withdrawn prompts.

use expect_test::expect;

use crate::scenario::{Scenario, check};

#[test]
fn cancelling_withdraws_all_queued_prompts_and_ends_the_turn() {
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
        prompt 3 by 2 three
            queue: [2 two (1), 3 three (2)]
        request 5
            - state requires_action
            send request 5 to 1
            send request 5 to 2
        cancel
            - state running
            respond 2 to 1: withdrawn by 1
            respond 3 to 2: withdrawn by 1
            cancel turn
            cancel request 5 at 1
            cancel request 5 at 2
            respond to request 5: cancelled
            queue: []
        ended 1 cancelled
            - event new2 cancelled 9 new1 1
            - state idle (cancelled)
            respond 1 to 2: ended idle (cancelled)
    "#]]);
}

#[test]
fn cancelling_withdraws_prompts_that_the_agent_has() {
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
        prompt 2 by 1 two
            send 2
            queue: [2 two (1)]
        request 5
            send request 5 to 1
        cancel
            cancel prompt 2
            cancel turn
            cancel request 5 at 1
            respond to request 5: cancelled
            queue: []
        rejected 2
            respond 2 to 1: rejected "no" by 1
        state idle cancelled
            - event new1 cancelled 10 u1 1
            - state idle (cancelled)
    "#]]);
}

#[test]
fn a_prompt_that_was_withdrawn_too_late_is_inserted() {
    check(&expect![[r#"
        attach 1
        ready queued
        state running
            - state running
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        cancel
            cancel prompt 1
            cancel turn
            queue: []
        whole user u1: one
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1
        accepted 1 u1
        state idle cancelled
            - event new1 cancelled 8 u1 1
            - state idle (cancelled)
    "#]]);
}

#[test]
fn cancelling_cancels_a_turn_without_output() {
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
        cancel
            cancel turn
        state idle cancelled
            - event new1 cancelled 6 u1 1
            - state idle (cancelled)
        cancel
    "#]]);
}

#[test]
fn cancelling_without_an_agent_withdraws_prompts() {
    check(&expect![[r#"
        attach 1
        prompt 1 by 1 one
            start agent
            queue: [1 one (1)]
        cancel
            respond 1 to 1: withdrawn by 1
            queue: []
    "#]]);
}

#[test]
fn one_queued_prompt_is_withdrawn() {
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
        withdraw 2
            respond 2 to 1: withdrawn by 1
            queue: [3 three (1)]
        withdraw 2
        withdraw 1
        ended 1 end
            - state idle (end)
            - user new2 = three
            - state running
            durable
            respond 3 to 1: accepted as new2
            send 3
            queue: []
    "#]]);
}

#[test]
fn the_agent_decides_about_a_withdrawn_prompt_that_it_has() {
    check(&expect![[r#"
        attach 1
        ready queued
        state running
            - state running
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        prompt 2 by 1 two
            send 2
            queue: [1 one (1), 2 two (1)]
        withdraw 1
            cancel prompt 1
            queue: [2 two (1)]
        withdraw 1
        withdraw 2
            cancel prompt 2
            queue: []
        rejected 1
            respond 1 to 1: rejected "no" by 1
        accepted 2 u2
            - user u2 = two
            - Info two {"parlor/title":"made"}
            durable
            respond 2 to 1: accepted as u2, with fields
    "#]]);
}

#[test]
fn a_withdrawn_prompt_is_not_sent_to_the_next_agent() {
    check(&expect![[r#"
        attach 1
        ready queued
        state running
            - state running
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        prompt 2 by 1 two
            send 2
            queue: [1 one (1), 2 two (1)]
        withdraw 1
            cancel prompt 1
            queue: [2 two (1)]
        lost
            - event new1 failed 7
            - state idle (error)
            respond 1 to 1: withdrawn by 1
            start agent
        ready queued
            send 2
    "#]]);
}

#[test]
fn closing_withdraws_the_clients_own_prompts() {
    check(&expect![[r#"
        attach 1
        attach 2
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
        prompt 3 by 2 three
            queue: [2 two (1), 3 three (2)]
        request 5
            - state requires_action
            send request 5 to 1
            send request 5 to 2
        close 1
            cancel request 5 at 1
            respond 2 to 1: withdrawn by 1
            queue: [3 three (2)]
        answer 5 by 2
            - state running
            durable
            decision 5 by 2: "answer of 2"
            respond to request 5: result "answer of 2"
        ended 1 end
            - state idle (end)
            - user new2 = three
            - state running
            durable
            respond 3 to 2: accepted as new2
            send 3
            queue: []
    "#]]);
}

#[test]
fn the_last_client_that_closes_ends_the_turn_and_releases_the_agent() {
    check(&expect![[r#"
        attach 1 waits
        attach 2
        ready serial
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 2 two
            queue: [2 two (2)]
        detach 2
        request 5
            - state requires_action
            send request 5 to 1
        close 1
            - state running
            cancel request 5 at 1
            respond 2 to 2: withdrawn by 1
            cancel turn
            respond to request 5: cancelled
            queue: []
        ended 1 cancelled
            - event new2 cancelled 9 new1 1
            - state idle (cancelled)
            respond 1 to 1: ended idle (cancelled)
        released
    "#]]);
}

#[test]
fn detaching_withdraws_nothing() {
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
        "#]]);
}

#[test]
fn cancelling_the_turn_leaves_prompts_of_other_clients() {
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
        prompt 3 by 2 three
            queue: [2 two (1), 3 three (2)]
        cancel by 1 turn
            respond 2 to 1: withdrawn by 1
            cancel turn
            queue: [3 three (2)]
        ended 1 cancelled
            - event new2 cancelled 8 new1 1
            - state idle (cancelled)
            - user new3 = three
            - state running
            durable
            respond 1 to 2: ended idle (cancelled)
            send 3
            queue: []
    "#]]);
}

#[test]
fn prompts_of_other_clients_that_the_agent_drops_with_the_turn_are_sent_again_in_order() {
    check(&expect![[r#"
        attach 1
        attach 2
        ready queued
        state running
            - state running
        prompt 1 by 2 one
            send 1
            queue: [1 one (2)]
        prompt 2 by 1 two
            send 2
            queue: [1 one (2), 2 two (1)]
        prompt 3 by 2 three
            send 3
            queue: [1 one (2), 2 two (1), 3 three (2)]
        cancel by 1 turn
            cancel prompt 2
            cancel turn
            queue: [1 one (2), 3 three (2)]
        dropped 2
            respond 2 to 1: rejected "dropped" by 1
        dropped 3
        dropped 1
            send 1
            send 3
        state idle cancelled
            - event new1 cancelled 12 1
            - state idle (cancelled)
        dropped 1
            respond 1 to 2: rejected "dropped"
            queue: [3 three (2)]
        accepted 3 u3
            - user u3 = three
            - Info three {"parlor/title":"made"}
            durable
            respond 3 to 2: accepted as u3, with fields
            queue: []
    "#]]);
}

#[test]
fn prompts_that_the_agent_drops_after_the_end_of_the_cancelled_turn_are_sent_again_in_order() {
    check(&expect![[r#"
        attach 1
        attach 2
        ready queued
        state running
            - state running
        prompt 1 by 2 one
            send 1
            queue: [1 one (2)]
        prompt 2 by 2 two
            send 2
            queue: [1 one (2), 2 two (2)]
        cancel by 1 turn
            cancel turn
        state idle cancelled
            - event new1 cancelled 8 1
            - state idle (cancelled)
        dropped 2
        dropped 1
            send 1
            send 2
        dropped 2
            respond 2 to 2: rejected "dropped"
            queue: [1 one (2)]
    "#]]);
}

#[test]
fn a_dropped_prompt_is_sent_again_when_the_agent_accepts_the_others() {
    check(&expect![[r#"
        attach 1
        attach 2
        ready queued
        state running
            - state running
        prompt 1 by 2 one
            send 1
            queue: [1 one (2)]
        prompt 2 by 2 two
            send 2
            queue: [1 one (2), 2 two (2)]
        cancel by 1 turn
            cancel turn
        state idle cancelled
            - event new1 cancelled 8 1
            - state idle (cancelled)
        dropped 1
        accepted 2 u2
            - user u2 = two
            - Info two {"parlor/title":"made"}
            durable
            respond 2 to 2: accepted as u2, with fields
            send 1
            queue: [1 one (2)]
        accepted 1 u1
            - user u1 = one
            durable
            respond 1 to 2: accepted as u1, with fields
            queue: []
        dropped 1
    "#]]);
}

#[test]
fn prompts_that_the_agent_keeps_after_a_cancelled_turn_are_not_sent_again() {
    check(&expect![[r#"
        attach 1
        attach 2
        ready queued
        state running
            - state running
        prompt 1 by 2 one
            send 1
            queue: [1 one (2)]
        cancel by 1 turn
            cancel turn
        state idle cancelled
            - event new1 cancelled 7 1
            - state idle (cancelled)
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            respond 1 to 2: accepted as u1, with fields
            queue: []
        state running
            - state running
        state idle end
            - state idle (end)
    "#]]);
}

#[test]
fn a_cancelled_prompt_that_the_agent_has_is_answered_with_the_end_of_its_turn() {
    check(&expect![[r#"
        attach 1 waits
        ready queued
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        cancel
            cancel prompt 1
            cancel turn
            queue: []
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
        state running
            - state running
        chunk agent a: text
            - agent a + text
        state idle cancelled
            - event new1 cancelled 8 u1 1
            - state idle (cancelled)
            respond 1 to 1: ended idle (cancelled), with fields
    "#]]);
}

#[test]
fn withdrawing_the_prompt_of_a_running_turn_cancels_the_turn() {
    check(&expect![[r#"
        attach 1 waits
        attach 2
        ready serial
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 2 two
            queue: [2 two (2)]
        withdraw 1 by 1
            cancel turn
        ended 1 cancelled
            - event new2 cancelled 7 new1 1
            - state idle (cancelled)
            - user new3 = two
            - state running
            durable
            respond 1 to 1: ended idle (cancelled)
            respond 2 to 2: accepted as new3
            send 2
            queue: []
    "#]]);
}

#[test]
fn withdrawing_the_prompt_of_a_running_turn_leaves_the_queued_prompts_of_the_same_client() {
    check(&expect![[r#"
        attach 1 waits
        ready serial
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 1 two
            queue: [2 two (1)]
        withdraw 1 by 1
            cancel turn
        ended 1 cancelled
            - event new2 cancelled 6 new1 1
            - state idle (cancelled)
            - user new3 = two
            - state running
            durable
            respond 1 to 1: ended idle (cancelled)
            send 2
            queue: []
    "#]]);
}

#[test]
fn a_client_that_closes_during_a_turn_is_answered_at_once() {
    check(&expect![[r#"
        attach 1 waits
        attach 2
        ready queued
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            queue: []
        state running
            - state running
        prompt 2 by 1 two
            send 2
            queue: [2 two (1)]
        close 1
            respond 1 to 1: withdrawn by 1
            respond 2 to 1: withdrawn by 1
            cancel prompt 2
            queue: []
        dropped 2
        state idle end
            - state idle (end)
    "#]]);
}

#[test]
fn tool_calls_whose_permission_request_is_cancelled_are_cancelled() {
    check(&expect![[r#"
        attach 1
        ready queued
        state running
            - state running
        tool a open
            - tool a open
        tool b open
            - tool b open
        tool c open
            - tool c open
        request 1 call=a
            send request 1 to 1
        request 2 call=b
            send request 2 to 1
        cancel
            cancel turn
            cancel request 1 at 1
            respond to request 1: cancelled
            cancel request 2 at 1
            respond to request 2: cancelled
        tool b done
            - tool b done
        state idle cancelled
            - tool a cancelled
            - event new1 cancelled 11 1
            - state idle (cancelled)
        tool c done
            - tool c done
    "#]]);
}

#[test]
fn a_cancelled_turn_of_an_agent_that_reports_no_states_leaves_no_tool_call_open() {
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
        tool a open
            - tool a open
        ended 1 end
            - state idle (end)
        prompt 2 by 1 two
            - user new2 = two
            - state running
            durable
            respond 2 to 1: accepted as new2
            send 2
        tool b open
            - tool b open
        tool c done
            - tool c done
        request 1 call=d
            - state requires_action
            send request 1 to 1
        tool d open
            - tool d open
        cancel
            - state running
            cancel turn
            cancel request 1 at 1
            respond to request 1: cancelled
        ended 2 cancelled
            - tool d cancelled
            - tool b cancelled
            - event new3 cancelled 12 new2 1
            - state idle (cancelled)
    "#]]);
}

#[test]
fn a_cancelled_turn_or_prompt_is_reported_until_the_agent_has_ended_it() {
    let mut scenario = Scenario::default();
    scenario.run("attach 1\nready serial\nprompt 1 by 1 one\nprompt 2 by 1 two");
    assert!(scenario.session.cancelled().is_empty());
    // A prompt that the agent does not have is withdrawn at once.
    scenario.run("withdraw 2");
    assert!(scenario.session.cancelled().is_empty());
    scenario.run("cancel");
    let first = scenario.session.cancelled();
    assert!(!first.is_empty() && !first.has_no_turn());
    assert_eq!(first.intersection(&scenario.session.cancelled()), first);
    // A second cancellation concerns the same turn.
    scenario.run("cancel");
    assert_eq!(first.intersection(&scenario.session.cancelled()), first);
    scenario.run("ended 1 cancelled");
    assert!(scenario.session.cancelled().is_empty());
    // The next cancelled turn is another one.
    scenario.run("prompt 3 by 1 three\ncancel");
    let second = scenario.session.cancelled();
    assert!(!second.is_empty() && first.intersection(&second).is_empty());
    scenario.run("lost");
    assert!(scenario.session.cancelled().is_empty());
}

#[test]
fn a_prompt_that_the_agent_has_and_that_was_withdrawn_is_cancelled_and_the_turn_before_it_is_not() {
    let mut scenario = Scenario::default();
    scenario.run(
        "attach 1\nready queued\nprompt 1 by 1 one\naccepted 1 u1\nstate running\nprompt 2 by 1 two\nwithdraw 2",
    );
    let withdrawn = scenario.session.cancelled();
    assert!(!withdrawn.is_empty() && withdrawn.has_no_turn());
    assert!(scenario.session.is_wanted_turn_running());
    scenario.run("dropped 2");
    assert!(withdrawn.intersection(&scenario.session.cancelled()).is_empty());
    scenario.run("prompt 3 by 1 three\ncancel");
    let both = scenario.session.cancelled();
    assert!(!both.has_no_turn() && !scenario.session.is_wanted_turn_running());
    // The agent ends the turn and still has the prompt.
    scenario.run("state idle cancelled");
    let left = both.intersection(&scenario.session.cancelled());
    assert!(left.has_no_turn() && !left.is_empty());
    scenario.run("dropped 3");
    assert!(both.intersection(&scenario.session.cancelled()).is_empty());
}

#[test]
fn a_prompt_whose_turn_was_cancelled_before_the_agent_accepted_it_is_not_sent_again() {
    check(&expect![[r#"
        attach 1
        attach 2
        ready queued
        prompt 1 by 2 one
            send 1
            queue: [1 one (2)]
        prompt 2 by 2 two
            send 2
            queue: [1 one (2), 2 two (2)]
        state running
            - state running
        cancel by 1 turn
            cancel turn
        dropped 1
            respond 1 to 2: rejected "dropped"
            queue: [2 two (2)]
        dropped 2
            send 2
    "#]]);
}
