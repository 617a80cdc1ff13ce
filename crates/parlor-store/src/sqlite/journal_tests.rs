use proptest::prelude::*;

use super::*;

const BASE: u64 = 1_700_000_000_000_000_000;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zé😀]{0,12}", Just("\\ud83d\u{1}".to_owned()), "x{100,400}"]
}

fn option() -> impl Strategy<Value = Option<String>> {
    prop::option::of(text())
}

fn place() -> impl Strategy<Value = (String, u64, u64)> {
    (text(), any::<u64>(), any::<u64>())
}

fn session() -> impl Strategy<Value = SessionRow> {
    let texts = (text(), text(), text(), text());
    let options = (option(), option(), option());
    let rest = (any::<i64>(), any::<i64>(), any::<bool>(), any::<bool>());
    (texts, options, rest).prop_map(
        |(
            (id, agent, cwd, data),
            (agent_session, title, parent),
            (created_at, active_at, archived, busy),
        )| {
            SessionRow {
                id,
                agent,
                agent_session,
                cwd,
                title,
                parent,
                created_at,
                active_at,
                archived,
                busy,
                data,
            }
        },
    )
}

fn write() -> impl Strategy<Value = Write> {
    let words = (text(), any::<i64>(), text()).prop_map(|(kind, at, text)| Words { kind, at, text });
    prop_oneof![
        session().prop_map(Write::Session),
        (text(), text(), any::<u64>(), option()).prop_map(|(session, name, seq, body)| Write::Slot {
            session,
            name,
            seq,
            body
        }),
        (place(), text(), option()).prop_map(|((session, created, seq), head, content)| {
            Write::Entry { session, created, seq, head, content }
        }),
        (place(), text()).prop_map(|((session, created, seq), content)| Write::Append {
            session,
            created,
            seq,
            content
        }),
        (place(), prop::option::of(words), any::<bool>()).prop_map(
            |((session, created, seq), words, only_missing)| Write::Words {
                session,
                created,
                seq,
                words,
                only_missing
            }
        ),
        (text(), option()).prop_map(|(key, value)| Write::Value { key, value }),
    ]
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = prop::collection::vec(write(), 1..4).prop_map(|writes| Batch { writes, durable: false });
    prop::collection::vec(batch, 0..6)
}

/// A journal with the positions at which its records begin, and where the last one ends. The first `synced` records
/// were on the disk before the others were written.
fn journal(batches: &[Batch], synced: usize) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = header(BASE).to_vec();
    let mut positions = vec![BASE];
    for (n, batch) in batches.iter().enumerate() {
        let known = if n < synced { BASE } else { positions[synced] };
        let next = encode(batch, *positions.last().unwrap(), known, &mut bytes);
        positions.push(next);
    }
    (bytes, positions)
}

fn place_of(position: u64) -> usize {
    HEADER + usize::try_from(position - BASE).unwrap()
}

fn an_append() -> Batch {
    let write = Write::Append { session: "s".into(), created: 1, seq: 2, content: "some text".into() };
    Batch { writes: vec![write], durable: false }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_encoded_is_decoded_from_each_record_on(batches in batches(), zeros in 0..100_usize) {
        let (mut bytes, positions) = journal(&batches, 0);
        bytes.resize(bytes.len() + zeros, 0);
        for (n, position) in positions.iter().enumerate() {
            let unfolded = unfolded(&bytes, *position).unwrap();
            prop_assert_eq!(&unfolded.batches, &batches[n..]);
            prop_assert_eq!(unfolded.end, *positions.last().unwrap());
        }
    }

    /// As after a power cut: what was synced is there, and of the rest whole records up to the cut.
    #[test]
    fn a_journal_that_is_cut_anywhere_has_the_whole_records_before(
        batches in batches(),
        zeros in prop::option::of(0..40_usize),
    ) {
        let (bytes, positions) = journal(&batches, 0);
        let zeros = zeros.unwrap_or(0);
        for cut in HEADER..=bytes.len() {
            // A file system may leave zeros in place of what was cut, and some of what was cut was zero.
            let kept = bytes[cut..].iter().take(zeros).take_while(|byte| **byte == 0).count();
            let whole = positions.iter().filter(|position| place_of(**position) <= cut + kept).count() - 1;
            let mut bytes = bytes[..cut].to_vec();
            bytes.resize(cut + zeros, 0);
            let found = unfolded(&bytes, BASE).unwrap();
            prop_assert_eq!(&found.batches, &batches[..whole]);
            prop_assert_eq!(found.end, positions[whole]);
        }
    }

    #[test]
    fn damage_is_found_where_a_later_record_says_that_it_was_synced(
        batches in batches(),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        prop_assume!(batches.len() >= 2);
        let synced = batches.len() - 1;
        let (mut bytes, positions) = journal(&batches, synced);
        let damaged = HEADER + at.index(bytes.len() - HEADER);
        bytes[damaged] ^= 1 << bit;
        let is_synced = damaged < place_of(positions[synced]);
        match unfolded(&bytes, BASE) {
            Err(error) => {
                prop_assert!(is_synced, "{error}");
                prop_assert!(error.contains("damaged"), "{error}");
            }
            Ok(unfolded) => {
                // The last record is the one that could be torn.
                prop_assert!(!is_synced);
                prop_assert_eq!(&unfolded.batches, &batches[..synced]);
            }
        }
        // What is folded does not matter any more.
        if is_synced {
            prop_assert_eq!(unfolded(&bytes, positions[synced]).unwrap().batches, &batches[synced..]);
        }
    }

    #[test]
    fn garbage_is_refused_or_read_as_nothing(garbage in prop::collection::vec(any::<u8>(), 0..300)) {
        let behind_a_header = [&header(BASE)[..], &garbage].concat();
        prop_assert_eq!(unfolded(&behind_a_header, BASE).unwrap().batches, vec![]);
        if let Ok(unfolded) = unfolded(&garbage, BASE) {
            prop_assert_eq!(unfolded, Unfolded { batches: vec![], end: BASE });
        }
        // A record that is whole and makes no sense is not left out.
        let mut record = Vec::new();
        record.extend(u32::try_from(garbage.len()).unwrap().to_le_bytes());
        record.extend([0; RECORD - 4]);
        record.extend(&garbage);
        let sum = checksum(&record, BASE);
        record[4..8].copy_from_slice(&sum.to_le_bytes());
        let bytes = [&header(BASE)[..], &record].concat();
        if let Ok(unfolded) = unfolded(&bytes, BASE) {
            prop_assert_eq!(unfolded.batches.len(), usize::from(!garbage.is_empty()));
        }
    }
}

#[test]
fn a_journal_without_header_has_nothing() {
    for bytes in [vec![], vec![0; 5], vec![0; 5000]] {
        assert_eq!(unfolded(&bytes, BASE), Ok(Unfolded { batches: vec![], end: BASE }));
    }
}

#[test]
fn a_damaged_header_and_a_later_version_are_said() {
    let (bytes, _) = journal(&[an_append()], 0);
    for at in 0..HEADER {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let error = unfolded(&bytes, BASE).unwrap_err();
        assert!(error.contains("header"), "{error}");
    }
    let mut later = bytes.clone();
    later[7] = VERSION + 1;
    let sum = Checksum::default().add(&later[..16]).0;
    later[16..20].copy_from_slice(&sum.to_le_bytes());
    assert!(unfolded(&later, BASE).unwrap_err().contains("version 2"));
    assert!(unfolded(&bytes[..7], BASE).is_err());
}

#[test]
fn a_journal_of_an_earlier_database_is_ignored_and_one_of_a_later_state_is_refused() {
    let batches = vec![an_append(); 3];
    let (bytes, positions) = journal(&batches, 1);
    let end = *positions.last().unwrap();
    // The database is newer than all of it.
    assert_eq!(unfolded(&bytes, end + 1000).unwrap().batches, []);
    // The database is older: what comes before the journal is missing.
    let error = unfolded(&bytes, BASE - 10).unwrap_err();
    assert!(error.contains("do not belong together"), "{error}");
    // After a power cut there may be such a journal, of which nothing was promised.
    let mut bytes = header(BASE).to_vec();
    encode(&an_append(), BASE, BASE - 20, &mut bytes);
    assert_eq!(unfolded(&bytes, BASE - 10).unwrap(), Unfolded { batches: vec![], end: BASE - 10 });
}

#[test]
fn a_record_of_an_earlier_journal_in_the_same_file_is_none() {
    let (bytes, positions) = journal(&[an_append(), an_append()], 0);
    let mut reused = bytes.clone();
    reused[..HEADER].copy_from_slice(&header(positions[2]));
    assert_eq!(unfolded(&reused, positions[2]).unwrap().batches, []);
}

#[test]
fn the_checksum_is_the_usual_one() {
    assert_eq!(Checksum::default().add(b"123456789").0, 0xcbf4_3926);
    assert_eq!(Checksum::default().add(b"1234567").add(b"").add(b"89").0, 0xcbf4_3926);
    let long = Checksum::default().add(b"The quick brown fox jumps over the lazy dog").0;
    assert_eq!(long, 0x414f_a339);
}
