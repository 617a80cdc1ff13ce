//! The files of a session's directory, for completion.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Feed;

/// Files of a directory that are listed for completion.
const MAX_LISTED_FILES: usize = 20_000;

/// How long a list of files is used.
const FILES_AGE: Duration = Duration::from_secs(10);

impl Feed {
    /// The files of the session's directory without those that `.gitignore` names, for completion.
    pub(in crate::page) async fn files(&self) -> Arc<Vec<String>> {
        let mut known = self.files.lock().await;
        if let Some((at, files)) = &*known
            && at.elapsed() < FILES_AGE
        {
            return Arc::clone(files);
        }
        let cwd = self.row.cwd.clone();
        let listed = tokio::task::spawn_blocking(move || files_of(Path::new(&cwd))).await;
        let files = Arc::new(listed.unwrap_or_default());
        *known = Some((tokio::time::Instant::now(), Arc::clone(&files)));
        files
    }
}

fn files_of(directory: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(directory).require_git(false).build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let relative =
        files.filter_map(|entry| Some(entry.path().strip_prefix(directory).ok()?.to_str()?.to_owned()));
    relative.take(MAX_LISTED_FILES).collect()
}
