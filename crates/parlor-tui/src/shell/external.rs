//! Programs that use the terminal in place of the client: editor, pager, browser.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Event;
use crate::clean::Clean;

/// A file that is removed when it is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn create(text: &str, extension: &str) -> std::io::Result<Self> {
        let nanos = jiff::Timestamp::now().as_nanosecond();
        let path = std::env::temp_dir().join(format!("parlor-{}-{nanos}.{extension}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        let created = Self(path);
        file.write_all(text.as_bytes())?;
        Ok(created)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The first of some variables that is set, or a default.
fn program(variables: &[&str], default: &str) -> String {
    let mut set = variables.iter().filter_map(|name| std::env::var(name).ok());
    set.find(|program| !program.trim().is_empty()).unwrap_or_else(|| default.to_owned())
}

/// Runs a program, which may have arguments, with a file.
fn run(program: &str, file: &TemporaryFile) -> Result<(), String> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{program} \"$1\""), "sh"]).arg(&file.0);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} failed: {status}")),
        Err(error) => Err(format!("cannot start {program}: {error}")),
    }
}

/// Opens a text in the editor and returns what was saved.
pub(super) fn edit(text: &str) -> Result<String, String> {
    let file = TemporaryFile::create(text, "md")
        .map_err(|error| format!("cannot write a temporary file: {error}"))?;
    run(&program(&["VISUAL", "EDITOR"], "vi"), &file)?;
    std::fs::read_to_string(&file.0).map_err(|error| format!("cannot read what was edited: {error}"))
}

/// Shows a text in the pager. Control characters are visible, also in a pager that would pass them on.
pub(super) fn page(text: &str) -> Result<(), String> {
    let clean: String = Clean::lines(text).iter().map(|line| format!("{line}\n")).collect();
    let file = TemporaryFile::create(&clean, "txt")
        .map_err(|error| format!("cannot write a temporary file: {error}"))?;
    run(&program(&["PAGER"], "less"), &file)
}

/// Runs the login of an agent.
pub(super) fn login(command: &[String], agent: &str) -> Result<(), String> {
    let Some((program, args)) = command.split_first() else {
        return Err(format!("log in with `parlor login {agent}` where the server runs"));
    };
    match Command::new(program).args(args).arg(agent).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => {
            // What the login printed can be read before the client takes the terminal again.
            let _ = std::io::stdout().write_all(b"\nEnter goes back to parlor.\n");
            let _ = std::io::stdin().read_line(&mut String::new());
            Err(format!("the login to {agent} did not succeed"))
        }
        Err(error) => Err(format!("cannot start {program}: {error}")),
    }
}

/// Opens a link in the browser. Only `http` and `https` are opened.
pub(super) fn open_link(url: &str) -> Event {
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    let browser = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(browser);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match is_web.then(|| command.spawn()) {
        None => Event::Failed("Only http and https links are opened".to_owned()),
        Some(Ok(mut child)) => {
            std::thread::spawn(move || child.wait());
            Event::Note("Opened in the browser".to_owned())
        }
        Some(Err(_)) => Event::Failed(format!("There is no {browser}: y copies the link")),
    }
}
