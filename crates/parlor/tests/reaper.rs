//! A killed server leaves no agent processes.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use parlor_process::{Command as Agent, Process, Reaper};
use parlor_testkit::process::{is_alive, send_signal, to_pid};
use parlor_testkit::wait::wait_until;
use rustix::process::{Signal, kill_process_group};

/// The agent writes the ids of its processes and has children in its group and, where there is `setsid`, outside of it;
/// some ignore SIGTERM.
const SCRIPT: &str = "
sleep 1000 & echo pid $!
(trap '' TERM; while :; do sleep 1000; done) & echo pid $!
if command -v setsid >/dev/null; then
    setsid sh -c 'trap \"\" TERM; echo pid $$; while :; do sleep 1000; done' &
else
    echo pid $!
fi
echo pid $$
trap '' TERM
while :; do sleep 1000; done
";

/// Runs as the server process that is killed; the tests here start it.
#[test]
#[ignore = "the process that the tests here kill"]
fn killed_server() {
    if env::var_os("PARLOR_TEST_KILLED").is_none() {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let reaper = Reaper::start(Path::new(env!("CARGO_BIN_EXE_parlor"))).unwrap();
        let agent = Agent {
            program: "sh".into(),
            args: vec!["-c".into(), SCRIPT.into()],
            env: vec![("PATH".into(), env::var_os("PATH").unwrap())],
            cwd: "/".into(),
        };
        let mut agents = Vec::new();
        for _ in 0..2 {
            let mut agent = Process::start(&agent, &reaper).unwrap();
            let mut stdout = agent.take_stdout().unwrap();
            tokio::spawn(async move { tokio::io::copy(&mut stdout, &mut tokio::io::stdout()).await });
            agents.push(agent);
        }
        std::future::pending::<()>().await;
    });
}

struct KilledServer {
    child: Child,
    pids: Vec<u32>,
}

impl KilledServer {
    /// Starts the process and waits until its agents have started all their children.
    fn start() -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "killed_server", "--ignored", "--nocapture"])
            .env("PARLOR_TEST_KILLED", "1")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pids = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("pid ")?.parse().ok());
        let pids: Vec<u32> = pids.take(8).collect();
        assert!(pids.iter().all(|pid| is_alive(*pid)));
        Self { child, pids }
    }

    fn reaper(&self) -> Option<u32> {
        let output = Command::new("ps").args(["-axo", "pid=,ppid=,stat=,args="]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().find_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let ours = fields.get(1) == Some(&&*self.child.id().to_string())
                && fields.last() == Some(&"watch-agents");
            (ours && !fields[2].starts_with('Z')).then(|| fields[0].parse().unwrap())
        })
    }

    /// Kills the process group, as a terminal or a supervisor does.
    fn kill_and_check(mut self) {
        kill_process_group(to_pid(self.child.id()), Signal::KILL).unwrap();
        self.child.wait().unwrap();
        wait_until("nothing is left", || self.pids.iter().all(|pid| !is_alive(*pid)));
    }
}

/// A failed test leaves no process either.
impl Drop for KilledServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_server_leaves_no_agent_and_no_reaper() {
    let killed = KilledServer::start();
    let reaper = killed.reaper().unwrap();
    for polite in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        send_signal(reaper, polite);
    }
    killed.kill_and_check();
    wait_until("the reaper exits", || !is_alive(reaper));
}

#[test]
fn a_reaper_that_died_is_restarted() {
    let killed = KilledServer::start();
    let first = killed.reaper().unwrap();
    send_signal(first, Signal::KILL);
    wait_until("there is another helper", || killed.reaper().is_some_and(|reaper| reaper != first));
    assert!(killed.pids.iter().all(|pid| is_alive(*pid)), "the death of a helper ends no agent");
    killed.kill_and_check();
}
