//! One session of a translator.

use std::collections::HashSet;

use parlor_json::{Members, Object};
use parlor_session::{
    Entry, EntryId, IdSource, Patch, Refused, SessionId, Slot, Target, Transcript, Update, Upsert,
};
use serde_json::value::RawValue;

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
    /// The session so far, its messages without their content.
    pub(super) transcript: Transcript,
    pub(super) peer: V1PeerState,
    /// Messages that a v2 client has from before the agent began to replay the session: v1 replays in chunks,
    /// which must not be added to what is there.
    pub(super) stale: HashSet<EntryId>,
    pub(super) turns: Turns,
    pub(super) generated: GeneratedIds,
}

/// What a session needs to handle a line, and where the resulting lines go.
pub(super) struct SessionOutput<'a> {
    pub(super) id: &'a SessionId,
    pub(super) agent: Way,
    /// Whether both sides of the conversation are seen, so that turns are known.
    pub(super) is_two_sided: bool,
    pub(super) features: Features,
    /// How many ids were generated.
    pub(super) generated: &'a mut u64,
    pub(super) out: &'a mut Output,
}

/// What a line says beside its update: members of its params and of the message itself.
#[derive(Debug, Default)]
pub(super) struct LineExtras {
    pub(super) params: String,
    pub(super) message: String,
}

impl LineExtras {
    pub(super) fn new(params: &[(&str, &RawValue)], message: &[(&RawValue, &RawValue)]) -> Self {
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

    /// The agent sent an update.
    pub(super) fn on_update(
        &mut self,
        update: Members<'_>,
        mut extras: LineExtras,
        out: &mut SessionOutput<'_>,
    ) -> Result<(), LineProblem> {
        let Self { decoder, generated, transcript, .. } = self;
        let new_id = &mut || generated.new_id(transcript, "parlor", out.generated);
        let Decoded { update, naming, ignored } =
            decoder.decode_members(update, new_id).map_err(LineProblem::BadUpdate)?;
        if !ignored.is_empty() {
            out.out.problems.push(LineProblem::Ignored(ignored));
        }
        let update = if out.is_two_sided {
            self.without_prompts(update, naming, &mut extras, out)
        } else {
            Some(update)
        };
        let Some(update) = update else { return Ok(()) };
        let is_state = matches!(update, Update::State(_));
        self.send_update(update, naming, &extras, out)?;
        if is_state && out.agent.to == Dialect::V1 {
            self.respond_to_ended(out);
        }
        Ok(())
    }

    /// Applies an update and sends it to the client.
    pub(super) fn send_update(
        &mut self,
        mut update: Update,
        naming: IdSource,
        extras: &LineExtras,
        out: &mut SessionOutput<'_>,
    ) -> Result<(), LineProblem> {
        let Self { generated, transcript, turns, .. } = self;
        if let Some((ours, theirs)) = generated.set_apart(&mut update, naming, transcript, out.generated) {
            turns.add_alias(ours, theirs);
        }
        let meta_before = self.take(&update, naming).map_err(LineProblem::Refused)?;
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
                updates.extend(stale_cleared(update, stale));
                updates.extend(v2::updates(update, to, &mut cx));
            }
        }
        let none = LineExtras::default();
        for (place, update) in updates.iter().enumerate() {
            let extras = if place == 0 { extras } else { &none };
            out.out.say(Side::Agent, notification(out.id, update, extras));
        }
        Ok(())
    }

    /// Takes an update, a message without its content: that is not needed to say what comes later. Returns the metadata
    /// that the update patches.
    fn take(&mut self, update: &Update, naming: IdSource) -> Result<Option<Object>, Refused> {
        if let Update::Append { entry: entry @ EntryId::Message(role, id), .. } = update
            && self.transcript.get(entry).is_some()
        {
            self.decoder.on_message_applied(*role, id, naming);
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
        self.decoder.on_applied(&change, naming);
        Ok(change.meta_before)
    }

    /// Adds a message to the transcript before the agent sends an update of it.
    pub(super) fn know(&mut self, message: EntryId) {
        let upsert = Upsert::default();
        // One that does not fit is new again with its first update.
        let _ = self.transcript.push(Update::Upsert { target: Target::Entry(message), upsert });
    }

    /// The client asked an agent of this dialect for all of the session again.
    pub(super) fn replays(&mut self, agent: Dialect) {
        self.peer.forget();
        if agent != Dialect::V1 {
            return;
        }
        let messages = self.transcript.entries().iter().map(Entry::id);
        self.stale = messages.filter(|id| matches!(id, EntryId::Message(..))).cloned().collect();
    }

    /// Remembers what a response said about a session.
    pub(super) fn learn(&mut self, slot: Slot, fields: Object) {
        let upsert = Upsert { fields, ..Upsert::default() };
        // What is too large to keep is too large to be an option; the next report will say so.
        let _ = self.transcript.push(Update::Upsert { target: Target::Slot(slot), upsert });
    }
}

/// The update that clears a message before the first chunk of its replay.
fn stale_cleared(update: &Update, stale: &mut HashSet<EntryId>) -> Option<String> {
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
