//! Executes the commands in README.md and docs/*.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parlor_testkit::output::CommandOutput;
use parlor_testkit::process::exit_status;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;

use crate::PARLOR;

/// What the examples of a document find: commands that are executed before the first of them.
const SETUP: &[(&str, &[&str])] = &[
    (
        "docs/commands.md",
        &[
            // The sessions that the examples show.
            "parlor prompt --new --agent demo 'title Mending the tests\nsay the test is flaky because two threads race'",
            "parlor prompt --new --agent demo --no-wait 'title Cleaning up\nask Delete the old notes'",
            "while ! parlor inbox | grep -q Delete; do :; done",
        ],
    ),
    ("docs/fork.md", &["parlor prompt --new --agent demo say hello", "parlor fork latest"]),
];

/// Commands that are executed before an example, because the examples of a document do not follow from each other.
const BEFORE: &[(&str, &str, &str)] = &[
    ("docs/commands.md", "parlor prompt say It works.", "parlor answer r1 --allow"),
    (
        "docs/commands.md",
        "parlor inbox",
        "parlor prompt --new --agent demo --no-wait 'ask Delete the old notes'; while ! parlor inbox | grep -q Delete; do :; done",
    ),
    (
        "docs/commands.md",
        "parlor show latest\n",
        "parlor prompt --new --agent demo 'say The capital of Norway is Bergen.'",
    ),
    ("docs/commands.md", "parlor export latest -o", "rm -f session.html"),
];

/// Examples that are not executed, with the reason. The text is the beginning of the command.
const NOT_EXECUTED: &[(&str, &str, &str)] = &[
    ("README.md", "cargo ", "it builds parlor, as this test did"),
    ("docs/agents.md", "parlor setup", "it needs an agent; tests/commands/setup.rs tests it"),
    ("docs/agents.md", "parlor prompt --new --agent codex", "it needs codex"),
    ("docs/fork.md", "parlor fork latest --agent codex", "it needs codex; tests/commands/fork.rs tests it"),
    ("docs/agents.md", "parlor login codex", "it needs codex; tests/commands/login.rs tests it"),
    (
        "docs/agents.md",
        "parlor agents install",
        "it needs npm and a network; tests/commands/agents.rs tests it",
    ),
    ("docs/bench.md", "", "benchmarks take minutes and need a quiet machine"),
    (
        "docs/commands.md",
        "parlor agents install",
        "it needs npm and a network; tests/commands/agents.rs tests it",
    ),
    ("docs/commands.md", "parlor agents update", "it shows what was installed before"),
    ("docs/commands.md", "parlor agents remove", "it removes what was installed before"),
    ("docs/commands.md", "parlor login codex", "it needs codex; tests/commands/login.rs tests it"),
    ("docs/commands.md", "parlor import --agent codex", "it needs codex; tests/commands/import.rs tests it"),
    ("docs/commands.md", "parlor watch", "it runs until Ctrl-C; tests/commands/watch.rs tests it"),
    (
        "docs/commands.md",
        "parlor service install",
        "it writes a unit of systemd, which this machine may not have",
    ),
    ("docs/commands.md", "parlor man prompt | man", "this machine may not have the program man"),
    (
        "docs/guide.md",
        "",
        "it builds new crates with cargo; tests/examples/docs.rs compiles and runs its code",
    ),
    ("docs/test-agent.md", "", "it builds the test agent with cargo, and the agent waits for input"),
];

/// An example: a command and the output that the document shows.
#[derive(Debug)]
struct Example {
    command: String,
    output: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents, as paths from the root.
fn documents() -> Vec<String> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|file| file.unwrap().file_name());
    let docs = docs.map(|name| format!("docs/{}", name.to_str().unwrap()));
    let mut documents: Vec<_> =
        docs.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md")).collect();
    documents.push("README.md".to_owned());
    documents.sort_unstable();
    documents
}

/// The commands in the blocks of a document: lines that start with `$ `. A command continues while a quote is open or a line ends
/// with a backslash.
fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
        if !matches!(language, "" | "sh" | "console") {
            continue;
        }
        let mut block = block.into_iter().peekable();
        while let Some(line) = block.next() {
            let Some(command) = line.strip_prefix("$ ") else { continue };
            let mut command = command.to_owned();
            while is_open(&command) {
                command.push('\n');
                command += block.next().expect("the end of the command");
            }
            // A file that is typed in, up to the next command.
            let is_typed = command.starts_with("cat >");
            let mut output = String::new();
            while let Some(line) = block.next_if(|line| !line.starts_with("$ ")) {
                output += line;
                output.push('\n');
            }
            if is_typed {
                command = format!("{command} <<'END'\n{output}END");
                output.clear();
            }
            examples.push(Example { command, output });
        }
    }
    examples
}

/// Whether a command continues on the next line.
fn is_open(command: &str) -> bool {
    let mut quote = None;
    for c in command.chars() {
        match quote {
            None if matches!(c, '\'' | '"') => quote = Some(c),
            Some(open) if open == c => quote = None,
            None | Some(_) => {}
        }
    }
    quote.is_some() || command.ends_with('\\')
}

/// A shell in which `parlor` is the program under test.
struct Shell {
    scenario: Scenario,
    servers: Vec<Child>,
}

impl Shell {
    fn new() -> Self {
        let scenario = Scenario::new(PARLOR);
        let bin = scenario.path().join("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(PARLOR, bin.join("parlor")).unwrap();
        // Examples name files of the repository.
        std::os::unix::fs::symlink(
            root().join("testdata").canonicalize().unwrap(),
            scenario.work().join("testdata"),
        )
        .unwrap();
        // The port of a server that a person runs is not used.
        fs::create_dir_all(scenario.path().join("home/.config/parlor")).unwrap();
        fs::write(
            scenario.path().join("home/.config/parlor/config.toml"),
            "default_agent = \"demo\"\n[server]\nlisten = \"127.0.0.1:0\"\n",
        )
        .unwrap();
        Self { scenario, servers: Vec::new() }
    }

    fn command(&self, script: &str) -> Command {
        // The environment of a command of parlor, for a shell.
        let parlor = self.scenario.command(&[]);
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(self.scenario.work());
        for (name, value) in parlor.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let bin = self.scenario.path().join("bin");
        let path = parlor.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path);
        let path = std::env::split_paths(path.unwrap_or_default()).collect::<Vec<_>>();
        command.env("PATH", std::env::join_paths([bin].into_iter().chain(path)).unwrap());
        command
    }

    fn run(&mut self, script: &str) -> CommandOutput {
        if script.split_whitespace().take(2).eq(["parlor", "serve"]) {
            // It runs until Ctrl-C, in another terminal.
            self.scenario.stop_server();
            let mut server = self.command(&format!("exec {script}"));
            let server = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            self.servers.push(server.unwrap());
            wait_until("the server runs", || self.scenario.server_pid().is_some());
            return CommandOutput { stdout: "is ready".to_owned(), stderr: String::new(), code: Some(0) };
        }
        self.command(script).stdin(Stdio::null()).output().unwrap().into()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // It may have been stopped by an example.
            let _ = server.kill();
            exit_status(server);
        }
    }
}

#[test]
fn every_example_of_the_documents_works() {
    let mut excused = BTreeSet::new();
    let mut executed = 0;
    for document in documents() {
        let examples = examples(&fs::read_to_string(root().join(&document)).unwrap());
        let mut shell = Shell::new();
        let setup = SETUP.iter().filter(|(name, _)| *name == document).flat_map(|(_, setup)| *setup);
        let mut setup = setup.peekable();
        if !examples.is_empty() {
            setup.by_ref().for_each(|command| drop(shell.run(command).success()));
        }
        for Example { command, output } in examples {
            let is_excused =
                |(name, start, _): &&(&str, &str, &str)| *name == document && command.starts_with(start);
            if let Some(excuse) = NOT_EXECUTED.iter().find(is_excused) {
                excused.insert(*excuse);
                continue;
            }
            let line = format!("{command}\n");
            for (_, _, before) in
                BEFORE.iter().filter(|(name, start, _)| *name == document && line.starts_with(start))
            {
                shell.run(before);
            }
            let ended = shell.run(&command);
            executed += 1;
            let fails = output.starts_with("parlor: ");
            assert_eq!(ended.code != Some(0), fails, "{document}: {command}: {ended:#?}");
            let printed = format!("{}{}", ended.stdout, ended.stderr);
            assert!(
                output.trim().is_empty() || !printed.trim().is_empty(),
                "{document}: {command} prints nothing"
            );
            if fails {
                assert_eq!(printed.lines().next(), output.lines().next(), "{document}: {command}");
            }
        }
    }
    assert!(executed > 30, "{executed} examples were executed");
    let unused: Vec<_> = NOT_EXECUTED.iter().filter(|excuse| !excused.contains(*excuse)).collect();
    assert!(unused.is_empty(), "no example needs these excuses: {unused:?}");
}

#[test]
fn commands_in_documents_are_found_with_their_continuations_and_outputs() {
    let document = "text\n```\n$ one 'a\nb'\nout\n$ two \\\n  three\n```\n```json\n$ no\n```\n```sh\n$ cat > file\nline\n```\n";
    let found: Vec<_> =
        examples(document).into_iter().map(|example| (example.command, example.output)).collect();
    let pair = |command: &str, output: &str| (command.to_owned(), output.to_owned());
    assert_eq!(
        found,
        [pair("one 'a\nb'", "out\n"), pair("two \\\n  three", ""), pair("cat > file <<'END'\nline\nEND", "")]
    );
}
