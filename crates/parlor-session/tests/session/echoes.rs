//! Agents that say a prompt again.

use expect_test::expect;

use crate::stage::check;

#[test]
fn equal_text_without_a_name_is_the_prompt() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user: hi there
            chunk agent: hello
                - agent ~2 + hello
            chunk user: hi there
                - user ~3 + hi there
        "#]]);
}

#[test]
fn equal_text_with_a_name_names_the_prompt() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user u1: hi there
            chunk agent: hello
                - agent ~1 + hello
            chunk user u1:  and more
                - user new1 +  and more
        "#]]);
}

#[test]
fn it_may_come_in_pieces() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user: hi
            title greeting
                - Info greeting
            chunk user:  th
            chunk user: ere
            chunk agent: hello
                - agent ~4 + hello
            ended 1 end
                - state idle (end)
        "#]]);
}

#[test]
fn pieces_may_have_a_name() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user u1: hi
            chunk user u1:  there
            ended 1 end
                - state idle (end)
            chunk user u1: !
                - user new1 + !
        "#]]);
}

#[test]
fn a_block_without_text_is_part_of_it() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 image
                - user new1 = 
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user: image
            chunk agent: nice
                - agent ~2 + nice
        "#]]);
}

#[test]
fn other_text_is_news_and_keeps_its_place() {
    check(&expect![[r#"
        join 1
        ready one
        prompt 1 by 1 hi there
            - user new1 = hi there
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
        chunk user: hi
        chunk user: gh
            - user ~1 + hi
            - user ~1 + gh
        chunk user: er
            - user ~1 + er
        chunk agent: what
            - agent ~3 + what
    "#]]);
}

#[test]
fn a_part_of_the_text_is_news_when_something_else_comes() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user: hi
            chunk user:  th
            chunk agent: what
                - user ~1 + hi
                - user ~1 +  th
                - agent ~3 + what
        "#]]);
}

#[test]
fn a_part_of_the_text_is_news_when_the_turn_ends() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user u: hi
            ended 1 end
                - user u + hi
                - state idle (end)
        "#]]);
}

#[test]
fn a_part_of_the_text_is_news_when_the_agent_is_gone() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user u: hi
            gone
                - user u + hi
                - state idle (error)
        "#]]);
}

#[test]
fn text_that_goes_on_after_the_prompt_is_another_message() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi
                - user new1 = hi
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user: hi
            chunk user:  again
                - user ~1 + hi
                - user ~1 +  again
            chunk agent: hello
                - agent ~3 + hello
        "#]]);
}

#[test]
fn a_message_with_another_name_is_another_message() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi there
                - user new1 = hi there
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk user u1: hi there
            chunk user u2: reminder
                - user u2 + reminder
            chunk user u1: !
                - user new1 + !
        "#]]);
}

#[test]
fn after_output_equal_text_is_news() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 hi
                - user new1 = hi
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            chunk thought: hm
                - thought ~1 + hm
            chunk user: hi
                - user ~2 + hi
        "#]]);
}

#[test]
fn what_is_late_from_the_turn_before_is_no_output() {
    check(&expect![[r#"
            join 1
            ready one
            prompt 1 by 1 one
                - user new1 = one
                - state running
                durable
                settle 1 of 1: accepted as new1
                send 1
            starts t
                - tool t open
            ended 1 end
                - state idle (end)
            prompt 2 by 1 two
                - user new2 = two
                - state running
                durable
                settle 2 of 1: accepted as new2
                send 2
            tool t done
                - tool t done
            chunk user: two
            chunk agent: yes
                - agent ~2 + yes
        "#]]);
}

#[test]
fn a_named_prompt_may_be_said_again_before_its_answer_or_after() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            whole user u1: one
                - user u1 = one
                durable
                settle 1 of 1: accepted as u1
                held: []
            accepted 1 u1
            whole user u1: one
            state idle
                - state idle
            prompt 2 by 1 two
                send 2
                held: [2 two (1)]
            accepted 2 u2
                - user u2 = two
                durable
                settle 2 of 1: accepted as u2, with fields
                held: []
            whole user u2: two
        "#]]);
}

#[test]
fn a_named_prompt_may_be_said_again_in_chunks() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one two
                send 1
                held: [1 one two (1)]
            chunk user u1: one
                - user u1 = one two
                durable
                settle 1 of 1: accepted as u1
                held: []
            chunk user u1:  two
            accepted 1 u1
            chunk agent a: yes
                - agent a + yes
            chunk user u1: ?
                - user u1 + ?
        "#]]);
}

#[test]
fn a_whole_message_and_then_its_chunks_are_one_prompt() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            whole user u1: one
                - user u1 = one
                durable
                settle 1 of 1: accepted as u1
                held: []
            chunk user u1: one
            chunk agent a: yes
                - agent a + yes
        "#]]);
}

#[test]
fn several_prompts_are_said_again_after_all_were_taken() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one
                send 1
                held: [1 one (1)]
            prompt 2 by 1 two
                send 2
                held: [1 one (1), 2 two (1)]
            accepted 1 u1
                - user u1 = one
                durable
                settle 1 of 1: accepted as u1, with fields
                held: [2 two (1)]
            accepted 2 u2
                - user u2 = two
                durable
                settle 2 of 1: accepted as u2, with fields
                held: []
            whole user u1: one
            chunk user u2: two
        "#]]);
}

#[test]
fn output_may_come_between_a_named_prompt_and_its_echo() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 one two
                send 1
                held: [1 one two (1)]
            accepted 1 u1
                - user u1 = one two
                durable
                settle 1 of 1: accepted as u1, with fields
                held: []
            chunk agent a: still at it
                - agent a + still at it
            chunk user u1: one
            chunk agent a: yes
                - agent a + yes
            chunk user u1:  two
            chunk user u1: !
                - user u1 + !
        "#]]);
}

#[test]
fn a_prompt_may_be_changed_by_the_agent_once_it_was_said() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 my password is x
                send 1
                held: [1 my password is x (1)]
            whole user u1: my password is x
                - user u1 = my password is x
                durable
                settle 1 of 1: accepted as u1
                held: []
            chunk agent a: careful
                - agent a + careful
            whole user u1: my password is ***
                - user u1 = my password is ***
            whole user u1: my password is x
                - user u1 = my password is x
        "#]]);
}

#[test]
fn a_prompt_that_was_never_said_again_may_be_changed_too() {
    check(&expect![[r#"
            join 1
            ready queue
            prompt 1 by 1 my password is x
                send 1
                held: [1 my password is x (1)]
            accepted 1 u1
                - user u1 = my password is x
                durable
                settle 1 of 1: accepted as u1, with fields
                held: []
            chunk agent a: careful
                - agent a + careful
            whole user u1: my password is ***
                - user u1 = my password is ***
        "#]]);
}
