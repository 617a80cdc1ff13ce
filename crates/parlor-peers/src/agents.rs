//! The agents of other projects: how they are started with the stand-in model, and what they cannot do.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::install::{self, Peers};
use crate::step::{Expectation, Step};

/// An agent.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    /// Its name in the table.
    pub name: &'static str,
    /// Its package and version.
    pub package: fn() -> String,
    /// The protocol versions that it speaks.
    pub versions: &'static [u8],
    /// Prepares its home directory; how it is started.
    pub launch: fn(&Place<'_>) -> Launch,
    /// How its model calls a tool: one that needs no permission, and one that does.
    pub tools: Option<Tools>,
    /// The mode in which it asks for permissions, if that is not its default.
    pub mode: Option<&'static str>,
    /// The steps that do not simply work, with a protocol version if it is only one.
    pub exceptions: &'static [(Step, Option<u8>, Expectation)],
}

/// The calls of tools that an agent's model makes: the name and the arguments.
#[derive(Debug, Clone, Copy)]
pub struct Tools {
    /// A call that needs no permission; the path is a file that exists.
    pub read: fn(&Path) -> (&'static str, Value),
    /// A call that needs a permission; the path is a file to write.
    pub write: fn(&Path) -> (&'static str, Value),
}

/// Where an agent runs.
#[derive(Debug)]
pub struct Place<'a> {
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
    /// Whether it uses the stand-in model.
    pub fn has_model(&self) -> bool {
        self.tools.is_some()
    }

    /// What a step must end with.
    pub fn expectation(&self, step: Step, version: u8) -> Expectation {
        let applies = |(of, only, _): &&(Step, Option<u8>, _)| *of == step && only.is_none_or(|only| only == version);
        self.exceptions.iter().find(applies).map_or(Expectation::Works, |(_, _, expectation)| *expectation)
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

fn claude(place: &Place<'_>) -> Launch {
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

fn codex(place: &Place<'_>) -> Launch {
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

fn gemini(place: &Place<'_>) -> Launch {
    let settings = json!({ "security": { "auth": { "selectedType": "gemini-api-key" } },
        "privacy": { "usageStatisticsEnabled": false }, "general": { "disableAutoUpdate": true } });
    write(place.home.join(".gemini/settings.json"), &settings.to_string());
    let mut command = vec![text(place.peers.node()), text(place.peers.npm("gemini"))];
    command.extend(["--acp", "--skip-trust"].map(str::to_owned));
    Launch { command, env: variables(&[("GOOGLE_GEMINI_BASE_URL", place.model), ("GEMINI_API_KEY", "none")]) }
}

fn opencode(place: &Place<'_>) -> Launch {
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

fn kimi(place: &Place<'_>) -> Launch {
    let config = format!(
        "default_model = \"standin/stand-in\"\n[providers.standin]\ntype = \"openai\"\napi_key = \"none\"\n\
         base_url = \"{}/v1\"\n[models.\"standin/stand-in\"]\nprovider = \"standin\"\nmodel = \"stand-in\"\n\
         max_context_size = 200000\n",
        place.model
    );
    write(place.home.join(".kimi-code/config.toml"), &config);
    Launch { command: vec![text(place.peers.node()), text(place.peers.npm("kimi")), "acp".to_owned()], env: Vec::new() }
}

/// All agents.
pub const AGENTS: &[Agent] = &[
    Agent {
        name: "claude-agent-acp",
        package: || npm("@agentclientprotocol/claude-agent-acp"),
        versions: &[1, 2],
        launch: claude,
        tools: Some(Tools {
            read: |path| ("Read", json!({ "file_path": path })),
            write: |path| ("Write", json!({ "file_path": path, "content": "written\n" })),
        }),
        mode: None,
        exceptions: &[],
    },
    Agent {
        name: "codex-acp",
        package: || npm("@agentclientprotocol/codex-acp"),
        versions: &[1, 2],
        launch: codex,
        tools: Some(Tools {
            read: |path| ("exec_command", json!({ "cmd": format!("cat {}", path.display()) })),
            write: |path| {
                let cmd = format!("echo written > {}", path.display());
                let why = "The test writes a file.";
                ("exec_command", json!({ "cmd": cmd, "sandbox_permissions": "require_escalated", "justification": why }))
            },
        }),
        // In its default mode another model decides.
        mode: Some("workspace-write"),
        exceptions: &[],
    },
    Agent {
        name: "gemini-cli",
        package: || npm("@google/gemini-cli"),
        versions: &[1],
        launch: gemini,
        tools: Some(Tools {
            read: |path| ("read_file", json!({ "file_path": path })),
            write: |path| ("run_shell_command", json!({ "command": format!("echo written > {}", path.display()) })),
        }),
        mode: None,
        exceptions: &[],
    },
    Agent {
        name: "opencode",
        package: || npm("opencode-ai"),
        versions: &[1],
        launch: opencode,
        tools: Some(Tools {
            read: |path| ("read", json!({ "filePath": path })),
            write: |path| ("write", json!({ "filePath": path, "content": "written\n" })),
        }),
        mode: None,
        exceptions: &[],
    },
    Agent {
        name: "kimi-code",
        package: || npm("@moonshot-ai/kimi-code"),
        versions: &[1],
        launch: kimi,
        tools: Some(Tools {
            read: |path| ("Read", json!({ "path": path })),
            write: |path| ("Write", json!({ "path": path, "content": "written\n" })),
        }),
        mode: None,
        exceptions: &[],
    },
];
