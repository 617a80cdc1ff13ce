//! Matching user messages with prompts, for an agent that assigns the ids.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn a_message_that_the_agent_inserts_before_it_accepts_a_prompt_is_a_message_of_its_own() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 hi
            send 1
            queue: [1 hi (1)]
        whole user x: reminder
            - user x = reminder
        chunk user y: be brief
            - user y + be brief
        accepted 1 u1
            - user u1 = hi
            - Info hi {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        whole user u1: hi
    "#]]);
}

#[test]
fn a_response_with_the_id_of_an_existing_message_makes_it_the_prompt() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 look at this
            send 1
            queue: [1 look at this (1)]
        whole user u1: look at this [expanded]
            - user u1 = look at this [expanded]
        accepted 1 u1
            - Info look at this [expanded] {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        chunk agent a: yes
            - agent a + yes
    "#]]);
}

#[test]
fn a_message_without_content_before_the_response_gets_the_content_of_the_prompt() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 hi
            send 1
            queue: [1 hi (1)]
        meta user u1
        accepted 1 u1
            - user u1 = hi
            - Info hi {"parlor/title":"made"}
            - user u1 meta
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        prompt 2 by 1 ho
            send 2
            queue: [2 ho (1)]
        meta user u2
        chunk agent a: working
            - user u2 meta
            - agent a + working
        accepted 2 u2
            - user u2 = ho
            durable
            respond 2 to 1: accepted as u2, with fields
            queue: []
    "#]]);
}

#[test]
fn chunks_are_the_prompt_once_they_equal_it() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one two
            send 1
            queue: [1 one two (1)]
        chunk user u1: one
        state running
            - state running
        chunk user u1:  two
            - user u1 = one two
            - Info one two {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1
            queue: []
        accepted 1 u1
        chunk user u1: ?
            - user u1 + ?
    "#]]);
}

#[test]
fn chunks_that_diverge_from_every_prompt_are_a_message_of_their_own() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one two
            send 1
            queue: [1 one two (1)]
        chunk user x: one
        chunk user x:  three
            - user x + one
            - user x +  three
        chunk user y: one
        chunk agent a: hm
            - user y + one
            - agent a + hm
        chunk user z: one
        state idle
            - user z + one
            - state idle
        accepted 1 u1
            - user u1 = one two
            - Info one two {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
    "#]]);
}

#[test]
fn unfinished_chunks_of_a_lost_agent_are_applied() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one two
            send 1
            queue: [1 one two (1)]
        chunk user x: one
        lost
            - user x + one
            start agent
    "#]]);
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one two
            send 1
            queue: [1 one two (1)]
        chunk user x: one
        rejected 1
            - user x + one
            respond 1 to 1: rejected "no"
            queue: []
    "#]]);
}

#[test]
fn a_response_between_chunks_decides_which_prompt_they_are() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one two
            send 1
            queue: [1 one two (1)]
        prompt 2 by 1 one and only
            send 2
            queue: [1 one two (1), 2 one and only (1)]
        chunk user u1: one
        accepted 1 u1
            - user u1 = one two
            - Info one two {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: [2 one and only (1)]
        chunk user u1:  two
        chunk user u2: one
        chunk user u2:  and
        accepted 2 u2
            - user u2 = one and only
            durable
            respond 2 to 1: accepted as u2, with fields
            queue: []
        chunk user u2:  all
            - user u2 + one
            - user u2 +  and
            - user u2 +  all
    "#]]);
}

#[test]
fn the_longer_prompt_may_be_accepted_before_the_one_that_it_begins_with() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 fix it
            send 1
            queue: [1 fix it (1)]
        prompt 2 by 1 fix it now
            send 2
            queue: [1 fix it (1), 2 fix it now (1)]
        chunk user u2: fix it
        chunk user u2:  now
            - user u2 = fix it now
            - Info fix it now {"parlor/title":"made"}
            durable
            respond 2 to 1: accepted as u2
            queue: [1 fix it (1)]
        accepted 2 u2
        chunk user u1: fix it
            - user u1 = fix it
            durable
            respond 1 to 1: accepted as u1
            queue: []
        accepted 1 u1
    "#]]);
}

#[test]
fn the_shorter_prompt_may_be_accepted_before_the_one_that_begins_with_it() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 fix it now
            send 1
            queue: [1 fix it now (1)]
        prompt 2 by 1 fix it
            send 2
            queue: [1 fix it now (1), 2 fix it (1)]
        chunk user u2: fix it
        chunk agent a: fixed
            - user u2 = fix it
            - Info fix it {"parlor/title":"made"}
            - agent a + fixed
            durable
            respond 2 to 1: accepted as u2
            queue: [1 fix it now (1)]
        whole user u1: fix it now
            - user u1 = fix it now
            durable
            respond 1 to 1: accepted as u1
            queue: []
        accepted 2 u2
        accepted 1 u1
    "#]]);
}

#[test]
fn an_image_is_not_the_text_that_was_sent_before_it() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 what is it
            send 1
            queue: [1 what is it (1)]
        prompt 2 by 1 image
            send 2
            queue: [1 what is it (1), 2  (1)]
        whole user u2: image
            - user u2 = 
            durable
            respond 2 to 1: accepted as u2
            queue: [1 what is it (1)]
        whole user x: what is it | image
            - user x = what is it
        chunk user u1: what is it
            - user u1 = what is it
            - Info what is it {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1
            queue: []
        accepted 2 u2
        accepted 1 u1
    "#]]);
}

#[test]
fn of_equal_prompts_each_has_a_message_of_its_own_in_whatever_order_the_agent_answers() {
    check(&expect![[r#"
        attach 1
        attach 2 waits
        ready queued
        prompt 1 by 1 go
            send 1
            queue: [1 go (1)]
        prompt 2 by 2 go
            send 2
            queue: [1 go (1), 2 go (2)]
        whole user ub: go
            - user ub = go
            - Info go {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as ub
            queue: [2 go (2)]
        accepted 2 ub
            durable
            queue: [1 go (1)]
        whole user ua: go
            - user ua = go
            durable
            queue: []
        accepted 1 ua
        state idle end
            - state idle (end)
            respond 2 to 2: ended idle (end), with fields
    "#]]);
}

#[test]
fn the_turn_of_an_equal_prompt_does_not_end_the_one_that_was_taken_for_it() {
    check(&expect![[r#"
        attach 1 waits
        ready queued
        prompt 1 by 1 go
            send 1
            queue: [1 go (1)]
        prompt 2 by 1 go
            send 2
            queue: [1 go (1), 2 go (1)]
        whole user ub: go
            - user ub = go
            - Info go {"parlor/title":"made"}
            durable
            queue: [2 go (1)]
        state running
            - state running
        accepted 2 ub
            durable
            queue: [1 go (1)]
        state idle end
            - state idle (end)
            respond 2 to 1: ended idle (end), with fields
        accepted 1 ua
            - user ua = go
            durable
            queue: []
        state running
            - state running
        state idle end
            - state idle (end)
            respond 1 to 1: ended idle (end), with fields
    "#]]);
}

#[test]
fn without_an_id_in_the_response_the_first_new_message_after_it_is_the_prompt() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 look
            send 1
            queue: [1 look (1)]
        whole user x: reminder
            - user x = reminder
        accepted 1
        whole user u1: look [expanded]
            - user u1 = look [expanded]
            - Info look [expanded] {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        whole user y: reminder
            - user y = reminder
    "#]]);
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 look
            send 1
            queue: [1 look (1)]
        accepted 1
        chunk user u1: lo
        chunk user u1: ok, expanded
            - user u1 + lo
            - user u1 + ok, expanded
            - Info look, expanded {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
    "#]]);
}

#[test]
fn without_an_id_in_the_response_an_equal_message_is_the_prompt_wherever_it_comes() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one
            send 1
            queue: [1 one (1)]
        prompt 2 by 1 two
            send 2
            queue: [1 one (1), 2 two (1)]
        accepted 1
        accepted 2
        whole user u2: two
            - user u2 = two
            - Info two {"parlor/title":"made"}
            durable
            respond 2 to 1: accepted as u2, with fields
            queue: [1 one (1)]
        whole user u1: one
            - user u1 = one
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
    "#]]);
}

#[test]
fn a_message_of_a_later_turn_is_not_an_earlier_prompt_without_an_id() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 hi
            send 1
            queue: [1 hi (1)]
        accepted 1
        chunk agent a: hello
            - user new1 = hi
            - Info hi {"parlor/title":"made"}
            - agent a + hello
            durable
            respond 1 to 1: accepted as new1, with fields
            queue: []
        state idle end_turn
            - state idle (end_turn)
        prompt 2 by 1 next
            send 2
            queue: [2 next (1)]
        whole user u2: next [expanded]
            - user u2 = next [expanded]
        accepted 2
    "#]]);
}
