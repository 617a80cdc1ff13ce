use std::ops::Range;

use parlor_json::JsonRef;

/// Returns the byte range of `part` in `line`, if it is borrowed from that very text.
///
/// The range is computed from the addresses without a search. A value that is borrowed from another text gives
/// `None`, even if its text is the same.
pub fn span_of(line: &str, part: JsonRef<'_>) -> Option<Range<usize>> {
    let part = part.as_str();
    let start = part.as_ptr().addr().checked_sub(line.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= line.len()).then_some(start..end)
}

/// Returns `line` with each span replaced and every other byte unchanged.
///
/// The spans may be in any order. The result is `None` if two of them overlap, or if one is not within the line or
/// not on character boundaries.
///
/// ```
/// use parlor_json::{JsonRef, Members};
/// use parlor_wire::{span_of, splice};
///
/// let line = r#"{"sessionId": "a",  "n": 1.50}"#;
/// let params = serde_json::from_str(line).unwrap();
/// let id = Members::of(params).unwrap().get("sessionId").unwrap();
/// let span = span_of(line, id).unwrap();
/// assert_eq!(splice(line, &[(span, "\"b\"")]).unwrap(), r#"{"sessionId": "b",  "n": 1.50}"#);
/// ```
pub fn splice(line: &str, replacements: &[(Range<usize>, &str)]) -> Option<String> {
    let mut in_order: Vec<_> = replacements.iter().collect();
    in_order.sort_by_key(|(span, _)| (span.start, span.end));

    let added: usize = replacements.iter().map(|(_, text)| text.len()).sum();
    let mut spliced = String::with_capacity(line.len() + added);
    let mut copied = 0;
    for (span, text) in in_order {
        line.get(span.clone())?;
        spliced.push_str(line.get(copied..span.start)?);
        spliced.push_str(text);
        copied = span.end;
    }
    spliced.push_str(line.get(copied..)?);
    Some(spliced)
}

#[cfg(test)]
mod tests {
    use parlor_json::Members;

    use super::*;

    #[test]
    fn a_span_is_found_by_address_and_not_by_text() {
        let line = r#" { "a" : 1 , "b":{"c": 1} } "#;
        let raw: JsonRef<'_> = serde_json::from_str(line).unwrap();
        let members = Members::of(raw).unwrap();
        let nested = Members::of(members.get("b").unwrap()).unwrap();
        for (part, span) in [
            (raw, 1..27),
            (members.raw()[0].0, 3..6),
            (members.get("a").unwrap(), 9..10),
            (members.get("b").unwrap(), 17..25),
            (nested.get("c").unwrap(), 23..24),
        ] {
            assert_eq!(span_of(line, part), Some(span.clone()));
            assert_eq!(&line[span], part.as_str());
        }
        let copy = line.to_owned();
        assert_eq!(span_of(&copy, members.get("a").unwrap()), None);
        assert_eq!(span_of(&line[..9], members.get("a").unwrap()), None);
        assert_eq!(span_of(&line[10..], members.get("a").unwrap()), None);
        assert_eq!(span_of("", members.get("a").unwrap()), None);
    }

    #[test]
    fn splicing_replaces_only_the_spans() {
        let line = "0123é789";
        for (replacements, expected) in [
            (vec![], Some("0123é789")),
            (vec![(0..1, "zero")], Some("zero123é789")),
            (vec![(8..9, "9!"), (1..2, "")], Some("023é789!")),
            (vec![(1..3, "a"), (3..4, "b")], Some("0abé789")),
            (vec![(2..2, "<"), (4..6, "e")], Some("01<23e789")),
            (vec![(0..9, "")], Some("")),
            (vec![(1..3, "a"), (2..4, "b")], None),
            (vec![(1..2, "a"), (1..2, "b")], None),
            (vec![(4..5, "half a character")], None),
            (vec![(9..10, "outside")], None),
            (vec![(Range { start: 3, end: 2 }, "backwards")], None),
        ] {
            assert_eq!(splice(line, &replacements).as_deref(), expected, "{replacements:?}");
        }
    }
}
