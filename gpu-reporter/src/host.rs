//! The node around the GPUs, from /proc. Rates are over the time since the last reading.

use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::sample::Host;

/// How often to read; the kernel's own pressure averages move every 2 s.
const PERIOD: Duration = Duration::from_secs(1);
/// Readings older than this are not told.
const AGE_MAX: Duration = Duration::from_secs(5);

/// Counters that become rates.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    at: Instant,
    cpu: Option<(u64, u64)>,
    network: Option<(u64, u64)>,
}

/// The newest reading, shared with the uplink.
#[derive(Clone, Default)]
pub struct HostReading(Arc<Mutex<Option<(Instant, Host)>>>);

impl HostReading {
    #[must_use]
    pub fn at(&self, now: Instant) -> Option<Host> {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, host) = (*guard)?;
        let age = now.saturating_duration_since(at);
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        (age <= AGE_MAX).then_some(Host { age_ms, ..host })
    }

    /// Reads for ever.
    pub async fn run(self) {
        let mut before = None;
        let mut ticks = tokio::time::interval(PERIOD);
        loop {
            ticks.tick().await;
            let (host, counters) = read(before);
            before = Some(counters);
            let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *guard = Some((counters.at, host));
        }
    }
}

fn read(before: Option<Counters>) -> (Host, Counters) {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let meminfo = text("/proc/meminfo");
    let now = Counters {
        at: Instant::now(),
        cpu: cpu_ticks(&text("/proc/stat")),
        network: network_bytes(&text("/proc/net/dev")),
    };
    let (rx, tx) = before.and_then(|b| network_rates(b, now)).unzip();
    let host = Host {
        age_ms: 0,
        cpu_use_bp: before.and_then(|b| cpu_use_bp(b.cpu?, now.cpu?)),
        memory_total_bytes: meminfo_bytes(&meminfo, "MemTotal"),
        memory_available_bytes: meminfo_bytes(&meminfo, "MemAvailable"),
        network_rx_bytes_per_second: rx,
        network_tx_bytes_per_second: tx,
        load_1m: text("/proc/loadavg").split_whitespace().next().and_then(|w| w.parse().ok()),
        cpu_pressure_bp: pressure_bp(&text("/proc/pressure/cpu")),
        memory_pressure_bp: pressure_bp(&text("/proc/pressure/memory")),
        io_pressure_bp: pressure_bp(&text("/proc/pressure/io")),
    };
    (host, now)
}

/// Busy and all ticks of the line `cpu`: user nice system idle iowait irq softirq steal.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|w| w.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all.checked_sub(idle)?, all))
}

fn cpu_use_bp(before: (u64, u64), now: (u64, u64)) -> Option<u32> {
    let busy = now.0.checked_sub(before.0)?;
    let all = now.1.checked_sub(before.1)?;
    u32::try_from((busy * 10_000).checked_div(all)?.min(10_000)).ok()
}

fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

/// Received and sent bytes of all interfaces but the loopback.
fn network_bytes(dev: &str) -> Option<(u64, u64)> {
    let mut sums = None;
    for line in dev.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let mut words = numbers.split_whitespace().map(|w| w.parse::<u64>().unwrap_or(0));
        if name.trim() != "lo"
            && let (Some(rx), Some(tx)) = (words.next(), words.nth(7))
        {
            let (rx_sum, tx_sum) = sums.unwrap_or((0_u64, 0_u64));
            sums = Some((rx_sum.saturating_add(rx), tx_sum.saturating_add(tx)));
        }
    }
    sums
}

fn network_rates(before: Counters, now: Counters) -> Option<(u64, u64)> {
    let millis = u64::try_from(now.at.saturating_duration_since(before.at).as_millis()).ok()?;
    let rate = |new: u64, old: u64| new.checked_sub(old)?.checked_mul(1_000)?.checked_div(millis);
    let (old, new) = (before.network?, now.network?);
    rate(new.0, old.0).zip(rate(new.1, old.1))
}

/// `some avg10=1.53 …` as basis points.
fn pressure_bp(pressure: &str) -> Option<u32> {
    let line = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    let (whole, hundredths) = percent.split_once('.')?;
    Some(whole.parse::<u32>().ok()?.checked_mul(100)? + hundredths.parse::<u32>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_use_is_busy_ticks_over_all_ticks() {
        // user 10, nice 0, system 5, idle 80, iowait 5 → busy 15 of 100.
        assert_eq!(cpu_ticks("cpu  10 0 5 80 5 0 0 0 0 0\ncpu0 1"), Some((15, 100)));
        // 30 busy of 120 more ticks = 25 %.
        assert_eq!(cpu_use_bp((15, 100), (45, 220)), Some(2_500));
        assert_eq!(cpu_use_bp((15, 100), (15, 100)), None);
        assert_eq!(cpu_use_bp((45, 220), (15, 100)), None);
    }

    #[test]
    fn loopback_traffic_does_not_count() {
        let dev = "Inter-| Receive\n face |bytes\n    lo: 999 0 0 0 0 0 0 0 999 0\n  eth0: 100 1 0 0 0 0 0 0 50 1 0\n eth1:1 0 0 0 0 0 0 0 2 0\n";
        assert_eq!(network_bytes(dev), Some((101, 52)));
        assert_eq!(network_bytes("nothing"), None);
    }

    #[test]
    fn rates_are_bytes_a_second_and_unknown_when_a_counter_goes_back() {
        let at = Instant::now();
        let counters = |ms, rx, tx| Counters {
            at: at + Duration::from_millis(ms),
            cpu: None,
            network: Some((rx, tx)),
        };
        // 1000 bytes in 500 ms = 2000 B/s.
        assert_eq!(
            network_rates(counters(0, 0, 0), counters(500, 1_000, 500)),
            Some((2_000, 1_000))
        );
        assert_eq!(network_rates(counters(0, 10, 10), counters(500, 5, 20)), None);
        assert_eq!(network_rates(counters(0, 1, 1), counters(0, 2, 2)), None);
    }

    #[test]
    fn pressure_is_the_share_of_ten_seconds() {
        let text = "some avg10=1.53 avg60=0.87 avg300=0.30 total=1\nfull avg10=0.00";
        assert_eq!(pressure_bp(text), Some(153));
        assert_eq!(pressure_bp(""), None);
    }

    #[test]
    fn memory_is_in_bytes() {
        let text = "MemTotal:       16 kB\nMemAvailable:   8 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(16_384));
        assert_eq!(meminfo_bytes(text, "MemAvailable"), Some(8_192));
        assert_eq!(meminfo_bytes(text, "Mem"), None);
    }

    #[test]
    fn this_machine_has_a_reading() {
        let (host, counters) = read(None);
        assert!(host.memory_total_bytes.is_some_and(|b| b > 0));
        assert_eq!(host.cpu_use_bp, None);
        assert!(counters.cpu.is_some());
    }
}
