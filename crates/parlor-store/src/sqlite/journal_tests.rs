use proptest::prelude::*;

use super::*;

const BASE: u64 = 1_700_000_000_000_000_000;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zé😀]{0,12}", Just("\\ud83d\u{1}".to_owned()), "x{100,400}"]
}

fn option() -> impl Strategy<Value = Option<String>> {
    prop::option::of(text())
}

fn offset() -> impl Strategy<Value = (String, u64, u64)> {
    (text(), any::<u64>(), any::<u64>())
}

fn session() -> impl Strategy<Value = SessionRow> {
    let texts = (text(), text(), text(), text());
    let options = (option(), option(), option(), option());
    let rest = (any::<i64>(), any::<i64>(), any::<bool>(), any::<bool>());
    (texts, options, rest).prop_map(
        |(
            (id, agent, cwd, data),
            (agent_session, title, parent, owner),
            (created_at, active_at, archived, busy),
        )| {
            SessionRow {
                id,
                agent,
                agent_session,
                cwd,
                title,
                parent,
                owner,
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
    let words = (text(), any::<i64>(), text()).prop_map(|(kind, at, text)| IndexDocument { kind, at, text });
    prop_oneof![
        session().prop_map(Write::Session),
        (text(), text(), any::<u64>(), option()).prop_map(|(session, name, seq, body)| Write::Slot {
            session,
            name,
            seq,
            body
        }),
        (offset(), text(), option()).prop_map(|((session, created, seq), head, content)| {
            Write::Entry { session, created, seq, head, content }
        }),
        (offset(), text()).prop_map(|((session, created, seq), content)| Write::Append {
            session,
            created,
            seq,
            content
        }),
        (offset(), prop::option::of(words), any::<bool>()).prop_map(
            |((session, created, seq), words, only_missing)| Write::Index {
                session,
                created,
                seq,
                document: words,
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

/// Returns a journal, the positions of its records and the position after the last one. The first `synced` records
/// were on the disk before the others were written.
fn journal(batches: &[Batch], synced: usize) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = header(BASE).to_vec();
    let mut positions = vec![BASE];
    for (n, batch) in batches.iter().enumerate() {
        let cache = if n < synced { BASE } else { positions[synced] };
        let next = encode(batch, *positions.last().unwrap(), cache, &mut bytes);
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
        let sizes = batches.iter().map(|batch| crate::check::size(batch) + RECORD);
        prop_assert!(bytes.len() <= HEADER + sizes.sum::<usize>(), "the size of a batch is not a limit of its record");
        bytes.resize(bytes.len() + zeros, 0);
        for (n, position) in positions.iter().enumerate() {
            let unfolded = unfolded(&bytes, *position).unwrap();
            prop_assert_eq!(&unfolded.batches, &batches[n..]);
            prop_assert_eq!(unfolded.end, *positions.last().unwrap());
        }
    }

    /// After a power cut: the synced records are there, and complete records up to the cut.
    #[test]
    fn a_journal_that_is_cut_anywhere_has_the_whole_records_before(
        batches in batches(),
        zeros in prop::option::of(0..40_usize),
    ) {
        let (bytes, positions) = journal(&batches, 0);
        let zeros = zeros.unwrap_or(0);
        for cut in HEADER..=bytes.len() {
            let whole = positions.iter().filter(|position| place_of(**position) <= cut).count() - 1;
            // A file system may leave zeros after the cut.
            let mut bytes = bytes[..cut].to_vec();
            bytes.resize(cut + zeros, 0);
            let found = unfolded(&bytes, BASE).unwrap();
            prop_assert_eq!(&found.batches, &batches[..whole]);
            prop_assert_eq!(found.end, positions[whole]);
            prop_assert_eq!(found.damage, None);
        }
    }

    #[test]
    fn a_changed_bit_is_damage_at_its_record_and_loses_the_records_behind_it(
        batches in batches(),
        synced in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        prop_assume!(!batches.is_empty());
        let synced = synced.index(batches.len());
        let (mut bytes, positions) = journal(&batches, synced);
        let offset = HEADER + at.index(bytes.len() - HEADER);
        bytes[offset] ^= 1 << bit;
        let damaged = positions.iter().rposition(|position| place_of(*position) <= offset).unwrap();
        bytes.resize(bytes.len() + 100, 0);
        let found = unfolded(&bytes, BASE).unwrap();
        prop_assert_eq!(&found.batches, &batches[..damaged]);
        prop_assert_eq!(found.end, positions[damaged]);
        let was_synced = damaged < synced;
        let (lost, offset) = (batches.len() - damaged - 1, place_of(positions[damaged]));
        let damage = Damage { what: What::Record(offset), lost, was_synced };
        prop_assert_eq!(found.damage, Some(damage.clone()));
        prop_assert_eq!(damage_of(&bytes), Some(damage));
        // Damage to folded records is ignored.
        let found = unfolded(&bytes, positions[damaged + 1]).unwrap();
        prop_assert_eq!(found.batches, &batches[damaged + 1..]);
        prop_assert_eq!(found.damage, None);
    }

    #[test]
    fn garbage_is_never_decoded_and_never_panics(garbage in prop::collection::vec(any::<u8>(), 1..300)) {
        let behind_a_header = [&header(BASE)[..], &garbage].concat();
        prop_assert_eq!(unfolded(&behind_a_header, BASE).unwrap().batches, vec![]);
        if let Ok(unfolded) = unfolded(&garbage, BASE) {
            prop_assert_eq!((unfolded.batches, unfolded.end), (vec![], BASE));
        }
        // A complete record that cannot be decoded is damage.
        let bytes = [&header(BASE)[..], &whole_record(&garbage, BASE)].concat();
        let found = unfolded(&bytes, BASE).unwrap();
        let damage = Damage { what: What::Batch(HEADER), lost: 1, was_synced: false };
        let is_decoded = found.batches.len() == 1;
        prop_assert_eq!(found.damage, (!is_decoded).then_some(damage));
    }
}

fn whole_record(batch: &[u8], position: u64) -> Vec<u8> {
    let length = u32::try_from(batch.len()).unwrap();
    let mut record = length.to_le_bytes().to_vec();
    record.extend([0; 4]);
    record.extend(BASE.to_le_bytes());
    record.extend(batch);
    let sum = checksum(&record, length, position);
    record[4..8].copy_from_slice(&sum.to_le_bytes());
    record
}

fn a_session() -> Batch {
    let row = SessionRow {
        id: "s".into(),
        agent: String::new(),
        agent_session: None,
        cwd: "/".into(),
        title: None,
        parent: None,
        owner: None,
        created_at: 0,
        active_at: 0,
        archived: false,
        busy: false,
        data: String::new(),
    };
    Batch { writes: vec![Write::Session(row)], durable: false }
}

/// Returns damage to the record at an offset.
fn record_damage(offset: usize, lost: usize) -> Damage {
    Damage { what: What::Record(offset), lost, was_synced: false }
}

#[test]
fn every_byte_of_every_record_is_protected() {
    // The last record ends with many zeros.
    let batches = [an_append(), an_append(), a_session()];
    let (bytes, positions) = journal(&batches, 0);
    for offset in HEADER..bytes.len() {
        let damaged = positions.iter().rposition(|position| place_of(*position) <= offset).unwrap();
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[offset] ^= 1 << bit;
            let found = unfolded(&bytes, BASE).unwrap();
            assert_eq!(found.batches, batches[..damaged], "bit {bit} of byte {offset}");
            let damage = record_damage(place_of(positions[damaged]), 2 - damaged);
            assert_eq!(found.damage, Some(damage), "bit {bit} of byte {offset}");
        }
    }
}

#[test]
fn bytes_in_place_of_a_record_are_damage_whatever_they_are() {
    let batches = vec![an_append(); 3];
    let (bytes, positions) = journal(&batches, 0);
    for (n, lost) in [(0, 2), (1, 1), (2, 0)] {
        let record = place_of(positions[n])..place_of(positions[n + 1]);
        for fill in [1, 0x20, 0xff] {
            let mut bytes = bytes.clone();
            bytes[record.clone()].fill(fill);
            let found = unfolded(&bytes, BASE).unwrap();
            let damage = record_damage(record.start, lost);
            assert_eq!((found.end, found.damage), (positions[n], Some(damage)), "{fill} in {n}");
        }
        // A range of zeros, as a lost sector leaves it.
        let mut bytes = bytes.clone();
        bytes[record.start + 4..record.end - 1].fill(0);
        let found = unfolded(&bytes, BASE).unwrap();
        assert_eq!((found.end, found.damage), (positions[n], Some(record_damage(record.start, lost))));
    }
}

#[test]
fn bytes_behind_the_last_record_that_no_append_leaves_are_damage() {
    let (bytes, positions) = journal(&[an_append()], 0);
    let end = place_of(positions[1]);
    for offset in [end + 4, end + 50, end + 5000] {
        let mut bytes = bytes.clone();
        bytes.resize(end + 10_000, 0);
        bytes[offset] = 1;
        let found = unfolded(&bytes, BASE).unwrap();
        assert_eq!((found.end, found.damage), (positions[1], Some(record_damage(end, 0))));
    }
}

#[test]
fn a_commit_that_a_power_cut_took_ends_the_journal_and_is_no_damage() {
    for gap in [1, 2, 40] {
        let mut bytes = header(BASE).to_vec();
        let position = encode(&an_append(), BASE, BASE, &mut bytes);
        bytes.resize(bytes.len() + gap, 0);
        let after = position + gap as u64;
        let next = encode(&an_append(), after, BASE, &mut bytes);
        let synced_later = encode(&an_append(), next, position, &mut bytes);
        let found = unfolded(&bytes, BASE).unwrap();
        assert_eq!((found.batches.len(), found.end, found.damage), (1, position, None));
        assert_eq!(unfolded(&bytes, after).unwrap().batches.len(), 2);
        assert_eq!(damage_of(&bytes), None);
        // A later synced position proves that the commit was on the disk.
        encode(&an_append(), synced_later, after, &mut bytes);
        let damage = unfolded(&bytes, BASE).unwrap().damage;
        let expected = Damage { what: What::Record(place_of(position)), lost: 3, was_synced: true };
        assert_eq!(damage, Some(expected));
    }
}

#[test]
fn a_journal_of_version_1_is_read() {
    let batches = [an_append(), a_session()];
    let mut bytes = header(BASE).to_vec();
    bytes[7] = 1;
    let sum = Checksum::default().add(&bytes[..16]).0;
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    let mut position = BASE;
    for batch in &batches {
        let mut encoded = Vec::new();
        encode_batch(batch, &mut encoded);
        let record = whole_record(&encoded, position);
        position += record.len() as u64;
        bytes.extend(record);
    }
    let whole = Unfolded { batches: batches.to_vec(), end: position, damage: None };
    assert_eq!(unfolded(&bytes, BASE), Ok(whole));
    let first = place_of(BASE + RECORD as u64);
    bytes[first] ^= 1;
    assert_eq!(unfolded(&bytes, BASE).unwrap().damage, Some(record_damage(HEADER, 1)));
}

#[test]
fn a_journal_without_header_has_nothing() {
    for bytes in [vec![], vec![0; 5], vec![0; 5000]] {
        assert_eq!(unfolded(&bytes, BASE), Ok(Unfolded::nothing(BASE)));
    }
}

#[test]
fn a_damaged_header_is_reported_and_the_records_are_found_without_it() {
    let batches = [an_append(), a_session()];
    let (bytes, positions) = journal(&batches, 0);
    let damage = Some(Damage { what: What::Header, lost: 0, was_synced: false });
    for at in 0..HEADER {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        for folded in 0..2 {
            let found = unfolded(&bytes, positions[folded]).unwrap();
            let (batches, end) = (batches[folded..].to_vec(), positions[2]);
            assert_eq!(found, Unfolded { batches, end, damage: damage.clone() });
        }
        assert_eq!(damage_of(&bytes), damage);
    }
    let mut zeros = bytes.clone();
    zeros[..HEADER].fill(0);
    assert_eq!(
        unfolded(&zeros, BASE).unwrap(),
        Unfolded { batches: batches.to_vec(), end: positions[2], damage: damage.clone() }
    );
    // The journal is emptied after everything is folded.
    assert_eq!(unfolded(&zeros, positions[2]), Ok(Unfolded::nothing(positions[2])));
    assert_eq!(unfolded(&bytes[..7], BASE).unwrap().damage, damage);
}

#[test]
fn a_later_version_is_no_damage() {
    let (mut later, _) = journal(&[an_append()], 0);
    later[7] = VERSION + 1;
    let sum = Checksum::default().add(&later[..16]).0;
    later[16..20].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(unfolded(&later, BASE), Err(LaterVersion(VERSION + 1)));
}

#[test]
fn a_journal_of_an_earlier_database_is_ignored_and_one_of_a_later_state_is_damage() {
    let batches = vec![an_append(); 3];
    let (bytes, positions) = journal(&batches, 1);
    let end = *positions.last().unwrap();
    // The database is newer than all records.
    assert_eq!(unfolded(&bytes, end + 1000), Ok(Unfolded::nothing(end + 1000)));
    // The database is older: batches before the journal are missing.
    let found = unfolded(&bytes, BASE - 10).unwrap();
    let damage = Damage { what: What::OlderDatabase, lost: 3, was_synced: true };
    assert_eq!(found, Unfolded { damage: Some(damage), ..Unfolded::nothing(BASE - 10) });
    // After a power cut there may be such a journal, none of which was synced.
    let mut bytes = header(BASE).to_vec();
    encode(&an_append(), BASE, BASE - 20, &mut bytes);
    assert_eq!(unfolded(&bytes, BASE - 10), Ok(Unfolded::nothing(BASE - 10)));
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
