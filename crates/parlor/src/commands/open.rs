use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use jiff::Timestamp;
use parlor_json::{Json, Object};
use parlor_server::data_dir::DataDir;
use parlor_view::address::percent_encoded;
use parlor_view::browser::browser_name;

use crate::background_server;
use crate::command_error::CommandError;
use crate::offline_sessions::{LatestOption, OfflineSessions, session_id};
use crate::output;
use crate::path_options::PathOptions;
use crate::server::{self, ANSWER_TIMEOUT};
use crate::table::{Cell, Table};

/// Open the page in a browser
///
/// Signs the browser in with a link that works once, for 10 minutes. Starts a server if none is running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Open {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Show this session: its id, a unique prefix of its id or name, or `latest`
    session: Option<String>,
    /// Print the link, open nothing
    #[arg(long)]
    print: bool,
    /// Let the browser only watch
    #[arg(long)]
    observe: bool,
    /// List the browsers that are signed in
    #[arg(long, conflicts_with_all = ["session", "print", "observe"])]
    browsers: bool,
    /// Print the list as JSON
    #[arg(long, requires = "browsers")]
    json: bool,
    /// Sign a browser out: its id in the list, or a unique prefix of it
    #[arg(long, value_name = "BROWSER", conflicts_with_all = ["session", "print", "observe", "browsers"])]
    sign_out: Option<String>,
}

const EXAMPLES: &str = "Examples:
  parlor open
  parlor open latest
  parlor open --print --observe
  parlor open --browsers
  parlor open --sign-out 3f9c";

impl Open {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        if self.browsers {
            return self.list();
        }
        if let Some(browser) = &self.sign_out {
            return self.sign_out(browser);
        }
        let session = self.session.as_deref().map(|name| {
            OfflineSessions::open(&self.paths)?.find(name, self.latest.scope()).map(|row| session_id(&row))
        });
        let session = session.transpose()?;
        let data = background_server::ensure_running(&self.paths)?;
        let port = port(&data)?;
        let params = Object::new().with("observer", self.observe);
        let response = server::call_with(&data.socket(), "_parlor/browsers/link", &params)?;
        let code = response.get_string("code").unwrap_or_default();
        let link = link(port, &code);
        let link = match &session {
            Some(session) => format!("{link}&session={}", percent_encoded(session)),
            None => link,
        };
        let is_opened = !self.print && open_in_browser(&link);
        output::print(|out| {
            if is_opened {
                writeln!(out, "opened http://parlor.localhost:{port}/")
            } else {
                writeln!(out, "{link}")
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn list(self) -> Result<ExitCode, CommandError> {
        let browsers = browsers(&background_server::ensure_running(&self.paths)?)?;
        if self.json {
            output::print_raw_json(&format!("{}\n", Json::array(browsers).as_str()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["ID", "ROLE", "LAST USED", "~BROWSER"]);
        let now = Timestamp::now();
        for browser in &browsers {
            let text = |name| browser.get_string(name).unwrap_or_default();
            let id: String = text("id").chars().take(ID_LENGTH).collect();
            let used = text("lastUsedAt").parse::<Timestamp>();
            let used =
                used.map(|at| output::ago(at.as_millisecond(), now.as_millisecond())).unwrap_or_default();
            table.row([
                Cell::from(id),
                Cell::from(text("role")),
                Cell::from(used),
                Cell::from(browser_name(&text("name"))),
            ]);
        }
        output::print(|out| {
            if browsers.is_empty() { writeln!(out, "no browser is signed in") } else { table.write(out) }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn sign_out(&self, prefix: &str) -> Result<ExitCode, CommandError> {
        let data = background_server::ensure_running(&self.paths)?;
        let ids = browsers(&data)?.into_iter().filter_map(|browser| browser.get_string("id"));
        let matching: Vec<String> = ids.filter(|id| id.starts_with(prefix)).collect();
        let [id] = &matching[..] else {
            let problem = if matching.is_empty() { "no browser has" } else { "several browsers have" };
            return Err(CommandError::bad_input(format_args!("{problem} an id that starts with {prefix}"))
                .hint("`parlor open --browsers` lists them"));
        };
        server::call_with(&data.socket(), "_parlor/browsers/sign_out", &Object::new().with("id", id))?;
        output::print(|out| writeln!(out, "signed out {id}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Characters of the ids in the list.
const ID_LENGTH: usize = 8;

/// The browsers that are signed in.
fn browsers(data: &DataDir) -> Result<Vec<Object>, CommandError> {
    let response = server::call(&data.socket(), "_parlor/browsers", ANSWER_TIMEOUT)?;
    let browsers = response.get_array("browsers").unwrap_or_default();
    Ok(browsers.into_iter().filter_map(parlor_json::JsonRef::to_object).collect())
}

/// The link that signs a browser in.
pub(crate) fn link(port: u16, code: &str) -> String {
    format!("{}/sign-in?code={code}", address(port))
}

/// The address of the page.
pub(crate) fn address(port: u16) -> String {
    format!("http://parlor.localhost:{port}")
}

/// The port of the server.
fn port(data: &DataDir) -> Result<u16, CommandError> {
    let port = std::fs::read_to_string(data.port_file()).ok().and_then(|port| port.trim().parse().ok());
    port.ok_or_else(|| {
        CommandError::server_unavailable("the server listens on its socket only, so it has no page")
            .hint("start it without --socket-only, and without socket_only under [server] in config.toml")
    })
}

/// Opens a link with the program of the desktop; `false` if there is none.
fn open_in_browser(link: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
