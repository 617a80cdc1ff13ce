//! The command `parlor fold`.

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

use common::{check, parlor};
use expect_test::expect;

const CHUNK: &str =
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"Hi"}}"#;

fn of_session(session: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{CHUNK}}}}}"#
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is the text of the help")]
fn the_help_of_parlor_and_fold() {
    check(
        &["--help"],
        "",
        0,
        &expect![[r#"
            A session server for coding agents that speak the Agent Client Protocol.

            Without a command, on a terminal: opens the terminal client with the latest session of this
            directory.

            Usage: parlor [OPTIONS] [COMMAND]

            Prompts and requests:
              attach       Open the terminal client
              open         Open the page in a browser
              new          Open the terminal client with a new session
              prompt       Send a prompt to a session, and stream the answer
              inbox        List the requests of agents that wait for you, in all sessions
              answer       Answer a request of an agent
              cancel       Cancel the running turn of a session

            Sessions:
              ls           List sessions, the latest first
              show         Print the transcript of a session
              watch        Follow a session live
              search       Search the text of all sessions
              fork         Fork a session at a message, also to continue it with another agent
              edit         Replace an earlier prompt, in a fork of the session
              regenerate   Send an earlier prompt again, in a fork of the session
              set          Set the mode, the model, another option or the title of a session
              title        Set or clear the title of a session
              archive      Archive or unarchive sessions
              rm           Delete sessions permanently
              export       Write a session to a file or to standard output
              usage        Print the tokens, the cost and the time of turns

            Agents:
              setup        Choose the default agent and connect editors
              agents       List, install, update and remove agents
              login        Log in to an agent
              import       Import the sessions of an agent
              demo-agent   Run the demo agent on standard input and output

            Server:
              serve        Run the server
              stop         Stop the server
              restart      Restart the server
              status       Print the state of the server
              doctor       Check the installation
              logs         Print the log of the server
              backup       Write a copy of all sessions to a file
              service      Write or remove a systemd user unit for the server

            Editors and tools:
              acp          Speak ACP on standard input and output, for editors
              mcp          Offer stored sessions to agents, as an MCP server on standard input and output
              fold         Fold session updates into a transcript
              translate    Translate messages of an agent or a client to another protocol version
              completions  Print the completion script of a shell
              man          Print the manual page of parlor or of a command

            Options:
                  --color <WHEN>
                      Print colours: auto (on a terminal), always or never

              -h, --help
                      Print help (see a summary with '-h')

              -V, --version
                      Print version

            Examples:
              parlor serve                         start the server
              parlor prompt --new 'what is here?'  prompt an agent in a new session
              parlor ls                            list the sessions
              parlor show latest                   print a transcript

            Exit codes:
              0    success
              1    the turn failed, was refused or cancelled; a check failed; no server for `status`
              2    bad usage or bad input; nothing was changed
              3    a request is left open: there is no terminal to ask, or you chose later; `translate`: losses
              4    the agent is not available: not installed, not logged in, does not start
              5    the server or its data is not available
              124  `--timeout` elapsed; the turn continues
              130  ended by Ctrl-C

            Environment:
              PARLOR_DATA_DIR   the data directory, as --data
              PARLOR_CONFIG     the configuration file, as --config
              PARLOR_TOKEN      the token of the server
              PARLOR_LOG        what the server logs: error, warn, info (default), debug or trace
              PARLOR_TTY        the terminal on which requests are asked; none if it is empty
              PAGER             shows long transcripts (default: less -R)
              VISUAL, EDITOR    edits prompts (`prompt -e`)
              NO_COLOR          no colours
        "#]],
        &expect![""],
    );
    check(
        &["fold", "--help"],
        "",
        0,
        &expect![[r#"
            Fold session updates into a transcript

            Reads JSON-RPC lines (`session/update` notifications; `session/prompt` and its response mark turns;
            other messages are skipped), bare update objects, or recordings whose lines start with `C->A` or
            `A->C`. Prints the transcript as text on a terminal, else as one JSON object.

            An invalid line is skipped and reported on standard error with its number and the reason; the exit
            code is then 2.

            Usage: parlor fold [OPTIONS] [FILES]...

            Arguments:
              [FILES]...
                      Read these files in order [default: standard input]

            Options:
                  --dialect <DIALECT>
                      Decode the lines in this dialect: v1, v2 or draft

                      [default: v2]

                  --session <ID>
                      Fold only this session, if the lines are of several

                  --json
                      Print JSON even on a terminal

                  --text
                      Print text even into a pipe

                  --max-line <BYTES>
                      Skip lines that are longer than this many bytes

                      [default: 67108864]

                  --color <WHEN>
                      Print colours: auto (on a terminal), always or never

              -h, --help
                      Print help (see a summary with '-h')

            Examples:
              parlor export latest --format jsonl | parlor fold --text
              parlor fold --dialect v1 recording.jsonl
        "#]],
        &expect![""],
    );
}

#[test]
fn a_transcript_is_printed_as_one_json_object() {
    check(
        &["fold"],
        CHUNK,
        0,
        &expect![[r#"
            {"messages":[{"messageId":"m1","role":"agent","content":[{"type":"text","text":"Hi"}]}],"toolCalls":[],"plans":[],"terminals":[],"info":{},"state":null,"usage":null,"commands":[],"configOptions":[],"modes":null,"other":[],"events":[],"order":[{"kind":"agent_message","id":"m1"}]}
        "#]],
        &expect![""],
    );
    check(
        &["fold"],
        "",
        0,
        &expect![[r#"
            {"messages":[],"toolCalls":[],"plans":[],"terminals":[],"info":{},"state":null,"usage":null,"commands":[],"configOptions":[],"modes":null,"other":[],"events":[],"order":[]}
        "#]],
        &expect![""],
    );
}

#[test]
fn an_invalid_line_is_reported_and_the_rest_is_folded() {
    let input = format!("{{\"sessionUpdate\":\"agent_message\"}}\n\nnot json\n{CHUNK}\n");
    check(
        &["fold", "--text"],
        &input,
        2,
        &expect![[r#"
        agent m1
          Hi

    "#]],
        &expect![[r#"
        line 1: agent_message: `messageId` is missing
        line 2: blank line
        line 3: not JSON: expected ident at line 1 column 2: not json
    "#]],
    );
}

#[test]
fn a_line_over_the_limit_is_skipped_and_reported() {
    let input = format!("{}\n{CHUNK}\n", "x".repeat(1000));
    check(
        &["fold", "--text", "--max-line", "500"],
        &input,
        2,
        &expect![[r#"
        agent m1
          Hi

    "#]],
        &expect![[r#"
        line 1: line of 1000 bytes is longer than the limit of 500
    "#]],
    );
}

#[test]
fn a_line_that_is_not_utf8_is_reported() {
    let output = parlor(&["fold", "--text"], b"\xff\xfe\n");
    expect![[r#"
        line 1: not UTF-8: ��
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn lines_of_several_sessions_require_the_option_session() {
    let input = format!("{}\n{}\n", of_session("one"), of_session("two"));
    check(
        &["fold"],
        &input,
        2,
        &expect![""],
        &expect![[r#"
            parlor: the lines are of 2 sessions
              hint: select one with --session: one, two
        "#]],
    );
    check(
        &["fold", "--text", "--session", "two"],
        &input,
        0,
        &expect![[r#"
        agent m1
          Hi

    "#]],
        &expect![""],
    );
    check(
        &["fold", "--session", "three"],
        &input,
        2,
        &expect![""],
        &expect![[r#"
            parlor: no line is of session three
              hint: the lines are of: one, two
        "#]],
    );
}

#[test]
fn an_unknown_dialect_and_a_missing_file_are_reported() {
    check(
        &["fold", "--dialect", "v3"],
        "",
        2,
        &expect![""],
        &expect![[r#"
            parlor: --dialect cannot be 'v3': unknown dialect 'v3': it is one of v1, v2, draft
              hint: `parlor fold --help` shows how it is used
        "#]],
    );
    check(
        &["fold", "/no/such/file"],
        "",
        1,
        &expect![""],
        &expect![[r#"
        parlor: cannot open /no/such/file: No such file or directory
    "#]],
    );
}

#[test]
fn text_output_has_every_kind_of_entry_and_no_control_characters() {
    let input = [
        r#"{"sessionUpdate":"session_info_update","title":"A \u001b[2Jtitle"}"#,
        r#"{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"Look at "},{"type":"text","text":"this"},{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"resource_link","name":"n","uri":"file:///a.rs"}]}"#,
        r#"{"sessionUpdate":"agent_thought_chunk","messageId":"t1","content":{"type":"text","text":"Hm.\nWell."}}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"c1","title":"Edit a.rs","kind":"edit","status":"completed","content":[{"type":"diff","path":"/a.rs","oldText":"a","newText":"b"},{"type":"content","content":{"type":"text","text":"done"}},{"type":"terminal","terminalId":"x"}]}"#,
        r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[{"content":"one","priority":"low","status":"completed"},{"content":"two","priority":"low","status":"pending"}]}}"#,
        r#"{"sessionUpdate":"terminal_update","terminalId":"x","command":"ls","output":{"data":"YQpiG1sxbQ=="},"exitStatus":{"exitCode":1}}"#,
        r#"{"sessionUpdate":"terminal_update","terminalId":"y","command":"yes","exitStatus":{"signal":"SIGPIPE"}}"#,
        r#"{"sessionUpdate":"terminal_update","terminalId":"z","command":"sleep","exitStatus":{}}"#,
        r#"{"sessionUpdate":"notice","severity":"warning","title":"Slow","description":"Very."}"#,
        r#"{"sessionUpdate":"compaction_update","compactionId":"k","status":"completed","summary":[{"type":"text","text":"short"}]}"#,
        r#"{"sessionUpdate":"subagent_update","sessionId":"s2","title":"Helper"}"#,
        r#"{"sessionUpdate":"session_message","messageId":"sm","senderSessionId":"s1","recipientSessionId":"s2","content":[{"type":"text","text":"go"}]}"#,
        r#"{"sessionUpdate":"_odd","n":1}"#,
        r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}"#,
    ]
    .join("\n");
    check(
        &["fold", "--text"],
        &input,
        0,
        &expect![[r#"
            A �[2Jtitle

            user u1
              Look at this
              [image image/png, 3 bytes]
              [resource_link file:///a.rs]

            thought t1
              Hm.
              Well.

            ✓ Edit a.rs edit completed
              /a.rs
              - a
              + b
              done
              terminal x

            plan
              [x] one
              [ ] two

            $ ls
              a
              b
              exit code 1

            $ yes
              killed by SIGPIPE

            $ sleep
              ended

            warning Slow
              Very.

            context compacted completed
              short

            subagent Helper

            message s1 -> s2 sm
              go

            _odd
              {"sessionUpdate":"_odd","n":1}

            idle: end_turn
        "#]],
        &expect![""],
    );
}

#[test]
fn files_are_read_in_order_and_an_invalid_line_is_reported_with_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one.jsonl"), dir.path().join("two.jsonl"));
    std::fs::write(&one, format!("# a recording\nA->C {}\n", of_session("s"))).unwrap();
    std::fs::write(&two, format!("A->C {}\nA->C {{\nA!! noise", of_session("s"))).unwrap();
    let output = parlor(&["fold", "--text", one.to_str().unwrap(), two.to_str().unwrap()], b"");
    let stderr = String::from_utf8_lossy(&output.stderr).replace(dir.path().to_str().unwrap(), "DIR");
    expect![[r#"
        DIR/two.jsonl: line 2: not JSON: EOF while parsing an object at line 1 column 1: {
    "#]]
    .assert_eq(&stderr);
    expect![[r#"
        agent m1
          HiHi

    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_closed_pipe_is_not_an_error_and_a_full_disk_is() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_parlor"))
        .arg("fold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(CHUNK.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));

    if let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") {
        let output = Command::new(env!("CARGO_BIN_EXE_parlor"))
            .arg("fold")
            .stdin(Stdio::null())
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        expect![[r#"
            parlor: cannot write the output: No space left on device
        "#]]
        .assert_eq(&String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1));
    }
}
