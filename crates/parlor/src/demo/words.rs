//! Steps that only say something.

use super::say::{Block, Role, Voice};
use super::turn::{End, Turn};

impl Turn {
    /// Says something in a message of its own.
    pub(super) fn say(&mut self, text: &str) -> Result<(), End> {
        self.speak(Role::Agent, &self.agent.fresh_id(), text)
    }

    /// Streams words.
    pub(super) fn speak(&mut self, role: Role, id: &str, text: &str) -> Result<(), End> {
        for word in text.split_inclusive(' ') {
            self.check()?;
            self.words_said += 1;
            let block = Block::Text(word.to_owned());
            self.update(&self.voice.chunk(role, id, &block.to_json()));
            self.session.lock().saved.keep(role, id, block);
        }
        Ok(())
    }

    /// Says a block in a message of its own.
    pub(super) fn block(&self, block: Block) {
        let id = self.agent.fresh_id();
        self.update(&self.voice.chunk(Role::Agent, &id, &block.to_json()));
        self.session.lock().saved.keep(Role::Agent, &id, block);
    }

    /// Answers ordinary words.
    pub(super) fn chat(&mut self, words: &str) -> Result<(), End> {
        let with = self.other_blocks();
        let with = if with.is_empty() { String::new() } else { format!(" with {}", with.join(", ")) };
        self.say(&format!(
            "Hello! I am a demo agent. You said: \"{words}\"{with}. Say `help` to see what I can do."
        ))
    }

    /// What the agent knows about itself.
    pub(super) fn whoami(&self) -> String {
        let state = self.session.lock();
        let saved = &state.saved;
        let with = self.other_blocks();
        let with = if with.is_empty() { String::new() } else { format!(", prompt with {}", with.join(", ")) };
        format!(
            "session {} in {}, protocol {}, mode {}, model {}, {} messages{with}",
            saved.id,
            saved.cwd,
            self.voice.dialect,
            saved.mode,
            saved.model,
            saved.messages.len()
        )
    }

    /// Says something and takes it back.
    pub(super) fn redact(&mut self, clear: bool) -> Result<(), End> {
        if self.voice.is_v1() {
            return self.say("A v1 agent cannot take back what it said.");
        }
        let id = self.agent.fresh_id();
        self.speak(Role::Agent, &id, "The password is swordfish.")?;
        let content =
            if clear { Vec::new() } else { vec![Block::Text("The password is [redacted].".into())] };
        self.update(&Voice::message(Role::Agent, &id, (!clear).then_some(&content)));
        self.session.lock().saved.replace(Role::Agent, &id, content);
        Ok(())
    }

    /// Shows a plan and works it off.
    pub(super) fn plan(&mut self, entries: &[String]) -> Result<(), End> {
        self.update(&self.voice.plan(entries, 0, false));
        for done in 0..entries.len() {
            self.check()?;
            self.update(&self.voice.plan(entries, done, true));
        }
        self.update(&self.voice.plan(entries, entries.len(), false));
        Ok(())
    }
}
