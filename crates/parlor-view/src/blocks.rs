//! Splits a Markdown text that grows into parts that do not change any more, for any output.
//!
//! Only the open part at the end is parsed again when text is appended: the last block, or the last line of a fenced code
//! block. A list is split into its items.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// The Markdown that is understood beside `CommonMark`.
pub const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);

/// The most that is parsed at once. A longer block is split at a line.
const WINDOW: usize = 8 << 10;

/// A part of a Markdown text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Blocks, or the beginning of a block that is too long.
    Blocks(Range<usize>),
    /// One item of a list.
    Item {
        /// Where its text is.
        text: Range<usize>,
        /// The number of the item in an ordered list.
        number: Option<u64>,
        /// Whether it follows another item without a blank line.
        is_tight: bool,
    },
    /// The first line of a fenced code block; the range is its info string, which begins with the language.
    CodeStart(Range<usize>),
    /// A line of the fenced code block, without its line break.
    CodeLine(Range<usize>),
    /// The last line of the fenced code block.
    CodeEnd,
}

/// How far a text is split.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    /// Where the open part begins.
    open: usize,
    fence: Option<Fence>,
    /// The list that the open part continues.
    list: Option<List>,
    parsed: u64,
}

/// An open code block.
#[derive(Debug, Clone, Copy)]
struct Fence {
    character: u8,
    length: usize,
    indent: usize,
}

/// The next item of a list.
#[derive(Debug, Clone, Copy)]
struct List {
    number: Option<u64>,
}

/// A block at the top level of the text, or an item of a list there.
#[derive(Debug)]
struct Unit {
    start: usize,
    /// The index of the list in the text, the item's index in it and the list's first number.
    item: Option<(usize, u64, Option<u64>)>,
    is_fenced: bool,
}

impl Splitter {
    /// The parts that cannot change any more, since the last call. `text` begins with the text of earlier calls.
    pub fn closed(&mut self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        while self.close_next(text, &mut parts) {}
        parts
    }

    /// The parts after the closed ones, which may change when text is appended.
    pub fn open(&mut self, text: &str) -> Vec<Part> {
        if self.open == text.len() {
            return Vec::new();
        }
        if self.fence.is_some() {
            return vec![self.code_line(text, self.open..text.len())];
        }
        let units = self.units(&text[self.open..], self.open);
        let ends = units.iter().skip(1).map(|unit| unit.start).chain([text.len()]);
        let mut list = self.list;
        let mut parts = Vec::new();
        for (index, (unit, end)) in units.iter().zip(ends).enumerate() {
            parts.push(part(text, unit, end, list));
            list = continued(unit, units.get(index + 1), list);
        }
        parts
    }

    /// Bytes that were parsed so far, to show what appending costs.
    pub fn parsed(&self) -> u64 {
        self.parsed
    }

    /// Closes what can be closed next; false if nothing can.
    fn close_next(&mut self, text: &str, parts: &mut Vec<Part>) -> bool {
        if self.fence.is_some() {
            return self.close_code_line(text, parts);
        }
        let rest = &text[self.open..];
        let window = window(rest);
        let is_last = window.len() == rest.len();
        let units = self.units(window, self.open);
        let Some(last) = units.last() else {
            let is_blank_line = window.ends_with('\n');
            self.open += if is_blank_line { window.len() } else { 0 };
            return is_blank_line && !is_last;
        };
        // A line that is not complete may still become part of the block before it.
        let line_start = self.open + window.rfind('\n').map_or(0, |at| at + 1);
        let open_units = if is_last && last.start >= line_start && units.len() > 1 { 2 } else { 1 };
        let closed = units.len() - open_units;
        for (index, unit) in units.iter().enumerate() {
            if unit.is_fenced && index <= closed {
                let is_open = self.open_fence(text, unit, parts);
                while self.fence.is_some() && self.close_code_line(text, parts) {}
                // The blocks after the code are known already.
                let is_at_next = units
                    .get(index + 1)
                    .and_then(|next| text.get(self.open..next.start))
                    .is_some_and(|between| between.trim().is_empty());
                if is_open && self.fence.is_none() && is_at_next && index < closed {
                    self.open = units[index + 1].start;
                    continue;
                }
                return index > 0 || (is_open && self.fence.is_none());
            }
            if index == closed {
                break;
            }
            let next = &units[index + 1];
            parts.push(part(text, unit, next.start, self.list));
            self.list = continued(unit, Some(next), self.list);
            self.open = next.start;
        }
        if closed > 0 {
            return true;
        }
        if is_last {
            return false;
        }
        // One block fills the window.
        let end = self.open + window.len();
        parts.push(part(text, &units[0], end, self.list));
        self.list = None;
        self.open = end;
        true
    }

    /// Begins a code block, if its first line is complete.
    fn open_fence(&mut self, text: &str, unit: &Unit, parts: &mut Vec<Part>) -> bool {
        self.open = unit.start;
        let Some(length) = text[unit.start..].find('\n') else { return false };
        let line = &text[unit.start..unit.start + length];
        let fence = line.trim_start_matches(' ');
        let indent = line.len() - fence.len();
        let character = fence.as_bytes().first().copied().unwrap_or(b'`');
        let ticks = fence.bytes().take_while(|byte| *byte == character).count();
        let info = fence[ticks..].trim();
        let info_start =
            unit.start + indent + ticks + (fence[ticks..].len() - fence[ticks..].trim_start().len());
        parts.push(Part::CodeStart(info_start..info_start + info.len()));
        self.fence = Some(Fence { character, length: ticks, indent });
        self.list = None;
        self.open += length + 1;
        true
    }

    fn close_code_line(&mut self, text: &str, parts: &mut Vec<Part>) -> bool {
        let Some(length) = text[self.open..].find('\n') else { return false };
        let range = self.open..self.open + length;
        let part = self.code_line(text, range);
        if part == Part::CodeEnd {
            self.fence = None;
        }
        parts.push(part);
        self.open += length + 1;
        true
    }

    /// A line of the open code block, or its end.
    fn code_line(&self, text: &str, range: Range<usize>) -> Part {
        let line = &text[range.clone()];
        let Some(fence) = self.fence else { return Part::Blocks(range) };
        let inner = line.trim_start_matches(' ');
        let indent = line.len() - inner.len();
        let end = inner.trim_end();
        let is_end =
            indent < 4 && end.len() >= fence.length && end.bytes().all(|byte| byte == fence.character);
        if is_end {
            return Part::CodeEnd;
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        Part::CodeLine(range.start + indent.min(fence.indent)..range.start + line.len())
    }

    /// The blocks of a text that begins at `offset` of the whole.
    fn units(&mut self, text: &str, offset: usize) -> Vec<Unit> {
        self.parsed += text.len() as u64;
        let mut units: Vec<Unit> = Vec::new();
        let mut depth = 0;
        let mut lists = 0;
        let mut list = None;
        let line_start = |at: usize| offset + text[..at].rfind('\n').map_or(0, |at| at + 1);
        for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
            match event {
                Event::Start(tag) => {
                    match (&tag, depth) {
                        (Tag::List(first), 0) => {
                            lists += 1;
                            list = Some((lists, 0, *first));
                        }
                        (Tag::Item, 1) if list.is_some() => {
                            units.push(Unit { start: line_start(range.start), item: list, is_fenced: false });
                            list = list.map(|(index, item, first)| (index, item + 1, first));
                        }
                        (_, 0) => {
                            let is_fenced = matches!(tag, Tag::CodeBlock(CodeBlockKind::Fenced(_)));
                            units.push(Unit { start: line_start(range.start), item: None, is_fenced });
                        }
                        _ => {}
                    }
                    depth += 1;
                }
                Event::End(_) => {
                    depth -= 1;
                    if depth == 0 {
                        list = None;
                    }
                }
                Event::Rule if depth == 0 => {
                    units.push(Unit { start: line_start(range.start), item: None, is_fenced: false });
                }
                Event::Rule
                | Event::Text(_)
                | Event::Code(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::Html(_)
                | Event::InlineHtml(_)
                | Event::FootnoteReference(_)
                | Event::SoftBreak
                | Event::HardBreak
                | Event::TaskListMarker(_) => {}
            }
        }
        units.dedup_by_key(|unit| unit.start);
        // No event stands for a definition of a link.
        let first = units.first().map_or(text.len(), |unit| unit.start - offset);
        if !text[..first].trim().is_empty() {
            units.insert(0, Unit { start: offset, item: None, is_fenced: false });
        }
        units
    }
}

fn part(text: &str, unit: &Unit, end: usize, list: Option<List>) -> Part {
    let range = unit.start..end;
    if unit.item.is_none() {
        return Part::Blocks(range);
    }
    let blanks = [' ', '\t', '\r'];
    let before = text[..unit.start].strip_suffix('\n').unwrap_or_default().trim_end_matches(blanks);
    let is_tight = list.is_some() && !before.ends_with('\n');
    Part::Item { text: range, number: number(unit, list), is_tight }
}

fn number(unit: &Unit, list: Option<List>) -> Option<u64> {
    let (_, index, first) = unit.item?;
    list.map_or_else(|| first.map(|first| first + index), |list| list.number)
}

/// The list that the unit after `unit` continues.
fn continued(unit: &Unit, next: Option<&Unit>, list: Option<List>) -> Option<List> {
    let is_same = unit.item?.0 == next?.item?.0;
    is_same.then(|| List { number: number(unit, list).map(|number| number + 1) })
}

/// The beginning of a text that is parsed at once: whole lines, if there are any.
fn window(text: &str) -> &str {
    if text.len() <= WINDOW {
        return text;
    }
    let end = (0..=WINDOW).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let window = &text[..end];
    let line = window.rfind('\n').map(|at| at + 1).filter(|at| *at >= WINDOW / 2);
    let word = || window.rfind(' ').map(|at| at + 1).filter(|at| *at >= WINDOW / 2);
    &window[..line.or_else(word).unwrap_or(end)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The parts of a text that arrives in chunks, each with its text.
    fn split(text: &str, chunk: usize) -> Vec<String> {
        let mut splitter = Splitter::default();
        let mut parts = Vec::new();
        let mut end = 0;
        while end < text.len() {
            end = (end + chunk..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            parts.extend(splitter.closed(&text[..end]));
        }
        parts.extend(splitter.open(text));
        parts.iter().map(|part| shown(text, part)).collect()
    }

    fn shown(text: &str, part: &Part) -> String {
        match part {
            Part::Blocks(range) => text[range.clone()].trim().to_owned(),
            Part::Item { text: range, number, is_tight } => {
                let number = number.map(|number| number.to_string()).unwrap_or_default();
                let gap = if *is_tight { "" } else { " loose" };
                format!("item {number}{gap}: {}", text[range.clone()].trim())
            }
            Part::CodeStart(range) => format!("code {}", &text[range.clone()]),
            Part::CodeLine(range) => format!("| {}", &text[range.clone()]),
            Part::CodeEnd => "end".to_owned(),
        }
    }

    const TEXT: &str = "# Title\nfoo\n#bar\n\n1. one\n1. two\n\n   more\n1. three\n\n- a\n  - b\n- c\n\n~~~ rust\nfn a() {}\n\n```\n~~~~\n\
        > quote\nlazy\n\na | b\n--|--\n1 | 2\n\n[l]: http://x\n\ntext\n---\n\n***\nlast";

    const PARTS: [&str; 20] = [
        "# Title",
        "foo\n#bar",
        "item 1 loose: 1. one",
        "item 2: 1. two\n\n   more",
        "item 3: 1. three",
        "item  loose: - a\n  - b",
        "item : - c",
        "code rust",
        "| fn a() {}",
        "| ",
        "| ```",
        "end",
        "> quote\nlazy",
        "a | b\n--|--\n1 | 2",
        "",
        "[l]: http://x",
        "text\n---",
        "***",
        "last",
        "",
    ];

    #[test]
    fn the_parts_do_not_depend_on_the_chunks() {
        let expected: Vec<_> = PARTS.iter().filter(|part| !part.is_empty()).collect();
        let whole: Vec<_> = split(TEXT, TEXT.len()).into_iter().filter(|part| !part.is_empty()).collect();
        let joined = |parts: &[String]| parts.join("\n").replace("\n\n", "\n");
        assert_eq!(
            joined(&whole),
            expected.iter().map(|part| part.replace("\n\n", "\n")).collect::<Vec<_>>().join("\n")
        );
        for chunk in 1..20 {
            let parts: Vec<_> = split(TEXT, chunk).into_iter().filter(|part| !part.is_empty()).collect();
            assert_eq!(joined(&parts), joined(&whole), "{chunk}");
        }
    }

    /// Appends a message of 100 KB in chunks of `chunk` bytes and returns how many bytes were parsed for each.
    fn parsed_per_chunk(block: &str, chunk: usize) -> u64 {
        let text = block.repeat((100 << 10) / block.len());
        let mut splitter = Splitter::default();
        let (mut chunks, mut end) = (0, 0);
        while end < text.len() {
            end = (end + chunk).min(text.len());
            chunks += 1;
            splitter.closed(&text[..end]);
            splitter.open(&text[..end]);
        }
        splitter.parsed() / chunks
    }

    #[test]
    fn appending_to_a_long_message_parses_only_its_open_block() {
        for (block, limit) in [
            ("A paragraph with some words, and with more of them.\n\n", 400),
            ("- An item of a list, not split by any blank line.\n", 400),
            ("```rust\nfn main() { println!(\"x\"); }\n", 400),
            // Blocks without an end are split.
            ("| a row | of a table |\n|---|---|\n", 2 * WINDOW as u64),
            ("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo", 2 * WINDOW as u64),
            ("> A quote that goes on and on.\n", 2 * WINDOW as u64),
        ] {
            let parsed = parsed_per_chunk(block, 100);
            assert!(parsed <= limit, "{parsed} bytes for each chunk of {block:?}");
        }
    }

    #[test]
    fn a_definition_of_a_link_after_code_is_kept() {
        let text = "```\na\n```\n[l]: http://x\n\nb\n\nc\n";
        for chunk in [1, text.len()] {
            assert_eq!(split(text, chunk), ["code ", "| a", "end", "[l]: http://x", "b", "c"], "{chunk}");
        }
    }

    #[test]
    fn a_long_text_is_parsed_at_most_twice() {
        for block in
            ["Some paragraph.\n\n```\ncode\n```\n\n- item\n\n", "```\ncode\n```\n", "- item\n", "> quote\n\n"]
        {
            let text = block.repeat(20_000 / block.len());
            let mut splitter = Splitter::default();
            splitter.closed(&text);
            let limit = 2 * text.len() as u64;
            assert!(splitter.parsed() <= limit, "{} of {}: {block:?}", splitter.parsed(), text.len());
        }
    }

    proptest! {
        #[test]
        fn no_text_is_lost(lines in prop::collection::vec("[-#>`~*|: a1.\\[\\]\t漢]{0,12}", 0..30), chunk in 1_usize..40) {
            let text = lines.join("\n");
            let parts = split(&text, chunk).concat();
            for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.contains('漢')) {
                prop_assert!(parts.contains(word), "{word:?} of {text:?} in {parts:?}");
            }
        }
    }
}
