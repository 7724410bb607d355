//! One step: what is known now becomes what every proxy shall know.
//!
//! Urgent and slow are apart. A GPU that breaks or throttles shows in the gate of the very next step;
//! weights move over seconds to minutes. Silence and missing data never make an endpoint better, and
//! silence alone never takes a service to zero.
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::{String, ToString},
    vec::Vec,
};

use tidegate_policy::units::{Span, Time};

use crate::{
    bind::{GpuKey, Reports},
    input::{EndpointDefinition, EndpointFeedback, Inputs, ServiceFeedback},
    latch::GpuMemory,
    service::{Context, ServiceState},
    settings::Settings,
    snapshot::{Alarm, FleetSnapshot},
};

/// Endpoints that are there this soon after the start have been serving all along.
const START: Span = Span::secs(10);

/// Turns inputs into fleet snapshots; remembers what smoothing and latched verdicts need.
///
/// Limits: one memory per GPU that is reported or bound and one state per defined endpoint; what is
/// neither any more is forgotten in the same step.
#[derive(Debug, Clone, Default)]
pub struct Weigher {
    settings: Settings,
    started: Option<Time>,
    last: Option<Time>,
    gpus: BTreeMap<GpuKey, GpuMemory>,
    services: BTreeMap<String, ServiceState>,
}

impl Weigher {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Replaces the settings; what was learned and latched stays.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// An operator vouches for a GPU: its latched verdicts end. False when the GPU is unknown.
    pub fn acknowledge(&mut self, node: &str, gpu_uuid: &str) -> bool {
        let key = (node.to_string(), gpu_uuid.to_string());
        self.gpus.get_mut(&key).map(GpuMemory::acknowledge).is_some()
    }

    /// The fleet as of `now`. Run it each period, and at once after an event; the same step again
    /// changes nothing.
    pub fn step(&mut self, now: Time, inputs: &Inputs) -> FleetSnapshot {
        let started = *self.started.get_or_insert(now);
        let dt = self.last.map_or(Span::ZERO, |last| now.since(last));
        self.last = Some(now);

        let reports = Reports::new(&inputs.nodes);
        for (key, gpu) in reports.gpus() {
            self.gpus.entry(key.clone()).or_default().observe(
                gpu.report,
                gpu.gpu,
                &self.settings.xids,
            );
        }

        let endpoints = by_service(&inputs.endpoints);
        self.services.retain(|name, _| endpoints.contains_key(name.as_str()));
        let feedback = feedback_by_endpoint(&inputs.feedback);
        let services: BTreeMap<&str, &ServiceFeedback> =
            inputs.services.iter().map(|s| (s.service.as_str(), s)).collect();

        let mut snapshot = FleetSnapshot::default();
        for (name, endpoints) in &endpoints {
            let context = Context {
                now,
                dt,
                settings: &self.settings,
                reports: &reports,
                gpus: &self.gpus,
                feedback: &feedback,
                arrivals: services.get(name).copied(),
                is_starting: now.since(started) <= START,
            };
            let state = self.services.entry((*name).to_string()).or_default();
            let (service, alarms) = state.step(name, endpoints, &context);
            snapshot.services.push(service);
            snapshot.alarms.extend(alarms);
        }

        let suspects: BTreeSet<&String> =
            self.gpus.iter().filter(|(_, m)| m.is_bus_lost()).map(|((node, _), _)| node).collect();
        let suspects = suspects.into_iter().map(|node| Alarm::NodeSuspect { node: node.clone() });
        snapshot.alarms.extend(suspects);
        snapshot.alarms.sort();
        self.forget_unused(&reports);
        snapshot
    }

    fn forget_unused(&mut self, reports: &Reports<'_>) {
        let bound: BTreeSet<&GpuKey> =
            self.services.values().flat_map(ServiceState::bound_gpus).collect();
        self.gpus.retain(|key, _| bound.contains(key) || reports.gpu(key).is_some());
    }
}

/// Endpoints by service and address; of two definitions of one address the greater one wins, whatever
/// their order.
fn by_service(
    endpoints: &[EndpointDefinition],
) -> BTreeMap<&str, BTreeMap<&str, &EndpointDefinition>> {
    let mut out: BTreeMap<&str, BTreeMap<&str, &EndpointDefinition>> = BTreeMap::new();
    let rank = |e: &EndpointDefinition| {
        (e.is_draining, e.node.clone(), e.gpus.clone(), e.capacity.map(f64::to_bits))
    };
    for endpoint in endpoints {
        let slot = out
            .entry(endpoint.service.as_str())
            .or_default()
            .entry(endpoint.address.as_str())
            .or_insert(endpoint);
        if rank(endpoint) > rank(slot) {
            *slot = endpoint;
        }
    }
    out
}

fn feedback_by_endpoint(
    feedback: &[EndpointFeedback],
) -> BTreeMap<(&str, &str), &EndpointFeedback> {
    let mut sorted: Vec<&EndpointFeedback> = feedback.iter().collect();
    sorted.sort_by_key(|f| (f.ok_total, f.broken_total, f.in_flight));
    sorted.into_iter().map(|f| ((f.service.as_str(), f.address.as_str()), f)).collect()
}

#[cfg(test)]
mod tests;
