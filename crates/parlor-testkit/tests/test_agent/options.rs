//! Its command line, and what it offers.

use expect_test::expect;
use parlor_dialect::Dialect::{self, Draft, V1, V2};
use serde_json::json;

use crate::agent::Agent;
use crate::{answer, open, run};

#[test]
fn the_help_lists_options_and_commands() {
    let (code, output, errors) = run(&["--help"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    expect![[r#"
        An agent for testing clients: any version, any optional methods, and faults on request

        It speaks the Agent Client Protocol on standard input and output, in v1, v2 and the draft of v2, and
        executes the commands in the prompt, one per line, listed below. Any other text gets a canned
        answer.

        Usage: parlor-test-agent [OPTIONS]

        Options:
              --version <VERSION>
                  The protocol version to speak; with 1 or 2, the agent ignores the version that the client
                  requests

                  [default: both]
                  [possible values: 1, 2, both]

              --no-message-ids
                  Send v1 chunks without message ids, as many agents do

              --offers <LIST>
                  The optional methods to support: load, resume, list, close, delete, fork, fork-at-message,
                  air-fork, air-turn-fork, steering, title, or none

                  [default: load,resume,list,close,delete]

              --quirks <LIST>
                  Imitate faults of real agents, see docs/test-agent.md: forgets-settings, silent-settings,
                  refuses-settings, lacks-modes, lacks-settings, mode-option, models, fork-replays,
                  fork-replays-late, same-id, slow-close, restore-fails, or none

                  [default: none]

              --state <DIR>
                  Store sessions in files in this folder, so that another process can load them

              --name <NAME>
                  The name that the agent reports

                  [default: parlor-test]

              --agent-version <VERSION>
                  The version that the agent reports

                  [default: 0.1.0]

              --auth[=<METHODS>]
                  Reject new sessions and prompts until a person has logged in, by one of these methods:
                  test, url, terminal, meta, env

              --login-file <FILE>
                  Be logged in while this file exists; the methods `terminal` and `meta` create it

              --log-in
                  Log in on the terminal, instead of speaking the protocol

          -h, --help
                  Print help (see a summary with '-h')

        Commands of a prompt, one per line:
          help                       lists these commands
          say TEXT                   sends TEXT, one chunk per word
          think TEXT                 the same, as a thought
          two TEXT                   sends TEXT in two messages in a row
          same-id TEXT               sends a thought and a message with the same id, as some agents do
          echo-user                  sends the prompt back as the user's message
          redact [clear]             sends a message and replaces (or clears) it; v2
          tool [TITLE]               sends a tool call from pending to completed, with a diff
          ask [TITLE]                sends a tool call that needs permission
          ask-open [TITLE]           the same, but leaves the tool call open when it is cancelled
          elicit                     asks the user to fill in a form
          plan A;B;C                 sends a plan and completes its entries
          unplan                     removes the plan; v2
          terminal COMMAND           runs a shell command: in the client's terminal in v1, in its own in v2
          read PATH                  reads a file through the client; v1
          write PATH TEXT            writes a file through the client; v1
          title [TEXT]               sets the session's title, or clears it
          meta JSON                  sends session information with this metadata
          mode NAME                  changes the mode: ask, code
          commands                   sends the list of commands again
          usage                      reports the use of the context window
          image                      sends an image
          link                       sends a link to a resource
          sleep MS                   waits
          await-steering             waits for a prompt that steers the turn, and sends its text
          later MS TEXT              sends TEXT this long after the turn has ended
          background N               sends N messages after the turn has ended
          stream N SIZE [RATE|each]  sends N chunks of SIZE bytes, RATE per second or one write each
          stamp N RATE [SIZE [AT]]   sends N chunks, RATE per second, each with the time at which it was
          written
          big N                      sends one chunk of N bytes
          fail CODE TEXT             ends the turn with this error
          refuse                     ends the turn with the stop reason refusal
          hang                       sends `Hanging.` and never ends the turn, not even when it is cancelled
          crash [CODE]               flushes its output, writes a line to stderr, and exits with CODE (1)
          crash-silently             exits with 1, without flushing its output or writing to stderr
          garbage                    writes a line that is not JSON and one that is not a message
          raw PARAMS                 sends a session/update with these params; SESSION is the id
          stderr TEXT                writes to standard error
          env NAME                   sends the value of an environment variable
          pid                        sends the process id
          child [setsid]             starts `sleep 1000` and sends its process id
          ext METHOD                 sends the request METHOD to the client, and its response
          whoami                     sends session, directory, protocol and message count

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
