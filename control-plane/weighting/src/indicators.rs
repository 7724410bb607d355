//! From an endpoint's fresh values to one row of the entropy method.
//!
//! Of several GPUs the worst counts for each indicator. Values outside their physical range (a
//! utilisation of 130 %, free memory above the total) are mistakes of a sensor and count as unknown.
use tidegate_policy::units::Time;

use crate::{
    entropy::{Indicator, PhysicalRange, Row},
    freshness::{Tier, read},
    health::ReportedGpu,
    input::{Engine, Pcie},
    settings::Settings,
};

/// Cooler than this is not better.
const COOL_C: f64 = 30.0;

/// Measured values in their units, and the same normalised.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Indicators {
    pub(crate) measured: [Option<f64>; Indicator::COUNT],
    pub(crate) row: Row,
}

pub(crate) fn of_endpoint<'a>(
    now: Time,
    gpus: impl Iterator<Item = ReportedGpu<'a>>,
    engine: Option<Engine>,
    slots: Option<u32>,
    settings: &Settings,
) -> Indicators {
    let mut out = Indicators::default();
    for gpu in gpus {
        of_gpu(now, gpu, &mut out);
    }
    if let Some(engine) = engine {
        of_engine(engine, slots, settings, &mut out);
    }
    out
}

impl Indicators {
    /// Keeps the worse of what is there and what is added.
    fn add(&mut self, indicator: Indicator, measured: Option<f64>, range: PhysicalRange) {
        let Some((measured, z)) = measured.and_then(|m| Some((m, range.normalise(m)?))) else {
            return;
        };
        let at = Indicator::ALL.iter().position(|i| *i == indicator).unwrap_or(0);
        if let (Some(value), Some(cell)) = (self.measured.get_mut(at), self.row.get_mut(at))
            && cell.is_none_or(|old| z < old)
        {
            *value = Some(measured);
            *cell = Some(z);
        }
    }
}

fn of_gpu(now: Time, reported: ReportedGpu<'_>, out: &mut Indicators) {
    let ReportedGpu { report, gpu } = reported;
    let (received, interval) = (report.received, report.interval);
    if let Some(values) = read(now, received, interval, gpu.utilization, Tier::Fast) {
        out.add(Indicator::SmUse, percent(values.sm_percent), PhysicalRange::UNIT_COST);
        out.add(
            Indicator::MemoryBandwidth,
            percent(values.memory_percent),
            PhysicalRange::UNIT_COST,
        );
    }
    if let Some(values) = read(now, received, interval, gpu.memory, Tier::Fast) {
        let free = values.free_bytes.zip(values.total_bytes).filter(|(f, t)| f <= t && *t > 0);
        let free = free.map(|(free, total)| free as f64 / total as f64);
        out.add(Indicator::MemoryFree, free, PhysicalRange::UNIT_BENEFIT);
    }
    if let Some(values) = read(now, received, interval, gpu.thermal, Tier::Medium)
        && let Some(slowdown) = values.slowdown_c.map(f64::from).filter(|s| *s > COOL_C)
    {
        let range = PhysicalRange { low: COOL_C, high: slowdown, ..PhysicalRange::UNIT_COST };
        out.add(Indicator::Temperature, values.temperature_c.map(f64::from), range);
    }
    if let Some(values) = read(now, received, interval, gpu.power, Tier::Fast) {
        let limits = values.draw_mw.zip(values.limit_mw).filter(|(_, limit)| *limit > 0);
        let headroom = limits.map(|(draw, limit)| 1.0 - f64::from(draw) / f64::from(limit));
        out.add(Indicator::PowerHeadroom, headroom, PhysicalRange::UNIT_BENEFIT);
    }
    if let Some(values) = read(now, received, interval, gpu.pcie, Tier::Medium) {
        out.add(Indicator::PcieUse, pcie_use(values), PhysicalRange::UNIT_COST);
    }
}

fn of_engine(engine: Engine, slots: Option<u32>, settings: &Settings, out: &mut Indicators) {
    let queue = engine.waiting.zip(slots).filter(|(_, slots)| *slots > 0);
    let queue = queue.map(|(waiting, slots)| f64::from(waiting) / (2.0 * f64::from(slots)));
    out.add(Indicator::Queue, queue, PhysicalRange::UNIT_COST);
    let kv = engine.kv_use_bp.filter(|kv| *kv <= 10_000).map(|kv| f64::from(kv) / 10_000.0);
    out.add(Indicator::KvUse, kv, PhysicalRange::UNIT_COST);
    let objective_ms = settings.ttft_objective.as_ms();
    let ttft = engine.ttft_p95_ms.filter(|_| objective_ms > 0);
    let ttft = ttft.map(|ttft| f64::from(ttft) / objective_ms as f64);
    out.add(Indicator::Ttft, ttft, PhysicalRange::UNIT_COST);
}

fn percent(value: Option<u32>) -> Option<f64> {
    value.filter(|v| *v <= 100).map(|v| f64::from(v) / 100.0)
}

/// The busier direction as part of what the link can carry.
fn pcie_use(pcie: Pcie) -> Option<f64> {
    let lane_bytes_per_second = match pcie.link_generation? {
        1 => 0.25e9,
        2 => 0.5e9,
        3 => 0.985e9,
        4 => 1.969e9,
        5 => 3.938e9,
        6 => 7.563e9,
        _ => return None,
    };
    let width = pcie.link_width.filter(|w| *w > 0)?;
    let busier = pcie.tx_bytes_per_second.into_iter().chain(pcie.rx_bytes_per_second).max()?;
    Some(busier as f64 / (lane_bytes_per_second * f64::from(width)))
}
