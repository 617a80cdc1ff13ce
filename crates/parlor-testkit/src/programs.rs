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
    to_text(path).ok_or_else(|| format!("the path of {program} is no text"))
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
    is_up_to_date(&path).ok().filter(|is| *is).map(|_| path)
}

/// Whether a program is newer than all that it was made of, as far as cargo lists it.
fn is_up_to_date(program: &Path) -> io::Result<bool> {
    let built = modified(program)?;
    // One line: the program, a colon, and the sources with a space before each; spaces in paths have a backslash.
    let list = fs::read_to_string(program.with_extension("d"))?.replace("\\ ", "\0");
    let sources = list.split_whitespace().skip(1).map(|source| source.replace('\0', " "));
    let manifests = ["Cargo.toml", "Cargo.lock"].map(|name| format!("{WORKSPACE}/{name}"));
    for source in sources.chain(manifests) {
        if modified(Path::new(&source))? > built {
            return Ok(false);
        }
    }
    Ok(true)
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
        let (program, [first, second]) = (at("program"), ["a source.rs", "other.rs"].map(at));
        assert!(is_up_to_date(&program).is_err(), "there is no program");
        for path in [&first, &second, &program] {
            fs::write(path, "").unwrap();
        }
        assert!(is_up_to_date(&program).is_err(), "nobody knows its sources");
        let escaped = first.to_str().unwrap().replace(' ', "\\ ");
        let list = format!("{}: {escaped} {}\n", program.display(), second.display());
        fs::write(at("program.d"), list).unwrap();
        assert!(is_up_to_date(&program).unwrap());
        for source in [&first, &second] {
            let later = modified(&program).unwrap() + std::time::Duration::from_secs(1);
            fs::File::open(source).unwrap().set_modified(later).unwrap();
            assert!(!is_up_to_date(&program).unwrap());
            fs::File::open(source).unwrap().set_modified(modified(&program).unwrap()).unwrap();
            assert!(is_up_to_date(&program).unwrap());
        }
        fs::remove_file(&second).unwrap();
        assert!(is_up_to_date(&program).is_err(), "a source is gone");
    }
}
