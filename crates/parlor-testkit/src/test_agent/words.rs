//! Steps that only say something.

use super::offer;
use super::say::{Block, Role, Voice, update};
use super::turn::{End, Turn};
use parlor_json::ObjectWriter;

/// A picture of one dot.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

impl Turn {
    /// Says something in a message of its own.
    pub(super) fn say(&mut self, text: &str) -> Result<(), End> {
        self.speak(Role::Agent, &self.agent.fresh_id(), text)
    }

    /// Streams words.
    pub(super) fn speak(&mut self, role: Role, id: &str, text: &str) -> Result<(), End> {
        for word in text.split_inclusive(' ') {
            self.check()?;
            self.output_words += 1;
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
            "Hello! I am a test agent. You said: \"{words}\"{with}. Say `help` to see what I can do."
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

    /// Says a picture.
    pub(super) fn image(&self) {
        let image = ObjectWriter::new().str("type", "image").str("mimeType", "image/png").str("data", IMAGE);
        self.block(Block::Json(image.finish()));
    }

    /// Says a link to a resource.
    pub(super) fn link(&self) {
        let link = ObjectWriter::new().str("type", "resource_link").str("name", "The protocol");
        self.block(Block::Json(link.str("uri", "https://agentclientprotocol.com").finish()));
    }

    /// Says a thought and a message that have the same id.
    pub(super) fn same_id(&mut self, text: &str) -> Result<(), End> {
        let id = self.agent.fresh_id();
        self.speak(Role::Thought, &id, text)?;
        self.speak(Role::Agent, &id, text)
    }

    /// Tells how full the context window is.
    pub(super) fn context(&self) {
        let used = 1000 + self.input_words + self.output_words;
        let text = update("usage_update").u64("used", used).u64("size", 200_000);
        self.update(&text.raw("cost", r#"{"amount":0.01,"currency":"USD"}"#).finish());
    }

    /// Changes the mode.
    pub(super) fn mode(&mut self, mode: &str) -> Result<(), End> {
        let changed = {
            let saved = &mut self.session.lock().saved;
            let quirks = &self.agent.options.quirks;
            offer::set(saved, offer::MODE, mode).then(|| offer::mode_changed(quirks, self.voice, saved))
        };
        match changed {
            Some(changed) => self.update(&changed),
            None => self.say(&format!("There is no mode {mode}."))?,
        }
        Ok(())
    }

    /// Never comes back, unless the turn is cancelled before it has said so.
    pub(super) fn hang(&mut self) -> Result<(), End> {
        self.say("Hanging.")?;
        self.agent.out.flush();
        loop {
            // The sender is kept by this turn, so that this waits without end.
            let _ = self.events.recv();
        }
    }
}
