//! A transcript that was handed over is cut out of what the agent repeats.

use expect_test::expect;

use crate::scenario::{Scenario, check};

#[test]
fn an_envelope_is_cut_out_of_the_echo_of_a_serial_agent() {
    check(&expect![[r#"
        attach 1
        ready serial without-history
        context e
        prompt 1 by 1 hi there
            - user new1 = hi there
            - Info hi there {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk user: <conversation id='e'>so far</conversation id='e'>
        chunk user: hi there
        chunk agent: hello
            - agent ~2 + hello
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn an_envelope_is_cut_out_of_an_echo_wherever_its_chunks_are_split() {
    let prompt =
        "<conversation id='e'>\\nso far: <conversation id='f'>\\n</conversation id='e'>\\n\\nhi 😀 there";
    for agent in ["one", "queue"] {
        for id in ["", " u1"] {
            if agent == "queue" && id.is_empty() {
                continue;
            }
            for length in 1..prompt.len() {
                let mut scenario = Scenario::default();
                scenario.run(&format!(
                    "attach 1\nready {agent} anew\ncontext d\ncontext e\nprompt 1 by 1 hi 😀 there"
                ));
                let text: Vec<char> = prompt.chars().collect();
                for piece in pieces(&text, length) {
                    let input = scenario.input(&format!("chunk user{id}: {piece}"));
                    scenario.step(input);
                }
                scenario.run("chunk agent a: hello");
                let entries = scenario.session.transcript().entries().iter();
                let texts: Vec<_> = entries.map(|entry| entry.body().content.to_text()).collect();
                assert_eq!(texts, ["hi 😀 there", "hello"], "{agent}, {length}");
            }
        }
    }
}

/// Splits a text into pieces of about this length, without splitting escapes.
fn pieces(text: &[char], length: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut room = length;
    for c in text {
        let is_escaped = pieces.last().is_some_and(|piece| piece.ends_with('\\'));
        if room == 0 && !is_escaped {
            pieces.push(String::new());
            room = length;
        }
        pieces.last_mut().unwrap().push(*c);
        room = room.saturating_sub(1);
    }
    pieces
}

#[test]
fn an_envelope_is_cut_out_of_whole_messages_at_any_time() {
    check(&expect![[r#"
        attach 1
        ready queued without-history
        context e
        prompt 1 by 1 hi | image
            send 1
            queue: [1 hi (1)]
        whole user u1: <conversation id='e'>so | far</conversation id='e'> | hi | image
            - user u1 = hi
            - Info hi {"parlor/title":"made"}
            durable
            respond 1 to 1: accepted as u1
            queue: []
        accepted 1 u1
        whole user u1: <conversation id='e'>so far</conversation id='e'>hi | image
        whole user u1: <conversation id='e'>so far</conversation id='e'>ho
            - user u1 = ho
            - Info ho
        restart
        ready queued
        whole user u2: <conversation id='e'>so far</conversation id='e'>late
            - user u2 = late
        whole user u3: <conversation id='e'>so far</conversation id='e'>
        whole user u4: <conversation id='e'>so far, and no end
        whole agent a: <conversation id='e'>so far</conversation id='e'>You said: hi
            - agent a = You said: hi
    "#]]);
}

#[test]
fn an_envelope_is_cut_out_of_agent_messages() {
    check(&expect![[r#"
        attach 1
        ready serial without-history
        context e
        prompt 1 by 1 hi
            - user new1 = hi
            - Info hi {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        chunk agent: <conversation id='e'>so far</conversation id='e'>
        chunk agent: hi
            - agent ~2 + hi
        chunk agent: <b>
            - agent ~2 + <b>
        ended 1 end
            - state idle (end)
    "#]]);
}

#[test]
fn text_that_only_starts_like_an_envelope_is_not_cut() {
    check(&expect![[r#"
        attach 1
        ready queued without-history
        context e
        chunk agent a: <conver
        chunk agent a: sion>
            - agent a + <conver
            - agent a + sion>
        chunk agent b: <conver
        tool t open
            - agent b + <conver
            - tool t open
        chunk agent c: <
        state idle
            - agent c + <
            - state idle
        chunk agent d: <
        lost
            - agent d + <
    "#]]);
    check(&expect![[r#"
        attach 1
        ready serial without-history
        context e
        chunk agent: <conver
        title x
            - Info x
        chunk agent: sion>
            - agent ~1 + <conver
            - agent ~1 + sion>
        chunk agent: !
            - agent ~1 + !
    "#]]);
}

#[test]
fn nothing_is_cut_before_a_transcript_is_handed_over() {
    check(&expect![[r#"
        attach 1
        ready queued
        whole user u: <conversation id='e'>mine</conversation id='e'>
            - user u = <conversation id="e">mine</conversation id="e">
    "#]]);
}

#[test]
fn an_envelope_is_cut_out_of_the_middle_of_whole_messages() {
    check(&expect![[r#"
        attach 1
        ready queued without-history
        context e
        context f
        whole agent a: You gave me <conversation id='e'>so | far</conversation id='e'> and <conversation id='f'>more</conversation id='f'>, thanks
            - agent a = You gave me  and , thanks
        whole agent b: You gave me <conver | sation id='e'>so far</conversation id='e'> | image | and more
            - agent b = You gave me and more
        whole agent c: You gave me | image | <conversation id='e'>so far
            - agent c = You gave me
        whole agent c: <conversation id='e'>so far</conversation id='e'>
            - agent c = 
        whole agent d: You gave me <conversation id='x'> | <conversation id='e'
            - agent d = You gave me <conversation id="x"><conversation id="e"
    "#]]);
}

#[test]
fn an_envelope_is_cut_out_of_the_middle_of_messages_wherever_their_chunks_are_split() {
    let said = "Before <b> <conversation id='e'>\\nso <conversation id='f'> far</conversation id='e'>\\n\\nbetween \
                <<conversation id='d'>x</conversation id='d'> and 😀 <conver after";
    let text: Vec<char> = said.chars().collect();
    for agent in ["one", "queue"] {
        for (role, id) in [("agent", ""), ("agent", " a"), ("thought", " a"), ("user", " u")] {
            for length in 1..text.len() {
                let mut scenario = Scenario::default();
                scenario.run(&format!("attach 1\nready {agent} anew\ncontext d\ncontext e"));
                for piece in pieces(&text, length) {
                    let input = scenario.input(&format!("chunk {role}{id}: {piece}"));
                    scenario.step(input);
                }
                scenario.run("lost");
                let entries = scenario.session.transcript().entries().iter();
                let texts: Vec<_> = entries.map(|entry| entry.body().content.to_text()).collect();
                assert_eq!(
                    texts,
                    ["Before <b> between < and 😀 <conver after"],
                    "{agent}, {role}{id}, {length}"
                );
            }
        }
    }
}

#[test]
fn an_envelope_is_cut_out_of_interrupted_messages() {
    check(&expect![[r#"
        attach 1
        ready queued without-history
        context e
        chunk agent a: I was given <conver
        chunk thought t: hm
            - agent a + I was given <conver
            - thought t + hm
        chunk agent a: sation id='e'>so
        chunk thought t: <conversation id='e'>so
        tool t open
            - tool t open
        chunk agent a: far</conversation id='e'>.
            - agent a + .
        chunk thought t: far</conversation id='e'>.
            - thought t + .
        whole agent b: I was given <conversation id='e'>so
            - agent b = I was given 
        chunk agent b: far</conversation id='e'>.
            - agent b + .
        null agent b
            - agent b cleared
        chunk agent b: new
            - agent b + new
    "#]]);
    // A message without an id continues until another begins.
    check(&expect![[r#"
        attach 1
        ready serial without-history
        context e
        tool t open
            - tool t open
        chunk agent: I was given <conversation id='e'>so
            - agent ~1 + I was given 
        tool t open
            - tool t open
        notice
            - note
        chunk agent: far</conversation id='e'>.
            - agent ~1 + .
        chunk agent: <conversation id='e'>so
        tool t2 open
            - tool t2 open
        chunk agent: Done.
            - agent ~2 + Done.
        chunk agent: <conversation id='e'>so
        chunk thought: hm
            - thought ~3 + hm
        chunk agent: Done.
            - agent ~4 + Done.
    "#]]);
}

#[test]
fn text_that_starts_like_an_envelope_is_held_back_up_to_a_limit() {
    let mut scenario = Scenario::default();
    scenario.run("attach 1\nready queued without-history\ncontext e\nchunk agent a: <conver");
    let held = (0..1000).take_while(|_| {
        let input = scenario.input("chunk agent a: ");
        scenario.step(input).changes.is_empty()
    });
    assert!(held.count() < 300);
    // Text that was broadcast cannot be cut; what follows is.
    scenario.run("chunk agent a: sation id='e'>so far</conversation id='e'>!");
    let entries = scenario.session.transcript().entries().iter();
    let texts: Vec<_> = entries.map(|entry| entry.body().content.to_text()).collect();
    assert_eq!(texts, ["<conver!"]);
}

#[test]
fn scanning_for_envelopes_takes_linear_time() {
    const MANY: usize = 100_000;
    let mut scenario = Scenario::default();
    scenario.run("attach 1\nready queued without-history\ncontext e");
    let whole = "<conversation id='e'><conversation id='f'></conversation id='e'>.".repeat(MANY);
    for line in [format!("whole agent a: {whole}"), format!("chunk agent b: {whole}")] {
        let input = scenario.input(&line);
        scenario.step(input);
    }
    for _ in 0..MANY / 10 {
        let input = scenario.input("chunk agent c: <conversation id='e'>");
        scenario.step(input);
    }
    let entries = scenario.session.transcript().entries().iter();
    let lengths: Vec<_> = entries.map(|entry| entry.body().content.to_text().len()).collect();
    assert_eq!(lengths, [MANY, MANY]);
}

#[test]
fn output_after_a_prompt_is_never_part_of_a_message_from_before_it() {
    check(&expect![[r#"
        attach 1
        ready serial
        context e
        prompt 1 by 1 one
            - user new1 = one
            - Info one {"parlor/title":"made"}
            - state running
            durable
            respond 1 to 1: accepted as new1
            send 1
        ended 1 end
            - state idle (end)
        chunk agent: late
            - agent ~1 + late
        prompt 2 by 1 two
            - user new2 = two
            - state running
            durable
            respond 2 to 1: accepted as new2
            send 2
        chunk agent: answer
            - agent ~2 + answer
        ended 2 end
            - state idle (end)
        chunk agent: late <conver
        prompt 3 by 1 three
            - agent ~3 + late <conver
            - user new3 = three
            - state running
            durable
            respond 3 to 1: accepted as new3
            send 3
        chunk agent: answer
            - agent ~4 + answer
        ended 3 end
            - state idle (end)
        chunk agent: late <conversation id='e'>so
            - agent ~5 + late 
        prompt 4 by 1 four
            - user new4 = four
            - state running
            durable
            respond 4 to 1: accepted as new4
            send 4
        chunk agent: answer
            - agent ~6 + answer
        ended 4 end
            - state idle (end)
        chunk agent: late <conversation id='e'>so</conversation id='e'>
            - agent ~7 + late 
        prompt 5 by 1 five
            - user new5 = five
            - state running
            durable
            respond 5 to 1: accepted as new5
            send 5
        chunk agent: answer
            - agent ~8 + answer
    "#]]);
}
