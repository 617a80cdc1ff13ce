//! The agents and settings of `config.toml`, the command line and the presets.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_server::config::{
    AgentConfig, Agents, Config, ConfigError, DEFAULT_PASS_ENV, DefaultAgent, InstalledAgent, PRESETS,
    Preset, ProcessMode, chosen_env, chosen_env_from, installed, matches,
};
use parlor_server::hub::AgentChoice;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("config.toml"))
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn all_settings_are_read() {
    let config = parse(
        r#"
        default_agent = "mine"
        [agents.mine]
        command = ["my-agent", "with space"]
        env = { ANTHROPIC_BASE_URL = "http://localhost:1" }
        pass_env = ["PATH", "*_API_KEY"]
        process = "session"
        version = 2
        dialect = "draft"
        idle_minutes = 5
        startup_timeout = 90
        cancel_timeout = 5
        [agents.short]
        command = "run 'two words' $HOME"
        [server]
        listen = "127.0.0.1:0"
        origins = ["https://page.example"]
        hosts = ["parlor.example"]
        allow_remote = true
        "#,
    )
    .unwrap();
    assert_eq!(config.default_agent.as_deref(), Some("mine"));
    let [mine, short] = &config.agents[..] else { panic!("{:?}", config.agents) };
    assert_eq!(mine.command, ["my-agent", "with space"]);
    assert_eq!(mine.env["ANTHROPIC_BASE_URL"], "http://localhost:1");
    assert_eq!(mine.pass_env, ["PATH", "*_API_KEY"]);
    assert_eq!((mine.process, mine.version), (ProcessMode::Session, Some(2)));
    assert_eq!((mine.dialect, mine.idle), (Some(Dialect::Draft), Duration::from_secs(300)));
    // A command is split like in a shell, without expansions.
    assert_eq!(*short, AgentConfig::new("short", ["run", "two words", "$HOME"].map(str::to_owned).into()));
    assert_eq!(short.pass_env, DEFAULT_PASS_ENV);
    assert_eq!(short.idle, Duration::from_secs(30 * 60));
    let timeouts = |agent: &AgentConfig| (agent.startup_timeout.as_secs(), agent.cancel_timeout.as_secs());
    assert_eq!((timeouts(mine), timeouts(short)), ((90, 5), (30, 30)));
    let http = config.server.http();
    assert_eq!((http.listen.port(), http.allow_remote), (0, true));
    assert_eq!(
        (http.origins, http.hosts),
        (vec!["https://page.example".into()], vec!["parlor.example".into()])
    );
}

#[test]
fn all_settings_are_optional() {
    let config = parse("").unwrap();
    assert_eq!((&config.default_agent, config.agents.len()), (&None, 0));
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7667");
    assert!(!config.server.allow_remote);
}

#[test]
fn errors_have_the_line_and_the_allowed_values() {
    for (text, line, parts) in [
        ("[server]\nlisen = 1\n", "config.toml:2", &["unknown setting lisen in [server]"][..]),
        ("\n\ndefault = 1\n", "config.toml:3", &["unknown setting default at the beginning of the file"]),
        ("[agents.a]\ncommands = 'x'\n", "config.toml:2", &["unknown setting commands in [agents.a]"]),
        ("[agents.a]\ncommand = 'x'\nstartup_timeout = 0\n", "config.toml:3", &["at least 1 second"]),
        ("[agents.a]\ncommand = 'x'\ncancel_timeout = 0\n", "config.toml:3", &["at least 1 second"]),
        ("[agents.a]\ncommand = 7\n", "config.toml:2", &["a string, or a list of strings"]),
        ("[agents.a]\ncommand = ''\n", "config.toml:2", &["the command is empty"]),
        ("[agents.a]\ncommand = []\n", "config.toml:2", &["the command is empty"]),
        ("[agents.a]\ncommand = \"it's\"\n", "config.toml:2", &["cannot split"]),
        ("[agents.a]\ncommand = 'x'\nprocess = 'own'\n", "config.toml:3", &["process cannot be \"own\""]),
        ("[agents.a]\ncommand = 'x'\nversion = 3\n", "config.toml:3", &["version 3", "use 1 or 2"]),
        ("[agents.a]\ncommand = 'x'\ndialect = 'v9'\n", "config.toml:3", &["v9", "draft"]),
        ("[server]\nlisten = 'here'\n", "config.toml:2", &["'here'", "127.0.0.1:7667"]),
        ("[server]\nlisten = \n", "config.toml:2", &[]),
        ("[server]\n[server]\n", "config.toml:2", &["duplicate"]),
        ("[agents.a]\nenv = {}\n", "config.toml, [agents.a]", &["`command` is missing"]),
        ("[agents.'a b']\ncommand = 'x'\n", "config.toml, [agents.a b]", &["invalid agent name 'a b'"]),
        (
            "[agents.a]\ncommand = 'x'\nversion = 1\ndialect = 'draft'\n",
            "config.toml, [agents.a]",
            &["version 2, not 1"],
        ),
        ("[agents.a]\ncommand = 'x'\nwrap = []\n", "config.toml:3", &["the command is empty"]),
        (
            "[agents.a]\ncommand = 'x'\npaths = { src = '/work' }\n",
            "config.toml, [agents.a]",
            &["`paths`", "'src' is not an absolute path"],
        ),
        (
            "[agents.a]\ncommand = 'x'\npaths = { '/a' = '/work', '/b' = '/work/' }\n",
            "config.toml, [agents.a]",
            &["`paths`", "'/work'"],
        ),
        ("[mcp.a]\ncommands = 'x'\n", "config.toml:2", &["unknown setting commands in [mcp.a]"]),
        ("[mcp.a]\n", "config.toml, [mcp.a]", &["neither command nor url"]),
        ("[mcp.a]\ncommand = 'x'\nurl = 'https://x'\n", "config.toml, [mcp.a]", &["both"]),
        ("[mcp.a]\nurl = 'ftp://x'\n", "config.toml, [mcp.a]", &["not an address"]),
        ("[mcp.a]\nurl = 'https://x'\ntype = 'stdio'\n", "config.toml:3", &["type cannot be \"stdio\""]),
        (
            "[mcp.a]\nurl = 'https://x'\nenv = { A = 'b' }\n",
            "config.toml, [mcp.a]",
            &["env is for a command"],
        ),
        ("[mcp.a]\ncommand = 'x'\nheaders = { A = 'b' }\n", "config.toml, [mcp.a]", &["are for a url"]),
        ("[mcp.parlor]\nheaders = { A = 'b' }\n", "config.toml, [mcp.parlor]", &["are for a url"]),
        ("[mcp.parlor]\nenv = { A = 'b' }\n", "config.toml, [mcp.parlor]", &["env is for a command"]),
        ("[mcp.'a b']\ncommand = 'x'\n", "config.toml, [mcp.a b]", &["invalid name of an MCP server"]),
    ] {
        let error = parse(text).unwrap_err();
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("{line}: ")), "{text:?}: {shown}");
        for part in parts {
            assert!(shown.contains(part), "{text:?}: {shown}");
        }
        assert!(!shown.contains('\n'), "{shown:?}");
    }
}

#[test]
fn a_wrapper_and_mcp_servers_are_read() {
    let config = parse(
        r#"
        [agents.mine]
        command = "my-agent --acp"
        wrap = "docker run -w {cwd}"
        paths = { "/home/ada/src/" = "/work" }
        [mcp.parlor]
        [mcp.docs]
        url = "https://docs.example/mcp"
        headers = { Authorization = "Bearer secret" }
        agents = ["mine"]
        [mcp.old]
        url = "https://old.example"
        type = "sse"
        enabled = false
        [mcp.files]
        command = ["files", "--stdio"]
        env = { KEY = "secret" }
        "#,
    )
    .unwrap();
    let sandbox = &config.agents[0].sandbox;
    assert_eq!(sandbox.wrap, ["docker", "run", "-w", "{cwd}"]);
    assert_eq!(sandbox.paths.path_to_agent("/home/ada/src/x"), "/work/x");
    let transports: Vec<_> = config
        .mcp
        .iter()
        .map(|server| (server.name.as_str(), server.endpoint.transport().name(), server.is_for("mine")))
        .collect();
    assert_eq!(
        transports,
        [("docs", "http", true), ("files", "stdio", true), ("old", "sse", false), ("parlor", "stdio", true)]
    );
    assert!(!config.mcp[0].is_for("claude") && config.mcp[1].is_for("claude"));
    assert!(!format!("{config:?}").contains("secret"));
}

#[test]
fn an_agent_in_a_wrapper_is_installed_if_the_wrapper_is() {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = directory.path().join("wrapper");
    fs::write(&wrapper, "").unwrap();
    let mut agent = AgentConfig::new("a", vec!["only-in-the-container".to_owned()]);
    assert!(!agent.is_installed(directory.path().as_os_str()));
    agent.sandbox.wrap = vec!["wrapper".to_owned()];
    assert!(!agent.is_installed(directory.path().as_os_str()));
    fs::set_permissions(&wrapper, Permissions::from_mode(0o700)).unwrap();
    assert!(agent.is_installed(directory.path().as_os_str()));
}

#[test]
fn the_documentation_lists_the_defaults_and_presets() {
    let page = include_str!("../../../docs/configuration.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let config = parse(example).unwrap();
    assert_eq!(config.server, Config::default().server);
    assert_eq!(config.agents[0].idle, AgentConfig::new("a", vec![]).idle);
    for preset in PRESETS {
        let install = preset.install.map_or("comes with parlor".to_owned(), |install| format!("`{install}`"));
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", preset.name)));
        assert!(row.is_some_and(|row| row.contains(&install)), "{}", preset.name);
    }
    for name in DEFAULT_PASS_ENV {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn a_file_that_is_chosen_must_exist() {
    let directory = tempfile::tempdir().unwrap();
    let (flag, env) = (directory.path().join("flag.toml"), directory.path().join("env.toml"));
    fs::write(&env, "default_agent = 'env'").unwrap();
    let error = Config::load(Some(flag.clone()), Some(env.clone().into()), vec![]).unwrap_err();
    assert!(error.to_string().contains("flag.toml"), "{error}");
    assert!(error.hint.unwrap().contains("--config"));
    fs::write(&flag, "default_agent = 'flag'").unwrap();
    let loaded = Config::load(Some(flag), Some(env.clone().into()), vec![]).unwrap();
    assert_eq!(loaded.default_agent.as_deref(), Some("flag"));
    let loaded = Config::load(None, Some(env.clone().into()), vec![]).unwrap();
    assert_eq!((loaded.default_agent.as_deref(), loaded.path), (Some("env"), Some(env)));
    let default = parlor_server::config::default_path().unwrap();
    assert!(default.ends_with("parlor/config.toml"), "{default:?}");
}

#[test]
fn agents_are_read_from_the_command_line() {
    let agent = AgentConfig::from_flag("my-agent=run --with='a b' x=y").unwrap();
    assert_eq!(agent.name, "my-agent");
    assert_eq!(agent.command, ["run", "--with=a b", "x=y"]);
    for (flag, part) in [
        ("claude", "expected NAME=COMMAND"),
        ("=run", "invalid agent name"),
        ("a b=run", "invalid agent name"),
        ("a=", "empty"),
        ("a='", "split"),
    ] {
        let error = AgentConfig::from_flag(flag).unwrap_err();
        assert!(error.to_string().contains(part), "{flag}: {error}");
        assert!(error.hint.unwrap().contains("NAME=COMMAND"));
    }
}

#[test]
fn the_command_line_takes_precedence_over_the_file_and_the_file_over_the_presets() {
    let line = || vec![AgentConfig::from_flag("codex=mine").unwrap(), AgentConfig::from_flag("x=y").unwrap()];
    let config = parse(
        "default_agent = 'gemini'\n[agents.codex]\ncommand = 'file'\n[agents.gemini]\ncommand = 'file'\n",
    )
    .unwrap();
    let agents = Agents::new(line(), &config).unwrap();
    let names: Vec<&str> = agents.all().iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["codex", "x", "gemini", "claude", "opencode", "kimi", "goose", "demo"]);
    assert_eq!(agents.get("codex").unwrap().command, ["mine"]);
    assert_eq!(agents.get("gemini").unwrap().command, ["file"]);
    assert_eq!(agents.get("claude").unwrap().command, ["claude-agent-acp"]);
    assert_eq!(default_agent(&agents).name, "codex");
    assert_eq!(default_agent(&Agents::new(vec![], &config).unwrap()).command, ["file"]);
    assert_eq!(default_agent(&Agents::new(vec![], &Config::default()).unwrap()).name, "demo");
    assert_eq!(default_agent(&agents.clone().with_default("gemini").unwrap()).command, ["file"]);
    let error = agents.with_default("nobody").unwrap_err();
    assert!(error.to_string().starts_with("--agent nobody: unknown agent 'nobody'"), "{error}");

    let twice = [line(), line()].concat();
    assert!(Agents::new(twice, &config).unwrap_err().to_string().contains("given twice"));
    let unknown = parse("default_agent = 'nobody'").unwrap();
    let error = Agents::new(vec![], &unknown).unwrap_err();
    assert!(error.to_string().starts_with("config.toml, default_agent: unknown agent 'nobody'"), "{error}");
    assert!(error.to_string().contains("claude, codex"), "{error}");
    assert_eq!(default_agent(&Agents::new(line(), &unknown).unwrap()).name, "codex");
}

/// The default agent if no agent is installed.
fn default_agent(agents: &Agents) -> AgentConfig {
    agents.default_agent(OsStr::new("/nowhere")).agent().unwrap().clone()
}

#[test]
fn the_default_agent_is_the_configured_or_the_only_installed_one_else_clients_have_to_choose() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().as_os_str();
    let install = |program: &str| {
        let file = directory.path().join(program);
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
    };
    let agents = Agents::new(vec![], &Config::default()).unwrap();
    assert!(matches!(agents.default_agent(path), DefaultAgent::BuiltIn(demo) if demo.name == "demo"));
    install("goose");
    assert!(matches!(agents.default_agent(path), DefaultAgent::OnlyInstalled(only) if only.name == "goose"));
    install("claude-agent-acp");
    let ambiguous = agents.default_agent(path);
    assert!(matches!(&ambiguous, DefaultAgent::Ambiguous(installed) if installed.len() == 2));
    let error = ambiguous.agent().unwrap_err();
    assert_eq!(
        error.to_string(),
        "default agent: several agents are installed and none is selected: claude, goose"
    );
    assert!(error.hint.unwrap().contains("--agent claude"));
    agents.chosen(None, path).unwrap_err();
    let configured = Agents::new(vec![], &parse("default_agent = 'demo'").unwrap()).unwrap();
    assert!(matches!(configured.default_agent(path), DefaultAgent::Configured(demo) if demo.name == "demo"));
}

#[test]
fn a_client_gets_the_agent_that_it_chose() {
    let agents = Agents::new(vec![], &Config::default()).unwrap();
    let path = OsStr::new("/nowhere");
    assert_eq!(agents.chosen(None, path).unwrap().name, "demo");
    let named = |name: &str| AgentChoice::Named(name.to_owned());
    assert_eq!(agents.chosen(Some(&named("goose")), path).unwrap().command, ["goose", "acp"]);
    let error = agents.chosen(Some(&named("nobody")), path).unwrap_err();
    assert!(error.hint.unwrap().contains("--agent 'nobody=COMMAND'"));
    let command = AgentChoice::Command(vec!["a".into(), "b".into()]);
    assert_eq!(agents.chosen(Some(&command), path).unwrap().command, ["a", "b"]);
    agents.chosen(Some(&AgentChoice::Command(vec![])), path).unwrap_err();
}

#[test]
fn a_preset_in_the_file_needs_no_command() {
    let config = parse("[agents.opencode]\nprocess = 'session'\n").unwrap();
    assert_eq!(config.agents[0].command, ["opencode", "acp"]);
    assert_eq!(config.agents[0].process, ProcessMode::Session);
}

/// Writes the manifest of an installed agent and an empty program, and returns the directory of all agents.
fn install_agent(data: &Path, manifest: &str) -> PathBuf {
    let directory = data.join("agents/claude");
    fs::create_dir_all(directory.join("1.0.0/bin")).unwrap();
    fs::write(directory.join("1.0.0/bin/run"), "").unwrap();
    fs::set_permissions(directory.join("1.0.0/bin/run"), Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.join("agent.json"), manifest).unwrap();
    data.join("agents")
}

fn manifest(name: &str, version: &str, program: &str) -> String {
    format!(
        r#"{{"name":"{name}","id":"claude-acp","version":"{version}","distribution":"npx","package":"a@1.0.0",
            "program":["{program}"],"args":["--acp"],"env":{{"A":"registry","B":"registry"}}}}"#
    )
}

#[test]
fn an_installed_agent_comes_after_the_file_and_before_the_preset() {
    let data = tempfile::tempdir().unwrap();
    let agents_dir = install_agent(data.path(), &manifest("claude", "1.0.0", "bin/run"));
    let installed = InstalledAgent::read_all(&agents_dir);
    let command = [data.path().join("agents/claude/1.0.0/bin/run").display().to_string(), "--acp".to_owned()];
    let config = |text: &str| Config::parse_with(text, Path::new("config.toml"), installed.clone()).unwrap();
    let agents = Agents::new(vec![], &config("")).unwrap();
    assert_eq!(agents.get("claude").unwrap().command, command);
    assert_eq!(agents.get("claude").unwrap().env["A"], "registry");
    assert!(agents.get("claude").unwrap().is_installed(OsStr::new("/nowhere")));
    let agents = Agents::new(vec![], &config("[agents.claude]\nenv = { A = 'file' }\n")).unwrap();
    let claude = agents.get("claude").unwrap();
    assert_eq!(claude.command, command);
    assert_eq!((claude.env["A"].as_str(), claude.env["B"].as_str()), ("file", "registry"));
    let agents = Agents::new(vec![], &config("[agents.claude]\ncommand = 'file'\n")).unwrap();
    assert_eq!(agents.get("claude").unwrap().command, ["file"]);
    assert_eq!(agents.get("claude").unwrap().env.len(), 0);
}

#[test]
fn a_manifest_that_leads_outside_its_directory_or_has_no_program_is_ignored() {
    let data = tempfile::tempdir().unwrap();
    for (name, version, program) in [
        ("claude", "1.0.0", "/bin/sh"),
        ("claude", "1.0.0", "../1.0.0/bin/run"),
        ("claude", "..", "claude/1.0.0/bin/run"),
        ("claude", "", "1.0.0/bin/run"),
        ("claude", "1.0.0", "bin/missing"),
        ("codex", "1.0.0", "bin/run"),
    ] {
        let agents_dir = install_agent(data.path(), &manifest(name, version, program));
        assert_eq!(InstalledAgent::read_all(&agents_dir), [], "{name} {version} {program}");
    }
    let agents_dir = install_agent(data.path(), "{");
    assert_eq!(InstalledAgent::read_all(&agents_dir), []);
    assert_eq!(InstalledAgent::read_all(Path::new("/nowhere")), []);
}

#[test]
fn an_id_of_the_registry_is_another_name_of_a_preset() {
    let agents = Agents::new(vec![], &parse("default_agent = 'codex-acp'").unwrap()).unwrap();
    assert_eq!(default_agent(&agents).name, "codex");
    let choice = AgentChoice::Named("claude-acp".to_owned());
    assert_eq!(agents.chosen(Some(&choice), OsStr::new("")).unwrap().name, "claude");
    assert_eq!(
        agents
            .clone()
            .with_default("claude-acp")
            .unwrap()
            .default_agent(OsStr::new(""))
            .agent()
            .unwrap()
            .name,
        "claude"
    );
    let own = Agents::new(vec![], &parse("[agents.claude-acp]\ncommand = 'own'\n").unwrap()).unwrap();
    assert_eq!(own.get("claude-acp").unwrap().command, ["own"], "a configured name is not an alias");
    let error = parse("[agents.claude-acp]\nenv = {}\n").unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("parlor's name of this agent is [agents.claude]"));
}

#[test]
fn programs_of_presets_are_searched_in_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("1"), directory.path().join("2"));
    let path: OsString = std::env::join_paths([&first, &second]).unwrap();
    fs::create_dir_all(first.join("goose")).unwrap();
    fs::create_dir(&second).unwrap();
    let goose = Preset::named("goose").unwrap();
    assert_eq!(installed(goose, &path), None);
    fs::write(second.join("goose"), "").unwrap();
    assert_eq!(installed(goose, &path), None, "it cannot be run");
    fs::set_permissions(second.join("goose"), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(installed(goose, &path), Some(second.join("goose")));

    let demo = Preset::named("demo").unwrap();
    let own = std::env::current_exe().unwrap();
    assert_eq!(installed(demo, &path).as_ref(), Some(&own));
    assert_eq!(demo.command().unwrap(), [own.to_string_lossy().as_ref(), "demo-agent"]);
    assert!(PRESETS.iter().all(|preset| preset.is_built_in() == (preset.name == "demo")));
}

#[test]
fn a_star_in_a_pattern_matches_any_characters() {
    for (pattern, name, fits) in [
        ("PATH", "PATH", true),
        ("PATH", "PATHS", false),
        ("PATH", "MY_PATH", false),
        ("*_API_KEY", "OPENAI_API_KEY", true),
        ("*_API_KEY", "_API_KEY", true),
        ("*_API_KEY", "OPENAI_API_KEYS", false),
        ("LC_*", "LC_ALL", true),
        ("LC_*", "XLC_ALL", false),
        ("XDG_*_HOME", "XDG_DATA_HOME", true),
        ("XDG_*_HOME", "XDG_HOME", false),
        ("A*B*C", "AxBxBxC", true),
        ("A*B*C", "AxC", false),
        ("A*A", "A", false),
        ("*", "", true),
        ("**", "x", true),
        ("", "x", false),
        ("path", "PATH", false),
    ] {
        assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
    }
}

#[test]
fn an_agent_gets_the_variables_of_its_client_and_those_that_programs_need() {
    let agent = AgentConfig {
        env: pairs(&[("ADDED", "1"), ("A_API_KEY", "configured")]).into_iter().collect(),
        pass_env: vec!["PATH".into(), "*_API_KEY".into()],
        ..AgentConfig::new("a", vec!["a".into()])
    };
    let server = pairs(&[("PATH", "/server"), ("HOME", "/home"), ("S_API_KEY", "s"), ("SECRET", "x")]);
    let client =
        pairs(&[("PATH", "/client"), ("B_API_KEY", "b"), ("A_API_KEY", "a"), ("OTHER", "o"), ("HOME", "/c")]);
    assert_eq!(
        chosen_env_from(&agent, &client, &server),
        pairs(&[
            ("ADDED", "1"),
            ("A_API_KEY", "configured"),
            ("B_API_KEY", "b"),
            ("HOME", "/home"),
            ("PATH", "/client"),
        ])
    );
    // The server's environment is used for a client that sent none.
    assert_eq!(
        chosen_env_from(&agent, &[], &server),
        pairs(&[
            ("ADDED", "1"),
            ("A_API_KEY", "configured"),
            ("HOME", "/home"),
            ("PATH", "/server"),
            ("S_API_KEY", "s"),
        ])
    );
    let path = std::env::var("PATH").unwrap();
    assert!(chosen_env(&agent, &pairs(&[("X_API_KEY", "x")])).contains(&("PATH".to_owned(), path)));
}

#[test]
fn targets_of_notifications_are_read_and_checked() {
    use parlor_server::config::{NotifyFormat, NotifyKind, NotifySink};
    let config = parse(
        r#"
        [[notify]]
        url = "https://ntfy.sh/topic"
        [[notify]]
        url = "http://127.0.0.1:1/hook?x=1"
        headers = { Authorization = "Bearer x" }
        events = ["needs_you"]
        delay = 0
        page = "https://parlor.example.org/"
        details = false
        [[notify]]
        command = ["notify-send", "parlor"]
        "#,
    )
    .unwrap();
    let [ntfy, hook, program] = &config.notify[..] else { panic!("{:?}", config.notify) };
    let format = |sink: &NotifySink| match sink {
        NotifySink::Url { format, .. } => Some(*format),
        NotifySink::Command(_) => None,
    };
    assert_eq!(
        (format(&ntfy.sink), format(&hook.sink)),
        (Some(NotifyFormat::Ntfy), Some(NotifyFormat::Json))
    );
    assert_eq!((ntfy.events.len(), ntfy.delay.as_secs(), ntfy.has_details), (3, 10, true));
    assert_eq!((hook.events.as_slice(), hook.delay.as_secs()), (&[NotifyKind::NeedsYou][..], 0));
    assert_eq!((hook.page.as_deref(), hook.has_details), (Some("https://parlor.example.org"), false));
    assert_eq!(program.sink, NotifySink::Command(["notify-send", "parlor"].map(str::to_owned).into()));
    assert_eq!((hook.name(), program.name()), ("http://127.0.0.1:1".to_owned(), "notify-send".to_owned()));
    for (table, problem) in [
        ("", "neither url nor command is set"),
        ("url = \"https://a\"\ncommand = [\"b\"]", "url and command are both set"),
        ("url = \"ftp://a\"", "'ftp://a' is not an address"),
        ("url = \"https://me@a/\"", "is not an address"),
        ("url = \"https://a/ b\"", "is not an address"),
        ("url = \"https:///x\"", "is not an address"),
        ("command = []", "the command is empty"),
        ("command = [\"a\"]\nformat = \"json\"", "format and headers are for a url"),
        ("command = [\"a\"]\nevents = []", "events is empty"),
        ("command = [\"a\"]\nevents = [\"x\"]", "events cannot be \"x\""),
        ("command = [\"a\"]\npage = \"x\"", "page 'x' is not an address"),
        ("command = [\"a\"]\ndelay = 100000", "delay is longer than a day"),
        ("url = \"https://a\"\nheaders = { \"a b\" = \"c\" }", "'a b' is not a header"),
        ("url = \"https://a\"\nheaders = { Host = \"c\" }", "'Host' is not a header"),
        ("url = \"https://a\"\nheaders = { X = \"c\\nY: d\" }", "'X' is not a header"),
    ] {
        let error = parse(&format!("[[notify]]\n{table}")).unwrap_err();
        assert!(error.to_string().contains(problem), "{table}: {error}");
    }
    let many = "[[notify]]\ncommand = [\"a\"]\n".repeat(17);
    assert!(parse(&many).unwrap_err().message.contains("at most 16"));
}
