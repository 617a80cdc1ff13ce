//! Completes the path of a directory that a person types.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;

use super::new_session::expanded;

/// Directories that are offered.
const MAX_DIRECTORIES: usize = 50;

/// Entries of a directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// How long a disk may take.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a path.
const MAX_PATH: usize = 4096;

/// The directories that begin with what was typed, in the same form. The user of the server may read all of them.
pub(super) async fn complete(typed: String) -> Vec<String> {
    let reading = tokio::task::spawn_blocking(move || read(&typed));
    timeout(READ_TIMEOUT, reading).await.ok().and_then(Result::ok).unwrap_or_default()
}

fn read(typed: &str) -> Vec<String> {
    // What comes after the last slash is the beginning of a name.
    let (parent, start) = match typed.rsplit_once('/') {
        _ if typed.len() > MAX_PATH => return Vec::new(),
        Some((parent, start)) => (format!("{parent}/"), start.to_lowercase()),
        None if typed == "~" => ("~/".to_owned(), String::new()),
        None => return Vec::new(),
    };
    let Some(entries) = expanded(&parent).and_then(|path: PathBuf| std::fs::read_dir(path).ok()) else {
        return Vec::new();
    };
    let mut found: Vec<String> = entries
        .take(MAX_ENTRIES)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_wanted =
                name.to_lowercase().starts_with(&start) && (!name.starts_with('.') || start.starts_with('.'));
            // A link to a directory is one.
            (is_wanted && entry.path().is_dir()).then(|| format!("{parent}{name}/"))
        })
        .collect();
    found.sort_unstable();
    found.truncate(MAX_DIRECTORIES);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_begin_with_the_name_are_found() {
        let root = tempfile::tempdir().unwrap();
        for name in ["alpha", "Alpine", "beta", ".hidden"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        std::fs::write(root.path().join("almanac.txt"), "").unwrap();
        std::os::unix::fs::symlink(root.path().join("beta"), root.path().join("alias")).unwrap();
        let typed = |end: &str| format!("{}/{end}", root.path().display());
        let found =
            |end: &str| read(&typed(end)).iter().map(|path| path.replace(&typed(""), "")).collect::<Vec<_>>();
        assert_eq!(found("al"), ["Alpine/", "alias/", "alpha/"]);
        assert_eq!(found(""), ["Alpine/", "alias/", "alpha/", "beta/"]);
        assert_eq!(found("."), [".hidden/"]);
        assert!(found("nothing/").is_empty());
        for bad in ["", "al", "../x", "~root/", &"/x".repeat(MAX_PATH)] {
            assert!(read(bad).is_empty(), "{bad}");
        }
        for index in 0..MAX_DIRECTORIES + 5 {
            std::fs::create_dir(root.path().join(format!("many{index}"))).unwrap();
        }
        assert_eq!(found("many").len(), MAX_DIRECTORIES);
    }
}
