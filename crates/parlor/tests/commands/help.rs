//! The help of the commands.

use expect_test::expect;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;

use crate::PARLOR;
use crate::terminal::Terminal;

/// The options that all commands here have. They are removed from the expected texts.
const PATH_OPTIONS: &str = "      --data <DIR>
          Use this data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data
          directory]

      --config <FILE>
          Use this configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG
          config directory]

";

/// The option that all commands have.
const COLOR_OPTION: &str = "      --color <WHEN>
          Print colours: auto (on a terminal), always or never

";

/// The output of `--help` without `PATH_OPTIONS` and `COLOR_OPTION`.
fn help(command: &str) -> String {
    let help = run(command, "--help");
    for shared in [PATH_OPTIONS, COLOR_OPTION] {
        assert!(help.contains(shared), "{help}");
    }
    help.replace(PATH_OPTIONS, "").replace(COLOR_OPTION, "")
}

/// The output of a command with an option, without trailing white space.
fn run(command: &str, option: &str) -> String {
    let output = Scenario::new(PARLOR).run(&[command, option]).success();
    output.stdout.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is the text of the help")]
fn the_long_help_describes_command_arguments_and_options() {
    expect![[r#"
        List sessions, the latest first

        Prints the shortest unique prefix of each id. Other commands accept such a prefix, the whole id, or
        `latest` for the latest session of this directory. Works with and without a running server.

        States: `running`, `needs you` (the agent waits for an answer, see `parlor inbox`), `failed` (the
        last turn failed), `interrupted` (the server was stopped or killed during a turn).

        Usage: parlor ls [OPTIONS]

        Options:
              --agent <NAME>
                  List only sessions of this agent

              --cwd <DIR>
                  List only sessions with this working directory

              --archived
                  List only archived sessions

              --limit <N>
                  List at most this many sessions; 0 for all [default: 50 on a terminal without `--json`,
                  and with `--watch`; else all]

              --tree
                  List forks below the sessions that they were forked from, with the last message that they
                  share

              --watch
                  Follow the list until Ctrl-C: draw it again on a terminal, print one line per change into
                  a pipe

              --json
                  Print a list of objects as JSON; with `--watch` one object per line

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor ls --cwd .
          parlor ls --watch
          parlor ls --json | jq -r '.[] | select(.state == "needs_you") | .sessionId'
    "#]]
    .assert_eq(&help("ls"));
    expect![[r#"
        Print the transcript of a session

        Messages have numbers, by which `fork`, `edit`, `regenerate` and `show` itself select them. Tool
        calls are shortened; `--tools` prints them in full. On a terminal, a long transcript is shown in
        `$PAGER` (`less -R` if it is not set).

        Reads the stored session, and asks a running server for open requests. Starts neither a server nor
        an agent.

        Usage: parlor show [OPTIONS] <SESSION> [MESSAGES]

        Arguments:
          <SESSION>
                  Select the session: its id, a unique prefix of its id or name, or `latest`

          [MESSAGES]
                  Print only these messages, and what is between them: `7`, `7..9`, `7..`, or `-1` for the
                  last one

                  A message is selected by its number, with or without `#`, or by a prefix of its id. Quote
                  `#`, which starts a comment in a shell.

        Options:
              --all
                  Let `latest` be the latest session of all directories, not only of this one

          -n, --entries <N>
                  Print only the last N entries

              --ids
                  Print the ids of messages and tool calls

              --tools
                  Print the inputs and the complete outputs of tool calls

              --no-pager
                  Print everything at once, also on a terminal

              --json
                  Print the session as one JSON object, as `parlor export --format json`

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor show latest
          parlor show latest -1
          parlor show latest '#7..#9' --tools
          parlor show latest -n 20 --no-pager
    "#]]
    .assert_eq(&help("show"));
    expect![[r#"
        Search the text of all sessions

        An entry matches if it has all words of the query, in any order; case and accents are ignored. `"two
        words"` matches the phrase, `begin*` a prefix, and `-word` excludes entries with the word. Filters
        in the query: `role:agent`, `cwd:.`, `agent:claude`, `since:2026-01-31` or `since:7d`. Messages
        match by their text, tool calls by title, input and output, sessions by their title.

        Usage: parlor search [OPTIONS] <QUERY>...

        Arguments:
          <QUERY>...
                  Search for these words; quote the query if a word starts with a dash

        Options:
              --role <ROLE>
                  Search only entries with this role

                  [possible values: user, agent, thought, tool, title]

              --cwd <DIR>
                  Search only sessions with this working directory

              --agent <NAME>
                  Search only sessions of this agent

              --since <WHEN>
                  Search only entries since this date, time or age (30m, 12h, 7d, 2w)

              --limit <N>
                  Print at most this many matches, the best first

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
        Send a prompt to a session, and stream the answer

        Without `-s` and `--new`, the prompt continues the latest session of this directory. Words need no
        quotes; standard input is appended to them if it is a pipe, a socket or a file, whose end is waited
        for (`< /dev/null` prevents that). The answer goes to standard output; the session, tool calls,
        requests and everything else about the turn go to standard error. Requests of the agent are asked on
        the terminal, also if standard input is a pipe. Ctrl-C cancels the turn; a second Ctrl-C exits while
        the turn continues. Starts the local server if it is not running.

        The exit code is 0 if the agent completed the turn, 1 if the turn failed, was refused or cancelled,
        3 if a request is left open (there is no terminal to ask, or you chose later), 124 if `--timeout`
        elapsed, and 130 after Ctrl-C. `parlor --help` lists all codes.

        Usage: parlor prompt [OPTIONS] [TEXT]...
               parlor prompt [OPTIONS] -s <SESSION> [TEXT]...
               parlor prompt [OPTIONS] --new [TEXT]...

        Arguments:
          [TEXT]...
                  Send these words; `-` stands for standard input

        Options:
              --all
                  Let `latest` be the latest session of all directories, not only of this one

          -f, --file <FILE>
                  Attach this file; may be repeated

          -i, --image <IMAGE>
                  Attach this image (PNG, JPEG, GIF, WebP); may be repeated

          -e, --edit
                  Write the prompt in `$VISUAL` or `$EDITOR`, starting with TEXT and standard input

          -s, --session <SESSION>
                  Select the session: its id, a unique prefix of its id or name, or `latest` [default:
                  latest]

              --new
                  Start a new session

              --agent <NAME>
                  Use this agent for the new session [default: the server's]

              --cwd <DIR>
                  Use this working directory for the new session [default: the current one]

              --model <ID>
                  Set the model of the session before the prompt

              --mode <ID>
                  Set the mode of the session before the prompt

              --no-wait
                  Exit as soon as the prompt is accepted or queued; requests of the agent wait in `parlor
                  inbox`

              --timeout <TIME>
                  Exit with code 124 if the turn has not ended after this time (30s, 5m, 2h); the turn
                  continues

              --now[=<HOW>]
                  Send the prompt into the running turn instead of queueing it; with `=cancel`, cancel the
                  turn if the agent does not accept that

                  Possible values:
                  - steer:  Into the turn
                  - cancel: Into the turn, or after cancelling it

              --yes
                  Allow all permission requests of the agent

              --no
                  Reject all permission requests of the agent

              --json
                  Print one session update per line as JSON, and at the end one object with the result

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor prompt --new 'What is in this directory?'
          parlor prompt now fix the second problem
          git diff | parlor prompt -s latest review this change
          parlor prompt --now 'skip the slow tests'
          parlor prompt -s 'flaky test' --timeout 10m -f log.txt explain this
    "#]]
    .assert_eq(&help("prompt"));
    expect![[r#"
        Write a session to a file or to standard output

        `json` is one object: id, agent, directory and dates of the session, and its transcript in the
        format of `parlor fold`. `jsonl` has one session update of protocol version 2 per line, which
        `parlor fold` reads. `markdown` (`md`) and `html` are for people; the HTML page is self-contained
        and has no scripts.

        The file appears when it is complete. An existing one is replaced only with `--force`.

        Usage: parlor export [OPTIONS] <SESSION>

        Arguments:
          <SESSION>
                  Select the session: its id, a unique prefix of its id or name, or `latest`

        Options:
              --all
                  Let `latest` be the latest session of all directories, not only of this one

              --format <FORMAT>
                  Select the format [default: that of the file's name, else json]

                  [possible values: json, jsonl, markdown, html]

          -o, --output <FILE>
                  Write to this file; `-` stands for standard output

              --force
                  Replace an existing file

              --json
                  Select the format `json`

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor export latest -o session.html
          parlor export latest --format md | less
          parlor export latest | jq -r .agent
    "#]]
    .assert_eq(&help("export"));
    expect![[r#"
        Delete sessions permanently

        Running turns of these sessions are cancelled. An agent that can delete sessions also deletes its
        own session. Forks keep the content that they share with them. `parlor usage` no longer counts what
        deleted sessions used; `parlor archive` keeps everything. Asks for confirmation on a terminal.

        Usage: parlor rm [OPTIONS] <SESSION>...

        Arguments:
          <SESSION>...
                  Select the sessions: ids, unique prefixes of ids or names, or `latest`

        Options:
              --all
                  Let `latest` be the latest session of all directories, not only of this one

          -y, --yes
                  Delete without confirmation

              --json
                  Print the ids of the deleted sessions as a JSON list

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor rm latest
          parlor rm --yes 3f9c 'flaky test'
    "#]]
    .assert_eq(&help("rm"));
    expect![[r#"
        Print the state of the server

        Lists the sessions that run, need a person, or failed, and the running agents. The exit code is 1 if
        no server is running.

        Usage: parlor status [OPTIONS]

        Options:
              --json
                  Print one JSON object

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor status
          parlor status --json | jq .pid
    "#]]
    .assert_eq(&help("status"));
    expect![[r#"
        List, install, update and remove agents

        Without a command: lists the agents of the running server, or else those of the configuration, the
        installed ones and the presets. `*` marks the default. The protocol version that the server speaks
        with an agent and the agent's features are known after it was first started. Whether you are logged
        in is known after an agent has required a login, and after `parlor login`; no agent is started for
        it.

        Usage: parlor agents [OPTIONS]
               parlor agents <COMMAND>

        Commands:
          available  List the agents that can be installed
          install    Install agents into the data directory
          update     Update the agents that `parlor agents install` installed
          remove     Remove agents that `parlor agents install` installed

        Options:
              --json
                  Print a list of objects as JSON

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor agents
          parlor agents --json
          parlor agents available
          parlor agents install claude codex
          parlor agents update
          parlor agents remove codex
    "#]]
    .assert_eq(&help("agents"));
    expect![[r#"
        Check the installation

        Checks the data directory, the database, the sessions in it, the server, the configuration and the
        agents, and starts the agent that a new session would use. No session is changed. The exit code is 1
        if a check fails.

        Usage: parlor doctor [OPTIONS]

        Options:
              --full
                  Read all sessions, not only a sample, and check every index of the database

              --json
                  Print one JSON object

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          parlor doctor
          parlor doctor --full --json
    "#]]
    .assert_eq(&help("doctor"));
}

#[test]
fn the_short_help_has_one_line_per_option() {
    expect![[r#"
        Set or clear the title of a session

        Usage: parlor title [OPTIONS] <SESSION> [TEXT]...

        Arguments:
          <SESSION>  Select the session: its id, a unique prefix of its id or name, or `latest`
          [TEXT]...  Set this title; an empty one clears yours

        Options:
              --data <DIR>     Use this data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG
                               data directory]
              --config <FILE>  Use this configuration file [default: `PARLOR_CONFIG`, else
                               parlor/config.toml in the XDG config directory]
              --all            Let `latest` be the latest session of all directories, not only of this one
              --clear          Clear the title that you set
              --json           Print the id and the resulting title as JSON
              --color <WHEN>   Print colours: auto (on a terminal), always or never
          -h, --help           Print help (see more with '--help')

        Examples:
          parlor title latest 'Fix the flaky test'
          parlor title latest --clear
    "#]]
    .assert_eq(&run("title", "-h"));
    expect![[r#"
        Archive or unarchive sessions

        Usage: parlor archive [OPTIONS] <SESSION>...

        Arguments:
          <SESSION>...  Select the sessions: ids, unique prefixes of ids or names, or `latest` (with
                        `--undo`, the latest archived session)

        Options:
              --data <DIR>     Use this data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG
                               data directory]
              --config <FILE>  Use this configuration file [default: `PARLOR_CONFIG`, else
                               parlor/config.toml in the XDG config directory]
              --all            Let `latest` be the latest session of all directories, not only of this one
              --undo           Unarchive the sessions
              --json           Print the ids of the sessions as a JSON list
              --color <WHEN>   Print colours: auto (on a terminal), always or never
          -h, --help           Print help (see more with '--help')

        Examples:
          parlor archive latest
          parlor archive --undo latest
    "#]]
    .assert_eq(&run("archive", "-h"));
}

/// The commands that `--help` lists.
pub(crate) fn commands() -> Vec<String> {
    let help = Scenario::new(PARLOR).run(&["--help"]).success().stdout;
    let list =
        help.lines().skip_while(|line| !line.starts_with("Usage:")).take_while(|line| *line != "Options:");
    let names = list.filter(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

fn document(path: &str) -> String {
    std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path))
        .unwrap()
}

#[test]
fn the_documentation_has_exactly_the_commands_of_the_help() {
    let mut commands = commands();
    commands.sort_unstable();
    // The headings `## parlor a, b`, and the table of other commands.
    let text = document("docs/commands.md");
    let headings =
        text.lines().filter_map(|line| line.strip_prefix("## parlor ")).flat_map(|names| names.split(", "));
    let table = text.lines().filter(|line| line.starts_with("| `parlor ") || line.starts_with("| [`parlor "));
    let table = table.filter_map(|line| line.split('`').nth(1)?.strip_prefix("parlor "));
    let mut documented: Vec<_> = headings.chain(table).map(str::to_owned).collect();
    documented.sort_unstable();
    assert_eq!(documented, commands);
    let readme = document("README.md");
    let rows: Vec<_> = readme.lines().filter(|line| line.starts_with("| `parlor ")).collect();
    let is_listed = |name: &str| {
        let words = |row: &str| row.split(['`', ' ', ',']).any(|word| word == name);
        rows.iter().any(|row| words(row.split(" | ").next().unwrap()))
    };
    let missing: Vec<_> = commands.iter().filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "README.md does not list {missing:?}");
}

#[test]
fn the_help_lists_the_commands_by_topic() {
    let help = Scenario::new(PARLOR).run(&["--help"]).success().stdout;
    for topic in ["Prompts and requests", "Sessions", "Agents", "Server", "Editors and tools"] {
        assert!(help.contains(&format!("\n\n{topic}:\n  ")), "{help}");
    }
    let (_, options) = help.split_once("\n\nOptions:\n").unwrap();
    assert!(options.contains("--color <WHEN>") && options.contains("\nExamples:\n"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn a_configuration_file_that_does_not_exist_is_an_error() {
    let output = Scenario::new(PARLOR).run(&["ls", "--config", "/does/not/exist"]).exit_code(2);
    assert!(output.stderr.contains("/does/not/exist"), "{output:#?}");
}

#[test]
fn every_help_has_examples() {
    for name in commands() {
        let help = run(&name, "--help");
        let (_, examples) = help.split_once("\nExample").unwrap_or_else(|| panic!("{help}"));
        assert!(examples.contains("parlor "), "{help}");
    }
}

/// What a shell is given for the last of these words, without options.
fn completed(scenario: &Scenario, shell: &str, words: &[&str]) -> String {
    let mut command = scenario.command(&["--", "parlor"]);
    command.args(words).env("PARLOR_COMPLETE", shell);
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let proposed = String::from_utf8(output.stdout).unwrap();
    proposed.lines().filter(|line| !line.starts_with("--")).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn sessions_requests_and_agents_are_completed() {
    let scenario = Scenario::new(PARLOR).with_test_agent();
    assert_eq!(completed(&scenario, "fish", &["show", ""]), "");
    let id = scenario.new_session("title A \u{1b}[31mred one");
    for words in [&["show", ""], &["fork", ""], &["prompt", "-s"]] {
        let mut words = words.to_vec();
        if words[1] == "-s" {
            words.push("");
        }
        let proposed = completed(&scenario, "fish", &words);
        let first = proposed.lines().next().unwrap();
        assert!(first.starts_with(&id[..4]) && first.contains("red one"), "{words:?}: {proposed}");
        assert!(!first.contains('\u{1b}') && proposed.contains("latest"), "{proposed}");
    }
    assert!(completed(&scenario, "bash", &["show", &id[..2]]).starts_with(&id[..4]));
    assert_eq!(completed(&scenario, "fish", &["answer", ""]), "");
    scenario.run(&["prompt", "--no-wait", "ask Delete it"]).success();
    wait_until("the request is open", || scenario.run(&["ls", "--json"]).json()[0]["openRequests"] == 1);
    let proposed = completed(&scenario, "fish", &["answer", ""]);
    assert!(proposed.starts_with('r') && proposed.contains("Delete it"), "{proposed}");
    assert_eq!(completed(&scenario, "fish", &["agents", "remove", ""]), "");
    for words in [["login", ""].as_slice(), &["new", "--agent", ""], &["agents", "install", ""]] {
        let proposed = completed(&scenario, "fish", words);
        assert!(proposed.contains("claude") && proposed.contains("codex"), "{words:?}: {proposed}");
    }
}

#[test]
fn completions_and_manual_pages_have_every_command() {
    let scenario = Scenario::new(PARLOR);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = scenario.run(&["completions", shell]).success().stdout;
        assert!(script.contains("PARLOR_COMPLETE") && script.contains(shell), "{script}");
        let proposed = completed(&scenario, shell, &[""]);
        for name in commands() {
            assert!(proposed.contains(&name), "{shell}: {name}: {proposed}");
        }
    }
    scenario.run(&["completions", "nosuch"]).exit_code(2);
    scenario.run(&["man", "--dir", "pages"]).success();
    let mut pages: Vec<_> = std::fs::read_dir(scenario.work().join("pages"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort_unstable();
    let mut expected: Vec<_> = commands().iter().map(|name| format!("parlor-{name}.1")).collect();
    expected.extend(
        [
            "parlor.1",
            "parlor-agents-available.1",
            "parlor-agents-install.1",
            "parlor-agents-remove.1",
            "parlor-agents-update.1",
            "parlor-service-install.1",
            "parlor-service-uninstall.1",
        ]
        .map(str::to_owned),
    );
    expected.sort_unstable();
    assert_eq!(pages, expected);
    let page = scenario.run(&["man", "stop"]).success().stdout;
    assert!(page.contains(".TH parlor-stop 1") && page.contains("Examples:"), "{page}");
    assert_eq!(page, std::fs::read_to_string(scenario.work().join("pages/parlor-stop.1")).unwrap());
    let output = scenario.run(&["man", "nosuch"]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: unknown command 'nosuch'"), "{output:#?}");
}

#[test]
fn colours_are_printed_as_requested() {
    let scenario = Scenario::new(PARLOR).with_server();
    let has_colour = |output: &str| output.contains('\u{1b}');
    assert!(!has_colour(&scenario.run(&["status"]).success().stdout));
    assert!(has_colour(&scenario.run(&["status", "--color", "always"]).success().stdout));
    assert!(has_colour(&scenario.run(&["--color=always", "status"]).success().stdout));
    let (_, seen) = Terminal::new(&scenario, &["status"]).wait();
    assert!(has_colour(&seen), "{seen:?}");
    let (_, seen) = Terminal::new(&scenario, &["status", "--color", "never"]).wait();
    assert!(!has_colour(&seen), "{seen:?}");
    scenario.run(&["status", "--color", "sometimes"]).exit_code(2);
}

#[test]
fn no_text_for_users_names_a_file_of_the_documentation() {
    fn check(folder: &std::path::Path) {
        for path in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            if path.is_dir() {
                check(&path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap();
            // Module comments and comments of private items are for developers.
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                assert!(!line.contains("docs/"), "{}: {line}", path.display());
            }
        }
    }
    for folder in ["src", "../parlor-server/src"] {
        check(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    }
}
