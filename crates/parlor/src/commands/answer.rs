use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use clap::Args;
use parlor_client::PermissionOptionKind::{AllowOnce, RejectOnce};
use parlor_client::{Object, OpenRequest, PermissionOption, PermissionOptionKind};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::form::{Form, FormStatus};
use crate::open_request;
use crate::output::{self, RED};
use crate::path_options::PathOptions;
use crate::peer_requests::{choice_problem, decline_response, key_of, parse_choice};
use crate::render::safe;
use crate::server;
use crate::tty::Tty;

/// Answer a request of an agent
///
/// `parlor inbox` lists the requests. Without an option, the request is shown on the terminal with everything that it would permit,
/// and the answer is asked for. The first answer of all clients counts.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Answer {
    #[command(flatten)]
    paths: PathOptions,
    /// Answer this request, as `parlor inbox` lists it
    #[arg(value_name = "REQUEST")]
    request: String,
    /// Select the option with this id or number
    #[arg(long, value_name = "ID", conflicts_with_all = ["allow", "deny"])]
    option: Option<String>,
    /// Allow it once
    #[arg(long, conflicts_with = "deny")]
    allow: bool,
    /// Reject it once; decline a form
    #[arg(long)]
    deny: bool,
    /// Fill in this field of a form; several can be given
    ///
    /// `parlor inbox REQUEST` prints the names of the fields. A choice takes the number, the value or the title of an option, and
    /// several options are separated by commas. Fields that are not given have their default.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_field, conflicts_with_all = ["option", "allow", "deny"])]
    field: Vec<(String, String)>,
    /// Print the request and the answer as a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor answer r3
  parlor answer r3 --allow
  parlor answer r3 --option allow_always
  parlor answer r4 --field name=Ada --field size=l";

/// The answer that was chosen.
struct Chosen {
    result: Object,
    /// The answer for people.
    name: String,
}

/// The output with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnswerOutput<'a> {
    request_id: &'a str,
    session_id: String,
    answer: &'a str,
}

impl Answer {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let socket = self.paths.existing_data_dir()?.map(|data| data.socket());
        let socket = socket.filter(|socket| server::is_running(socket));
        let socket = socket.ok_or_else(open_request::no_server)?;
        let request = open_request::find(server::open_requests(&socket)?, &self.request)?;
        let chosen = self.choose(&request)?;
        let result = chosen.result.clone();
        if !server::query(&socket, async |server| server.answer(&request.id, result).await)? {
            let message =
                format!("request {} is not open any more: it was answered or cancelled", request.id);
            return Err(CommandError::bad_input(message));
        }
        if self.json {
            let session_id = request.session.to_string();
            output::print_json(&AnswerOutput { request_id: &request.id, session_id, answer: &chosen.name })?;
        } else {
            output::print(|out| writeln!(out, "answered {}: {}", safe(&request.id), safe(&chosen.name)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The answer of the options, or else of the user at the terminal.
    fn choose(&self, request: &OpenRequest) -> Result<Chosen, CommandError> {
        let options = request.options();
        let is_form = open_request::permission(request).is_none();
        if is_form && self.deny {
            return Ok(Chosen { result: decline_response(), name: "declined".to_owned() });
        }
        if !self.field.is_empty() {
            return fill(request, &self.field);
        }
        if is_form && (self.allow || self.option.is_some()) {
            return Err(CommandError::bad_input(format_args!("request {} is a form", request.id)).hint(
                "--field NAME=VALUE fills it in, and --deny declines it; without options, its fields are asked for on a terminal",
            ));
        }
        let wanted = match (&self.option, self.allow, self.deny) {
            (Some(name), _, _) => named(&options, name),
            (None, true, _) => of_kind(&options, &AllowOnce),
            (None, _, true) => of_kind(&options, &RejectOnce),
            (None, false, false) => return ask(request, &options),
        };
        wanted.map(Chosen::option).ok_or_else(|| {
            let ids: Vec<_> = options.iter().map(|option| option.id.to_text().into_owned()).collect();
            CommandError::bad_input(format_args!("request {} has no such option", request.id))
                .hint(format_args!("--option takes one of these: {}", ids.join(", ")))
        })
    }
}

fn parse_field(argument: &str) -> Result<(String, String), String> {
    let (name, value) = argument.split_once('=').ok_or("write the name of a field, = and its value")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Fills in a form.
fn fill(request: &OpenRequest, fields: &[(String, String)]) -> Result<Chosen, CommandError> {
    if open_request::permission(request).is_some() {
        let message = format!("request {} is a permission request, which has no fields", request.id);
        return Err(CommandError::bad_input(message).hint("--allow, --deny or --option ID answers it"));
    }
    let mut form = Form::parse(&request.params).ok_or_else(cannot_fill)?;
    let result = form.fill(fields).map_err(|problem| {
        CommandError::bad_input(problem).hint(format_args!("`parlor inbox {}` prints the fields", request.id))
    })?;
    Ok(Chosen { result, name: "accept".to_owned() })
}

fn cannot_fill() -> CommandError {
    CommandError::failed("this client cannot fill in the form").hint("--deny declines it")
}

impl Chosen {
    fn option(option: &PermissionOption) -> Self {
        Self { result: open_request::selection(option), name: option.name.clone() }
    }
}

/// The option with an id, or with a number as `parlor inbox` prints it.
fn named<'a>(options: &'a [PermissionOption], name: &str) -> Option<&'a PermissionOption> {
    let number = || name.parse::<usize>().ok()?.checked_sub(1);
    let with_id = options.iter().find(|option| option.id.to_text() == name);
    with_id.or_else(|| options.get(number()?))
}

fn of_kind<'a>(options: &'a [PermissionOption], kind: &PermissionOptionKind) -> Option<&'a PermissionOption> {
    options.iter().find(|option| option.kind == *kind)
}

/// Asks the user at the terminal.
fn ask(request: &OpenRequest, options: &[PermissionOption]) -> Result<Chosen, CommandError> {
    let tty = Tty::open().ok_or_else(|| {
        CommandError::bad_input("there is no terminal to ask for the answer")
            .hint("--allow, --deny, --option ID or, for a form, --field NAME=VALUE answers the request")
    })?;
    let failed = |error: io::Error| CommandError::failed(format_args!("cannot use the terminal: {error}"));
    let mut form = Form::parse(&request.params);
    let is_permission = open_request::permission(request).is_some();
    if !is_permission && form.is_none() {
        return Err(cannot_fill());
    }
    tty.write(|mut out| open_request::write_details(request, &mut out)).map_err(failed)?;
    tty.discard_input();
    let mut lines = tty.reader().map_err(failed)?.lines();
    loop {
        let shown = tty.write(|mut out| match &form {
            Some(form) if !is_permission => form.show(&mut out),
            _ => write_question(options, out),
        });
        shown.map_err(failed)?;
        let Some(line) = lines.next() else {
            return Err(CommandError::failed("no answer was given; the request stays open"));
        };
        let line = line.map_err(failed)?;
        match &mut form {
            Some(form) if !is_permission => {
                if let FormStatus::Complete(result) = form.on_line(&line) {
                    let name = result.get_string("action").unwrap_or_default();
                    return Ok(Chosen { result, name });
                }
            }
            _ => {
                if let Some(option) = parse_choice(options, &line) {
                    return Ok(Chosen::option(option));
                }
                let problem = choice_problem(options, &line);
                tty.write(|out| writeln!(out, "  {RED}{problem}{RED:#}")).map_err(failed)?;
            }
        }
    }
}

fn write_question(options: &[PermissionOption], out: &mut dyn Write) -> io::Result<()> {
    let keys = (0..options.len()).filter_map(|index| key_of(options, index));
    let keys: Vec<_> = keys.map(String::from).collect();
    write!(out, "Answer (1-{}, {}): ", options.len(), keys.join(", "))
}
