//! Processes are started, awaited, and ended with all their descendants.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use parlor_process::{Command, Process, Reaper};
use parlor_testkit::process::is_alive;
use parlor_testkit::wait::{TIMEOUT, wait_until, wait_until_async, within_timeout};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use parlor_testkit::shell::{self, reaper, shell};

#[test]
#[ignore = "the helper process of the other tests"]
fn as_reaper() {
    shell::run_reaper();
}

fn here(script: &str) -> Command {
    shell(script, Path::new("/"))
}

/// Reads the numbers that a script writes, one per line.
async fn pids(process: &mut Process, count: usize) -> Vec<u32> {
    let mut lines = BufReader::new(process.take_stdout().unwrap()).lines();
    let mut pids = Vec::new();
    while pids.len() < count {
        let line = within_timeout(lines.next_line()).await.unwrap().expect("a process id");
        pids.push(line.trim().parse().unwrap());
    }
    pids
}

#[tokio::test]
async fn the_caller_gets_the_streams() {
    let mut process = Process::start(&here("cat; echo done >&2; exit 7"), &reaper()).unwrap();
    let mut stdin = process.take_stdin().unwrap();
    assert!(process.take_stdin().is_none());
    stdin.write_all(b"hello").await.unwrap();
    drop(stdin);
    let mut said = String::new();
    within_timeout(process.take_stdout().unwrap().read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "hello");
    let (one, other) = within_timeout(async { tokio::join!(process.wait(), process.wait()) }).await;
    assert_eq!((one.code(), other.code()), (Some(7), Some(7)));
    assert_eq!(process.stderr_tail(), "done\n");
    assert_eq!(within_timeout(process.wait()).await.code(), Some(7), "who comes later hears it too");
}

#[tokio::test]
async fn the_environment_is_the_given_one_and_a_tag() {
    let folder = tempfile::tempdir().unwrap();
    let cwd = folder.path().canonicalize().unwrap();
    let mut command = shell("pwd; env", &cwd);
    command.env.push(("OWN".into(), "value".into()));
    command.env.push(("PARLOR_AGENT_TAG".into(), "outer".into()));
    let mut process = Process::start(&command, &reaper()).unwrap();
    let mut said = String::new();
    within_timeout(process.take_stdout().unwrap().read_to_string(&mut said)).await.unwrap();
    assert_eq!(said.lines().next(), cwd.to_str());
    assert!(said.contains("OWN=value\n"));
    assert!(said.contains("\nPARLOR_AGENT_TAG=outer:"), "the tag of an outer parlor is kept: {said}");
    assert!(!said.contains("CARGO"), "{said}");
}

#[tokio::test]
async fn a_command_of_the_caller_keeps_its_environment() {
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "env"]).env("OWN", "value").env("PARLOR_AGENT_TAG", "outer");
    let mut process = Process::start_with(command, &Reaper::disabled()).unwrap();
    let mut said = String::new();
    within_timeout(process.take_stdout().unwrap().read_to_string(&mut said)).await.unwrap();
    assert!(said.contains("OWN=value\n"), "{said}");
    assert!(said.contains("PATH="), "the rest is inherited: {said}");
    assert!(said.contains("PARLOR_AGENT_TAG=outer:"), "the tag of an outer parlor is kept: {said}");
}

#[test]
fn a_process_is_killed_with_its_group_when_the_runtime_shuts_down() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (process, pids) = runtime.block_on(async {
        let script = here("trap '' TERM; sleep 1000 & echo $!; echo $$; wait");
        let mut process = Process::start(&script, &Reaper::disabled()).unwrap();
        let pids = pids(&mut process, 2).await;
        (process, pids)
    });
    drop(runtime);
    wait_until("the processes are gone", || pids.iter().all(|pid| !is_alive(*pid)));
    drop(process);
}

#[tokio::test]
async fn the_error_names_the_program_that_cannot_be_started() {
    let reaper = reaper();
    let missing = Command { program: "no-such-program".into(), args: Vec::new(), ..here("") };
    let error = Process::start(&missing, &reaper).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("no-such-program"), "{error}");
    let error = Process::start(&shell("true", Path::new("/no/such/folder")), &reaper).unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    within_timeout(reaper.close()).await;
    let error = Process::start(&here("true"), &reaper).unwrap_err();
    assert!(error.to_string().contains("shutting down"), "{error}");
}

#[tokio::test]
async fn the_end_of_standard_error_is_kept() {
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2; printf '\\377end' >&2";
    let process = Process::start(&here(script), &reaper()).unwrap();
    within_timeout(process.wait()).await;
    let tail = process.stderr_tail();
    assert!(tail.ends_with("line 19999\n\u{fffd}end"));
    assert!((60 << 10..66 << 10).contains(&tail.len()), "{}", tail.len());
}

#[tokio::test]
async fn a_process_that_ends_by_itself_is_not_signalled() {
    let mut process = Process::start(&here("trap 'exit 9' TERM; cat; exit 3"), &reaper()).unwrap();
    drop(process.take_stdin());
    let status = within_timeout(process.stop(TIMEOUT)).await;
    assert_eq!(status.code(), Some(3));
}

#[tokio::test]
async fn a_process_that_ignores_the_end_of_its_input_gets_sigterm() {
    // The shell runs the trap between its commands, so it waits for a child that gets the signal as well.
    let script = "trap 'exit 9' TERM; echo $$; while :; do sleep 1000; done";
    let mut process = Process::start(&here(script), &reaper()).unwrap();
    pids(&mut process, 1).await;
    let status = within_timeout(process.stop(Duration::from_millis(50))).await;
    assert_eq!(status.code(), Some(9));
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed_with_its_group() {
    let script = "trap '' TERM; sleep 1000 & echo $!; echo $$; wait; while :; do sleep 1000; done";
    let mut process = Process::start(&here(script), &reaper()).unwrap();
    let pids = pids(&mut process, 2).await;
    assert_eq!(pids[1], process.pid());
    let start = Instant::now();
    let grace = Duration::from_millis(100);
    let status = within_timeout(process.stop(grace)).await;
    assert_eq!(status.signal(), Some(9));
    assert!(start.elapsed() >= 2 * grace);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "all are gone when it returns");
}

#[tokio::test]
async fn a_stop_whose_future_is_dropped_continues() {
    let mut process = Process::start(&here("echo $$; exec sleep 1000"), &reaper()).unwrap();
    pids(&mut process, 1).await;
    let stop = tokio::time::timeout(Duration::from_millis(1), process.stop(Duration::from_millis(50)));
    assert!(stop.await.is_err());
    assert_eq!(within_timeout(process.wait()).await.signal(), Some(15));
}

#[tokio::test]
async fn the_earliest_of_several_stop_requests_counts() {
    let mut process = Process::start(&here("echo $$; exec sleep 1000"), &reaper()).unwrap();
    pids(&mut process, 1).await;
    process.end(Duration::MAX, Duration::MAX);
    process.end(Duration::ZERO, Duration::from_secs(1));
    process.end(Duration::MAX, Duration::MAX);
    assert_eq!(within_timeout(process.wait()).await.signal(), Some(15));
}

#[tokio::test]
async fn children_that_outlive_their_parent_are_ended() {
    let script = "sleep 1000 & echo $!; (trap '' TERM; while :; do sleep 1000; done) & echo $!; exit 4";
    let mut process = Process::start(&here(script), &reaper()).unwrap();
    let pids = pids(&mut process, 2).await;
    assert_eq!(within_timeout(process.wait()).await.code(), Some(4));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn descendants_that_left_the_group_are_ended() {
    let script = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done' & wait";
    let mut process = Process::start(&here(script), &reaper()).unwrap();
    let pids = pids(&mut process, 1).await;
    process.stop(Duration::from_millis(50)).await;
    assert!(!is_alive(pids[0]));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_cannot_be_found_and_holds_the_streams_does_not_delay_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{}; echo said >&2; exit 5", shell::HIDE.trim());
    let process = Process::start(&shell(&script, folder.path()), &reaper()).unwrap();
    let status = within_timeout(process.wait()).await;
    shell::end_hidden(folder.path());
    assert_eq!(status.code(), Some(5));
    assert_eq!(process.stderr_tail(), "said\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn other_processes_are_not_ended() {
    let reaper = reaper();
    let mut other = Process::start(&here("setsid sh -c 'echo $$; exec sleep 1000' & wait"), &reaper).unwrap();
    let kept = pids(&mut other, 1).await;
    for script in ["exit 0", "sleep 1000 & exit 0", "setsid sleep 1000 & exit 0"] {
        let process = Process::start(&here(script), &reaper).unwrap();
        within_timeout(process.wait()).await;
        process.stop(Duration::ZERO).await;
    }
    assert!(is_alive(kept[0]) && is_alive(other.pid()));
    other.stop(Duration::ZERO).await;
    assert!(!is_alive(kept[0]));
}

#[tokio::test]
async fn dropping_a_process_ends_it() {
    let mut process = Process::start(&here("sleep 1000 & echo $!; echo $$; wait"), &reaper()).unwrap();
    let pids = pids(&mut process, 2).await;
    drop(process);
    wait_until_async("all are gone", async || pids.iter().all(|pid| !is_alive(*pid))).await;
}

#[tokio::test]
async fn both_outputs_in_one_pipe_stay_in_order() {
    let script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done; read line || echo no input";
    let (process, mut output) = Process::start_merged(&here(script), &reaper()).unwrap();
    let mut said = String::new();
    within_timeout(output.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nno input\n");
    assert_eq!(within_timeout(process.wait()).await.code(), Some(0));
}

#[tokio::test]
async fn closing_the_reaper_ends_the_remaining_processes() {
    let reaper = reaper();
    let mut process =
        Process::start(&here("trap '' TERM; sleep 1000 & echo $!; wait; wait"), &reaper).unwrap();
    let pids = pids(&mut process, 1).await;
    within_timeout(reaper.close()).await;
    assert!(!is_alive(pids[0]));
    within_timeout(process.wait()).await;
}
