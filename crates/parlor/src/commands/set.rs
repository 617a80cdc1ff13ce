use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use parlor_client::{ConfigOption, Hello};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_store::SessionRow;
use serde::Serialize;

use crate::background_server;
use crate::command_error::CommandError;
use crate::offline_sessions::{LatestOption, OfflineSessions, id_json, session_id, session_title};
use crate::output::{self, DIM};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::runtime;
use crate::server::{self, client_environment};
use crate::session_options;
use crate::table::{Cell, Table};

/// Set the mode, the model, another option or the title of a session
///
/// Without KEY, lists the stored options of the session with their values, and starts nothing. The agent decides which options there
/// are; to set one, the server and the agent are started if they are not running. `title` is the same as `parlor title`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Set {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Set this option: `mode`, `model`, `title`, or the id of another one
    #[arg(value_name = "KEY", requires = "value")]
    key: Option<String>,
    /// Set it to this value
    #[arg(value_name = "VALUE")]
    value: Option<String>,
    /// Print a JSON object; without KEY a list of objects
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor set latest
  parlor set latest mode code
  parlor set latest title 'Fix the flaky test'";

/// An option in the output with `--json`.
#[derive(Serialize)]
struct OptionOutput {
    key: String,
    value: Option<String>,
    /// The values that can be set; empty if any can, or if they are not known.
    values: Vec<String>,
}

/// The output with `--json` of an option that was set.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SetOutput<'a> {
    session_id: String,
    key: &'a str,
    value: Option<String>,
}

const TITLE: &str = "title";

impl Set {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let row = OfflineSessions::open(&self.paths)?.find(&self.session, self.latest.scope())?;
        let (Some(key), Some(value)) = (&self.key, &self.value) else { return self.list(&row) };
        let value = if key == TITLE {
            set_title(&self.paths, &row, Some(value))?
        } else {
            let data = background_server::ensure_running(&self.paths)?;
            let runtime = runtime::multi_threaded()?;
            let result = runtime.block_on(async {
                let id = SessionId::from(id_json(&row));
                let hello = Hello { env: client_environment(), ..Hello::new() };
                let client =
                    server::connect(&data, &hello).await.map_err(|error| CommandError::client(&error))?;
                let session = client.join(&id, Path::new(&row.cwd)).await;
                // Attached until the option is set.
                let _session = session.map_err(|error| CommandError::client(&error))?;
                let options = session_options::stored(&self.paths, &id)?;
                session_options::set(&client, &id, &options, key, value).await
            });
            runtime.shutdown_background();
            result?;
            Some(value.clone())
        };
        if self.json {
            output::print_json(&SetOutput { session_id: session_id(&row), key, value })?;
        } else {
            let value = value.as_deref().unwrap_or("(none)");
            output::print(|out| writeln!(out, "{} = {}", safe(key), safe(value)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the options that the session has.
    fn list(&self, row: &SessionRow) -> Result<ExitCode, CommandError> {
        let options = session_options::stored(&self.paths, &SessionId::from(id_json(row)))?;
        let output = |option: &ConfigOption| OptionOutput {
            key: session_options::key(option, &options),
            value: session_options::value(option),
            values: session_options::choices(option),
        };
        let title = OptionOutput { key: TITLE.to_owned(), value: session_title(row), values: Vec::new() };
        let all: Vec<_> = [title].into_iter().chain(options.iter().map(output)).collect();
        if self.json {
            output::print_json(&all)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["KEY", "~VALUE", "~VALUES"]);
        table.drop_if_narrow(&["VALUES"]);
        for option in all {
            let value = option.value.as_deref().map_or_else(|| Cell::styled("-", DIM), Cell::from);
            table.row([option.key.as_str().into(), value, option.values.join(", ").into()]);
        }
        output::print(|out| table.write(out))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Sets or clears the title; returns the resulting one.
pub(super) fn set_title(
    paths: &PathOptions,
    row: &SessionRow,
    title: Option<&str>,
) -> Result<Option<String>, CommandError> {
    let title = title.map_or_else(Json::null, |title| Json::from(&JsonStr::new(title)));
    let params = Object::new().with("title", title);
    let result = server::call_for_session(paths, row, "_parlor/title", params)?;
    Ok(result.get_string("title"))
}
