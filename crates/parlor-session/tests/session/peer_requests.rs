//! What agents ask people.

use expect_test::expect;

use crate::stage::check;

#[test]
fn all_drivers_are_asked_and_the_first_result_wins() {
    check(&expect![[r#"
            join 1
            join 2
            join 3 watches
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            ask 5
                - state waits
                ask 5 of 1
                ask 5 of 2
            answer 5 by 3
            answer 5 by 2
                - state running
                durable
                decided 5 by 2: "answer of 2"
                withdraw 5 from 1
                reply 5: result "answer of 2"
            answer 5 by 1
        "#]]);
}

#[test]
fn who_errs_is_out_and_the_last_error_is_the_answer() {
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
            ask 5
                - state waits
                ask 5 of 1
                ask 5 of 2
            err 5 by 1
            answer 5 by 1
            err 5 by 2
                - state running
                reply 5: error "err of 2"
            ask 6
                - state waits
                ask 6 of 1
                ask 6 of 2
            err 6 by 1
            answer 6 by 2
                - state running
                durable
                decided 6 by 2: "answer of 2"
                reply 6: result "answer of 2"
        "#]]);
}

#[test]
fn with_nobody_there_it_waits_for_who_joins() {
    check(&expect![[r#"
            ready one
            ask 5
                - state waits
            join 1 watches
            join 2
                ask 5 of 2
            join 2
            answer 5 by 2
                - state idle
                durable
                decided 5 by 2: "answer of 2"
                reply 5: result "answer of 2"
        "#]]);
}

#[test]
fn who_leaves_is_not_waited_for() {
    check(&expect![[r#"
            join 1
            join 2
            ready queue
            ask 5
                ask 5 of 1
                ask 5 of 2
            left 1
            answer 5 by 1
            left 2
            join 3
                ask 5 of 3
            answer 5 by 3
                durable
                decided 5 by 3: "answer of 3"
                reply 5: result "answer of 3"
        "#]]);
}

#[test]
fn an_error_is_the_answer_when_all_others_have_left() {
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
            ask 5
                - state waits
                ask 5 of 1
                ask 5 of 2
            err 5 by 1
            left 2
                - state running
                reply 5: error "err of 1"
        "#]]);
}

#[test]
fn an_error_of_somebody_who_left_is_no_answer() {
    check(&expect![[r#"
            join 1
            join 2
            ready queue
            ask 5
                ask 5 of 1
                ask 5 of 2
            err 5 by 1
            left 1
            left 2
            join 3
                ask 5 of 3
        "#]]);
}

#[test]
fn forms_go_to_those_who_can_show_them() {
    check(&expect![[r#"
            join 1
            join 2 forms
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            ask 5 form
                - state waits
                ask 5 of 2
            join 3
            join 4 forms
                ask 5 of 4
            answer 5 by 4
                - state running
                durable
                decided 5 by 4: "answer of 4"
                withdraw 5 from 2
                reply 5: result "answer of 4"
        "#]]);
}

#[test]
fn a_form_that_nobody_can_show_is_cancelled() {
    check(&expect![[r#"
            join 1
            join 2 forms watches
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            ask 5 form
                reply 5: cancelled
        "#]]);
}

#[test]
fn the_session_waits_until_the_last_is_answered() {
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
            ask 5
                - state waits
                ask 5 of 1
            ask 6
                ask 6 of 1
            answer 5 by 1
                durable
                decided 5 by 1: "answer of 1"
                reply 5: result "answer of 1"
            unask 6
                - state running
                withdraw 6 from 1
                reply 6: taken back
            ended 1 end
                - state idle (end)
        "#]]);
}

#[test]
fn outside_a_turn_the_session_rests_afterwards() {
    check(&expect![[r#"
            join 1
            ready one
            ask 5
                - state waits
                ask 5 of 1
            answer 5 by 1
                - state idle
                durable
                decided 5 by 1: "answer of 1"
                reply 5: result "answer of 1"
        "#]]);
}

#[test]
fn a_turn_that_begins_while_a_question_is_open_waits_for_it() {
    check(&expect![[r#"
            join 1
            ready one
            ask 5
                - state waits
                ask 5 of 1
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                - state waits
                durable
                settle 1 of 1: accepted as new1
                send 1
            answer 5 by 1
                - state running
                durable
                decided 5 by 1: "answer of 1"
                reply 5: result "answer of 1"
        "#]]);
}

#[test]
fn an_agent_that_reports_states_reports_these_too() {
    check(&expect![[r#"
            join 1
            ready queue
            state running
                - state running
            ask 5
                ask 5 of 1
            state waits
                - state waits
            answer 5 by 1
                durable
                decided 5 by 1: "answer of 1"
                reply 5: result "answer of 1"
        "#]]);
}

#[test]
fn the_end_of_a_turn_ends_its_questions() {
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
            ask 5
                - state waits
                ask 5 of 1
            ended 1 end
                - state idle (end)
                withdraw 5 from 1
                reply 5: cancelled
            answer 5 by 1
        "#]]);
}

#[test]
fn questions_go_with_their_agent() {
    check(&expect![[r#"
            join 1
            ready one
            ask 5
                - state waits
                ask 5 of 1
            gone
                - event new1 failed 4
                - state idle (error)
                withdraw 5 from 1
                reply 5: gone
            answer 5 by 1
        "#]]);
}

#[test]
fn questions_go_with_an_agent_that_is_released() {
    check(&expect![[r#"
            join 1
            ready queue
            ask 5
                ask 5 of 1
            released
                withdraw 5 from 1
                reply 5: gone
        "#]]);
}

#[test]
fn who_closes_is_not_asked_any_more() {
    check(&expect![[r#"
            join 1
            join 2
            ready queue
            ask 5
                ask 5 of 1
                ask 5 of 2
            close 1
                withdraw 5 from 1
        "#]]);
}
