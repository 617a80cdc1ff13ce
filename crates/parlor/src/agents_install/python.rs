//! Installs a Python package into a virtual environment.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use parlor_process::Reaper;

use super::registry::Package;
use super::tool::Tool;
use super::{InstalledProgram, cannot};
use crate::command_error::CommandError;

/// The directory of the virtual environment.
const VENV: &str = "venv";

/// Installs a package with uv, or with pip if there is no uv.
pub(super) async fn install(
    package: &Package,
    version: &str,
    directory: &Path,
    reaper: &Reaper,
) -> Result<InstalledProgram, CommandError> {
    let requirement = Requirement::parse(&package.spec, version)?;
    let spec = requirement.spec();
    let venv = directory.join(VENV);
    let python = venv.join("bin/python");
    let arg = OsStr::new;
    if let Some(uv) = Tool::find("uv", reaper) {
        uv.run(&[arg("venv"), arg("--quiet"), venv.as_os_str()], directory).await?;
        let args = [
            arg("pip"),
            arg("install"),
            arg("--quiet"),
            arg("--python"),
            python.as_os_str(),
            arg("--"),
            arg(&spec),
        ];
        uv.run(&args, directory).await?;
    } else {
        let python3 = Tool::find("python3", reaper).ok_or_else(|| {
            CommandError::failed("neither uv nor python3 is in PATH")
                .hint("install uv or Python 3, and try again")
        })?;
        python3.run(&[arg("-m"), arg("venv"), venv.as_os_str()], directory).await.map_err(|error| {
            error.hint("some systems have the module venv in a package of its own, such as python3-venv")
        })?;
        let pip = Tool::at("pip", &python, reaper);
        let args =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--", &spec];
        pip.run(&args.map(OsStr::new), directory).await?;
    }
    let cmd = package.cmd.as_deref().unwrap_or(requirement.name);
    if Path::new(cmd).file_name() != Some(OsStr::new(cmd)) {
        return Err(cannot(format_args!("'{cmd}' is not the name of a program")));
    }
    let script = PathBuf::from(VENV).join("bin").join(cmd);
    let file = directory.join(&script);
    if !file.exists() {
        return Err(CommandError::failed(format_args!("the package {spec} has no program '{cmd}'")));
    }
    // A script names the interpreter by the path that it had during the installation, which is moved.
    let program =
        if is_script(&file) { vec![PathBuf::from(VENV).join("bin/python"), script] } else { vec![script] };
    Ok(InstalledProgram { package: spec, program })
}

fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

/// A package with a pinned version.
struct Requirement<'a> {
    name: &'a str,
    /// `[extra]`, or nothing.
    extras: &'a str,
    version: &'a str,
}

impl<'a> Requirement<'a> {
    /// Parses `name`, `name[extra]`, `name==version` or `name@version`; without a version, it is that of the agent.
    fn parse(package: &'a str, version: &'a str) -> Result<Self, CommandError> {
        let pinned = package.split_once("==").or_else(|| package.split_once('@'));
        let (full, version) = pinned.unwrap_or((package, version));
        let end = full.find('[').unwrap_or(full.len());
        let (name, extras) = full.split_at(end);
        let is_word = |word: &str, also: &[u8]| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || also.contains(&byte);
            word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.bytes().all(is_allowed)
        };
        let inner = extras.strip_prefix('[').and_then(|extras| extras.strip_suffix(']'));
        let has_valid_extras = extras.is_empty() || inner.is_some_and(|inner| is_word(inner, b"-_.,"));
        if is_word(name, b"-_.") && has_valid_extras && is_word(version, b".+!-") {
            return Ok(Self { name, extras, version });
        }
        Err(cannot(format_args!("'{package}' is not a Python package with a pinned version")))
    }

    fn spec(&self) -> String {
        format!("{}{}=={}", self.name, self.extras, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_pinned_and_addresses_and_options_are_rejected() {
        for (package, spec) in [
            ("a", "a==1.0"),
            ("a==2.0", "a==2.0"),
            ("a@2.0", "a==2.0"),
            ("a-b[acp,x]==2.0", "a-b[acp,x]==2.0"),
            ("a[acp]", "a[acp]==1.0"),
        ] {
            assert_eq!(Requirement::parse(package, "1.0").unwrap().spec(), spec);
        }
        for package in [
            "-r x",
            "--index-url=x",
            "a @ https://x.example/a.whl",
            "./a",
            "git+https://x.example/a",
            "a[",
            "a>=1",
            "a==*",
        ] {
            assert!(Requirement::parse(package, "1.0").is_err(), "{package}");
        }
    }
}
