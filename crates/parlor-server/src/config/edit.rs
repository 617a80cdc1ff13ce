//! Changes `config.toml` and keeps everything else in it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use toml::Spanned;

use super::{Config, ConfigError};

/// The setting that is changed.
#[derive(serde::Deserialize)]
struct DefaultAgentOnly {
    default_agent: Option<Spanned<String>>,
}

/// Sets `default_agent` in the text of a file. Comments, order and all other settings stay as they are.
pub fn with_default_agent(text: &str, name: &str, path: &Path) -> Result<String, ConfigError> {
    // Rejects a file that the server would reject, with the line.
    Config::parse(text, path)?;
    let found = toml::from_str::<DefaultAgentOnly>(text).ok().and_then(|file| file.default_agent);
    let value = toml_string(name);
    Ok(match found {
        Some(found) => {
            let span = found.span();
            format!("{}{value}{}", &text[..span.start], &text[span.end..])
        }
        None if text.trim().is_empty() => format!("default_agent = {value}\n"),
        // Before the first table, whose settings would otherwise follow it.
        None => format!("default_agent = {value}\n\n{text}"),
    })
}

/// Sets `default_agent` in a file, which is created if it does not exist. The file is replaced as a whole, or not at all.
pub fn set_default_agent(path: &Path, name: &str) -> Result<(), ConfigError> {
    let failed = |action: &str, error: &io::Error| ConfigError {
        location: path.display().to_string(),
        message: format!("cannot {action} the configuration file: {error}"),
        hint: None,
    };
    // A link stays a link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let text = match fs::read_to_string(&target) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read", &error)),
    };
    let changed = with_default_agent(&text, name, path)?;
    // A new file may get secrets later.
    let mode = fs::metadata(&target).map_or(0o600, |found| found.permissions().mode() & 0o7777);
    replace(&target, &changed, mode).map_err(|error| failed("write", &error))
}

fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(directory)?;
    let temporary = path.with_extension(format!("toml.{}", std::process::id()));
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary);
    let written = written.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A name of an agent as a TOML string.
fn toml_string(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_replaced_and_everything_else_stays() {
        for (before, after) in [
            ("", "default_agent = \"codex\"\n"),
            ("\n", "default_agent = \"codex\"\n"),
            (
                "# Mine\ndefault_agent = 'claude' # for now\n\n[server]\nlisten = \"127.0.0.1:1\"\n",
                "# Mine\ndefault_agent = \"codex\" # for now\n\n[server]\nlisten = \"127.0.0.1:1\"\n",
            ),
            (
                "# The agents\n[agents.mine]\ncommand = [\n  \"a\", # [x]\n]\n",
                "default_agent = \"codex\"\n\n# The agents\n[agents.mine]\ncommand = [\n  \"a\", # [x]\n]\n",
            ),
            (
                "agents.default_agent.command = 'default_agent = 1'\r\ndefault_agent=\"\"\"x\"\"\"\r\n",
                "agents.default_agent.command = 'default_agent = 1'\r\ndefault_agent=\"codex\"\r\n",
            ),
        ] {
            let changed = with_default_agent(before, "codex", "c.toml".as_ref()).unwrap();
            assert_eq!(changed, after);
            assert_eq!(
                Config::parse(&changed, "c.toml".as_ref()).unwrap().default_agent.as_deref(),
                Some("codex")
            );
        }
    }

    #[test]
    fn an_invalid_file_is_not_changed() {
        for text in ["default_agent = ", "unknown = 1\n", "[server]\nlisten = 7\n"] {
            let error = with_default_agent(text, "codex", "c.toml".as_ref()).unwrap_err();
            assert!(error.location.starts_with("c.toml"), "{error}");
        }
    }
}
