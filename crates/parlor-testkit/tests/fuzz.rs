//! The fuzz targets with the inputs that are kept in `testdata/fuzz`, and with the recordings.

use std::fs;
use std::path::{Path, PathBuf};

use parlor_testkit::fuzz::TARGETS;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_kept_inputs_pass() {
    for (name, check) in TARGETS {
        let inputs = files(&testdata().join("fuzz").join(name));
        assert!(!inputs.is_empty(), "no inputs of {name} are kept");
        for input in inputs {
            check(&fs::read(&input).unwrap());
        }
    }
}

#[test]
fn the_recordings_pass_in_every_dialect() {
    for recording in files(&testdata().join("recordings")) {
        let text = fs::read(&recording).unwrap();
        for choice in 0..27_u8 {
            for (name, check) in TARGETS.into_iter().filter(|(name, _)| *name != "wire" || choice == 0) {
                let limit = if name == "wire" { &[7, 255][..] } else { std::slice::from_ref(&choice) };
                check(&[limit, &text].concat());
            }
        }
    }
}
