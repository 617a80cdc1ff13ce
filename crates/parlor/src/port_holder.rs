//! Finds the process that listens on a TCP port, where `/proc` tells.

use std::fmt;
use std::fs;

/// A process that listens on a port.
pub(crate) struct PortHolder {
    pid: u32,
    program: String,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, crate::render::safe(&self.program))
    }
}

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Finds the process that listens on a port. `None` if the system does not tell, or the process belongs to another user.
pub(crate) fn find(port: u16) -> Option<PortHolder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let sockets: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pid = pids.into_iter().find(|pid: &u32| {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(PortHolder { pid, program: program.trim_end().to_owned() })
}

/// The inodes of the sockets in a table of `/proc/net` that listen on a port.
fn listening(table: &str, port: u16) -> Vec<String> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let is_ours = u16::from_str_radix(local_port, 16) == Ok(port)
            && fields.get(3).is_some_and(|state| *state == LISTEN);
        is_ours.then(|| fields.get(9).map(|inode| (*inode).to_owned())).flatten()
    };
    table.lines().skip(1).filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_by_its_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1DF3 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0\n\
            1: 0100007F:1DF3 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 100 0\n";
        assert_eq!(listening(table, 7667), ["4711"]);
        assert_eq!(listening(table, 80), Vec::<String>::new());
    }
}
