//! `parlor agents install`, `update`, `remove` and `available`, with package managers and archives of the tests.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parlor_testkit::output::CommandOutput;
use parlor_testkit::process::{exit_status, is_alive};
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::PARLOR;
use crate::default_agent::{install, path, run};

/// Writes a program into the first directory of `PATH`.
fn program(scenario: &Scenario, name: &str, script: &str) {
    let directory = scenario.path().join("bin");
    fs::create_dir_all(&directory).unwrap();
    write_program(&directory.join(name), script);
}

fn write_program(file: &Path, script: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
}

/// An npm that writes its arguments to `npm.log` and installs a package whose only program is the demo agent. `after` is a script that
/// runs in the directory of the installation; it finds the name of the package in `$name`.
pub(crate) fn fake_npm(scenario: &Scenario, program_name: &str, after: &str) {
    let log = scenario.path().join("npm.log");
    let script = format!(
        r#"echo "$@" >> {log}
        while [ $# -gt 1 ]; do [ "$1" = --prefix ] && prefix=$2; shift; done
        name=${{1%@*}}
        cd "$prefix" && mkdir -p "node_modules/$name" node_modules/.bin
        printf '{{"bin":{{"{program_name}":"run"}}}}' > "node_modules/$name/package.json"
        printf '#!/bin/sh\nexec {PARLOR} demo-agent\n' > "node_modules/$name/run"
        chmod +x "node_modules/$name/run"
        ln -s "../$name/run" node_modules/.bin/{program_name}
        {after}"#,
        log = log.display(),
    );
    program(scenario, "npm", &script);
    program(scenario, "node", "echo v24.1.0");
}

fn npm_log(scenario: &Scenario) -> String {
    fs::read_to_string(scenario.path().join("npm.log")).unwrap_or_default()
}

/// The directory of the installed agents.
fn agents_dir(scenario: &Scenario) -> PathBuf {
    scenario.data().join("agents")
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The agent with this name in the list.
fn listed(scenario: &Scenario, name: &str) -> Option<Value> {
    let agents = run(scenario, &["agents", "--json"]).success().json();
    let mut found = agents.as_array().unwrap().iter().filter(|agent| agent["name"] == name);
    let agent = found.next().cloned();
    assert!(found.next().is_none(), "{name} is there once");
    agent
}

/// Writes a registry with one agent `mine` of this version, and returns its path.
fn registry(scenario: &Scenario, version: &str, distribution: &Value) -> String {
    let file = scenario.path().join("registry.json");
    let agent = json!({ "id": "mine", "name": "Mine", "version": version, "description": "A test", "distribution": distribution });
    fs::write(&file, json!({ "version": "1.0.0", "agents": [agent] }).to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

fn npx(version: &str) -> Value {
    json!({ "npx": { "package": format!("mine@{version}"), "env": { "FROM_REGISTRY": "1" } } })
}

#[test]
fn an_installed_agent_is_used_rather_than_the_one_in_path_and_a_configured_command_is_stronger() {
    let mut scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "claude-agent-acp", "");
    program(&scenario, "claude-agent-acp", "exit 1");
    assert_eq!(listed(&scenario, "claude").unwrap()["source"], "preset");
    let output = run(&scenario, &["agents", "install", "claude"]).success();
    assert!(output.stdout.starts_with("installed claude 0.99.1 ("), "{output:#?}");
    assert_eq!(output.stderr, "claude is the default agent\n");
    let log = npm_log(&scenario);
    assert!(log.contains("--ignore-scripts"), "{log}");
    assert!(log.ends_with(" -- @agentclientprotocol/claude-agent-acp@0.99.1\n"), "{log}");
    assert_eq!(names(&agents_dir(&scenario)), ["claude", "lock"]);
    assert_eq!(names(&agents_dir(&scenario).join("claude")), ["0.99.1", "agent.json"]);

    let agent = listed(&scenario, "claude").unwrap();
    let program = agents_dir(&scenario).join("claude/0.99.1/node_modules/.bin/claude-agent-acp");
    assert_eq!((&agent["source"], &agent["version"]), (&json!("installed"), &json!("0.99.1")));
    assert_eq!(agent["path"], json!(program.to_str()));
    let table = run(&scenario, &["agents"]).success().stdout;
    assert!(table.contains("0.99.1 by parlor"), "{table}");
    let output = run(&scenario, &["prompt", "--new", "--agent", "claude", "say hello"]).success();
    assert_eq!(output.stdout, "hello\n");
    scenario.stop();

    let output = run(&scenario, &["agents", "install", "claude"]).success();
    assert_eq!(output.stdout, "claude 0.99.1 is installed already\n");
    assert_eq!(npm_log(&scenario), log, "npm was not run");
    let config = scenario.path().join("config.toml");
    fs::write(&config, "[agents.claude]\nenv = { A = '1' }\n").unwrap();
    let agents = run(&scenario, &["agents", "--json", "--config", config.to_str().unwrap()]).success().json();
    assert_eq!((&agents[0]["source"], &agents[0]["version"]), (&json!("config"), &json!("0.99.1")));
    fs::write(&config, "[agents.claude]\ncommand = 'other'\n").unwrap();
    let agents = run(&scenario, &["agents", "--json", "--config", config.to_str().unwrap()]).success().json();
    assert_eq!((&agents[0]["source"], &agents[0]["command"]), (&json!("config"), &json!(["other"])));
}

#[test]
fn ids_of_the_registry_are_other_names_of_the_presets() {
    let mut scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "claude-agent-acp", "");
    let output = run(&scenario, &["agents", "install", "claude-acp", "claude", "--json"]).success().json();
    let outcomes: Vec<_> =
        output.as_array().unwrap().iter().map(|one| (&one["name"], &one["status"])).collect();
    assert_eq!(outcomes, [(&json!("claude"), &json!("installed"))]);
    assert_eq!(listed(&scenario, "claude-acp"), None);
    let output = run(&scenario, &["prompt", "--new", "--agent", "claude-acp", "say hello"]).success();
    assert_eq!(output.stdout, "hello\n");
    for args in [&["ls", "--json"][..], &["ls", "--json", "--agent", "claude-acp"]] {
        let sessions = run(&scenario, args).success().json();
        assert_eq!(sessions[0]["agent"], "claude", "{args:?}");
    }
    let log = run(&scenario, &["logs", "--agent", "claude-acp"]).success().stdout;
    assert!(log.contains("agent started agent=\"claude\""), "{log}");
    let found = run(&scenario, &["search", "--json", "--agent", "claude-acp", "hello"]).success().stdout;
    assert!(found.contains("hello"), "{found}");
    scenario.stop();
    let config = scenario.path().join("config.toml");
    fs::write(&config, "default_agent = 'claude-acp'\n").unwrap();
    let config = config.to_str().unwrap();
    let agents = run(&scenario, &["agents", "--json", "--config", config]).success().json();
    assert_eq!((&agents[0]["name"], &agents[0]["default"]), (&json!("claude"), &json!(true)));
    let output =
        run(&scenario, &["setup", "--yes", "--agent", "claude-code-acp", "--config", config]).success();
    assert!(output.stdout.contains("wrote default_agent = \"claude\""), "{output:#?}");
    run(&scenario, &["agents", "remove", "claude-acp"]).success();
    assert_eq!(listed(&scenario, "claude").unwrap()["version"], json!(null));
}

#[test]
fn an_agent_that_cannot_be_installed_leaves_nothing_behind() {
    let scenario = Scenario::new(PARLOR);
    let unknown = run(&scenario, &["agents", "install", "claude", "nobody"]).exit_code(2);
    assert!(
        unknown.stderr.starts_with("parlor: parlor does not know how to install an agent 'nobody'\n"),
        "{unknown:#?}"
    );
    let goose = run(&scenario, &["agents", "install", "goose"]).exit_code(2);
    assert!(goose.stderr.contains("hint: run: brew install block-goose-cli"), "{goose:#?}");
    assert!(!agents_dir(&scenario).exists());

    let without_npm = |args: &[&str]| -> CommandOutput {
        scenario.command(args).env("PATH", scenario.path().join("nothing")).output().unwrap().into()
    };
    let missing = without_npm(&["agents", "install", "claude"]).exit_code(1);
    assert_eq!(
        missing.stderr,
        "parlor: cannot install claude: npm is not in PATH\n  hint: install Node.js 22 or newer, which has npm, and try again\n"
    );
    let missing = without_npm(&["agents", "install", "hermes-agent"]).exit_code(1);
    assert!(
        missing.stderr.contains("neither uv nor python3 is in PATH\n  hint: install uv or Python 3"),
        "{missing:#?}"
    );
    assert_eq!(names(&agents_dir(&scenario)), ["lock"]);

    for (npm, expected) in [
        (
            "echo npm error code ENOTFOUND; exit 1",
            "npm cannot reach the package server\n  hint: check the network; installed agents work without it\n",
        ),
        ("echo npm error code ENOSPC; exit 1", "npm failed: no space left on the disk\n"),
        (
            "echo npm error code EX >&2; echo npm error why >&2; exit 3",
            "npm failed (exit status: 3)\n  code EX\n  why\n",
        ),
        ("exit 0", "npm did not install the package @agentclientprotocol/claude-agent-acp\n"),
    ] {
        program(&scenario, "npm", npm);
        program(&scenario, "node", "echo v24.1.0");
        let output = run(&scenario, &["agents", "install", "claude"]).exit_code(1);
        assert_eq!(output.stderr, format!("parlor: cannot install claude: {expected}"));
        assert_eq!(names(&agents_dir(&scenario)), ["lock"], "{npm}");
    }
    fake_npm(
        &scenario,
        "kimi",
        r#"printf '{"bin":{"kimi":"run"},"engines":{"node":">=24.2.0"}}' > "node_modules/$name/package.json""#,
    );
    let output = run(&scenario, &["agents", "install", "kimi"]).exit_code(1);
    assert!(output.stderr.contains("needs node >=24.2.0, and node 24.1.0 is in PATH\n"), "{output:#?}");
    assert_eq!(names(&agents_dir(&scenario)), ["lock"]);
}

#[test]
fn an_agent_that_fails_does_not_keep_the_others_from_being_installed() {
    let scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "codex-acp", "case $name in *claude*) echo npm error code E404; exit 1;; esac");
    let output = run(&scenario, &["agents", "install", "claude", "codex", "--json"]).exit_code(1);
    let outcomes = output.json();
    assert_eq!((&outcomes[0]["status"], &outcomes[1]["status"]), (&json!("failed"), &json!("installed")));
    assert!(outcomes[0]["error"].as_str().unwrap().contains("does not find the package"), "{outcomes}");
    assert_eq!(listed(&scenario, "codex").unwrap()["version"], "2.6.0");
}

#[test]
fn a_package_that_needs_its_install_script_is_started_by_the_program_of_its_platform_package() {
    let scenario = Scenario::new(PARLOR);
    // The first variant does not run on this machine.
    let after = format!(
        r#"printf '{{"bin":{{"opencode":"run"}},"scripts":{{"postinstall":"x"}},"optionalDependencies":{{"oc-x64":"1","oc-x64-baseline":"1","oc-arm":"1"}}}}' > "node_modules/$name/package.json"
        printf '#!/bin/sh\nexit 1\n' > "node_modules/$name/run"
        mkdir -p node_modules/oc-x64/bin node_modules/oc-x64-baseline/bin
        for variant in oc-x64 oc-x64-baseline; do printf '{{"os":["linux"]}}' > node_modules/$variant/package.json; done
        printf '#!/bin/sh\nexit 132\n' > node_modules/oc-x64/bin/opencode
        printf '#!/bin/sh\n[ "$1" = --version ] || exec {PARLOR} demo-agent\n' > node_modules/oc-x64-baseline/bin/opencode
        chmod +x node_modules/*/bin/opencode"#
    );
    fake_npm(&scenario, "opencode", &after);
    run(&scenario, &["agents", "install", "opencode"]).success();
    let command = &listed(&scenario, "opencode").unwrap()["command"];
    let program = command[0].as_str().unwrap();
    assert!(program.ends_with("/node_modules/oc-x64-baseline/bin/opencode"), "{program}");
    assert_eq!(command[1], "acp");
}

/// What replaces the program of a package by one that does not start.
const BROKEN: &str = r#"printf '#!/bin/sh\necho it reads the settings >&2; echo it is broken >&2; exit 1\n' > "node_modules/$name/run""#;

#[test]
fn an_agent_that_does_not_start_is_not_installed() {
    let mut scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "codex-acp", BROKEN);
    let install = ["agents", "install", "codex"];
    let output = run(&scenario, &install).exit_code(1);
    assert_eq!(output.stdout, "");
    assert!(
        output.stderr.starts_with(
            "parlor: codex 2.6.0 does not start and was not installed: agent 'codex' ended before it answered initialize"
        ),
        "{output:#?}"
    );
    assert!(output.stderr.contains("\n    it reads the settings\n    it is broken\n  hint: "), "{output:#?}");
    assert!(output.stderr.ends_with("--no-test installs it without starting it\n"), "{output:#?}");
    assert_eq!(names(&agents_dir(&scenario)), ["lock"]);
    let failed = run(&scenario, &[&install[..], &["--json"]].concat()).exit_code(1).json();
    assert_eq!(failed[0]["status"], "failed");
    let prompt = run(&scenario, &["prompt", "--new", "say hello"]).success();
    assert!(prompt.stderr.contains("using the demo agent"), "{prompt:#?}");
    scenario.stop();

    let output = run(&scenario, &[&install[..], &["--no-test"]].concat()).success();
    assert!(output.stdout.starts_with("installed codex 2.6.0 ("), "{output:#?}");
    assert_eq!(listed(&scenario, "codex").unwrap()["version"], "2.6.0");
}

#[test]
fn a_version_that_does_not_start_leaves_the_earlier_one_in_place() {
    let mut scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "mine", "");
    let file = registry(&scenario, "1.0.0", &npx("1.0.0"));
    run(&scenario, &["agents", "install", "mine", "--registry", &file]).success();
    fake_npm(&scenario, "mine", BROKEN);
    // The same version again, and a newer one.
    let output = run(&scenario, &["agents", "install", "mine", "--force", "--registry", &file]).exit_code(1);
    assert!(output.stderr.ends_with("hint: version 1.0.0 stays installed\n"), "{output:#?}");
    let file = registry(&scenario, "2.0.0", &npx("2.0.0"));
    let output = run(&scenario, &["agents", "update", "--registry", &file]).exit_code(1);
    assert!(
        output.stderr.starts_with("parlor: mine 2.0.0 does not start and was not installed: "),
        "{output:#?}"
    );
    assert_eq!(names(&agents_dir(&scenario).join("mine")), ["1.0.0", "agent.json"]);
    let output = run(&scenario, &["prompt", "--new", "--agent", "mine", "say hello"]).success();
    assert_eq!(output.stdout, "hello\n");
    scenario.stop();
}

#[test]
fn an_agent_is_tested_with_its_settings() {
    let scenario = Scenario::new(PARLOR);
    let needs_key = format!(
        r#"printf '#!/bin/sh\n[ "$KEY" = 1 ] && exec {PARLOR} demo-agent\n' > "node_modules/$name/run""#
    );
    fake_npm(&scenario, "codex-acp", &needs_key);
    run(&scenario, &["agents", "install", "codex"]).exit_code(1);
    let config = scenario.path().join("config.toml");
    fs::write(&config, "[agents.codex]\nenv = { KEY = '1' }\n").unwrap();
    run(&scenario, &["agents", "install", "codex", "--config", config.to_str().unwrap()]).success();
}

#[test]
fn installing_and_removing_agents_says_which_one_is_the_default() {
    let scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "claude-agent-acp", "");
    assert_eq!(
        run(&scenario, &["agents", "install", "claude"]).success().stderr,
        "claude is the default agent\n"
    );
    fake_npm(&scenario, "codex-acp", "");
    let output = run(&scenario, &["agents", "install", "codex"]).success();
    assert_eq!(
        output.stderr,
        "several agents are installed and none is the default: claude, codex\n  hint: `parlor setup --agent claude --yes` makes claude the default\n"
    );
    run(&scenario, &["setup", "--agent", "codex", "--yes"]).success();
    let output = run(&scenario, &["agents", "remove", "claude"]).success();
    assert_eq!(output.stderr, "codex is the default agent\n");
    fake_npm(&scenario, "claude-agent-acp", "");
    run(&scenario, &["agents", "install", "claude"]).success();
    let output = run(&scenario, &["agents", "remove", "codex"]).success();
    assert_eq!(
        output.stderr,
        "default_agent in ~/.config/parlor/config.toml is codex, which is not installed\n  hint: `parlor setup --agent claude --yes` makes claude the default\n"
    );
    // Not a preset: the name is not known any more.
    fake_npm(&scenario, "mine", "");
    let file = registry(&scenario, "1.0.0", &npx("1.0.0"));
    fs::write(scenario.path().join("home/.config/parlor/config.toml"), "default_agent = 'claude'\n").unwrap();
    let output = run(&scenario, &["agents", "install", "mine", "--registry", &file]).success();
    assert_eq!(output.stderr, "claude is the default agent\n");
    run(&scenario, &["setup", "--agent", "mine", "--yes"]).success();
    let output = run(&scenario, &["agents", "remove", "mine"]).success();
    assert!(output.stderr.contains("config.toml is mine, which is not installed\n  hint: "), "{output:#?}");
}

/// The script of a program that makes a virtual environment whose scripts run the demo agent, with the interpreter of the
/// environment: a script is started as `python SCRIPT`.
fn make_venv(target: &str) -> String {
    format!(
        r#"mkdir -p "{target}/bin"
        printf '#!/bin/sh\ncase "$1" in -m) exec true;; *) exec /bin/sh "$@";; esac\n' > "{target}/bin/python"
        printf '#!/moved/python\nexec {PARLOR} demo-agent\n' > "{target}/bin/mine"
        chmod +x "{target}/bin/"*"#
    )
}

#[test]
fn a_python_package_is_installed_with_uv_or_else_with_pip() {
    let uvx = json!({ "uvx": { "package": "mine[acp]@1.0.0", "args": ["--acp"] } });
    for has_uv in [true, false] {
        let scenario = Scenario::new(PARLOR);
        let log = scenario.path().join("python.log");
        let record = format!("echo \"$@\" >> {}\n", log.display());
        if has_uv {
            program(&scenario, "uv", &(record.clone() + "[ $1 = venv ] || exit 0\n" + &make_venv("$3")));
        }
        program(&scenario, "python3", &(record + &make_venv("$3")));
        let file = registry(&scenario, "1.0.0", &uvx);
        // This machine may have another uv: only the programs of the test are in PATH, and those that its scripts need.
        let bin = scenario.path().join("bin");
        for tool in ["mkdir", "chmod", "true"] {
            let found = ["/bin", "/usr/bin"]
                .map(|directory| Path::new(directory).join(tool))
                .into_iter()
                .find(|file| file.exists());
            std::os::unix::fs::symlink(found.unwrap(), bin.join(tool)).unwrap();
        }
        let output =
            scenario.command(&["agents", "install", "mine", "--registry", &file]).env("PATH", bin).output();
        let output = CommandOutput::from(output.unwrap()).success();
        assert!(output.stdout.starts_with("installed mine 1.0.0 ("), "{output:#?}");
        let log = fs::read_to_string(log).unwrap();
        if has_uv {
            assert!(log.starts_with("venv --quiet ") && log.ends_with(" -- mine[acp]==1.0.0\n"), "{log}");
        } else {
            assert!(log.starts_with("-m venv "), "{log}");
        }
        let agent = listed(&scenario, "mine").unwrap();
        let bin = agents_dir(&scenario).join("mine/1.0.0/venv/bin");
        assert_eq!(
            agent["command"],
            json!([bin.join("python").to_str(), bin.join("mine").to_str(), "--acp"])
        );
    }
}

/// Serves responses by path until the test ends.
fn serve(responses: BTreeMap<&'static str, Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                request.extend_from_slice(&byte);
            }
            let text = String::from_utf8_lossy(&request);
            let path = text.split(' ').nth(1).unwrap_or_default();
            let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
            let _ = stream.write_all(responses.get(path).unwrap_or(&missing));
        }
    });
    address
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn script() -> String {
    format!("#!/bin/sh\nexec {PARLOR} demo-agent\n")
}

/// A tar archive with an agent, and another entry with this path and kind.
fn tgz(path: &str, kind: tar::EntryType) -> Vec<u8> {
    let mut builder =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let script = script();
    for (path, kind, content) in
        [("mine-1.0/bin/agent", tar::EntryType::Regular, script.as_bytes()), (path, kind, b"")]
    {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        if kind.is_symlink() {
            header.set_link_name("/etc").unwrap();
        }
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn zip() -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file("bin/agent", zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(script().as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}

/// The distribution of an archive for every platform that the tests run on.
fn binary(archive: &str, sha256: Option<&str>) -> Value {
    let mut target = json!({ "archive": archive, "cmd": "./bin/agent", "args": ["serve"] });
    if let Some(sha256) = sha256 {
        target["sha256"] = sha256.into();
    }
    let platforms = ["linux-x86_64", "linux-aarch64", "darwin-aarch64", "darwin-x86_64"];
    json!({ "binary": platforms.map(|platform| (platform, target.clone())).into_iter().collect::<BTreeMap<_, _>>() })
}

#[test]
fn an_archive_is_downloaded_verified_and_unpacked() {
    let (tgz, zip, program) = (tgz("mine-1.0/lib", tar::EntryType::Directory), zip(), script());
    let redirect = b"HTTP/1.1 302 Found\r\nLocation: /a.tgz\r\nContent-Length: 0\r\n\r\n".to_vec();
    let address = serve(BTreeMap::from([
        ("/a.tgz", ok(&tgz)),
        ("/moved.tar.gz", redirect),
        ("/a.zip", ok(&zip)),
        ("/agent", ok(program.as_bytes())),
    ]));
    for (path, bytes, program) in [
        ("/a.tgz", &tgz[..], "mine-1.0/bin/agent"),
        ("/moved.tar.gz", &tgz, "mine-1.0/bin/agent"),
        ("/a.zip", &zip, "bin/agent"),
        ("/agent", program.as_bytes(), "bin/agent"),
    ] {
        let mut scenario = Scenario::new(PARLOR);
        let file = registry(&scenario, "1.0.0", &binary(&format!("{address}{path}"), Some(&sha256(bytes))));
        let config = scenario.path().join("home/.config/parlor/config.toml");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(config, format!("agent_registry = {file:?}\n")).unwrap();
        run(&scenario, &["agents", "install", "mine"]).success();
        let agent = listed(&scenario, "mine").unwrap();
        let program = agents_dir(&scenario).join("mine/1.0.0").join(program);
        assert_eq!(agent["command"], json!([program.to_str(), "serve"]), "{path}");
        assert_eq!(names(&agents_dir(&scenario).join("mine")), ["1.0.0", "agent.json"], "{path}");
        let output = run(&scenario, &["prompt", "--new", "--agent", "mine", "say hello"]).success();
        assert_eq!(output.stdout, "hello\n");
        scenario.stop();
    }
}

#[test]
fn an_archive_that_is_not_what_the_registry_says_or_leads_outside_is_not_installed() {
    use tar::EntryType::{Directory, Regular, Symlink};
    let good = tgz("lib", Directory);
    let (outside, absolute, link) =
        (tgz("../../evil", Regular), tgz("/tmp/evil", Regular), tgz("link", Symlink));
    let too_large = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nbegin".to_vec();
    let short = ok(&good);
    let address = serve(BTreeMap::from([
        ("/good.tgz", ok(&good)),
        ("/outside.tgz", ok(&outside)),
        ("/absolute.tgz", ok(&absolute)),
        ("/link.tgz", ok(&link)),
        ("/large.tgz", too_large),
        ("/short.tgz", short[..short.len() - 9].to_vec()),
        ("/damaged.tgz", ok(&good[..good.len() - 9])),
        ("/loop.tgz", b"HTTP/1.1 302 Found\r\nLocation: /loop.tgz\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("/nowhere.tgz", b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
    ]));
    let scenario = Scenario::new(PARLOR);
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    for (server, path, hashed, expected) in [
        (
            &address,
            "/good.tgz",
            &b"other"[..],
            "does not have the checksum of the registry\n  expected sha256 ",
        ),
        (&address, "/outside.tgz", &outside, "has a file outside its directory, '../../evil'\n"),
        (&address, "/absolute.tgz", &absolute, "has a file outside its directory, '/tmp/evil'\n"),
        (&address, "/link.tgz", &link, "has a link or a special file, 'link'"),
        (&address, "/large.tgz", &good, "it is larger than 2.1 GB\n"),
        (&address, "/short.tgz", &good, "cannot download"),
        (&address, "/damaged.tgz", &good[..good.len() - 9], "is damaged: "),
        (&address, "/missing.tgz", &good, "the server answered 404 Not Found\n"),
        (&address, "/loop.tgz", &good, "the server redirected more than 5 times\n"),
        (&address, "/nowhere.tgz", &good, "/nowhere.tgz redirects to an invalid address\n"),
        (&closed, "/good.tgz", &good, "hint: check the network; installed agents work without it\n"),
    ] {
        let file = registry(&scenario, "1.0.0", &binary(&format!("{server}{path}"), Some(&sha256(hashed))));
        let output = run(&scenario, &["agents", "install", "mine", "--registry", &file]).exit_code(1);
        assert!(output.stderr.starts_with("parlor: cannot install mine: "), "{path}: {output:#?}");
        assert!(output.stderr.contains(expected), "{path}: {output:#?}");
        assert_eq!(names(&agents_dir(&scenario)), ["lock"], "{path}");
    }
    let file = registry(&scenario, "1.0.0", &binary(&format!("{address}/good.tgz"), None));
    let output = run(&scenario, &["agents", "install", "mine", "--registry", &file]).exit_code(1);
    assert!(output.stderr.contains("no sha256"), "{output:#?}");
}

#[test]
fn an_agent_is_updated_to_a_newer_version_and_never_to_an_older_one() {
    let scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "mine", "");
    let none = run(&scenario, &["agents", "update"]).success();
    assert_eq!(none.stdout, "no agent is installed by parlor\n");
    let missing = run(&scenario, &["agents", "update", "claude"]).exit_code(2);
    assert!(missing.stderr.ends_with("hint: run: parlor agents install claude\n"), "{missing:#?}");

    let file = registry(&scenario, "1.9.0", &npx("1.9.0"));
    run(&scenario, &["agents", "install", "mine", "--registry", &file]).success();
    let config = scenario.path().join("home/.config/parlor/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, format!("agent_registry = {file:?}\n")).unwrap();
    registry(&scenario, "1.10.0", &npx("1.10.0"));
    let agent = listed(&scenario, "mine").unwrap();
    assert_eq!((&agent["version"], &agent["update"]), (&json!("1.9.0"), &json!("1.10.0")));
    let doctor = run(&scenario, &["doctor"]).stdout;
    assert!(doctor.contains("mine 1.9.0: version 1.10.0 is available"), "{doctor}");
    let available = run(&scenario, &["agents", "available", "--json"]).success().json();
    assert_eq!((&available[0]["name"], &available[0]["installed"]), (&json!("mine"), &json!("1.9.0")));

    let output = run(&scenario, &["agents", "update"]).success();
    assert!(output.stdout.starts_with("updated mine from 1.9.0 to 1.10.0 ("), "{output:#?}");
    assert_eq!(names(&agents_dir(&scenario).join("mine")), ["1.10.0", "agent.json"]);
    registry(&scenario, "1.2.0", &npx("1.2.0"));
    let output = run(&scenario, &["agents", "update", "mine"]).success();
    assert_eq!(output.stdout, "mine 1.10.0 is installed already\n");
    assert_eq!(listed(&scenario, "mine").unwrap()["update"], json!(null));
}

/// The processes of agents that the server runs.
fn agent_processes(scenario: &Scenario) -> Vec<u32> {
    let status = run(scenario, &["status", "--json"]).success().json();
    let agents = status["agents"].as_array().unwrap().iter();
    agents.map(|agent| agent["pid"].as_u64().unwrap().try_into().unwrap()).collect()
}

#[test]
fn a_running_server_uses_what_is_installed_and_stops_what_is_removed() {
    let mut scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "mine", "");
    scenario.serve(&[]);
    assert_eq!(listed(&scenario, "mine"), None);
    let file = registry(&scenario, "1.0.0", &npx("1.0.0"));
    let install = ["agents", "install", "mine", "--registry", &file];
    run(&scenario, &install).success();
    assert_eq!(listed(&scenario, "mine").unwrap()["source"], "installed");
    let output = run(&scenario, &["prompt", "--new", "--agent", "mine", "say hello"]).success();
    assert_eq!(output.stdout, "hello\n");

    // The old version is kept for the process that runs from it.
    let file = registry(&scenario, "2.0.0", &npx("2.0.0"));
    run(&scenario, &["agents", "update", "--registry", &file]).success();
    assert_eq!(names(&agents_dir(&scenario).join("mine")), ["1.0.0", "2.0.0", "agent.json"]);
    let output = run(&scenario, &["prompt", "-s", "latest", "say again"]).success();
    assert_eq!(output.stdout, "again\n");
    // All sessions are idle: the processes of both versions are stopped.
    let processes = agent_processes(&scenario);
    assert_eq!(processes.len(), 2);
    let install = ["agents", "install", "mine", "--registry", &file];
    run(&scenario, &[&install[..], &["--force"]].concat()).success();
    assert!(processes.into_iter().all(|process| !is_alive(process)));
    run(&scenario, &["prompt", "-s", "latest", "say hello"]).success();
    let processes = agent_processes(&scenario);
    assert_eq!(processes.len(), 1);
    let output = run(&scenario, &["agents", "remove", "mine"]).success();
    assert_eq!(output.stdout, "removed mine 2.0.0\n");
    assert_eq!((is_alive(processes[0]), agent_processes(&scenario)), (false, Vec::new()));
    assert_eq!(names(&agents_dir(&scenario)), ["lock"]);
    assert_eq!(listed(&scenario, "mine"), None);
    assert_eq!(run(&scenario, &["ls", "--json"]).success().json()[0]["state"], "idle");
    let output = run(&scenario, &["agents", "remove", "mine"]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: agent 'mine' is not installed by parlor\n"), "{output:#?}");
    scenario.stop();
}

#[test]
fn an_agent_whose_turn_is_running_is_removed_only_by_force() {
    let mut scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "mine", "");
    scenario.serve(&[]);
    let file = registry(&scenario, "1.0.0", &npx("1.0.0"));
    let install = ["agents", "install", "mine", "--registry", &file];
    run(&scenario, &install).success();
    run(&scenario, &["prompt", "--new", "--agent", "mine", "--no-wait", "ask Wait here"]).success();
    let output = run(&scenario, &["agents", "remove", "mine"]).exit_code(1);
    assert_eq!(
        output.stderr,
        "parlor: agent 'mine' is running a turn\n  hint: `parlor status` shows it; --force removes the agent anyway, and the turn fails\n"
    );
    let output = run(&scenario, &[&install[..], &["--force"]].concat()).exit_code(1);
    assert!(output.stderr.starts_with("parlor: agent 'mine' is running a turn\n  hint: "), "{output:#?}");
    let processes = agent_processes(&scenario);
    assert_eq!(processes.len(), 1);
    run(&scenario, &["agents", "remove", "mine", "--force"]).success();
    assert!(!is_alive(processes[0]));
    wait_until("the turn has failed", || {
        run(&scenario, &["ls", "--json"]).success().json()[0]["state"] == "failed"
    });
    scenario.stop();
}

#[test]
fn a_program_that_an_agent_with_another_name_runs_is_not_removed() {
    let mut scenario = Scenario::new(PARLOR);
    fake_npm(&scenario, "mine", "");
    let file = registry(&scenario, "1.0.0", &npx("1.0.0"));
    run(&scenario, &["agents", "install", "mine", "--registry", &file]).success();
    let command = listed(&scenario, "mine").unwrap()["command"].clone();
    let command: Vec<_> = command.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    scenario.serve(&["--agent", &format!("work={}", command.join(" "))]);
    run(&scenario, &["prompt", "--new", "--agent", "work", "say hello"]).success();
    let output = run(&scenario, &["agents", "remove", "mine"]).exit_code(1);
    assert!(
        output.stderr.starts_with("parlor: the program of agent 'mine' is still running\n  hint: "),
        "{output:#?}"
    );
    assert!(agents_dir(&scenario).join("mine").exists());
    run(&scenario, &["agents", "remove", "mine", "--force"]).success();
    scenario.stop();
}

/// Starts a command with the programs of the test.
fn start(scenario: &Scenario, args: &[&str]) -> std::process::Child {
    let mut command: Command = scenario.command(args);
    command.env("PATH", path(scenario)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn two_installations_of_an_agent_at_once_wait_for_each_other() {
    let scenario = Scenario::new(PARLOR);
    let (started, go) = (scenario.path().join("started"), scenario.path().join("go"));
    let wait = format!("echo $$ > {}; while [ ! -e {} ]; do :; done", started.display(), go.display());
    fake_npm(&scenario, "codex-acp", &wait);
    let first = start(&scenario, &["agents", "install", "codex"]);
    wait_until("npm runs", || started.exists());
    let mut second = start(&scenario, &["agents", "install", "codex"]);
    let mut message = [0; 44];
    second.stderr.as_mut().unwrap().read_exact(&mut message).unwrap();
    assert_eq!(message, *b"waiting for another `parlor agents` command\n");
    fs::write(go, "").unwrap();
    let first = CommandOutput::from(first.wait_with_output().unwrap()).success();
    assert!(first.stdout.starts_with("installed codex "), "{first:#?}");
    let second = CommandOutput::from(second.wait_with_output().unwrap()).success();
    assert_eq!(second.stdout, "codex 2.6.0 is installed already\n");
}

#[test]
fn a_killed_or_interrupted_installation_leaves_nothing_that_counts_and_the_next_one_cleans_up() {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::INT] {
        let scenario = Scenario::new(PARLOR);
        let started = scenario.path().join("started");
        fake_npm(
            &scenario,
            "codex-acp",
            &format!("echo $$ > {0}.new; mv {0}.new {0}; sleep 600", started.display()),
        );
        let mut install = start(&scenario, &["agents", "install", "codex"]);
        wait_until("npm runs", || started.exists());
        let npm: u32 = fs::read_to_string(&started).unwrap().trim().parse().unwrap();
        parlor_testkit::process::send_signal(install.id(), signal);
        let status = exit_status(&mut install);
        wait_until("npm has ended", || !is_alive(npm));
        assert_eq!(listed(&scenario, "codex").unwrap()["version"], json!(null));
        if signal == rustix::process::Signal::INT {
            assert_eq!(status.code(), Some(130));
            assert_eq!(names(&agents_dir(&scenario)), ["lock"]);
        } else {
            assert_eq!(names(&agents_dir(&scenario).join("codex")).len(), 1, "a temporary directory");
            let doctor = run(&scenario, &["doctor"]).stdout;
            assert!(doctor.contains("codex: the installation is not complete"), "{doctor}");
        }
        fake_npm(&scenario, "claude-agent-acp", "");
        run(&scenario, &["agents", "install", "claude"]).success();
        assert_eq!(names(&agents_dir(&scenario)), ["claude", "lock"]);
        fake_npm(&scenario, "codex-acp", "");
        run(&scenario, &["agents", "install", "codex"]).success();
        assert_eq!(names(&agents_dir(&scenario).join("codex")), ["2.6.0", "agent.json"]);
    }
}

#[test]
fn a_registry_that_cannot_be_used_is_rejected_with_its_name() {
    let scenario = Scenario::new(PARLOR);
    let file = scenario.path().join("registry.json");
    for (text, expected) in [
        ("{", "EOF while parsing"),
        (r#"{ "agents": [{ "id": "a" }] }"#, "missing field `name`"),
        (
            r#"{ "agents": [{ "id": "../a", "name": "A", "version": "1", "description": "", "distribution": {} }] }"#,
            "invalid id '../a'",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let output =
            run(&scenario, &["agents", "available", "--registry", file.to_str().unwrap()]).exit_code(2);
        assert!(output.stderr.starts_with("parlor: cannot read the registry /"), "{output:#?}");
        assert!(output.stderr.contains(expected), "{output:#?}");
    }
    run(&scenario, &["agents", "available", "--registry", "/nowhere.json"]).exit_code(2);
    for package in ["--global", "https://x.example/a.tgz", "../a"] {
        let file = registry(&scenario, "1.0.0", &json!({ "npx": { "package": package } }));
        let output = run(&scenario, &["agents", "install", "mine", "--registry", &file]).exit_code(2);
        assert!(output.stderr.contains("is not an npm package with a pinned version"), "{output:#?}");
    }
}

#[test]
fn the_error_for_an_agent_that_is_not_installed_names_the_command_that_installs_it() {
    let mut scenario = Scenario::new(PARLOR);
    let output = run(&scenario, &["prompt", "--new", "--agent", "claude", "hello"]).exit_code(4);
    assert!(output.stderr.contains("`parlor agents install claude` installs it"), "{output:#?}");
    scenario.stop();
    install(&scenario, "goose");
    let output = run(&scenario, &["setup"]).success();
    assert!(
        output.stdout.contains("claude    not installed   parlor agents install claude\n"),
        "{output:#?}"
    );
}
