//! `service`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use parlor_testkit::output::CommandOutput;
use parlor_testkit::scenario::Scenario;

use crate::PARLOR;

/// Runs a command with this `PATH`, and nothing that says where its data is.
fn run(scenario: &Scenario, path: &str, args: &[&str]) -> CommandOutput {
    let mut command: Command = scenario.command(args);
    command.env("PATH", path).env_remove("PARLOR_DATA_DIR");
    command.output().unwrap().into()
}

/// A directory with a program `systemctl`.
fn with_systemctl(scenario: &Scenario) -> String {
    let directory = scenario.path().join("bin $1");
    fs::create_dir(&directory).unwrap();
    let program = directory.join("systemctl");
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    directory.to_str().unwrap().to_owned()
}

#[test]
fn without_systemd_it_says_so() {
    let scenario = Scenario::new(PARLOR);
    for action in ["install", "uninstall"] {
        let output = run(&scenario, "/nowhere", &["service", action]).exit_code(1);
        assert!(output.stderr.starts_with("parlor: this system has no systemd: "), "{output:#?}");
        assert!(output.stderr.contains("hint: "), "{output:#?}");
    }
}

#[test]
fn the_unit_is_written_and_removed_and_the_commands_are_printed() {
    let scenario = Scenario::new(PARLOR);
    let path = with_systemctl(&scenario);
    fs::write(scenario.work().join("100%.toml"), "").unwrap();
    let output = run(&scenario, &path, &["service", "install", "--config", "100%.toml"]).success().plain();
    let file = scenario.path().join("home/.config/systemd/user/parlor.service");
    let unit = fs::read_to_string(&file).unwrap();
    let work = scenario.work();
    let command = format!("ExecStart=\"{PARLOR}\" serve --config \"{}/100%%.toml\"\n", work.display());
    assert!(unit.contains(&command), "{unit}");
    assert!(unit.contains(&format!("Environment=\"PATH={path}\"\n")), "{unit}");
    assert!(output.stdout.starts_with("wrote ~/.config/systemd/user/parlor.service:\n"), "{output:#?}");
    assert!(
        output.stdout.contains("  ExecStart=")
            && output.stdout.contains("systemctl --user enable --now parlor")
    );
    // What `systemctl enable` creates.
    let wants = file.with_file_name("default.target.wants");
    fs::create_dir(&wants).unwrap();
    std::os::unix::fs::symlink(&file, wants.join("parlor.service")).unwrap();
    let output = run(&scenario, &path, &["service", "uninstall"]).success().plain();
    assert!(output.stdout.starts_with("removed ~/.config/systemd/user/parlor.service\n"), "{output:#?}");
    assert!(output.stdout.contains("systemctl --user stop parlor"), "{output:#?}");
    assert!(!file.exists() && fs::symlink_metadata(wants.join("parlor.service")).is_err());
    let output = run(&scenario, &path, &["service", "uninstall"]).success();
    assert!(output.stdout.starts_with("no service is installed: "), "{output:#?}");
}

#[test]
fn an_invalid_configuration_is_not_installed() {
    let scenario = Scenario::new(PARLOR);
    let path = with_systemctl(&scenario);
    fs::write(scenario.work().join("wrong.toml"), "what?").unwrap();
    let output = run(&scenario, &path, &["service", "install", "--config", "wrong.toml"]).exit_code(2);
    assert!(output.stderr.contains("wrong.toml:1"), "{output:#?}");
    assert!(!scenario.path().join("home/.config").exists());
}

#[test]
fn the_unit_has_the_directories_of_this_environment() {
    let scenario = Scenario::new(PARLOR);
    let path = with_systemctl(&scenario);
    let (data, config) = (scenario.path().join("100% data"), scenario.path().join("settings"));
    let mut command = scenario.command(&["service", "install"]);
    command.env("PATH", path).env_remove("PARLOR_DATA_DIR");
    command.env("XDG_DATA_HOME", &data).env("XDG_CONFIG_HOME", &config);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let unit = fs::read_to_string(config.join("systemd/user/parlor.service")).unwrap();
    let data = data.to_str().unwrap().replace('%', "%%");
    for line in [format!("XDG_DATA_HOME={data}"), format!("XDG_CONFIG_HOME={}", config.display())] {
        assert!(unit.contains(&format!("Environment=\"{line}\"\n")), "{unit}");
    }
}
