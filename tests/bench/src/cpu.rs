//! CPU time of processes, from `/proc`.
//!
//! `schedstat` of each thread counts nanoseconds; `stat` counts ticks of 10 ms, too coarse for a phase of a few seconds
//! at low load.

use std::fs;
use std::time::Duration;

/// What a process has used since it started, all its threads that still live together.
pub fn used(pid: u32) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("schedstat");
        // A thread may end between the listing and the read.
        let Ok(text) = fs::read_to_string(path) else { continue };
        nanoseconds += first_number(&text);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Busy and total time of all cores since boot, in ticks.
pub fn machine() -> anyhow::Result<(u64, u64)> {
    Ok(busy_and_total(&fs::read_to_string("/proc/stat")?))
}

/// Share of all cores that was busy between two readings of [`machine`].
pub fn busy_ratio(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let total = after.1.checked_sub(before.1).filter(|total| *total > 0)?;
    Some(after.0.saturating_sub(before.0) as f64 / total as f64)
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn busy_and_total(stat: &str) -> (u64, u64) {
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .take(8)
        .map(first_number)
        .collect();
    let total: u64 = fields.iter().sum();
    // The fourth is idle, the fifth waits for a disk.
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    (total - idle, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_time_grows_with_work() {
        let before = used(std::process::id()).expect("own process");
        let mut sum = 0_u64;
        while used(std::process::id()).expect("own process") < before + Duration::from_millis(5) {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(sum > 0);
    }

    #[test]
    fn machine_line_is_split_into_busy_and_idle() {
        // user nice system idle iowait irq softirq steal guest: 10 + 1 + 5 + 2 + 2 busy, 70 + 10 idle.
        let first = busy_and_total("cpu  10 1 5 70 10 0 2 2 9 9\ncpu0 1 1 1 1");
        assert_eq!(first, (20, 100));
        assert_eq!(busy_ratio(first, (70, 200)), Some(0.5));
        assert_eq!(busy_ratio(first, first), None);
    }
}
