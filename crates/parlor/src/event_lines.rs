//! Updates of a session as lines of JSON, for programs.

use parlor_dialect::live::{EncodeContext, UpdateEncoder};
use parlor_dialect::{Dialect, Losses};
use parlor_json::Object;
use parlor_session::{MessageId, Transcript, Update};

use crate::command_error::CommandError;
use crate::output;

/// Prints each update as a session update of protocol version 2, in the format that `parlor fold` reads.
pub(crate) struct EventLines {
    encoder: UpdateEncoder,
}

impl EventLines {
    pub(crate) fn new() -> Self {
        Self { encoder: UpdateEncoder::new(Dialect::V2, &Object::default()).with_events() }
    }

    /// Prints an update that was applied to the transcript.
    pub(crate) fn print(&mut self, update: &Update, transcript: &Transcript) -> Result<(), CommandError> {
        let mut losses = Losses::default();
        let mut new_id = || -> MessageId { unreachable!("version 2 needs no new ids") };
        let context = EncodeContext { from: Dialect::V2, transcript, meta_before: None };
        for line in self.encoder.encode(update, context, &mut new_id, &mut losses) {
            output::print_raw_json(&(line + "\n"))?;
        }
        Ok(())
    }
}
