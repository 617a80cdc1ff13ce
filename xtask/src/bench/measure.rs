//! Measures processes, and computes medians and quantiles.

use std::fs;
use std::time::{Duration, Instant};

/// Returns the CPU time of a process in seconds, in user and system mode.
///
/// The system counts the whole process in hundredths of a second, and each running thread in nanoseconds. Neither
/// overestimates, so the larger one is more accurate.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    const TICKS: f64 = 100.0;
    let fields = stat(pid);
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    let whole = (ticks(11) + ticks(12)) / TICKS;
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let schedule = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        schedule.split_whitespace().next()?.parse::<f64>().ok()
    });
    whole.max(nanoseconds.sum::<f64>() / 1e9)
}

/// Returns the child of a process that runs this program.
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

/// Returns the fields of `/proc/PID/stat` after the name.
fn stat(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may contain any character.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    rest.split_whitespace().map(str::to_owned).collect()
}

/// Returns the peak memory of a process in megabytes.
pub(crate) fn peak_memory(pid: u32) -> f64 {
    status(pid, "VmHWM:")
}

/// Returns the memory of a process in megabytes.
pub(crate) fn memory(pid: u32) -> f64 {
    status(pid, "VmRSS:")
}

/// Returns the memory of a process in megabytes after it has not decreased for `still`, or after `most`.
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

/// Describes the machine.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = fs::read_to_string("/proc/sys/kernel/ostype").unwrap_or_default();
    format!("{cores} cores, {} {}", system.trim(), kernel.trim())
}

/// Returns the median.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the value that this fraction of all values does not exceed.
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
    let index = (last as f64 * part).round() as usize;
    sorted[index.min(last)]
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
