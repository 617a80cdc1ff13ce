//! The examples of the other crates, as programs.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const NAMES: [&str; 7] = ["echo", "reader", "worker", "hello", "watch", "edit", "relay"];

/// Where the examples are, once they are built: beside this test, so that what was built with it is not built again.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let me = env::current_exe().unwrap();
    let profile = me.ancestors().nth(2).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--manifest-path"]);
    build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
    build.arg("--target-dir").arg(profile.parent().unwrap());
    build.args(NAMES.iter().flat_map(|name| ["--example", name]));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the examples must build");
    profile.join("examples")
});

/// The program of an example.
pub(crate) fn example(name: &str) -> String {
    assert!(NAMES.contains(&name));
    PLACE.join(name).to_str().unwrap().to_owned()
}
