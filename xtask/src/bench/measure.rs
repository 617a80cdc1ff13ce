//! What the system knows about a process, and what to make of many figures.

use std::fs;
use std::time::{Duration, Instant};

/// The time that a process has computed, itself and the system for it, in seconds.
///
/// The system counts the whole process in hundredths of a second, and each thread that still runs in nanoseconds. Neither
/// is ever too much, so the larger one is closer.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    const TICKS: f64 = 100.0;
    let fields = stat(pid);
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    let whole = (ticks(11) + ticks(12)) / TICKS;
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let schedule = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        schedule.split_whitespace().next()?.parse::<f64>().ok()
    });
    whole.max(nanoseconds.sum::<f64>() / 1e9)
}

/// The child of a process that runs this program.
pub(crate) fn child_with(parent: u32, program: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let is_child = stat(*pid).get(1).is_some_and(|field| field.parse() == Ok(parent));
        is_child
            && fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.split(|byte| *byte == 0).next() == Some(program.as_bytes()))
    })
}

/// What the system tells of a process, behind its name.
fn stat(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in brackets, may hold anything.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    rest.split_whitespace().map(str::to_owned).collect()
}

/// The most memory that a process has had, in megabytes.
pub(crate) fn peak_memory(pid: u32) -> f64 {
    status(pid, "VmHWM:")
}

/// The memory that a process has, in megabytes.
pub(crate) fn memory(pid: u32) -> f64 {
    status(pid, "VmRSS:")
}

/// The memory that a process has when it gives nothing more back, in megabytes: when it has not become less for `still`, or
/// after `most`.
pub(crate) fn settled_memory(pid: u32, still: Duration, most: Duration) -> f64 {
    const STEP: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    let (mut least, mut since) = (memory(pid), begun);
    while since.elapsed() < still && begun.elapsed() < most {
        std::thread::sleep(STEP);
        let now = memory(pid);
        if now < least * 0.99 {
            (least, since) = (now, Instant::now());
        }
    }
    memory(pid)
}

fn status(pid: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}

/// What the benchmark runs on.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = fs::read_to_string("/proc/sys/kernel/ostype").unwrap_or_default();
    format!("{cores} cores, {} {}", system.trim(), kernel.trim())
}

/// The value in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that this part of all values does not exceed.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "there are few values, and a part of them is not negative"
    )]
    let place = (last as f64 * part).round() as usize;
    sorted[place.min(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((quantile(&[4.0, 1.0, 3.0, 2.0], 1.0) - 4.0).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_system_knows_this_process() {
        let pid = std::process::id();
        assert!(memory(pid) > 0.0 && peak_memory(pid) > 0.0 && cpu_seconds(pid) > 0.0);
        assert_eq!(child_with(pid, "no such word"), None);
    }
}
