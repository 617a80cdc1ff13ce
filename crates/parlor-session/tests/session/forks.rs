//! Conversations that go on elsewhere.

use expect_test::expect;

use crate::stage::check;

#[test]
fn a_fork_holds_all_up_to_and_including_the_message() {
    check(&expect![[r#"
        ready queue
        whole user u1: one
            - user u1 = one
        whole agent a1: first
            - agent a1 = first
        title T
            - Info T
        whole user u2: two
            - user u2 = two
        whole agent a2: second
            - agent a2 = second
        fork after a1
            ["1 User u1", "2 Agent a1"] ["Slot { name: \"info\", seq: 2, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] kept {"titles":{"agent":"T"}}; agent: After(MessageId("a1"))
        fork after u2
            ["1 User u1", "2 Agent a1", "3 User u2"] ["Slot { name: \"info\", seq: 3, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] kept {"titles":{"agent":"T"}}; agent: After(MessageId("u2"))
        fork after a2
            ["1 User u1", "2 Agent a1", "3 User u2", "4 Agent a2"] ["Slot { name: \"info\", seq: 4, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] kept {"titles":{"agent":"T"}}; agent: End
        fork end
            ["1 User u1", "2 Agent a1", "3 User u2", "4 Agent a2"] ["Slot { name: \"info\", seq: 4, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] kept {"titles":{"agent":"T"}}; agent: End
    "#]]);
}

#[test]
fn a_message_that_is_not_there_is_unknown() {
    check(&expect![[r#"
        ready queue
        whole agent a1: first
            - agent a1 = first
        fork after a2
            Unknown
        fork before a2
            Unknown
    "#]]);
}

#[test]
fn a_message_that_is_being_written_is_not_forked_at() {
    check(&expect![[r#"
        ready queue
        state running
            - state running
        chunk thought t1: hm
            - thought t1 + hm
        fork after t1
            BeingWritten
        chunk agent a1: so
            - agent a1 + so
        fork after t1
            ["1 Thought t1"] [] kept {}; agent: After(MessageId("t1"))
        fork after a1
            BeingWritten
        fork end
            ["1 Thought t1"] [] kept {}; agent: After(MessageId("t1"))
        state idle end
            - state idle (end)
        fork after a1
            ["1 Thought t1", "2 Agent a1"] [] kept {}; agent: End
    "#]]);
}

#[test]
fn a_prompt_is_finished_when_it_is_there() {
    check(&expect![[r#"
        join 1
        ready one
        prompt 1 by 1 hi
            - user new1 = hi
            - Info hi {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
        fork after new1
            ["1 User new1"] ["Slot { name: \"info\", seq: 1, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] kept {"titles":{"made":"hi"}}; agent: After(MessageId("new1"))
        fork end
            ["1 User new1"] ["Slot { name: \"info\", seq: 1, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] kept {"titles":{"made":"hi"}}; agent: After(MessageId("new1"))
    "#]]);
}

#[test]
fn during_a_turn_all_that_is_finished_is_taken() {
    check(&expect![[r#"
        join 1
        ready one
        prompt 1 by 1 hi
            - user new1 = hi
            - Info hi {"parlor/title":"made"}
            - state running
            durable
            settle 1 of 1: accepted as new1
            send 1
        chunk agent a1: let me see
            - agent a1 + let me see
        starts t1
            - tool t1 open
        starts t2
            - tool t2 open
        tool t1 done
            - tool t1 done
        fork end
            ["1 User new1", "2 Agent a1"] ["Slot { name: \"info\", seq: 2, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] kept {"titles":{"made":"hi"}}; agent: After(MessageId("a1"))
        tool t2 done
            - tool t2 done
        fork end
            ["1 User new1", "2 Agent a1", "3 ToolCall(ToolCallId(\"t1\")) as {\"kind\":\"tool\",\"id\":\"t1\",\"fields\":{\"status\":\"done\"}}"] ["Slot { name: \"info\", seq: 3, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] kept {"titles":{"made":"hi"}}; agent: Nameless
        chunk agent a2: so
            - agent a2 + so
        fork end
            ["1 User new1", "2 Agent a1", "3 ToolCall(ToolCallId(\"t1\")) as {\"kind\":\"tool\",\"id\":\"t1\",\"fields\":{\"status\":\"done\"}}", "4 ToolCall(ToolCallId(\"t2\")) as {\"kind\":\"tool\",\"id\":\"t2\",\"fields\":{\"status\":\"done\"}}"] ["Slot { name: \"info\", seq: 4, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] kept {"titles":{"made":"hi"}}; agent: Nameless
        fork after a1
            ["1 User new1", "2 Agent a1"] ["Slot { name: \"info\", seq: 2, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] kept {"titles":{"made":"hi"}}; agent: After(MessageId("a1"))
    "#]]);
}

#[test]
fn tool_calls_that_are_not_over_have_failed_in_the_fork() {
    check(&expect![[r#"
        ready queue
        starts t1
            - tool t1 open
        chunk agent a1: done
            - agent a1 + done
        fork after a1
            ["1 ToolCall(ToolCallId(\"t1\")) as {\"kind\":\"tool\",\"id\":\"t1\",\"fields\":{\"status\":\"failed\"}}", "2 Agent a1"] [] kept {}; agent: End
    "#]]);
}

#[test]
fn a_redaction_is_not_undone() {
    check(&expect![[r#"
        ready queue
        whole agent a1: secret
            - agent a1 = secret
        whole agent a1: gone
            - agent a1 = gone
        chunk agent a2: more
            - agent a2 + more
        fork after a1
            ["1 Agent a1 as {\"kind\":\"agent\",\"id\":\"a1\",\"fields\":{}}"] [] kept {}; agent: After(MessageId("a1"))
    "#]]);
}

#[test]
fn a_prompt_is_left_out_with_all_that_came_of_it() {
    check(&expect![[r#"
        ready queue
        whole user u1: one
            - user u1 = one
        chunk agent a1: first
            - agent a1 + first
        whole user u2: two
            - user u2 = two
        chunk thought t2: hm
            - thought t2 + hm
        chunk agent a2: second
            - agent a2 + second
        fork before u1
            [] [] kept {}; agent: Start; prompt u1 [{"type":"text","text":"one"}]
        fork before u2
            ["1 User u1", "2 Agent a1"] [] kept {}; agent: After(MessageId("a1")); prompt u2 [{"type":"text","text":"two"}]
        fork before a2
            ["1 User u1", "2 Agent a1"] [] kept {}; agent: After(MessageId("a1")); prompt u2 [{"type":"text","text":"two"}]
        fork before a1
            [] [] kept {}; agent: Start; prompt u1 [{"type":"text","text":"one"}]
    "#]]);
}

#[test]
fn before_a_message_that_nobody_asked_for_there_is_no_prompt() {
    check(&expect![[r#"
        ready queue
        chunk agent a1: hello
            - agent a1 + hello
        fork before a1
            NoPrompt
    "#]]);
}

#[test]
fn the_agent_is_told_its_own_names() {
    check(&expect![[r#"
        ready one
        chunk thought m: hm
            - thought m + hm
        chunk agent m: yes
            - agent new1 + yes
        starts t
            - tool t open
        fork after new1
            ["1 Thought m", "2 Agent new1"] [] kept {"names":{"upto":0,"renamed":[["agent","m","new1"]]}}; agent: After(MessageId("m"))
        tool t done
            - tool t done
        fork end
            ["1 Thought m", "2 Agent new1", "3 ToolCall(ToolCallId(\"t\")) as {\"kind\":\"tool\",\"id\":\"t\",\"fields\":{\"status\":\"done\"}}"] [] kept {"names":{"upto":0,"renamed":[["agent","m","new1"]]}}; agent: End
        ready one anew
        chunk agent m: again
            - agent new2 + again
        fork after new1
            ["1 Thought m", "2 Agent new1"] [] kept {"names":{"upto":2,"renamed":[]}}; agent: Nameless
        fork after new2
            ["1 Thought m", "2 Agent new1", "3 ToolCall(ToolCallId(\"t\")) as {\"kind\":\"tool\",\"id\":\"t\",\"fields\":{\"status\":\"done\"}}", "4 Agent new2"] [] kept {"names":{"upto":3,"renamed":[["agent","m","new2"]]}}; agent: End
    "#]]);
}

#[test]
fn notices_are_numbered_anew() {
    check(&expect![[r#"
        ready queue
        chunk agent a: hello
            - agent a + hello
        chunk agent a: you
            - agent a + you
        notice
            - note
        fork end
            ["1 Agent a", "2 Note(3) as {\"kind\":\"note\",\"id\":2,\"fields\":{\"n\":1}}"] [] kept {}; agent: End
    "#]]);
}
