//! Limits tool content that grows by chunks in v2 and is repeated with every update in v1.

use parlor_json::{CodePoint, CodePoints, JsonRef, JsonStr, Object, Type};

use super::{text_block, text_item};
use crate::{LossKind, Losses};

/// Maximum bytes of content, as JSON, that are repeated with every update.
pub(crate) const CAP: usize = 64 * 1024;

/// An upper bound for the item that reports how much was left out.
const NOTE_ROOM: usize = 128;

/// Fits content into `limit` bytes of JSON by leaving out its middle.
///
/// Content that fits is unchanged. Otherwise neighbouring texts without other fields are merged; if they are still
/// too long, about half of `limit` is kept from the start and half from the end. A text is cut between two
/// characters; other items are kept or left out as a whole.
///
/// The result is never longer than `limit`, unless the note that something was left out does not fit.
pub(crate) fn cap(items: Vec<Object>, limit: usize, losses: &mut Losses) -> Vec<Object> {
    if text_len(&items) <= limit {
        return items;
    }
    let items = joined(&items);
    if text_len(&items) <= limit {
        return items;
    }
    losses.add(LossKind::ToolContentCut);

    let half = limit.saturating_sub(NOTE_ROOM) / 2;
    let (mut head_room, mut tail_room) = (half, half);
    let from_head = items.iter().take_while(|item| takes(&mut head_room, item)).count();
    let from_tail = items[from_head..].iter().rev().take_while(|item| takes(&mut tail_room, item)).count();

    let mut capped = items;
    let tail = capped.split_off(capped.len() - from_tail);
    let middle = capped.split_off(from_head);
    capped.extend(cut_middle(&middle, head_room, tail_room));
    capped.extend(tail);
    joined(&capped)
}

/// The length of the items as an array.
fn text_len(items: &[Object]) -> usize {
    items.iter().map(|item| item.text_len() + 1).sum::<usize>() + 1
}

/// Reserves space for an item; returns whether there is enough.
fn takes(room: &mut usize, item: &Object) -> bool {
    match room.checked_sub(item.text_len() + 1) {
        Some(left) => {
            *room = left;
            true
        }
        None => false,
    }
}

/// The start of the first item and the end of the last one, if they are texts, with a note between them.
fn cut_middle(items: &[Object], head_room: usize, tail_room: usize) -> Vec<Object> {
    let bytes: usize = items.iter().map(content_bytes).sum();
    let note = |head: &str, tail: &str| note(bytes - utf8_len(head) - utf8_len(tail));
    if let [item] = items
        && let Some(text) = TextItem::of(item)
        && let Some(room) = (head_room + tail_room).checked_sub(text.overhead)
    {
        let head = text.head(head_room.saturating_sub(text.overhead));
        let tail = text.tail((room - head.len()).min(tail_room).min(text.inner().len() - head.len()));
        return vec![text.with([head, &note(head, tail), tail])];
    }
    let first = items.first().and_then(TextItem::of).filter(|_| items.len() > 1);
    let last = items.last().and_then(TextItem::of).filter(|_| items.len() > 1);
    let head = first.as_ref().map_or("", |text| text.head(head_room.saturating_sub(text.overhead)));
    let tail = last.as_ref().map_or("", |text| text.tail(tail_room.saturating_sub(text.overhead)));

    let mut parts = Vec::with_capacity(3);
    parts.extend(first.as_ref().filter(|_| !head.is_empty()).map(|text| text.with([head])));
    parts.push(text_item(&literal([note(head, tail).as_str()])));
    parts.extend(last.as_ref().filter(|_| !tail.is_empty()).map(|text| text.with([tail])));
    parts
}

/// The note that something was left out, as the inside of a literal.
fn note(bytes: usize) -> String {
    format!("\\n[... {bytes} bytes left out ...]\\n")
}

/// A text item with any other fields.
struct TextItem<'a> {
    item: &'a Object,
    text: JsonStr,
    /// Bytes of the item without its text.
    overhead: usize,
}

impl<'a> TextItem<'a> {
    fn of(item: &'a Object) -> Option<Self> {
        let text = JsonStr::from_raw(text_in(item)?)?;
        let overhead = (item.text_len() + 1).saturating_sub(text.inner().len());
        Some(Self { item, text, overhead })
    }

    fn inner(&self) -> &str {
        self.text.inner()
    }

    /// The longest prefix that takes no more than `room`.
    fn head(&self, room: usize) -> &str {
        let end = boundaries(self.inner()).take_while(|&offset| offset <= room).last().unwrap_or(0);
        &self.inner()[..end]
    }

    /// The longest suffix that takes no more than `room`.
    fn tail(&self, room: usize) -> &str {
        let start = self.inner().len().saturating_sub(room);
        let start = boundaries(self.inner()).find(|&offset| offset >= start).unwrap_or(self.inner().len());
        &self.inner()[start..]
    }

    /// The item with its text replaced.
    fn with<const N: usize>(&self, parts: [&str; N]) -> Object {
        let mut item = self.item.clone();
        let mut block = self.item.get_object("content").unwrap_or_default();
        block.set("text", literal(parts));
        item.set("content", block.to_json());
        item
    }
}

/// The positions where the inside of a canonical literal may be cut: between characters, none of which is an escaped
/// surrogate pair.
fn boundaries(inner: &str) -> impl Iterator<Item = usize> {
    let mut ahead = inner;
    std::iter::once(0).chain(std::iter::from_fn(move || {
        let length = match ahead.as_bytes() {
            [b'\\', b'u', ..] => 6,
            [b'\\', ..] => 2,
            _ => ahead.chars().next()?.len_utf8(),
        };
        ahead = ahead.get(length..).unwrap_or_default();
        Some(inner.len() - ahead.len())
    }))
}

/// The length of a part of a literal as UTF-8. An unpaired surrogate counts as its replacement character.
fn utf8_len(inner: &str) -> usize {
    let length = |unit| match unit {
        CodePoint::Char(c) => c.len_utf8(),
        CodePoint::Surrogate(_) => char::REPLACEMENT_CHARACTER.len_utf8(),
    };
    CodePoints::of_literal(inner).map(length).sum()
}

/// Bytes of the readable content of an item.
fn content_bytes(item: &Object) -> usize {
    TextItem::of(item).map_or_else(|| item.text_len(), |text| utf8_len(text.inner()))
}

/// Merges neighbouring plain texts, and makes every text a canonical literal.
fn joined(items: &[Object]) -> Vec<Object> {
    let mut joined = Vec::with_capacity(items.len());
    for run in items.chunk_by(|one, next| is_plain_text(one) && is_plain_text(next)) {
        if let [item] = run {
            joined.push(TextItem::of(item).map_or_else(|| item.clone(), |text| text.with([text.inner()])));
            continue;
        }
        let inners = run.iter().filter_map(text_in).map(|raw| {
            let literal = raw.as_str();
            &literal[1..literal.len() - 1]
        });
        joined.push(text_item(&literal(inners)));
    }
    joined
}

/// Concatenates parts of literals. Two halves of a surrogate pair become one character.
fn literal<'a>(parts: impl IntoIterator<Item = &'a str>) -> JsonStr {
    let inner: String = parts.into_iter().collect();
    JsonStr::from_literal(&format!("\"{inner}\"")).expect("parts of literals are a literal")
}

/// The literal of the text of a text item.
fn text_in(item: &Object) -> Option<JsonRef<'_>> {
    text_block(item)?.get("text").filter(|raw| raw.type_of() == Type::String)
}

/// Whether the item has only a text, so that it can be merged with a neighbour.
fn is_plain_text(item: &Object) -> bool {
    item.iter().count() == 2
        && text_block(item).is_some_and(|block| block.len() == 2)
        && text_in(item).is_some()
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;
    use proptest::prelude::*;

    use super::*;
    use crate::values::check::object;

    fn plain(text: &str) -> Object {
        text_item(&JsonStr::new(text))
    }

    fn image(bytes: usize) -> Object {
        object(&format!(
            r#"{{"type":"content","content":{{"type":"image","mimeType":"","data":"{}"}}}}"#,
            "A".repeat(bytes)
        ))
    }

    /// Caps the items and shows each by its text or its type.
    fn capped(items: Vec<Object>, limit: usize) -> (Vec<String>, usize) {
        let mut losses = Losses::default();
        let items = cap(items, limit, &mut losses);
        assert!(text_len(&items) <= limit, "{} bytes", text_len(&items));
        assert!(losses.as_slice().iter().all(|loss| loss.kind == LossKind::ToolContentCut));
        let shown = items.iter().map(|item| match TextItem::of(item) {
            Some(item) => item.text.to_text().into_owned(),
            None => "(image)".to_owned(),
        });
        (shown.collect(), losses.as_slice().len())
    }

    #[test]
    fn content_that_fits_is_unchanged_and_texts_are_merged_only_to_fit() {
        let items = vec![plain("one "), plain("two"), image(4), plain("three")];
        let all = text_len(&items);
        let array = serde_json::to_string(&items).unwrap();
        assert_eq!(all, array.len());
        assert_eq!(
            capped(items.clone(), all),
            (["one ", "two", "(image)", "three"].map(String::from).into(), 0)
        );
        assert_eq!(capped(items, all - 1), (["one two", "(image)", "three"].map(String::from).into(), 0));
    }

    #[test]
    fn a_long_text_keeps_its_head_and_tail() {
        let text: String = (0..1_000).map(|n| format!("{n:03}\n")).collect();
        let (items, cuts) =
            capped(text.as_bytes().chunks(9).map(|c| plain(str::from_utf8(c).unwrap())).collect(), 300);
        assert_eq!(cuts, 1);
        let [item] = &items[..] else { panic!("{items:?}") };
        let (head, rest) = item.split_once("\n[... ").unwrap();
        let (bytes, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
        assert!(
            text.starts_with(head) && text.ends_with(tail) && head.len() > 10 && tail.len() > 50,
            "{item}"
        );
        assert_eq!(bytes.parse::<usize>().unwrap(), text.len() - head.len() - tail.len());
    }

    #[test]
    fn items_that_are_not_text_are_left_out_as_a_whole() {
        let note = "\n[... 269 bytes left out ...]\n";
        let (items, cuts) = capped(vec![plain("a"), image(200), plain("z")], 280);
        assert_eq!((items, cuts), (vec![format!("a{note}z")], 1));

        let (items, _) = capped(vec![image(10), image(1_000), image(1_000), image(10)], 400);
        assert_eq!(items, ["(image)", "\n[... 2138 bytes left out ...]\n", "(image)"]);
    }

    #[test]
    fn a_text_with_other_fields_keeps_them() {
        let long = object(&format!(
            r#"{{"type":"content","content":{{"type":"text","text":"{}","annotations":{{}}}},"_meta":{{"parlor/terminal":"t"}}}}"#,
            "x".repeat(1_000)
        ));
        let mut losses = Losses::default();
        let items = cap(vec![plain("a"), long.clone(), plain("z")], 400, &mut losses);
        assert_eq!(items.len(), 3);
        assert_eq!(items[1].get("_meta"), long.get("_meta"));
        assert!(items[1].get("content").unwrap().as_str().ends_with(r#","annotations":{}}"#));

        // Two of them are cut, with the note between them.
        let (items, _) = capped(vec![long.clone(), image(10), long.clone()], 500);
        assert_eq!(items.len(), 3, "{items:?}");
        assert!(items[0].starts_with("xx") && items[1].starts_with("\n[... ") && items[2].ends_with("xx"));

        // The other fields alone exceed the limit.
        let mut huge = plain("text");
        huge.set("_meta", "m".repeat(1_000));
        assert_eq!(capped(vec![huge], 300).0, ["\n[... 4 bytes left out ...]\n"]);
    }

    #[test]
    fn no_character_is_split() {
        // One surrogate pair, split by the stream; then escapes of all lengths.
        let halves =
            [r#""\ud83d""#, r#""\ude00""#].map(|half| text_item(&JsonStr::from_literal(half).unwrap()));
        let odd = [r#""\ud83d\n\u0001é\u00e9\ud83d\ude00\"\\\ude00""#; 60];
        let items: Vec<Object> = std::iter::repeat_n(halves, 60)
            .flatten()
            .chain(odd.map(|odd| {
                object(&format!(r#"{{"type":"content","content":{{"type":"text","text":{odd}}}}}"#))
            }))
            .collect();
        for limit in 250..400 {
            let mut losses = Losses::default();
            let items = cap(items.clone(), limit, &mut losses);
            let [item] = &items[..] else { panic!("{items:?}") };
            let text = TextItem::of(item).unwrap().text.to_text().into_owned();
            let (head, tail) = text.split_once("\n[... ").unwrap();
            assert!(head.chars().all(|c| c == '😀'), "{text}");
            assert!(text_len(&items) <= limit && limit - text_len(&items) < NOTE_ROOM, "{limit}: {text}");
            assert!(tail.ends_with("\"\\\u{fffd}"), "{text}");
        }
    }

    #[test]
    fn the_cap_of_a_long_list_takes_linear_time() {
        let items = vec![plain("x\n"); 50_000];
        let (items, cuts) = capped(items, CAP);
        assert_eq!((items.len(), cuts), (1, 1));
        assert!(items[0].contains("bytes left out"));
        let images = vec![image(8); 20_000];
        assert!(capped(images, CAP).0.len() > 500);
    }

    proptest! {
        #[test]
        fn the_limit_holds_and_no_text_is_invented(
            sizes in prop::collection::vec((0..3_u8, 0..400_usize), 0..12),
            limit in 256..3_000_usize,
        ) {
            let items: Vec<Object> = sizes.iter().enumerate().map(|(offset, &(kind, size))| match kind {
                0 => image(size),
                1 => plain(&format!("<{offset}>é\n").repeat(size / 6)),
                _ => {
                    let mut item = plain(&"\u{1}\\😀".repeat(size / 4));
                    item.set("x", Json::null());
                    item
                }
            }).collect();
            let fits = text_len(&items) <= limit;
            let mut losses = Losses::default();
            let capped = cap(items.clone(), limit, &mut losses);
            prop_assert!(text_len(&capped) <= limit);
            if fits {
                prop_assert_eq!(&capped, &items);
            }
            if losses.as_slice().is_empty() {
                let bytes = |items: &[Object]| items.iter().map(content_bytes).sum::<usize>();
                prop_assert_eq!(bytes(&capped), bytes(&items));
            } else {
                prop_assert_eq!(losses.as_slice().len(), 1);
                let notes = capped.iter().filter(|item| item.to_json().as_str().contains("bytes left out")).count();
                prop_assert_eq!(notes, 1);
            }
        }
    }
}
