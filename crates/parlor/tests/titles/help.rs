//! The help of the commands.

use std::process::Command;

use expect_test::expect;

use crate::PARLOR;

fn help(command: &str) -> String {
    let said = Command::new(PARLOR).args([command, "-h"]).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn the_commands_explain_themselves() {
    expect![[r#"
        Give a session a title, or take it away

        Usage: parlor title [OPTIONS] <SESSION> [TEXT]

        Arguments:
          <SESSION>  The session: its id, the beginning of it, or `latest`
          [TEXT]     The title; an empty one clears yours

        Options:
              --data <DIR>     The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data
                               directory]
              --config <FILE>  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in
                               the XDG config directory]
              --clear          Clear your title
              --json           Print the title that the session has now, as JSON
          -h, --help           Print help (see more with '--help')
    "#]]
    .assert_eq(&help("title"));
    expect![[r#"
        Put sessions away, or take them out again

        Usage: parlor archive [OPTIONS] <SESSION>...

        Arguments:
          <SESSION>...  The sessions: their ids, the beginnings of them, or `latest` (with `--undo` the
                        latest that was put away)

        Options:
              --data <DIR>     The data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data
                               directory]
              --config <FILE>  The configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in
                               the XDG config directory]
              --undo           Take them out again
              --json           Print the ids of the sessions as a JSON list
          -h, --help           Print help (see more with '--help')
    "#]]
    .assert_eq(&help("archive"));
}
