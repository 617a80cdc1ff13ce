//! The `parlor` program: the server and its command line.

#[macro_use]
mod output;
mod agent_choice;
mod agents_install;
mod ansi;
mod background_server;
mod command_error;
mod commands;
mod completion;
mod demo;
mod editors;
mod event_lines;
mod form;
mod html;
mod input;
mod key_settings;
mod live_turn;
mod logging;
mod markdown;
mod mcp;
mod message_name;
mod offline_sessions;
mod open_request;
mod pager;
mod path_options;
mod peer_requests;
mod permission_request;
mod port_holder;
mod prompt_input;
mod render;
mod runtime;
mod script;
mod server;
mod session_json;
mod session_list;
mod session_options;
mod shutdown;
mod signals;
mod table;
mod terminal_client;
mod text_file;
mod tty;
mod turn;
mod turn_printer;
mod turn_summary;
#[cfg(test)]
mod untrusted_text;
mod usage_error;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use anstream::ColorChoice;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::command_error::CommandError;

/// A session server for coding agents that speak the Agent Client Protocol.
///
/// Without a command, on a terminal: opens the terminal client with the latest session of this directory.
#[derive(Parser)]
#[command(name = "parlor", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print colours: auto (on a terminal), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    color: Color,
}

/// When colours are printed.
#[derive(Clone, Copy, ValueEnum)]
enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}

impl From<Color> for ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// The definition of the command line.
pub(crate) fn command_line() -> clap::Command {
    let command = Cli::command();
    let template = help_template(&command);
    command.help_template(template)
}

/// The commands by topic, in the order of the help.
const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    ("Prompts and requests", &["attach", "open", "new", "prompt", "inbox", "answer", "cancel"]),
    (
        "Sessions",
        &[
            "ls",
            "show",
            "watch",
            "search",
            "fork",
            "edit",
            "regenerate",
            "set",
            "title",
            "archive",
            "rm",
            "export",
            "usage",
        ],
    ),
    ("Agents", &["setup", "agents", "login", "import", "demo-agent"]),
    ("Server", &["serve", "stop", "restart", "status", "doctor", "logs", "backup", "service"]),
    ("Editors and tools", &["acp", "mcp", "fold", "translate", "completions", "man"]),
];

/// The template of the help, which lists the commands by topic: clap lists them without groups.
fn help_template(command: &clap::Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (topic, names) in COMMAND_GROUPS {
        let _ = writeln!(template, "{header}{topic}:{header:#}");
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{name:<11}{literal:#}  {about}");
        }
        template.push('\n');
    }
    let _ = write!(template, "{header}Options:{header:#}\n{{options}}{{after-help}}");
    template
}

#[derive(Subcommand)]
enum Command {
    Attach(commands::attach::Attach),
    New(commands::new::New),
    Serve(commands::serve::Serve),
    Acp(commands::acp::Acp),
    Ls(commands::ls::Ls),
    Show(commands::show::Show),
    Search(commands::search::Search),
    Prompt(commands::prompt::Prompt),
    Inbox(commands::inbox::Inbox),
    Answer(commands::answer::Answer),
    Cancel(commands::cancel::Cancel),
    Watch(commands::watch::Watch),
    Fork(commands::fork::Fork),
    Edit(commands::edit::Edit),
    Regenerate(commands::regenerate::Regenerate),
    Export(commands::export::Export),
    Open(commands::open::Open),
    Set(commands::set::Set),
    Usage(commands::usage::Usage),
    Title(commands::title::Title),
    Archive(commands::archive::Archive),
    Rm(commands::rm::Rm),
    Status(commands::status::Status),
    Logs(commands::logs::Logs),
    Backup(commands::backup::Backup),
    Service(commands::service::Service),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
    Stop(commands::stop::Stop),
    Restart(commands::restart::Restart),
    Agents(commands::agents::Agents),
    Login(commands::login::Login),
    Setup(commands::setup::Setup),
    Import(commands::import::Import),
    Doctor(commands::doctor::Doctor),
    DemoAgent(commands::demo_agent::DemoAgent),
    Mcp(commands::mcp::Mcp),
    Fold(commands::fold::Fold),
    Translate(commands::translate::Translate),
    #[command(name = "watch-agents", hide = true)]
    WatchAgents(commands::watch_agents::WatchAgents),
    #[command(name = "run-on-terminal", hide = true)]
    RunOnTerminal(commands::run_on_terminal::RunOnTerminal),
    #[command(hide = true)]
    Detach(commands::detach::Detach),
}

const AFTER_HELP: &str = "\
Examples:
  parlor serve                         start the server
  parlor prompt --new 'what is here?'  prompt an agent in a new session
  parlor ls                            list the sessions
  parlor show latest                   print a transcript

Exit codes:
  0    success
  1    the turn failed, was refused or cancelled; a check failed; no server for `status`
  2    bad usage or bad input; nothing was changed
  3    a request is left open: there is no terminal to ask, or you chose later; `translate`: losses
  4    the agent is not available: not installed, not logged in, does not start
  5    the server or its data is not available
  124  `--timeout` elapsed; the turn continues
  130  ended by Ctrl-C

Environment:
  PARLOR_DATA_DIR   the data directory, as --data
  PARLOR_CONFIG     the configuration file, as --config
  PARLOR_TOKEN      the token of the server
  PARLOR_LOG        what the server logs: error, warn, info (default), debug or trace
  PARLOR_TTY        the terminal on which requests are asked; none if it is empty
  PAGER             shows long transcripts (default: less -R)
  VISUAL, EDITOR    edits prompts (`prompt -e`)
  NO_COLOR          no colours";

fn main() -> ExitCode {
    completion::complete();
    let args = message_ranges(std::env::args_os().collect());
    let parsed = command_line().try_get_matches_from(&args);
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    let Cli { command, color } = match parsed {
        Ok(cli) => cli,
        Err(error) => return report(&usage_error::of(&error, &args), &args),
    };
    ColorChoice::from(color).write_global();
    let Some(command) = command else { return without_command() };
    let result = match command {
        Command::Attach(attach) => attach.run(),
        Command::New(new) => new.run(),
        Command::Serve(serve) => serve.run(),
        Command::Acp(acp) => acp.run(),
        Command::Ls(ls) => ls.run(),
        Command::Show(show) => show.run(),
        Command::Search(search) => search.run(),
        Command::Prompt(prompt) => prompt.run(),
        Command::Inbox(inbox) => inbox.run(),
        Command::Answer(answer) => answer.run(),
        Command::Cancel(cancel) => cancel.run(),
        Command::Watch(watch) => watch.run(),
        Command::Fork(fork) => fork.run(),
        Command::Edit(edit) => edit.run(),
        Command::Regenerate(regenerate) => regenerate.run(),
        Command::Export(export) => export.run(),
        Command::Set(set) => set.run(),
        Command::Usage(usage) => usage.run(),
        Command::Title(title) => title.run(),
        Command::Archive(archive) => archive.run(),
        Command::Rm(rm) => rm.run(),
        Command::Status(status) => status.run(),
        Command::Logs(logs) => logs.run(),
        Command::Backup(backup) => backup.run(),
        Command::Service(service) => service.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
        Command::Stop(stop) => stop.run(),
        Command::Open(open) => open.run(),
        Command::Restart(restart) => restart.run(),
        Command::Agents(agents) => agents.run(),
        Command::Login(login) => login.run(),
        Command::Setup(setup) => setup.run(),
        Command::Import(import) => import.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::DemoAgent(agent) => agent.run(),
        Command::Mcp(mcp) => mcp.run(),
        Command::Fold(fold) => fold.run(),
        Command::Translate(translate) => translate.run(),
        Command::WatchAgents(watch) => watch.run(),
        Command::RunOnTerminal(run) => run.run(),
        Command::Detach(detach) => detach.run(),
    };
    result.unwrap_or_else(|error: CommandError| report(&error, &args))
}

/// Prints an error, with `--json` as JSON. The arguments may be those that could not be parsed.
fn report(error: &CommandError, args: &[OsString]) -> ExitCode {
    let is_json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    if is_json { error.report_json() } else { error.report() }
}

/// Writes the ranges of messages that `show` takes so that they do not look like options: `-4..` as `#-4..`.
fn message_ranges(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "show") {
        return args;
    }
    for arg in args.iter_mut().skip(2) {
        let number =
            arg.to_str().and_then(|text| text.strip_prefix('-')?.split_once("..")).map(|(number, _)| number);
        if number.is_some_and(|number| number.parse::<u64>().is_ok()) {
            let mut range = OsString::from("#");
            range.push(&*arg);
            *arg = range;
        }
    }
    args
}

/// Opens the terminal client. Without a terminal, prints the help.
fn without_command() -> ExitCode {
    if !terminal_client::has_terminal() {
        let _ = command_line().print_help();
        return ExitCode::from(2);
    }
    terminal_client::open_latest().unwrap_or_else(|error| error.report())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_command_once() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<_> = shown.map(clap::Command::get_name).collect();
        let mut listed: Vec<_> = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, shown);
    }
}
