//! Locates the programs of this workspace that tests start, and builds those that are missing or out of date.
//!
//! Cargo tells an integration test where the programs of its own package are, and no others. `cargo test --workspace`
//! builds all of them beside the tests; `cargo test --package parlor` builds only those of that package. So a program is
//! used as it is if it is newer than its sources, which cargo lists beside it, and built by cargo otherwise.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::SystemTime;
use std::{env, fs, io};

use serde_json::Value;

/// The root of the workspace.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// How programs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// For development.
    Dev,
    /// Optimised.
    Release,
}

impl Profile {
    /// The profile that this crate was built with.
    pub const fn current() -> Self {
        if cfg!(debug_assertions) { Self::Dev } else { Self::Release }
    }
}

/// The path of the test agent's program, which is up to date.
pub fn test_agent() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        // What the agent does not need takes long to build.
        let selection =
            ["--package", "parlor-testkit", "--bin", "parlor-test-agent", "--no-default-features"];
        find_or_build("parlor-test-agent", &selection).unwrap_or_else(|error| panic!("{error}"))
    });
    &PATH
}

/// The path of an example of any package, which is up to date.
pub fn example(name: &str) -> String {
    static BUILT: LazyLock<HashMap<String, PathBuf>> = LazyLock::new(|| {
        let built = cargo_build(&["--quiet", "--workspace", "--examples"], Profile::current());
        built.unwrap_or_else(|error| panic!("{error}"))
    });
    let found = beside_this_program(&format!("examples/{name}"));
    let path = found.or_else(|| BUILT.get(name).cloned());
    path.and_then(to_text).unwrap_or_else(|| panic!("there is no example {name}"))
}

/// The path of a program of a package of this workspace, which is up to date and built with the profile of this crate.
pub fn find(package: &str, program: &str) -> Result<String, String> {
    find_or_build(program, &["--package", package, "--bin", program])
}

fn find_or_build(program: &str, selection: &[&str]) -> Result<String, String> {
    let path = match beside_this_program(program) {
        Some(path) => path,
        None => build_one(program, &[&["--quiet"], selection].concat(), Profile::current())?,
    };
    to_text(path).ok_or_else(|| format!("the path of {program} is not text"))
}

/// Builds a program of a package of this workspace, unless it is up to date, and returns its path.
pub fn build(package: &str, program: &str, profile: Profile) -> Result<PathBuf, String> {
    build_one(program, &["--package", package, "--bin", program], profile)
}

fn build_one(program: &str, selection: &[&str], profile: Profile) -> Result<PathBuf, String> {
    let mut built = cargo_build(selection, profile)?;
    built.remove(program).ok_or_else(|| format!("cargo did not say where it put {program}"))
}

/// Has cargo build what `selection` says: the names of the programs with their paths.
fn cargo_build(selection: &[&str], profile: Profile) -> Result<HashMap<String, PathBuf>, String> {
    let what = selection.join(" ");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()));
    cargo.args(["build", "--message-format", "json-render-diagnostics", "--manifest-path"]);
    cargo.arg(Path::new(WORKSPACE).join("Cargo.toml")).args(selection);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    // Build scripts that look at what cargo sets for a test would run again.
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_package)) {
        cargo.env_remove(name);
    }
    // As would those that look at this, which `.ci/report-time` sets for the test program.
    cargo.env_remove("RUSTC_BOOTSTRAP");
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run cargo build {what}: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo build {what} failed: {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter_map(|message| {
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    });
    Ok(programs.collect())
}

/// A program of the same profile that is newer than its sources.
fn beside_this_program(name: &str) -> Option<PathBuf> {
    let this = env::current_exe().ok()?;
    let folder = this.parent()?;
    // Tests are in a folder of their own.
    let folder = if folder.ends_with("deps") { folder.parent()? } else { folder };
    let path = folder.join(name);
    let root = Path::new(WORKSPACE).canonicalize().ok()?;
    is_up_to_date(&path, &root).unwrap_or(false).then_some(path)
}

/// Whether a program was made of the sources below `root` and is newer than all of them, as far as cargo lists them.
fn is_up_to_date(program: &Path, root: &Path) -> io::Result<bool> {
    let built = modified(program)?;
    // One line: the program, a colon, and the sources with a space before each; spaces in paths have a backslash.
    let list = fs::read_to_string(program.with_extension("d"))?.replace("\\ ", "\0");
    let sources: Vec<_> = list.split_whitespace().skip(1).map(|source| source.replace('\0', " ")).collect();
    // Another checkout may share the target directory.
    let mut is_up_to_date = sources.iter().any(|source| Path::new(source).starts_with(root));
    for source in sources {
        is_up_to_date &= modified(Path::new(&source))? <= built;
    }
    for manifest in ["Cargo.toml", "Cargo.lock"] {
        is_up_to_date &= modified(&root.join(manifest))? <= built;
    }
    Ok(is_up_to_date)
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

fn to_text(path: PathBuf) -> Option<String> {
    path.into_os_string().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_up_to_date_until_one_of_its_sources_changes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let sources = ["a source.rs", "other.rs", "Cargo.toml", "Cargo.lock"].map(at);
        let program = at("program");
        let is_fresh = || is_up_to_date(&program, folder.path());
        assert!(is_fresh().is_err(), "there is no program");
        for path in sources.iter().chain([&program]) {
            fs::write(path, "").unwrap();
        }
        assert!(is_fresh().is_err(), "nobody knows its sources");
        let escaped = sources[0].to_str().unwrap().replace(' ', "\\ ");
        fs::write(at("program.d"), format!("program: {escaped} {}\n", sources[1].display())).unwrap();
        assert!(is_fresh().unwrap());
        let built = modified(&program).unwrap();
        for source in &sources {
            let touch = |at| fs::File::open(source).unwrap().set_modified(at).unwrap();
            touch(built + std::time::Duration::from_secs(1));
            assert!(!is_fresh().unwrap(), "{}", source.display());
            touch(built);
            assert!(is_fresh().unwrap());
        }
        fs::create_dir(at("elsewhere")).unwrap();
        for manifest in ["elsewhere/Cargo.toml", "elsewhere/Cargo.lock"] {
            fs::write(at(manifest), "").unwrap();
            fs::File::open(at(manifest)).unwrap().set_modified(built).unwrap();
        }
        assert!(!is_up_to_date(&program, &at("elsewhere")).unwrap(), "it was built in another checkout");
        fs::remove_file(&sources[1]).unwrap();
        assert!(is_fresh().is_err(), "a source is gone");
    }
}
