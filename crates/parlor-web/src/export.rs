//! A whole session as one file: a page without a script that loads nothing.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use parlor_session::{Entry, MessageNumbers, Transcript};

use crate::assets;
use crate::render::content_block::MediaSource;
use crate::render::text::clean_line;
use crate::render::{Authors, EntryContext, TurnBounds, TurnFiles, entry};

/// The content security policy: the style sheet and media that are part of the file, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; \
    form-action 'none'";

/// A session to export.
#[derive(Debug, Clone)]
pub struct Export<'a> {
    /// The title of the file.
    pub title: &'a str,
    /// The agents that wrote the messages.
    pub authors: &'a Authors,
    /// The directory of the session: paths in it are shown relative to it.
    pub cwd: &'a str,
    /// What the head of the file says about the session, as names and values.
    pub facts: &'a [(&'a str, String)],
    /// The transcript, in version 2 of the protocol.
    pub transcript: &'a Transcript,
}

impl Export<'_> {
    /// Renders the file.
    pub fn render(&self, created_at: impl Fn(&Entry) -> Option<Timestamp>) -> Markup {
        let title = clean_line(self.title);
        let numbers = MessageNumbers::of(self.transcript);
        let mut files = TurnFiles::default();
        files.update(self.transcript, self.cwd, TurnBounds { is_from_start: true, is_to_end: true });
        let entries = self.transcript.entries().iter().filter_map(|one| {
            let number = numbers.number_of(one);
            let context = EntryContext {
                transcript: self.transcript,
                agent: self.authors.of(number),
                cwd: self.cwd,
                media: MediaSource::Embedded,
                number,
                created_at: created_at(one),
                is_waiting: false,
                changed: files.ended_with(one.id()),
            };
            entry(one, &context)
        });
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="referrer" content="no-referrer";
                    title { (title) }
                    style { (PreEscaped(assets::STYLE)) }
                }
                body.export {
                    (assets::icons())
                    header.page {
                        h1 { (title) }
                        dl.facts {
                            @for (name, value) in self.facts { dt { (name) } dd { (clean_line(value)) } }
                        }
                    }
                    main { ol.log { @for entry in entries { (entry) } } }
                }
            }
        }
    }
}
