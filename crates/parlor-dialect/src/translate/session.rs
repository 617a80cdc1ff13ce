//! One session of a translator.

use std::collections::HashSet;

use parlor_json::{JsonRef, Members, Object};
use parlor_session::{
    Entry, EntryId, IdSource, Patch, SessionId, Slot, Target, Transcript, Update, UpdateError, Upsert,
};

use super::turns::Turns;
use super::{Output, Way, notification};
use crate::encode::v1::{Features, V1PeerState};
use crate::encode::{Context, v2};
use crate::fold::GeneratedIds;
use crate::{Decoded, Decoder, Dialect, LineProblem, LossKind, Side};

/// The state of one session in a translator.
#[derive(Debug)]
pub(super) struct TranslatedSession {
    pub(super) decoder: Decoder,
    /// The session's transcript; messages have no content.
    pub(super) transcript: Transcript,
    pub(super) peer: V1PeerState,
    /// Messages that a v2 client has from before the agent started to replay the session: the replayed v1 chunks must
    /// not be appended to them.
    pub(super) stale: HashSet<EntryId>,
    pub(super) turns: Turns,
    pub(super) generated: GeneratedIds,
}

/// The context that a session needs to handle a line, and its output.
pub(super) struct SessionOutput<'a> {
    pub(super) id: &'a SessionId,
    pub(super) agent: Way,
    /// Whether both sides of the conversation are translated, so that turns are known.
    pub(super) is_two_sided: bool,
    pub(super) features: Features,
    /// Number of ids that were generated.
    pub(super) generated: &'a mut u64,
    pub(super) out: &'a mut Output,
}

/// The members of a line beside its update: those of its params and of the message itself.
#[derive(Debug, Default)]
pub(super) struct LineExtras {
    pub(super) params: String,
    pub(super) message: String,
}

impl LineExtras {
    pub(super) fn new(params: &[(&str, JsonRef<'_>)], message: &[(JsonRef<'_>, JsonRef<'_>)]) -> Self {
        let params: Vec<_> = params.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
        let message: Vec<_> = message.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        Self { params: params.join(","), message: message.join(",") }
    }

    pub(super) fn len(&self) -> usize {
        self.params.len() + self.message.len()
    }
}

impl TranslatedSession {
    pub(super) fn new(agent: Dialect) -> Self {
        Self {
            decoder: Decoder::new(agent),
            transcript: Transcript::default(),
            peer: V1PeerState::default(),
            stale: HashSet::new(),
            turns: Turns::default(),
            generated: GeneratedIds::default(),
        }
    }

    /// Handles an update of the agent.
    pub(super) fn on_update(
        &mut self,
        update: Members<'_>,
        mut extras: LineExtras,
        out: &mut SessionOutput<'_>,
    ) -> Result<(), LineProblem> {
        let Self { decoder, generated, transcript, .. } = self;
        let new_id = &mut || generated.new_id(transcript, "parlor", out.generated);
        let Decoded { update, id_source, ignored } =
            decoder.decode_members(update, new_id).map_err(LineProblem::BadUpdate)?;
        if !ignored.is_empty() {
            out.out.problems.push(LineProblem::Ignored(ignored));
        }
        let update = if out.is_two_sided {
            self.without_prompts(update, id_source, &mut extras, out)
        } else {
            Some(update)
        };
        let Some(update) = update else { return Ok(()) };
        let is_state = matches!(update, Update::State(_));
        self.send_update(update, id_source, &extras, out)?;
        if is_state && out.agent.to == Dialect::V1 {
            self.respond_to_ended(out);
        }
        Ok(())
    }

    /// Applies an update and sends it to the client.
    pub(super) fn send_update(
        &mut self,
        mut update: Update,
        id_source: IdSource,
        extras: &LineExtras,
        out: &mut SessionOutput<'_>,
    ) -> Result<(), LineProblem> {
        let Self { generated, transcript, turns, .. } = self;
        if let Some((ours, theirs)) = generated.replace_id(&mut update, id_source, transcript, out.generated)
        {
            turns.add_alias(ours, theirs);
        }
        let meta_before = self.apply(&update, id_source).map_err(LineProblem::Rejected)?;
        let Self { transcript, peer, turns, stale, generated, .. } = self;
        let mut cx = Context {
            from: out.agent.from,
            transcript,
            meta_before: meta_before.as_ref(),
            new_id: &mut || generated.new_id(transcript, "parlor-alias", out.generated),
            losses: &mut out.out.losses,
        };
        let mut updates = Vec::new();
        match (&update, out.agent.to) {
            (Update::State(state), Dialect::V1) => {
                let implied = out.is_two_sided && turns.implies(state, cx.losses);
                if !implied {
                    cx.losses.add(LossKind::State);
                }
            }
            (update, Dialect::V1) => updates.extend(peer.updates(update, out.features, &mut cx)),
            (update, to @ (Dialect::V2 | Dialect::Draft)) => {
                updates.extend(clear_stale(update, stale));
                updates.extend(v2::updates(update, to, &mut cx));
            }
        }
        let none = LineExtras::default();
        for (index, update) in updates.iter().enumerate() {
            let extras = if index == 0 { extras } else { &none };
            out.out.say(Side::Agent, notification(out.id, update, extras));
        }
        Ok(())
    }

    /// Applies an update; a message without its content, which later updates do not need. Returns the metadata that
    /// the update patches.
    fn apply(&mut self, update: &Update, id_source: IdSource) -> Result<Option<Object>, UpdateError> {
        if let Update::Append { entry: entry @ EntryId::Message(role, id), .. } = update
            && self.transcript.get(entry).is_some()
        {
            self.decoder.on_message_applied(*role, id, id_source);
            return Ok(None);
        }
        let light = match update {
            Update::Append { entry: entry @ EntryId::Message(..), .. } => {
                Update::Upsert { target: Target::Entry(entry.clone()), upsert: Upsert::default() }
            }
            Update::Upsert { target: target @ Target::Entry(EntryId::Message(..)), upsert } => {
                let upsert = Upsert { content: Patch::Omitted, ..upsert.clone() };
                Update::Upsert { target: target.clone(), upsert }
            }
            Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => update.clone(),
        };
        let change = self.transcript.push(light)?;
        self.decoder.on_applied(&change, id_source);
        Ok(change.meta_before)
    }

    /// Adds a message to the transcript before the agent sends an update of it.
    pub(super) fn add_message(&mut self, message: EntryId) {
        let upsert = Upsert::default();
        // A message that does not fit is new again with its first update.
        let _ = self.transcript.push(Update::Upsert { target: Target::Entry(message), upsert });
    }

    /// Handles a client's request to an agent of this dialect to replay the session.
    pub(super) fn on_replay_requested(&mut self, agent: Dialect) {
        self.peer.reset();
        if agent != Dialect::V1 {
            return;
        }
        let messages = self.transcript.entries().iter().map(Entry::id);
        self.stale = messages.filter(|id| matches!(id, EntryId::Message(..))).cloned().collect();
    }

    /// Stores a slot from a response.
    pub(super) fn store_slot(&mut self, slot: Slot, fields: Object) {
        let upsert = Upsert { fields, ..Upsert::default() };
        // A slot that is too large is dropped; the next report shows it.
        let _ = self.transcript.push(Update::Upsert { target: Target::Slot(slot), upsert });
    }
}

/// The update that clears a message before the first chunk of its replay.
fn clear_stale(update: &Update, stale: &mut HashSet<EntryId>) -> Option<String> {
    if stale.is_empty() {
        return None;
    }
    match update {
        Update::Append { entry, .. } => stale.remove(entry).then(|| v2::cleared(entry)).flatten(),
        Update::Upsert { target: Target::Entry(entry), upsert } if !upsert.content.is_omitted() => {
            stale.remove(entry);
            None
        }
        Update::Upsert { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}
