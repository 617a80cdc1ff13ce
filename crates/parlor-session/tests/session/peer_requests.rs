//! Requests of agents to clients.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn all_drivers_receive_a_request_and_the_first_result_wins() {
    check(&expect![[r#"
            attach 1
            attach 2
            attach 3 observer
            ready serial
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            request 5
                - state requires_action
                send request 5 to 1
                send request 5 to 2
            answer 5 by 3
            answer 5 by 2
                - state running
                durable
                decision 5 by 2: "answer of 2"
                cancel request 5 at 1
                respond to request 5: result "answer of 2"
            answer 5 by 1
        "#]]);
}

#[test]
fn the_error_of_the_last_client_is_the_response() {
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
            request 5
                - state requires_action
                send request 5 to 1
                send request 5 to 2
            err 5 by 1
            answer 5 by 1
            err 5 by 2
                - state running
                respond to request 5: error "err of 2"
            request 6
                - state requires_action
                send request 6 to 1
                send request 6 to 2
            err 6 by 1
            answer 6 by 2
                - state running
                durable
                decision 6 by 2: "answer of 2"
                respond to request 6: result "answer of 2"
        "#]]);
}

#[test]
fn a_request_that_a_client_leaves_open_is_not_ended_by_errors_of_others() {
    check(&expect![[r#"
            attach 1
            attach 2
            ready queued
            request 5
                send request 5 to 1
                send request 5 to 2
            leave-open 5 by 1
            err 5 by 2
            attach 3
                send request 5 to 3
            err 5 by 3
            decide 5 by 4
                durable
                decision 5 by 4: "decision of 4"
                respond to request 5: result "decision of 4"
        "#]]);
}

#[test]
fn a_request_without_drivers_waits_for_one() {
    check(&expect![[r#"
            ready serial
            request 5
                - state requires_action
            attach 1 observer
            attach 2
                send request 5 to 2
            attach 2
            answer 5 by 2
                - state idle
                durable
                decision 5 by 2: "answer of 2"
                respond to request 5: result "answer of 2"
        "#]]);
}

#[test]
fn a_detached_client_is_not_waited_for() {
    check(&expect![[r#"
            attach 1
            attach 2
            ready queued
            request 5
                send request 5 to 1
                send request 5 to 2
            detach 1
            answer 5 by 1
            detach 2
            attach 3
                send request 5 to 3
            answer 5 by 3
                durable
                decision 5 by 3: "answer of 3"
                respond to request 5: result "answer of 3"
        "#]]);
}

#[test]
fn an_error_is_the_response_when_all_others_have_detached() {
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
            request 5
                - state requires_action
                send request 5 to 1
                send request 5 to 2
            err 5 by 1
            detach 2
                - state running
                respond to request 5: error "err of 1"
        "#]]);
}

#[test]
fn an_error_of_a_detached_client_is_no_response() {
    check(&expect![[r#"
            attach 1
            attach 2
            ready queued
            request 5
                send request 5 to 1
                send request 5 to 2
            err 5 by 1
            detach 1
            detach 2
            attach 3
                send request 5 to 3
        "#]]);
}

#[test]
fn forms_are_sent_to_clients_that_can_show_them() {
    check(&expect![[r#"
            attach 1
            attach 2 forms
            ready serial
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            request 5 form
                - state requires_action
                send request 5 to 2
            attach 3
            attach 4 forms
                send request 5 to 4
            answer 5 by 4
                - state running
                durable
                decision 5 by 4: "answer of 4"
                cancel request 5 at 2
                respond to request 5: result "answer of 4"
        "#]]);
}

#[test]
fn a_form_that_no_client_can_show_is_cancelled() {
    check(&expect![[r#"
            attach 1
            attach 2 forms observer
            ready serial
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            request 5 form
                respond to request 5: cancelled
        "#]]);
}

#[test]
fn the_session_requires_action_until_the_last_request_is_answered() {
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
            request 5
                - state requires_action
                send request 5 to 1
            request 6
                send request 6 to 1
            answer 5 by 1
                durable
                decision 5 by 1: "answer of 1"
                respond to request 5: result "answer of 1"
            cancel-request 6
                - state running
                cancel request 6 at 1
                respond to request 6: cancelled by agent
            ended 1 end
                - state idle (end)
        "#]]);
}

#[test]
fn a_request_outside_a_turn_leaves_the_session_idle() {
    check(&expect![[r#"
            attach 1
            ready serial
            request 5
                - state requires_action
                send request 5 to 1
            answer 5 by 1
                - state idle
                durable
                decision 5 by 1: "answer of 1"
                respond to request 5: result "answer of 1"
        "#]]);
}

#[test]
fn a_turn_that_starts_with_an_open_request_requires_action() {
    check(&expect![[r#"
            attach 1
            ready serial
            request 5
                - state requires_action
                send request 5 to 1
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                - state requires_action
                durable
                respond 1 to 1: accepted as new1
                send 1
            answer 5 by 1
                - state running
                durable
                decision 5 by 1: "answer of 1"
                respond to request 5: result "answer of 1"
        "#]]);
}

#[test]
fn requests_do_not_change_the_state_of_an_agent_that_reports_states() {
    check(&expect![[r#"
            attach 1
            ready queued
            state running
                - state running
            request 5
                send request 5 to 1
            state requires_action
                - state requires_action
            answer 5 by 1
                durable
                decision 5 by 1: "answer of 1"
                respond to request 5: result "answer of 1"
        "#]]);
}

#[test]
fn the_end_of_a_turn_cancels_its_requests() {
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
            request 5
                - state requires_action
                send request 5 to 1
            ended 1 end
                - state idle (end)
                cancel request 5 at 1
                respond to request 5: cancelled
            answer 5 by 1
        "#]]);
}

#[test]
fn requests_are_cancelled_when_their_agent_is_lost() {
    check(&expect![[r#"
            attach 1
            ready serial
            request 5
                - state requires_action
                send request 5 to 1
            lost
                - event new1 failed 4
                - state idle (error)
                cancel request 5 at 1
                respond to request 5: agent lost
            answer 5 by 1
        "#]]);
}

#[test]
fn requests_are_cancelled_when_their_agent_is_released() {
    check(&expect![[r#"
            attach 1
            ready queued
            request 5
                send request 5 to 1
            released
                cancel request 5 at 1
                respond to request 5: agent lost
        "#]]);
}

#[test]
fn requests_are_cancelled_at_a_client_that_closes() {
    check(&expect![[r#"
            attach 1
            attach 2
            ready queued
            request 5
                send request 5 to 1
                send request 5 to 2
            close 1
                cancel request 5 at 1
        "#]]);
}
