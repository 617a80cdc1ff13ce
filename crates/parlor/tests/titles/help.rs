//! The help of the commands.

use std::process::Command;

use expect_test::expect;

use crate::PARLOR;

fn help(command: &str) -> String {
    let output = Command::new(PARLOR).args([command, "-h"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn the_commands_explain_themselves() {
    expect![[r#"
        Set or clear the title of a session

        Usage: parlor title [OPTIONS] <SESSION> [TEXT]

        Arguments:
          <SESSION>  Select the session: its id, a unique prefix of its id, or `latest`
          [TEXT]     Set this title; an empty one clears yours

        Options:
              --data <DIR>     Use this data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG
                               data directory]
              --config <FILE>  Use this configuration file [default: `PARLOR_CONFIG`, else
                               parlor/config.toml in the XDG config directory]
              --clear          Clear the title that you set
              --json           Print the id and the resulting title as JSON
          -h, --help           Print help (see more with '--help')
    "#]]
    .assert_eq(&help("title"));
    expect![[r#"
        Archive or unarchive sessions

        Usage: parlor archive [OPTIONS] <SESSION>...

        Arguments:
          <SESSION>...  Select the sessions: ids, unique prefixes of ids, or `latest` (with `--undo`, the
                        latest archived session)

        Options:
              --data <DIR>     Use this data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG
                               data directory]
              --config <FILE>  Use this configuration file [default: `PARLOR_CONFIG`, else
                               parlor/config.toml in the XDG config directory]
              --undo           Unarchive the sessions
              --json           Print the ids of the sessions as a JSON list
          -h, --help           Print help (see more with '--help')
    "#]]
    .assert_eq(&help("archive"));
}
