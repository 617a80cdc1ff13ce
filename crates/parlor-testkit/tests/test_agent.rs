//! The test agent as a client sees it, in every dialect. Everything it sends is checked against the published types.

mod agent;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent::{Agent, Turn};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use expect_test::expect;
use parlor_dialect::Dialect::{self, Draft, V1, V2};
use parlor_testkit::programs;
use serde_json::{Value, json};

/// The text of all chunks of one kind.
fn said(turn: &Turn, kind: &str) -> String {
    turn.of(kind).iter().map(|chunk| chunk["content"]["text"].as_str().unwrap_or("")).collect()
}

fn answer(turn: &Turn) -> String {
    said(turn, "agent_message_chunk")
}

fn ids(turn: &Turn, kind: &str) -> BTreeSet<String> {
    turn.of(kind).iter().map(|chunk| chunk["messageId"].as_str().unwrap().to_owned()).collect()
}

/// An agent with an open session.
fn open(dialect: Dialect, options: &[&str]) -> (Agent, String) {
    let mut agent = Agent::start(dialect, options);
    agent.initialize(json!({}));
    let session = agent.new_session();
    (agent, session)
}

/// Runs one prompt in each dialect.
fn each(script: &str, look: impl Fn(Dialect, &Turn)) {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, script);
        look(dialect, &turn);
    }
}

/// Runs the agent without input: its exit code, its output and its errors.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(programs::test_agent()).args(args).stdin(Stdio::null()).output().unwrap();
    // The help leaves white space at the ends of lines.
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>()
    };
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_help_lists_options_and_commands() {
    let (code, output, errors) = run(&["--help"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    expect![[r#"
        An agent for testing clients: any version, any offer, and faults on request

        It speaks the Agent Client Protocol on standard input and output, in v1, v2 and the draft of v2, and
        does what the prompt says: one command a line, listed below. Any other text gets a friendly answer.

        Usage: parlor-test-agent [OPTIONS]

        Options:
              --version <VERSION>
                  The protocol version to speak; one that speaks a single version answers with it whatever
                  is asked

                  [default: both]
                  [possible values: 1, 2, both]

              --no-message-ids
                  Send v1 chunks without message ids, as many agents do

              --offers <LIST>
                  Which optional methods to offer: load, resume, list, close, delete, fork, fork-at-message,
                  air-fork, air-turn-fork, steering, title, or none

                  [default: load,resume,list,close,delete]

              --quirks <LIST>
                  Do what some real agents do, see docs/test-agent.md: forgets-settings, silent-settings,
                  refuses-settings, mode-option, models, fork-replays, fork-replays-late, same-id,
                  slow-close, restore-fails, or none

                  [default: none]

              --state <DIR>
                  Keep sessions in files in this folder, so that another process can load them

              --name <NAME>
                  What the agent calls itself

                  [default: parlor-test]

              --agent-version <VERSION>
                  The version that the agent reports

                  [default: 0.1.0]

              --auth[=<METHODS>]
                  Open no session and take no prompt before a person has logged in, by one of these methods:
                  test, url, terminal, meta, env

              --login-file <FILE>
                  Count as logged in while this file exists; the methods `terminal` and `meta` create it

              --log-in
                  Log in on the terminal, instead of speaking the protocol

          -h, --help
                  Print help (see a summary with '-h')

        Commands of a prompt, one a line:
          help                       lists these commands
          say TEXT                   streams the words of TEXT
          think TEXT                 the same as a thought
          two TEXT                   says TEXT in two messages in a row
          same-id TEXT               a thought and a message under one id, as some agents do
          echo-user                  sends the prompt back as the user's message
          redact [clear]             says something and replaces (or clears) it; v2
          tool [TITLE]               a tool call from pending to completed, with a diff
          ask [TITLE]                a tool call that needs permission
          ask-open [TITLE]           the same, and leaves the tool call open when it is cancelled
          elicit                     asks the user to fill in a form
          plan A;B;C                 a plan that is worked off
          unplan                     removes the plan; v2
          terminal COMMAND           runs a shell command: in the client's terminal in v1, in its own in v2
          read PATH                  reads a file through the client; v1
          write PATH TEXT            writes a file through the client; v1
          title [TEXT]               sets the session's title, or clears it
          meta JSON                  session information with this metadata
          mode NAME                  changes the mode by itself: ask, code
          commands                   announces the commands again
          usage                      reports the use of the context window
          image                      says a picture
          link                       says a link to a resource
          sleep MS                   waits
          await-steering             waits for a prompt in this turn and says it
          later MS TEXT              says TEXT by itself, so long after the turn has ended
          background N               N updates by itself after the turn has ended
          stream N SIZE [RATE|each]  N chunks of SIZE bytes, RATE a second or one write each
          stamp N RATE [SIZE [AT]]   N chunks, RATE a second, each with the time at which it was written
          big N                      one chunk of N bytes
          fail CODE TEXT             ends the turn with this error
          refuse                     ends the turn with the stop reason refusal
          hang                       says `Hanging.` and never ends the turn, not even when cancelled
          crash [CODE]               writes what was said and a word to stderr, and exits with CODE (1)
          crash-silently             exits with 1, without a word and without writing what was said
          garbage                    writes a line that is not JSON and one that is not a message
          raw PARAMS                 sends a session/update with these params; SESSION is the id
          stderr TEXT                writes to standard error
          env NAME                   says an environment variable
          pid                        says the process id
          child [setsid]             starts `sleep 1000` and says its process id
          ext METHOD                 asks the client METHOD and says the answer
          whoami                     says session, directory, protocol and message count

        docs/test-agent.md has more.
    "#]]
    .assert_eq(&output);
}

#[test]
fn an_unknown_offer_is_rejected_with_its_name() {
    let (code, output, errors) = run(&["--offers", "load,fly"]);
    assert_eq!((code, output.as_str()), (Some(2), ""));
    expect![[r#"
        error: invalid value 'load,fly' for '--offers <LIST>': unknown method 'fly': there are load, resume, list, close, delete, fork, fork-at-message, air-fork, air-turn-fork, steering, title, none

        For more information, try '--help'.
    "#]]
    .assert_eq(&errors);
}

#[test]
fn the_version_is_what_was_asked_for_unless_only_one_is_spoken() {
    for (option, asked, given) in
        [("both", 1, 1), ("both", 2, 2), ("both", 9, 2), ("1", 2, 1), ("1", 0, 1), ("2", 1, 2), ("2", 7, 2)]
    {
        let mut agent =
            Agent::start(if given == 1 { V1 } else { V2 }, &["--version", option, "--name", "me"]);
        let hello = agent.call("initialize", json!({ "protocolVersion": asked })).unwrap();
        assert_eq!(hello["protocolVersion"], given, "{option} asked for {asked}");
        let info = if given == 1 { "agentInfo" } else { "info" };
        assert_eq!(hello[info]["name"], "me");
    }
    let mut agent = Agent::start(V2, &[]);
    assert_eq!(agent.call("initialize", json!({ "protocolVersion": 0 })).unwrap_err()["code"], -32022);
    assert_eq!(agent.call("session/list", json!({})).unwrap_err()["code"], -32600, "nobody said hello");
}

#[test]
fn only_what_is_offered_is_advertised_and_served() {
    let optional = ["load", "resume", "list", "close", "delete", "fork", "set_title"];
    for dialect in Dialect::ALL {
        let mut agent = Agent::start(dialect, &["--offers", "none"]);
        let hello = agent.initialize(json!({}));
        for pointer in [
            "/agentCapabilities/sessionCapabilities/list",
            "/agentCapabilities/sessionCapabilities/fork",
            "/capabilities/session/delete",
            "/capabilities/session/fork",
            "/capabilities/session/title",
        ] {
            assert_eq!(hello.pointer(pointer), None);
        }
        assert_ne!(hello.pointer("/agentCapabilities/loadSession"), Some(&json!(true)));
        for method in optional {
            let error = agent.call(&format!("session/{method}"), json!({ "sessionId": "x" })).unwrap_err();
            assert_eq!(error["code"], -32601, "{method}");
        }
        assert_eq!(agent.call("no/such", json!({})).unwrap_err()["code"], -32601);
    }
    let mut agent = Agent::start(V1, &["--offers", "load,fork-at-message,title"]);
    let hello = agent.initialize(json!({}));
    assert_eq!(hello["agentCapabilities"]["loadSession"], true);
    let sessions = json!({ "fork": { "atMessageId": true }, "title": {} });
    assert_eq!(hello["agentCapabilities"]["sessionCapabilities"], sessions);
}

#[test]
fn a_session_opens_with_modes_options_and_commands() {
    for dialect in Dialect::ALL {
        let mut agent = Agent::start(dialect, &[]);
        agent.initialize(json!({}));
        let opened = agent.call("session/new", json!({ "cwd": "/w", "mcpServers": [] })).unwrap();
        let name = if dialect == V1 { "id" } else { "configId" };
        let options: Vec<&str> =
            opened["configOptions"].as_array().unwrap().iter().map(|o| o[name].as_str().unwrap()).collect();
        if dialect == V1 {
            assert_eq!(opened["modes"]["currentModeId"], "ask");
            assert_eq!(options, ["model"]);
        } else {
            assert_eq!(options, ["mode", "model"]);
        }
        let commands = agent.update();
        assert_eq!(commands["sessionUpdate"], "available_commands_update");
        let names: Vec<&str> = commands["availableCommands"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"help") && names.contains(&"whoami"), "{names:?}");
        let relative = agent.call("session/new", json!({ "cwd": "w", "mcpServers": [] })).unwrap_err();
        assert_eq!(relative["code"], -32602);
    }
}

#[test]
fn with_auth_a_session_needs_a_login() {
    for (dialect, method) in [(V1, "authenticate"), (V2, "auth/login"), (Draft, "auth/login")] {
        let mut agent = Agent::start(dialect, &["--auth"]);
        let hello = agent.initialize(json!({}));
        assert_eq!(hello["authMethods"].as_array().unwrap().len(), 1);
        let new = json!({ "cwd": "/w", "mcpServers": [] });
        assert_eq!(agent.call("session/new", new.clone()).unwrap_err()["code"], -32000);
        agent.call(method, json!({ "methodId": "test" })).unwrap();
        agent.new_session();
        agent.call(if dialect == V1 { "logout" } else { "auth/logout" }, json!({})).unwrap();
        assert_eq!(agent.call("session/new", new).unwrap_err()["code"], -32000);
    }
}

#[test]
fn words_are_streamed_under_one_id_and_a_thought_has_its_own() {
    each("say one two  three\nthink hm so\ntwo again", |dialect, turn| {
        assert_eq!(said(turn, "agent_thought_chunk"), "hm so");
        assert_eq!(answer(turn), "one two  threeagainagain");
        let (thought, messages) = (ids(turn, "agent_thought_chunk"), ids(turn, "agent_message_chunk"));
        assert_eq!((thought.len(), messages.len()), (1, 3), "{dialect:?}");
        assert!(thought.is_disjoint(&messages));
        assert!(turn.of("agent_message_chunk").len() > 5);
        assert_eq!(turn.stop, "end_turn");
        assert!(turn.usage["outputTokens"].as_u64().unwrap() > 0);
    });
}

#[test]
fn other_text_is_answered_in_a_friendly_way() {
    each("What is this?", |_, turn| {
        let answer = answer(turn);
        assert!(answer.contains("What is this?") && answer.contains("`help`"), "{answer}");
    });
    each("help", |_, turn| assert!(answer(turn).contains("stream N SIZE"), "{}", answer(turn)));
    each("/sleep soon", |_, turn| assert!(answer(turn).contains("sleep MS"), "{}", answer(turn)));
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        let blocks = json!([
            { "type": "resource", "resource": { "uri": "file:///a", "text": "a" } },
            { "type": "text", "text": "whoami" },
        ]);
        let turn = agent.turn_of(&session, &blocks);
        let answer = answer(&turn);
        assert!(answer.contains(&session) && answer.contains("prompt with resource"), "{answer}");
        assert!(
            answer.contains(&format!("protocol {}", dialect.name())) && answer.contains("1 messages"),
            "{answer}"
        );
        if dialect != V1 {
            assert_eq!(turn.of("user_message")[0]["content"], blocks);
        }
    }
}

#[test]
fn v2_answers_at_once_and_tells_states() {
    for dialect in [V2, Draft] {
        let (mut agent, session) = open(dialect, &[]);
        let id = agent.prompt(&session, "say hi");
        let lines: Vec<Value> = (0..5).map(|_| agent.receive()).collect();
        assert_eq!(lines[0]["id"], id);
        let message = &lines[1]["params"]["update"];
        if dialect == Draft {
            assert_eq!(lines[0]["result"], json!({}));
        } else {
            assert_eq!(lines[0]["result"]["messageId"], message["messageId"]);
        }
        assert_eq!(message["content"], json!([{ "type": "text", "text": "say hi" }]));
        let (kind, reason) =
            if dialect == Draft { ("state_change", "stop_reason") } else { ("state_update", "stopReason") };
        let running = &lines[2]["params"]["update"];
        assert_eq!(*running, json!({ "sessionUpdate": kind, "state": "running" }));
        let idle = &lines[4]["params"]["update"];
        assert_eq!(
            (&idle["sessionUpdate"], &idle["state"], &idle[reason]),
            (&json!(kind), &json!("idle"), &json!("end_turn"))
        );
    }
}

#[test]
fn a_tool_call_goes_from_pending_to_completed_with_a_diff() {
    each("tool Polish it", |dialect, turn| {
        let first = &turn.of(if dialect == V1 { "tool_call" } else { "tool_call_update" })[0];
        assert_eq!((&first["title"], &first["status"]), (&json!("Polish it"), &json!("pending")));
        let updates = turn.of("tool_call_update");
        let states: Vec<&str> = updates.iter().filter_map(|update| update["status"].as_str()).collect();
        assert!(states.ends_with(&["in_progress", "completed"]), "{states:?}");
        let diff = if dialect == V1 {
            updates.iter().find_map(|update| update["content"].get(1)).unwrap().clone()
        } else {
            turn.of("tool_call_content_chunk")[1]["content"].clone()
        };
        assert_eq!(diff["type"], "diff");
        assert!(diff.to_string().contains("/w/notes.txt"), "{diff}");
    });
}

#[test]
fn permission_is_asked_for_and_the_outcome_reported() {
    for (dialect, choice, status, words) in [
        (V1, "allow-once", "completed", "You chose allow-once."),
        (V2, "allow-always", "completed", "You chose allow-always."),
        (Draft, "reject-once", "failed", "You chose reject-once."),
    ] {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "ask Wipe it");
        let asked = agent.peer_request("session/request_permission");
        assert_eq!(asked["params"]["options"].as_array().unwrap().len(), 3);
        let title = if dialect == V1 { "/params/toolCall/title" } else { "/params/subject/toolCall/title" };
        assert_eq!(asked.pointer(title), Some(&json!("Wipe it")));
        agent.respond(&asked, &json!({ "outcome": { "outcome": "selected", "optionId": choice } }));
        let turn = agent.end_of_turn();
        assert_eq!(answer(&turn), words);
        assert_eq!(turn.of("tool_call_update").last().unwrap()["status"], status);
        if dialect != V1 {
            assert_eq!(turn.states, ["running", "requires_action", "running", "idle"]);
        }
    }
    let (mut agent, session) = open(V1, &[]);
    agent.prompt(&session, "ask");
    let asked = agent.peer_request("session/request_permission");
    agent.respond(&asked, &json!({ "outcome": { "outcome": "cancelled" } }));
    assert_eq!(agent.end_of_turn().stop, "cancelled");
}

#[test]
fn a_form_is_shown_if_the_client_can() {
    for dialect in Dialect::ALL {
        let mut agent = Agent::start(dialect, &[]);
        agent.initialize(json!({ "elicitation": { "form": {} } }));
        let session = agent.new_session();
        agent.prompt(&session, "elicit");
        let asked = agent.peer_request("elicitation/create");
        agent.respond(&asked, &json!({ "action": "accept", "content": { "name": "Ada" } }));
        let turn = agent.end_of_turn();
        assert!(answer(&turn).contains("Ada"), "{}", answer(&turn));
    }
    each("elicit", |_, turn| assert_eq!(answer(turn), "This client shows no forms."));
}

#[test]
fn information_about_the_session_is_updated() {
    each("title A day\nmeta {\"a\":{\"b\":1}}\nusage\ncommands\ntitle", |_, turn| {
        let info = turn.of("session_info_update");
        assert_eq!(info[0]["title"], "A day");
        assert_eq!(info[1]["_meta"], json!({ "a": { "b": 1 } }));
        assert_eq!(info[2]["title"], Value::Null);
        assert!(turn.of("usage_update")[0]["used"].as_u64().unwrap() > 0);
        assert_eq!(turn.of("available_commands_update").len(), 1);
    });
    each("meta {", |_, turn| assert!(answer(turn).contains("not JSON"), "{}", answer(turn)));
}

#[test]
fn modes_and_options_are_set_by_both_sides() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, "mode code\nmode none");
        assert_eq!(answer(&turn), "There is no mode none.");
        if dialect == V1 {
            assert_eq!(turn.of("current_mode_update")[0]["currentModeId"], "code");
            agent.call("session/set_mode", json!({ "sessionId": session, "modeId": "ask" })).unwrap();
            let wrong = agent.call("session/set_mode", json!({ "sessionId": session, "modeId": "x" }));
            assert_eq!(wrong.unwrap_err()["code"], -32602);
        } else {
            assert_eq!(turn.of("config_option_update")[0]["configOptions"][0]["currentValue"], "code");
            let set = json!({ "sessionId": session, "configId": "mode", "type": "id", "value": "ask" });
            agent.call("session/set_config_option", set).unwrap();
        }
        let set = json!({ "sessionId": session, "configId": "model", "type": "id", "value": "large" });
        let options = agent.call("session/set_config_option", set).unwrap();
        assert_eq!(options["configOptions"].as_array().unwrap().last().unwrap()["currentValue"], "large");
        let turn = agent.turn(&session, "whoami");
        assert!(answer(&turn).contains("mode ask, model large"), "{}", answer(&turn));
    }
}

#[test]
fn a_plan_is_worked_off_and_v2_can_remove_it() {
    each("plan read; write ;check\nunplan", |dialect, turn| {
        let plans: Vec<Value> = if dialect == V1 {
            turn.of("plan").iter().map(|plan| plan["entries"].clone()).collect()
        } else {
            turn.of("plan_update").iter().map(|plan| plan["plan"]["entries"].clone()).collect()
        };
        let first: Vec<&str> =
            plans[0].as_array().unwrap().iter().map(|e| e["content"].as_str().unwrap()).collect();
        assert_eq!(first, ["read", "write", "check"]);
        assert!(plans.last().unwrap().as_array().unwrap().iter().all(|entry| entry["status"] == "completed"));
        if dialect == V1 {
            assert!(answer(turn).contains("cannot"));
        } else {
            assert_eq!(turn.of("plan_removed")[0]["planId"], turn.of("plan_update")[0]["plan"]["planId"]);
        }
    });
}

#[test]
fn v2_runs_commands_in_a_terminal_of_its_own() {
    for dialect in [V2, Draft] {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, "terminal echo out; echo err >&2; exit 3");
        let output: Vec<u8> = turn
            .of("terminal_output_chunk")
            .iter()
            .flat_map(|chunk| BASE64_STANDARD.decode(chunk["data"].as_str().unwrap()).unwrap())
            .collect();
        assert_eq!(String::from_utf8(output).unwrap(), "out\nerr\n");
        let updates = turn.of("terminal_update");
        assert_eq!(updates.last().unwrap()["exitStatus"]["exitCode"], 3);
        let calls = turn.of("tool_call_update");
        assert_eq!(calls[0]["content"][0]["terminalId"], updates[0]["terminalId"]);
        assert_eq!(calls.last().unwrap()["status"], "failed");
    }
}

#[test]
fn v1_runs_commands_in_a_terminal_of_the_client() {
    let mut agent = Agent::start(V1, &[]);
    agent.initialize(json!({ "terminal": true }));
    let session = agent.new_session();
    agent.prompt(&session, "terminal make all");
    let asked = agent.peer_request("terminal/create");
    assert_eq!(asked["params"]["args"], json!(["-c", "make all"]));
    agent.respond(&asked, &json!({ "terminalId": "t1" }));
    for (method, result) in [
        ("terminal/wait_for_exit", json!({ "exitCode": 0, "signal": null })),
        ("terminal/output", json!({ "output": "built\n", "truncated": false })),
        ("terminal/release", json!({})),
    ] {
        let asked = agent.peer_request(method);
        assert_eq!(asked["params"]["terminalId"], "t1");
        agent.respond(&asked, &result);
    }
    let turn = agent.end_of_turn();
    assert_eq!(answer(&turn), "It ended with 0 and wrote: built");
    assert_eq!(turn.of("tool_call_update").last().unwrap()["status"], "completed");
    let (mut agent, session) = open(V1, &[]);
    assert_eq!(answer(&agent.turn(&session, "terminal ls")), "This client has no terminals.");
}

#[test]
fn v1_reads_and_writes_files_through_the_client() {
    let mut agent = Agent::start(V1, &[]);
    agent.initialize(json!({ "fs": { "readTextFile": true, "writeTextFile": true } }));
    let session = agent.new_session();
    agent.prompt(&session, "read /a b\nwrite /c Hi you");
    let asked = agent.peer_request("fs/read_text_file");
    assert_eq!(asked["params"]["path"], "/a b");
    agent.respond(&asked, &json!({ "content": "inside" }));
    let asked = agent.peer_request("fs/write_text_file");
    assert_eq!((&asked["params"]["path"], &asked["params"]["content"]), (&json!("/c"), &json!("Hi you")));
    agent.refuse(&asked, 13, "read only");
    let turn = agent.end_of_turn();
    assert_eq!(answer(&turn), "/a b says: insideWriting failed: read only (13)");
    each("read /a\nwrite /a b", |_, turn| {
        assert_eq!(answer(turn), "This client reads no files for me.This client writes no files for me.");
    });
}

#[test]
fn v2_takes_back_what_it_said() {
    each("redact\nredact clear", |dialect, turn| {
        if dialect == V1 {
            return assert!(answer(turn).contains("cannot"));
        }
        let replaced = turn.of("agent_message");
        assert_eq!(replaced[0]["content"][0]["text"], "The password is [redacted].");
        assert_eq!(replaced[1]["content"], Value::Null);
        let replaced: BTreeSet<_> =
            replaced.iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ids(turn, "agent_message_chunk"), replaced);
    });
}

#[test]
fn it_speaks_up_after_the_turn() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, "later 1 by the way\nbackground 2\nsay now");
        assert_eq!(answer(&turn), "now");
        let expected = "Background update 1 of 2.Background update 2 of 2.by the way";
        let mut heard = String::new();
        let mut states = Vec::new();
        while heard.len() < expected.len() || dialect != V1 && states.len() < 4 {
            let update = agent.update();
            heard.push_str(update["content"]["text"].as_str().unwrap_or(""));
            states.extend(update["state"].as_str().map(str::to_owned));
        }
        assert_eq!(heard, expected);
        assert_eq!(states.len(), if dialect == V1 { 0 } else { 4 }, "{states:?}");
    }
}

#[test]
fn odd_habits_of_real_agents() {
    each("same-id both", |_, turn| {
        assert_eq!(ids(turn, "agent_thought_chunk"), ids(turn, "agent_message_chunk"));
    });
    each("echo-user\nimage\nlink", |dialect, turn| {
        let echoed = said(turn, "user_message_chunk");
        assert_eq!(echoed, if dialect == V1 { "echo-user\nimage\nlink" } else { "" });
        let types: Vec<&str> = turn
            .of("agent_message_chunk")
            .iter()
            .filter_map(|c| c["content"]["type"].as_str())
            .filter(|t| *t != "text")
            .collect();
        assert_eq!(types, ["image", "resource_link"]);
    });
    let (mut agent, session) = open(V1, &["--no-message-ids"]);
    let turn = agent.turn(&session, "think a\nsay b");
    assert!(turn.updates.iter().all(|update| update.get("messageId").is_none()));
    let (mut agent, session) = open(V2, &["--no-message-ids"]);
    assert_eq!(ids(&agent.turn(&session, "say b"), "agent_message_chunk").len(), 1, "v2 cannot do without");
}

#[test]
fn streams_count_themselves() {
    for (dialect, pace) in [(V1, ""), (V2, "each"), (Draft, "2000"), (V2, "0")] {
        let (mut agent, session) = open(dialect, &[]);
        let turn = agent.turn(&session, &format!("stream 300 40 {pace}"));
        let chunks = turn.of("agent_message_chunk");
        assert_eq!(chunks.len(), 300);
        for (number, chunk) in chunks.iter().enumerate() {
            let text = chunk["content"]["text"].as_str().unwrap();
            assert!(text.starts_with(&format!("{number:08} ")) && text.len() == 40, "{text}");
        }
        assert_eq!(ids(&turn, "agent_message_chunk").len(), 1);
    }
    each("big 300000", |_, turn| assert_eq!(answer(turn).len(), 300_000));
}

#[test]
fn turns_end_for_other_reasons() {
    each("refuse", |_, turn| assert_eq!(turn.stop, "refusal"));
    each("fail 77 no luck", |_, turn| {
        assert_eq!(turn.stop, "error");
        assert_eq!(turn.error, json!({ "code": 77, "message": "no luck" }));
    });
}

#[test]
fn garbage_is_written_and_the_turn_goes_on() {
    each("garbage\nsay on", |_, turn| {
        assert_eq!(turn.garbage.len(), 2);
        assert_eq!(answer(turn), "on");
    });
}

#[test]
fn the_process_says_things_about_itself() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        assert_eq!(answer(&agent.turn(&session, "pid")), agent.pid().to_string());
        assert_eq!(answer(&agent.turn(&session, "env AGENT_TEST")), "AGENT_TEST=yes");
        assert_eq!(answer(&agent.turn(&session, "env NO_SUCH_NAME")), "NO_SUCH_NAME is not set");
        assert_eq!(agent.turn(&session, "stderr oh dear").stop, "end_turn");
        agent.prompt(&session, "ext _test/x");
        let asked = agent.peer_request("_test/x");
        agent.respond(&asked, &json!([1, 2]));
        assert_eq!(answer(&agent.end_of_turn()), "The answer: [1,2]");
        let (code, stderr) = agent.close();
        assert_eq!((code, stderr.as_str()), (Some(0), "oh dear\n"));
    }
}

/// The process group of a process.
#[cfg(target_os = "linux")]
fn group(process: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().to_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_stays_in_the_group_unless_it_shall_not() {
    let (mut agent, session) = open(V1, &[]);
    let near = answer(&agent.turn(&session, "child"));
    let far = answer(&agent.turn(&session, "child setsid"));
    assert_eq!(group(&near), group(&agent.pid().to_string()));
    let start = Instant::now();
    // The program has to be loaded before it can leave.
    while group(&far) != far {
        assert!(start.elapsed() < Duration::from_secs(30), "it does not leave the group");
        std::thread::yield_now();
    }
    assert_eq!(agent.close().0, Some(0), "the output ends although they live");
    for child in [near, far] {
        assert!(std::process::Command::new("kill").arg(child).status().unwrap().success());
    }
}

#[test]
fn it_crashes_as_asked() {
    for dialect in Dialect::ALL {
        for (script, code, stderr) in [
            ("say first\ncrash 7", 7, "parlor-test: crashing as asked\n"),
            ("say first\ncrash", 1, "parlor-test: crashing as asked\n"),
            ("say first\ncrash-silently", 1, ""),
        ] {
            let (mut agent, session) = open(dialect, &[]);
            agent.prompt(&session, script);
            assert!(agent.rest().iter().any(|line| line.to_string().contains("\"first\"")), "flushed before");
            assert_eq!(agent.close(), (Some(code), stderr.to_owned()));
        }
    }
}

#[test]
fn v1_rejects_a_prompt_during_a_turn() {
    let (mut agent, session) = open(V1, &[]);
    let first = agent.prompt(&session, "sleep 100000");
    let second = agent.prompt(&session, "say hi");
    let refused = agent.receive();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(second), &json!(-32600)));
    agent.cancel(&session);
    let ended = agent.receive();
    assert_eq!((&ended["id"], &ended["result"]["stopReason"]), (&json!(first), &json!("cancelled")));
    assert_eq!(answer(&agent.turn(&session, "say hi")), "hi");
}

#[test]
fn v2_holds_prompts_and_inserts_them_in_order() {
    for dialect in [V2, Draft] {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "ask");
        let asked = agent.peer_request("session/request_permission");
        let held: Vec<u64> = (0..64).map(|n| agent.prompt(&session, &format!("say {n}"))).collect();
        let refused = agent.prompt(&session, "say too many");
        let refusal = agent.receive();
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!(refused), &json!(-32600)));
        agent.respond(&asked, &json!({ "outcome": { "outcome": "selected", "optionId": "allow-once" } }));
        agent.end_of_turn();
        for (n, id) in held.iter().enumerate() {
            // Nothing was answered before the message was inserted.
            assert_eq!(agent.receive()["id"], *id);
            let turn = agent.end_of_turn();
            assert_eq!(turn.of("user_message")[0]["content"][0]["text"], format!("say {n}"));
            assert_eq!(answer(&turn), n.to_string());
            assert_eq!(turn.states, ["running", "idle"]);
        }
    }
}

#[test]
fn cancelling_ends_a_turn_wherever_it_waits() {
    let scripts = [
        "sleep 100000",
        "ask",
        "elicit",
        "ext _never",
        "stream 100000000 10 5",
        "stream 100000000 10",
        "stream 100000000 10 each",
        "terminal sleep 1000",
    ];
    for dialect in Dialect::ALL {
        let mut agent = Agent::start(dialect, &[]);
        agent.initialize(json!({ "elicitation": { "form": {} }, "terminal": true }));
        let session = agent.new_session();
        for script in scripts {
            agent.prompt(&session, &format!("say go\n{script}"));
            agent.until(|line| line.to_string().contains("\"go\""));
            // The turn is surely in its wait when the question was asked, or the tool call shown.
            match script {
                "ask" => drop(agent.peer_request("session/request_permission")),
                "elicit" => drop(agent.peer_request("elicitation/create")),
                "ext _never" => drop(agent.peer_request("_never")),
                "terminal sleep 1000" if dialect == V1 => {
                    let asked = agent.peer_request("terminal/create");
                    agent.respond(&asked, &json!({ "terminalId": "t" }));
                    agent.peer_request("terminal/wait_for_exit");
                }
                "terminal sleep 1000" => {
                    agent.until(|line| line["params"]["update"]["sessionUpdate"] == "tool_call_update");
                }
                _ => {}
            }
            agent.cancel(&session);
            let turn = agent.end_of_turn();
            assert_eq!(turn.stop, "cancelled", "{script} in {dialect:?}");
            let calls = turn.of("tool_call_update");
            if script == "ask" || script.starts_with("terminal") {
                let status = if dialect == V1 { "failed" } else { "cancelled" };
                assert_eq!(calls.last().unwrap()["status"], status);
            }
        }
        assert_eq!(agent.turn(&session, "say fine").stop, "end_turn");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn cancelling_ends_what_a_command_has_started() {
    let (mut agent, session) = open(V2, &[]);
    agent.prompt(&session, "terminal sleep 1000 & echo $!; wait");
    let lines = agent.until(|line| line["params"]["update"]["sessionUpdate"] == "terminal_output_chunk");
    let data = lines.last().unwrap()["params"]["update"]["data"].as_str().unwrap();
    let child = String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap();
    agent.cancel(&session);
    assert_eq!(agent.end_of_turn().stop, "cancelled");
    let start = Instant::now();
    // One that has ended may wait for somebody to hear of it.
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while lives() {
        assert!(start.elapsed() < Duration::from_secs(30), "{child} lives");
        std::thread::yield_now();
    }
}

#[test]
fn cancelling_takes_held_prompts_along() {
    let (mut agent, session) = open(V2, &[]);
    agent.prompt(&session, "sleep 100000");
    agent.until(|line| line["params"]["update"]["state"] == "running");
    let held = [agent.prompt(&session, "say a"), agent.prompt(&session, "say b")];
    agent.notify("$/cancel_request", json!({ "requestId": held[1] }));
    let taken_back = agent.receive();
    assert_eq!((&taken_back["id"], &taken_back["error"]["code"]), (&json!(held[1]), &json!(-32800)));
    agent.cancel(&session);
    let lines = agent.until(|line| line["params"]["update"]["state"] == "idle");
    let refused = lines.iter().find(|line| line["id"] == held[0]).unwrap();
    assert_eq!(refused["error"]["code"], -32800);
    assert_eq!(answer(&agent.turn(&session, "say c")), "c");
}

#[test]
fn taking_back_the_prompt_ends_a_v1_turn() {
    let (mut agent, session) = open(V1, &[]);
    let id = agent.prompt(&session, "say go\nsleep 100000");
    agent.until(|line| line.to_string().contains("\"go\""));
    agent.notify("$/cancel_request", json!({ "requestId": id + 1 }));
    agent.notify("$/cancel_request", json!({ "requestId": id }));
    assert_eq!(agent.end_of_turn().stop, "cancelled");
}

#[test]
fn a_hanging_turn_ignores_everything_but_the_end() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "hang");
        agent.until(|line| line.to_string().contains("Hanging."));
        agent.cancel(&session);
        // The other session answers, and so the cancellation has been read.
        let other = agent.new_session();
        let start = Instant::now();
        let turn = agent.turn(&other, "say free");
        assert_eq!(answer(&turn), "free");
        assert_eq!(agent.close().0, Some(0));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn the_end_of_the_input_ends_turns_and_the_process() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "say go\nsleep 100000");
        agent.until(|line| line.to_string().contains("\"go\""));
        agent.end_input();
        let rest = agent.rest();
        assert!(rest.last().unwrap().to_string().contains("cancelled"), "{rest:?}");
        assert_eq!(agent.close().0, Some(0));
    }
}

#[test]
fn sessions_are_independent() {
    for dialect in Dialect::ALL {
        let (mut agent, first) = open(dialect, &[]);
        let second = agent.new_session();
        assert_ne!(first, second);
        agent.prompt(&first, "say one\nsleep 100000");
        agent.until(|line| line.to_string().contains("\"one\""));
        let turn = agent.turn(&second, "say two");
        assert_eq!(answer(&turn), "two");
        assert!(turn.sessions.iter().all(|session| *session == second));
    }
}

#[test]
fn sessions_come_back_in_another_process() {
    for dialect in Dialect::ALL {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--state", folder.path().to_str().unwrap()];
        let (mut agent, session) = open(dialect, &options);
        agent.turn(&session, "think hm\nsay one two\nsay three\ntitle Mine\nmode code");
        agent.close();
        let mut agent = Agent::start(dialect, &options);
        agent.initialize(json!({}));
        let listed = agent.call("session/list", json!({})).unwrap();
        let entry = &listed["sessions"][0];
        assert_eq!(
            (&entry["sessionId"], &entry["title"], &entry["cwd"]),
            (&json!(session), &json!("Mine"), &json!("/w"))
        );
        let mut params = json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] });
        assert_eq!(agent.refused_prompt(&session), -32002, "it is not open yet");
        let method = if dialect == V1 { "session/load" } else { "session/resume" };
        if dialect != V1 {
            params["replayFrom"] = json!({ "type": "start" });
        }
        let id = agent.send(method, params.clone());
        let replay = agent.until(|line| line["id"] == id);
        let updates: Vec<&Value> = replay.iter().map(|line| &line["params"]["update"]).collect();
        let kinds: Vec<&str> = updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
        if dialect == V1 {
            assert_eq!(
                kinds,
                ["user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "agent_message_chunk"]
            );
            assert_eq!(updates[2]["content"]["text"], "one two");
            assert_eq!(replay.last().unwrap()["result"]["modes"]["currentModeId"], "code");
        } else {
            assert_eq!(kinds, ["user_message", "agent_thought", "agent_message", "agent_message"]);
            assert_eq!(updates[2]["content"], json!([{ "type": "text", "text": "one two" }]));
            let other = json!({ "sessionId": session, "cwd": "/w", "replayFrom": { "type": "_x" } });
            assert_eq!(agent.call("session/resume", other).unwrap_err()["code"], -32602);
        }
        params.as_object_mut().unwrap().remove("replayFrom");
        let id = agent.send("session/resume", params);
        let silent = agent.until(|line| line["id"] == id);
        assert!(silent.iter().all(|line| !line.to_string().contains("three")), "nothing is replayed");
        assert!(answer(&agent.turn(&session, "whoami")).contains("5 messages"));
        agent.call("session/delete", json!({ "sessionId": session })).unwrap();
        assert_eq!(agent.call("session/list", json!({})).unwrap()["sessions"], json!([]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn closing_ends_the_turn_first() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "say go\nsleep 100000");
        agent.until(|line| line.to_string().contains("\"go\""));
        let id = agent.send("session/close", json!({ "sessionId": session }));
        let lines = agent.until(|line| line["id"] == id);
        assert!(lines.iter().any(|line| line.to_string().contains("cancelled")), "{lines:?}");
        assert_eq!(agent.refused_prompt(&session), -32002);
        agent.call("session/resume", json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] })).unwrap();
        agent.update();
        assert_eq!(answer(&agent.turn(&session, "say back")), "back");
    }
}

#[test]
fn a_fork_has_the_messages_up_to_where_it_was_made() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &["--offers", "fork-at-message,title"]);
        let turn = agent.turn(&session, "say one\nsay two");
        let first = turn.of("agent_message_chunk")[0]["messageId"].clone();
        let mut params = json!({ "sessionId": session, "cwd": "/f", "mcpServers": [], "messageId": first });
        let forked =
            agent.call("session/fork", params.clone()).unwrap()["sessionId"].as_str().unwrap().to_owned();
        agent.update();
        let said = answer(&agent.turn(&forked, "whoami"));
        assert!(said.contains("in /f") && said.contains("3 messages"), "{said}");
        params["messageId"] = json!("none");
        assert_eq!(agent.call("session/fork", params).unwrap_err()["code"], -32002);
        let title = agent.call("session/set_title", json!({ "sessionId": forked, "title": "Fork" })).unwrap();
        assert_eq!(title["title"], "Fork");
        assert_eq!(agent.update()["title"], "Fork");
    }
    let (mut agent, session) = open(V2, &["--offers", "fork"]);
    let params = json!({ "sessionId": session, "cwd": "/f", "messageId": "m" });
    assert_eq!(agent.call("session/fork", params).unwrap_err()["code"], -32602);
}

#[test]
fn long_lists_come_in_pages() {
    let (mut agent, _) = open(V2, &[]);
    for _ in 0..120 {
        agent.new_session();
    }
    let first = agent.call("session/list", json!({})).unwrap();
    let second = agent.call("session/list", json!({ "cursor": first["nextCursor"] })).unwrap();
    let count = |page: &Value| page["sessions"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second), second.get("nextCursor")), (100, 21, None));
    assert_eq!(count(&agent.call("session/list", json!({ "cwd": "/elsewhere" })).unwrap()), 0);
}

#[test]
fn there_are_at_most_a_thousand_sessions() {
    let (mut agent, _) = open(V1, &[]);
    for _ in 1..1000 {
        agent.new_session();
    }
    let error = agent.call("session/new", json!({ "cwd": "/w", "mcpServers": [] })).unwrap_err();
    assert_eq!(error["code"], -32603);
}

#[test]
fn malformed_lines_are_answered_and_the_next_is_read() {
    let (mut agent, session) = open(V1, &[]);
    agent.write("nonsense");
    assert_eq!(agent.receive()["error"]["code"], -32700);
    agent.write(r#"{"jsonrpc":"2.0","id":"q","method":3}"#);
    let answer = agent.receive();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("q"), &json!(-32600)));
    let wrong = agent.call("session/prompt", json!({ "sessionId": session, "prompt": "hi" })).unwrap_err();
    assert_eq!(wrong["code"], -32602);
    agent.write(r#"[{"jsonrpc":"2.0","id":7,"method":"session/list"}]"#);
    assert_eq!(agent.receive()["error"]["code"], -32600, "v1 has no batches");
    let (mut agent, _) = open(V2, &[]);
    agent.write(r#"[{"jsonrpc":"2.0","id":7,"method":"x"},{"jsonrpc":"2.0","id":8,"method":"y"}]"#);
    assert_eq!((&agent.receive()["id"], &agent.receive()["id"]), (&json!(7), &json!(8)));
}
