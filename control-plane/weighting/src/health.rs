//! How much traffic an endpoint's health allows: a product of named factors.
//!
//! ```text
//! gate = Π endpoint factors × min over its GPUs (Π that GPU's factors)
//! ```
//! The slowest GPU sets the pace of a replica that spans several, hence the minimum. Slowdown, thermal
//! and power bits are views of the same clock, so only the strongest of the three counts. A value
//! that is unknown has no factor; while it is late the gate may fall but not rise (`held`).
//! A long queue counts once it has lasted: for a moment it is load, which every pick sees in the counts of
//! requests. Taken twice it swings: with requests of 0.1 s and an update each second all gates went up and
//! down, and P99 was 1.52 times the ideal instead of 1.14 (`tests/sim`, load 0.85, 64 proxies).
//! A driver that hangs or is gone makes its GPUs unknown: neither idle nor broken, but to be avoided.
use alloc::{string::String, vec::Vec};

use tidegate_policy::units::{Span, Time};

use crate::{
    freshness::{self, Tier, read},
    gate::{GateFactor, GateReason},
    input::{Clocks, DriverStatus, Engine, GpuSample, GpuState, NodeReport},
    latch::{GpuMemory, SOFT_GATE},
    numbers::{bounded, ratio},
    snapshot::HardState,
};

/// Gate of a GPU that is not in its node's report.
const UNREPORTED_GATE: f64 = 0.5;
const DRIVER_HUNG_GATE: f64 = 0.25;
const DRIVER_UNAVAILABLE_GATE: f64 = 0.5;
const SLOW_CALLS_GATE: f64 = 0.5;
/// Hardware slowdown halves the clock or worse; when it lasts, worse.
const SLOWDOWN_GATE: f64 = 0.5;
const SLOWDOWN_LONG_GATE: f64 = 0.25;
const SLOWDOWN_LONG: Span = Span::secs(30);
const SW_THERMAL_GATE_MIN: f64 = 0.5;
const CLOCK_GATE_MIN: f64 = 0.1;
/// Degrees below the slowdown threshold from which the gate falls, down to one half at the threshold.
const MARGIN_C: f64 = 10.0;
const MEMORY_FREE_MIN: f64 = 0.02;
const OUT_OF_MEMORY_GATE: f64 = 0.2;
const PCIE_GATE_MIN: f64 = 0.1;
const KV_FULL_BP: u32 = 9_500;
const QUEUE_GATE: f64 = 0.3;
/// Longer than requests take that wait in such a queue by chance.
const QUEUE_LONG_MIN: Span = Span::secs(10);
/// After this long without a value its absence is the normal state and holds nothing.
const HOLD_MAX: Span = Span::secs(60);

const SW_POWER_CAP: u64 = 0x04;
const SW_THERMAL: u64 = 0x20;

/// One GPU as the newest report has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportedGpu<'a> {
    pub(crate) report: &'a NodeReport,
    pub(crate) gpu: &'a GpuSample,
}

/// A verdict over an endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) factors: Vec<GateFactor>,
    pub(crate) gate: f64,
    pub(crate) hard: HardState,
    /// Health data is late: the gate may fall, not rise.
    pub(crate) is_held: bool,
}

/// One GPU of an endpoint for the verdict: what is reported and what is remembered.
#[derive(Debug, Clone)]
pub(crate) struct GpuView<'a> {
    pub(crate) uuid: String,
    pub(crate) reported: Option<ReportedGpu<'a>>,
    pub(crate) memory: Option<&'a GpuMemory>,
    /// The worst status of the drivers on its node, when the GPU itself is not reported.
    pub(crate) driver: DriverStatus,
}

/// The endpoint's own circumstances.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EndpointView {
    pub(crate) engine: Option<Engine>,
    pub(crate) slots: Option<u32>,
    /// How long its queue has been long without a break.
    pub(crate) queue_long_for: Span,
    pub(crate) is_draining: bool,
    /// Factor for the silence of its node, 1 when it talks or when silence is not held against it.
    pub(crate) silence: f64,
    pub(crate) is_node_late: bool,
}

pub(crate) fn judge(now: Time, gpus: &[GpuView<'_>], endpoint: EndpointView) -> Verdict {
    let mut factors = endpoint_factors(endpoint);
    let mut gate: f64 = factors.iter().map(|f| f.value).product();
    let mut weakest = 1.0_f64;
    let mut is_held = endpoint.is_node_late;
    for view in gpus {
        let of_gpu = gpu_factors(now, view, endpoint.engine, gpus.len() > 1);
        weakest = weakest.min(of_gpu.iter().map(|f| f.value).product());
        is_held |= is_late(now, view);
        factors.extend(of_gpu.into_iter().map(|mut f| {
            f.gpu = Some(view.uuid.clone());
            f
        }));
    }
    gate = bounded(gate * weakest, 0.0, 1.0);
    let hard = hard_state(&factors);
    Verdict { factors, gate, hard, is_held }
}

fn hard_state(factors: &[GateFactor]) -> HardState {
    let is_drain = |r| matches!(r, GateReason::Drain | GateReason::RecoveryDrain);
    let closed = || factors.iter().filter(|f| f.value <= 0.0);
    if closed().any(|f| !is_drain(f.reason)) {
        HardState::Down
    } else if closed().next().is_some() {
        HardState::Draining
    } else {
        HardState::Up
    }
}

fn endpoint_factors(endpoint: EndpointView) -> Vec<GateFactor> {
    let mut out = Vec::new();
    if endpoint.is_draining {
        out.push(GateFactor::measured(GateReason::Drain, 0.0, None));
    }
    if endpoint.silence < 1.0 {
        out.push(GateFactor::measured(GateReason::Silence, endpoint.silence, None));
    }
    if let Some(engine) = endpoint.engine {
        // A full cache and a long queue are one jam: counted once.
        let kv = engine.kv_use_bp.filter(|kv| *kv >= KV_FULL_BP);
        let queue = long_queue(Some(engine), endpoint.slots)
            .filter(|_| endpoint.queue_long_for >= QUEUE_LONG_MIN);
        if let Some(kv) = kv {
            let used = Some(f64::from(kv) / 10_000.0);
            out.push(GateFactor::measured(GateReason::KvFull, QUEUE_GATE, used));
        } else if let Some(waiting) = queue {
            out.push(GateFactor::measured(
                GateReason::QueueLong,
                QUEUE_GATE,
                Some(f64::from(waiting)),
            ));
        }
    }
    out
}

/// The requests that wait, when they are more than twice the slots.
pub(crate) fn long_queue(engine: Option<Engine>, slots: Option<u32>) -> Option<u32> {
    let (waiting, slots) = engine?.waiting.zip(slots.filter(|slots| *slots > 0))?;
    (waiting > slots.saturating_mul(2)).then_some(waiting)
}

/// The factors below 1 of one GPU, in order of reason, one per reason.
fn gpu_factors(
    now: Time,
    view: &GpuView<'_>,
    engine: Option<Engine>,
    spans_gpus: bool,
) -> Vec<GateFactor> {
    let mut out = view.memory.map(|m| m.factors(now, spans_gpus)).unwrap_or_default();
    let driver = view.reported.map_or(view.driver, |r| r.report.driver);
    out.extend(driver_factor(driver));
    match view.reported {
        Some(reported) => sample_factors(now, reported, view.memory, engine, spans_gpus, &mut out),
        None if driver_factor(driver).is_none() => {
            out.push(GateFactor::measured(GateReason::GpuUnreported, UNREPORTED_GATE, None));
        }
        None => {}
    }
    out.retain(|f| f.value < 1.0);
    out.sort_by(|a, b| a.reason.cmp(&b.reason).then(a.value.total_cmp(&b.value)));
    out.dedup_by_key(|f| f.reason);
    out
}

fn driver_factor(driver: DriverStatus) -> Option<GateFactor> {
    let (reason, gate) = match driver {
        DriverStatus::Ok | DriverStatus::Unknown => return None,
        DriverStatus::Hung => (GateReason::DriverHung, DRIVER_HUNG_GATE),
        DriverStatus::Absent | DriverStatus::Mismatch | DriverStatus::Failed => {
            (GateReason::DriverUnavailable, DRIVER_UNAVAILABLE_GATE)
        }
    };
    Some(GateFactor::measured(reason, gate, None))
}

fn sample_factors(
    now: Time,
    reported: ReportedGpu<'_>,
    memory: Option<&GpuMemory>,
    engine: Option<Engine>,
    spans_gpus: bool,
    out: &mut Vec<GateFactor>,
) {
    let ReportedGpu { report, gpu } = reported;
    let mut push = |reason, gate, measured| out.push(GateFactor::measured(reason, gate, measured));

    if let Some(action) = gpu.recovery_action.filter(|a| *a != 0) {
        let shown = Some(f64::from(action));
        match action {
            1 | 2 => push(GateReason::RecoveryAction, 0.0, shown),
            // Drain peer-to-peer traffic: only replicas over several GPUs have any.
            3 if !spans_gpus => push(GateReason::RecoveryDrain, SOFT_GATE, shown),
            _ => push(GateReason::RecoveryDrain, 0.0, shown),
        }
    }
    if gpu.state == GpuState::Slow {
        push(GateReason::GpuSlow, SLOW_CALLS_GATE, None);
    }
    // Row remapping and link width change by a reset or by hand, not by themselves: whatever its age, the
    // newest value stands, or a reporter that reads them seldom would have the GPU come and go.
    let ecc = gpu.ecc.map(|group| group.values);
    if ecc.is_some_and(|e| e.is_remap_failed == Some(true)) {
        push(GateReason::RemapFailed, 0.0, None);
    }
    if ecc.is_some_and(|e| e.is_remap_pending == Some(true)) {
        push(GateReason::RemapPending, SOFT_GATE, None);
    }
    if let Some(thermal) = read(now, report.received, report.interval, gpu.thermal, Tier::Medium)
        && let (Some(temperature), Some(slowdown)) = (thermal.temperature_c, thermal.slowdown_c)
    {
        let margin = f64::from(slowdown) - f64::from(temperature);
        let gate = 0.5 + 0.5 * bounded(margin / MARGIN_C, 0.0, 1.0);
        push(GateReason::TemperatureMargin, gate, Some(margin));
    }
    let takes_all_memory = engine.is_some_and(|e| e.kind.preallocates());
    if let Some(values) = read(now, report.received, report.interval, gpu.memory, Tier::Fast)
        && let (Some(free), Some(total)) = (values.free_bytes, values.total_bytes)
        && let Some(part) = ratio(free, total)
        && part < MEMORY_FREE_MIN
        && !takes_all_memory
    {
        push(GateReason::OutOfMemory, OUT_OF_MEMORY_GATE, Some(part));
    }
    if let Some(pcie) = gpu.pcie.map(|group| group.values)
        && let (Some(width), Some(width_max)) = (pcie.link_width, pcie.link_width_max)
        && let Some(part) = ratio(u64::from(width), u64::from(width_max))
    {
        push(GateReason::PcieWidth, part.max(PCIE_GATE_MIN), Some(f64::from(width)));
    }
    if let Some(clocks) = read(now, report.received, report.interval, gpu.clocks, Tier::Fast) {
        let since = memory.and_then(|m| m.slowdown_since);
        out.extend(throttle_factor(now, clocks, since));
    }
}

/// The strongest of the three ways in which a clock is held down.
fn throttle_factor(now: Time, clocks: Clocks, slowdown_since: Option<Time>) -> Option<GateFactor> {
    let bits = clocks.event_reasons?;
    let clock = clocks
        .sm_mhz
        .zip(clocks.sm_max_mhz)
        .and_then(|(now, max)| ratio(u64::from(now), u64::from(max)));
    let hardware = slowdown_since.map(|since| {
        let is_long = now.since(since) > SLOWDOWN_LONG;
        let gate = if is_long { SLOWDOWN_LONG_GATE } else { SLOWDOWN_GATE };
        GateFactor {
            since: Some(since),
            ..GateFactor::measured(GateReason::HwSlowdown, gate, clock)
        }
    });
    // Held down by an unknown amount: as much as this bit can mean.
    let thermal = (bits & SW_THERMAL != 0).then(|| {
        let gate = clock.unwrap_or(SW_THERMAL_GATE_MIN).max(SW_THERMAL_GATE_MIN);
        GateFactor::measured(GateReason::SwThermal, gate, clock)
    });
    // Normal at full load on large cards, hence only what the clock shows.
    let power = (bits & SW_POWER_CAP != 0).then(|| {
        let gate = clock.unwrap_or(1.0).max(CLOCK_GATE_MIN);
        GateFactor::measured(GateReason::PowerCap, gate, clock)
    });
    [hardware, thermal, power].into_iter().flatten().min_by(|a, b| a.value.total_cmp(&b.value))
}

/// A value that health rests on was known a moment ago and is not readable now.
fn is_late(now: Time, view: &GpuView<'_>) -> bool {
    let Some((ReportedGpu { report, gpu }, memory)) = view.reported.zip(view.memory) else {
        return false;
    };
    let late = |seen: Option<Time>, readable: bool| {
        !readable && seen.is_some_and(|at| now.since(at) <= HOLD_MAX)
    };
    let (received, interval) = (report.received, report.interval);
    late(memory.clocks_seen, read(now, received, interval, gpu.clocks, Tier::Fast).is_some())
        || late(
            memory.thermal_seen,
            read(now, received, interval, gpu.thermal, Tier::Medium).is_some(),
        )
        || freshness::freshness(now.since(received), interval) != freshness::Freshness::Fresh
}

#[cfg(test)]
mod tests;
