//! Steps that send messages and other updates without a response from the client.

use super::capabilities;
use super::encode::{Block, Encoder, Role, update};
use super::turn::{End, Turn};
use parlor_json::ObjectWriter;

/// An image of one pixel.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

impl Turn {
    /// Sends text in a message of its own.
    pub(super) fn send_message(&mut self, text: &str) -> Result<(), End> {
        self.send_text(Role::Agent, &self.agent.new_id(), text)
    }

    /// Sends text, one chunk per word.
    pub(super) fn send_text(&mut self, role: Role, id: &str, text: &str) -> Result<(), End> {
        for word in text.split_inclusive(' ') {
            self.check()?;
            self.output_words += 1;
            let block = Block::Text(word.to_owned());
            self.update(&self.encoder.chunk(role, id, &block.to_json()));
            self.session.lock().saved.append(role, id, block);
        }
        Ok(())
    }

    /// Sends a block in a message of its own.
    pub(super) fn send_block(&self, block: Block) {
        let id = self.agent.new_id();
        self.update(&self.encoder.chunk(Role::Agent, &id, &block.to_json()));
        self.session.lock().saved.append(Role::Agent, &id, block);
    }

    /// Sends the answer to text that is not a command.
    pub(super) fn default_answer(&mut self, text: &str) -> Result<(), End> {
        let with = self.other_blocks();
        let with = if with.is_empty() { String::new() } else { format!(" with {}", with.join(", ")) };
        self.send_message(&format!(
            "Hello! I am a test agent. You said: \"{text}\"{with}. Say `help` to see what I can do."
        ))
    }

    /// Describes the session and the prompt.
    pub(super) fn whoami(&self) -> String {
        let state = self.session.lock();
        let saved = &state.saved;
        let with = self.other_blocks();
        let with = if with.is_empty() { String::new() } else { format!(", prompt with {}", with.join(", ")) };
        format!(
            "session {} in {}, protocol {}, mode {}, model {}, {} messages{with}",
            saved.id,
            saved.cwd,
            self.encoder.dialect,
            saved.mode,
            saved.model,
            saved.messages.len()
        )
    }

    /// Sends a message and replaces or clears it.
    pub(super) fn redact(&mut self, clear: bool) -> Result<(), End> {
        if self.encoder.is_v1() {
            return self.send_message("A v1 agent cannot replace a message.");
        }
        let id = self.agent.new_id();
        self.send_text(Role::Agent, &id, "The password is swordfish.")?;
        let content =
            if clear { Vec::new() } else { vec![Block::Text("The password is [redacted].".into())] };
        self.update(&Encoder::message(Role::Agent, &id, (!clear).then_some(&content)));
        self.session.lock().saved.replace(Role::Agent, &id, content);
        Ok(())
    }

    /// Sends a plan whose entries are completed one after another.
    pub(super) fn plan(&mut self, entries: &[String]) -> Result<(), End> {
        self.update(&self.encoder.plan(entries, 0, false));
        for done in 0..entries.len() {
            self.check()?;
            self.update(&self.encoder.plan(entries, done, true));
        }
        self.update(&self.encoder.plan(entries, entries.len(), false));
        Ok(())
    }

    /// Sends an image.
    pub(super) fn image(&self) {
        let image = ObjectWriter::new().str("type", "image").str("mimeType", "image/png").str("data", IMAGE);
        self.send_block(Block::Json(image.finish()));
    }

    /// Sends a link to a resource.
    pub(super) fn link(&self) {
        let link = ObjectWriter::new().str("type", "resource_link").str("name", "The protocol");
        self.send_block(Block::Json(link.str("uri", "https://agentclientprotocol.com").finish()));
    }

    /// Sends a thought and a message with the same id.
    pub(super) fn same_id(&mut self, text: &str) -> Result<(), End> {
        let id = self.agent.new_id();
        self.send_text(Role::Thought, &id, text)?;
        self.send_text(Role::Agent, &id, text)
    }

    /// Reports the use of the context window.
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
            capabilities::set(saved, capabilities::MODE, mode)
                .then(|| capabilities::mode_changed(quirks, self.encoder, saved))
        };
        match changed {
            Some(changed) => self.update(&changed),
            None => self.send_message(&format!("There is no mode {mode}."))?,
        }
        Ok(())
    }

    /// Hangs, unless the turn is cancelled before the message is sent.
    pub(super) fn hang(&mut self) -> Result<(), End> {
        self.send_message("Hanging.")?;
        self.agent.out.flush();
        loop {
            // The turn holds a sender, so the channel is never closed.
            let _ = self.events.recv();
        }
    }
}
