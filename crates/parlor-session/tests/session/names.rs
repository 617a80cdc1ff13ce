//! What agents call things, and what sessions call them.

use expect_test::expect;

use crate::stage::check;

#[test]
fn a_thought_and_a_message_may_have_one_name() {
    check(&expect![[r#"
            ready one
            chunk thought m: hm
                - thought m + hm
            chunk agent m: yes
                - agent new1 + yes
            chunk thought m: no
                - thought m + no
            chunk agent m: well
                - agent new1 + well
            whole agent m: yes
                - agent new1 = yes
        "#]]);
}

#[test]
fn a_prompt_may_have_the_name_of_a_message() {
    check(&expect![[r#"
            join 1
            ready queue
            chunk agent m: yes
                - agent m + yes
            prompt 1 by 1 hi
                send 1
                held: [1 hi (1)]
            accepted 1 m
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as new1, with fields
                held: []
            whole user m: hi
            chunk agent m: no
                - agent m + no
            meta user m
                - user new1 meta
        "#]]);
}

#[test]
fn a_tool_call_that_is_over_may_start_again() {
    check(&expect![[r#"
            ready one
            starts t
                - tool t open
            tool t done
                - tool t done
            starts t
                - tool new1 open
            tool t done
                - tool new1 done
            starts t
                - tool new2 open
        "#]]);
}

#[test]
fn a_tool_call_of_an_earlier_turn_may_start_again() {
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
            starts t
                - tool t open
            starts t
                - tool t open
            tool t more
                - tool t more
            ended 1 end
                - state idle (end)
            prompt 2 by 1 two
                - user new2 = two
                - state running
                durable
                settle 2 of 1: accepted as new2
                send 2
            tool t late
                - tool t late
            starts t
                - tool new3 open
            tool t done
                - tool new3 done
        "#]]);
}

#[test]
fn an_update_before_its_tool_call_is_the_same_one() {
    check(&expect![[r#"
            ready one
            tool t open
                - tool t open
            starts t
                - tool t open
        "#]]);
}

#[test]
fn an_agent_that_begins_anew_has_names_of_its_own() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            accepted 1 m
                - user m = one
                - Info one {"parlor/title":"made"}
                durable
                settle 1 of 1: accepted as m, with fields
                held: []
            chunk agent n: yes
                - agent n + yes
            tool t open
                - tool t open
            state idle end
                - state idle (end)
            gone
            ready queue anew
            prompt 2 by 1 two
                send 2
                held: [2 two (1)]
            whole user m: two
                - user new1 = two
                durable
                settle 2 of 1: accepted as new1
                held: []
            accepted 2 m
            chunk agent n: well
                - agent new2 + well
            chunk agent n: done
                - agent new2 + done
            tool t open
                - tool new3 open
            tool t done
                - tool new3 done
        "#]]);
}

#[test]
fn an_agent_that_goes_on_keeps_its_names() {
    check(&expect![[r#"
            ready queue
            chunk thought m: hm
                - thought m + hm
            chunk agent m: yes
                - agent new1 + yes
            gone
            restart
            ready queue
            chunk agent m: again
                - agent new1 + again
            chunk thought m: again
                - thought m + again
        "#]]);
}
