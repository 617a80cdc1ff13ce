//! Settings that have editors use parlor as their agent.

use std::ffi::OsStr;

use clap::ValueEnum;
use parlor_server::config::program_at;

/// An editor, or a plugin of one, that speaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Editor {
    Zed,
    Jetbrains,
    Neovim,
    Emacs,
    #[value(name = "vscode")]
    VsCode,
}

/// The path of parlor in the snippets of editors that need a whole path.
const PLACEHOLDER: &str = "/usr/local/bin/parlor";

impl Editor {
    /// The name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Zed => "Zed",
            Self::Jetbrains => "JetBrains",
            Self::Neovim => "Neovim",
            Self::Emacs => "Emacs",
            Self::VsCode => "VS Code",
        }
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zed => "zed",
            Self::Jetbrains => "jetbrains",
            Self::Neovim => "neovim",
            Self::Emacs => "emacs",
            Self::VsCode => "vscode",
        }
    }

    /// Where the snippet belongs.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Self::Zed => "add to settings.json (`zed: open settings`)",
            Self::Jetbrains => "add to ~/.jetbrains/acp.json",
            Self::Neovim => "with the plugin avante.nvim, in init.lua",
            Self::Emacs => "with the package agent-shell, in init.el",
            Self::VsCode => "with the extension ACP Client (formulahendry.acp-client), in settings.json",
        }
    }

    /// The settings. `exe` is the path of parlor.
    pub(crate) fn snippet(self, exe: &str) -> String {
        let snippet = match self {
            Self::Zed => ZED,
            Self::Jetbrains => JETBRAINS,
            Self::Neovim => NEOVIM,
            Self::Emacs => EMACS,
            Self::VsCode => VS_CODE,
        };
        snippet.replace(PLACEHOLDER, exe)
    }

    /// The editors whose programs are in `path_env` (the variable `PATH`).
    pub(crate) fn installed(path_env: &OsStr) -> Vec<Self> {
        let is_installed = |editor: &Self| {
            let programs: &[&str] = match editor {
                Self::Zed => &["zed", "zeditor"],
                Self::Jetbrains => &["idea", "pycharm", "webstorm", "goland", "rustrover", "clion"],
                Self::Neovim => &["nvim"],
                Self::Emacs => &["emacs"],
                Self::VsCode => &["code", "codium"],
            };
            programs.iter().any(|program| program_at(program, path_env).is_some())
        };
        Self::value_variants().iter().copied().filter(is_installed).collect()
    }
}

const ZED: &str = r#"{
  "agent_servers": {
    "parlor": { "type": "custom", "command": "parlor", "args": ["acp"] }
  }
}"#;

const JETBRAINS: &str = r#"{
  "agent_servers": {
    "parlor": { "command": "/usr/local/bin/parlor", "args": ["acp"] }
  }
}"#;

const NEOVIM: &str = r#"require("avante").setup({
  provider = "parlor",
  acp_providers = {
    parlor = { command = "parlor", args = { "acp" } },
  },
})"#;

const EMACS: &str = r#"(with-eval-after-load 'agent-shell
  (add-to-list 'agent-shell-agent-configs
               (agent-shell-make-agent-config
                :identifier 'parlor
                :mode-line-name "parlor"
                :buffer-name "parlor"
                :shell-prompt "parlor> "
                :shell-prompt-regexp "parlor> "
                :client-maker (lambda (buffer)
                                (acp-make-client :command "parlor"
                                                 :command-params '("acp")
                                                 :context-buffer buffer)))))"#;

const VS_CODE: &str = r#"{
  "acp.agents": {
    "parlor": { "command": "parlor", "args": ["acp"] }
  }
}"#;
