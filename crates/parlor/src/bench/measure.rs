//! What the system knows about a process, and what to make of many figures.

use std::fs;

/// The time that a process has computed, itself and the system for it, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    // Ticks are a hundredth of a second wherever Linux shows them to programs.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in brackets, may hold anything.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

/// The most memory that a process has had, in megabytes.
pub(crate) fn peak_memory(pid: u32) -> f64 {
    status(pid, "VmHWM:")
}

/// The memory that a process has, in megabytes.
pub(crate) fn memory(pid: u32) -> f64 {
    status(pid, "VmRSS:")
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
        assert!(memory(pid) > 0.0 && peak_memory(pid) >= memory(pid) && cpu_seconds(pid) >= 0.0);
    }
}
