//! A report on the wire, checked and turned into what the store and the weighting read.
//!
//! Nothing that comes from a node is trusted: names have a charset and a length, lists a length, and
//! numbers a range. A value outside (a utilisation above 100 %, the driver's "not a number" of
//! 2^63 - 1) refuses the report with path, value and range, so that it never turns into a weight.
//! Enum values from a newer reporter read as unknown, which is neutral.

use std::{collections::BTreeSet, net::SocketAddr, ops::RangeInclusive};

use tidegate_policy::units::{Span, Time};
use tidegate_proto::v1;
use tidegate_weighting::input::{
    Aged, Clocks, DriverStatus, Ecc, Engine, EngineKind, GpuSample, GpuState, Memory, NodeReport,
    Pcie, Power, Thermal, Utilization, Workload, XidEvent,
};

use super::check::Check;
use crate::{
    config::Limits,
    store::{HostLoad, NodeDetail, Offer},
    text,
};

/// A GPU index above this is no index.
const INDEX_MAX: u32 = 1_023;
const PERCENT_MAX: u32 = 100;
const BASIS_POINTS_MAX: u32 = 10_000;
/// Far above any GPU, far below the driver's marks for "unknown".
const MEMORY_BYTES_MAX: u64 = 1 << 50;
const TEMPERATURE_C_MAX: u32 = 250;
const POWER_MW_MAX: u32 = 10_000_000;
const CLOCK_MHZ_MAX: u32 = 100_000;
const LINK_WIDTH_MAX: u32 = 64;
const LINK_GENERATION_MAX: u32 = 32;
const BYTES_PER_SECOND_MAX: u64 = 1 << 50;
const REQUESTS_MAX: u32 = 1_000_000;
const TTFT_MS_MAX: u32 = 3_600_000;
const TOKENS_PER_SECOND_MAX: f64 = 1e9;
const LOAD_MAX: f64 = 1e6;
const INTERVAL_MS: RangeInclusive<u32> = 100..=60_000;
/// The interval of a reporter that does not say: the reporter's own default.
const INTERVAL_MS_DEFAULT: u32 = 500;

/// Checks a report and turns it into an offer to the store.
///
/// # Errors
/// What is wrong with it, with path, value and range, at most 512 bytes.
pub fn offer(r: v1::ReportRequest, received: Time, limits: &Limits) -> Result<Offer, String> {
    let mut check = Check::new(limits);
    check.name(format_args!("node"), &r.node);
    if !r.part.is_empty() {
        check.name(format_args!("part"), &r.part);
    }
    check.name(format_args!("boot_id"), &r.boot_id);
    if r.interval_ms != 0 {
        check.within(format_args!("interval_ms"), r.interval_ms, INTERVAL_MS);
    }
    check.length(format_args!("gpus"), r.gpus.len(), limits.gpus_per_report);
    check.length(format_args!("workloads"), r.workloads.len(), limits.workloads_per_report);
    check.verdict()?;
    let interval_ms = if r.interval_ms == 0 { INTERVAL_MS_DEFAULT } else { r.interval_ms };
    let mut uuids = BTreeSet::new();
    let mut gpus = Vec::with_capacity(r.gpus.len());
    for (i, g) in r.gpus.into_iter().enumerate() {
        if !uuids.insert(g.uuid.clone()) {
            check.refuse(format_args!("gpus[{i}].uuid"), &g.uuid, "names that are listed once");
        }
        gpus.push(gpu(&mut check, i, g));
    }
    let workloads =
        r.workloads.into_iter().enumerate().map(|(i, w)| workload(&mut check, i, w)).collect();
    let driver = r.driver.unwrap_or_default();
    let detail = NodeDetail {
        reporter_version: text::cut(&r.reporter_version, limits.text_bytes),
        driver_version: text::cut(&driver.driver_version, limits.text_bytes),
        nvml_version: text::cut(&driver.nvml_version, limits.text_bytes),
        driver_detail: text::cut(&driver.detail, limits.detail_bytes),
        gpus_expected: driver.gpus_expected,
        leaving: r.leaving,
        host: r.host.map(|h| host(&mut check, &h)),
    };
    check.verdict()?;
    Ok(Offer {
        node: r.node.clone(),
        part: r.part,
        boot_id: r.boot_id.clone(),
        sequence: r.sequence,
        report: NodeReport {
            node: r.node,
            boot_id: r.boot_id,
            received,
            interval: Span::ms(interval_ms.into()),
            driver: driver_status(driver.status),
            gpus,
            workloads,
        },
        detail,
    })
}

fn gpu(check: &mut Check<'_>, i: usize, g: v1::Gpu) -> GpuSample {
    check.name(format_args!("gpus[{i}].uuid"), &g.uuid);
    check.within(format_args!("gpus[{i}].index"), g.index, 0..=INDEX_MAX);
    check.text(format_args!("gpus[{i}].name"), &g.name);
    check.text(format_args!("gpus[{i}].pci_bus_id"), &g.pci_bus_id);
    check.text(format_args!("gpus[{i}].architecture"), &g.architecture);
    let items_max = check.limits.items_per_gpu;
    for (field, count) in [
        ("xids", g.xids.len()),
        ("unsupported", g.unsupported.len()),
        ("processes", g.processes.map_or(0, |p| p.compute.len())),
        ("mig.instances", g.mig.map_or(0, |m| m.instances.len())),
    ] {
        check.length(format_args!("gpus[{i}].{field}"), count, items_max);
    }
    GpuSample {
        utilization: g.utilization.map(|u| utilization(check, i, &u)),
        memory: g.memory.map(|m| memory(check, i, &m)),
        thermal: g.thermal.map(|t| thermal(check, i, &t)),
        power: g.power.map(|p| power(check, i, &p)),
        clocks: g.clocks.map(|c| clocks(check, i, &c)),
        ecc: g.ecc.map(|e| ecc(&e)),
        pcie: g.pcie.map(|p| pcie(check, i, &p)),
        xids: g.xids.iter().map(xid).collect(),
        uuid: g.uuid,
        index: g.index,
        name: g.name,
        state: gpu_state(g.state),
        recovery_action: g.recovery_action,
    }
}

fn utilization(check: &mut Check<'_>, i: usize, u: &v1::Utilization) -> Aged<Utilization> {
    for (field, value) in [
        ("sm_percent", u.sm_percent),
        ("memory_percent", u.memory_percent),
        ("encoder_percent", u.encoder_percent),
        ("decoder_percent", u.decoder_percent),
    ] {
        check.maybe(format_args!("gpus[{i}].utilization.{field}"), value, 0..=PERCENT_MAX);
    }
    let values = Utilization { sm_percent: u.sm_percent, memory_percent: u.memory_percent };
    aged(u.age_ms, values)
}

fn memory(check: &mut Check<'_>, i: usize, m: &v1::Memory) -> Aged<Memory> {
    check.maybe(format_args!("gpus[{i}].memory.total_bytes"), m.total_bytes, 0..=MEMORY_BYTES_MAX);
    let total = m.total_bytes.unwrap_or(MEMORY_BYTES_MAX);
    for (field, value) in [
        ("free_bytes", m.free_bytes),
        ("used_bytes", m.used_bytes),
        ("reserved_bytes", m.reserved_bytes),
    ] {
        check.maybe(format_args!("gpus[{i}].memory.{field}"), value, 0..=total);
    }
    aged(m.age_ms, Memory { total_bytes: m.total_bytes, free_bytes: m.free_bytes })
}

fn thermal(check: &mut Check<'_>, i: usize, t: &v1::Thermal) -> Aged<Thermal> {
    for (field, value) in [
        ("temperature_c", t.temperature_c),
        ("slowdown_c", t.slowdown_c),
        ("shutdown_c", t.shutdown_c),
        ("memory_temperature_c", t.memory_temperature_c),
    ] {
        check.maybe(format_args!("gpus[{i}].thermal.{field}"), value, 0..=TEMPERATURE_C_MAX);
    }
    aged(t.age_ms, Thermal { temperature_c: t.temperature_c, slowdown_c: t.slowdown_c })
}

fn power(check: &mut Check<'_>, i: usize, p: &v1::Power) -> Aged<Power> {
    for (field, value) in [("draw_mw", p.draw_mw), ("limit_mw", p.limit_mw)] {
        check.maybe(format_args!("gpus[{i}].power.{field}"), value, 0..=POWER_MW_MAX);
    }
    aged(p.age_ms, Power { draw_mw: p.draw_mw, limit_mw: p.limit_mw })
}

fn clocks(check: &mut Check<'_>, i: usize, c: &v1::Clocks) -> Aged<Clocks> {
    for (field, value) in [
        ("sm_mhz", c.sm_mhz),
        ("sm_max_mhz", c.sm_max_mhz),
        ("memory_mhz", c.memory_mhz),
        ("memory_max_mhz", c.memory_max_mhz),
    ] {
        check.maybe(format_args!("gpus[{i}].clocks.{field}"), value, 0..=CLOCK_MHZ_MAX);
    }
    let values =
        Clocks { sm_mhz: c.sm_mhz, sm_max_mhz: c.sm_max_mhz, event_reasons: c.event_reasons };
    aged(c.age_ms, values)
}

fn ecc(e: &v1::Ecc) -> Aged<Ecc> {
    let values = Ecc {
        volatile_uncorrected: e.volatile_uncorrected,
        is_remap_pending: e.remap_pending,
        is_remap_failed: e.remap_failure,
    };
    aged(e.age_ms, values)
}

fn pcie(check: &mut Check<'_>, i: usize, p: &v1::Pcie) -> Aged<Pcie> {
    for (field, value) in [
        ("tx_bytes_per_second", p.tx_bytes_per_second),
        ("rx_bytes_per_second", p.rx_bytes_per_second),
    ] {
        check.maybe(format_args!("gpus[{i}].pcie.{field}"), value, 0..=BYTES_PER_SECOND_MAX);
    }
    for (field, value, max) in [
        ("link_generation", p.link_generation, LINK_GENERATION_MAX),
        ("link_generation_max", p.link_generation_max, LINK_GENERATION_MAX),
        ("link_width", p.link_width, LINK_WIDTH_MAX),
        ("link_width_max", p.link_width_max, LINK_WIDTH_MAX),
    ] {
        check.maybe(format_args!("gpus[{i}].pcie.{field}"), value, 0..=max);
    }
    let values = Pcie {
        tx_bytes_per_second: p.tx_bytes_per_second,
        rx_bytes_per_second: p.rx_bytes_per_second,
        link_generation: p.link_generation,
        link_width: p.link_width,
        link_width_max: p.link_width_max,
    };
    aged(p.age_ms, values)
}

fn xid(x: &v1::XidEvent) -> XidEvent {
    XidEvent { code: x.code, age: Span::ms(x.age_ms), event_id: x.event_id }
}

fn workload(check: &mut Check<'_>, i: usize, w: v1::Workload) -> Workload {
    let address = w.endpoint.parse::<SocketAddr>();
    if address.is_err() {
        check.refuse(format_args!("workloads[{i}].endpoint"), &w.endpoint, "an address ip:port");
    }
    for (field, value) in [
        ("service", &w.service),
        ("namespace", &w.namespace),
        ("pod", &w.pod),
        ("pod_uid", &w.pod_uid),
    ] {
        if !value.is_empty() {
            check.name(format_args!("workloads[{i}].{field}"), value);
        }
    }
    let gpus_max = check.limits.gpus_per_report;
    check.length(format_args!("workloads[{i}].gpu_uuids"), w.gpu_uuids.len(), gpus_max);
    for (j, uuid) in w.gpu_uuids.iter().enumerate().take(gpus_max) {
        check.name(format_args!("workloads[{i}].gpu_uuids[{j}]"), uuid);
    }
    Workload {
        endpoint: address.map(|a| a.to_string()).unwrap_or_default(),
        service: w.service,
        gpu_uuids: w.gpu_uuids,
        engine: w.engine.map(|e| engine(check, i, &e)),
    }
}

fn engine(check: &mut Check<'_>, i: usize, e: &v1::Engine) -> Aged<Engine> {
    check.text(format_args!("workloads[{i}].engine.kind"), &e.kind);
    for (field, value, max) in [
        ("running", e.running, REQUESTS_MAX),
        ("waiting", e.waiting, REQUESTS_MAX),
        ("kv_use_bp", e.kv_use_bp, BASIS_POINTS_MAX),
        ("slots", e.slots, REQUESTS_MAX),
        ("ttft_p50_ms", e.ttft_p50_ms, TTFT_MS_MAX),
        ("ttft_p95_ms", e.ttft_p95_ms, TTFT_MS_MAX),
    ] {
        check.maybe(format_args!("workloads[{i}].engine.{field}"), value, 0..=max);
    }
    check.maybe(
        format_args!("workloads[{i}].engine.tokens_per_second"),
        e.tokens_per_second,
        0.0..=TOKENS_PER_SECOND_MAX,
    );
    let values = Engine {
        kind: EngineKind::from_name(&e.kind),
        running: e.running,
        waiting: e.waiting,
        kv_use_bp: e.kv_use_bp,
        slots: e.slots,
        ttft_p95_ms: e.ttft_p95_ms,
        tokens_per_second: e.tokens_per_second,
    };
    aged(e.age_ms, values)
}

fn host(check: &mut Check<'_>, h: &v1::Host) -> HostLoad {
    for (field, value) in [
        ("cpu_use_bp", h.cpu_use_bp),
        ("cpu_pressure_bp", h.cpu_pressure_bp),
        ("memory_pressure_bp", h.memory_pressure_bp),
        ("io_pressure_bp", h.io_pressure_bp),
    ] {
        check.maybe(format_args!("host.{field}"), value, 0..=BASIS_POINTS_MAX);
    }
    check.maybe(format_args!("host.load_1m"), h.load_1m, 0.0..=LOAD_MAX);
    HostLoad {
        cpu_use_bp: h.cpu_use_bp,
        memory_total_bytes: h.memory_total_bytes,
        memory_available_bytes: h.memory_available_bytes,
    }
}

fn aged<T>(age_ms: u32, values: T) -> Aged<T> {
    Aged { age: Span::ms(age_ms.into()), values }
}

fn driver_status(status: i32) -> DriverStatus {
    match v1::DriverStatus::try_from(status).unwrap_or_default() {
        v1::DriverStatus::Unspecified => DriverStatus::Unknown,
        v1::DriverStatus::Ok => DriverStatus::Ok,
        v1::DriverStatus::Absent => DriverStatus::Absent,
        v1::DriverStatus::Mismatch => DriverStatus::Mismatch,
        v1::DriverStatus::Hung => DriverStatus::Hung,
        v1::DriverStatus::Failed => DriverStatus::Failed,
    }
}

fn gpu_state(state: i32) -> GpuState {
    match v1::GpuState::try_from(state).unwrap_or_default() {
        v1::GpuState::Unspecified => GpuState::Unknown,
        v1::GpuState::Ok => GpuState::Ok,
        v1::GpuState::Lost => GpuState::Lost,
        v1::GpuState::Hung => GpuState::Hung,
        v1::GpuState::Slow => GpuState::Slow,
        v1::GpuState::Missing => GpuState::Missing,
    }
}

#[cfg(test)]
mod tests;
