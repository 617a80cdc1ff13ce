use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use clap::Args;
use parlor_wire::{InputLine, LineDecoder, write};

use crate::command_error::CommandError;
use crate::mcp::{self, tools::Sessions};
use crate::path_options::PathOptions;

/// Offer stored sessions to agents, as an MCP server on standard input and output
///
/// An agent that starts this command can search, list and read all stored sessions, and thereby recall earlier ones. It cannot
/// change anything. The command reads the store as `parlor search` and `parlor show` do, and starts neither a server nor an agent. With
/// an empty table `[mcp.parlor]` in config.toml, all agents of the server get it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    #[command(flatten)]
    paths: PathOptions,
}

const EXAMPLES: &str = "Examples:
  echo '[mcp.parlor]' >> ~/.config/parlor/config.toml
  claude mcp add parlor -- parlor mcp";

const ON_TERMINAL: &str = "\
`parlor mcp` is for agents, which start it as an MCP server. It waits for
messages of the Model Context Protocol, one JSON-RPC message per line; Ctrl-D
ends it. To search sessions from a terminal:
  parlor search WORD";

/// How long a line of the client may be.
const MAX_LINE: usize = 1 << 20;

impl Mcp {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        if io::stdin().is_terminal() {
            print_stderr!("{ON_TERMINAL}");
        }
        let sessions = Sessions::new(self.paths);
        let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
        let mut lines = LineDecoder::new(MAX_LINE);
        let mut buffer = vec![0; 16 << 10];
        let mut is_open = true;
        while is_open {
            let count = input.read(&mut buffer).map_err(CommandError::failed)?;
            is_open = count > 0;
            if is_open {
                lines.extend(&buffer[..count]);
            } else {
                lines.finish();
            }
            while let Some(line) = lines.next_line() {
                let Some(response) = respond(line, &sessions) else { continue };
                let written = output.write_all((response + "\n").as_bytes()).and_then(|()| output.flush());
                written.map_err(|error| CommandError::write(&error))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Responds to a line, also to one that is too long or not text.
fn respond(line: InputLine<'_>, sessions: &Sessions) -> Option<String> {
    match line.line() {
        Ok(line) => mcp::respond(line, sessions),
        Err(malformed) => Some(write::error_response(malformed.respond_to()?, &malformed.to_error())),
    }
}
