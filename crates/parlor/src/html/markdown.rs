//! Converts untrusted Markdown to safe HTML.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

use crate::content_block::is_web_or_mail;

/// Converts Markdown with a few kinds of tags only: HTML becomes text, links have only web and mail addresses, and images
/// become links, because displaying them would load them.
pub(super) fn to_html(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut filter = Filter::default();
    let events = Parser::new_ext(text, options).filter_map(|event| filter.event(event));
    let mut out = String::with_capacity(text.len() * 2);
    html::push_html(&mut out, events);
    out
}

/// For each open link, whether it is kept as a link.
#[derive(Default)]
struct Filter {
    links: Vec<bool>,
}

impl Filter {
    fn event<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        match event {
            Event::Html(text) | Event::InlineHtml(text) => Some(Event::Text(text)),
            Event::Start(Tag::HtmlBlock) => Some(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => Some(Event::End(TagEnd::Paragraph)),
            Event::Start(
                Tag::Link { link_type, dest_url, title, id } | Tag::Image { link_type, dest_url, title, id },
            ) => {
                let is_kept = is_web_or_mail(&dest_url) && !self.links.contains(&true);
                self.links.push(is_kept);
                is_kept.then_some(Event::Start(Tag::Link { link_type, dest_url, title, id }))
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                self.links.pop().unwrap_or(false).then_some(Event::End(TagEnd::Link))
            }
            Event::FootnoteReference(_) | Event::InlineMath(_) | Event::DisplayMath(_) => None,
            Event::Start(_)
            | Event::End(_)
            | Event::Text(_)
            | Event::Code(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_) => Some(event),
        }
    }
}
