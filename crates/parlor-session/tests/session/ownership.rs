//! After its acceptance, the message of a prompt belongs to the agent that assigned its id.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn an_update_of_an_accepted_prompt_replaces_its_content() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 asked
            send 1
            queue: [1 asked (1)]
        accepted 1 u1
            - user u1 = asked
            - Info asked {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        whole user u1: expanded
            - user u1 = expanded
            - Info expanded
        chunk user u1: !
            - user u1 + !
    "#]]);
}

#[test]
fn a_secret_can_be_redacted_at_acceptance() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 my password is x
            send 1
            queue: [1 my password is x (1)]
        accepted 1 u1
            - user u1 = my password is x
            - Info my password is x {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        null user u1
            - user u1 cleared
            - Info null {"parlor/title":null}
    "#]]);
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 my password is x
            send 1
            queue: [1 my password is x (1)]
        null user u1
            - user u1 cleared
        accepted 1 u1
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
    "#]]);
}

#[test]
fn equal_content_is_not_broadcast_again() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 asked
            send 1
            queue: [1 asked (1)]
        accepted 1 u1
            - user u1 = asked
            - Info asked {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        whole user u1: asked
        chunk agent a: yes
            - agent a + yes
        whole user u1: asked
        chunk user u1: as
        chunk user u1: ked
        chunk user u1: ked
            - user u1 + ked
        whole user u1: asked
            - user u1 = asked
    "#]]);
}

#[test]
fn chunks_that_only_begin_like_the_prompt_are_added_to_it() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one two
            send 1
            queue: [1 one two (1)]
        accepted 1 u1
            - user u1 = one two
            - Info one two {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        chunk user u1: one
        state idle end
            - user u1 + one
            - state idle (end)
        chunk user u1: one two
            - user u1 + one two
    "#]]);
}

#[test]
fn an_echo_may_leave_out_what_is_not_text() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 one | image
            send 1
            queue: [1 one (1)]
        accepted 1 u1
            - user u1 = one
            - Info one {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        chunk user u1: one
        state idle end
            - state idle (end)
    "#]]);
}

#[test]
fn a_surrogate_pair_may_be_split_between_the_chunks_of_an_echo() {
    check(&expect![[r#"
        attach 1
        ready queued
        prompt 1 by 1 a😀b
            send 1
            queue: [1 a😀b (1)]
        accepted 1 u1
            - user u1 = a😀b
            - Info a😀b {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1, with fields
            queue: []
        chunk user u1: a\ud83d
        chunk user u1: \ude00b
    "#]]);
}
