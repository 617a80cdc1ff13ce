//! The simulation with fixed seeds. `cargo xtask simulate --seconds N` runs new ones.

use parlor_testkit::simulation::{Options, run};

#[test]
fn fixed_seeds_hold_every_invariant() {
    let report = run(&Options { seeds: 15, ..Options::default() });
    assert!(report.failure.is_none(), "{report}");
    assert_eq!(report.seeds, 15);
}
