//! Agents that accept one prompt at a time and repeat it.

use std::time::{Duration, Instant};

use expect_test::expect;
use parlor_session::session::{Input, Step};
use parlor_session::{MessageId, UnixMillis};

use crate::scenario::{Scenario, check};

#[test]
fn equal_text_without_an_id_is_the_prompt() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi there
                - user new1 = hi there
                - Info hi there {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk user: hi there
            chunk agent: hello
                - agent ~2 + hello
            chunk user: hi there
                - user ~3 + hi there
        "#]]);
}

#[test]
fn equal_text_with_an_id_is_the_prompt_under_that_id() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi there
                - user new1 = hi there
                - Info hi there {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk user u1: hi there
            chunk agent: hello
                - agent ~1 + hello
            chunk user u1:  and more
                - user new1 +  and more
        "#]]);
}

#[test]
fn an_echo_may_come_in_chunks() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 hi there
            - user new1 = hi there
            - Info hi there {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk user: hi
        title greeting
            - Info greeting {"parlor/title":null}
        chunk user:  th
        chunk user: ere
        chunk agent: hello
            - agent ~2 + hello
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn chunks_of_an_echo_may_have_an_id() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi there
                - user new1 = hi there
                - Info hi there {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
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
fn a_block_that_is_not_text_is_part_of_an_echo() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 image
                - user new1 = 
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk user: image
            chunk agent: nice
                - agent ~2 + nice
        "#]]);
}

#[test]
fn other_text_is_a_message_at_its_position() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 hi there
            - user new1 = hi there
            - Info hi there {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk user: hi
        chunk user: gh
            - user ~1 + hi
            - user ~1 + gh
        chunk user: er
            - user ~1 + er
        chunk agent: what
            - agent ~2 + what
    "#]]);
}

#[test]
fn a_partial_echo_is_a_message_when_other_output_follows() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 hi there
            - user new1 = hi there
            - Info hi there {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk user: hi
        chunk user:  th
        chunk agent: what
            - user ~1 + hi
            - user ~1 +  th
            - agent ~2 + what
    "#]]);
}

#[test]
fn a_partial_echo_is_a_message_when_the_turn_ends() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi there
                - user new1 = hi there
                - Info hi there {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk user u: hi
            ended 1 end
                - user u + hi
                - state idle (end)
        "#]]);
}

#[test]
fn a_partial_echo_is_a_message_when_the_agent_is_lost() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi there
                - user new1 = hi there
                - Info hi there {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk user u: hi
            lost
                - user u + hi
                - event new2 failed 5 new1
                - state idle (error)
        "#]]);
}

#[test]
fn text_that_continues_after_the_prompt_is_another_message() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 hi
            - user new1 = hi
            - Info hi {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk user: hi
        chunk user:  again
            - user ~1 + hi
            - user ~1 +  again
        chunk agent: hello
            - agent ~2 + hello
    "#]]);
}

#[test]
fn a_message_with_another_id_is_another_message() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi there
                - user new1 = hi there
                - Info hi there {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk user u1: hi there
            chunk user u2: reminder
                - user u2 + reminder
            chunk user u1: !
                - user new1 + !
        "#]]);
}

#[test]
fn a_prompt_is_repeated_once() {
    for (first, second) in [("user", "user u1"), ("user u1", "user u2"), ("user u1", "user")] {
        let mut scenario = Scenario::default();
        scenario.run("attach 1\nready serial\nprompt 1 by 1 hi there");
        assert_eq!(scenario.run(&format!("chunk {first}: hi there")).lines().count(), 1);
        let results = scenario.run(&format!("chunk {second}: hi there"));
        assert!(results.contains("+ hi there"), "{first}, {second}: {results}");
    }
}

#[test]
fn an_agent_may_use_one_id_for_all_prompts() {
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
        chunk user u: one
        ended 1 end
            - state idle (end)
        prompt 2 by 1 two
            - user new2 = two
            - state running
            durable
            respond 2 to 1: accepted as new2
            send 2
        chunk user u: two
        chunk agent: yes
            - agent ~1 + yes
        chunk user u: !
            - user new2 + !
    "#]]);
}

#[test]
fn a_notice_does_not_end_an_expected_echo_unless_updates_are_held_back() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 hi there
            - user new1 = hi there
            - Info hi there {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        notice
            - note
        chunk user: hi
        notice
            - user ~1 + hi
            - note
        chunk user: hi there
            - user ~2 + hi there
    "#]]);
}

#[test]
fn equal_text_after_the_turn_is_a_message() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 hi
            - user new1 = hi
            - Info hi {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        ended 1 end
            - state idle (end)
        chunk user: hi
            - user ~1 + hi
    "#]]);
}

#[test]
fn equal_text_after_output_is_a_message() {
    check(&expect![[r#"
            attach 1
            ready serial
            prompt 1 by 1 hi
                - user new1 = hi
                - Info hi {"parlor/title":"made"}
                - state running
                durable
                respond 1 to 1: accepted as new1
                send 1
            chunk thought: hm
                - thought ~1 + hm
            chunk user: hi
                - user ~2 + hi
        "#]]);
}

#[test]
fn late_updates_of_the_previous_turn_are_not_output() {
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
            ended 1 end
                - state idle (end)
            prompt 2 by 1 two
                - user new2 = two
                - state running
                durable
                respond 2 to 1: accepted as new2
                send 2
            tool t done
                - tool t done
            chunk user: two
            chunk agent: yes
                - agent ~2 + yes
        "#]]);
}

#[test]
fn text_is_not_the_echo_of_an_image() {
    check(&expect![[r#"
        attach 1
        ready serial
        prompt 1 by 1 image
            - user new1 = 
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk user u: reminder
            - user u + reminder
        chunk agent: nice
            - agent ~1 + nice
    "#]]);
}

/// Each chunk of an echo is compared with the next part of the prompt only.
#[test]
fn a_long_echo_takes_linear_time() {
    let text: String = "word".chars().cycle().take(2 << 20).collect();
    for agent in ["serial", "queued"] {
        let mut scenario = Scenario::default();
        scenario.run(&format!("attach 1\nready {agent}\nprompt 1 by 1 {text}"));
        #[expect(clippy::disallowed_methods, reason = "the test has a time limit")]
        let began = Instant::now();
        let mut created = 0;
        for start in (0..text.len()).step_by(8) {
            let input = scenario.input(&format!("chunk user u1: {}", &text[start..start + 8]));
            created += step_alone(&mut scenario, input);
            assert!(began.elapsed() < Duration::from_secs(60), "{start} bytes took too long");
        }
        // An agent that assigns the ids has accepted the prompt when it has repeated all of it.
        assert_eq!(created, usize::from(agent == "queued"));
    }
}

/// Handles an input without comparing the whole session afterwards.
fn step_alone(scenario: &mut Scenario, input: Input) -> usize {
    let mut step = Step::default();
    scenario.session.step(input, UnixMillis(0), &mut || MessageId::from("new"), &mut step);
    step.changes.iter().filter(|change| change.is_creation()).count()
}
