//! A parlor that is killed leaves no agent behind.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use parlor_server::process::{Command as Agent, Process, Watcher};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

const PATIENCE: Duration = Duration::from_secs(30);

/// The agent writes the ids of its processes and has children in its group and, where there is `setsid`, outside of it;
/// some do not end when asked.
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

/// The process that has agents and is killed. It runs when the tests here start it.
#[test]
#[ignore = "the process that the tests here kill"]
fn victim() {
    if env::var_os("PARLOR_TEST_VICTIM").is_none() {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let watcher = Watcher::start(Path::new(env!("CARGO_BIN_EXE_parlor"))).unwrap();
        let agent = Agent {
            program: "sh".into(),
            args: vec!["-c".into(), SCRIPT.into()],
            env: vec![("PATH".into(), env::var_os("PATH").unwrap())],
            cwd: "/".into(),
        };
        let mut agents = Vec::new();
        for _ in 0..2 {
            let mut agent = Process::start(&agent, &watcher).unwrap();
            let mut stdout = agent.take_stdout().unwrap();
            tokio::spawn(async move { tokio::io::copy(&mut stdout, &mut tokio::io::stdout()).await });
            agents.push(agent);
        }
        std::future::pending::<()>().await;
    });
}

struct Victim {
    child: Child,
    pids: Vec<u32>,
}

impl Victim {
    /// Starts the victim and waits until its agents have all their children.
    fn start() -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "victim", "--ignored", "--nocapture"])
            .env("PARLOR_TEST_VICTIM", "1")
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

    fn helper(&self) -> Option<u32> {
        let output = Command::new("ps").args(["-axo", "pid=,ppid=,stat=,args="]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().find_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let ours =
                words.get(1) == Some(&&*self.child.id().to_string()) && words.last() == Some(&"watch-agents");
            (ours && !words[2].starts_with('Z')).then(|| words[0].parse().unwrap())
        })
    }

    /// Kills all of the victim's group, as a terminal or a supervisor may do.
    fn kill_and_look(mut self) {
        kill_process_group(number(self.child.id()), Signal::KILL).unwrap();
        self.child.wait().unwrap();
        eventually("nothing is left", || self.pids.iter().all(|pid| !is_alive(*pid)));
    }
}

/// A test that fails leaves no victim either.
impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_alive(pid: u32) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    let state = String::from_utf8_lossy(&output.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "still waiting until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(number(pid), signal).unwrap();
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

#[test]
fn a_killed_parlor_leaves_no_agent_and_no_helper() {
    let victim = Victim::start();
    let helper = victim.helper().unwrap();
    for polite in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        signal(helper, polite);
    }
    victim.kill_and_look();
    eventually("the helper is gone", || !is_alive(helper));
}

#[test]
fn a_helper_that_died_is_replaced() {
    let victim = Victim::start();
    let first = victim.helper().unwrap();
    signal(first, Signal::KILL);
    eventually("there is another helper", || victim.helper().is_some_and(|helper| helper != first));
    assert!(victim.pids.iter().all(|pid| is_alive(*pid)), "the death of a helper ends no agent");
    victim.kill_and_look();
}
