use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::AgentConfig;

/// An agent that is known without being configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The name by which clients ask for it.
    pub name: &'static str,
    /// The program and its arguments; for the agent in this program, only the arguments.
    command: &'static [&'static str],
    /// How to install it; nothing if it comes with this program.
    pub install: Option<&'static str>,
    /// Where it comes from.
    pub home: &'static str,
}

/// All presets.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "claude",
        command: &["claude-agent-acp"],
        install: Some("npm install -g @agentclientprotocol/claude-agent-acp"),
        home: "https://github.com/agentclientprotocol/claude-agent-acp",
    },
    Preset {
        name: "codex",
        command: &["codex-acp"],
        install: Some("npm install -g @agentclientprotocol/codex-acp"),
        home: "https://github.com/agentclientprotocol/codex-acp",
    },
    Preset {
        name: "gemini",
        command: &["gemini", "--acp"],
        install: Some("npm install -g @google/gemini-cli"),
        home: "https://github.com/google-gemini/gemini-cli",
    },
    Preset {
        name: "opencode",
        command: &["opencode", "acp"],
        install: Some("npm install -g opencode-ai"),
        home: "https://opencode.ai",
    },
    Preset {
        name: "kimi",
        command: &["kimi", "acp"],
        install: Some("uv tool install kimi-cli"),
        home: "https://github.com/MoonshotAI/kimi-cli",
    },
    Preset {
        name: "goose",
        command: &["goose", "acp"],
        install: Some("brew install block-goose-cli"),
        home: "https://github.com/block/goose",
    },
    Preset { name: "demo", command: &["demo-agent"], install: None, home: "comes with parlor" },
];

impl Preset {
    /// The preset of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Whether it is this program itself.
    pub const fn is_built_in(&self) -> bool {
        self.install.is_none()
    }

    /// The program and its arguments.
    pub fn command(&self) -> io::Result<Vec<String>> {
        let own =
            if self.is_built_in() { Some(env::current_exe()?.to_string_lossy().into_owned()) } else { None };
        Ok(own.into_iter().chain(self.command.iter().map(|&word| word.to_owned())).collect())
    }

    /// The agent that it stands for.
    pub fn agent(&self) -> io::Result<AgentConfig> {
        Ok(AgentConfig::new(self.name, self.command()?))
    }
}

/// The preset's program along `path_env` (the variable `PATH`), if it is there.
pub fn installed(preset: &Preset, path_env: &OsStr) -> Option<PathBuf> {
    if preset.is_built_in() {
        return env::current_exe().ok();
    }
    program_at(preset.command.first()?, path_env)
}

/// Where a program is: a path is taken as it is, a name is looked for along `path_env`.
pub fn program_at(program: &str, path_env: &OsStr) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(runs);
    }
    env::split_paths(path_env).map(|directory| directory.join(program)).find(runs)
}
