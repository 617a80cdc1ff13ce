//! The help of the commands.

use expect_test::expect;
use parlor_testkit::scenario::Scenario;

use crate::PARLOR;

#[test]
#[expect(clippy::too_many_lines, reason = "it is the text of the help")]
fn the_commands_explain_themselves() {
    let scenario = Scenario::new(PARLOR);
    let help = |command: &str| {
        let said = scenario.run(&[command, "--help"]).success();
        said.stdout.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>()
    };
    expect![[r#"
        List sessions, the latest first

        An id is shown as far as it is needed to tell the sessions apart; that much of it, or more, names
        the session to the other commands. `latest` names the first of the list. Works with and without a
        running server.

        Usage: parlor ls [OPTIONS]

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --agent <NAME>
                  Only sessions of this agent

              --cwd <DIR>
                  Only sessions that work in this directory

              --archived
                  Only sessions that were put away

              --limit <N>
                  How many to list; 0 for all

                  [default: 50]

              --tree
                  Show forks below the sessions that they were forked from

              --json
                  Print a list of objects as JSON

          -h, --help
                  Print help (see a summary with '-h')
    "#]]
    .assert_eq(&help("ls"));
    expect![[r#"
        Show what was said in a session

        Reads the stored session; no server and no agent is started. The JSON has the shape that `parlor
        fold` prints.

        Usage: parlor show [OPTIONS] <SESSION>

        Arguments:
          <SESSION>
                  The session: its id, the beginning of it, or `latest`

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --json
                  Print the transcript as one JSON object

          -h, --help
                  Print help (see a summary with '-h')
    "#]]
    .assert_eq(&help("show"));
    expect![[r#"
        Search everything that was said

        All words must be there, in any order; case and accents do not matter. `"these words"` must stand
        together, `begin*` is the beginning of a word, and `-word` must not be there. The query may also say
        `role:agent`, `cwd:/there`, `agent:claude`, `since:2026-01-31` or `since:7d`. Messages are found by
        their text, tool calls by their title, sessions by theirs.

        Usage: parlor search [OPTIONS] <QUERY>...

        Arguments:
          <QUERY>...
                  What to look for; in quotes if a word of it begins with a dash

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --role <ROLE>
                  Only what was said in this role

                  [possible values: user, agent, thought, tool, title]

              --cwd <DIR>
                  Only in sessions that work in this directory

              --agent <NAME>
                  Only in sessions of this agent

              --since <WHEN>
                  Only what was said since: a day, a moment, or how long ago (30m, 12h, 7d, 2w)

              --limit <N>
                  How many to show, the best first

                  [default: 20]

              --json
                  Print a list of objects as JSON

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor search 'flaky test -windows'
          parlor search --since 7d '"race condition" role:agent'
    "#]]
    .assert_eq(&help("search"));
    expect![[r#"
        Say something in a session, and print the answer as it comes

        Joins the local server, and starts one if none runs. The answer goes to standard output; tool calls,
        questions and everything else about the turn go to standard error. Ctrl-C cancels the turn; a second
        one leaves it alone.

        The exit code is 0 if the agent came to the end of its turn, and 1 otherwise.

        Usage: parlor prompt [OPTIONS] <SESSION> <TEXT>
               parlor prompt [OPTIONS] --new <TEXT>

        Arguments:
          <SESSION>
                  The session: its id, the beginning of it, or `latest`; not with `--new`

          [TEXT]
                  What to say; `-` reads it from standard input

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --new
                  Begin a session

              --agent <NAME>
                  The agent of the new session [default: the server's]

              --cwd <DIR>
                  Where the new session works [default: here]

              --yes
                  Allow what the agent asks permission for

              --no
                  Reject what the agent asks permission for

              --json
                  Print one JSON object at the end, and no answer before

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor prompt --new 'What is in this directory?'
          git diff | parlor prompt latest -
    "#]]
    .assert_eq(&help("prompt"));
    expect![[r#"
        Write a session to a file or to standard output

        `json` is one object in the shape that `parlor fold` prints. `jsonl` is one session update of
        protocol version 2 a line, which `parlor fold` reads back to the same transcript. `markdown` and
        `html` are for people; the page holds all that it shows and has no scripts.

        Usage: parlor export [OPTIONS] <SESSION>

        Arguments:
          <SESSION>
                  The session: its id, the beginning of it, or `latest`

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --format <FORMAT>
                  How to write it

                  [default: json]
                  [possible values: json, jsonl, markdown, html]

          -o, --output <FILE>
                  The file to write; standard output if none is named

              --json
                  The same as `--format json`

          -h, --help
                  Print help (see a summary with '-h')
    "#]]
    .assert_eq(&help("export"));
    expect![[r#"
        Delete sessions, for good

        A running server ends the turns of these sessions and deletes them; without one they are deleted
        from the store. Sessions that were forked from them keep what they share. Asks first, on a terminal.

        Usage: parlor rm [OPTIONS] <SESSION>...

        Arguments:
          <SESSION>...
                  The sessions: their ids, the beginnings of them, or `latest`

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

          -y, --yes
                  Do not ask

              --json
                  Print the ids of the deleted sessions as a JSON list

          -h, --help
                  Print help (see a summary with '-h')
    "#]]
    .assert_eq(&help("rm"));
    expect![[r#"
        Say whether a server runs, and what it does

        The exit code is 1 if none runs.

        Usage: parlor status [OPTIONS]

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --json
                  Print one JSON object

          -h, --help
                  Print help (see a summary with '-h')
    "#]]
    .assert_eq(&help("status"));
    expect![[r#"
        List the agents that sessions can have

        Those of a running server, or else those of the configuration and the ones that are known without
        any. The first column marks the default. Which version of the protocol an agent speaks is known when
        it was started once.

        Usage: parlor agents [OPTIONS]

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --json
                  Print a list of objects as JSON

          -h, --help
                  Print help (see a summary with '-h')
    "#]]
    .assert_eq(&help("agents"));
    expect![[r#"
        Look for what is wrong

        Looks at the data directory, the database, the sessions in it, the server, the configuration and the
        agents, and tries the default agent. No session is changed. The exit code is 1 if something fails.

        Usage: parlor doctor [OPTIONS]

        Options:
              --data <DIR>
                  The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]

              --config <FILE>
                  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
                  config directory]

              --full
                  Read every session, not only a sample where there are many, and check every index of the
                  database

              --json
                  Print one JSON object

          -h, --help
                  Print help (see a summary with '-h')
    "#]]
    .assert_eq(&help("doctor"));
}
