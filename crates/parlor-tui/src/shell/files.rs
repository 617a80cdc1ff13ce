//! The files of a directory for completion.

use std::path::Path;

use tokio::sync::mpsc;

use crate::Event;

/// How many files are listed.
const MAX_FILES: usize = 20_000;

/// Lists the files of a directory without those that `.gitignore` names, in the background.
pub(super) fn list(cwd: String, events: mpsc::Sender<Event>) {
    tokio::task::spawn_blocking(move || {
        let _ = events.blocking_send(Event::Files(files_of(Path::new(&cwd))));
    });
}

fn files_of(directory: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(directory).require_git(false).build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let relative =
        files.filter_map(|entry| Some(entry.path().strip_prefix(directory).ok()?.to_str()?.to_owned()));
    let mut files: Vec<_> = relative.take(MAX_FILES).collect();
    files.sort_unstable();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_files_are_not_listed() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".gitignore", "target\n*.log\n");
        write("src/main.rs", "");
        write("target/debug/main", "");
        write("trace.log", "");
        assert_eq!(files_of(directory.path()), ["src/main.rs"]);
    }
}
