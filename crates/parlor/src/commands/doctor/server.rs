//! Checks of the running server.

use std::fs::{File, TryLockError};
use std::path::Path;

use parlor_dialect::LossKind;
use parlor_server::data_dir::DataDir;

use super::Check;
use crate::commands::status;
use crate::server;

/// Checks the server of a data directory.
pub(super) fn running(data: &DataDir) -> Vec<Check> {
    let name = "server";
    let socket = data.socket();
    if !server::is_running(&socket) {
        return vec![not_running(data, &socket)];
    }
    let server = match status::query(&socket) {
        Ok(server) => server,
        Err(failure) => return vec![Check::fail(name, failure.to_string(), "restart the server")],
    };
    let process = if server.version == env!("CARGO_PKG_VERSION") {
        Check::ok(name, format!("running as process {}", server.pid))
    } else {
        let message = format!(
            "process {} is parlor {}, this program is {}",
            server.pid,
            server.version,
            env!("CARGO_PKG_VERSION")
        );
        Check::warn(name, message, "stop the server; the next command starts one of this version")
    };
    let mut checks = vec![process];
    checks.extend(losses(&server));
    checks
}

/// Lists translation losses and rejected updates since the server started, by kind.
fn losses(server: &status::ServerStatus) -> Vec<Check> {
    let (refused, translation): (Vec<_>, Vec<_>) =
        server.losses_by_kind().into_iter().partition(|loss| loss.kind == LossKind::UpdateRefused.name());
    let text = |losses: &[status::LossCount]| {
        let kinds: Vec<_> =
            losses.iter().map(|loss| format!("{} {}: {}", loss.count, loss.kind, loss.meaning)).collect();
        format!("since the server started: {}", kinds.join(" "))
    };
    let mut checks = Vec::new();
    if !translation.is_empty() {
        checks.push(Check::ok("losses", text(&translation)));
    }
    if !refused.is_empty() {
        let hint = "the agent sent invalid updates; `parlor status` lists the sessions, the server's log has the reasons";
        checks.push(Check::warn("refused updates", text(&refused), hint));
    }
    checks
}

fn not_running(data: &DataDir, socket: &Path) -> Check {
    let name = "server";
    if is_locked(data) {
        let message = "a server has locked the data directory and accepts no connections";
        return Check::fail(
            name,
            message,
            format!("its process id is in {}", data.path().join("lock").display()),
        );
    }
    if socket.exists() {
        let message = "not running; a killed server left its socket";
        return Check::warn(name, message, "the next server replaces it");
    }
    Check::ok(name, "not running")
}

fn is_locked(data: &DataDir) -> bool {
    let Ok(file) = File::open(data.path().join("lock")) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}
