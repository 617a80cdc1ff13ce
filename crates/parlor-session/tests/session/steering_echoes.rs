//! Serial agents that take prompts into their turn, and repeat them in chunks without ids.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn two_prompts_that_are_repeated_one_after_the_other_are_two_messages() {
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
        chunk agent: first
            - agent ~1 + first
        steer 2 by 1 now
            steer 2
        steer 3 by 1 also
            steer 3
        chunk user: now
        chunk user: also
        steered 2
            - user new2 = now meta
            - user new3 = also meta
            durable
            respond 2 to 1: accepted as new2
            respond 3 to 1: accepted as new3
        steered 3
        chunk agent: second
            - agent ~3 + second
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn the_responses_may_come_between_the_repetitions() {
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
        steer 3 by 1 also
            steer 3
        chunk user: now
        steered 2
            - user new2 = now meta
            durable
            respond 2 to 1: accepted as new2
        chunk user: also
        steered 3
            - user new3 = also meta
            durable
            respond 3 to 1: accepted as new3
        steer 4 by 1 then
            steer 4
        steered 4
            - user new4 = then meta
            durable
            respond 4 to 1: accepted as new4
        chunk user: then
        steer 5 by 1 and
            steer 5
        chunk user: and
        steered 5
            - user new5 = and meta
            durable
            respond 5 to 1: accepted as new5
        chunk agent: second
            - agent ~4 + second
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn the_responses_may_come_before_the_repetitions() {
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
        steer 3 by 1 also
            steer 3
        steered 2
            - user new2 = now meta
            durable
            respond 2 to 1: accepted as new2
        steered 3
            - user new3 = also meta
            durable
            respond 3 to 1: accepted as new3
        chunk user: one
        chunk user: now
        chunk user: also
        chunk agent: second
            - agent ~2 + second
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn the_responses_may_come_during_a_repetition() {
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
        steer 2 by 1 now then
            steer 2
        steer 3 by 1 also
            steer 3
        chunk user: now
        steered 2
        steered 3
        chunk user:  then
        chunk user: also
        chunk agent: second
            - user new2 = now then meta
            - user new3 = also meta
            - agent ~2 + second
            durable
            respond 2 to 1: accepted as new2
            respond 3 to 1: accepted as new3
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn three_prompts_may_be_repeated_in_any_chunks_or_only_some_of_them() {
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
        chunk agent: first
            - agent ~1 + first
        steer 2 by 1 now
            steer 2
        steer 3 by 1 also
            steer 3
        steer 4 by 1 then
            steer 4
        chunk user: no
        chunk user: w
        chunk user: also
        chunk user: the
        chunk user: n
        notice
            - user new2 = now meta
            - user new3 = also meta
            - user new4 = then meta
            - note
            durable
            respond 2 to 1: accepted as new2
            respond 3 to 1: accepted as new3
            respond 4 to 1: accepted as new4
        steered 2
        steered 3
        steered 4
        chunk agent: second
            - agent ~3 + second
        steer 5 by 1 five
            steer 5
        steer 6 by 1 six
            steer 6
        steer 7 by 1 seven
            steer 7
        chunk user: five
        chunk user: seven
        rejected 6
            respond 6 to 1: rejected "no"
        steered 7
            - user new5 = five meta
            - user new6 = seven meta
            durable
            respond 5 to 1: accepted as new5
            respond 7 to 1: accepted as new6
        steered 5
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn a_prompt_that_was_sent_after_the_repetition_began_may_follow_in_it() {
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
        chunk agent: first
            - agent ~1 + first
        steer 2 by 1 now
            steer 2
        chunk user: now
        steer 3 by 1 also
            steer 3
        chunk user: also
        ended 1 end
            - user new2 = now meta
            - user new3 = also meta
            - state idle (end)
            durable
            respond 2 to 1: accepted as new2
            respond 3 to 1: accepted as new3
        steered 2
        steered 3
    "#]]);
}

#[test]
fn text_that_begins_like_two_prompts_and_then_differs_is_a_message() {
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
        chunk agent: first
            - agent ~1 + first
        steer 2 by 1 now
            steer 2
        steer 3 by 1 also
            steer 3
        chunk user: now
        chunk user: al
        steered 2
        chunk user: ways
            - user ~2 + now
            - user ~2 + al
            - user ~2 + ways
        chunk user:  and more
            - user ~2 +  and more
        chunk agent: second
            - user new2 = now meta
            - agent ~3 + second
            durable
            respond 2 to 1: accepted as new2
        steered 3
            - user new3 = also meta
            durable
            respond 3 to 1: accepted as new3
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn text_that_ends_within_the_second_prompt_is_a_message() {
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
        chunk agent: first
            - agent ~1 + first
        steer 2 by 1 now
            steer 2
        steer 3 by 1 also
            steer 3
        chunk user: now
        chunk user: al
        steered 2
        steered 3
        chunk agent: second
            - user ~2 + now
            - user ~2 + al
            - user new2 = now meta
            - user new3 = also meta
            - agent ~3 + second
            durable
            respond 2 to 1: accepted as new2
            respond 3 to 1: accepted as new3
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn equal_prompts_are_repeated_in_order() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 go
            - user new1 = go
            - Info go {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        steer 2 by 1 go
            steer 2
        chunk user: go
        not-steered 2
            queue: [2 go (1)]
        chunk agent: first
            - agent ~2 + first
        steer 3 by 1 go
            steer 3
        steer 4 by 1 go
            steer 4
        chunk user: go
        chunk user: go
        steered 3
            - user new2 = go meta
            - user new3 = go meta
            durable
            respond 3 to 1: accepted as new2
            respond 4 to 1: accepted as new3
        steered 4
        chunk agent: second
            - agent ~4 + second
        steer 5 by 1 go
            steer 5
        steer 6 by 1 go
            steer 6
        chunk user: go
        steered 5
            - user new4 = go meta
            durable
            respond 5 to 1: accepted as new4
        steered 6
            - user new5 = go meta
            durable
            respond 6 to 1: accepted as new5
        ended 1 end
            - state idle (end)
            - user new6 = go
            - state running
            durable
            respond 2 to 1: accepted as new6
            send 2
            queue: []
    "#]]);
}

#[test]
fn one_prompt_may_begin_like_the_other() {
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
        chunk agent: first
            - agent ~1 + first
        steer 2 by 1 go
            steer 2
        steer 3 by 1 go on
            steer 3
        chunk user: go
        chunk user: go on
        chunk agent: second
            - user new2 = go meta
            - user new3 = go on meta
            - agent ~3 + second
            durable
            respond 2 to 1: accepted as new2
            respond 3 to 1: accepted as new3
        steered 2
        steered 3
        steer 4 by 1 go on
            steer 4
        steer 5 by 1 go
            steer 5
        chunk user: go
        steered 4
        chunk user:  on
        chunk user: go
        steered 5
            - user new4 = go on meta
            - user new5 = go meta
            durable
            respond 4 to 1: accepted as new4
            respond 5 to 1: accepted as new5
        chunk agent: third
            - agent ~5 + third
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn a_repetition_ends_with_the_agent() {
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
        chunk agent: first
            - agent ~1 + first
        steer 2 by 1 now
            steer 2
        steer 3 by 1 also
            steer 3
        steer 4 by 1 then
            steer 4
        chunk user: now
        chunk user: also
        lost
            - user new2 = now meta
            - user new3 = also meta
            - event new4 failed 10 new1
            - state idle (error)
            durable
            respond 2 to 1: accepted as new2
            respond 3 to 1: accepted as new3
            start agent
            queue: [4 then (1)]
        ready serial
            - user new5 = then
            - state running
            durable
            respond 4 to 1: accepted as new5
            send 4
            queue: []
    "#]]);
}
