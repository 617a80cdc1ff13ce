//! Requests that wait for a person, as `inbox`, `answer` and `status` show them.

use std::io::{self, Write};

use parlor_client::{Object, OpenRequest, PermissionOption};
use parlor_session::Transcript;

use crate::command_error::CommandError;
use crate::form::Form;
use crate::output::{self, BOLD, DIM, parse_timestamp, short_path, span_since};
use crate::permission_request::PermissionRequest;
use crate::render::safe;
use crate::table::truncate;

/// The permission that a request asks for; `None` for a form.
pub(crate) fn permission(request: &OpenRequest) -> Option<PermissionRequest> {
    // The params have all that the session knows of the tool call.
    let new =
        || PermissionRequest::new(&request.params, request.title(), &Transcript::default(), &request.cwd);
    (request.method == "session/request_permission").then(new)
}

/// A summary in one line.
pub(crate) fn summary(request: &OpenRequest) -> String {
    match permission(request) {
        Some(permission) => permission.summary().replace('\n', " "),
        None => {
            let message = request.params.get_string("message").unwrap_or_default();
            format!("form: {}", message.replace('\n', " "))
        }
    }
}

/// The name of its session, else the id.
fn session_name(request: &OpenRequest) -> String {
    request.fields.get_string("name").unwrap_or_else(|| request.session.to_string())
}

/// When the agent sent the request, in milliseconds since 1970.
pub(crate) fn opened_at(request: &OpenRequest) -> Option<i64> {
    request.opened_at.as_deref().and_then(parse_timestamp)
}

/// Finds an open request by its id; the leading `r` may be omitted.
pub(crate) fn find(requests: Vec<OpenRequest>, name: &str) -> Result<OpenRequest, CommandError> {
    let number = name.strip_prefix(['r', 'R']).unwrap_or(name);
    let is_named = |request: &OpenRequest| request.id.strip_prefix('r') == Some(number);
    requests.into_iter().find(is_named).ok_or_else(|| not_open(name))
}

/// Without a server no request is open.
pub(crate) fn no_server() -> CommandError {
    CommandError::bad_input("no server is running, so no request is open")
}

/// A request is not open any more, or never was.
fn not_open(name: &str) -> CommandError {
    CommandError::bad_input(format_args!("there is no open request {name}"))
        .hint("`parlor inbox` lists the open requests")
}

/// Writes a request in a list: its session, what it asks for, and its options. Lines are truncated to a width.
pub(crate) fn write_summary(
    request: &OpenRequest,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let width = width.unwrap_or(usize::MAX);
    let session = session_name(request);
    let waits = opened_at(request).map(|at| format!(" · waits {}", span_since(at, output::now())));
    let about = format!(
        "{} · {}{}",
        safe(&request.agent),
        safe(&short_path(&request.cwd)),
        waits.unwrap_or_default()
    );
    let session = truncate(&safe(&session.replace('\n', " ")), width.saturating_sub(6));
    writeln!(out, "{BOLD}{:<4}{session}{BOLD:#}", safe(&request.id))?;
    writeln!(out, "    {DIM}{}{DIM:#}", truncate(&about, width.saturating_sub(4)))?;
    writeln!(out, "    {}", truncate(&safe(&summary(request)), width.saturating_sub(4)))?;
    let names = request.options().into_iter().enumerate();
    let names: Vec<_> = names.map(|(index, option)| format!("{} {}", index + 1, option.name)).collect();
    if !names.is_empty() {
        writeln!(out, "    {DIM}{}{DIM:#}", truncate(&safe(&names.join("   ")), width.saturating_sub(4)))?;
    }
    Ok(())
}

/// Writes everything that a request would permit or asks for, and its options with their ids.
pub(crate) fn write_details(request: &OpenRequest, out: &mut impl Write) -> io::Result<()> {
    let session = session_name(request);
    writeln!(
        out,
        "{DIM}{} · {} · agent {} · session {}{DIM:#}",
        safe(&request.id),
        safe(&session.replace('\n', " ")),
        safe(&request.agent),
        safe(&request.session.to_string())
    )?;
    match permission(request) {
        Some(permission) => permission.write(out)?,
        None => write_form(&request.params, out)?,
    }
    let options = request.options();
    let width = options.iter().map(|option| option.id.to_text().chars().count()).max().unwrap_or(0);
    for (index, option) in options.iter().enumerate() {
        let id = safe(&option.id.to_text());
        writeln!(out, "  {} {id:<width$}  {}", index + 1, safe(&option.name))?;
    }
    Ok(())
}

fn write_form(params: &Object, out: &mut impl Write) -> io::Result<()> {
    match Form::parse(params) {
        Some(form) => {
            writeln!(out, "{BOLD}? {}{BOLD:#}", safe(&form.message().replace('\n', " ")))?;
            form.fields().iter().try_for_each(|name| writeln!(out, "  {}", safe(name)))
        }
        None => writeln!(out, "{}", safe(params.to_json().as_str())),
    }
}

/// The result that selects an option.
pub(crate) fn selection(option: &PermissionOption) -> Object {
    let outcome = Object::new().with("outcome", "selected").with("optionId", &option.id);
    Object::new().with("outcome", outcome.to_json())
}
