//! Ids of the agent that differ from those of the session.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn a_thought_and_a_message_may_have_the_same_id() {
    check(&expect![[r#"
            ready serial
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
fn a_prompt_may_have_the_id_of_a_message() {
    check(&expect![[r#"
            attach 1
            ready queued
            chunk agent m: yes
                - agent m + yes
            prompt 1 by 1 hi
                send 1
                queue: [1 hi (1)]
            accepted 1 m
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as new1, with fields
                queue: []
            whole user m: hi
            chunk agent m: no
                - agent m + no
            meta user m
                - user new1 meta
        "#]]);
}

#[test]
fn a_finished_tool_call_may_start_again() {
    check(&expect![[r#"
            ready serial
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
            attach 1
            ready serial
            prompt 1 by 1 one
                - user new1 = one
                - Info one {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
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
                respond 2 to 1: accepted as new2
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
fn an_update_before_its_tool_call_is_the_same_tool_call() {
    check(&expect![[r#"
            ready serial
            tool t open
                - tool t open
            starts t
                - tool t open
        "#]]);
}

#[test]
fn ids_of_an_agent_without_history_are_new() {
    check(&expect![[r#"
            attach 1
            ready queued
            prompt 1 by 1 one
                send 1
                queue: [1 one (1)]
            accepted 1 m
                - user m = one
                - Info one {"parlor/title":"made"}
                durable
                respond 1 to 1: accepted as m, with fields
                queue: []
            chunk agent n: yes
                - agent n + yes
            tool t open
                - tool t open
            state idle end
                - state idle (end)
            lost
            ready queued without-history
            prompt 2 by 1 two
                send 2
                queue: [2 two (1)]
            whole user m: two
                - user new1 = two
                durable
                respond 2 to 1: accepted as new1
                queue: []
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
fn ids_of_a_restored_agent_are_kept() {
    check(&expect![[r#"
            ready queued
            chunk thought m: hm
                - thought m + hm
            chunk agent m: yes
                - agent new1 + yes
            lost
            restart
            ready queued
            chunk agent m: again
                - agent new1 + again
            chunk thought m: again
                - thought m + again
        "#]]);
}
