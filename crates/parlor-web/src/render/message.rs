//! The blocks of a message, which grow with it.

use maud::html;
use parlor_session::{Entry, Role, text_of};

use super::content_block::{ContentBlock, MediaSource};
use super::markdown::MarkdownBlocks;
use super::text::clean;

/// The HTML of a message's blocks. What does not change any more is not rendered again.
#[derive(Debug, Clone)]
pub(crate) struct MessageBlocks {
    role: Role,
    blocks: Vec<String>,
    /// The text since the last block that is not text.
    markdown: MarkdownBlocks,
    /// The index of the first block of that text.
    text_start: usize,
    /// How many of the blocks are not text: their numbers are part of the addresses of media.
    others: usize,
    /// Items of the content that were read.
    items: usize,
    /// The change that replaced the content that was read.
    replaced_at: u64,
}

impl MessageBlocks {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            role,
            blocks: Vec::new(),
            markdown: MarkdownBlocks::default(),
            text_start: 0,
            others: 0,
            items: 0,
            replaced_at: 0,
        }
    }

    /// The HTML of each block.
    pub(crate) fn blocks(&self) -> &[String] {
        &self.blocks
    }

    /// Forgets how far the content was read, because its changes have other numbers now.
    pub(crate) fn invalidate(&mut self) {
        self.replaced_at = u64::MAX;
    }

    /// Renders what changed, and returns the index of the first block that did; `None` if none did.
    pub(crate) fn update(&mut self, entry: &Entry, id: &str, media: MediaSource<'_>) -> Option<usize> {
        let content = &entry.body().content;
        let is_other = entry.content_replaced_at() != self.replaced_at || content.len() < self.items;
        // A person's text is shown as it was written: it is short and rarely grows.
        if is_other || self.role == Role::User {
            return self.render_again(entry, id, media);
        }
        let mut first = None;
        for index in self.items..content.len() {
            let item = content.get(index).unwrap_or_default();
            let text = text_of(item);
            // Half of a surrogate pair: it is one character only together with the other half.
            let is_half = |text: &str| {
                text.starts_with(char::REPLACEMENT_CHARACTER) || text.ends_with(char::REPLACEMENT_CHARACTER)
            };
            if text.as_deref().is_some_and(is_half) && index > 0 {
                return self.render_again(entry, id, media);
            }
            let changed = self.push(item, id, media);
            first = Some(first.map_or(changed, |first: usize| first.min(changed)));
        }
        self.items = content.len();
        first
    }

    /// Renders everything, and returns the first block that differs from before.
    fn render_again(&mut self, entry: &Entry, id: &str, media: MediaSource<'_>) -> Option<usize> {
        let before = std::mem::take(&mut self.blocks);
        let content = &entry.body().content;
        *self =
            Self { items: content.len(), replaced_at: entry.content_replaced_at(), ..Self::new(self.role) };
        for item in content.joined().iter() {
            self.push(item.json, id, media);
        }
        let same = before.iter().zip(&self.blocks).take_while(|(old, new)| old == new).count();
        (same < before.len().max(self.blocks.len())).then_some(same)
    }

    /// Renders an item, and returns the first block that changed.
    fn push(&mut self, item: &str, id: &str, media: MediaSource<'_>) -> usize {
        match text_of(item) {
            Some(text) if self.role != Role::User => {
                let changed = self.text_start + self.markdown.push(&text);
                self.blocks.truncate(self.text_start);
                self.blocks.extend_from_slice(self.markdown.blocks());
                changed
            }
            text => {
                let block = match text {
                    Some(text) => html! { p.written { (clean(text.trim_end())) } },
                    None => {
                        let place = format!("{id}:{}", self.others);
                        self.others += 1;
                        ContentBlock::of(item).html(media, &place)
                    }
                };
                self.blocks.push(block.into_string());
                self.markdown = MarkdownBlocks::default();
                self.text_start = self.blocks.len();
                self.blocks.len() - 1
            }
        }
    }
}
