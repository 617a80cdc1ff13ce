//! Tokio runtimes.

use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::command_error::CommandError;

/// A runtime with a thread per core, for a server and for commands that follow a turn.
pub(crate) fn multi_threaded() -> Result<Runtime, CommandError> {
    Builder::new_multi_thread().enable_all().build().map_err(|error| start_error(&error))
}

/// A runtime on the current thread, for commands that relay lines or send single requests.
pub(crate) fn single_threaded() -> Result<Runtime, CommandError> {
    Builder::new_current_thread().enable_all().build().map_err(|error| start_error(&error))
}

fn start_error(error: &io::Error) -> CommandError {
    CommandError::failed(format_args!("cannot start the async runtime: {error}"))
}
