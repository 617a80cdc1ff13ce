//! Installs a package of npm.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_process::Reaper;
use serde::Deserialize;
use tokio::time::timeout;

use super::registry::Package;
use super::tool::Tool;
use super::{InstalledProgram, cannot};
use crate::command_error::CommandError;

/// The options of `npm install`. Scripts of packages are not run. A user's settings cannot move the installation elsewhere.
const OPTIONS: [&str; 12] = [
    "install",
    "--ignore-scripts",
    "--global=false",
    "--include=optional",
    "--omit=dev",
    "--prefer-offline",
    "--no-audit",
    "--no-fund",
    "--no-progress",
    "--no-update-notifier",
    "--loglevel=error",
    "--prefix",
];

/// How long a program may take to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// The part of `package.json` that decides how a package is started.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PackageJson {
    bin: Option<Bin>,
    #[serde(default)]
    engines: Engines,
    #[serde(default)]
    optional_dependencies: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    scripts: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    os: serde_json::Value,
}

#[derive(Deserialize, Default)]
struct Engines {
    node: Option<String>,
}

/// The programs of a package: one with its name, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Bin {
    Named(BTreeMap<String, String>),
    One(#[expect(dead_code, reason = "only its kind matters")] String),
}

/// Installs a package into a directory.
pub(super) async fn install(
    package: &Package,
    version: &str,
    directory: &Path,
    reaper: &Reaper,
) -> Result<InstalledProgram, CommandError> {
    let (name, version) = split(&package.spec, version)?;
    let missing = || {
        CommandError::failed("npm is not in PATH")
            .hint("install Node.js 22 or newer, which has npm, and try again")
    };
    let npm = Tool::find("npm", reaper).ok_or_else(missing)?;
    let node = Tool::find("node", reaper).ok_or_else(missing)?;
    let spec = format!("{name}@{version}");
    let mut args: Vec<&OsStr> = OPTIONS.iter().map(OsStr::new).collect();
    args.extend([directory.as_os_str(), OsStr::new("--"), OsStr::new(&spec)]);
    npm.run(&args, directory).await?;
    let modules = directory.join("node_modules");
    let manifest = read(&modules, name)
        .ok_or_else(|| CommandError::failed(format_args!("npm did not install the package {name}")))?;
    let cmd = program_name(package, name, &manifest)?;
    let platform = platform_programs(&modules, &manifest, &cmd);
    if let Some(program) = first_working(&platform, directory, reaper).await {
        // The other variants are as large, and never used.
        for unused in platform.iter().filter(|other| **other != program) {
            let _ = fs::remove_file(unused);
        }
        return Ok(InstalledProgram::new(spec, relative(directory, &program)));
    }
    if let Some(range) = &manifest.engines.node {
        let installed = node.run(&[OsStr::new("--version")], directory).await?;
        let installed = installed.trim().trim_start_matches('v');
        if !satisfies(installed, range) {
            let message = format!("{spec} needs node {range}, and node {installed} is in PATH");
            return Err(
                CommandError::failed(message).hint("install a newer version of Node.js and try again")
            );
        }
    }
    let program = modules.join(".bin").join(&cmd);
    if !program.exists() {
        return Err(CommandError::failed(format_args!("the package {spec} has no program '{cmd}'")));
    }
    Ok(InstalledProgram::new(spec, relative(directory, &program)))
}

/// The name and the pinned version of a package; without one, the version of the agent. Only names of the package server are
/// accepted, no addresses, files or options.
fn split<'a>(package: &'a str, version: &'a str) -> Result<(&'a str, &'a str), CommandError> {
    let (name, version) = match package.rsplit_once('@') {
        Some((name, version)) if !name.is_empty() => (name, version),
        Some(_) | None => (package, version),
    };
    let is_word = |word: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && word.bytes().all(is_allowed)
    };
    let is_name = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_word(scope) && is_word(name)),
        None => is_word(name),
    };
    let is_version = version.starts_with(|c: char| c.is_ascii_digit())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte));
    if is_name && is_version {
        return Ok((name, version));
    }
    Err(cannot(format_args!("'{package}' is not an npm package with a pinned version")))
}

fn read(modules: &Path, name: &str) -> Option<PackageJson> {
    let text = fs::read_to_string(modules.join(name).join("package.json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// The program of a package: that of the registry, else the one with the name of the package, else the only one, which may have
/// several names.
fn program_name(package: &Package, name: &str, manifest: &PackageJson) -> Result<String, CommandError> {
    let bare = name.rsplit('/').next().unwrap_or(name);
    if let Some(cmd) = &package.cmd {
        return match Path::new(cmd).file_name().and_then(OsStr::to_str) {
            Some(name) if name == cmd => Ok(cmd.clone()),
            Some(_) | None => Err(cannot(format_args!("'{cmd}' is not the name of a program"))),
        };
    }
    match &manifest.bin {
        Some(Bin::One(_)) => Ok(bare.to_owned()),
        Some(Bin::Named(programs)) => {
            let mut targets = programs.values();
            let target = targets.next();
            let is_one = targets.all(|other| Some(other) == target);
            match programs.keys().next() {
                _ if programs.contains_key(bare) => Ok(bare.to_owned()),
                Some(first) if is_one => Ok(first.clone()),
                _ => Err(cannot(format_args!(
                    "the package {name} has several programs, and the registry names none"
                ))),
            }
        }
        None => Err(cannot(format_args!("the package {name} has no program"))),
    }
}

/// The programs in the packages for this platform. A package whose install script would put one of them in the place of its own
/// program cannot be started without that script; the programs themselves can.
fn platform_programs(modules: &Path, manifest: &PackageJson, cmd: &str) -> Vec<PathBuf> {
    if !["preinstall", "install", "postinstall"].iter().any(|script| manifest.scripts.contains_key(*script)) {
        return Vec::new();
    }
    let mut names: Vec<_> = manifest.optional_dependencies.keys().collect();
    // The plain package comes first, then variants for older processors.
    names.sort_by_key(|name| name.len());
    let for_platform =
        names.into_iter().filter(|name| read(modules, name).is_some_and(|package| !package.os.is_null()));
    let programs = for_platform
        .flat_map(|name| [format!("bin/{cmd}"), cmd.to_owned()].map(|path| modules.join(name).join(path)));
    programs.filter(|file| is_executable(file)).collect()
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The first of several programs that runs on this machine.
async fn first_working(programs: &[PathBuf], directory: &Path, reaper: &Reaper) -> Option<PathBuf> {
    for program in programs {
        let tool = Tool::at("the program", program, reaper);
        let version = [OsStr::new("--version")];
        if matches!(timeout(VERSION_TIMEOUT, tool.run(&version, directory)).await, Ok(Ok(_))) {
            return Some(program.clone());
        }
    }
    None
}

fn relative(directory: &Path, program: &Path) -> PathBuf {
    program.strip_prefix(directory).unwrap_or(program).to_owned()
}

/// Whether a version of node is in a range such as `>=22.1`, `^20.19.0 || >=22` or `>=18 <21`. What cannot be parsed is accepted.
fn satisfies(version: &str, range: &str) -> bool {
    let Some(version) = numbers(version) else { return true };
    range.split("||").any(|alternative| {
        // Spaces between an operator and its version mean nothing.
        let alternative = alternative.replace("= ", "=").replace("> ", ">").replace("< ", "<");
        alternative.split_whitespace().all(|comparator| {
            let digits = comparator.trim_start_matches(['>', '<', '=', '^', '~', 'v']);
            let Some(wanted) = numbers(digits) else { return true };
            match &comparator[..comparator.len() - digits.len()] {
                ">=" => version >= wanted,
                ">" => version > wanted,
                "<" => version < wanted,
                "<=" => version <= wanted,
                "^" => version >= wanted && version[0] == wanted[0],
                "~" => version >= wanted && version[..2] == wanted[..2],
                "" | "v" => version[0] == wanted[0],
                _ => true,
            }
        })
    })
}

/// The three numbers of a version, of which the last two may be missing or `x`.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let version = version.split(['-', '+']).next()?;
    let mut numbers = [0; 3];
    for (index, (number, text)) in numbers.iter_mut().zip(version.split('.')).enumerate() {
        *number = if index > 0 && matches!(text, "x" | "X" | "*") { 0 } else { text.parse().ok()? };
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_packages_with_versions_are_accepted() {
        assert_eq!(split("@a/b@1.2.3", "9").unwrap(), ("@a/b", "1.2.3"));
        assert_eq!(split("@a/b", "1.2.3").unwrap(), ("@a/b", "1.2.3"));
        assert_eq!(split("b", "1.2.3-beta.1").unwrap(), ("b", "1.2.3-beta.1"));
        for package in [
            "--registry=x@1.0.0",
            "../b@1",
            "https://x.example/b.tgz",
            "git+ssh://x@1",
            "a b@1",
            "b@latest",
            "@b@1",
        ] {
            assert!(split(package, "1.0.0").is_err(), "{package}");
        }
    }

    #[test]
    fn the_version_of_node_is_compared_with_the_range_of_the_package() {
        for (version, range, fits) in [
            ("20.20.2", ">=22", false),
            ("22.0.0", ">=22", true),
            ("22.18.9", ">=22.19.0", false),
            ("22.19.0", ">= 22.19.0", true),
            ("20.19.5", "^20.19.0 || >=22.12.0", true),
            ("21.0.0", "^20.19.0 || >=22.12.0", false),
            ("20.1.0", ">=18 <20", false),
            ("20.1.0", "20.x", true),
            ("20.1.0", "*", true),
            ("20.1.0", "lts", true),
        ] {
            assert_eq!(satisfies(version, range), fits, "{version} {range}");
        }
    }
}
