use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::AgentConfig;

/// A well-known agent that needs no configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The name by which clients choose it.
    pub name: &'static str,
    /// The program and its arguments; only the arguments for the built-in agent.
    command: &'static [&'static str],
    /// Its ids in the registry of the Agent Client Protocol, present and former, if they differ from the name.
    pub aliases: &'static [&'static str],
    /// The command that installs it; `None` for the built-in agent.
    pub install: Option<&'static str>,
}

/// All presets.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "claude",
        command: &["claude-agent-acp"],
        aliases: &["claude-acp", "claude-code-acp"],
        install: Some("parlor agents install claude"),
    },
    Preset {
        name: "codex",
        command: &["codex-acp"],
        aliases: &["codex-acp"],
        install: Some("parlor agents install codex"),
    },
    Preset {
        name: "gemini",
        command: &["gemini", "--acp"],
        aliases: &[],
        install: Some("parlor agents install gemini"),
    },
    Preset {
        name: "opencode",
        command: &["opencode", "acp"],
        aliases: &[],
        install: Some("parlor agents install opencode"),
    },
    Preset {
        name: "kimi",
        command: &["kimi", "acp"],
        aliases: &[],
        install: Some("parlor agents install kimi"),
    },
    Preset {
        name: "goose",
        command: &["goose", "acp"],
        aliases: &[],
        install: Some("brew install block-goose-cli"),
    },
    Preset { name: "demo", command: &["demo-agent"], aliases: &[], install: None },
];

impl Preset {
    /// The preset with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The name of the preset that has this alias; the same name if there is none.
    pub fn canonical_name(name: &str) -> &str {
        let preset = PRESETS.iter().find(|preset| preset.aliases.contains(&name));
        preset.map_or(name, |preset| preset.name)
    }

    /// Whether it is part of this program.
    pub const fn is_built_in(&self) -> bool {
        self.install.is_none()
    }

    /// The program and its arguments.
    pub fn command(&self) -> io::Result<Vec<String>> {
        let own =
            if self.is_built_in() { Some(env::current_exe()?.to_string_lossy().into_owned()) } else { None };
        Ok(own.into_iter().chain(self.command.iter().map(|&word| word.to_owned())).collect())
    }

    /// The configuration of the agent.
    pub fn agent(&self) -> io::Result<AgentConfig> {
        Ok(AgentConfig::new(self.name, self.command()?))
    }
}

/// The path of the preset's program, if it is installed in a directory of `path_env` (the variable `PATH`).
pub fn installed(preset: &Preset, path_env: &OsStr) -> Option<PathBuf> {
    if preset.is_built_in() {
        return env::current_exe().ok();
    }
    program_at(preset.command.first()?, path_env)
}

/// The path of a program: a name is searched in the directories of `path_env`, a path is only checked.
pub fn program_at(program: &str, path_env: &OsStr) -> Option<PathBuf> {
    let is_executable = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_executable);
    }
    env::split_paths(path_env).map(|directory| directory.join(program)).find(is_executable)
}
