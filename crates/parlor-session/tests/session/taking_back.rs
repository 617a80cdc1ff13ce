//! What is not wanted any more.

use expect_test::expect;

use crate::stage::{Stage, check};

#[test]
fn cancelling_takes_back_all_that_is_held_and_ends_the_turn() {
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
        prompt 3 by 2 three
            held: [2 two (1), 3 three (2)]
        ask 5
            - state waits
            ask 5 of 1
            ask 5 of 2
        cancel
            - state running
            settle 2 of 1: withdrawn by 1
            settle 3 of 2: withdrawn by 1
            interrupt
            withdraw 5 from 1
            withdraw 5 from 2
            reply 5: cancelled
            held: []
        ended 1 cancelled
            - event new2 cancelled 9 new1 1
            - state idle (cancelled)
            settle 1 of 2: ended idle (cancelled)
    "#]]);
}

#[test]
fn cancelling_takes_back_what_an_agent_holds() {
    check(&expect![[r#"
        join 1
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as u1, with fields
            held: []
        state running
            - state running
        prompt 2 by 1 two
            send 2
            held: [2 two (1)]
        ask 5
            ask 5 of 1
        cancel
            recall 2
            interrupt
            withdraw 5 from 1
            reply 5: cancelled
            held: []
        rejected 2
            settle 2 of 1: rejected "no" by 1
        state idle cancelled
            - event new1 cancelled 10 u1 1
            - state idle (cancelled)
    "#]]);
}

#[test]
fn a_prompt_that_was_taken_back_too_late_is_in_the_conversation() {
    check(&expect![[r#"
        join 1
        ready queue
        state running
            - state running
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        cancel
            recall 1
            interrupt
            held: []
        whole user u1: one
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as u1
        accepted 1 u1
        state idle cancelled
            - event new1 cancelled 8 u1 1
            - state idle (cancelled)
    "#]]);
}

#[test]
fn an_agent_that_has_said_nothing_yet_is_interrupted_too() {
    check(&expect![[r#"
        join 1
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            settle 1 of 1: accepted as u1, with fields
            held: []
        cancel
            interrupt
        state idle cancelled
            - event new1 cancelled 6 u1 1
            - state idle (cancelled)
        cancel
    "#]]);
}

#[test]
fn without_an_agent_cancelling_takes_back() {
    check(&expect![[r#"
        join 1
        prompt 1 by 1 one
            need agent
            held: [1 one (1)]
        cancel
            settle 1 of 1: withdrawn by 1
            held: []
    "#]]);
}

#[test]
fn one_held_prompt_is_taken_back() {
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
        back 2
            settle 2 of 1: withdrawn by 1
            held: [3 three (1)]
        back 2
        back 1
        ended 1 end
            - state idle (end)
            - user new2 = three
            - state running
            durable
            settle 3 of 1: accepted as new2
            send 3
            held: []
    "#]]);
}

#[test]
fn an_agent_says_what_came_of_one_that_it_holds() {
    check(&expect![[r#"
        join 1
        ready queue
        state running
            - state running
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        prompt 2 by 1 two
            send 2
            held: [1 one (1), 2 two (1)]
        back 1
            recall 1
            held: [2 two (1)]
        back 1
        back 2
            recall 2
            held: []
        rejected 1
            settle 1 of 1: rejected "no" by 1
        accepted 2 u2
            - user u2 = two
            - Info two {"parlor/title":"made"}
            durable
            settle 2 of 1: accepted as u2, with fields
    "#]]);
}

#[test]
fn what_was_taken_back_is_not_sent_to_the_next_agent() {
    check(&expect![[r#"
        join 1
        ready queue
        state running
            - state running
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        prompt 2 by 1 two
            send 2
            held: [1 one (1), 2 two (1)]
        back 1
            recall 1
            held: [2 two (1)]
        gone
            - event new1 failed 7
            - state idle (error)
            settle 1 of 1: withdrawn by 1
            need agent
        ready queue
            send 2
    "#]]);
}

#[test]
fn closing_takes_back_ones_own() {
    check(&expect![[r#"
        join 1
        join 2
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
        prompt 3 by 2 three
            held: [2 two (1), 3 three (2)]
        ask 5
            - state waits
            ask 5 of 1
            ask 5 of 2
        close 1
            withdraw 5 from 1
            settle 2 of 1: withdrawn by 1
            held: [3 three (2)]
        answer 5 by 2
            - state running
            durable
            decided 5 by 2: "answer of 2"
            reply 5: result "answer of 2"
        ended 1 end
            - state idle (end)
            - user new2 = three
            - state running
            durable
            settle 3 of 2: accepted as new2
            send 3
            held: []
    "#]]);
}

#[test]
fn the_last_to_close_ends_the_turn_and_lets_the_agent_go() {
    check(&expect![[r#"
        join 1 waits
        join 2
        ready one
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 2 two
            held: [2 two (2)]
        left 2
        ask 5
            - state waits
            ask 5 of 1
        close 1
            - state running
            withdraw 5 from 1
            settle 2 of 2: withdrawn by 1
            interrupt
            reply 5: cancelled
            held: []
        ended 1 cancelled
            - event new2 cancelled 9 new1 1
            - state idle (cancelled)
            settle 1 of 1: ended idle (cancelled)
        released
    "#]]);
}

#[test]
fn a_lost_connection_is_not_a_close() {
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
        "#]]);
}

#[test]
fn cancelling_the_turn_leaves_what_others_queued() {
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
        prompt 3 by 2 three
            held: [2 two (1), 3 three (2)]
        cancel by 1 turn
            settle 2 of 1: withdrawn by 1
            interrupt
            held: [3 three (2)]
        ended 1 cancelled
            - event new2 cancelled 8 new1 1
            - state idle (cancelled)
            - user new3 = three
            - state running
            durable
            settle 1 of 2: ended idle (cancelled)
            send 3
            held: []
    "#]]);
}

#[test]
fn what_an_agent_drops_with_the_turn_is_sent_again_in_order_if_another_wants_it() {
    check(&expect![[r#"
        join 1
        join 2
        ready queue
        state running
            - state running
        prompt 1 by 2 one
            send 1
            held: [1 one (2)]
        prompt 2 by 1 two
            send 2
            held: [1 one (2), 2 two (1)]
        prompt 3 by 2 three
            send 3
            held: [1 one (2), 2 two (1), 3 three (2)]
        cancel by 1 turn
            recall 2
            interrupt
            held: [1 one (2), 3 three (2)]
        drops 2
            settle 2 of 1: rejected "dropped" by 1
        drops 3
        drops 1
            send 1
            send 3
        state idle cancelled
            - event new1 cancelled 12 1
            - state idle (cancelled)
        drops 1
            settle 1 of 2: rejected "dropped"
            held: [3 three (2)]
        accepted 3 u3
            - user u3 = three
            - Info three {"parlor/title":"made"}
            durable
            settle 3 of 2: accepted as u3, with fields
            held: []
    "#]]);
}

#[test]
fn what_an_agent_keeps_when_the_turn_is_cancelled_is_not_sent_again() {
    check(&expect![[r#"
        join 1
        join 2
        ready queue
        state running
            - state running
        prompt 1 by 2 one
            send 1
            held: [1 one (2)]
        cancel by 1 turn
            interrupt
        state idle cancelled
            - event new1 cancelled 7 1
            - state idle (cancelled)
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            settle 1 of 2: accepted as u1, with fields
            held: []
        state running
            - state running
        state idle end
            - state idle (end)
    "#]]);
}

#[test]
fn a_cancelled_prompt_that_the_agent_has_is_answered_with_the_end_of_its_turn() {
    check(&expect![[r#"
        join 1 waits
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        cancel
            recall 1
            interrupt
            held: []
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
            settle 1 of 1: ended idle (cancelled), with fields
    "#]]);
}

#[test]
fn withdrawing_the_prompt_of_a_running_turn_cancels_the_turn() {
    check(&expect![[r#"
        join 1 waits
        join 2
        ready one
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 2 two
            held: [2 two (2)]
        back 1 by 1
            interrupt
        ended 1 cancelled
            - event new2 cancelled 7 new1 1
            - state idle (cancelled)
            - user new3 = two
            - state running
            durable
            settle 1 of 1: ended idle (cancelled)
            settle 2 of 2: accepted as new3
            send 2
            held: []
    "#]]);
}

#[test]
fn withdrawing_the_prompt_of_a_running_turn_leaves_the_queued_prompts_of_the_same_client() {
    check(&expect![[r#"
        join 1 waits
        ready one
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            send 1
        prompt 2 by 1 two
            held: [2 two (1)]
        back 1 by 1
            interrupt
        ended 1 cancelled
            - event new2 cancelled 6 new1 1
            - state idle (cancelled)
            - user new3 = two
            - state running
            durable
            settle 1 of 1: ended idle (cancelled)
            send 2
            held: []
    "#]]);
}

#[test]
fn who_closes_during_a_turn_that_goes_on_is_answered_at_once() {
    check(&expect![[r#"
        join 1 waits
        join 2
        ready queue
        prompt 1 by 1 one
            send 1
            held: [1 one (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            held: []
        state running
            - state running
        prompt 2 by 1 two
            send 2
            held: [2 two (1)]
        close 1
            settle 1 of 1: withdrawn by 1
            settle 2 of 1: withdrawn by 1
            recall 2
            held: []
        drops 2
        state idle end
            - state idle (end)
    "#]]);
}

#[test]
fn tool_calls_whose_permission_request_is_cancelled_are_cancelled() {
    check(&expect![[r#"
        join 1
        ready queue
        state running
            - state running
        tool a open
            - tool a open
        tool b open
            - tool b open
        tool c open
            - tool c open
        ask 1 call=a
            ask 1 of 1
        ask 2 call=b
            ask 2 of 1
        cancel
            interrupt
            withdraw 1 from 1
            reply 1: cancelled
            withdraw 2 from 1
            reply 2: cancelled
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
        join 1
        ready one
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
        tool a open
            - tool a open
        ended 1 end
            - state idle (end)
        prompt 2 by 1 two
            - user new2 = two
            - state running
            durable
            settle 2 of 1: accepted as new2
            send 2
        tool b open
            - tool b open
        tool c done
            - tool c done
        ask 1 call=d
            - state waits
            ask 1 of 1
        tool d open
            - tool d open
        cancel
            - state running
            interrupt
            withdraw 1 from 1
            reply 1: cancelled
        ended 2 cancelled
            - tool d cancelled
            - tool b cancelled
            - event new3 cancelled 12 new2 1
            - state idle (cancelled)
    "#]]);
}

#[test]
fn what_was_cancelled_is_a_turn_or_prompts_that_the_agent_has_until_it_has_ended_them() {
    let mut stage = Stage::default();
    stage.play("join 1\nready one\nprompt 1 by 1 one\nprompt 2 by 1 two");
    assert!(stage.session.cancelled().is_empty());
    // A prompt that the agent does not have is gone at once.
    stage.play("back 2");
    assert!(stage.session.cancelled().is_empty());
    stage.play("cancel");
    let first = stage.session.cancelled();
    assert!(!first.is_empty() && !first.is_no_turn());
    assert_eq!(first.still_in(&stage.session.cancelled()), first);
    // Who cancels again waits for the same turn.
    stage.play("cancel");
    assert_eq!(first.still_in(&stage.session.cancelled()), first);
    stage.play("ended 1 cancelled");
    assert!(stage.session.cancelled().is_empty());
    // The next turn is another one, also if it is cancelled.
    stage.play("prompt 3 by 1 three\ncancel");
    let second = stage.session.cancelled();
    assert!(!second.is_empty() && first.still_in(&second).is_empty());
    stage.play("gone");
    assert!(stage.session.cancelled().is_empty());
}

#[test]
fn a_prompt_that_the_agent_has_and_that_was_withdrawn_is_cancelled_and_the_turn_before_it_is_not() {
    let mut stage = Stage::default();
    stage.play(
        "join 1\nready queue\nprompt 1 by 1 one\naccepted 1 u1\nstate running\nprompt 2 by 1 two\nback 2",
    );
    let withdrawn = stage.session.cancelled();
    assert!(!withdrawn.is_empty() && withdrawn.is_no_turn());
    assert!(stage.session.is_wanted_turn_running());
    stage.play("drops 2");
    assert!(withdrawn.still_in(&stage.session.cancelled()).is_empty());
    stage.play("prompt 3 by 1 three\ncancel");
    let both = stage.session.cancelled();
    assert!(!both.is_no_turn() && !stage.session.is_wanted_turn_running());
    // The agent ends the turn and still has the prompt.
    stage.play("state idle cancelled");
    let left = both.still_in(&stage.session.cancelled());
    assert!(left.is_no_turn() && !left.is_empty());
    stage.play("drops 3");
    assert!(both.still_in(&stage.session.cancelled()).is_empty());
}
