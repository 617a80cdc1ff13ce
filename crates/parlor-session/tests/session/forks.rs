//! Forks of sessions.

use expect_test::expect;

use crate::scenario::check;

#[test]
fn a_fork_has_all_entries_up_to_and_including_the_message() {
    check(&expect![[r#"
        ready queued
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
            ["1 User u1", "2 Agent a1"] ["Slot { name: \"info\", seq: 2, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] side state {"titles":{"agent":"T"}}; agent: After(AgentForkMessage { id: MessageId("a1"), role: Agent, boundary: Turn })
        fork after u2
            ["1 User u1", "2 Agent a1", "3 User u2"] ["Slot { name: \"info\", seq: 3, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] side state {"titles":{"agent":"T"}}; agent: After(AgentForkMessage { id: MessageId("u2"), role: User, boundary: Message })
        fork after a2
            ["1 User u1", "2 Agent a1", "3 User u2", "4 Agent a2"] ["Slot { name: \"info\", seq: 4, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] side state {"titles":{"agent":"T"}}; agent: End
        fork end
            ["1 User u1", "2 Agent a1", "3 User u2", "4 Agent a2"] ["Slot { name: \"info\", seq: 4, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"T\\\"}}\" }"] side state {"titles":{"agent":"T"}}; agent: End
    "#]]);
}

#[test]
fn a_fork_at_an_unknown_message_is_an_error() {
    check(&expect![[r#"
        ready queued
        whole agent a1: first
            - agent a1 = first
        fork after a2
            Unknown
        fork before a2
            Unknown
    "#]]);
}

#[test]
fn a_fork_at_a_message_that_is_being_written_is_an_error() {
    check(&expect![[r#"
        ready queued
        state running
            - state running
        chunk thought t1: hm
            - thought t1 + hm
        fork after t1
            BeingWritten
        chunk agent a1: so
            - agent a1 + so
        fork after t1
            ["1 Thought t1"] [] side state {}; agent: After(AgentForkMessage { id: MessageId("t1"), role: Thought, boundary: Message })
        fork after a1
            BeingWritten
        fork end
            ["1 Thought t1"] [] side state {}; agent: After(AgentForkMessage { id: MessageId("t1"), role: Thought, boundary: Message })
        state idle end
            - state idle (end)
        fork after a1
            ["1 Thought t1", "2 Agent a1"] [] side state {}; agent: End
    "#]]);
}

#[test]
fn a_fork_at_a_prompt_is_possible_during_its_turn() {
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
        fork after new1
            ["1 User new1"] ["Slot { name: \"info\", seq: 1, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"hi"}}; agent: After(AgentForkMessage { id: MessageId("new1"), role: User, boundary: Unknown })
        fork end
            ["1 User new1"] ["Slot { name: \"info\", seq: 1, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"hi"}}; agent: After(AgentForkMessage { id: MessageId("new1"), role: User, boundary: Unknown })
    "#]]);
}

#[test]
fn a_fork_during_a_turn_has_all_finished_entries() {
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
        chunk agent a1: let me see
            - agent a1 + let me see
        starts t1
            - tool t1 open
        starts t2
            - tool t2 open
        tool t1 done
            - tool t1 done
        fork end
            ["1 User new1", "2 Agent a1"] ["Slot { name: \"info\", seq: 2, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"hi"}}; agent: After(AgentForkMessage { id: MessageId("a1"), role: Agent, boundary: Unknown })
        tool t2 done
            - tool t2 done
        fork end
            ["1 User new1", "2 Agent a1", "3 ToolCall(ToolCallId(\"t1\")) as {\"kind\":\"tool\",\"id\":\"t1\",\"at\":5,\"fields\":{\"status\":\"done\"}}"] ["Slot { name: \"info\", seq: 3, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"hi"}}; agent: WithoutId
        chunk agent a2: so
            - agent a2 + so
        fork end
            ["1 User new1", "2 Agent a1", "3 ToolCall(ToolCallId(\"t1\")) as {\"kind\":\"tool\",\"id\":\"t1\",\"at\":5,\"fields\":{\"status\":\"done\"}}", "4 ToolCall(ToolCallId(\"t2\")) as {\"kind\":\"tool\",\"id\":\"t2\",\"at\":6,\"fields\":{\"status\":\"done\"}}"] ["Slot { name: \"info\", seq: 4, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"hi"}}; agent: WithoutId
        fork after a1
            ["1 User new1", "2 Agent a1"] ["Slot { name: \"info\", seq: 2, body: \"{\\\"fields\\\":{\\\"title\\\":\\\"hi\\\"},\\\"meta\\\":{\\\"parlor/title\\\":\\\"made\\\"}}\" }"] side state {"titles":{"made":"hi"}}; agent: After(AgentForkMessage { id: MessageId("a1"), role: Agent, boundary: Unknown })
    "#]]);
}

#[test]
fn unfinished_tool_calls_are_failed_in_the_fork() {
    check(&expect![[r#"
        ready queued
        starts t1
            - tool t1 open
        chunk agent a1: done
            - agent a1 + done
        fork after a1
            ["1 ToolCall(ToolCallId(\"t1\")) as {\"kind\":\"tool\",\"id\":\"t1\",\"at\":2,\"fields\":{\"status\":\"failed\"}}", "2 Agent a1"] [] side state {}; agent: End
    "#]]);
}

#[test]
fn a_redacted_message_stays_redacted_in_the_fork() {
    check(&expect![[r#"
        ready queued
        whole agent a1: secret
            - agent a1 = secret
        whole agent a1: gone
            - agent a1 = gone
        chunk agent a2: more
            - agent a2 + more
        fork after a1
            ["1 Agent a1 as {\"kind\":\"agent\",\"id\":\"a1\",\"at\":2,\"fields\":{}}"] [] side state {}; agent: After(AgentForkMessage { id: MessageId("a1"), role: Agent, boundary: Message })
    "#]]);
}

#[test]
fn a_fork_before_a_prompt_leaves_out_the_prompt_and_all_that_follows() {
    check(&expect![[r#"
        ready queued
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
            [] [] side state {}; agent: Start; prompt u1 [{"type":"text","text":"one"}]
        fork before u2
            ["1 User u1", "2 Agent a1"] [] side state {}; agent: After(AgentForkMessage { id: MessageId("a1"), role: Agent, boundary: Turn }); prompt u2 [{"type":"text","text":"two"}]
        fork before a2
            ["1 User u1", "2 Agent a1"] [] side state {}; agent: After(AgentForkMessage { id: MessageId("a1"), role: Agent, boundary: Turn }); prompt u2 [{"type":"text","text":"two"}]
        fork before a1
            [] [] side state {}; agent: Start; prompt u1 [{"type":"text","text":"one"}]
    "#]]);
}

#[test]
fn a_fork_before_a_message_without_a_prompt_is_an_error() {
    check(&expect![[r#"
        ready queued
        chunk agent a1: hello
            - agent a1 + hello
        fork before a1
            NoPrompt
    "#]]);
}

#[test]
fn ids_are_converted_back_to_the_agents() {
    check(&expect![[r#"
        ready serial
        chunk thought m: hm
            - thought m + hm
        chunk agent m: yes
            - agent new1 + yes
        starts t
            - tool t open
        fork after new1
            ["1 Thought m", "2 Agent new1"] [] side state {"names":{"upto":0,"renamed":[["agent","m","new1"]]}}; agent: WithoutId
        tool t done
            - tool t done
        fork end
            ["1 Thought m", "2 Agent new1", "3 ToolCall(ToolCallId(\"t\")) as {\"kind\":\"tool\",\"id\":\"t\",\"at\":4,\"fields\":{\"status\":\"done\"}}"] [] side state {"names":{"upto":0,"renamed":[["agent","m","new1"]]}}; agent: End
        ready serial without-history
        chunk agent m: again
            - agent new2 + again
        fork after new1
            ["1 Thought m", "2 Agent new1"] [] side state {"names":{"upto":2,"renamed":[]}}; agent: WithoutId
        fork after new2
            ["1 Thought m", "2 Agent new1", "3 ToolCall(ToolCallId(\"t\")) as {\"kind\":\"tool\",\"id\":\"t\",\"at\":4,\"fields\":{\"status\":\"done\"}}", "4 Agent new2"] [] side state {"names":{"upto":3,"renamed":[["agent","m","new2"]]}}; agent: End
        chunk agent n: more
            - agent n + more
        fork after new2
            ["1 Thought m", "2 Agent new1", "3 ToolCall(ToolCallId(\"t\")) as {\"kind\":\"tool\",\"id\":\"t\",\"at\":4,\"fields\":{\"status\":\"done\"}}", "4 Agent new2"] [] side state {"names":{"upto":3,"renamed":[["agent","m","new2"]]}}; agent: After(AgentForkMessage { id: MessageId("m"), role: Agent, boundary: Message })
    "#]]);
}

#[test]
fn notes_get_the_seqs_of_the_fork() {
    check(&expect![[r#"
        ready queued
        chunk agent a: hello
            - agent a + hello
        chunk agent a: you
            - agent a + you
        notice
            - note
        fork end
            ["1 Agent a", "2 Note(3) as {\"kind\":\"note\",\"id\":2,\"at\":4,\"fields\":{\"n\":1}}"] [] side state {}; agent: End
    "#]]);
}
