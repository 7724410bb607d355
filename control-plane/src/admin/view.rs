//! The state of the fleet as `/api/fleet` shows it and `tidegate status` reads it.
//!
//! What is unknown is `null`. Ratios are numbers from 0 to 1, ages and times are milliseconds.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use tidegate_weighting::{
    Alarm, EndpointSnapshot, GateFactor, HardState,
    input::{DriverStatus, GpuState},
};
use tokio::time::Instant;

use crate::{
    core::Core,
    discovery::{Directory, DiscoveryStatus},
    proxies::{Proxy, Sums},
    publish::PublishedService,
    store::{Entry, Store},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FleetView {
    pub version: String,
    /// Random per process, in hex: a 64-bit number is too long for JavaScript.
    pub instance: String,
    pub epoch: u64,
    pub period_ms: u64,
    pub uptime_ms: u64,
    pub ready: bool,
    pub not_ready: Vec<String>,
    pub discovery: DiscoveryStatus,
    pub services: Vec<ServiceView>,
    pub nodes: Vec<NodeView>,
    pub proxies: Vec<ProxyView>,
    pub alarms: Vec<AlarmView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceView {
    pub name: String,
    pub arrival_rate: Option<f64>,
    pub mean_service_ms: Option<u64>,
    pub proxies_live: u32,
    pub endpoints: Vec<EndpointView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndpointView {
    pub address: String,
    pub node: Option<String>,
    /// Index or UUID of its GPUs, from discovery or else from the node's report.
    pub gpus: Vec<String>,
    pub gpu_type: Option<String>,
    pub weight: u16,
    pub type_weight: u16,
    /// Part of the service's weight.
    pub share: f64,
    /// Part of the service's traffic to expect: weight times gate.
    pub traffic_share: f64,
    pub gate: f64,
    pub hard: String,
    pub reasons: Vec<ReasonView>,
    pub held: Option<String>,
    pub in_flight: Option<u32>,
    pub slots: Option<u32>,
    pub success: Option<f64>,
    pub memory_free: Option<f64>,
    pub age_ms: Option<u64>,
    pub outcomes: OutcomesView,
}

/// One factor of a health gate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReasonView {
    pub reason: String,
    pub value: f64,
    pub gpu: Option<String>,
    pub measured: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct OutcomesView {
    pub ok: u64,
    pub busy: u64,
    pub broken: u64,
    pub cancelled: u64,
    pub ttft_mean_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    pub node: String,
    pub part: String,
    pub state: NodeState,
    pub age_ms: u64,
    pub interval_ms: u64,
    pub driver: String,
    pub driver_version: String,
    pub driver_detail: String,
    pub reporter_version: String,
    pub boot_id: String,
    pub sequence: u64,
    pub accepted: u64,
    pub refused: u64,
    pub gpus_expected: Option<u32>,
    pub gpus: Vec<GpuView>,
    pub workloads: usize,
    pub cpu_use: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its stream is open and reports come.
    Reporting,
    /// Its stream is open, and nothing has come for three periods.
    Silent,
    /// Its stream is gone.
    Disconnected,
    /// It said that it leaves.
    Left,
}

impl NodeState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reporting => "reporting",
            Self::Silent => "silent",
            Self::Disconnected => "disconnected",
            Self::Left => "left",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GpuView {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub state: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProxyView {
    pub proxy_id: String,
    pub filter_version: String,
    /// Empty is every service.
    pub services: Vec<String>,
    pub config: String,
    pub config_error: Option<String>,
    pub rung: u32,
    pub connected_ms: u64,
    /// Time since its last hello or feedback.
    pub heard_ms: u64,
    pub in_flight: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AlarmView {
    pub kind: String,
    /// The service or node it is about.
    pub about: String,
}

/// The state now.
#[must_use]
pub fn of(core: &Arc<Core>) -> FleetView {
    let now = Instant::now();
    let not_ready = core.not_ready();
    let snapshot = core.snapshot();
    let directory = core.directory();
    let services = snapshot.iter().flat_map(|s| &s.services);
    FleetView {
        version: env!("CARGO_PKG_VERSION").into(),
        instance: format!("{:016x}", core.instance),
        epoch: snapshot.as_ref().map_or(0, |s| s.epoch),
        period_ms: millis(core.config.period),
        uptime_ms: millis(core.uptime()),
        ready: not_ready.is_empty(),
        not_ready,
        discovery: core.discovery(),
        services: services.map(|s| service(core, directory.as_deref(), s)).collect(),
        nodes: core.store().entries().map(|(n, p, e)| node(now, n, p, e)).collect(),
        proxies: core.proxies().iter().map(|p| proxy(now, p)).collect(),
        alarms: snapshot.iter().flat_map(|s| &s.alarms).map(alarm).collect(),
    }
}

fn service(core: &Core, directory: Option<&Directory>, s: &PublishedService) -> ServiceView {
    let gpus = Gpus::of(&core.store(), directory, &s.name);
    let all = taken_by_all(s);
    let proxies = core.proxies();
    let endpoints = s.endpoints.iter().map(|e| {
        let address = &e.endpoint.address;
        let sums = proxies.sums(&s.name, address).unwrap_or_default();
        endpoint(&e.endpoint, all, gpus.at(address), sums)
    });
    ServiceView {
        name: s.name.clone(),
        arrival_rate: s.arrival_rate,
        mean_service_ms: s.mean_service_ms,
        proxies_live: s.proxies_live,
        endpoints: endpoints.collect(),
    }
}

pub(super) fn endpoint(
    e: &EndpointSnapshot,
    taken_by_all: f64,
    gpus: Vec<String>,
    sums: Sums,
) -> EndpointView {
    EndpointView {
        address: e.address.clone(),
        node: e.node.clone(),
        gpus,
        gpu_type: e.gpu_type.clone(),
        weight: e.weight.get(),
        type_weight: e.type_weight.get(),
        share: e.explanation.share,
        traffic_share: if taken_by_all > 0.0 { taken(e) / taken_by_all } else { 0.0 },
        gate: e.gate.ratio(),
        hard: e.hard.as_str().into(),
        reasons: e.explanation.gates.iter().map(reason).collect(),
        held: e.explanation.held.map(|h| h.as_str().into()),
        in_flight: e.in_flight,
        slots: e.slots,
        success: e.success.map(|s| s.ratio()),
        memory_free: e.memory_free.map(|m| m.ratio()),
        age_ms: e.age.map(|age| age.as_ms()),
        outcomes: OutcomesView {
            ok: sums.ok,
            busy: sums.busy,
            broken: sums.broken,
            cancelled: sums.cancelled,
            ttft_mean_ms: sums.ttft_ms.checked_div(sums.ttft_count),
        },
    }
}

/// What an endpoint takes of the traffic, next to what others take.
fn taken(e: &EndpointSnapshot) -> f64 {
    match e.hard {
        HardState::Up => f64::from(e.weight.get()) * e.gate.ratio(),
        HardState::Draining | HardState::Down => 0.0,
    }
}

fn reason(factor: &GateFactor) -> ReasonView {
    ReasonView {
        reason: factor.reason.as_str().into(),
        value: factor.value,
        gpu: factor.gpu.clone(),
        measured: factor.measured,
    }
}

/// What all endpoints of a service take together.
pub(super) fn taken_by_all(service: &PublishedService) -> f64 {
    service.endpoints.iter().map(|e| taken(&e.endpoint)).sum()
}

/// The GPUs of each endpoint of a service: what discovery names, or else what a workload in a report
/// names.
pub(super) struct Gpus(HashMap<String, Vec<String>>);

impl Gpus {
    pub(super) fn of(store: &Store, directory: Option<&Directory>, service: &str) -> Self {
        let mut all = HashMap::new();
        for (_, _, entry) in store.entries() {
            let report = &entry.report;
            for workload in &report.workloads {
                let name = |uuid: &String| {
                    let gpu = report.gpus.iter().find(|g| g.uuid == *uuid);
                    gpu.map_or_else(|| uuid.clone(), |g| g.index.to_string())
                };
                let gpus = workload.gpu_uuids.iter().map(name).collect();
                all.insert(workload.endpoint.clone(), gpus);
            }
        }
        let named = directory.iter().flat_map(|d| &d.services).filter(|s| s.name == service);
        for entry in named.flat_map(|s| &s.endpoints).filter(|e| !e.gpus.is_empty()) {
            all.insert(entry.address.clone(), entry.gpus.clone());
        }
        Self(all)
    }

    pub(super) fn at(&self, address: &str) -> Vec<String> {
        self.0.get(address).cloned().unwrap_or_default()
    }
}

fn node(now: Instant, node: &str, part: &str, e: &Entry) -> NodeView {
    let age_ms = millis(now.saturating_duration_since(e.received));
    let interval_ms = e.report.interval.as_ms();
    let state = match &e.stream {
        _ if e.detail.leaving => NodeState::Left,
        None => NodeState::Disconnected,
        Some(_) if age_ms > interval_ms.saturating_mul(3) => NodeState::Silent,
        Some(_) => NodeState::Reporting,
    };
    NodeView {
        node: node.into(),
        part: part.into(),
        state,
        age_ms,
        interval_ms,
        driver: driver(e.report.driver).into(),
        driver_version: e.detail.driver_version.clone(),
        driver_detail: e.detail.driver_detail.clone(),
        reporter_version: e.detail.reporter_version.clone(),
        boot_id: e.boot_id.clone(),
        sequence: e.sequence,
        accepted: e.accepted,
        refused: e.refused,
        gpus_expected: e.detail.gpus_expected,
        gpus: e
            .report
            .gpus
            .iter()
            .map(|g| GpuView {
                index: g.index,
                uuid: g.uuid.clone(),
                name: g.name.clone(),
                state: gpu_state(g.state).into(),
            })
            .collect(),
        workloads: e.report.workloads.len(),
        cpu_use: e.detail.host.and_then(|h| h.cpu_use_bp).map(|bp| f64::from(bp) / 10_000.0),
    }
}

fn proxy(now: Instant, p: &Proxy) -> ProxyView {
    ProxyView {
        proxy_id: p.hello.proxy_id.clone(),
        filter_version: p.hello.filter_version.clone(),
        services: p.hello.services.iter().cloned().collect(),
        config: p.hello.config.as_str().into(),
        config_error: Some(p.hello.config_error.clone()).filter(|e| !e.is_empty()),
        rung: p.rung,
        connected_ms: millis(now.saturating_duration_since(p.connected)),
        heard_ms: millis(now.saturating_duration_since(p.heard)),
        in_flight: p.in_flight.values().map(|n| u64::from(*n)).sum(),
    }
}

fn alarm(alarm: &Alarm) -> AlarmView {
    let about = match alarm {
        Alarm::LowCapacity { service }
        | Alarm::MassSilence { service }
        | Alarm::Invariant { service } => service,
        Alarm::NodeSuspect { node } => node,
    };
    AlarmView { kind: alarm.as_str().into(), about: about.clone() }
}

const fn driver(status: DriverStatus) -> &'static str {
    match status {
        DriverStatus::Unknown => "unknown",
        DriverStatus::Ok => "ok",
        DriverStatus::Absent => "absent",
        DriverStatus::Mismatch => "mismatch",
        DriverStatus::Hung => "hung",
        DriverStatus::Failed => "failed",
    }
}

const fn gpu_state(state: GpuState) -> &'static str {
    match state {
        GpuState::Unknown => "unknown",
        GpuState::Ok => "ok",
        GpuState::Lost => "lost",
        GpuState::Hung => "hung",
        GpuState::Slow => "slow",
        GpuState::Missing => "missing",
    }
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
