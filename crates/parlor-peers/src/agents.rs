//! The agents of other projects: how they are started with the stand-in model, and what they cannot do.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::install::{self, Peers};
use crate::step::{Expectation, Step};

/// An agent.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    /// Its name.
    pub name: &'static str,
    /// Its name as the heading of a column.
    pub column: &'static str,
    /// Its package and version.
    pub package: fn() -> String,
    /// The protocol versions that it speaks.
    pub versions: &'static [u8],
    /// Prepares its home directory; how it is started.
    pub launch: fn(&AgentEnvironment<'_>) -> Launch,
    /// Whether its stories take long.
    pub is_slow: bool,
    /// What it answers.
    pub script: Script,
    /// The mode in which it asks for permissions, if that is not its default.
    pub mode: Option<&'static str>,
    /// How it gets a conversation back after a restart: `restored` by itself, as `transcript`, or either.
    pub comes_back: &'static str,
    /// How a fork at a message gets its context: by a `native` fork, or as `transcript`.
    pub forks: &'static str,
    /// How a fork at the end gets it.
    pub forks_at_end: &'static str,
    /// Whether it can delete its sessions.
    pub deletes: bool,
    /// Reasons for remarks in its column.
    pub reasons: &'static [(&'static str, &'static str)],
    /// The steps that do not simply work, with a protocol version if it is only one.
    pub exceptions: &'static [&'static [Exception]],
}

/// A step that does not simply work, with a protocol version if it is only one, and what is expected instead.
pub type Exception = (Step, Option<u8>, Expectation);

/// What an agent answers.
#[derive(Debug, Clone, Copy)]
pub enum Script {
    /// What the stand-in model says, with its tools.
    Model(Tools),
    /// The prompt.
    Echo,
    /// Always this.
    Fixed(&'static str),
    /// Always this, with a permission request in the middle.
    Permission {
        /// A part of its answer before the request.
        first: &'static str,
        /// A part of its answer after it.
        last: &'static str,
    },
}

/// The calls of tools that an agent's model makes: the name and the arguments.
#[derive(Debug, Clone, Copy)]
pub struct Tools {
    /// A call that needs no permission; the path is a file that exists.
    pub read: fn(&Path) -> (&'static str, Value),
    /// A call that needs a permission; the path is a file to write.
    pub write: fn(&Path) -> (&'static str, Value),
    /// A call that starts a subagent; none if the agent announces no subagents.
    pub spawn: Option<Spawn>,
}

/// How an agent's model starts a subagent.
#[derive(Debug, Clone, Copy)]
pub struct Spawn {
    /// The call; the text is the prompt of the subagent.
    pub call: fn(&str) -> (&'static str, Value),
    /// Whether the call returns when the subagent has ended, and not at once.
    pub is_awaited: bool,
}

/// Where an agent runs.
#[derive(Debug)]
pub struct AgentEnvironment<'a> {
    /// The installed peers.
    pub peers: &'a Peers,
    /// The home directory of the agent.
    pub home: &'a Path,
    /// The address of the model.
    pub model: &'a str,
}

/// How an agent is started.
#[derive(Debug, Default)]
pub struct Launch {
    /// The command.
    pub command: Vec<String>,
    /// Variables of its environment.
    pub env: Vec<(String, String)>,
}

impl Agent {
    /// How it is started in a story: what an agent without a model is given is written to a file.
    pub fn launch_in(&self, place: &AgentEnvironment<'_>, input: &Path) -> Launch {
        let mut launch = (self.launch)(place);
        if !self.has_model() {
            // The shell becomes the agent, so that its process is the one that the server knows.
            let script = r#"exec 3<&0; exec "$@" < <(exec tee -a "$0" <&3) 3<&-"#;
            let shell = ["bash".to_owned(), "-c".to_owned(), script.to_owned(), text(input)];
            launch.command.splice(0..0, shell);
        }
        launch
    }

    /// Whether it uses the stand-in model.
    pub fn has_model(&self) -> bool {
        self.tools().is_some()
    }

    /// The tools of its model.
    pub fn tools(&self) -> Option<Tools> {
        match self.script {
            Script::Model(tools) => Some(tools),
            Script::Echo | Script::Fixed(_) | Script::Permission { .. } => None,
        }
    }

    /// What a step must end with.
    pub fn expectation(&self, step: Step, version: u8) -> Expectation {
        let exception = |step: Step| {
            let applies = |(of, only, _): &&Exception| *of == step && only.is_none_or(|only| only == version);
            self.exceptions.iter().copied().flatten().find(applies).map(|(_, _, expectation)| *expectation)
        };
        match exception(Step::Start) {
            Some(Expectation::Fails { why, .. }) if step != Step::Start => Expectation::NotTried { why },
            _ => exception(step).unwrap_or(Expectation::Works),
        }
    }
}

fn npm(name: &str) -> String {
    format!("npm `{name}` {}", install::npm_version(name))
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().expect("the path is text").to_owned()
}

fn write(path: PathBuf, contents: &str) {
    fs::create_dir_all(path.parent().expect("it is in a directory")).expect("the home directory is writable");
    fs::write(path, contents).expect("the home directory is writable");
}

fn variables(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn claude(place: &AgentEnvironment<'_>) -> Launch {
    Launch {
        command: vec![text(place.peers.node()), text(place.peers.npm("claude-agent-acp"))],
        env: variables(&[
            ("ANTHROPIC_BASE_URL", place.model),
            ("ANTHROPIC_API_KEY", "none"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            // It does not run as root otherwise.
            ("IS_SANDBOX", "1"),
        ]),
    }
}

fn codex(place: &AgentEnvironment<'_>) -> Launch {
    let config = format!(
        "model = \"gpt-5.5\"\nmodel_provider = \"standin\"\napproval_policy = \"on-request\"\nsandbox_mode = \"read-only\"\n\
         [model_providers.standin]\nname = \"stand-in\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\n\
         request_max_retries = 0\nstream_max_retries = 0\n",
        place.model
    );
    write(place.home.join(".codex/config.toml"), &config);
    Launch {
        command: vec![text(place.peers.node()), text(place.peers.npm("codex-acp"))],
        env: variables(&[("CODEX_HOME", &text(place.home.join(".codex")))]),
    }
}

fn gemini(place: &AgentEnvironment<'_>) -> Launch {
    let settings = json!({ "security": { "auth": { "selectedType": "gemini-api-key" } },
        "privacy": { "usageStatisticsEnabled": false }, "general": { "disableAutoUpdate": true } });
    write(place.home.join(".gemini/settings.json"), &settings.to_string());
    let mut command = vec![text(place.peers.node()), text(place.peers.npm("gemini"))];
    command.extend(["--acp", "--skip-trust"].map(str::to_owned));
    Launch { command, env: variables(&[("GOOGLE_GEMINI_BASE_URL", place.model), ("GEMINI_API_KEY", "none")]) }
}

fn opencode(place: &AgentEnvironment<'_>) -> Launch {
    let provider = json!({ "npm": "@ai-sdk/openai-compatible", "name": "Stand-in",
        "options": { "baseURL": format!("{}/v1", place.model), "apiKey": "none" },
        "models": { "stand-in": { "name": "Stand-in", "reasoning": true } } });
    let config = json!({ "provider": { "standin": provider }, "model": "standin/stand-in",
        "small_model": "standin/stand-in", "autoupdate": false, "share": "disabled",
        "permission": { "edit": "ask", "bash": "ask" } });
    write(place.home.join(".config/opencode/opencode.json"), &config.to_string());
    // The program itself: what npm links is replaced by a script, which is not run.
    let program = place.peers.npm_file("opencode-linux-x64/bin/opencode");
    Launch {
        command: vec![text(program), "acp".to_owned()],
        env: variables(&[("OPENCODE_DISABLE_MODELS_FETCH", "1"), ("OPENCODE_DISABLE_AUTOUPDATE", "1")]),
    }
}

fn kimi(place: &AgentEnvironment<'_>) -> Launch {
    let config = format!(
        "default_model = \"standin/stand-in\"\n[providers.standin]\ntype = \"openai\"\napi_key = \"none\"\n\
         base_url = \"{}/v1\"\n[models.\"standin/stand-in\"]\nprovider = \"standin\"\nmodel = \"stand-in\"\n\
         max_context_size = 200000\n",
        place.model
    );
    write(place.home.join(".kimi-code/config.toml"), &config);
    Launch {
        command: vec![text(place.peers.node()), text(place.peers.npm("kimi")), "acp".to_owned()],
        env: Vec::new(),
    }
}

fn node_example(place: &AgentEnvironment<'_>, name: &str) -> Launch {
    let file = place.peers.npm_file(&format!("@agentclientprotocol/sdk/dist/examples/{name}"));
    Launch { command: vec![text(place.peers.node()), text(file)], env: Vec::new() }
}

fn python_example(place: &AgentEnvironment<'_>, name: &str) -> Launch {
    Launch {
        command: vec![text(place.peers.python()), text(place.peers.python_example(name))],
        env: Vec::new(),
    }
}

fn rust_example(place: &AgentEnvironment<'_>, name: &str) -> Launch {
    Launch { command: vec![text(place.peers.rust_example(name))], env: Vec::new() }
}

const NO_MODEL: Expectation = Expectation::NotTried { why: "it has no model" };
const AT_ONCE: Expectation =
    Expectation::NotTried { why: "it answers at once, so nothing happens during a turn" };
const NO_THOUGHTS: Expectation =
    Expectation::Fails { why: "it sends no thoughts", with: "there is no thought" };
const NO_TOOLS: Expectation = Expectation::Fails { why: "it calls no tools", with: "there is no tool call" };
const NO_PERMISSIONS: Expectation =
    Expectation::Fails { why: "it calls no tools", with: "the turn ended without a permission request" };
const NO_LIST: Expectation =
    Expectation::Fails { why: "it does not list its sessions", with: "does not list its sessions" };
const IN_MEMORY: Expectation =
    Expectation::Fails { why: "it has its sessions only in memory", with: "the agent lists no sessions" };

/// The exceptions of an agent that answers at once with the text of the prompt.
const ECHOES: &[Exception] = &[
    (Step::Thought, None, NO_THOUGHTS),
    (Step::ToolCall, None, NO_TOOLS),
    (Step::Permission, None, NO_PERMISSIONS),
    (Step::ModelError, None, NO_MODEL),
    (Step::Stream, None, AT_ONCE),
    (Step::Join, None, AT_ONCE),
    (Step::Queue, None, AT_ONCE),
    (Step::Cancel, None, AT_ONCE),
    (Step::Steer, None, AT_ONCE),
    (Step::ClientKilled, None, AT_ONCE),
];

/// The exceptions of an agent that announces no subagents.
const NO_SUBAGENTS: &[Exception] =
    &[(Step::Subagent, None, Expectation::NotTried { why: "it announces no subagents" })];

const NO_STEERING: Expectation = Expectation::Fails { why: "it cannot be steered", with: "no_steering" };

/// How a conversation comes back that the agent may restore or not.
const EITHER: &str = "restored or transcript";

/// The exceptions of an agent that takes no prompts in a running turn.
const NOT_STEERED: &[Exception] = &[(Step::Steer, None, NO_STEERING)];

/// All agents.
pub const AGENTS: &[Agent] = &[
    Agent {
        name: "claude-agent-acp",
        column: "claude",
        package: || npm("@agentclientprotocol/claude-agent-acp"),
        versions: &[1, 2],
        launch: claude,
        is_slow: false,
        script: Script::Model(Tools {
            read: |path| ("Read", json!({ "file_path": path })),
            write: |path| ("Write", json!({ "file_path": path, "content": "written\n" })),
            spawn: Some(Spawn {
                call: |prompt| {
                    let arguments = json!({ "description": "Look around", "prompt": prompt,
                        "subagent_type": "general-purpose", "run_in_background": false });
                    ("Agent", arguments)
                },
                is_awaited: true,
            }),
        }),
        mode: None,
        comes_back: "restored",
        forks: "native",
        forks_at_end: "native",
        deletes: true,
        reasons: &[],
        exceptions: &[&[(Step::Steer, Some(2), NO_STEERING)]],
    },
    Agent {
        name: "codex-acp",
        column: "codex",
        package: || npm("@agentclientprotocol/codex-acp"),
        versions: &[1, 2],
        launch: codex,
        is_slow: false,
        script: Script::Model(Tools {
            read: |path| ("exec_command", json!({ "cmd": format!("cat {}", path.display()) })),
            write: |path| {
                let cmd = format!("echo written > {}", path.display());
                let why = "The test writes a file.";
                (
                    "exec_command",
                    json!({ "cmd": cmd, "sandbox_permissions": "require_escalated", "justification": why }),
                )
            },
            spawn: Some(Spawn {
                call: |prompt| ("multi_agent_v1.spawn_agent", json!({ "message": prompt })),
                is_awaited: false,
            }),
        }),
        // In its default mode another model decides.
        mode: Some("workspace-write"),
        comes_back: "restored",
        forks: "native",
        forks_at_end: "native",
        deletes: true,
        reasons: &[],
        exceptions: &[],
    },
    Agent {
        name: "gemini-cli",
        column: "gemini",
        package: || npm("@google/gemini-cli"),
        versions: &[1],
        launch: gemini,
        is_slow: false,
        script: Script::Model(Tools {
            read: |path| ("read_file", json!({ "file_path": path })),
            write: |path| {
                ("run_shell_command", json!({ "command": format!("echo written > {}", path.display()) }))
            },
            spawn: None,
        }),
        mode: None,
        comes_back: EITHER,
        forks: "transcript",
        forks_at_end: "transcript",
        deletes: false,
        reasons: &[(
            EITHER,
            "it empties the file of a session that is loaded in the minute in which it was created, and cannot load it then",
        )],
        exceptions: &[
            NO_SUBAGENTS,
            NOT_STEERED,
            &[(
                Step::Adopt,
                None,
                Expectation::Fails {
                    why: "it does not list its sessions",
                    with: "does not list its sessions",
                },
            )],
        ],
    },
    Agent {
        name: "opencode",
        column: "opencode",
        package: || npm("opencode-ai"),
        versions: &[1],
        launch: opencode,
        is_slow: true,
        script: Script::Model(Tools {
            read: |path| ("read", json!({ "filePath": path })),
            write: |path| ("write", json!({ "filePath": path, "content": "written\n" })),
            spawn: None,
        }),
        mode: None,
        comes_back: "restored",
        forks: "transcript",
        forks_at_end: "native",
        deletes: false,
        reasons: &[],
        exceptions: &[NO_SUBAGENTS, NOT_STEERED],
    },
    Agent {
        name: "kimi-code",
        column: "kimi",
        package: || npm("@moonshot-ai/kimi-code"),
        versions: &[1],
        launch: kimi,
        is_slow: false,
        script: Script::Model(Tools {
            read: |path| ("Read", json!({ "path": path })),
            write: |path| ("Write", json!({ "path": path, "content": "written\n" })),
            spawn: None,
        }),
        mode: None,
        comes_back: "restored",
        forks: "transcript",
        forks_at_end: "native",
        deletes: true,
        reasons: &[],
        exceptions: &[NO_SUBAGENTS, NOT_STEERED],
    },
    Agent {
        name: "TypeScript SDK, agent.js",
        column: "TS",
        package: || npm("@agentclientprotocol/sdk"),
        versions: &[1],
        launch: |place| node_example(place, "agent.js"),
        // It pauses in every turn.
        is_slow: true,
        script: Script::Permission { first: "I'll help you with that", last: "I've successfully updated" },
        mode: None,
        comes_back: "transcript",
        forks: "transcript",
        forks_at_end: "transcript",
        deletes: false,
        reasons: &[],
        exceptions: &[
            NO_SUBAGENTS,
            NOT_STEERED,
            &[
                (Step::Thought, None, NO_THOUGHTS),
                (Step::ModelError, None, NO_MODEL),
                (Step::Adopt, None, NO_LIST),
            ],
        ],
    },
    Agent {
        name: "TypeScript SDK, dual-version-agent.js",
        column: "TS dual",
        package: || npm("@agentclientprotocol/sdk"),
        versions: &[1, 2],
        launch: |place| node_example(place, "dual-version-agent.js"),
        is_slow: false,
        script: Script::Fixed("Hello from the v"),
        mode: None,
        comes_back: "transcript",
        forks: "transcript",
        forks_at_end: "transcript",
        deletes: false,
        reasons: &[],
        exceptions: &[
            ECHOES,
            NO_SUBAGENTS,
            &[(Step::Adopt, Some(1), NO_LIST), (Step::Adopt, Some(2), IN_MEMORY)],
        ],
    },
    Agent {
        name: "Python SDK, agent.py",
        column: "Py",
        package: || format!("PyPI `agent-client-protocol` {}", install::PYTHON_SDK),
        versions: &[1],
        launch: |place| python_example(place, "agent.py"),
        is_slow: false,
        script: Script::Echo,
        mode: None,
        comes_back: "transcript",
        forks: "transcript",
        forks_at_end: "transcript",
        deletes: false,
        reasons: &[],
        exceptions: &[ECHOES, NO_SUBAGENTS, &[(Step::Adopt, None, NO_LIST)]],
    },
    Agent {
        name: "Python SDK, echo_agent.py",
        column: "Py echo",
        package: || format!("PyPI `agent-client-protocol` {}", install::PYTHON_SDK),
        versions: &[1],
        launch: |place| python_example(place, "echo_agent.py"),
        is_slow: false,
        script: Script::Echo,
        mode: None,
        comes_back: "transcript",
        forks: "transcript",
        forks_at_end: "transcript",
        deletes: false,
        reasons: &[],
        exceptions: &[ECHOES, NO_SUBAGENTS, &[(Step::Adopt, None, NO_LIST)]],
    },
    Agent {
        name: "Rust SDK, simple_agent_v2",
        column: "Rust",
        package: || format!("crate `agent-client-protocol` {}", install::RUST_SDK),
        versions: &[2],
        launch: |place| rust_example(place, "simple_agent_v2"),
        is_slow: false,
        script: Script::Echo,
        mode: None,
        comes_back: "transcript",
        forks: "transcript",
        forks_at_end: "transcript",
        deletes: false,
        reasons: &[],
        exceptions: &[ECHOES, NO_SUBAGENTS, &[(Step::Adopt, None, IN_MEMORY)]],
    },
    Agent {
        name: "Rust SDK, simple_agent",
        column: "Rust simple",
        package: || format!("crate `agent-client-protocol` {}", install::RUST_SDK),
        versions: &[1],
        launch: |place| rust_example(place, "simple_agent"),
        is_slow: false,
        script: Script::Echo,
        mode: None,
        comes_back: "transcript",
        forks: "transcript",
        forks_at_end: "transcript",
        deletes: false,
        reasons: &[],
        exceptions: &[&[(
            Step::Start,
            None,
            Expectation::Fails { why: "it only answers `initialize`", with: "session/new" },
        )]],
    },
];
