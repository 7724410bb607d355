//! `/metrics`: GPU figures under own names in base units and under dcgm-exporter's names in its units,
//! and what the reporter itself costs.
//!
//! All names are in two enums. A figure that is unknown or unsupported has no line; zero is a line.

mod names;
mod page;

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

pub use names::{GpuMetric, OwnMetric};
use page::Page;

use crate::{
    nvml::Function,
    sample::{DriverStatus, Gpu, GpuState, Snapshot},
    uplink::{Sources, UplinkCounts},
};

/// What the reporter says of itself.
pub struct Own<'a> {
    pub counts: &'a UplinkCounts,
    pub scrape_failures: u64,
    pub has_control_plane: bool,
}

/// The whole page.
#[must_use]
pub fn page(sources: &Sources, own: &Own<'_>) -> String {
    let started = Instant::now();
    let snapshot = sources.snapshot();
    let mut page = Page::default();
    gpus(&mut page, &snapshot);
    for (uuid, code, count) in sources.shared.board.xid_totals() {
        let code = code.to_string();
        page.own(OwnMetric::Xids, &[("uuid", &uuid), ("code", &code)], to_f64(count));
    }
    for status in DriverStatus::ALL {
        let is = f64::from(u8::from(status == snapshot.driver.status));
        page.own(OwnMetric::Driver, &[("status", status.as_str())], is);
    }
    let seen = snapshot.gpus.iter().filter(|gpu| gpu.state != GpuState::Missing).count();
    page.own(OwnMetric::GpusSeen, &[], to_f64(u64::try_from(seen).unwrap_or(0)));
    if let Some(expected) = snapshot.driver.gpus_expected {
        page.own(OwnMetric::GpusExpected, &[], expected.into());
    }
    calls(&mut page, sources);
    reporter(&mut page, sources, own);
    page.own(OwnMetric::PageSeconds, &[], started.elapsed().as_secs_f64());
    page.finish()
}

fn gpus(page: &mut Page, snapshot: &Snapshot) {
    for metric in GpuMetric::ALL {
        for gpu in &snapshot.gpus {
            if let Some(value) = metric.value(gpu) {
                let index = gpu.identity.index.to_string();
                let labels = [("uuid", gpu.identity.uuid.as_str()), ("index", &index)];
                page.line(metric.name(), metric.kind(), metric.help(), &labels, value);
            }
        }
        let Some((alias, scale)) = metric.alias() else { continue };
        for gpu in &snapshot.gpus {
            if let Some(value) = metric.value(gpu) {
                alias_line(page, *metric, (alias, scale), gpu, (&snapshot.node, value));
            }
        }
    }
    for gpu in &snapshot.gpus {
        for state in GpuState::ALL {
            let labels = [("uuid", gpu.identity.uuid.as_str()), ("state", state.as_str())];
            page.own(OwnMetric::GpuState, &labels, f64::from(u8::from(state == gpu.state)));
        }
    }
    for gpu in &snapshot.gpus {
        for (group, age_ms) in ages(gpu) {
            let labels = [("uuid", gpu.identity.uuid.as_str()), ("group", group)];
            page.own(OwnMetric::SampleAge, &labels, to_f64(age_ms) / 1_000.0);
        }
    }
}

/// The same figure with the name, labels and unit that dashboards for dcgm-exporter expect.
fn alias_line(
    page: &mut Page,
    metric: GpuMetric,
    (alias, scale): (&'static str, f64),
    gpu: &Gpu,
    (node, value): (&str, f64),
) {
    let index = gpu.identity.index.to_string();
    let device = format!("nvidia{index}");
    let labels = [
        ("gpu", index.as_str()),
        ("UUID", &gpu.identity.uuid),
        ("pci_bus_id", &gpu.identity.pci_bus_id),
        ("device", &device),
        ("modelName", &gpu.identity.name),
        ("Hostname", node),
    ];
    page.line(alias, metric.kind(), metric.help(), &labels, value * scale);
}

fn ages(gpu: &Gpu) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("utilization", gpu.utilization.map(|g| g.age_ms)),
        ("memory", gpu.memory.map(|g| g.age_ms)),
        ("thermal", gpu.thermal.map(|g| g.age_ms)),
        ("power", gpu.power.map(|g| g.age_ms)),
        ("clocks", gpu.clocks.map(|g| g.age_ms)),
        ("ecc", gpu.ecc.map(|g| g.age_ms)),
        ("pcie", gpu.pcie.map(|g| g.age_ms)),
    ]
    .into_iter()
    .filter_map(|(name, age)| Some((name, age?)))
}

fn calls(page: &mut Page, sources: &Sources) {
    let costs = &sources.shared.costs;
    let used = || Function::ALL.iter().map(|f| (f.name(), costs.of(*f))).filter(|c| c.1.calls > 0);
    for (name, cost) in used() {
        let labels = [("function", name)];
        page.part(OwnMetric::CallSeconds, "_sum", &labels, to_f64(cost.micros) / 1e6);
        page.part(OwnMetric::CallSeconds, "_count", &labels, to_f64(cost.calls));
    }
    for (name, cost) in used() {
        page.own(OwnMetric::CallsFailed, &[("function", name)], to_f64(cost.failed));
    }
    for (name, cost) in used() {
        page.own(OwnMetric::CallsLate, &[("function", name)], to_f64(cost.late));
    }
}

fn reporter(page: &mut Page, sources: &Sources, own: &Own<'_>) {
    let counts = own.counts;
    let load = |n: &AtomicU64| to_f64(n.load(Ordering::Relaxed));
    let flag = |b: &AtomicBool| f64::from(u8::from(b.load(Ordering::Relaxed)));
    if own.has_control_plane {
        page.own(OwnMetric::Connected, &[], flag(&counts.connected));
    }
    page.own(OwnMetric::Connects, &[], load(&counts.connects));
    page.own(OwnMetric::ConnectFailures, &[], load(&counts.failures));
    page.own(OwnMetric::Reports, &[], load(&counts.reports));
    page.own(OwnMetric::Conflated, &[], load(&counts.conflated));
    page.own(OwnMetric::Refused, &[], load(&counts.refused));
    page.own(OwnMetric::Rounds, &[], to_f64(sources.shared.board.rounds()));
    page.own(OwnMetric::Interval, &[], sources.shared.interval().as_secs_f64());
    page.own(OwnMetric::ScrapeFailures, &[], to_f64(own.scrape_failures));
    let valid = f64::from(u8::from(sources.workloads.is_valid()));
    page.own(OwnMetric::WorkloadsValid, &[], valid);
    if let Some(seconds) = cpu_seconds() {
        page.own(OwnMetric::CpuSeconds, &[], seconds);
    }
    if let Some(bytes) = resident_bytes() {
        page.own(OwnMetric::ResidentBytes, &[], to_f64(bytes));
    }
    page.own(OwnMetric::Build, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

/// User and system time of this process; a tick of user space is 10 ms on Linux.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Words after the name in parentheses: utime and stime are the 12th and 13th.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    let system: u64 = words.next()?.parse().ok()?;
    Some(to_f64(user + system) / 100.0)
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

/// Exact up to 2⁵³, far beyond any counter here.
#[expect(clippy::cast_precision_loss, reason = "exposition numbers are floats")]
const fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_said_once_and_well_formed() {
        let own = OwnMetric::ALL.iter().map(|m| m.name());
        let gpu = GpuMetric::ALL.iter().map(|m| m.name());
        let aliases = GpuMetric::ALL.iter().filter_map(|m| m.alias()).map(|(name, _)| name);
        let all: Vec<&str> = own.chain(gpu).chain(aliases).collect();
        let set: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), set.len());
        for name in &all {
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
            assert!(name.starts_with("tidegate_") || name.starts_with("DCGM_FI_"), "{name}");
        }
    }

    #[test]
    fn counters_and_only_counters_end_in_total() {
        for metric in OwnMetric::ALL {
            let is_counter = metric.kind() == "counter";
            assert_eq!(metric.name().ends_with("_total"), is_counter, "{}", metric.name());
        }
    }

    #[test]
    fn this_process_has_a_cost() {
        assert!(cpu_seconds().is_some());
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}
