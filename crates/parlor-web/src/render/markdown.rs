//! Untrusted Markdown as safe HTML, block by block.
//!
//! HTML in the Markdown becomes text, links have only web and mail addresses, and images become links, because showing them would load
//! them. What remains are the tags that this file and `pulldown_cmark::html` write for the events that are let through.

use maud::{Markup, html};
use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, TextMergeStream,
};

use super::code;
use super::content_block::is_web_or_mail;
use super::text::clean;

const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);

/// A Markdown text that grows, as the HTML of its blocks. A closed block is not rendered again.
#[derive(Debug, Clone, Default)]
pub struct MarkdownBlocks {
    /// The HTML of the blocks.
    blocks: Vec<String>,
    /// How many of the blocks are closed.
    closed: usize,
    /// The text of the other blocks.
    open: String,
    /// Whether the text ends with a carriage return, which may be half of a line break.
    has_carriage_return: bool,
    /// Bytes that were parsed, to show what appending costs.
    parsed: usize,
}

impl MarkdownBlocks {
    /// Appends text, and returns the index of the first block that changed.
    pub fn push(&mut self, text: &str) -> usize {
        let first = self.closed;
        let mut text = std::borrow::Cow::Borrowed(text);
        if std::mem::take(&mut self.has_carriage_return) {
            text = format!("\r{text}").into();
        }
        if text.ends_with('\r') {
            text.to_mut().pop();
            self.has_carriage_return = true;
        }
        self.open.push_str(&clean(&text));
        self.blocks.truncate(self.closed);
        self.parsed += self.open.len();
        let starts = starts(&self.open);
        let ends = starts.iter().skip(1).copied().chain([self.open.len()]);
        let blocks = starts.iter().zip(ends).map(|(start, end)| block(&self.open[*start..end]));
        self.blocks.extend(blocks);
        // A line that is not complete may still become part of the block before it.
        let line = self.open.rfind('\n').map_or(0, |at| at + 1);
        let open = if starts.last().is_some_and(|start| *start >= line) { 2 } else { 1 };
        let closed = starts.len().saturating_sub(open);
        if closed > 0 {
            self.open.drain(..starts[closed]);
            self.closed += closed;
        }
        first
    }

    /// The HTML of each block.
    pub fn blocks(&self) -> &[String] {
        &self.blocks
    }

    /// Bytes that were parsed so far.
    pub fn parsed(&self) -> usize {
        self.parsed
    }
}

/// A whole text as HTML.
pub fn to_html(text: &str) -> String {
    let mut blocks = MarkdownBlocks::default();
    blocks.push(text);
    blocks.blocks.concat()
}

/// Where the blocks at the top level of a text begin.
fn starts(text: &str) -> Vec<usize> {
    let mut starts: Vec<usize> = Vec::new();
    let mut depth = 0_usize;
    for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        let is_block = depth == 0 && matches!(event, Event::Start(_) | Event::Rule);
        if is_block {
            starts.push(text[..range.start].rfind('\n').map_or(0, |at| at + 1));
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            Event::Text(_)
            | Event::Code(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_) => {}
        }
    }
    starts.dedup();
    // No event stands for the definition of a link: it belongs to the block before it.
    if let Some(first) = starts.first_mut() {
        *first = 0;
    }
    starts
}

fn block(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let events = Filter::default().events(Parser::new_ext(text, OPTIONS));
    pulldown_cmark::html::push_html(&mut out, events.into_iter());
    out
}

/// Lets events through that have a safe form, and writes the others in one.
#[derive(Default)]
struct Filter {
    /// For each open link, whether it is kept as a link.
    links: Vec<bool>,
    /// The language and the text of the open code block.
    code: Option<(String, String)>,
}

impl Filter {
    fn events<'a>(mut self, parser: impl Iterator<Item = Event<'a>>) -> Vec<Event<'a>> {
        // The parser splits texts at characters that could have a meaning, such as those of an address.
        let mut events = Vec::new();
        for event in TextMergeStream::new(parser) {
            match self.event(event) {
                Some(Event::Text(text)) if !self.links.contains(&true) => push_text(&text, &mut events),
                event => events.extend(event),
            }
        }
        events
    }

    fn event<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        if let Some((_, code)) = &mut self.code {
            if let Event::Text(text) = &event {
                code.push_str(text);
            }
            if event != Event::End(TagEnd::CodeBlock) {
                return None;
            }
            let (language, code) = self.code.take().unwrap_or_default();
            return Some(own_html(code::block(code.strip_suffix('\n').unwrap_or(&code), &language)));
        }
        match event {
            Event::Html(text) | Event::InlineHtml(text) => Some(Event::Text(text)),
            Event::Start(Tag::HtmlBlock) => Some(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => Some(Event::End(TagEnd::Paragraph)),
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
                None
            }
            Event::Start(Tag::Link { dest_url, title, .. } | Tag::Image { dest_url, title, .. }) => {
                let is_kept = is_web_or_mail(&dest_url) && !self.links.contains(&true);
                self.links.push(is_kept);
                is_kept.then(|| link(&dest_url, &title))
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                self.links.pop().unwrap_or(false).then(|| Event::InlineHtml("</a>".into()))
            }
            // The headings of the page are above those of messages. No heading has an id of the agent's.
            Event::Start(Tag::Heading { level, .. }) => {
                let level = below_page(level);
                Some(Event::Start(Tag::Heading { level, id: None, classes: Vec::new(), attrs: Vec::new() }))
            }
            Event::End(TagEnd::Heading(level)) => Some(Event::End(TagEnd::Heading(below_page(level)))),
            // An alignment would be an inline style.
            Event::Start(Tag::Table(alignments)) => {
                let alignments = vec![pulldown_cmark::Alignment::None; alignments.len()];
                Some(Event::Start(Tag::Table(alignments)))
            }
            Event::TaskListMarker(is_done) => Some(Event::Text(if is_done { "☑ " } else { "☐ " }.into())),
            Event::FootnoteReference(_) | Event::InlineMath(_) | Event::DisplayMath(_) => None,
            Event::Start(_)
            | Event::End(_)
            | Event::Text(_)
            | Event::Code(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule => Some(event),
        }
    }
}

/// Appends a text, with its web addresses as links.
fn push_text(text: &str, events: &mut Vec<Event<'_>>) {
    let mut rest = text;
    while let Some((start, end)) = web_address(rest) {
        let (before, address) = (&rest[..start], &rest[start..end]);
        events.push(Event::Text(CowStr::from(before.to_owned())));
        events.push(link(address, ""));
        events.push(Event::Text(CowStr::from(address.to_owned())));
        events.push(Event::InlineHtml("</a>".into()));
        rest = &rest[end..];
    }
    events.push(Event::Text(CowStr::from(rest.to_owned())));
}

/// Where the first web address of a text is.
fn web_address(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("http")?;
        from = at + "http".len();
        let follows_word =
            text[..at].chars().next_back().is_some_and(|before| before.is_alphanumeric() || before == '_');
        let scheme = ["https://", "http://"].into_iter().find(|scheme| text[at..].starts_with(scheme));
        // What follows is read once only: a long text may have many of these.
        let Some(scheme) = scheme.filter(|_| !follows_word) else { continue };
        let end = text[at..].find(|c: char| c.is_whitespace() || c.is_control() || "<>\"`|".contains(c));
        let mut address = &text[at..end.map_or(text.len(), |end| at + end)];
        // Punctuation at the end belongs to the sentence, and so does a parenthesis that was opened before the address.
        let opened = address.matches('(').count();
        let mut closed = address.matches(')').count();
        while let Some(last) = address.chars().next_back() {
            match last {
                '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | '~' | ']' => {}
                ')' if opened < closed => closed -= 1,
                _ => break,
            }
            address = &address[..address.len() - 1];
        }
        if address.len() > scheme.len() {
            return Some((at, at + address.len()));
        }
    }
}

fn own_html(markup: Markup) -> Event<'static> {
    Event::Html(CowStr::from(markup.into_string()))
}

/// The start of a link to another page.
fn link(address: &str, title: &str) -> Event<'static> {
    let title = (!title.is_empty()).then_some(title);
    let link = html! { a href=(address) title=[title] rel="noopener noreferrer nofollow" target="_blank" {} };
    let link = link.into_string();
    let start = link.strip_suffix("</a>").unwrap_or(&link).to_owned();
    Event::InlineHtml(CowStr::from(start))
}

fn below_page(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => HeadingLevel::H6,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &Expect) {
        expected.assert_eq(&to_html(text));
    }

    #[test]
    fn web_addresses_are_links() {
        let shown = |text: &str| {
            let html = to_html(text);
            let links = html
                .split("<a href=\"")
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap_or_default().to_owned());
            links.collect::<Vec<_>>()
        };
        for (text, links) in [
            ("See https://example.com/pull/42.", &["https://example.com/pull/42"][..]),
            ("(https://en.wikipedia.org/wiki/A_(b))", &["https://en.wikipedia.org/wiki/A_(b)"]),
            (
                "http://a.example, https://b.example/a_x_b?y=1&amp;z",
                &["http://a.example", "https://b.example/a_x_b?y=1&amp;z"],
            ),
            ("[a https://a.example](https://b.example)", &["https://b.example"]),
            ("`https://a.example` xhttps://a.example https:// ftp://a.example javascript:https", &[]),
            ("**https://a.example/**", &["https://a.example/"]),
        ] {
            assert_eq!(shown(text), links, "{text}");
        }
    }

    /// The HTML of a text that arrives in chunks.
    fn in_chunks(text: &str, chunk: usize) -> String {
        let mut blocks = MarkdownBlocks::default();
        let mut start = 0;
        while start < text.len() {
            let end = (start + chunk..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            let before: Vec<String> = blocks.blocks().to_vec();
            let first = blocks.push(&text[start..end]);
            assert_eq!(before[..first], blocks.blocks()[..first], "a closed block changed");
            start = end;
        }
        blocks.blocks().concat()
    }

    #[test]
    fn markdown_becomes_html_of_a_few_tags() {
        check(
            "# Title\n\nSome *text* with `code`, ~~old~~ and a [link](https://example.org \"t\").\n\n- [x] done\n- [ ] open\n\n> quote\n\n---\n",
            &expect![[r#"
                <h3>Title</h3>
                <p>Some <em>text</em> with <code>code</code>, <del>old</del> and a <a href="https://example.org" title="t" rel="noopener noreferrer nofollow" target="_blank">link</a>.</p>
                <ul>
                <li>☑ done</li>
                <li>☐ open</li>
                </ul>
                <blockquote>
                <p>quote</p>
                </blockquote>
                <hr />
            "#]],
        );
    }

    #[test]
    fn code_can_be_copied_and_tables_have_no_inline_style() {
        check(
            "```rust\nfn a<T>() {}\n\n```\n\n|a|b|\n|-:|-|\n|1|<b>|\n",
            &expect![[r##"
                <div class="code"><pre tabindex="0"><code><span class="k">fn</span> a&lt;<span class="ty">T</span>&gt;() {}
                </code></pre><button class="btn quiet small icon" type="button" data-do="copy-code" aria-label="Copy code"><svg class="i" aria-hidden="true"><use href="#i-copy"/></svg></button></div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>
                <tr><td>1</td><td>&lt;b&gt;</td></tr>
                </tbody></table>
            "##]],
        );
    }

    #[test]
    fn only_web_and_mail_addresses_are_links() {
        for (text, is_link) in [
            ("[x](https://example.org)", true),
            ("[x](mailto:a@example.org)", true),
            ("<https://example.org>", true),
            ("![x](https://example.org/pixel.png)", true),
            ("[x](javascript:alert(1))", false),
            ("[x](JaVaScRiPt&#58;alert(1))", false),
            ("[x](data:text/html,x)", false),
            ("[x](file:///etc/passwd)", false),
            ("[x](//example.org) [y](relative) [z](/s/1)", false),
            ("[x]: vbscript:x\n\n[x]", false),
        ] {
            let html = to_html(text);
            assert_eq!(html.contains("<a href="), is_link, "{text}: {html}");
            assert!(!html.contains("<img"), "{html}");
        }
    }

    const TEXT: &str = "# Title\nfoo\n#bar\n\n1. one\n1. two\n\n   more\n1. three\n\n- a\n  - b\n- c\n\n~~~ rust\nfn a() {}\n\n```\n~~~~\n\
        > quote\nlazy\n\na | b\n--|--\n1 | 2\n\n[l]: http://x\n\ntext\n---\n\n***\r\nlast";

    #[test]
    fn the_html_does_not_depend_on_the_chunks() {
        for chunk in 1..20 {
            assert_eq!(in_chunks(TEXT, chunk), to_html(TEXT), "{chunk}");
        }
    }

    #[test]
    fn appending_parses_only_the_open_blocks() {
        let paragraph = "Some words of a paragraph that is not very long.\n\n";
        let mut blocks = MarkdownBlocks::default();
        for _ in 0..1000 {
            blocks.push(paragraph);
        }
        assert!(blocks.parsed() < 1000 * 4 * paragraph.len(), "{}", blocks.parsed());
        assert_eq!(blocks.blocks().len(), 1000);
    }

    proptest! {
        #[test]
        fn any_text_in_chunks_is_the_text_at_once(
            text in "([#>*_`~|+\\-:=\\[\\]()<!&\\\\ \\t\\n\r]|[a1é]|\n\n|```|    |- |1. ){0,60}", chunk in 1..9_usize
        ) {
            prop_assert_eq!(in_chunks(&text, chunk), to_html(&text));
        }
    }
}
